//! The one error type: a run that failed. A *fit* that failed is a row with a [`Status`](crate::Status), never an
//! `Error`.

use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// `Result` with popfit's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error that ended a run. Messages name the file, the spectrum and the field.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "a variant's text describes its fields")]
pub enum Error {
    /// The operating system refused. The message explains in plain words which file or folder is missing, or is of the
    /// wrong kind.
    #[error("{}: {}", path.display(), in_plain_words(path, source))]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file is not what it claims to be: truncated, corrupt, of another kind, or with contradictory contents.
    #[error("{}: {}{message}", path.display(), offset.map(|o| format!("at byte {o}: ")).unwrap_or_default())]
    Format {
        path: PathBuf,
        offset: Option<u64>,
        message: String,
    },
    /// A header claims, or a compressed entry holds, more than the file can or popfit reads.
    #[error("{}: {message}", path.display())]
    TooLarge { path: PathBuf, message: String },
    /// Arrays that belong together have different lengths.
    #[error("{what}: {message}")]
    ShapeMismatch {
        /// File, arm or argument.
        what: String,
        /// The argument or array with the wrong shape, if one can be named.
        argument: Option<String>,
        message: String,
    },
    /// A file of spectra was written to, or replaced, while its spectra were fitted.
    #[error("{} was written to or replaced while it was fitted: no table is made of two versions of it", path.display())]
    InputChanged { path: PathBuf },
    /// A wavelength grid is unsorted, repeated or not finite.
    #[error("{what}: wavelength {index} (counted from 0): {message}")]
    BadWavelength {
        what: String,
        index: usize,
        message: String,
    },
    /// The model and the data share no wavelength.
    #[error(
        "{what}: data and model share no wavelength: {}",
        coverage(data.0..=data.1, model.0..=model.1, range.map(|(low, high)| low..=high))
    )]
    NoOverlap {
        what: String,
        /// Å: first and last wavelength of the data, and of the emulator.
        data: (f64, f64),
        model: (f64, f64),
        /// Å: the arm's `range`.
        range: Option<(f64, f64)>,
    },
    /// A bound is NaN, or the lower one is above the upper one.
    #[error(
        "{parameter}: {lower} to {upper} is not an interval; give two finite numbers, the lower one first"
    )]
    BadBounds {
        parameter: String,
        lower: f64,
        upper: f64,
    },
    /// A model, from a file or a builder, is invalid.
    #[error("model: {message}")]
    Model {
        /// The setting at fault, named as in a model file (`labels.teff`, `arm[1].range`), if one can be named.
        setting: Option<String>,
        /// The fault. It names the setting, too.
        message: String,
    },
    /// A formula cannot be parsed; `column` counts characters from 1.
    #[error("formula, column {column}: {message}\n  {}\n{:>width$}", one_line(formula), '^', width = caret_width(column))]
    Formula {
        formula: String,
        column: usize,
        message: String,
    },
    /// The user's WGSL is no valid model; line and column (in characters) count from 1.
    #[error("WGSL, line {line}, column {column}: {message}\n  {}\n{:>width$}", one_line(text), '^', width = caret_width(column))]
    Wgsl {
        line: usize,
        column: usize,
        message: String,
        /// Text of the line.
        text: String,
    },
    /// A call or a setting is wrong.
    #[error("{0}")]
    Usage(String),
    /// An argument of this name is invalid. The message names it, too.
    #[error("{message}")]
    InvalidArgument { argument: String, message: String },
    /// Settings of a fitter are invalid: all of these, not only the first.
    #[error("{}", format_faults(faults))]
    InvalidSettings { faults: Vec<InvalidSetting> },
    /// A spectrum cannot be fitted, and the fitter is [strict](crate::SpectralFitter::strict), or problems for another
    /// optimiser were asked for.
    #[error("{file}, row {row}, id {id}: {cause}")]
    BadSpectrum {
        file: String,
        row: u64,
        id: String,
        cause: String,
    },
    /// No adapter matches.
    #[error("no GPU to use: {0}")]
    NoAdapter(String),
    /// The device failed.
    #[error("device {device}: {message}")]
    Device { device: String, message: String },
    /// The device was lost, or did not answer in time.
    #[error("device {device} was lost, or did not answer in time: {message}")]
    DeviceLost { device: String, message: String },
    /// The device gave a result that a check contradicts.
    #[error(
        "device {device} gave a result that a check contradicts, so its results are not used: {message}"
    )]
    DeviceUntrusted { device: String, message: String },
    /// The device has too little memory for even the smallest population.
    #[error("device {device} has too little memory: {message}")]
    OutOfMemory { device: String, message: String },
    /// The operating system refused something other than a file, such as a thread.
    #[error("{0}")]
    System(String),
    /// A check of popfit's own work failed, or one of its threads panicked.
    #[error("{0}; this is a fault of popfit: please report it")]
    Internal(String),
    /// Another run writes the same output.
    #[error("{}: another run is writing this file; wait until it has ended, or choose another name", path.display())]
    OutputLocked { path: PathBuf },
    /// A file has the name of an output that must not overwrite it. `WriteOptions::overwrite` allows it.
    #[error("{}: this file exists already; choose another name, or allow it to be overwritten", path.display())]
    OutputExists { path: PathBuf },
    /// A run over files was ended (by cancel or timeout) before its output was written, or the output existed before
    /// and stays as it was.
    #[error(
        "interrupted; {} {}{}", path.display(), if path.exists() { "is as it was" } else { "was not written" },
        if *kept { "; what was fitted is kept beside it, and the run can be resumed" } else { "" }
    )]
    Interrupted {
        path: PathBuf,
        /// True if rows are stored in a journal beside the output, so that the run can be resumed.
        kept: bool,
    },
    /// None of the targets that a run is to fit is in the files and passes the other selections. Nothing is written.
    #[error("no spectrum is selected: {}; nothing is written", describe_missing_targets(*wanted))]
    NothingSelected {
        /// Number of TARGETIDs that were given.
        wanted: usize,
    },
    /// The journal of an output cannot be used.
    #[error("{}: {message}", path.display())]
    Journal { path: PathBuf, message: String },
    /// A result is complete and in its place, but the system could not ensure that it survives a power cut.
    #[error(
        "{}: it is whole and in its place, but its folder could not be flushed to the disk, and a power cut may take \
         it back: {source}",
        path.display()
    )]
    Unsettled {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The table could not be made.
    #[error("{}: {message}", path.display())]
    Write { path: PathBuf, message: String },
}

