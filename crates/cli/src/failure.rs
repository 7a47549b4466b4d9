//! How a command fails: what it says, and its exit code.

use std::io::ErrorKind;
use std::path::Path;

use popfit::Error;

/// Message and exit code of a command that failed.
pub struct Failure {
    pub(crate) message: String,
    pub(crate) code: u8,
}

impl Failure {
    /// Returns a failure with exit code 2: bad usage, a bad file or a bad model; nothing was written.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            code: 2,
        }
    }

    /// Returns the failure (exit code 1) of a run that the user stopped, after its table was written with a row per
    /// spectrum.
    pub fn interrupted(table: &Path) -> Failure {
        let table = table.display();
        Failure::of_the_run(format!(
            "interrupted; {table} has a row for every spectrum, status -2 where it was not fitted; --resume goes on"
        ))
    }

    /// Returns the failure (exit code 1) of a run stopped before its table was written; `kept`: its fits so far can be
    /// resumed.
    pub fn stopped(table: &Path, kept: bool) -> Failure {
        let more = if kept {
            "; what was fitted is kept beside it, and --resume goes on"
        } else {
            ""
        };
        let left = if table.exists() {
            "is as it was"
        } else {
            "was not written"
        };
        Failure::of_the_run(format!("interrupted; {} {left}{more}", table.display()))
    }

    /// Returns a failure with exit code 3: the command came to its end, but there is no converged fit.
    pub fn nothing_fitted(message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            code: 3,
        }
    }

    /// Returns a failure with exit code 1: something went wrong after the command had begun its work.
    pub fn of_the_run(message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            code: 1,
        }
    }

    /// Appends words to the failure's message.
    pub fn add(&mut self, words: &str) {
        self.message.push_str(words);
    }

    /// Converts an error of a run that had begun: exit code 1 for device, disk or memory errors and if the user ended
    /// it, else 2.
    pub fn running(error: Error) -> Failure {
        if let Error::Interrupted { path, kept } = &error {
            return Failure::stopped(path, *kept);
        }
        let of_device = matches!(
            error,
            Error::Device { .. } | Error::DeviceLost { .. } | Error::DeviceUntrusted { .. }
        );
        let of_disk = matches!(
            error,
            Error::Io { .. }
                | Error::Write { .. }
                | Error::Unsettled { .. }
                | Error::InputChanged { .. }
        );
        let runtime = of_device || of_disk || matches!(error, Error::OutOfMemory { .. });
        Failure {
            message: in_words(&error),
            code: if runtime { 1 } else { 2 },
        }
    }
}

/// An error before the run: 3 if no spectrum is selected, 1 if the user ended it, the disk is full or a file was
/// written to meanwhile, which is nobody's bad usage, and else 2.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match &error {
            Error::Interrupted { path, kept } => return Failure::stopped(path, *kept),
            Error::NothingSelected { .. } => return Failure::nothing_fitted(in_words(&error)),
            _ => {}
        }
        let full = [
            ErrorKind::StorageFull,
            ErrorKind::QuotaExceeded,
            ErrorKind::FileTooLarge,
        ];
        let is_full = matches!(&error, Error::Io { source, .. } if full.contains(&source.kind()));
        let changed = matches!(&error, Error::InputChanged { .. });
        Failure {
            message: in_words(&error),
            code: if is_full || changed { 1 } else { 2 },
        }
    }
}

/// Returns the message to print for an error: as the error says, but with command options such as `--overwrite`.
fn in_words(error: &Error) -> String {
    match error {
        Error::OutputExists { path } => {
            let path = path.display();
            format!(
                "{path}: this file exists already; use --overwrite to replace it, or choose another name"
            )
        }
        // it begins with the model file's name
        Error::Model { message, .. } => message.clone(),
        other => other.to_string(),
    }
}
