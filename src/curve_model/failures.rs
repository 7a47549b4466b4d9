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
    /// Locks the map from fits to the messages of their failures.
    fn texts(&self) -> MutexGuard<'_, HashMap<usize, String>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the message with which the model failed in fit `index`; `None` if it has not.
    pub fn text(&self, index: usize) -> Option<String> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        self.texts().get(&index).cloned()
    }

    /// Removes and returns the message of fit `index`; `None` if there is none.
    pub fn take(&self, index: usize) -> Option<String> {
        self.texts().remove(&index)
    }

    /// Stores the message with which the model failed in fit `index`, unless there is one already.
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

/// Calls a user's code, and turns its error or panic into a message.
pub(super) fn guarded<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, String> {
    match panic::catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(failure)) => Err(format!("the model failed: {failure}")),
        Err(payload) => Err(format!("the model panicked: {}", words(&*payload))),
    }
}

/// Returns the message of a panic, or "without a message".
fn words(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
