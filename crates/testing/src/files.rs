//! Files of spectra that are in memory.

use std::collections::VecDeque;

use popfit::spectra::SpectraReader;
use popfit::{Result, Spectra};

/// Files in memory, one after another, each a batch.
pub struct Files(VecDeque<Spectra<'static>>, u64);

impl Files {
    pub fn new(files: &[Spectra<'static>]) -> Files {
        Files(
            files.to_vec().into(),
            files.iter().map(|file| file.len() as u64).sum(),
        )
    }
}

impl SpectraReader for Files {
    fn len(&self) -> u64 {
        self.1
    }

    fn next_batch(&mut self, _: usize) -> Result<Option<Spectra<'static>>> {
        Ok(self.0.pop_front())
    }

    fn empty(&self) -> Spectra<'static> {
        self.0[0].slice(0..0)
    }
}
