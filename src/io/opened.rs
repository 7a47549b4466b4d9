//! A file that was checked and closed, and that is opened again when its turn comes: a run may have more files than a
//! process may have open.

use std::fs::Metadata;
use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::files::{File, is_same_file};

/// Metadata of a file when it was checked.
#[derive(Clone, Debug)]
pub struct CheckedFile {
    metadata: Metadata,
}

impl CheckedFile {
    /// Records the metadata of an open file.
    pub fn new(file: &File) -> io::Result<CheckedFile> {
        Ok(CheckedFile {
            metadata: file.metadata()?,
        })
    }

    /// Returns the length of the file in bytes.
    pub fn length(&self) -> u64 {
        self.metadata.len()
    }

    /// Opens the file once more.
    ///
    /// # Errors
    /// `Io`; [`Error::InputChanged`] if another file has its name now, or if it has another length.
    pub fn open_again(&self, path: &Path) -> Result<File> {
        let (file, now) = self.open_same(path)?;
        if self.metadata.len() == now.len() {
            Ok(file)
        } else {
            Err(changed(path))
        }
    }

    /// Opens the file once more, as [`open_again`](CheckedFile::open_again) does, for a format that has no checksums.
    ///
    /// # Errors
    /// The errors of [`open_again`](CheckedFile::open_again); [`Error::InputChanged`] also if the file was written to.
    pub fn open_unwritten(&self, path: &Path) -> Result<File> {
        let (file, now) = self.open_same(path)?;
        let is_same_length = self.metadata.len() == now.len();
        let is_same_time = self.metadata.modified().ok() == now.modified().ok();
        if is_same_length && is_same_time {
            Ok(file)
        } else {
            Err(changed(path))
        }
    }

    /// Opens the file that has the name now, and fails if it is another one.
    fn open_same(&self, path: &Path) -> Result<(File, Metadata)> {
        let file = File::open(path).map_err(Error::io(path))?;
        let now = file.metadata().map_err(Error::io(path))?;
        if is_same_file(&self.metadata, &now) {
            Ok((file, now))
        } else {
            Err(changed(path))
        }
    }
}

/// Makes the error that a file has changed during the run.
fn changed(path: &Path) -> Error {
    Error::InputChanged {
        path: path.to_path_buf(),
    }
}
