//! A range of the spectra that a reader yields.

use std::ops::Range;

use popfit::spectra::SpectraReader;
use popfit::{Result, Spectra};

/// Number of spectra that are read at once to pass over them.
const SKIPPED_AT_ONCE: usize = 256;

/// Reads some consecutive spectra of another reader.
pub(super) struct SpectraRange<R> {
    reader: R,
    /// Number of spectra that are still to be passed over.
    before: u64,
    /// Number of spectra that are still to be read.
    left: u64,
    length: u64,
}

impl<R: SpectraReader> SpectraRange<R> {
    /// Returns a reader of the spectra in `range`, of those that `reader` has not yet yielded.
    pub fn new(reader: R, range: Range<u64>) -> SpectraRange<R> {
        let length = range.end.saturating_sub(range.start);
        SpectraRange {
            reader,
            before: range.start,
            left: length,
            length,
        }
    }
}

impl<R: SpectraReader> SpectraReader for SpectraRange<R> {
    fn len(&self) -> u64 {
        self.length
    }

    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra<'static>>> {
        while self.before > 0 {
            let wanted = at_most(self.before, SKIPPED_AT_ONCE);
            let Some(passed) = self.reader.next_batch(wanted)? else {
                return Ok(None);
            };
            self.before -= passed.len() as u64;
            self.reader.recycle(passed);
        }
        if self.left == 0 {
            return Ok(None);
        }
        let batch = self.reader.next_batch(at_most(self.left, max.max(1)))?;
        self.left -= batch.as_ref().map_or(self.left, |batch| batch.len() as u64);
        Ok(batch)
    }

    fn recycle(&mut self, used: Spectra<'static>) {
        self.reader.recycle(used);
    }

    fn empty(&self) -> Spectra<'static> {
        self.reader.empty()
    }

    fn notes(&self) -> &[String] {
        self.reader.notes()
    }
}

/// Returns the number of spectra, or `most` if there are more.
fn at_most(spectra: u64, most: usize) -> usize {
    usize::try_from(spectra).map_or(most, |spectra| spectra.min(most))
}

#[cfg(test)]
mod tests {
    use popfit::spectra::{FilesReader, Selection};
    use popfit_testing::demo_file;

    use super::*;

    #[test]
    fn a_range_has_the_spectra_that_slices_have() {
        let all = Spectra::open(demo_file("spectra.npz")).unwrap();
        for range in [0..64, 0..0, 3..4, 5..64, 60..64] {
            for max in [1, 7, 1000] {
                let file = [demo_file("spectra.npz")];
                let reader = FilesReader::open(&file, &Selection::default()).unwrap();
                let mut reader = SpectraRange::new(reader, range.clone());
                assert_eq!(reader.len(), range.end - range.start);
                let mut rows = Vec::new();
                while let Some(batch) = reader.next_batch(max).unwrap() {
                    assert!(batch.len() <= max);
                    rows.extend(batch.rows.iter().copied());
                }
                let expected = all.slice(range.start as usize..range.end as usize);
                assert_eq!(rows, expected.rows);
            }
        }
    }
}
