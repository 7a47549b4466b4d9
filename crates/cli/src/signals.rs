//! Ctrl-C, SIGTERM and a terminal that goes: the run ends cleanly with what it has.

use std::sync::atomic::{AtomicBool, Ordering};

use popfit::{Control, Error};
use signal_hook::SigId;
#[cfg(windows)]
use signal_hook::consts::SIGBREAK;
#[cfg(not(windows))]
use signal_hook::consts::SIGHUP;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};
use signal_hook::low_level::unregister;

/// Exit code that a shell expects of a program that Ctrl-C ended.
const KILLED: i32 = 130;

/// The signals that end a run. Windows raises SIGBREAK for Ctrl-Break and when the console window is closed; in the
/// latter case it ends the process soon after, and `--resume` goes on from the journal.
#[cfg(windows)]
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGBREAK];
/// The signals that end a run.
#[cfg(not(windows))]
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// True in a process that is there for the command alone.
static OWNS_PROCESS: AtomicBool = AtomicBool::new(false);

/// Lets runs of this process end at all [`ENDING`] signals; else at SIGINT alone, as others belong to the program that
/// calls the command.
pub fn own_process() {
    OWNS_PROCESS.store(true, Ordering::Relaxed);
}

/// Handlers of signals, which are gone when this is dropped.
pub struct Handlers(Vec<SigId>);

impl Drop for Handlers {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|id| {
            unregister(id);
        });
    }
}

/// Installs handlers: the first ending signal (such as Ctrl-C) cancels the run, a second one ends the program at once.
pub fn cancel(control: &Control) -> Result<Handlers, Error> {
    let mut handlers = Handlers(Vec::new());
    let owns_process = OWNS_PROCESS.load(Ordering::Relaxed);
    for signal in ENDING
        .into_iter()
        .filter(|signal| owns_process || *signal == SIGINT)
    {
        let fault = |error| Error::System(format!("signal {signal} cannot be caught: {error}"));
        handlers.0.push(
            register_conditional_shutdown(signal, KILLED, control.cancel.clone()).map_err(fault)?,
        );
        handlers
            .0
            .push(register(signal, control.cancel.clone()).map_err(fault)?);
    }
    // a write beyond a limit is then an error that names its file, and not the end
    #[cfg(unix)]
    handlers.0.extend(register(
        signal_hook::consts::SIGXFSZ,
        std::sync::Arc::default(),
    ));
    Ok(handlers)
}
