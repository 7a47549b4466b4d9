//! Models of spectra, made of a model file's text and networks.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use popfit::{Device, ModelFile, SpectralFitter, SpectralModel};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{give, give_shaped};
use crate::emulator::SharedEmulator;
use crate::errors::{exception, input_error};
use crate::spectra::Source;
use crate::wait::run_or_raise;

/// A model of spectra, with the text that it is made of.
#[pyclass(frozen, module = "popfit._popfit", name = "Model")]
pub struct SharedModel {
    pub file: ModelFile,
    pub model: SpectralModel,
}

#[pymethods]
impl SharedModel {
    /// Reads a model file and the networks that it names.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<SharedModel> {
        run_or_raise(py, move |_| {
            let file = ModelFile::open(path)?;
            let model = file.build()?;
            Ok(SharedModel { file, model })
        })
    }

    /// Builds a model of text, whose networks are those given by the arms' names, or else files in `folder`.
    #[staticmethod]
    fn from_text(
        py: Python<'_>,
        text: String,
        folder: PathBuf,
        emulators: HashMap<String, Py<SharedEmulator>>,
    ) -> PyResult<SharedModel> {
        let emulators: HashMap<String, Arc<popfit::Emulator>> =
            emulators.iter().map(|(arm, emulator)| (arm.clone(), emulator.get().emulator.clone())).collect();
        run_or_raise(py, move |_| {
            let file = ModelFile::from_text(folder.join("model.toml"), text)?;
            let model = file.build_with(|files| match emulators.get(files.arm) {
                Some(emulator) => Ok(emulator.as_ref().clone()),
                None => file.open_emulator(files),
            })?;
            Ok(SharedModel { file, model })
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

    /// Returns the units of the parameters that have one.
    #[getter]
    fn units(&self) -> Vec<(String, String)> {
        SpectralFitter::new(self.model.clone(), Device::cpu()).units()
    }

    /// Returns the bounds of the free parameters.
    #[getter]
    fn bounds(&self) -> Vec<(f64, f64)> {
        self.model.bounds()
    }

    /// Returns the networks by the arms' names, their labels and wavelengths set.
    #[getter]
    fn emulators<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let emulators = PyDict::new(py);
        for (arm, emulator) in self.model.arms() {
            emulators.set_item(arm, Py::new(py, SharedEmulator { emulator: Arc::new(emulator.clone()) })?)?;
        }
        Ok(emulators)
    }

    /// Returns what the model assumes, and what is odd about it.
    #[getter]
    fn notes(&self) -> (Vec<String>, Vec<String>) {
        (self.model.assumptions(), self.model.warnings())
    }
}

/// Returns the text of a model file with the keys of a JSON text.
#[pyfunction]
pub fn toml_of_json(py: Python<'_>, json: &str) -> PyResult<String> {
    let table: toml::Table =
        serde_json::from_str(json).map_err(|error| input_error(py, "model", format!("model: {error}")))?;
    toml::to_string(&table).map_err(|error| input_error(py, "model", format!("model: {error}")))
}
