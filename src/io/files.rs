//! The one seam to the file system: spectra are read and results written through it, so that tests can have any
//! operation fail.

use std::fs::{self, Metadata, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

#[cfg(feature = "files")]
use crate::error::{Error, Result};
use crate::io::faults::{Operation, inject_fault};

/// An open file.
#[derive(Debug)]
pub(crate) struct File(fs::File);

/// Result of locking a file. A lock goes with the file's handle, and therefore at the latest with the process. On
/// Windows it also keeps other handles from reading and writing the file, those of the same process included;
/// [`File::again`] gives a handle that may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Held,
    /// Another handle has it.
    Taken,
    /// This file system has no locks.
    Unknown,
}

impl File {
    /// Opens a file for reading.
    pub fn open(path: &Path) -> io::Result<File> {
        inject_fault(Operation::Open)?;
        open(path).map(File)
    }

    /// Creates a file for writing and reading; fails if it exists.
    pub fn create_new(path: &Path) -> io::Result<File> {
        inject_fault(Operation::Create)?;
        fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map(File)
    }

    /// Opens a file for writing and reading with its contents kept, or creates an empty one if there is none.
    pub fn open_or_create(path: &Path) -> io::Result<File> {
        inject_fault(Operation::Create)?;
        fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map(File)
    }

    /// Opens an existing regular file for writing and reading with its contents kept; fails for a link and for anything
    /// else.
    #[cfg(feature = "files")]
    pub fn open_regular(path: &Path) -> io::Result<File> {
        inject_fault(Operation::Open)?;
        let named_metadata = fs::symlink_metadata(path)?;
        let file = fs::File::options().read(true).write(true).open(path)?;
        // a link may have taken its place meanwhile
        match named_metadata.is_file() && is_same_file(&named_metadata, &file.metadata()?) {
            true => Ok(File(file)),
            false => Err(io::Error::new(
                ErrorKind::InvalidInput,
                "is not a regular file",
            )),
        }
    }

    /// Returns whether `path` leads to this file, and not to one that has replaced it.
    pub fn is_at(&self, path: &Path) -> bool {
        match (fs::metadata(path), self.0.metadata()) {
            (Ok(at_path), Ok(opened)) => is_same_file(&at_path, &opened),
            _ => false,
        }
    }

    /// Returns the metadata of the file.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// Returns another handle of the same file, with the same position and the same lock.
    #[cfg(feature = "files")]
    pub fn again(&self) -> io::Result<File> {
        self.0.try_clone().map(File)
    }

    /// Returns the length of the file (bytes).
    pub fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    /// Fills `into` with the bytes from `offset` on. Threads may do so at the same time.
    #[cfg(feature = "files")]
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < into.len() {
            let count = inject_fault(Operation::Read)
                .and_then(|()| read_at(&self.0, &mut into[filled..], offset + filled as u64));
            match count {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Tries to get an exclusive lock on the file without waiting: held now, taken by another handle, or not supported.
    pub fn lock(&self) -> io::Result<Lock> {
        inject_fault(Operation::Lock)?;
        match self.0.try_lock() {
            Ok(()) => Ok(Lock::Held),
            Err(TryLockError::WouldBlock) => Ok(Lock::Taken),
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                Ok(Lock::Unknown)
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Truncates the file to this length (bytes).
    pub fn set_len(&self, length: u64) -> io::Result<()> {
        inject_fault(Operation::Sync)?;
        self.0.set_len(length)
    }

    /// Waits until all written data of the file are on the disk (fsync).
    pub fn sync(&self) -> io::Result<()> {
        inject_fault(Operation::Sync)?;
        match self.0.sync_all() {
            // macOS asks the disk itself to empty its cache, which network file systems do not support
            Err(error)
                if cfg!(target_vendor = "apple") && error.kind() == ErrorKind::Unsupported =>
            {
                Ok(())
            }
            result => result,
        }
    }
}

impl Read for File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        inject_fault(Operation::Read)?;
        self.0.read(into)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match inject_fault(Operation::Write) {
            Ok(()) => self.0.write(bytes),
            // A test's fault is like a full disk: a part has been written. An interrupted write has written nothing.
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                self.0.write_all(&bytes[..bytes.len() / 2]).and(Err(error))
            }
            Err(error) => Err(error),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

/// Reads bytes at an offset of a file, whatever position its handle has.
#[cfg(all(feature = "files", unix))]
fn read_at(file: &fs::File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, into, offset)
}

/// Reads bytes at an offset of a file, whatever position its handle has.
#[cfg(all(feature = "files", windows))]
fn read_at(file: &fs::File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, into, offset)
}

/// Reads bytes at an offset of a file, one thread after another: handles of other systems have one position for all.
#[cfg(all(feature = "files", not(any(unix, windows))))]
fn read_at(mut file: &fs::File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    static POSITION: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = POSITION
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    file.seek(SeekFrom::Start(offset))?;
    file.read(into)
}

/// Opens a regular file for reading; fails for a device or a pipe, and on Windows for a folder. A pipe would be waited
/// for, and no format here can be read without going back in it.
pub(crate) fn open(path: &Path) -> io::Result<fs::File> {
    if let Ok(metadata) = fs::metadata(path) {
        if !metadata.is_file() && !metadata.is_dir() {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "is a device or a pipe, not a file",
            ));
        }
        // other systems open a folder and say so when it is read; Windows says only "Access is denied"
        if cfg!(windows) && metadata.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
    }
    fs::File::open(path)
}

