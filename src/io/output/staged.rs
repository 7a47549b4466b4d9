//! Files that appear under their own names only when they are whole.
//!
//! An existing file is [`Error::OutputExists`], when the output is created and once more when it gets its name, unless
//! it may be replaced. Models and pages have no journal, so the lock on their temporary files keeps a second run from
//! them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::io::files::{self, File, Lock};

/// A record of the files that a run is about to publish: its journal.
pub(crate) trait OutputRecord {
    /// Notes that a finished temporary file will be renamed to an output.
    fn expect_output(&mut self, output: &Path, temporary: &Path);

    /// Records the states of the outputs as they are known.
    ///
    /// # Errors
    /// Returns [`Error::Io`].
    fn record_states(&mut self) -> Result<()>;
}

/// A temporary file `.NAME.tmp-PROCESS-N` beside its target, which is removed on drop unless it is published. The file
/// is locked, which distinguishes it from the file that a killed process left.
#[derive(Debug)]
pub(crate) struct Staged {
    /// The path of the caller, which may be a link to the target.
    requested: PathBuf,
    target: PathBuf,
    temporary: PathBuf,
    /// True if a file that has the name already may be replaced.
    overwrite: bool,
    is_published: bool,
}

impl Staged {
    /// Creates a temporary file for `target`; fails if that exists (unless `overwrite`), or another process is writing
    /// it. Files that killed processes left are removed. A file that another process is writing is
    /// [`Error::OutputLocked`], an existing one without `overwrite` [`Error::OutputExists`]. A link stays, and its
    /// target is replaced; one that leads to itself is [`Error::Io`].
    pub fn create(target: &Path, overwrite: bool) -> Result<(Staged, File)> {
        // 1. Refuse what must not be replaced.
        let requested = target;
        let target = &files::behind_links(requested).map_err(Error::writing(requested))?;
        if let Some(kind) = describe_unless_file(target) {
            return Err(Error::Write {
                path: target.to_path_buf(),
                message: format!("is {kind}, not a file"),
            });
        }
        refuse_existing(target, overwrite)?;
        // 2. Create the file, and restrict the access to it before anything is in it.
        let (mut staged, file) = Staged::create_beside(target)?;
        staged.overwrite = overwrite;
        staged.requested = requested.to_path_buf();
        if let Ok(replaced) = std::fs::metadata(target) {
            files::take_over_access(&staged.temporary, &replaced)
                .map_err(Error::writing(target))?;
        }
        // 3. Look for other writers only now that this file exists: of two processes at least one sees the other's.
        match sweep_temporary_files(target) {
            SweepResult::Clean => Ok((staged, file)),
            SweepResult::Held => Err(Error::OutputLocked {
                path: target.to_path_buf(),
            }),
        }
    }

    /// Creates a locked temporary file with a new name in the folder of `target`; it is not checked whether that
    /// exists.
    pub fn create_beside(target: &Path) -> Result<(Staged, File)> {
        let mut failed_tries = 0;
        loop {
            let temporary = temporary_path(target);
            let file = match File::create_new(&temporary) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && failed_tries < 100 => {
                    failed_tries += 1;
                    continue;
                }
                file => file.map_err(Error::writing(target))?,
            };
            let staged = Staged {
                requested: target.to_path_buf(),
                target: target.to_path_buf(),
                temporary,
                overwrite: false,
                is_published: false,
            };
            let lock = file.lock().map_err(Error::writing(target))?;
            // before it was locked, another process may have swept it as the file of a killed process
            if (lock != Lock::Taken && file.is_at(&staged.temporary)) || failed_tries == 100 {
                return Ok((staged, file));
            }
            failed_tries += 1;
        }
    }

    /// Returns the final path, to which the temporary file will be renamed.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Flushes the temporary file to the disk and renames it to its final path; see
    /// [`publish_all`](Staged::publish_all).
    pub fn publish(self, file: File, record: Option<&mut dyn OutputRecord>) -> Result<()> {
        Staged::publish_all(vec![WholeFile { staged: self, file }], record)
    }

    /// Flushes and renames files that belong together, the most important last: all, or as far as possible none. A file
    /// that took one of the names meanwhile is [`Error::OutputExists`], unless it may be replaced. The files are
    /// recorded in the journal before they get their names, so that a run that is killed in between finds its own files
    /// again.
    pub fn publish_all(
        mut files_to_publish: Vec<WholeFile>,
        record: Option<&mut dyn OutputRecord>,
    ) -> Result<()> {
        // 1. Flush all files, and record them in the journal.
        for WholeFile { staged, .. } in &files_to_publish {
            refuse_existing(&staged.target, staged.overwrite)?;
        }
        for WholeFile { staged, file } in &files_to_publish {
            file.sync().map_err(Error::writing(&staged.target))?;
        }
        if let Some(record) = record {
            for WholeFile { staged, .. } in &files_to_publish {
                record.expect_output(&staged.requested, &staged.temporary);
            }
            record.record_states()?;
        }
        // 2. Give them their names. If one fails, the names before it get their former content back.
        let last = files_to_publish.len().saturating_sub(1);
        let mut former_contents = Vec::new();
        for k in 0..files_to_publish.len() {
            let staged = &mut files_to_publish[k].staged;
            // once the last file has its name nothing can fail any more
            former_contents.push(if k < last {
                FormerContent::keep(&staged.target)
            } else {
                FormerContent::Unknown
            });
            let rename = if staged.overwrite {
                files::rename
            } else {
                files::rename_new
            };
            if let Err(error) = rename(&staged.temporary, &staged.target) {
                let path = staged.target.clone();
                for (published, former) in files_to_publish[..k].iter().zip(&former_contents) {
                    former.restore(&published.staged.target);
                }
                return Err(match error.kind() {
                    ErrorKind::AlreadyExists => Error::OutputExists { path },
                    _ => Error::writing(&path)(error),
                });
            }
            staged.is_published = true;
        }
        // 3. A rename lasts once the folder is on the disk.
        for WholeFile { staged, .. } in &files_to_publish {
            let path = staged.target.clone();
            files::sync_folder(&path).map_err(|source| Error::Unsettled { path, source })?;
        }
        Ok(())
    }
}

