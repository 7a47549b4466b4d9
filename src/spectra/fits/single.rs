//! Files of one spectrum.

use std::path::Path;

use crate::error::Result;
use crate::spectra::{Spectra, SpectraReader};

/// Yields the spectrum once.
pub(super) struct Single {
    spectra: Spectra<'static>,
    yielded: bool,
    notes: Vec<String>,
}

impl Single {
    /// Makes a reader that returns the single spectrum of a file once.
    pub fn new(mut spectra: Spectra<'static>, path: &Path, notes: Vec<String>) -> Single {
        spectra.file = path.display().to_string().into();
        Single {
            spectra,
            yielded: false,
            notes,
        }
    }
}

impl SpectraReader for Single {
    fn len(&self) -> u64 {
        1
    }

    fn next_batch(&mut self, _: usize) -> Result<Option<Spectra<'static>>> {
        let first = !std::mem::replace(&mut self.yielded, true);
        Ok(first.then(|| self.spectra.clone()))
    }

    fn empty(&self) -> Spectra<'static> {
        self.spectra.slice(0..0)
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Returns the file's name without folder and ending, as the id of a spectrum whose file gives none.
pub(super) fn stem(path: &Path) -> String {
    path.file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}
