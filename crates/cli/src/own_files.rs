//! The files that a demo wrote, told from all others by their checksums.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use popfit::{Error, OutputFile, Result};
use sha2::{Digest, Sha256};

use super::Failure;

/// Name of the list of checksums, in the format that `sha256sum` writes and checks.
const LIST: &str = "demo.sha256";

/// A folder whose list of checksums tells the files that an earlier demo wrote there.
pub struct OwnFiles {
    folder: PathBuf,
    /// SHA-256 by name.
    known: BTreeMap<String, String>,
    has_list: bool,
}

impl OwnFiles {
    /// Reads the list, kept in the demo's folder, of files that a demo wrote; it is empty if there is none. Refuses a
    /// list that is none of a demo's.
    pub fn open(folder: &Path) -> Result<OwnFiles, Failure> {
        let path = folder.join(LIST);
        let has_list = path.is_file();
        let text = if has_list {
            std::fs::read_to_string(&path).map_err(io(&path))?
        } else {
            String::new()
        };
        let entry = |line: &str| {
            let (hash, name) = line.split_once("  ")?;
            (hash.len() == 64).then(|| (name.to_string(), hash.to_string()))
        };
        match text.lines().map(entry).collect() {
            Some(known) => Ok(OwnFiles {
                folder: folder.to_path_buf(),
                known,
                has_list,
            }),
            None => Err(not_ours(&path)),
        }
    }

    /// Returns true if the file exists and a demo wrote it (or it has these contents), false if none exists; else
    /// fails. Refuses any other file. A demo that was killed has not written its list, so a file with the bytes
    /// `contents` is a demo's own, too.
    pub fn replaces(&self, name: &str, contents: Option<&[u8]>) -> Result<bool, Failure> {
        let path = self.folder.join(name);
        if !path.is_file() {
            return Ok(false);
        }
        let found = checksum(&path)?;
        let is_ours = self.known.get(name) == Some(&found)
            || contents.is_some_and(|bytes| hex(bytes) == found);
        if is_ours {
            Ok(true)
        } else {
            Err(not_ours(&path))
        }
    }

    /// Adds these files of the folder, with their checksums, to the list of files that a demo wrote.
    pub fn record(&mut self, names: &[&str]) -> Result<()> {
        for name in names {
            self.known
                .insert(name.to_string(), checksum(&self.folder.join(name))?);
        }
        let text: String = self
            .known
            .iter()
            .map(|(name, hash)| format!("{hash}  {name}\n"))
            .collect();
        OutputFile::create(self.folder.join(LIST), self.has_list)?.write(text)?;
        self.has_list = true;
        Ok(())
    }
}

/// Returns the failure that says that a demo did not write the file at `path`, so it is not replaced.
fn not_ours(path: &Path) -> Failure {
    let path = path.display();
    Failure::usage(format!(
        "{path}: popfit demo did not write this file, or it has changed since. Choose another folder with \
         --out, or move the file away"
    ))
}

/// Returns the SHA-256 of a file's contents, as hexadecimal text.
fn checksum(path: &Path) -> Result<String> {
    Ok(hex(&std::fs::read(path).map_err(io(path))?))
}

/// Returns the SHA-256 of the bytes, as hexadecimal text.
fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns a closure for `map_err`, which turns an I/O error into one that names the file at `path`.
fn io(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::Io {
        path: path.to_path_buf(),
        source,
    }
}
