//! Spectra: of files, which the crate owns, or of numpy's arrays, which it is lent for a call.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use popfit::spectra::{Exposures, Ids, Selection, open_reader_with};
use popfit::{Spectra, Widening};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{LentArray, give, give_texts, hold_all, lend_all};
use crate::errors::exception;
use crate::wait::{Watch, run_or_raise};

/// Spectra that were read from files.
#[pyclass(frozen, module = "popfit._popfit")]
pub struct FileSpectra {
    pub spectra: Arc<Spectra<'static>>,
    notes: Vec<String>,
}

#[pymethods]
impl FileSpectra {
    /// Reads all spectra of a file.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<FileSpectra> {
        run_or_raise(py, Watch::default(), move |_| {
            let mut reader = open_reader_with(path, &Selection::default())?;
            let notes = reader.notes().to_vec();
            let count = usize::try_from(reader.len()).unwrap_or(usize::MAX);
            let spectra = reader
                .next_batch(count.max(1))?
                .unwrap_or_else(|| reader.empty());
            Ok(FileSpectra {
                spectra: Arc::new(spectra),
                notes,
            })
        })
    }

    /// Notes of the reader on what it passed over or assumed.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn __len__(&self) -> usize {
        self.spectra.len()
    }

    /// Copies the spectra of a range of rows.
    fn slice(&self, begin: usize, end: usize) -> FileSpectra {
        let rows = Range { start: begin, end };
        FileSpectra {
            spectra: Arc::new(self.spectra.slice(rows)),
            notes: self.notes.clone(),
        }
    }

    /// Joins the spectra of each id to one object.
    fn join_exposures(&self, py: Python<'_>) -> FileSpectra {
        let spectra = py.detach(|| Spectra::clone(&self.spectra).join_exposures());
        FileSpectra {
            spectra: Arc::new(spectra),
            notes: self.notes.clone(),
        }
    }

    /// Returns the number of exposures of each object; None if they are not joined.
    fn exposures<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let exposures = self.spectra.exposures.as_ref()?;
        let counts = (0..exposures.len()).map(|object| exposures.count(object) as i64);
        Some(give(py, counts.collect::<Vec<i64>>()))
    }

    /// Returns the row of each spectrum in its file.
    fn rows<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        let rows = self.spectra.rows.iter().map(|row| *row as i64);
        give(py, rows.collect::<Vec<i64>>())
    }

    /// Returns the spectra's identifiers, as an array of integers or a list of texts.
    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.spectra.ids {
            Ids::Integer(ids) => Ok(give(py, ids.clone())),
            Ids::Text(ids) => Ok(give_texts(py, ids)?.into_any()),
        }
    }

    /// Returns names of the arms and numbers of their pixels.
    fn arms(&self) -> Vec<(String, usize)> {
        self.spectra
            .arms
            .iter()
            .map(|arm| (arm.name.clone(), arm.pixels))
            .collect()
    }
}

/// Checks names, shapes and types of the arrays of spectra.
#[pyfunction]
pub fn check_arrays(py: Python<'_>, arrays: Bound<'_, PyDict>) -> PyResult<()> {
    let arrays = hold_all(&arrays)?;
    let arrays = lend_all(py, &arrays)?;
    let checked = py.detach(|| Spectra::from_named_arrays(arrays, None).map(drop));
    checked.map_err(|error| exception(py, &error))
}

/// Spectra of a call: those of files, or arrays that are held for it, with the numbers of exposures if these are
/// joined.
pub enum Source<'py> {
    Files(Arc<Spectra<'static>>),
    Arrays(Vec<LentArray<'py>>, Option<Exposures>),
}

impl<'py> Source<'py> {
    /// Takes a [`FileSpectra`], a dictionary of arrays, or a pair of a dictionary and the number of each object's
    /// exposures.
    ///
    /// # Errors
    /// Returns a `TypeError` for anything else, and the errors of arrays of another type or order.
    pub fn hold(source: &Bound<'py, PyAny>) -> PyResult<Source<'py>> {
        if let Ok(files) = source.cast::<FileSpectra>() {
            return Ok(Source::Files(files.get().spectra.clone()));
        }
        if let Ok((arrays, counts)) = source.extract::<(Bound<'py, PyDict>, Vec<usize>)>() {
            let exposures = Exposures::from_counts(counts);
            return Ok(Source::Arrays(hold_all(&arrays)?, Some(exposures)));
        }
        let arrays = source
            .cast::<PyDict>()
            .map_err(|_| PyTypeError::new_err("spectra: a FileSpectra or a dict"))?;
        Ok(Source::Arrays(hold_all(arrays)?, None))
    }

    /// Lends the spectra to the crate, with its notes on them.
    ///
    /// # Errors
    /// Returns the `InputError` of arrays that are no spectra.
    pub fn lend(
        &self,
        py: Python<'_>,
        widening: Option<&Widening>,
    ) -> PyResult<(Lent<'_>, Vec<String>)> {
        match self {
            Source::Files(spectra) => Ok((Lent::Files(spectra), Vec::new())),
            Source::Arrays(arrays, exposures) => {
                let arrays = lend_all(py, arrays)?;
                let made = py.detach(|| {
                    let (spectra, notes) = Spectra::from_named_arrays(arrays, widening)?;
                    match exposures {
                        Some(exposures) => Ok((spectra.with_exposures(exposures.clone())?, notes)),
                        None => Ok((spectra, notes)),
                    }
                });
                let (spectra, notes) = made.map_err(|error| exception(py, &error))?;
                Ok((Lent::Arrays(spectra), notes))
            }
        }
    }
}

/// Spectra that are lent to a run.
pub enum Lent<'a> {
    Files(&'a Spectra<'static>),
    Arrays(Spectra<'a>),
}

impl<'a> Lent<'a> {
    /// Returns the spectra.
    pub fn get(&'a self) -> &'a Spectra<'a> {
        match self {
            Lent::Files(spectra) => spectra,
            Lent::Arrays(spectra) => spectra,
        }
    }
}
