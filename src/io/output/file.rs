//! Output files, which replace an existing file only on request and appear only when they are whole.

use std::io::Write;
use std::path::Path;

use super::staged::{OutputRecord, Staged};
use crate::error::{Error, Result};
use crate::io::files::File;

/// A file that appears under its name only when it is whole: a page, a picture, a profile.
#[derive(Debug)]
pub struct OutputFile {
    staged: Staged,
    file: File,
}

impl OutputFile {
    /// Creates a temporary file beside `path`; fails if that cannot be written, or exists and `overwrite` is false.
    ///
    /// # Errors
    /// Returns [`Error::OutputExists`] for an existing file that must not be replaced, [`Error::Io`] if the folder is
    /// missing or cannot be written, [`Error::Write`] if the name is that of a folder, a device or a pipe, and
    /// [`Error::OutputLocked`] while another run writes the file.
    pub fn create(path: impl AsRef<Path>, overwrite: bool) -> Result<OutputFile> {
        let (staged, file) = Staged::create(path.as_ref(), overwrite)?;
        Ok(OutputFile { staged, file })
    }

    /// Returns the path that the finished file will have, with symbolic links resolved.
    pub fn path(&self) -> &Path {
        self.staged.target()
    }

    /// Writes the contents to the temporary file, flushes it to the disk, and renames it to its final path.
    ///
    /// # Errors
    /// Returns [`Error::Io`], and [`Error::OutputExists`] if a file that must not be replaced took the name meanwhile:
    /// the old file, if there was one, is as it was. Returns [`Error::Unsettled`] if the file is whole but its folder
    /// could not be flushed.
    pub fn write(self, contents: impl AsRef<[u8]>) -> Result<()> {
        self.write_and_publish(contents.as_ref(), None)
    }

    /// Writes the file as [`write`](OutputFile::write) does, and records it in `record` (a journal) before it is
    /// renamed.
    ///
    /// # Errors
    /// The errors of [`write`](OutputFile::write), and those of the record.
    pub(crate) fn write_recorded(
        self,
        contents: impl AsRef<[u8]>,
        record: &mut dyn OutputRecord,
    ) -> Result<()> {
        self.write_and_publish(contents.as_ref(), Some(record))
    }

    /// Writes the contents and moves the file to its final path; with a `record`, it is recorded there before.
    fn write_and_publish(
        mut self,
        contents: &[u8],
        record: Option<&mut dyn OutputRecord>,
    ) -> Result<()> {
        self.file
            .write_all(contents)
            .map_err(Error::writing(self.staged.target()))?;
        self.staged.publish(self.file, record)
    }
}
