//! Several files of spectra, one after another.

use std::path::PathBuf;

use popfit::spectra::{Ids, SpectraReader, open_reader};
use popfit::{Result, Spectra};

/// Reads files in turn; a batch never spans two.
pub struct Chain {
    readers: Vec<Box<dyn SpectraReader>>,
    current: usize,
}

impl Chain {
    /// Opens and validates every file; there must be one.
    pub fn open(paths: &[PathBuf]) -> Result<Chain> {
        Ok(Chain { readers: paths.iter().map(open_reader).collect::<Result<_>>()?, current: 0 })
    }

    /// Every file without its rows.
    pub fn heads(&self) -> Vec<Spectra> {
        self.readers.iter().map(|reader| reader.empty()).collect()
    }

    /// Whether any file names its spectra by text.
    pub fn text_ids(&self) -> bool {
        self.readers.iter().any(|reader| matches!(reader.empty().ids, Ids::Text(_)))
    }
}

impl SpectraReader for Chain {
    fn len(&self) -> u64 {
        self.readers.iter().map(|reader| reader.len()).sum()
    }

    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra>> {
        while let Some(reader) = self.readers.get_mut(self.current) {
            if let Some(batch) = reader.next_batch(max)? {
                return Ok(Some(batch));
            }
            self.current += 1;
        }
        Ok(None)
    }

    fn empty(&self) -> Spectra {
        self.readers[0].empty()
    }
}
