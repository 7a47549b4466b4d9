//! Ctrl-C and SIGTERM: the run ends cleanly with what it has.

use std::sync::atomic::Ordering;

use popfit::{Control, Error};

/// What a shell expects of a program that Ctrl-C ended.
const KILLED: i32 = 130;

/// The first signal cancels the run, a second one ends the program at once.
pub fn cancel(control: &Control) -> Result<(), Error> {
    let cancel = control.cancel.clone();
    let handler = move || {
        if cancel.swap(true, Ordering::Relaxed) {
            std::process::exit(KILLED);
        }
    };
    ctrlc::set_handler(handler).map_err(|error| Error::Usage(format!("signals cannot be caught: {error}")))
}
