//! Models of spectra, made of a model file's text and networks.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use numpy::PyReadonlyArray2;
use popfit::{
    ArmFit, Control, Device, Error, ModelFile, Objectives, Spectra, SpectralFitter, SpectralModel,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::arrays::{give, give_shaped};
use crate::emulator::SharedEmulator;
use crate::errors::input_error;
use crate::spectra::Source;
use crate::wait::{Watch, run_or_raise};

/// A model of spectra, with the text that it is made of.
#[pyclass(frozen, module = "popfit._popfit", name = "Model")]
pub struct SharedModel {
    pub file: ModelFile,
    pub model: SpectralModel,
    /// Fitter on the CPU, which keeps its populations from call to call.
    fitter: OnceLock<SpectralFitter>,
}

#[pymethods]
impl SharedModel {
    /// Reads a model file and the networks that it names.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<SharedModel> {
        run_or_raise(py, Watch::default(), move |_| {
            let file = ModelFile::open(path)?;
            let model = file.build()?;
            Ok(SharedModel {
                file,
                model,
                fitter: OnceLock::new(),
            })
        })
    }

    /// Builds a model of text, whose networks are those given by the arms' names, or else files in `folder`. It has the
    /// arms of these names, or all. Messages name lines of the text only if the user has written it.
    #[staticmethod]
    fn from_text(
        py: Python<'_>,
        text: String,
        folder: PathBuf,
        emulators: HashMap<String, Py<SharedEmulator>>,
        arms: Option<Vec<String>>,
        has_lines: bool,
    ) -> PyResult<SharedModel> {
        let emulators: HashMap<String, Arc<popfit::Emulator>> = emulators
            .iter()
            .map(|(arm, emulator)| (arm.clone(), emulator.get().emulator.clone()))
            .collect();
        let path = folder.join("model.toml");
        let model_path = path.display().to_string();
        run_or_raise(py, Watch::default(), move |_| {
            let build = || {
                let mut file = ModelFile::from_text(path, text)?;
                if let Some(arms) = arms {
                    file.keep_arms(&arms)?;
                }
                let model = file.build_with(|files| match emulators.get(files.arm) {
                    Some(emulator) => Ok(emulator.as_ref().clone()),
                    None => file.open_emulator(files),
                })?;
                Ok(SharedModel {
                    file,
                    model,
                    fitter: OnceLock::new(),
                })
            };
            build().map_err(|error| without_file(error, &model_path, has_lines))
        })
    }

    /// Returns the model file's text.
    #[getter]
    fn text(&self) -> &str {
        &self.file.text
    }

    /// Returns the names of the free parameters.
    #[getter]
    fn parameters(&self) -> Vec<String> {
        self.model.parameters()
    }

    /// Returns the units of the free parameters that have one.
    #[getter]
    fn units(&self) -> Vec<(String, String)> {
        let parameters = self.model.parameters();
        let columns = self.fitter().table().into_columns().into_iter();
        let parameters =
            columns.filter(|column| parameters.contains(&column.name) && !column.unit.is_empty());
        parameters
            .map(|column| (column.name, column.unit))
            .collect()
    }

    /// Returns the bounds of the free parameters.
    #[getter]
    fn bounds(&self) -> Vec<(f64, f64)> {
        self.model.bounds()
    }

    /// Returns the velocity of objects with several exposures, `shared` or `each`; None without any.
    #[getter]
    fn exposures(&self) -> Option<String> {
        self.model.exposures().map(|velocity| velocity.to_string())
    }

    /// Returns the column of clusters, and the labels that their spectra share; None if each spectrum is fitted alone.
    #[getter]
    fn shared(&self) -> Option<(String, Vec<String>)> {
        let shared = self.model.shared()?;
        Some((shared.column.clone(), shared.labels.clone()))
    }

    /// Returns the networks by the arms' names, their labels and wavelengths set.
    #[getter]
    fn emulators<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let emulators = PyDict::new(py);
        for (arm, emulator) in self.model.arms() {
            emulators.set_item(
                arm,
                Py::new(
                    py,
                    SharedEmulator {
                        emulator: Arc::new(emulator.clone()),
                    },
                )?,
            )?;
        }
        Ok(emulators)
    }

    /// Returns what the model assumes, and what is odd about it.
    #[getter]
    fn notes(&self) -> (Vec<String>, Vec<String>) {
        (self.model.assumptions(), self.model.warnings())
    }

    /// Evaluates models at parameters (n, P): for each arm a dictionary of arrays (n, pixels).
    fn models_at<'py>(
        &self,
        py: Python<'py>,
        source: Bound<'py, PyAny>,
        parameters: PyReadonlyArray2<'py, f64>,
        threads: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let source = Source::hold(&source)?;
        let (lent, _) = source.lend(py, self.model.widening())?;
        let (fitter, spectra, parameters) = (self.fitter(), lent.get(), parameters.as_slice()?);
        let count = self.model.parameters().len();
        let mut fits = Vec::new();
        run_or_raise(py, Watch::of_threads(threads), |control| {
            for_blocks(spectra, control, |rows, block| {
                fits.extend(
                    fitter.models_at(block, &parameters[rows.start * count..rows.end * count])?,
                );
                Ok(())
            })
        })?;
        let arms = PyDict::new(py);
        for (index, (name, _)) in self.model.arms().enumerate() {
            let pixels = fits
                .iter()
                .flatten()
                .map(|fit| fit[index].wavelength.len())
                .max()
                .unwrap_or(0);
            let rows: Vec<Option<&ArmFit>> = fits
                .iter()
                .map(|fit| fit.as_ref().map(|arms| &arms[index]))
                .collect();
            let arm = PyDict::new(py);
            arm.set_item(
                "wavelength",
                stacked(py, &rows, pixels, |fit| &fit.wavelength)?,
            )?;
            arm.set_item("flux", stacked(py, &rows, pixels, |fit| &fit.flux)?)?;
            arm.set_item("error", stacked(py, &rows, pixels, |fit| &fit.error)?)?;
            arm.set_item("model", stacked(py, &rows, pixels, |fit| &fit.model)?)?;
            arm.set_item(
                "continuum",
                stacked(py, &rows, pixels, |fit| &fit.continuum)?,
            )?;
            let mask = rows.iter().flat_map(|fit| match fit {
                Some(fit) if fit.mask.len() == pixels => fit.mask.clone(),
                _ => vec![true; pixels],
            });
            arm.set_item(
                "mask",
                give_shaped(py, mask.collect::<Vec<bool>>(), &[rows.len(), pixels])?,
            )?;
            arm.set_item(
                "chi2",
                give(
                    py,
                    rows.iter()
                        .map(|fit| fit.map_or(f64::NAN, |fit| fit.chi2))
                        .collect(),
                ),
            )?;
            let unmasked = rows
                .iter()
                .map(|fit| fit.map_or(0, |fit| fit.unmasked as i64))
                .collect();
            arm.set_item("unmasked", give::<i64>(py, unmasked))?;
            arms.set_item(name, arm)?;
        }
        Ok(arms)
    }

    /// Evaluates the objective at parameters (n, P): χ², objective, and if asked gradient and normal matrix.
    fn objective<'py>(
        &self,
        py: Python<'py>,
        source: Bound<'py, PyAny>,
        parameters: PyReadonlyArray2<'py, f64>,
        derivatives: bool,
        threads: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let source = Source::hold(&source)?;
        let (lent, _) = source.lend(py, self.model.widening())?;
        let (fitter, spectra, parameters) = (self.fitter(), lent.get(), parameters.as_slice()?);
        let (rows, count) = (spectra.len(), fitter.parameters().len());
        let mut objectives = Objectives::default();
        run_or_raise(py, Watch::of_threads(threads), |control| {
            for_blocks(spectra, control, |rows, block| {
                let of_block = fitter.objective(
                    block,
                    &parameters[rows.start * count..rows.end * count],
                    derivatives,
                )?;
                objectives.chi2.extend(of_block.chi2);
                objectives.objective.extend(of_block.objective);
                objectives.gradient.extend(of_block.gradient);
                objectives.normal_matrix.extend(of_block.normal_matrix);
                objectives.messages.extend(of_block.messages);
                Ok(())
            })
        })?;
        let entries = PyDict::new(py);
        entries.set_item("chi2", give(py, objectives.chi2))?;
        entries.set_item("objective", give(py, objectives.objective))?;
        if derivatives {
            entries.set_item(
                "gradient",
                give_shaped(py, objectives.gradient, &[rows, count])?,
            )?;
            entries.set_item(
                "normal_matrix",
                give_shaped(py, objectives.normal_matrix, &[rows, count, count])?,
            )?;
        }
        entries.set_item("messages", objectives.messages)?;
        Ok(entries)
    }

    /// Returns the starts (k, P) of the first guess of each spectrum, their χ² (k), and a message where there is none.
    fn guess<'py>(
        &self,
        py: Python<'py>,
        source: Bound<'py, PyAny>,
        seed: u64,
        threads: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let source = Source::hold(&source)?;
        let (lent, _) = source.lend(py, self.model.widening())?;
        let (fitter, spectra) = (self.fitter().clone().seed(seed), lent.get());
        let mut guesses = Vec::new();
        run_or_raise(py, Watch::of_threads(threads), |control| {
            for_blocks(spectra, control, |_, block| {
                guesses.extend(fitter.guess(block)?);
                Ok(())
            })
        })?;
        let count = fitter.parameters().len();
        let list = PyList::empty(py);
        for guess in guesses {
            let entry = PyDict::new(py);
            let shape = [guess.starts.len(), count];
            let starts = guess
                .starts
                .iter()
                .flat_map(|start| start.parameters.iter().copied());
            entry.set_item("starts", give_shaped(py, starts.collect(), &shape)?)?;
            entry.set_item(
                "chi2",
                give(py, guess.starts.iter().map(|start| start.chi2).collect()),
            )?;
            entry.set_item(
                "objective",
                give(
                    py,
                    guess.starts.iter().map(|start| start.objective).collect(),
                ),
            )?;
            entry.set_item("message", guess.message)?;
            list.append(entry)?;
        }
        Ok(list)
    }
}

