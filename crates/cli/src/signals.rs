//! Ctrl-C, SIGTERM and a terminal that goes: the run ends cleanly with what it has.

use popfit::{Control, Error};
#[cfg(windows)]
use signal_hook::consts::SIGBREAK;
#[cfg(not(windows))]
use signal_hook::consts::SIGHUP;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};

/// Exit code that a shell expects of a program that Ctrl-C ended.
const KILLED: i32 = 130;

/// The signals that end a run. Windows raises SIGBREAK for Ctrl-Break and when the console window is closed; in the
/// latter case it ends the process soon after, and `--resume` goes on from the journal.
#[cfg(windows)]
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGBREAK];
/// The signals that end a run.
#[cfg(not(windows))]
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Installs handlers: the first ending signal (such as Ctrl-C) cancels the run, a second one ends the program at once.
pub fn cancel(control: &Control) -> Result<(), Error> {
    for signal in ENDING {
        register_conditional_shutdown(signal, KILLED, control.cancel.clone())
            .and_then(|_| register(signal, control.cancel.clone()))
            .map_err(|error| Error::Usage(format!("signal {signal} cannot be caught: {error}")))?;
    }
    // a write beyond a limit is then an error that names its file, and not the end
    #[cfg(unix)]
    let _ = register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
    Ok(())
}