/// A file that is complete and has yet to get its name. Its lock is held until it is dropped.
pub(crate) struct WholeFile {
    pub staged: Staged,
    pub file: File,
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.is_published {
            // the next run removes what remains
            let _ = files::remove(&self.temporary);
        }
    }
}

/// Former content of a name, before a new file took it.
enum FormerContent {
    Nothing,
    /// A file, which has a second name.
    Aside(PathBuf),
    Unknown,
}

impl FormerContent {
    /// Keeps what is now at `target` under a second name, or notes that nothing is there, for `restore`.
    fn keep(target: &Path) -> FormerContent {
        let aside = temporary_path(target);
        match files::link(target, &aside) {
            Ok(()) => FormerContent::Aside(aside),
            Err(error) if error.kind() == ErrorKind::NotFound => FormerContent::Nothing,
            Err(_) => FormerContent::Unknown, // not every file system has second names
        }
    }

    /// Puts back at `target` what was there when [`keep`](FormerContent::keep) was called, as far as the file system
    /// allows. Failures are ignored, because an error is being returned already.
    fn restore(&self, target: &Path) {
        let _ = match self {
            FormerContent::Nothing => files::remove(target),
            FormerContent::Aside(aside) => files::rename(aside, target),
            FormerContent::Unknown => Ok(()),
        };
    }
}

impl Drop for FormerContent {
    fn drop(&mut self) {
        if let FormerContent::Aside(aside) = self
            && aside.exists()
        {
            let _ = files::remove(aside);
        }
    }
}

/// Fails with [`Error::OutputExists`] if something is at `target` and `overwrite` is false.
fn refuse_existing(target: &Path, overwrite: bool) -> Result<()> {
    if overwrite || !target.exists() {
        return Ok(());
    }
    Err(Error::OutputExists {
        path: target.to_path_buf(),
    })
}

/// Returns what `target` is (a folder, a device or a pipe) if it must not be replaced; `None` for a file or nothing.
fn describe_unless_file(target: &Path) -> Option<&'static str> {
    match std::fs::metadata(target) {
        Ok(metadata) if metadata.is_dir() => Some("a folder"),
        Ok(metadata) if !metadata.is_file() => Some("a device or a pipe"),
        _ => target.file_name().is_none().then_some("a folder"),
    }
}

/// Returns a new path beside `target`, `.NAME.tmp-…`, that no other process or call returns.
fn temporary_path(target: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = target
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    target.with_file_name(format!(
        ".{name}.tmp-{}{}",
        process_name(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    ))
}

/// Returns a text that is unique to this process: its number, and the moment (ns) at which it first asked.
fn process_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let moment = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        format!("{}-{:x}-", std::process::id(), moment.as_nanos())
    })
}

/// State of other processes' temporary files beside a target, after a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SweepResult {
    Clean,
    /// A file that one of them is writing.
    Held,
}

/// Deletes temporary files that killed processes left for `target`; returns whether a living process holds one.
fn sweep_temporary_files(target: &Path) -> SweepResult {
    let name = target
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let prefix = format!(".{name}.tmp-");
    let mut sweep = SweepResult::Clean;
    let entries = std::fs::read_dir(files::parent_folder(target));
    for entry in entries.into_iter().flatten().flatten() {
        // on some file systems a second handle would take away the lock of this process's own files
        let is_of_other_process = entry
            .file_name()
            .to_string_lossy()
            .strip_prefix(&prefix)
            .is_some_and(|suffix| !suffix.starts_with(process_name()));
        if !is_of_other_process {
            continue;
        }
        match File::open_regular(&entry.path()).and_then(|file| file.lock()) {
            // a file that cannot be removed does no harm
            Ok(Lock::Held) => drop(files::remove(&entry.path())),
            Ok(Lock::Taken) => sweep = SweepResult::Held,
            _ => {}
        }
    }
    sweep
}
