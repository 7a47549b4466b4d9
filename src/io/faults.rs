//! Faults on purpose: tests put a hook before every operation on files, and every reservation of a population's memory.
//!
//! Without a hook an operation costs one relaxed load more. There is one hook for the whole process.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Operation that is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A file that is there is opened.
    Open,
    /// A file is made, or opened to be written.
    Create,
    /// Some bytes of a file are read.
    Read,
    /// Some bytes are written; of those of a write that fails, half have been.
    Write,
    /// A file is flushed to the disk, or cut.
    Sync,
    /// A folder is: what was renamed in it has been.
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

/// Sees an operation; an error takes its place.
pub type Hook = Box<dyn FnMut(Operation) -> Option<io::Error> + Send>;

static IS_ON: AtomicBool = AtomicBool::new(false);
static HOOK: Mutex<Option<Hook>> = Mutex::new(None);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A hook in place, until it is dropped.
#[derive(Debug)]
pub struct Installed {
    _turn: MutexGuard<'static, ()>,
}

/// Installs a test's hook, which may make file operations and allocations fail; waits until no other hook is installed.
#[must_use]
pub fn install(hook: Hook) -> Installed {
    let turn = lock(&ONE_AT_A_TIME);
    *lock(&HOOK) = Some(hook);
    IS_ON.store(true, Ordering::SeqCst);
    Installed { _turn: turn }
}

impl Drop for Installed {
    fn drop(&mut self) {
        IS_ON.store(false, Ordering::SeqCst);
        *lock(&HOOK) = None;
    }
}

/// Calls the hook of a test, if one is installed, before an operation; returns the error that the hook wants to happen.
#[inline]
pub(crate) fn at(operation: Operation) -> io::Result<()> {
    if IS_ON.load(Ordering::Relaxed) {
        ask(operation)
    } else {
        Ok(())
    }
}

/// Calls the installed hook with the operation, and returns the error that it injects; `Ok` without a hook or an error.
#[cold]
fn ask(operation: Operation) -> io::Result<()> {
    lock(&HOOK)
        .as_mut()
        .and_then(|hook| hook(operation))
        .map_or(Ok(()), Err)
}

/// Locks a mutex, also after another thread has panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