/// A setting that a fitter cannot work with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InvalidSetting {
    /// Name of the setting, which is that of its setter.
    pub name: String,
    /// The fault, and its remedy.
    pub message: String,
}

impl std::fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.message)
    }
}

impl InvalidSetting {
    /// Makes the fault of a setting, with its name and a description for the user.
    pub(crate) fn new(name: impl Into<String>, message: impl Into<String>) -> InvalidSetting {
        InvalidSetting {
            name: name.into(),
            message: message.into(),
        }
    }

    /// Returns `Ok` if the list of faults is empty, else one [`Error::InvalidSettings`] that carries them all.
    pub(crate) fn none_of(faults: Vec<InvalidSetting>) -> Result<()> {
        if faults.is_empty() {
            Ok(())
        } else {
            Err(Error::InvalidSettings { faults })
        }
    }
}

/// Returns the message that none of `wanted` target ids is in the files.
fn describe_missing_targets(wanted: usize) -> String {
    match wanted {
        1 => {
            "the TARGETID that was given is not in the files, or does not pass the other selections (fibres with a bad FIBERSTATUS pass with --any-fiberstatus alone)"
                .into()
        }
        _ => {
            format!(
                "none of the {wanted} TARGETIDs that were given is in the files and passes the other selections (fibres with a bad FIBERSTATUS pass with --any-fiberstatus alone)"
            )
        }
    }
}

