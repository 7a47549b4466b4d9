//! Failures of users' models: errors and panics, each of which ends only its own fit.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::model::Failure;

/// Messages of the first failure of each fit of a run.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    any: AtomicBool,
    texts: Mutex<HashMap<usize, String>>,
}

impl Failures {
    /// Locks the map from fits to the messages of their failures.
    fn lock_texts(&self) -> MutexGuard<'_, HashMap<usize, String>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the message with which the model failed in fit `index`; `None` if it has not.
    pub fn text(&self, index: usize) -> Option<String> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        self.lock_texts().get(&index).cloned()
    }

    /// Removes and returns the message of fit `index`; `None` if there is none.
    pub fn take(&self, index: usize) -> Option<String> {
        self.lock_texts().remove(&index)
    }

    /// Stores the message with which the model failed in fit `index`, unless there is one already.
    pub fn add(&self, index: usize, text: String) {
        self.lock_texts().entry(index).or_insert(text);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Removes all failures.
    pub fn clear(&self) {
        self.lock_texts().clear();
        self.any.store(false, Ordering::Relaxed);
    }
}

/// Calls a user's code, and turns its error or panic into a message.
pub(super) fn catch_failure<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, String> {
    match panic::catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(failure)) => Err(format!("the model failed: {failure}")),
        Err(payload) => Err(format!("the model panicked: {}", panic_message(&*payload))),
    }
}

/// Returns the message of a panic, or "without a message".
fn panic_message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "without a message"
    }
}
