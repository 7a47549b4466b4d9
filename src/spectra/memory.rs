//! Spectra in memory, read in batches as if they were a file.

use super::batch::{Ids, Spectra};
use super::reader::SpectraReader;
use crate::error::Result;

/// Yields copies of the batches of spectra that are in memory.
struct MemoryReader<'a> {
    spectra: &'a Spectra<'a>,
    /// Row of the next spectrum.
    next: usize,
}

impl Spectra<'_> {
    /// Returns a reader that yields copies of these spectra, for calls that take one, such as
    /// [`SpectralFitter::fit_stream`](crate::SpectralFitter::fit_stream).
    pub fn reader(&self) -> impl SpectraReader + '_ {
        MemoryReader {
            spectra: self,
            next: 0,
        }
    }
}

impl SpectraReader for MemoryReader<'_> {
    fn len(&self) -> u64 {
        self.spectra.len() as u64
    }

    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra<'static>>> {
        let end = self.next.saturating_add(max.max(1)).min(self.spectra.len());
        let rows = std::mem::replace(&mut self.next, end)..end;
        Ok((!rows.is_empty()).then(|| self.spectra.slice(rows)))
    }

    fn empty(&self) -> Spectra<'static> {
        self.spectra.slice(0..0)
    }

    fn ids(&mut self) -> Result<Option<Ids>> {
        Ok(Some(self.spectra.ids.clone()))
    }
}