/// Formats faults for an error message: one fault as a single line, several as a heading with a line per fault.
fn format_faults(faults: &[InvalidSetting]) -> String {
    match faults {
        [fault] => fault.to_string(),
        _ => {
            let lines: Vec<String> = faults.iter().map(|fault| format!("\n  {fault}")).collect();
            format!("{} settings are invalid:{}", faults.len(), lines.concat())
        }
    }
}

/// Returns text for an error: the wavelength ranges (Å) of data and model, `range` if given, and a likely wrong unit.
pub(crate) fn coverage(
    data: RangeInclusive<f64>,
    model: RangeInclusive<f64>,
    range: Option<RangeInclusive<f64>>,
) -> String {
    let format_range =
        |range: &RangeInclusive<f64>| format!("{:.2}-{:.2} Å", range.start(), range.end());
    let arm_range = range
        .map(|range| format!(", the arm's range is {}", format_range(&range)))
        .unwrap_or_default();
    let likely_mistake = if let Some(unit) = likely_unit(&data, &model) {
        format!("; the data's wavelengths seem to be {unit}")
    } else if let Some(unit) = likely_unit(&model, &data) {
        format!("; the model's seem to be {unit}")
    } else {
        String::new()
    };
    // The logarithm of a wavelength needs more decimals.
    let decimals = if *data.end() < 100.0 { 5 } else { 2 };
    let (first, last) = data.into_inner();
    format!(
        "the data cover {first:.decimals$}-{last:.decimals$} Å, the model {}{arm_range}{likely_mistake}",
        format_range(&model)
    )
}

/// A unit in which wavelengths may be given by mistake.
struct WrongUnit {
    /// Name of the unit with its conversion.
    text: &'static str,
    to_angstrom: fn(f64) -> f64,
}

/// Units in which wavelengths may be given by mistake, in the order in which they are tried.
const WRONG_UNITS: [WrongUnit; 4] = [
    WrongUnit {
        text: "in nm (multiply them by 10 to have Å)",
        to_angstrom: |x| 10.0 * x,
    },
    WrongUnit {
        text: "in µm (multiply them by 10000 to have Å)",
        to_angstrom: |x| 1e4 * x,
    },
    WrongUnit {
        text: "log10 of the wavelength (raise 10 to their power to have Å)",
        to_angstrom: |x| 10f64.powf(x),
    },
    WrongUnit {
        text: "ln of the wavelength (take their exponential to have Å)",
        to_angstrom: f64::exp,
    },
];

/// Returns the name of a unit from which the numbers of `grid`, converted to Å, would overlap `other`; `None` if none.
fn likely_unit(grid: &RangeInclusive<f64>, other: &RangeInclusive<f64>) -> Option<&'static str> {
    let would_overlap = |unit: &&WrongUnit| {
        let converted = (unit.to_angstrom)(*grid.start())..=(unit.to_angstrom)(*grid.end());
        overlaps(&converted, other)
    };
    WRONG_UNITS.iter().find(would_overlap).map(|unit| unit.text)
}

/// Returns whether the common part of two ranges is at least half as long as the shorter one.
fn overlaps(first: &RangeInclusive<f64>, second: &RangeInclusive<f64>) -> bool {
    let common = first.end().min(*second.end()) - first.start().max(*second.start());
    let shorter = (first.end() - first.start()).min(second.end() - second.start());
    first.end().is_finite() && common > 0.0 && common >= 0.5 * shorter
}

/// Returns the message that some bytes of a file do not match their checksum, so the file is damaged.
pub(crate) fn damage_message(bytes: &str) -> String {
    format!(
        "damaged: {bytes} do not match their checksum, so bytes of the file have changed since it was written; \
         restore it from a copy, or fit again"
    )
}

