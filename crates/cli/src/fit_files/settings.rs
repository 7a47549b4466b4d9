//! The settings of a run over files.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use popfit::spectra::Selection;
use popfit::{
    Device, Error, ModelFile, Precision, Result, Solver, SpectralFitter, SpectralModel,
    VelocityScan,
};

use crate::output::Format;

/// Inputs, outputs and settings of a run over files, which [`fit_files`](crate::fit_files) makes. Progress, cancel,
/// timeout, threads and profile are those of the [`Control`](popfit::Control).
#[non_exhaustive]
pub struct FitFiles {
    /// The model that is fitted.
    pub model: FitModel,
    /// Files of spectra, fitted one after another into one table, or into a table for each.
    pub spectra: Vec<PathBuf>,
    /// The result table: a name that ends in `.parquet`, `.fits` or `.csv`; or, with `per_file`, a folder.
    pub output: PathBuf,
    /// Layout of the result; popfit's table unless set.
    pub format: Format,
    /// Write a table for each file of spectra. The folder `output` is made if it is missing. It gets the folders of the
    /// inputs below the deepest one that they have in common, and in these `rvtab_NAME.fits` and `rvmod_NAME.fits`, or
    /// `NAME.parquet`, for an input NAME. Each table has the bytes of a run over its input alone. A file that cannot be
    /// read or fitted does not stop the others ([`FitFilesSummary::per_file`](crate::FitFilesSummary::per_file)).
    pub per_file: bool,
    /// With `per_file`: do not fit files whose outputs are all there, which goes on with a run that has ended early.
    pub skip_existing: bool,
    /// With `per_file`: the folder below which the paths of inputs are repeated in `output`, instead of the deepest one
    /// that they have in common. Runs over different files need it to name outputs alike.
    pub input_root: Option<PathBuf>,
    /// Go on with a run that was killed or interrupted: what it has fitted is not fitted again.
    pub resume: bool,
    /// Replace the output, and what is written beside it, if these files exist.
    pub overwrite: bool,
    /// File of the best-fit spectra, whose name ends in `.fits`, or, with `per_file`, folder of `models_NAME.fits`; the
    /// layout rvtab has its own.
    pub models: Option<PathBuf>,
    /// Folder in which a page with counts, figures, some spectra and a table is written (`index.html`).
    pub report: Option<PathBuf>,
    /// Spectra and arms that are fitted. Its [`widen`](Selection::widen) and
    /// [`join_exposures`](Selection::join_exposures) are replaced by those of the model.
    pub selection: Selection,
    /// Further files that no output may replace, such as a list of output_files that was read.
    pub other_inputs: Vec<PathBuf>,
    /// Settings of the fits.
    pub settings: FitSettings,
    /// Names by which messages call these settings.
    pub option_names: OptionNames,
    /// Receives the events of the run, on the thread that calls [`fit_files`](crate::fit_files).
    pub on_event: Option<Box<dyn FnMut(Event) + Send>>,
}

impl FitFiles {
    /// Returns the settings of a run of this model over these files of spectra, with the default of each field.
    pub fn new(
        model: impl Into<FitModel>,
        spectra: Vec<PathBuf>,
        output: impl Into<PathBuf>,
    ) -> FitFiles {
        FitFiles {
            model: model.into(),
            spectra,
            output: output.into(),
            format: Format::Table,
            per_file: false,
            skip_existing: false,
            input_root: None,
            resume: false,
            overwrite: false,
            models: None,
            report: None,
            selection: Selection::default(),
            other_inputs: Vec::new(),
            settings: FitSettings::default(),
            option_names: OptionNames::Fields,
            on_event: None,
        }
    }

    /// Returns the settings of the fits with what the layout of the result asks for.
    ///
    /// # Errors
    /// Returns [`Error::Usage`] if the layout has no place for what is asked for.
    pub(super) fn settings_of_layout(
        &self,
        file: Option<&ModelFile>,
        model: &SpectralModel,
    ) -> Result<FitSettings> {
        let mut settings = self.settings.clone();
        if self.format == Format::Rvtab {
            if self.models.is_some() {
                let [models, format] =
                    ["models", "format"].map(|field| self.option_names.of(field));
                let message = format!(
                    "{models} is for popfit's own table: {format} rvtab writes a file of models anyway"
                );
                return Err(Error::Usage(message));
            }
            if settings.released_errors == Some(true) {
                let [errors, format] =
                    ["released_errors", "format"].map(|field| self.option_names.of(field));
                let message =
                    format!("{errors} adds columns to popfit's own table: {format} rvtab has none");
                return Err(Error::Usage(message));
            }
            // rvspecfit's table has moments of the velocity's posterior, which need a scan.
            let has_free_velocity = model.parameters().iter().any(|name| name == "velocity");
            let of_file = file.and_then(|file| file.velocity_scan);
            let usual = has_free_velocity.then_some(VelocityScan::Fixed);
            settings.velocity_scan = settings.velocity_scan.or(of_file).or(usual);
        }
        Ok(settings)
    }

