//! Files of one spectrum.

use std::path::Path;

use crate::error::Result;
use crate::spectra::{Ids, Spectra, SpectraReader};

/// Yields the only spectrum of a file.
pub(super) struct SingleReader {
    spectra: Spectra<'static>,
    /// True if the spectrum was yielded.
    is_yielded: bool,
    notes: Vec<String>,
}

impl SingleReader {
    /// Makes a reader that returns the single spectrum of a file once.
    pub fn new(mut spectra: Spectra<'static>, path: &Path, notes: Vec<String>) -> SingleReader {
        spectra.file = path.display().to_string().into();
        SingleReader {
            spectra,
            is_yielded: false,
            notes,
        }
    }
}

impl SpectraReader for SingleReader {
    fn len(&self) -> u64 {
        1
    }

    fn next_batch(&mut self, _: usize) -> Result<Option<Spectra<'static>>> {
        let is_first = !std::mem::replace(&mut self.is_yielded, true);
        Ok(is_first.then(|| self.spectra.clone()))
    }

    fn empty(&self) -> Spectra<'static> {
        self.spectra.slice(0..0)
    }

    fn ids(&mut self) -> Result<Option<Ids>> {
        Ok(Some(self.spectra.ids.clone()))
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Returns the file's name without folder and ending, as the id of a spectrum whose file gives none.
pub(super) fn file_stem(path: &Path) -> String {
    path.file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}
