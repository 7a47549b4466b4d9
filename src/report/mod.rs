//! A run as one HTML page: counts, figures, some spectra with their fits, a table. It loads nothing from anywhere.
//!
//! A [`Collector`] sees the rows (and the spectra, when there are any) as they stream by and keeps little of each; a
//! [`ReportFile`] turns what it kept into the page.

mod axis;
mod best;
mod collect;
mod figures;
mod histogram;
mod number;
mod outcome;
mod page;
mod panel;
mod scatter;
mod spectra;
mod svg;
mod table;
mod trace;
mod words;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::files::File;
use crate::fit::Fitter;
use crate::table::{Metadata, Staged};
pub use collect::Collector;

/// What the page says about the run, beside its rows.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The result table's name.
    pub title: String,
    /// The version of popfit that made the fits; unknown for CSV.
    pub version: Option<String>,
    /// Of the result table.
    pub metadata: Metadata,
    /// Units of parameters, by name; those popfit knows need not be given.
    pub units: Vec<(String, String)>,
    /// How long the run took.
    pub time: Option<Duration>,
    /// Fits that an earlier run had made, of which it took none of that time.
    pub recalled: u64,
}

/// A page that appears under its name only when it is whole.
pub struct ReportFile {
    staged: Staged,
    file: File,
}

impl ReportFile {
    /// Errors when the folder is missing or cannot be written: before the first fit, not after the last.
    pub fn create(path: impl AsRef<Path>) -> Result<ReportFile> {
        let (staged, file) = Staged::create(path.as_ref())?;
        Ok(ReportFile { staged, file })
    }

    /// Writes the page. With a `fitter` the spectra that `kept` holds are drawn, with their models.
    pub fn write(mut self, about: &About, kept: &Collector, fitter: Option<&Fitter>) -> Result<()> {
        let panels = fitter.map_or_else(Vec::new, |fitter| spectra::panels(kept, fitter));
        let html = page::page(about, kept, &panels);
        let target = self.staged.target();
        self.file.write_all(html.as_bytes()).map_err(Error::writing(target))?;
        self.staged.publish(self.file)
    }
}
