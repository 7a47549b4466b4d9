//! A run as one HTML page: counts, figures, some spectra with their fits, a table. The page loads no other file.
//!
//! A [`Collector`] sees the rows (and the spectra, when there are any) as they stream by and keeps little of each; a
//! [`ReportFile`] turns what it kept into the page. `fit --report` shows it spectra with their rows; `popfit report
//! --spectra` reads the table first, then the files. The page therefore does not depend on batches, and its size hardly
//! on the number of spectra.
//!
//! The collector keeps counts, 2 + 2 P four-byte numbers per row for the figures (48 MB for 10⁶ rows with five
//! parameters), at most 4000 rows for the table, and at most 154 rows whose spectra may be drawn (`picks.rs`).
//! `page.rs` gives the pictures what the rest leaves of 10 MB. Small figures are SVGs about as wide as a phone.
//! `crates/cli/tests/report` opens pages in headless Chromium, in frames as wide as a screen and as a phone.

mod about;
mod arm;
mod axis;
mod best;
mod chart;
mod collect;
mod figures;
mod gallery;
mod histogram;
mod lines;
mod model;
mod number;
mod outcome;
mod page;
mod panel;
mod picks;
#[doc(hidden)]
pub mod picture;
mod scatter;
mod smooth;
mod spectra;
mod svg;
mod table;
mod trace;
mod words;

use std::path::Path;

use crate::error::Result;
use crate::io::output::{OutputFile, WriteOptions};
use crate::spectral::{Journal, SpectralFitter};
pub use about::About;
pub use collect::{Collector, MOST_REQUESTED, PickedCounts};
pub use model::fitter_of_table;

/// A page that appears under its name only when it is whole.
#[derive(Debug)]
pub struct ReportFile(OutputFile);

impl ReportFile {
    /// Creates the page's temporary file before anything is fitted; fails if `path` cannot be written or must not be
    /// replaced.
    ///
    /// # Errors
    /// Returns [`Error::OutputExists`](crate::Error::OutputExists) if there is a page that must not be replaced,
    /// [`Error::OutputLocked`](crate::Error::OutputLocked) while another run writes it, [`Error::Io`](crate::Error::Io)
    /// if the folder is missing or cannot be written, and [`Error::Write`](crate::Error::Write) if the name is that of
    /// a folder, a device or a pipe.
    pub fn create(path: impl AsRef<Path>, options: &WriteOptions) -> Result<ReportFile> {
        OutputFile::create(path, options.overwrite).map(ReportFile)
    }

    /// Writes the HTML page of the collected rows; spectra are drawn only with a `fitter`, which computes their models.
    ///
    /// # Errors
    /// Returns [`Error::Io`](crate::Error::Io), [`Error::OutputExists`](crate::Error::OutputExists) if a file took the
    /// name meanwhile, and [`Error::Unsettled`](crate::Error::Unsettled) if the page is whole but its folder could not
    /// be flushed.
    pub fn write(
        self,
        about: &About,
        kept: &Collector,
        fitter: Option<&SpectralFitter>,
    ) -> Result<()> {
        self.0.write(compose_page(about, kept, fitter))
    }

    /// Writes the HTML page as [`write`](ReportFile::write) does, recorded in the run's journal before it is renamed.
    ///
    /// # Errors
    /// The errors of [`write`](ReportFile::write); [`Error::Io`](crate::Error::Io) if the journal cannot be written.
    pub fn write_journaled(
        self,
        about: &About,
        kept: &Collector,
        fitter: Option<&SpectralFitter>,
        journal: &mut Journal,
    ) -> Result<()> {
        self.0
            .write_recorded(compose_page(about, kept, fitter), journal)
    }
}

/// Returns the HTML page of the collected rows, with pictures of spectra if there is a fitter.
fn compose_page(about: &About, kept: &Collector, fitter: Option<&SpectralFitter>) -> String {
    let galleries = fitter.map_or_else(Vec::new, |fitter| spectra::build_galleries(kept, fitter));
    page::fill_page(about, kept, &galleries)
}
