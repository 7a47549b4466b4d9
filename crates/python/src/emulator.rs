//! Networks that predict spectra.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use popfit::emulator::{Activation, EmulatorLayers, Hull, Label, Layer};
use popfit::{Emulator, Error, WriteOptions};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arrays::{give, give_shaped};
use crate::errors::{exception, input_error};
use crate::wait::{Watch, begin, run_or_raise};

/// Spectra between two looks at whether a prediction is cancelled.
const BLOCK: usize = 1024;

/// A network, shared by all models that have it.
#[pyclass(frozen, module = "popfit._popfit", name = "Emulator")]
pub struct SharedEmulator {
    pub emulator: Arc<Emulator>,
}

/// A label as Python gives it: name, unit, bounds of the training set, mean and standard deviation of its scaling, and
/// whether it is scaled as log10.
type GivenLabel = (String, String, (f64, f64), (f64, f64), bool);

#[pymethods]
impl SharedEmulator {
    /// Reads a file of a network.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<SharedEmulator> {
        begin(py)?;
        shared(py, py.detach(|| Emulator::open(path)))
    }

    /// Reads a network from the bytes of such a file.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, name: String, bytes: &[u8]) -> PyResult<SharedEmulator> {
        begin(py)?;
        shared(py, py.detach(|| Emulator::from_bytes(name, bytes)))
    }

    /// Makes a network of its layers: weights (outputs, inputs), biases (outputs), and the functions of the hidden
    /// layers and of the last one.
    #[staticmethod]
    fn from_layers(
        py: Python<'_>,
        labels: Vec<GivenLabel>,
        weights: Vec<PyReadonlyArray2<'_, f32>>,
        biases: Vec<PyReadonlyArray1<'_, f32>>,
        functions: (String, String),
        wavelength: PyReadonlyArray1<'_, f64>,
        hulls: Vec<(Vec<usize>, Vec<f64>)>,
    ) -> PyResult<SharedEmulator> {
        let labels = labels.into_iter().map(label).collect();
        let layers = weights.iter().zip(&biases).map(|(weight, bias)| {
            Ok(Layer::new(
                weight.as_slice()?.to_vec(),
                bias.as_slice()?.to_vec(),
            ))
        });
        let layers = layers.collect::<PyResult<Vec<_>>>()?;
        let hulls = hulls
            .into_iter()
            .map(|(axes, facets)| Hull { axes, facets })
            .collect();
        let (activation, output) = functions;
        let output = match output.as_str() {
            "identity" => Activation::Identity,
            "exp" => Activation::Exp {
                clip: Activation::DEFAULT_CLIP,
            },
            other => {
                let message = format!(
                    "output: {other:?} is no function of the last layer; give \"identity\" or \"exp\""
                );
                return Err(input_error(py, "output", message));
            }
        };
        let made = activation.parse::<Activation>().and_then(|activation| {
            let layers = EmulatorLayers {
                output,
                hulls,
                wavelength: wavelength
                    .as_slice()
                    .map_err(|error| Error::Usage(error.to_string()))?
                    .to_vec(),
                ..EmulatorLayers::new(labels, activation, layers)
            };
            Emulator::from_layers(layers)
        });
        shared(py, made)
    }

    /// Returns the bytes of the network's file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self
            .emulator
            .to_bytes()
            .map_err(|error| exception(py, &error))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes the network to a file.
    fn write(&self, py: Python<'_>, path: PathBuf, overwrite: bool) -> PyResult<()> {
        let options = WriteOptions {
            overwrite,
            ..WriteOptions::default()
        };
        self.emulator
            .write(path, options)
            .map_err(|error| exception(py, &error))
    }

    /// Returns name, unit, and lowest and highest value of the training set of each label.
    #[getter]
    fn labels(&self) -> Vec<(String, String, f64, f64)> {
        let labels = self.emulator.labels().iter();
        labels
            .map(|label| (label.name.clone(), label.unit.clone(), label.min, label.max))
            .collect()
    }

    /// Returns the wavelengths (pixels) in vacuum, in Å.
    #[getter]
    fn wavelength<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        give(py, self.emulator.wavelength().to_vec())
    }

    /// Returns the file, or another name of where the network is from.
    #[getter]
    fn source(&self) -> &str {
        self.emulator.source()
    }

    /// Predicts the spectra (n, pixels) of labels (n, labels).
    fn spectra<'py>(
        &self,
        py: Python<'py>,
        labels: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (rows, given) = (labels.shape()[0], labels.shape()[1]);
        let wanted = self.emulator.labels().len();
        if given != wanted {
            let message = format!("labels: {given} columns, but the network has {wanted} labels");
            return Err(input_error(py, "labels", message));
        }
        let labels = labels.as_slice()?;
        let mut values = Vec::with_capacity(rows * self.emulator.pixels());
        run_or_raise(py, Watch::default(), |control| {
            let mut blocks = labels.chunks(BLOCK * wanted.max(1));
            while let Some(block) = blocks
                .next()
                .filter(|_| !control.cancel.load(Ordering::Relaxed))
            {
                values.extend(self.emulator.templates(block));
            }
            Ok(())
        })?;
        give_shaped(py, values, &[rows, self.emulator.pixels()])
    }
}

/// Shares a network with Python.
fn shared(py: Python<'_>, made: Result<Emulator, Error>) -> PyResult<SharedEmulator> {
    let emulator = made.map_err(|error| exception(py, &error))?;
    Ok(SharedEmulator {
        emulator: Arc::new(emulator),
    })
}

/// Makes the crate's label of Python's.
fn label((name, unit, (low, high), (mean, deviation), is_log): GivenLabel) -> Label {
    let label = Label::new(name, unit, low..=high);
    if is_log {
        label.scaled_log10(mean, deviation)
    } else {
        label.scaled(mean, deviation)
    }
}