/// Returns the text of a model file with the keys of a JSON text.
#[pyfunction]
pub fn toml_of_json(py: Python<'_>, json: &str) -> PyResult<String> {
    let table: toml::Table = serde_json::from_str(json)
        .map_err(|error| input_error(py, "model", format!("model: {error}")))?;
    toml::to_string(&table).map_err(|error| input_error(py, "model", format!("model: {error}")))
}

impl SharedModel {
    /// Returns a fitter of the model on the CPU.
    fn fitter(&self) -> &SpectralFitter {
        self.fitter
            .get_or_init(|| SpectralFitter::new(self.model.clone(), Device::cpu()))
    }
}

/// Returns an error of a model's text without the file that there is none of, and without lines unless they are the
/// user's.
fn without_file(error: Error, model_path: &str, has_lines: bool) -> Error {
    let plain = |text: String| {
        let text = text
            .replace(&format!("{model_path}, line "), "line ")
            .replace(&format!("{model_path}: "), "");
        let number = text.strip_prefix("line ").filter(|_| !has_lines);
        number
            .and_then(|rest| rest.split_once(": "))
            .map_or(text.clone(), |(_, rest)| rest.to_owned())
    };
    match error {
        Error::Model { setting, message } => Error::Model {
            setting,
            message: plain(message),
        },
        Error::BadBounds {
            parameter,
            lower,
            upper,
        } => Error::BadBounds {
            parameter: plain(parameter),
            lower,
            upper,
        },
        other => other,
    }
}

