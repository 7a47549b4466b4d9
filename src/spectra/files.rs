//! Several files of spectra, read one after another. A waiting file holds no thread and no handle.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::open::open_any;
use super::widening::require_mask_bits;
use super::{Ids, Selection, Spectra, SpectraReader};
use crate::error::{Error, Result};

/// Reads several files in turn, as if they were one. Exposures of one object are joined within a file alone.
pub struct FilesReader {
    /// One reader per file; `None` for files that were read to their ends.
    readers: Vec<Option<Box<dyn SpectraReader>>>,
    /// Name of each file in its spectra.
    names: Vec<Arc<str>>,
    /// Index of the file that is being read.
    current: usize,
    /// Number of spectra in all files.
    spectra: u64,
    /// True if any file has text as ids.
    text_ids: bool,
    /// Arms, grids and columns of the first file, without spectra.
    first_head: Spectra<'static>,
    notes: Vec<String>,
}

impl FilesReader {
    /// Opens several files as one stream of spectra, in their order; checks each, and will return only spectra in
    /// `selection`.
    ///
    /// # Errors
    /// The errors of [`open_reader_with`](super::open_reader_with); [`Error::Usage`] without any file. One file whose
    /// masks have bits is enough where errors are to be widened.
    pub fn open(paths: &[impl AsRef<Path>], selection: &Selection) -> Result<FilesReader> {
        let reader = FilesReader::open_part(Path::new(""), paths, selection)?;
        let place = paths
            .first()
            .map(|path| path.as_ref().display().to_string())
            .unwrap_or_default();
        let other_files = if paths.len() > 1 {
            format!(" and {} more", paths.len() - 1)
        } else {
            String::new()
        };
        let heads = reader.files();
        require_mask_bits(
            &format!("{place}{other_files}"),
            &heads,
            selection.widen.as_ref(),
        )?;
        Ok(reader)
    }

    /// Opens some of the files of a run, whose `paths` are relative to `folder`. Rows name their file by its path
    /// without the folder. Where errors are to be widened, none of these files needs to have masks with bits, because
    /// another file of the run may have them.
    ///
    /// # Errors
    /// The errors of [`open`](FilesReader::open).
    #[doc(hidden)]
    pub fn open_part(
        folder: &Path,
        paths: &[impl AsRef<Path>],
        selection: &Selection,
    ) -> Result<FilesReader> {
        let readers = paths
            .iter()
            .map(|path| open_any(&folder.join(path), selection))
            .collect::<Result<Vec<_>>>()?;
        let names = paths
            .iter()
            .map(|path| path.as_ref().display().to_string().into())
            .collect();
        let Some(first_head) = readers.first().map(|reader| reader.empty()) else {
            return Err(Error::Usage("no file of spectra is given".into()));
        };
        let heads: Vec<Spectra> = readers.iter().map(|reader| reader.empty()).collect();
        let spectra = readers.iter().map(|reader| reader.len()).sum();
        let text_ids = heads.iter().any(|head| matches!(head.ids, Ids::Text(_)));
        let notes = readers
            .iter()
            .flat_map(|reader| reader.notes())
            .cloned()
            .chain(note_repeated_files(folder, paths))
            .collect();
        Ok(FilesReader {
            readers: readers.into_iter().map(Some).collect(),
            names,
            current: 0,
            spectra,
            text_ids,
            first_head,
            notes,
        })
    }

    /// Returns, for each file not yet read to its end, its arms, grids and columns without spectra, as
    /// [`SpectralFitter::check_spectra`](crate::SpectralFitter::check_spectra) takes them.
    #[doc(hidden)]
    pub fn files(&self) -> Vec<Spectra<'static>> {
        self.readers
            .iter()
            .flatten()
            .map(|reader| reader.empty())
            .collect()
    }

    /// Returns the number of spectra, or of objects with joined exposures, of each file that has not been read to its
    /// end.
    #[doc(hidden)]
    pub fn lengths(&self) -> Vec<u64> {
        self.readers
            .iter()
            .flatten()
            .map(|reader| reader.len())
            .collect()
    }

    /// Returns whether any file has text as ids of its spectra, so that the result table's ids must be text.
    #[doc(hidden)]
    pub fn text_ids(&self) -> bool {
        self.text_ids
    }
}

/// Returns a note for each file that is given more than once.
fn note_repeated_files(folder: &Path, paths: &[impl AsRef<Path>]) -> impl Iterator<Item = String> {
    let mut counts: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for path in paths
        .iter()
        .filter_map(|path| folder.join(path).canonicalize().ok())
    {
        *counts.entry(path).or_default() += 1;
    }
    let repeated = counts.into_iter().filter(|(_, count)| *count > 1);
    repeated.map(|(path, count)| {
        format!(
            "{} is given {count} times: its spectra are read as often",
            path.display()
        )
    })
}

impl std::fmt::Debug for FilesReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FilesReader {
            readers,
            current,
            spectra,
            ..
        } = self;
        let debug = &mut f.debug_struct("FilesReader");
        debug
            .field("files", &readers.len())
            .field("current", current)
            .field("spectra", spectra)
            .finish()
    }
}

impl SpectraReader for FilesReader {
    fn len(&self) -> u64 {
        self.spectra
    }

    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra<'static>>> {
        while let Some(reader) = self.readers.get_mut(self.current) {
            if let Some(open) = reader
                && let Some(mut batch) = open.next_batch(max)?
            {
                if let Some(name) = self.names.get(self.current) {
                    batch.file = name.clone();
                }
                return Ok(Some(batch));
            }
            // Free the memory of a file that has ended, and go on to the next.
            *reader = None;
            self.current += 1;
        }
        Ok(None)
    }

    fn recycle(&mut self, used: Spectra<'static>) {
        if let Some(Some(reader)) = self.readers.get_mut(self.current) {
            reader.recycle(used);
        }
    }

    fn empty(&self) -> Spectra<'static> {
        self.first_head.clone()
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}
