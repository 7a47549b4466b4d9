//! Several files of spectra, one after another.

use std::path::PathBuf;

use popfit::spectra::{Ids, Selection, SpectraReader, open_reader_with};
use popfit::{Result, Spectra};

/// Reads files in turn.
pub struct Chain {
    /// None of those that have ended.
    readers: Vec<Option<Box<dyn SpectraReader>>>,
    current: usize,
    spectra: u64,
    text_ids: bool,
    /// The first file without its spectra.
    first: Spectra,
}

impl Chain {
    /// Opens and validates every file; there must be one.
    pub fn open(paths: &[PathBuf], selection: &Selection) -> Result<Chain> {
        let readers = paths.iter().map(|path| open_reader_with(path, selection)).collect::<Result<Vec<_>>>()?;
        let spectra = readers.iter().map(|reader| reader.len()).sum();
        let text_ids = readers.iter().any(|reader| matches!(reader.empty().ids, Ids::Text(_)));
        let first = readers[0].empty();
        Ok(Chain { readers: readers.into_iter().map(Some).collect(), current: 0, spectra, text_ids, first })
    }

    /// Each file without its spectra, before the first batch.
    pub fn files(&self) -> Vec<Spectra> {
        self.readers.iter().flatten().map(|reader| reader.empty()).collect()
    }

    /// What the files' readers want said.
    pub fn all_notes(&self) -> impl Iterator<Item = &String> {
        self.readers.iter().flatten().flat_map(|reader| reader.notes())
    }

    /// Whether any file names its spectra by text.
    pub fn text_ids(&self) -> bool {
        self.text_ids
    }
}

impl SpectraReader for Chain {
    fn len(&self) -> u64 {
        self.spectra
    }

    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra>> {
        while let Some(reader) = self.readers.get_mut(self.current) {
            if let Some(open) = reader
                && let Some(batch) = open.next_batch(max)?
            {
                return Ok(Some(batch));
            }
            // with its grids
            *reader = None;
            self.current += 1;
        }
        Ok(None)
    }

    fn recycle(&mut self, used: Spectra) {
        if let Some(Some(reader)) = self.readers.get_mut(self.current) {
            reader.recycle(used);
        }
    }

    fn empty(&self) -> Spectra {
        self.first.clone()
    }
}
