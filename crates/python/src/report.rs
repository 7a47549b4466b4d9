//! HTML pages about tables.

use std::path::PathBuf;
use std::time::Duration;

use popfit::report::{About, Collector, ReportFile};
use popfit::{Device, SpectralFitter, WriteOptions};
use pyo3::prelude::*;

use crate::model::SharedModel;
use crate::spectra::Source;
use crate::table::{GivenMetadata, PythonColumn};
use crate::wait::run_or_raise;

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
    source: Option<Bound<'py, PyAny>>,
    seconds: Option<f64>,
) -> PyResult<()> {
    let table = metadata.table(py, columns)?;
    let source = source.as_ref().map(Source::hold).transpose()?;
    let lent =
        source.as_ref().map(|source| source.lend(py, model.and_then(|model| model.model.widening()))).transpose()?;
    let fitter = model.map(|model| SpectralFitter::new(model.model.clone(), Device::cpu()));
    let mut about = About::default()
        .title("popfit.FitTable".to_string())
        .version(env!("CARGO_PKG_VERSION").into())
        .metadata(metadata.metadata())
        .units(table.units().to_vec());
    if let Some(seconds) = seconds {
        about = about.time(Duration::from_secs_f64(seconds));
    }
    run_or_raise(py, move |_| {
        let page = ReportFile::create(&path, &WriteOptions::default().overwrite(overwrite))?;
        let mut kept = Collector::new(table.names());
        kept.add(&table.to_rows());
        if let (Some((spectra, _)), Some(_)) = (&lent, &fitter) {
            kept.attach_spectra(spectra.get());
        }
        page.write(&about, &kept, fitter.as_ref())
    })
}
