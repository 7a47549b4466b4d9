//! Ctrl-C, SIGTERM and a terminal that goes: the run ends cleanly with what it has.

use popfit::{Control, Error};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};

/// What a shell expects of a program that Ctrl-C ended.
const KILLED: i32 = 130;

/// The first signal cancels the run, a second one ends the program at once.
pub fn cancel(control: &Control) -> Result<(), Error> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        register_conditional_shutdown(signal, KILLED, control.cancel.clone())
            .and_then(|_| register(signal, control.cancel.clone()))
            .map_err(|error| Error::Usage(format!("signal {signal} cannot be caught: {error}")))?;
    }
    // a write beyond a limit is then an error that names its file, and not the end
    #[cfg(unix)]
    let _ = register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
    Ok(())
}
