//! Standard output: a reader that has gone away is no fault, a write that fails is told when the command ends.

use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

use popfit::low_level::printable;

use super::Failure;

/// The first write that failed.
static FAULT: OnceLock<io::Error> = OnceLock::new();

/// Prints a line to standard output; a failure to write it is kept for `failure`. A failed write does not stop the
/// command, which reports it when it ends. The command goes on whatever becomes of it: its files are worth more than
/// its words.
pub fn line(text: impl std::fmt::Display) {
    note(writeln!(io::stdout(), "{}", printable(&text.to_string())));
}

/// Keeps the first error of writing to standard output for `failure`, except a closed pipe as in `popfit demo |
/// head`.
pub fn note(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        // only the first one counts
        let _ = FAULT.set(error);
    }
}

/// Flushes standard output, and returns a failure if any write to it went wrong so far; `None` if none did.
pub fn failure() -> Option<Failure> {
    note(io::stdout().flush());
    FAULT
        .get()
        .map(|error| Failure::of_the_run(format!("standard output could not be written: {error}")))
}
