//! A file that appears under its own name only when it is whole.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A temporary file `.NAME.tmp-PID` beside its target; removed on drop unless published.
#[derive(Debug)]
pub(crate) struct Staged {
    target: PathBuf,
    temporary: PathBuf,
    published: bool,
}

impl Staged {
    /// Creates the temporary file, which shows that the folder exists and can be written.
    pub fn create(target: &Path) -> Result<(Staged, File)> {
        let name = target.file_name().map(|name| name.to_string_lossy().into_owned());
        let Some(name) = name.filter(|_| !target.is_dir()) else {
            return Err(Error::Write { path: target.to_path_buf(), message: "is a folder, not a file".into() });
        };
        let mut last = None;
        // A process killed earlier may have had the same id (containers), and left its file.
        for attempt in 0..100 {
            let suffix = if attempt == 0 { String::new() } else { format!("-{attempt}") };
            let temporary = target.with_file_name(format!(".{name}.tmp-{}{suffix}", std::process::id()));
            match File::options().read(true).write(true).create_new(true).open(&temporary) {
                Ok(file) => return Ok((Staged { target: target.to_path_buf(), temporary, published: false }, file)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => last = Some(error),
                Err(error) => return Err(Error::io(target)(error)),
            }
        }
        Err(Error::io(target)(last.unwrap_or_else(|| ErrorKind::AlreadyExists.into())))
    }

    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Flushes the file to the disk and gives it its name, replacing what was there.
    pub fn publish(mut self, file: File) -> Result<()> {
        file.sync_all().map_err(Error::io(&self.target))?;
        drop(file);
        fs::rename(&self.temporary, &self.target).map_err(Error::io(&self.target))?;
        self.published = true;
        // The rename itself is durable once the folder is; not every system lets a folder be opened.
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.published {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
