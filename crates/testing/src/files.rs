//! Files of spectra that are in memory.

use std::collections::VecDeque;

use popfit::spectra::SpectraReader;
use popfit::{Result, Spectra};

/// A reader of files in memory, one after another, each a batch.
pub struct Files {
    files: VecDeque<Spectra<'static>>,
    spectra: u64,
}

impl Files {
    pub fn new(files: &[Spectra<'static>]) -> Files {
        Files {
            files: files.to_vec().into(),
            spectra: files.iter().map(|file| file.len() as u64).sum(),
        }
    }
}

impl SpectraReader for Files {
    fn len(&self) -> u64 {
        self.spectra
    }

    fn next_batch(&mut self, _: usize) -> Result<Option<Spectra<'static>>> {
        Ok(self.files.pop_front())
    }

    fn empty(&self) -> Spectra<'static> {
        self.files[0].slice(0..0)
    }
}
