//! HTML pages about tables.

use std::path::PathBuf;
use std::time::Duration;

use popfit::report::{About, Collector, ReportFile};
use popfit::{Device, SpectralFitter, WriteOptions};
use pyo3::prelude::*;

use crate::model::SharedModel;
use crate::spectra::Source;
use crate::table::{GivenMetadata, PythonColumn};
use crate::wait::{Watch, run_or_raise};

/// Writes a page about a table, with some spectra and their fits if there are a model and spectra.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "each is an argument of Python's function")]
pub fn write_report<'py>(
    py: Python<'py>,
    columns: Vec<PythonColumn<'py>>,
    metadata: GivenMetadata,
    path: PathBuf,
    overwrite: bool,
    model: Option<&SharedModel>,
    sources: Vec<Bound<'py, PyAny>>,
    seconds: Option<f64>,
) -> PyResult<()> {
    let table = metadata.table(py, columns)?;
    let widening = model.and_then(|model| model.model.widening());
    let sources = sources.iter().map(Source::hold).collect::<PyResult<Vec<_>>>()?;
    let lent = sources.iter().map(|source| source.lend(py, widening)).collect::<PyResult<Vec<_>>>()?;
    let fitter = model.map(|model| SpectralFitter::new(model.model.clone(), Device::cpu()));
    let mut about = About::default()
        .title("popfit.FitTable".to_string())
        .version(env!("CARGO_PKG_VERSION").into())
        .metadata(metadata.metadata())
        .units(table.units().to_vec());
    if let Some(time) = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        about = about.time(time);
    }
    run_or_raise(py, Watch::default(), move |_| {
        let page = ReportFile::create(&path, &WriteOptions::default().overwrite(overwrite))?;
        let mut kept = Collector::new(table.names());
        kept.add(&table.to_rows());
        if fitter.is_some() {
            lent.iter().for_each(|(spectra, _)| kept.attach_spectra(spectra.get()));
        }
        page.write(&about, &kept, fitter.as_ref())
    })
}