    /// Passes an event on to the caller, who may not be interested.
    pub(crate) fn report(&mut self, event: Event) {
        if let Some(receive) = &mut self.on_event {
            receive(event);
        }
    }
}

impl fmt::Debug for FitFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FitFiles {
            model,
            spectra,
            output,
            format,
            ..
        } = self;
        let debug = &mut f.debug_struct("FitFiles");
        debug
            .field("model", model)
            .field("spectra", spectra)
            .field("output", output)
            .field("format", format);
        debug.finish_non_exhaustive()
    }
}

/// Settings of fits. A setting that is open (`None`) is that of the model file, and otherwise popfit's default.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FitSettings {
    /// Device that fits; the selector `auto` unless set.
    pub device: FitDevice,
    /// Time without an answer after which a GPU counts as lost. It stays with the GPU, which is kept open, for later
    /// runs of the process that set none.
    pub gpu_timeout: Option<Duration>,
    /// Let the CPU take over what a GPU fails to fit twice.
    pub cpu_fallback: Option<bool>,
    /// Bytes that all populations on a device may take.
    pub max_memory: Option<u64>,
    /// Number of spectra that are read, fitted and kept for `resume` at once.
    pub batch_size: Option<usize>,
    /// Solver.
    pub solver: Option<Solver>,
    /// Maximum number of rounds of a fit.
    pub max_rounds: Option<u32>,
    /// Precision of the rows of the model.
    pub precision: Precision,
    /// Scan of the velocity for its posterior; `Fixed` for the layout rvtab unless something else is set.
    pub velocity_scan: Option<VelocityScan>,
    /// Columns with errors that do not take parameters at a bound for known.
    pub released_errors: Option<bool>,
    /// Fit the spectra of a file that have the same id together, as exposures of one object, or each by itself.
    pub join_exposures: Option<bool>,
    /// Number of starts of each spectrum.
    pub starts: Option<usize>,
    /// Seed of the first guess.
    pub seed: Option<u64>,
    /// Make the first bad spectrum an error.
    pub strict: bool,
}

impl Default for FitSettings {
    fn default() -> FitSettings {
        FitSettings {
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
            join_exposures: None,
            starts: None,
            seed: None,
            strict: false,
        }
    }
}

impl FitSettings {
    /// Makes a fitter of the model with these settings, which override those of its file, and opens the device.
    /// Exposures are as the model has them.
    ///
    /// # Errors
    /// Returns the errors of [`Device`]'s parser.
    pub fn fitter(&self, model: SpectralModel, file: Option<&ModelFile>) -> Result<SpectralFitter> {
        let mut solver = self
            .solver
            .or(file.and_then(|file| file.solver))
            .unwrap_or_default();
        if let Some(rounds) = self.max_rounds {
            solver = solver.with_max_rounds(rounds);
        }
        let mut device = match &self.device {
            FitDevice::Selector(selector) => selector.parse::<Device>()?,
            FitDevice::Open(device) => device.clone(),
        };
        if let Some(timeout) = self.gpu_timeout {
            device = device.timeout(timeout);
        }
        let mut fitter = SpectralFitter::new(model, device)
            .solver(solver)
            .velocity_scan(
                self.velocity_scan
                    .or(file.and_then(|file| file.velocity_scan))
                    .unwrap_or_default(),
            )
            .released_errors(
                self.released_errors
                    .or(file.and_then(|file| file.released_errors))
                    .unwrap_or(false),
            )
            .strict(self.strict)
            .precision(self.precision);
        if let Some(bytes) = self.max_memory {
            fitter = fitter.max_memory(bytes);
        }
        if let Some(allowed) = self.cpu_fallback {
            fitter = fitter.cpu_fallback(allowed);
        }
        if let Some(starts) = self.starts.or(file.and_then(|file| file.starts)) {
            fitter = fitter.starts(starts);
        }
        if let Some(batch) = self.batch_size {
            fitter = fitter.batch_size(batch);
        }
        if let Some(seed) = self.seed {
            fitter = fitter.seed(seed);
        }
        Ok(fitter)
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
    /// The model file that the model was built from. Its solver, starts, velocity scan and released errors hold for
    /// the run, and no output may replace its files.
    pub file: Option<ModelFile>,
}

impl BuiltModel {
    /// Joins a model with the text that the result table keeps of it.
    pub fn new(model: SpectralModel, text: impl Into<String>) -> BuiltModel {
        BuiltModel {
            model,
            text: text.into(),
            file: None,
        }
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

/// Event of a run over files.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A remark about model, data or settings.
    Note(String),
    /// A remark on which the user should act: an arm without data, pixels that the model does not describe.
    Advice(String),
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
