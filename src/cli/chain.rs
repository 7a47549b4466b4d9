//! Several files of spectra, one after another.

use std::path::PathBuf;

use popfit::spectra::{Ids, Selection, SpectraReader, open_reader_with};
use popfit::{Result, Spectra};

/// Reads files in turn.
pub struct Chain {
    readers: Vec<Box<dyn SpectraReader>>,
    current: usize,
}

impl Chain {
    /// Opens and validates every file; there must be one.
    pub fn open(paths: &[PathBuf], selection: &Selection) -> Result<Chain> {
        let readers = paths.iter().map(|path| open_reader_with(path, selection)).collect::<Result<_>>()?;
        Ok(Chain { readers, current: 0 })
    }

    /// Each file without its spectra.
    pub fn files(&self) -> Vec<Spectra> {
        self.readers.iter().map(|reader| reader.empty()).collect()
    }

    /// What the files' readers want said.
    pub fn all_notes(&self) -> impl Iterator<Item = &String> {
        self.readers.iter().flat_map(|reader| reader.notes())
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
