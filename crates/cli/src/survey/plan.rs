//! A plan on the disk: its folder, and what is there of its parts.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use popfit::{Error, Result};

use super::failures::{self, FailedPart};
use super::manifest::Manifest;

/// A plan, in the folder that has its manifest, its parts, and the notes of its workers.
#[derive(Clone, Debug)]
pub struct Plan {
    folder: PathBuf,
    manifest: Manifest,
}

impl Plan {
    /// Opens the plan in a folder.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if there is no manifest, [`Error::Format`] if it is damaged or no manifest, and
    /// [`Error::Usage`] if another version of popfit made it.
    pub fn open(folder: impl AsRef<Path>) -> Result<Plan> {
        let folder = folder.as_ref();
        Ok(Plan {
            folder: folder.into(),
            manifest: Manifest::open(folder)?,
        })
    }

    /// Joins a manifest with the folder into which it was written.
    pub(super) fn new(folder: &Path, manifest: Manifest) -> Plan {
        let folder = folder.into();
        Plan { folder, manifest }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the path of a part's table.
    ///
    /// # Errors
    /// Returns [`Error::Usage`] if the plan has no such part.
    pub fn part_path(&self, part: usize) -> Result<PathBuf> {
        match self.manifest.part_name(part) {
            Some(name) => Ok(self.folder.join(name)),
            None => Err(Error::Usage(format!(
                "{}: the plan has {} parts, counted from 0, and no part {part}",
                self.folder.display(),
                self.manifest.parts.len()
            ))),
        }
    }

    /// Returns whether a part's table is there, and thereby whole.
    pub fn has_part(&self, part: usize) -> bool {
        self.part_path(part).is_ok_and(|path| path.is_file())
    }

    /// Returns the parts whose tables are not there, in their order. The folder is listed once, because looking for
    /// each of a million files takes a network's file system minutes.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the folder cannot be listed.
    pub fn missing_parts(&self) -> Result<Vec<usize>> {
        Ok(self.find_missing(&self.list_names()?))
    }

    /// Returns the parts whose tables are not among these names of files.
    fn find_missing(&self, names: &HashSet<OsString>) -> Vec<usize> {
        let is_missing = |part: &usize| {
            let name = self.manifest.part_name(*part).unwrap_or_default();
            !names.contains(OsStr::new(name))
        };
        let parts = 0..self.manifest.parts.len();
        parts.filter(is_missing).collect()
    }

    /// Returns the names of all files in the folder.
    fn list_names(&self) -> Result<HashSet<OsString>> {
        let io = |source| Error::Io {
            path: self.folder.clone(),
            source,
        };
        let mut names = HashSet::new();
        for entry in std::fs::read_dir(&self.folder).map_err(io)? {
            names.insert(entry.map_err(io)?.file_name());
        }
        Ok(names)
    }

    /// Returns the parts that are there and have a lease.
    pub(super) fn finished_parts_with_lease(&self) -> Result<Vec<usize>> {
        let names = self.list_names()?;
        let leased_part = |name: &OsString| name.to_str()?.strip_prefix(".lease-")?.parse().ok();
        let leased_parts = names.iter().filter_map(leased_part);
        Ok(leased_parts.filter(|part| self.has_part(*part)).collect())
    }

    /// Returns the path of a worker's note on a part: `.KIND-KKKKK`.
    pub(super) fn note_path(&self, kind: &str, part: usize) -> PathBuf {
        self.folder.join(self.note_name(kind, part))
    }

    /// Returns the name of a worker's note on a part.
    fn note_name(&self, kind: &str, part: usize) -> String {
        format!(".{kind}-{}", self.manifest.number(part))
    }

    /// Keeps an error of a part, with those before.
    ///
    /// # Errors
    /// Returns [`Error::Io`].
    pub fn record_failure(&self, part: usize, error: &str) -> Result<()> {
        failures::record(self, part, error)
    }

    /// Keeps the loss of the worker of a part, with the errors before.
    ///
    /// # Errors
    /// Returns [`Error::Io`].
    pub fn record_loss(&self, part: usize, worker: &str) -> Result<()> {
        failures::record_loss(self, part, worker)
    }

    /// Returns whether a part has failed as often as it may: `attempts` times with an error, or more often with the
    /// loss of its worker.
    pub fn has_failed(&self, part: usize, attempts: usize) -> bool {
        failures::has_failed(self, part, attempts)
    }

    /// Returns the missing parts that have failed as often as they may, with their causes, and writes them into
    /// `_failed.json`, which is removed if there are none.
    ///
    /// # Errors
    /// Returns the errors of writing the list.
    pub fn write_failure_list(&self, attempts: usize) -> Result<Vec<FailedPart>> {
        let names = self.list_names()?;
        let has_errors = |part: &usize| {
            let name = self.note_name(failures::NOTE, *part);
            names.contains(OsStr::new(&name))
        };
        let mut failed = self.find_missing(&names);
        failed.retain(|part| has_errors(part) && self.has_failed(*part, attempts));
        failures::list(self, failed)
    }
}