/// Reads a text from a regular file of at most `max_bytes` bytes; `otherwise` is the message for a file that is not
/// text.
///
/// # Errors
/// `Io` for a device, a pipe or a folder, too; `TooLarge`; `Format` unless the file is UTF-8.
#[cfg(feature = "files")]
pub fn read_text(path: &Path, max_bytes: u64, otherwise: &str) -> Result<String> {
    let mut bytes = Vec::new();
    let read = open(path).and_then(|file| file.take(max_bytes + 1).read_to_end(&mut bytes));
    read.map_err(Error::io(path))?;
    if bytes.len() as u64 > max_bytes {
        let message =
            format!("it has more than the {max_bytes} bytes that popfit reads: {otherwise}");
        return Err(Error::TooLarge {
            path: path.into(),
            message,
        });
    }
    String::from_utf8(bytes).map_err(|_| Error::format(path, otherwise))
}

/// Renames a file, replacing one that has the new name.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    inject_fault(Operation::Rename)?;
    fs::rename(from, to)
}

/// Renames a file unless another one has the new name already; where the file system has no second names, another
/// process may create one in between.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match link(from, to) {
        // if this process cannot remove the first name, a later sweep of temporary files does
        Ok(()) => remove(from).or(Ok(())),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        Err(_) if to.exists() => Err(ErrorKind::AlreadyExists.into()),
        Err(_) => rename(from, to),
    }
}

/// Gives a file the owner, the group and the permissions of the one that it is to replace, as far as the system lets
/// this process. Whoever could not read the old file cannot read the new one.
///
/// # Errors
/// `Io` if the permissions cannot be set: the file might be read by more users than the old one.
#[cfg(unix)]
pub(crate) fn take_over_access(file: &Path, replaced: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let created = fs::metadata(file)?;
    // only the superuser gives files away, and a user gives them to groups that the user is in
    if created.uid() != replaced.uid() {
        let _ = chown(file, Some(replaced.uid()), None);
    }
    let has_group =
        created.gid() == replaced.gid() || chown(file, None, Some(replaced.gid())).is_ok();
    // another group must not read what only the old group could
    let mode = replaced.mode() & if has_group { 0o777 } else { 0o707 };
    if created.mode() & 0o777 == mode {
        return Ok(());
    }
    fs::set_permissions(file, fs::Permissions::from_mode(mode))
}

/// Does nothing: a new file has the access that its folder gives.
#[cfg(not(unix))]
pub(crate) fn take_over_access(_: &Path, _: &Metadata) -> io::Result<()> {
    Ok(())
}

/// Returns whether both are the same file, by device and inode.
#[cfg(unix)]
pub(crate) fn is_same_file(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Returns whether both were created at the same time, where inodes are not known.
#[cfg(not(unix))]
pub(crate) fn is_same_file(a: &Metadata, b: &Metadata) -> bool {
    a.created().ok() == b.created().ok()
}

/// Creates the hard link `name` to a file; fails if that name exists.
pub(crate) fn link(file: &Path, name: &Path) -> io::Result<()> {
    inject_fault(Operation::Link)?;
    fs::hard_link(file, name)
}

/// Deletes the file at `path`.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    inject_fault(Operation::Remove)?;
    fs::remove_file(path)
}

/// Flushes the folder of `path` to the disk (fsync), where the system can: names made or changed in it survive a crash.
/// Windows does not: there a folder cannot be opened as a file, and nothing is done.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    inject_fault(Operation::SyncFolder)?;
    let Ok(folder) = fs::File::open(parent_folder(path)) else {
        return Ok(());
    };
    match folder.sync_all() {
        Err(error)
            if !matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}

/// Follows symbolic links from `path` to the path where they end, at which there need not be a file yet. Links without
/// end give the system's error.
pub(crate) fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_path_buf();
    // as many in a row as Linux follows
    for _ in 0..=40 {
        let Ok(next) = fs::read_link(&target) else {
            return Ok(target);
        };
        target = parent_folder(&target).join(next);
    }
    fs::metadata(path).and(Err(io::Error::other("too many links")))
}

/// Returns the folder that the file at `path` is in: its parent, or `.` for a bare file name.
pub(crate) fn parent_folder(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
