//! Failures of users' models: errors and panics, each of which ends only the fit that it happens in.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::model::Failure;

/// The first failure of each fit of a run, in words.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    any: AtomicBool,
    texts: Mutex<HashMap<usize, String>>,
}

impl Failures {
    /// Locks the texts.
    fn texts(&self) -> MutexGuard<'_, HashMap<usize, String>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the failure of fit `index`.
    pub fn text(&self, index: usize) -> Option<String> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        self.texts().get(&index).cloned()
    }

    /// Removes the failure of fit `index`, and returns it.
    pub fn take(&self, index: usize) -> Option<String> {
        self.texts().remove(&index)
    }

    /// Adds the failure of fit `index`, unless it has one.
    pub fn add(&self, index: usize, text: String) {
        self.texts().entry(index).or_insert(text);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Removes all failures.
    pub fn clear(&self) {
        self.texts().clear();
        self.any.store(false, Ordering::Relaxed);
    }
}

/// Calls a user's code. Returns an error or a panic as text.
pub(super) fn guarded<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, String> {
    match panic::catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(failure)) => Err(format!("the model failed: {failure}")),
        Err(payload) => Err(format!("the model panicked: {}", words(&*payload))),
    }
}

/// Returns the message of a panic.
fn words(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
