//! HTML pages about tables.

use std::path::PathBuf;
use std::time::Duration;

use popfit::low_level::report::{About, Collector, ReportFile};
use popfit::{Device, SpectralFitter, WriteOptions};
use pyo3::prelude::*;

use crate::model::SharedModel;
use crate::spectra::Source;
use crate::table::{GivenMetadata, PythonColumn};
use crate::wait::{Watch, run_or_raise};

/// A page to write.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Page {
    path: PathBuf,
    overwrite: bool,
    /// Time of the run that made the table, in seconds.
    seconds: Option<f64>,
    threads: usize,
}

/// Writes a page about a table, with some spectra and their fits if there are a model and spectra.
#[pyfunction]
pub fn write_report<'py>(
    py: Python<'py>,
    columns: Vec<PythonColumn<'py>>,
    metadata: GivenMetadata,
    page: Page,
    model: Option<&SharedModel>,
    sources: Vec<Bound<'py, PyAny>>,
) -> PyResult<()> {
    let table = metadata.table(py, columns)?;
    let widening = model.and_then(|model| model.model.widening());
    let sources = sources
        .iter()
        .map(Source::hold)
        .collect::<PyResult<Vec<_>>>()?;
    let lent = sources
        .iter()
        .map(|source| source.lend(py, widening))
        .collect::<PyResult<Vec<_>>>()?;
    let fitter = model.map(|model| SpectralFitter::new(model.model.clone(), Device::cpu()));
    let mut about = About::default()
        .title("popfit.FitTable".to_string())
        .version(env!("CARGO_PKG_VERSION").into())
        .metadata(metadata.metadata())
        .units(table.units().to_vec());
    if let Some(time) = page
        .seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    {
        about = about.time(time);
    }
    run_or_raise(py, Watch::of_threads(page.threads), move |control| {
        let file = ReportFile::create(
            &page.path,
            &WriteOptions {
                overwrite: page.overwrite,
                ..WriteOptions::default()
            },
        )?;
        let mut kept = Collector::new(table.names());
        kept.add(&table.to_rows());
        if fitter.is_some() {
            lent.iter()
                .for_each(|(spectra, _)| kept.attach_spectra(spectra.get()));
        }
        control.scope(|| file.write(&about, &kept, fitter.as_ref()))?
    })
}
