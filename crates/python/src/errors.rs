//! popfit's errors as Python's exceptions, which `popfit/_errors.py` defines.

use std::io::ErrorKind;
use std::path::Path;

use popfit::Error;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns the exception for an error of the crate: the message is the crate's own, and attributes say where it was.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let message = error.to_string();
    let argument = error.argument();
    match error {
        Error::Io { path, source } => {
            let class = match source.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => "MissingFileError",
                ErrorKind::PermissionDenied => "ForbiddenFileError",
                ErrorKind::IsADirectory => "FolderError",
                _ => "FileError",
            };
            of_class(py, class, message, |details| {
                details.set_item("path", text(path))
            })
        }
        Error::OutputExists { path } => {
            let message = format!(
                "{}: this file exists already; give overwrite=True, or another name",
                path.display()
            );
            of_class(py, "ExistingFileError", message, |details| {
                details.set_item("path", text(path))
            })
        }
        Error::Format { path, .. } | Error::TooLarge { path, .. } => {
            of_class(py, "InputError", message, |details| {
                details.set_item("path", text(path))
            })
        }
        Error::Interrupted { path, .. }
        | Error::OutputLocked { path }
        | Error::InputChanged { path }
        | Error::Journal { path, .. }
        | Error::Unsettled { path, .. }
        | Error::Write { path, .. } => of_class(py, "Error", message, |details| {
            details.set_item("path", text(path))
        }),
        Error::BadSpectrum { row, .. } => of_class(py, "InputError", message, |details| {
            details.set_item("row", row)
        }),
        Error::Formula { column, .. } | Error::Wgsl { column, .. } => {
            of_class(py, "InputError", message, |details| {
                details.set_item("argument", argument)?;
                details.set_item("column", column)
            })
        }
        Error::InvalidSettings { faults } => of_class(py, "InputError", message, |details| {
            details.set_item("argument", faults.first().map(|fault| fault.name.as_str()))?;
            details.set_item(
                "faults",
                faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
            )
        }),
        Error::NoAdapter(_) => of_class(py, "DeviceError", message, |_| Ok(())),
        Error::Device { device, .. }
        | Error::DeviceLost { device, .. }
        | Error::DeviceUntrusted { device, .. }
        | Error::OutOfMemory { device, .. } => of_class(py, "DeviceError", message, |details| {
            details.set_item("device", device)
        }),
        _ => of_class(py, "InputError", message, |details| {
            details.set_item("argument", argument)
        }),
    }
}

/// Returns an `InputError` about an argument of a call.
pub fn input_error(py: Python<'_>, argument: &str, message: impl Into<String>) -> PyErr {
    of_class(py, "InputError", message.into(), |details| {
        details.set_item("argument", argument)
    })
}

/// Returns the exception of one of popfit's own classes, with the keywords that `describe` adds.
pub fn of_class(
    py: Python<'_>,
    class: &str,
    message: String,
    describe: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>,
) -> PyErr {
    let details = PyDict::new(py);
    let made = describe(&details).and_then(|()| {
        py.import("popfit._errors")?
            .getattr(class)?
            .call((message,), Some(&details))
    });
    made.map_or_else(|failure| failure, PyErr::from_value)
}

/// Returns a path as text for an attribute of an exception.
fn text(path: &Path) -> String {
    path.display().to_string()
}
