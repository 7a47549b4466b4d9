//! Output files, which replace an existing file only on request and appear only when they are whole.

use std::io::Write;
use std::path::Path;

use super::Metadata;
use super::staged::Staged;
use crate::error::{Error, Result};
use crate::files::File;
use crate::fit::Journal;

/// Options with which a table or a page is written. The default replaces no file and describes no run.
///
/// ```
/// use popfit::{FitTable, WriteOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("results.csv");
/// let table = FitTable::new(vec!["teff".into()]);
/// table.write(&path)?;
/// assert!(matches!(table.write(&path), Err(popfit::Error::OutputExists { .. })));
/// table.write_with(&path, WriteOptions::default().overwrite(true))?;
/// # Ok::<(), popfit::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteOptions {
    /// True if a file of the same name is replaced. Otherwise such a file is [`Error::OutputExists`].
    pub overwrite: bool,
    /// Description of the run that made the table, for formats that have room for it.
    pub metadata: Metadata,
}

impl WriteOptions {
    /// Sets whether a file of the same name is replaced. The old file stays until the new one is whole.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> WriteOptions {
        self.overwrite = overwrite;
        self
    }

    /// Sets the description of the run.
    #[must_use]
    pub fn metadata(mut self, metadata: Metadata) -> WriteOptions {
        self.metadata = metadata;
        self
    }
}

impl From<&Metadata> for WriteOptions {
    /// Returns the default options with this description.
    fn from(metadata: &Metadata) -> WriteOptions {
        WriteOptions::default().metadata(metadata.clone())
    }
}

/// A file that appears under its name only when it is whole: a page, a picture, a profile.
#[derive(Debug)]
pub struct OutputFile {
    staged: Staged,
    file: File,
}

impl OutputFile {
    /// Checks that the file can be created, before its contents are computed.
    ///
    /// # Errors
    /// Returns [`Error::OutputExists`] for an existing file that must not be replaced, [`Error::Io`] if the folder is
    /// missing or cannot be written, [`Error::Write`] if the name is that of a folder, a device or a pipe, and
    /// [`Error::OutputLocked`] while another run writes the file.
    pub fn create(path: impl AsRef<Path>, overwrite: bool) -> Result<OutputFile> {
        let (staged, file) = Staged::create(path.as_ref(), overwrite)?;
        Ok(OutputFile { staged, file })
    }

    /// Returns the path of the file, with links resolved.
    pub fn path(&self) -> &Path {
        self.staged.target()
    }

    /// Writes the contents, flushes them to the disk and gives the file its name.
    ///
    /// # Errors
    /// Returns [`Error::Io`], and [`Error::OutputExists`] if a file that must not be replaced took the name meanwhile:
    /// the old file, if there was one, is as it was. Returns [`Error::Unsettled`] if the file is whole but its folder
    /// could not be flushed.
    pub fn write(self, contents: impl AsRef<[u8]>) -> Result<()> {
        self.end(contents.as_ref(), None)
    }

    /// Writes the file as [`write`](OutputFile::write) does, and records it in the journal before it gets its name.
    ///
    /// # Errors
    /// The errors of [`write`](OutputFile::write); [`Error::Io`] if the journal cannot be written.
    pub fn write_journaled(self, contents: impl AsRef<[u8]>, journal: &mut Journal) -> Result<()> {
        self.end(contents.as_ref(), Some(journal))
    }

    /// Writes and publishes the file, with or without a journal.
    fn end(mut self, contents: &[u8], journal: Option<&mut Journal>) -> Result<()> {
        self.file.write_all(contents).map_err(Error::writing(self.staged.target()))?;
        self.staged.publish(self.file, journal)
    }
}
