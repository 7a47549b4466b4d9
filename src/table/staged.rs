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
use crate::files::{self, File, Lock};
use crate::fit::Journal;

/// A temporary file `.NAME.tmp-PROCESS-N` beside its target; removed on drop unless published. Its file is locked, so
/// that what a process left that was killed is known from what another one is writing.
#[derive(Debug)]
pub(crate) struct Staged {
    /// The path as it was given: a link, perhaps, to the target.
    given: PathBuf,
    target: PathBuf,
    temporary: PathBuf,
    /// A file that has the name already may be replaced.
    overwrite: bool,
    is_published: bool,
}

impl Staged {
    /// Creates the temporary file, which shows that the folder exists and can be written. What killed processes left is
    /// removed; what another process is writing is [`Error::OutputLocked`]. Without `overwrite`, a file that is there
    /// is [`Error::OutputExists`]. A link is followed: it stays, and what it points to is replaced; one that leads to
    /// itself is [`Error::Io`].
    pub fn create(target: &Path, overwrite: bool) -> Result<(Staged, File)> {
        let given = target;
        let target = &files::behind_links(given).map_err(Error::writing(given))?;
        if let Some(what) = other_than_a_file(target) {
            return Err(Error::Write { path: target.to_path_buf(), message: format!("is {what}, not a file") });
        }
        refuse_existing(target, overwrite)?;
        let (mut staged, file) = Staged::beside(target)?;
        (staged.overwrite, staged.given) = (overwrite, given.to_path_buf());
        // after one's own is there: of two processes at once one sees the other's for sure
        match sweep(target) {
            Swept::Clean => Ok((staged, file)),
            Swept::Held => Err(Error::OutputLocked { path: target.to_path_buf() }),
        }
    }

    /// One more temporary file beside the target.
    pub fn beside(target: &Path) -> Result<(Staged, File)> {
        let mut tries = 0;
        loop {
            let temporary = temporary(target);
            let file = match File::create_new(&temporary) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && tries < 100 => {
                    tries += 1;
                    continue;
                }
                file => file.map_err(Error::writing(target))?,
            };
            let (given, target_path) = (target.to_path_buf(), target.to_path_buf());
            let staged = Staged { given, target: target_path, temporary, overwrite: false, is_published: false };
            file.lock().map_err(Error::writing(target))?;
            // between the two lines above another process may have taken it for one that was left
            if staged.temporary.exists() || tries == 100 {
                return Ok((staged, file));
            }
            tries += 1;
        }
    }

    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Flushes the file to the disk and gives it its name; see [`publish_all`](Staged::publish_all).
    pub fn publish(self, file: File, journal: Option<&mut Journal>) -> Result<()> {
        Staged::publish_all(vec![(self, file)], journal)
    }

    /// Publishes files that belong together, the most telling last: all of them, or none as far as the file system lets
    /// it. A file that took one of the names meanwhile is [`Error::OutputExists`], unless it may be replaced. A journal
    /// learns of the files before they have their names, so that a run that is killed in between finds its own files
    /// again.
    pub fn publish_all(mut all: Vec<(Staged, File)>, journal: Option<&mut Journal>) -> Result<()> {
        all.iter().try_for_each(|(staged, _)| refuse_existing(&staged.target, staged.overwrite))?;
        for (staged, file) in &all {
            file.sync().map_err(Error::writing(&staged.target))?;
        }
        if let Some(journal) = journal {
            journal.record_staged(all.iter().map(|(staged, _)| (&*staged.given, &*staged.temporary)))?;
        }
        let mut before = Vec::new();
        for k in 0..all.len() {
            // what can still fail behind this one is why it may have to go back
            before.push(if k + 1 < all.len() { Before::of(&all[k].0.target) } else { Before::Unknown });
            let staged = &mut all[k].0;
            if let Err(error) = files::rename(&staged.temporary, &staged.target) {
                let moved = all[..k].iter().zip(&before);
                moved.for_each(|((staged, _), before)| before.restore(&staged.target));
                return Err(Error::writing(&all[k].0.target)(error));
            }
            staged.is_published = true;
        }
        // a rename lasts once the folder is on the disk
        let settle = |(staged, _): &(Staged, File)| {
            let path = staged.target.clone();
            files::sync_folder(&path).map_err(|source| Error::Unsettled { path, source })
        };
        all.iter().try_for_each(settle)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.is_published {
            // what cannot be removed is swept by the next run
            let _ = files::remove(&self.temporary);
        }
    }
}

/// Former content of a name, before a new file took it.
enum Before {
    Nothing,
    /// Its second name.
    Aside(PathBuf),
    Unknown,
}

impl Before {
    fn of(target: &Path) -> Before {
        let aside = temporary(target);
        match files::link(target, &aside) {
            Ok(()) => Before::Aside(aside),
            Err(error) if error.kind() == ErrorKind::NotFound => Before::Nothing,
            Err(_) => Before::Unknown, // not every file system has second names
        }
    }

    /// Restores the former content as far as possible. Failures are ignored, because an error is being returned
    /// already.
    fn restore(&self, target: &Path) {
        let _ = match self {
            Before::Nothing => files::remove(target),
            Before::Aside(aside) => files::rename(aside, target),
            Before::Unknown => Ok(()),
        };
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        if let Before::Aside(aside) = self
            && aside.exists()
        {
            let _ = files::remove(aside);
        }
    }
}

/// [`Error::OutputExists`] for a file that must not be replaced.
fn refuse_existing(target: &Path, overwrite: bool) -> Result<()> {
    if overwrite || !target.exists() {
        return Ok(());
    }
    Err(Error::OutputExists { path: target.to_path_buf() })
}

/// Names the kind of what lies under the name, if a rename must not replace it: as root it would replace `/dev/null`
/// for the whole machine.
fn other_than_a_file(target: &Path) -> Option<&'static str> {
    match std::fs::metadata(target) {
        Ok(found) if found.is_dir() => Some("a folder"),
        Ok(found) if !found.is_file() => Some("a device or a pipe"),
        _ => target.file_name().is_none().then_some("a folder"),
    }
}

/// A name that no file has had: process, moment of its first file, count.
fn temporary(target: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    target.with_file_name(format!(".{name}.tmp-{}{}", process(), COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// This process, told from others that had its number: in containers they are few.
fn process() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let moment = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("{}-{:x}-", std::process::id(), moment.as_nanos())
    })
}

/// State of other processes' files beside a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swept {
    Clean,
    /// A file that one of them is writing.
    Held,
}

/// Removes what killed processes have left of the target: files that nobody holds a lock on.
fn sweep(target: &Path) -> Swept {
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (start, own) = (format!(".{name}.tmp-"), process());
    // this process's own are in use: on some file systems a second handle would take their lock away
    let is_anothers = |name: &str| name.strip_prefix(&start).is_some_and(|rest| !rest.starts_with(own));
    let mut swept = Swept::Clean;
    for entry in std::fs::read_dir(files::folder(target)).into_iter().flatten().flatten() {
        if !is_anothers(&entry.file_name().to_string_lossy()) {
            continue;
        }
        match File::open_or_create(&entry.path()).and_then(|file| file.lock()) {
            // what cannot be removed harms nobody
            Ok(Lock::Held) => drop(files::remove(&entry.path())),
            Ok(Lock::Taken) => swept = Swept::Held,
            _ => {}
        }
    }
    swept
}