/// Spectra between two looks at whether a run is cancelled.
const BLOCK: usize = 256;

/// Hands blocks of spectra, with their rows, to `work`, on the run's threads and until it is cancelled.
///
/// # Errors
/// Returns the errors of `work`.
fn for_blocks(
    spectra: &Spectra<'_>,
    control: &Control,
    mut work: impl FnMut(Range<usize>, &Spectra<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let begins = (0..spectra.len()).step_by(BLOCK);
    let mut begins = begins.take_while(|_| !control.cancel.load(Ordering::Relaxed));
    control.scope(|| {
        begins.try_for_each(|begin| {
            let rows = begin..spectra.len().min(begin + BLOCK);
            work(rows.clone(), &spectra.slice(rows))
        })
    })?
}

/// Returns an array (n, pixels) of the fits' arrays: NaN where there is no fit.
fn stacked<'py>(
    py: Python<'py>,
    rows: &[Option<&ArmFit>],
    pixels: usize,
    of: impl Fn(&ArmFit) -> &Vec<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut values = Vec::with_capacity(rows.len() * pixels);
    for row in rows {
        match row {
            Some(fit) if of(fit).len() == pixels => values.extend_from_slice(of(fit)),
            _ => values.resize(values.len() + pixels, f64::NAN),
        }
    }
    give_shaped(py, values, &[rows.len(), pixels])
}