/// Returns why an I/O operation on `path` failed: a plain sentence for common mistakes, else the system's own message.
pub(crate) fn in_plain_words(path: &Path, source: &std::io::Error) -> String {
    // An error with a message of its own has already been explained.
    let is_system_error = source.get_ref().is_none();
    explain_io_error(path, source.kind())
        .filter(|_| is_system_error)
        .unwrap_or_else(|| source.to_string())
}

/// Explains an I/O error by the state of `path`: a folder, a missing file or parent folder; `None` if that explains
/// nothing.
fn explain_io_error(path: &Path, kind: ErrorKind) -> Option<String> {
    let parent_folders = || {
        path.ancestors()
            .skip(1)
            .filter(|folder| !folder.as_os_str().is_empty())
    };
    // 1. Other kinds of errors have nothing to do with missing or misplaced folders.
    match kind {
        ErrorKind::IsADirectory => return Some("this is a folder, not a file".into()),
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists | ErrorKind::NotFound => {}
        _ => return None,
    }
    // 2. Look for a part of the path that is a file, or does not exist.
    if let Some(file) = parent_folders().find(|folder| folder.is_file()) {
        return Some(format!("{} is a file, not a folder", file.display()));
    }
    match parent_folders()
        .take_while(|folder| !folder.exists())
        .last()
    {
        Some(folder) => Some(format!("the folder {} does not exist", folder.display())),
        None if kind != ErrorKind::NotFound => path
            .is_file()
            .then(|| "this is a file, not a folder".into()),
        None if path.is_symlink() => Some("this link leads to a file that does not exist".into()),
        None if path.exists() => None,
        None => Some("this file does not exist".into()),
    }
}

/// Replaces each whitespace character by one space, so that a caret printed on the next line points at the right
/// column.
fn one_line(formula: &str) -> String {
    formula
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .collect()
}

/// Returns the width of the line with the caret under a text's column, for an indent of two. It is limited because
/// `format!` panics beyond 65,535.
fn caret_width(column: &usize) -> usize {
    (column + 2).min(1000)
}

