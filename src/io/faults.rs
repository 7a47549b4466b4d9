//! Faults on purpose: tests put a hook before every operation on files, and every reservation of a population's memory.
//!
//! Without a hook an operation costs one more relaxed load. There is one hook for the whole process.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Operation that is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An existing file is opened.
    Open,
    /// A file is created, or opened for writing.
    Create,
    /// Some bytes of a file are read.
    Read,
    /// Some bytes are written. A write that fails has written half of them.
    Write,
    /// A file is flushed to the disk, or truncated.
    Sync,
    /// A folder is flushed to the disk, after files in it were renamed.
    SyncFolder,
    /// A file is locked.
    Lock,
    /// A file gets a second name.
    Link,
    /// A file gets another name.
    Rename,
    /// A file is removed.
    Remove,
    /// Memory is reserved for a population's buffer.
    Allocate,
}

/// A function that is called before each operation. If it returns an error, the operation fails with it.
pub type Hook = Box<dyn FnMut(Operation) -> Option<io::Error> + Send>;

static HAS_HOOK: AtomicBool = AtomicBool::new(false);
static HOOK: Mutex<Option<Hook>> = Mutex::new(None);
static INSTALLATION_TURN: Mutex<()> = Mutex::new(());

/// A hook in place, until it is dropped.
#[derive(Debug)]
pub struct Installed {
    _turn: MutexGuard<'static, ()>,
}

/// Installs a test's hook, which may make file operations and allocations fail; waits until no other hook is installed.
#[must_use]
pub fn install(hook: Hook) -> Installed {
    let turn = lock(&INSTALLATION_TURN);
    *lock(&HOOK) = Some(hook);
    HAS_HOOK.store(true, Ordering::SeqCst);
    Installed { _turn: turn }
}

impl Drop for Installed {
    fn drop(&mut self) {
        HAS_HOOK.store(false, Ordering::SeqCst);
        *lock(&HOOK) = None;
    }
}

/// Calls the hook of a test, if one is installed, before an operation; returns the error that the hook injects.
#[inline]
pub(crate) fn inject_fault(operation: Operation) -> io::Result<()> {
    if HAS_HOOK.load(Ordering::Relaxed) {
        call_hook(operation)
    } else {
        Ok(())
    }
}

/// Calls the installed hook with the operation, and returns the error that it injects; `Ok` without a hook or an error.
#[cold]
fn call_hook(operation: Operation) -> io::Result<()> {
    lock(&HOOK)
        .as_mut()
        .and_then(|hook| hook(operation))
        .map_or(Ok(()), Err)
}

/// Locks a mutex, also after another thread has panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
