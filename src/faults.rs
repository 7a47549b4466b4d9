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

/// Puts a hook in place, as soon as no other one is.
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

/// Asks the hook, where there is one.
#[inline]
pub(crate) fn at(operation: Operation) -> io::Result<()> {
    if IS_ON.load(Ordering::Relaxed) { ask(operation) } else { Ok(()) }
}

/// Asks the installed hook, and returns the error that it injects, if any.
#[cold]
fn ask(operation: Operation) -> io::Result<()> {
    lock(&HOOK).as_mut().and_then(|hook| hook(operation)).map_or(Ok(()), Err)
}

/// Locks a mutex; a panic of another thread does not poison it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