impl Error {
    /// Returns a closure for `map_err`, which turns an I/O error into an [`Error::Io`] that names the file at `path`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
        move |source| Error::Io {
            path: path.to_path_buf(),
            source,
        }
    }

    /// Returns a closure for `map_err`: it turns an I/O error of a write into an [`Error::Io`] that explains the cause
    /// in plain words.
    pub(crate) fn writing(path: &Path) -> impl Fn(std::io::Error) -> Error + '_ {
        |source| {
            let message = format!("cannot be written: {}", in_plain_words(path, &source));
            Error::Io {
                path: path.to_path_buf(),
                source: std::io::Error::new(source.kind(), message),
            }
        }
    }

    /// Returns whether the CPU or GPU caused the error (lost, untrusted, out of memory …), so that another may succeed.
    pub(crate) fn is_of_device(&self) -> bool {
        matches!(
            self,
            Error::Device { .. }
                | Error::DeviceLost { .. }
                | Error::DeviceUntrusted { .. }
                | Error::OutOfMemory { .. }
        )
    }

    /// Returns the name of the argument that is wrong, as the functions of this crate call it (`flux`, `ivar`, `mask`,
    /// `wavelength`, `resolution`, `ids`, `arms`, `starts`, `x`, `y`, `sigma`, `formula` …), that of the only invalid
    /// setting of a fitter, or that of a setting of a model; `None` if the error is not that of one argument.
    pub fn argument(&self) -> Option<&str> {
        match self {
            Error::ShapeMismatch { argument, .. } => argument.as_deref(),
            Error::Model { setting, .. } => setting.as_deref(),
            Error::InvalidArgument { argument, .. } => Some(argument),
            Error::BadWavelength { .. } | Error::NoOverlap { .. } => Some("wavelength"),
            Error::BadBounds { .. } => Some("bounds"),
            Error::Formula { .. } => Some("formula"),
            Error::Wgsl { .. } => Some("source"),
            Error::InvalidSettings { faults } => match faults.as_slice() {
                [fault] => Some(&fault.name),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns an [`Error::Model`] that is not the fault of one setting.
    pub(crate) fn model(message: impl Into<String>) -> Error {
        Error::Model {
            setting: None,
            message: message.into(),
        }
    }

    /// Returns an [`Error::Model`]: this setting of the model is invalid, as `message` explains.
    pub(crate) fn model_setting(setting: impl Into<String>, message: impl Into<String>) -> Error {
        Error::Model {
            setting: Some(setting.into()),
            message: message.into(),
        }
    }

    /// Returns an [`Error::InvalidArgument`]: the value of this argument is invalid, as `message` explains.
    pub(crate) fn invalid(argument: impl Into<String>, message: impl Into<String>) -> Error {
        Error::InvalidArgument {
            argument: argument.into(),
            message: message.into(),
        }
    }

    /// Returns the error with the name of the argument or array whose shape is wrong.
    pub(crate) fn naming(self, name: impl Into<String>) -> Error {
        match self {
            Error::ShapeMismatch { what, message, .. } => Error::ShapeMismatch {
                what,
                argument: Some(name.into()),
                message,
            },
            other => other,
        }
    }

    /// Returns an [`Error::ShapeMismatch`]: the lengths or dimensions of the argument `what` are wrong, as `message`
    /// explains.
    pub(crate) fn mismatch(what: impl Into<String>, message: impl Into<String>) -> Error {
        Error::ShapeMismatch {
            what: what.into(),
            argument: None,
            message: message.into(),
        }
    }

    /// Returns an [`Error::Format`]: the contents of the file at `path` are invalid; without a byte offset.
    pub(crate) fn format(path: &Path, message: impl Into<String>) -> Error {
        Error::Format {
            path: path.to_path_buf(),
            offset: None,
            message: message.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message explains the fault of a path; errors that the path does not explain have the system's message.
    #[test]
    fn missing_files_and_folders_are_explained_in_plain_words() {
        let folder = tempfile::tempdir().unwrap();
        let path_of = |name: &str| folder.path().join(name);
        std::fs::write(path_of("file"), "").unwrap();
        let [gone, file] = ["gone", "file"].map(|name| path_of(name).display().to_string());
        let read_error = |name: &str| {
            std::fs::read(path_of(name))
                .map_err(Error::io(&path_of(name)))
                .unwrap_err()
                .to_string()
        };
        let message = |name: &str, words: &str| format!("{}: {words}", path_of(name).display());
        assert_eq!(
            read_error("none"),
            message("none", "this file does not exist")
        );
        assert_eq!(
            read_error("gone/a/b"),
            message("gone/a/b", &format!("the folder {gone} does not exist"))
        );
        assert_eq!(
            read_error("file/b"),
            message("file/b", &format!("{file} is a file, not a folder"))
        );
        let write_error = |name: &str| {
            std::fs::write(path_of(name), "")
                .map_err(Error::writing(&path_of(name)))
                .unwrap_err()
        };
        let words = format!("cannot be written: the folder {gone} does not exist");
        assert_eq!(write_error("gone/b").to_string(), message("gone/b", &words));
        let create_error = std::fs::create_dir_all(path_of("file"))
            .map_err(Error::io(&path_of("file")))
            .unwrap_err();
        assert_eq!(
            create_error.to_string(),
            message("file", "this is a file, not a folder")
        );
        let full_error = || std::io::Error::from(ErrorKind::StorageFull);
        assert_eq!(
            Error::io(&path_of("none"))(full_error()).to_string(),
            message("none", &full_error().to_string())
        );
        if cfg!(unix) {
            assert_eq!(
                write_error("").to_string(),
                message("", "cannot be written: this is a folder, not a file")
            );
        }
    }
}
