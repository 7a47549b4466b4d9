//! The settings of a run over files.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use popfit::spectra::Selection;
use popfit::{Device, ModelFile, Precision, Solver, SpectralModel, VelocityScan};

use crate::output::Format;

/// Inputs, outputs and settings of a run over files, which [`fit_files`](crate::fit_files) makes. What a field leaves
/// open (`None`) the model file decides, and otherwise popfit's default. Progress, cancel, timeout, threads and profile
/// are those of the [`Control`](popfit::Control).
#[non_exhaustive]
pub struct FitFiles {
    /// The model that is fitted.
    pub model: FitModel,
    /// Files of spectra, fitted one after another into one table.
    pub spectra: Vec<PathBuf>,
    /// The result table: a name that ends in `.parquet`, `.fits` or `.csv`.
    pub output: PathBuf,
    /// Layout of the result; popfit's table unless set.
    pub format: Format,
    /// Go on with a run that was killed or interrupted: what it has fitted is not fitted again.
    pub resume: bool,
    /// Replace the output, and what is written beside it, if these files exist.
    pub overwrite: bool,
    /// Folder in which a page with counts, figures, some spectra and a table is written (`index.html`).
    pub report: Option<PathBuf>,
    /// Make the first bad spectrum an error.
    pub strict: bool,
    /// Spectra and arms that are fitted. Its [`widen`](Selection::widen) is replaced by that of the model.
    pub selection: Selection,
    /// Further files that no output may replace, such as a list of targets that was read.
    pub other_inputs: Vec<PathBuf>,
    /// Device that fits; the selector `auto` unless set.
    pub device: FitDevice,
    /// Time without an answer after which a GPU counts as lost.
    pub gpu_timeout: Option<Duration>,
    /// Let the CPU take over what a GPU fails to fit twice.
    pub cpu_fallback: Option<bool>,
    /// Bytes that all populations on a device may take.
    pub max_memory: Option<u64>,
    /// Number of spectra that are read, fitted and kept for `resume` at once.
    pub batch_size: Option<usize>,
    /// Solver, in place of the model file's.
    pub solver: Option<Solver>,
    /// Maximum number of rounds of a fit.
    pub max_rounds: Option<u32>,
    /// Precision of the rows of the model.
    pub precision: Precision,
    /// Scan of the velocity for its posterior; unless set, that of the model file, else `Fixed` for the format rvtab
    /// and `Off` otherwise.
    pub velocity_scan: Option<VelocityScan>,
    /// Columns with errors that do not take parameters at a bound for known.
    pub released_errors: Option<bool>,
    /// Number of starts of each spectrum.
    pub starts: Option<usize>,
    /// Seed of the first guess.
    pub seed: Option<u64>,
    /// Names by which messages call these settings.
    pub option_names: OptionNames,
    /// Receives what there is to tell while the run lasts, on the thread that calls [`fit_files`](crate::fit_files).
    pub on_event: Option<Box<dyn FnMut(Event) + Send>>,
}

impl FitFiles {
    /// Returns the settings of a run of this model over these files of spectra, with the default of each field.
    pub fn new(model: impl Into<FitModel>, spectra: Vec<PathBuf>, output: impl Into<PathBuf>) -> FitFiles {
        FitFiles {
            model: model.into(),
            spectra,
            output: output.into(),
            format: Format::Table,
            resume: false,
            overwrite: false,
            report: None,
            strict: false,
            selection: Selection::default(),
            other_inputs: Vec::new(),
            device: FitDevice::Selector("auto".into()),
            gpu_timeout: None,
            cpu_fallback: None,
            max_memory: None,
            batch_size: None,
            solver: None,
            max_rounds: None,
            precision: Precision::F32,
            velocity_scan: None,
            released_errors: None,
            starts: None,
            seed: None,
            option_names: OptionNames::Fields,
            on_event: None,
        }
    }

    /// Passes an event on to the caller, who may not be interested.
    pub(super) fn tell(&mut self, event: Event) {
        if let Some(hear) = &mut self.on_event {
            hear(event);
        }
    }
}

impl fmt::Debug for FitFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FitFiles { model, spectra, output, format, .. } = self;
        let debug = &mut f.debug_struct("FitFiles");
        debug.field("model", model).field("spectra", spectra).field("output", output).field("format", format);
        debug.finish_non_exhaustive()
    }
}

/// The model of a run over files.
#[derive(Clone, Debug)]
pub enum FitModel {
    /// A model file, which the run opens.
    Path(PathBuf),
    /// A model in memory.
    Built(Box<BuiltModel>),
}

impl<P: Into<PathBuf>> From<P> for FitModel {
    fn from(path: P) -> FitModel {
        FitModel::Path(path.into())
    }
}

impl From<BuiltModel> for FitModel {
    fn from(model: BuiltModel) -> FitModel {
        FitModel::Built(Box::new(model))
    }
}

/// A model in memory, and what a run over files wants to know of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BuiltModel {
    /// The model.
    pub model: SpectralModel,
    /// Text that the result table keeps as its model file.
    pub text: String,
    /// The model file that the model was built from. Its solver, starts and velocity scan hold for the run, and no
    /// output may replace its files.
    pub file: Option<ModelFile>,
}

impl BuiltModel {
    /// Joins a model with the text that the result table keeps of it.
    pub fn new(model: SpectralModel, text: impl Into<String>) -> BuiltModel {
        BuiltModel { model, text: text.into(), file: None }
    }
}

/// The device of a run over files.
#[derive(Clone, Debug)]
pub enum FitDevice {
    /// Text that a [`Device`] is parsed from, such as `auto` or `gpu:0`. The run opens it once all files are checked.
    Selector(String),
    /// An open device.
    Open(Device),
}

impl From<&str> for FitDevice {
    fn from(selector: &str) -> FitDevice {
        FitDevice::Selector(selector.into())
    }
}

impl From<String> for FitDevice {
    fn from(selector: String) -> FitDevice {
        FitDevice::Selector(selector)
    }
}

impl From<Device> for FitDevice {
    fn from(device: Device) -> FitDevice {
        FitDevice::Open(device)
    }
}

/// Names by which messages call settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionNames {
    /// Names of fields: `resume`.
    Fields,
    /// Options of the command: `--resume`.
    Flags,
}

impl OptionNames {
    /// Returns a field's name as messages have it.
    pub(crate) fn of(self, field: &str) -> String {
        match self {
            OptionNames::Fields => format!("`{field}`"),
            OptionNames::Flags => format!("--{}", field.replace('_', "-")),
        }
    }
}

/// What a run over files tells while it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A remark about model, data or settings.
    Note(String),
    /// Something is not as it should be, and the run goes on.
    Warning(String),
    /// Everything is checked, the output is begun, and the fits begin.
    Begin {
        /// Number of spectra.
        spectra: u64,
    },
    /// The run fails after it has fitted something, and an error follows: what is left, and how to go on.
    Remains(String),
}
