//! Fits of spectra, which join spectra, model, solver and device.

mod blank_table;
mod check;
mod clusters;
mod correlated;
mod coverage;
mod evaluate;
mod exposures;
mod input;
mod inspect;
mod misfit;
mod model_rows;
mod picture;
mod predict;
mod results;
mod run;
mod search;
mod stream;
mod task;
mod values;

use std::sync::Arc;

use crate::control::Control;
use crate::device::Device;
use crate::error::{Error, InvalidSetting, Result};
use crate::first_guess::{self, FirstGuess};
use crate::model::{ArmLayout, SpectralModel, VelocityScan};
use crate::recording::Precision;
use crate::solver::{LevenbergMarquardt, MOST_STARTS, Solver};
use crate::spectra::{Spectra, SpectraReader};
use correlated::CorrelatedFit;
pub use coverage::{ArmCoverage, check_spectra, list_notes, list_pixel_notes, measure_coverage};
pub use evaluate::{Guess, GuessedStart, Objectives};
use input::ready::Grids;
use misfit::Misfit;
pub use picture::ArmFit;
pub use predict::ArmPrediction;
#[cfg(feature = "files")]
pub(crate) use results::columns::{LAYOUT, Store};
pub use results::exposures::ExposureVelocities;
pub use results::flag_counts::FlagCounts;
pub use results::moments::VelocityPosterior;
#[cfg(feature = "files")]
pub(crate) use results::quantity;
pub use results::row::{FitRow, Id};
use results::row_builder::RowBuilder;
#[cfg(feature = "files")]
pub(crate) use results::schema::ResultColumn;
pub use results::schema::Schema;
pub use results::table::{FitTable, Sink};
#[cfg(feature = "files")]
pub(crate) use results::values::ColumnKind;
pub use results::values::{FitColumn, FitValues};
use run::SpectralRun;
use search::shared::SharedResources;
use stream::in_memory;
pub use stream::journal::Journal;
pub use stream::profile::{DeviceProfile, DeviceStage, HostStage, Profile, Rounds};
pub use stream::summary::{DeviceRows, Summary};

/// Approximate number of starts per spectrum if the user sets none. Populations are planned for this number.
const USUAL_STARTS: usize = 2;

/// Fits spectra with a model on a device. A fitter and its clones keep the populations that a fit of spectra in memory
/// has made on the device for the next fit, until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct SpectralFitter {
    pub(crate) model: SpectralModel,
    device: Device,
    solver: Solver,
    /// Number of starts per spectrum; `None` for as many as compete with the best one.
    starts: Option<usize>,
    seed: u64,
    max_memory: Option<u64>,
    strict: bool,
    precision: Precision,
    pub(crate) velocity_scan: VelocityScan,
    released_errors: bool,
    /// Number of spectra per batch; `None` for the device's default.
    pub(crate) batch_size: Option<usize>,
    cpu_fallback: Option<bool>,
    pub(crate) control: Control,
    shared: Arc<SharedResources>,
}

impl SpectralFitter {
    /// Maximum number of starts per spectrum.
    #[doc(hidden)]
    pub const MOST_STARTS: usize = MOST_STARTS;

    /// Returns a fitter with the default settings of [`LevenbergMarquardt`]. No setter fails. Instead, each fit begins
    /// with a check of all settings, and [`Error::InvalidSettings`] lists those that are out of range.
    pub fn new(model: SpectralModel, device: Device) -> SpectralFitter {
        SpectralFitter {
            model,
            device,
            solver: LevenbergMarquardt::default().into(),
            starts: None,
            seed: 3,
            max_memory: None,
            strict: false,
            precision: Precision::F32,
            velocity_scan: VelocityScan::Off,
            released_errors: false,
            batch_size: None,
            cpu_fallback: None,
            control: Control::default(),
            shared: Arc::default(),
        }
    }

    /// Replaces the solver and its settings.
    #[must_use]
    pub fn solver(mut self, solver: impl Into<Solver>) -> SpectralFitter {
        self.solver = solver.into().for_spectra();
        self
    }

    /// Sets the number of starts per spectrum, 1 to 64. The first guess may find fewer distinct ones. Unless set, a
    /// spectrum has as many starts as compete in its first guess: 1 to 4, up to 8 if its lines constrain it little, and
    /// up to 32 if masks or weights leave little of it. Up to 16 more follow if χ²/dof is above 20 (5 if most pixels
    /// are masked), and one more may follow beyond a fold of the minimum (not with Nelder–Mead alone).
    #[must_use]
    pub fn starts(mut self, starts: usize) -> SpectralFitter {
        self.starts = Some(starts);
        self
    }

    /// Sets the seed of the Sobol points of the first guess.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> SpectralFitter {
        self.seed = seed;
        self.shared = Arc::default();
        self
    }

    /// Sets the maximum number of bytes of all populations on a device; unless set, the memory of the device. Its
    /// workers, which fit batches side by side, divide them: 2 or, on a discrete GPU, half of the processor's threads,
    /// from 2 to 8; fewer with little memory.
    #[must_use]
    pub fn max_memory(mut self, bytes: u64) -> SpectralFitter {
        self.max_memory = Some(bytes);
        self
    }

    /// Sets the number of spectra, at least 1, that a worker fits together, and that a stream reads and keeps in its
    /// journal; unless set, 256 on the CPU and 2048 on GPUs. Smaller files are fitted together, half a batch or more at
    /// once. A file whose spectra [share labels](crate::SpectralModelBuilder::shared) is read whole. No bit of a row
    /// depends on it.
    #[must_use]
    pub fn batch_size(mut self, spectra: usize) -> SpectralFitter {
        self.batch_size = Some(spectra);
        self
    }

    /// Returns the number of spectra per batch on a device. A GPU needs many of them; on the CPU more take memory
    /// and gain little. The number must not depend on the threads: a run may be resumed with others.
    fn batch_on(&self, device: &dyn crate::solver::Backend) -> usize {
        self.batch_size
            .unwrap_or(if device.runs_wgsl() { 2048 } else { 256 })
    }

    /// Returns whether all spectra of a file are fitted as one batch, because they may share labels.
    fn needs_whole_files(&self) -> bool {
        self.model.shared.is_some()
    }

    /// Sets whether the first spectrum that cannot be fitted is an error, instead of a row with the reason.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> SpectralFitter {
        self.strict = strict;
        self
    }

    /// Sets whether the CPU replaces a GPU that has failed twice on one batch, for the rest of the run
    /// ([`Summary::by_rows`] lists the devices). Otherwise the run fails. Unless set, the CPU replaces a GPU that
    /// popfit chose (`auto`, `all`), but not one that the user chose.
    #[must_use]
    pub fn cpu_fallback(mut self, cpu_fallback: bool) -> SpectralFitter {
        self.cpu_fallback = Some(cpu_fallback);
        self
    }

    /// Returns whether the CPU may replace a failed GPU.
    fn may_use_cpu(&self) -> bool {
        self.cpu_fallback.unwrap_or(self.device.is_chosen())
    }

    /// Sets the scan of the velocity around the best one, which gives the error, skewness and kurtosis of its
    /// posterior. Unless set, there is no scan.
    #[must_use]
    pub fn velocity_scan(mut self, scan: VelocityScan) -> SpectralFitter {
        self.velocity_scan = scan;
        self
    }

    /// Returns whether rows have a velocity posterior.
    pub(crate) fn scans_velocity(&self) -> bool {
        self.velocity_scan != VelocityScan::Off
    }

    /// Adds standard errors with all bounds released ([`FitRow::released_errors`]) to the rows; off unless set. They
    /// show how well the data alone determine each parameter if some parameters ended at their bounds.
    #[must_use]
    pub fn released_errors(mut self, released_errors: bool) -> SpectralFitter {
        self.released_errors = released_errors;
        self
    }

    /// Sets the precision of the rows of the model: f32 or f64 on the CPU; GPUs compute in f32. With
    /// [`Precision::Mixed`] output layers multiply f16 numbers, for GPUs with matrix units.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> SpectralFitter {
        self.precision = precision;
        self
    }

    /// Returns the names of the free parameters in the order of the table's columns.
    pub fn parameters(&self) -> Vec<String> {
        self.model.parameters()
    }

    /// Returns the names of the model's arms as the table's columns use them; that of a single arm is empty.
    #[doc(hidden)]
    pub fn arms(&self) -> Vec<String> {
        match self.model.arms.as_slice() {
            [_] => vec![String::new()],
            arms => arms.iter().map(|arm| arm.name.clone()).collect(),
        }
    }

    /// Returns the model that is fitted.
    pub fn model(&self) -> &SpectralModel {
        &self.model
    }

    /// Returns the name of the device.
    pub fn device_name(&self) -> String {
        self.device.name()
    }

    /// Returns the name of the device as it is in the result table ([`Device::maker`]).
    #[doc(hidden)]
    pub fn maker(&self) -> String {
        self.device.maker()
    }

    /// Returns the settings on which the rows depend beside model and device, one `key = value` per line, as they are
    /// written into the table's metadata.
    pub(crate) fn settings_text(&self) -> String {
        let SpectralFitter {
            solver,
            seed,
            strict,
            precision,
            released_errors,
            ..
        } = self;
        [
            solver.to_string(),
            format!(
                "starts = {}",
                self.starts
                    .map_or("auto".into(), |starts| starts.to_string())
            ),
            format!("seed = {seed}"),
            format!("strict = {strict}"),
            format!("precision = {precision}"),
            format!("released_errors = {released_errors}"),
        ]
        .join("\n")
    }

    /// Returns name and unit of each of the emulators' labels, sorted and without duplicates.
    #[doc(hidden)]
    pub fn units(&self) -> Vec<(String, String)> {
        let labels = self.model.arms.iter().flat_map(|arm| arm.emulator.labels());
        let mut units: Vec<_> = labels
            .map(|label| (label.name.clone(), label.unit.clone()))
            .collect();
        units.sort();
        units.dedup();
        units
    }

    /// Sets progress, cancel, timeout and threads of every fit. After a stop there is still a row for each spectrum,
    /// with [`Status::Interrupted`](crate::Status::Interrupted) if its fit was not finished.
    #[must_use]
    pub fn control(mut self, control: Control) -> SpectralFitter {
        self.control = control;
        self
    }

    /// Fits spectra in memory in batches on all devices, and returns a table with a row of each. A spectrum that cannot
    /// be fitted has a row with its status. Called within a rayon pool of the caller's, it fits on that pool and on the
    /// first device alone.
    ///
    /// # Errors
    /// Returns [`Error::InvalidSettings`] and, for settings that exclude each other, [`Error::Usage`];
    /// [`Error::ShapeMismatch`], [`Error::BadWavelength`] and [`Error::NoOverlap`] if the spectra do not suit the
    /// model; [`Error::Model`] if the model has no point to start from; [`Error::BadSpectrum`] if the fitter is
    /// [strict](SpectralFitter::strict); [`Error::OutOfMemory`]; and the device's errors.
    pub fn fit(&self, spectra: &Spectra) -> Result<FitTable> {
        self.tabulate(&in_memory::fit_in_memory(self, spectra, None)?)
    }

    /// Fits spectra from the user's own starts (spectra, parameters), in physical units and in the order of
    /// [`parameters`](SpectralFitter::parameters).
    ///
    /// # Errors
    /// Returns the errors of [`fit`](SpectralFitter::fit), and [`Error::ShapeMismatch`] for another number of starts.
    pub fn fit_from(&self, spectra: &Spectra, starts: &[f64]) -> Result<FitTable> {
        let expected = spectra.len() * self.model.parameters.len();
        if starts.len() != expected {
            let message = format!(
                "{} values, expected {} spectra × {} parameters",
                starts.len(),
                spectra.len(),
                self.model.parameters.len()
            );
            return Err(Error::mismatch("starts", message).naming("starts"));
        }
        self.tabulate(&in_memory::fit_in_memory(self, spectra, Some(starts))?)
    }

    /// Returns a table of these rows, with the fitter's parameters, units and arms.
    fn tabulate(&self, rows: &[FitRow]) -> Result<FitTable> {
        let mut table = self.table();
        table.append(rows)?;
        Ok(table)
    }

    /// Reads batches from `source`, fits them and appends their rows to `sink`. Several threads per device fit
    /// batches; they share one pool of threads.
    ///
    /// # Errors
    /// Returns the errors of [`fit`](SpectralFitter::fit), of `source` and of `sink`.
    pub fn fit_stream(
        &self,
        source: &mut dyn SpectraReader,
        sink: &mut dyn Sink,
    ) -> Result<Summary> {
        stream::workers::run_stream(self, source, sink, None)
    }

    /// Fits batches like [`fit_stream`](SpectralFitter::fit_stream), and keeps their rows in a journal as soon as they
    /// are fitted. Batches that the journal knows are not fitted again. The rows are those of an uninterrupted run.
    ///
    /// # Errors
    /// Returns the errors of [`fit_stream`](SpectralFitter::fit_stream), [`Error::Journal`] if spectra have changed
    /// since the journal recorded their rows, and [`Error::Io`] if the journal cannot be read or written.
    #[doc(hidden)]
    pub fn fit_journaled(
        &self,
        source: &mut dyn SpectraReader,
        sink: &mut dyn Sink,
        journal: &mut Journal,
    ) -> Result<Summary> {
        stream::workers::run_stream(self, source, sink, Some(journal))
    }

    /// Returns the library of first-guess points, which the first call makes.
    fn first_guess(&self) -> Result<&FirstGuess> {
        self.shared.first_guess(&self.model, self.seed)
    }

    /// Returns the maximum number of starts per spectrum.
    fn most_starts(&self) -> usize {
        self.starts.unwrap_or(first_guess::MAX_GUESSED_STARTS)
    }

    /// Returns the number of starts per spectrum that was set, or else 2, by which memory is planned.
    fn usual_starts(&self) -> usize {
        self.starts.unwrap_or(USUAL_STARTS)
    }

    /// Returns whether spectra may have more starts than those of the first guess: not if the user sets their number,
    /// nor with Nelder–Mead.
    fn adds_starts(&self) -> bool {
        self.starts.is_none() && !matches!(self.solver, Solver::NelderMead(_))
    }

    /// Returns the conversion of outcomes into rows: the model and the settings that do not depend on the spectrum.
    fn row_builder(&self) -> RowBuilder<'_> {
        let misfit = Misfit::new(self.model.loss());
        RowBuilder {
            model: &self.model,
            precision: self.precision,
            misfit,
            released_errors: self.released_errors,
        }
    }

    /// Returns the fit of spectra of one layout with the covariance of their noise.
    fn correlated_fit<'a>(
        &'a self,
        layout: &'a [ArmLayout],
        grids: &'a [Grids],
    ) -> CorrelatedFit<'a> {
        let settings = match self.solver {
            Solver::LevenbergMarquardt(settings)
            | Solver::LevenbergMarquardtThenNelderMead(settings, _) => settings,
            Solver::NelderMead(_) => LevenbergMarquardt::default(),
        };
        CorrelatedFit {
            model: &self.model,
            shared: &self.shared,
            layout,
            grids,
            settings,
        }
    }

    /// Returns an error if the solver's settings, the number of starts or the batch size are invalid.
    ///
    /// # Errors
    /// Returns [`Error::InvalidSettings`], which lists every fault.
    pub fn validate(&self) -> Result<()> {
        let mut faults = self.solver.faults();
        faults.extend(self.control.threads.and_then(crate::threads::thread_fault));
        if let Some(starts) = self
            .starts
            .filter(|starts| !(1..=MOST_STARTS).contains(starts))
        {
            faults.push(InvalidSetting::new(
                "starts",
                format!("it is {starts}; choose 1 to {MOST_STARTS}"),
            ));
        }
        if self.batch_size == Some(0) {
            faults.push(InvalidSetting::new(
                "batch_size",
                "it is 0; choose at least 1",
            ));
        }
        InvalidSetting::none_of(faults)
    }

    /// Returns the fitter of objects with `count` exposures, for which each exposure has arms of its own. It shares
    /// resources with others of the same number.
    fn for_exposures(&self, count: usize) -> SpectralFitter {
        SpectralFitter {
            model: self.model.for_exposures(count),
            shared: self.shared.for_exposures(count),
            ..self.clone()
        }
    }

    /// Returns this fitter with one velocity for all exposures of an object. It shares the library of the first guess.
    fn with_common_velocity(&self) -> SpectralFitter {
        SpectralFitter {
            model: self.model.clone().with_common_velocity(),
            shared: Arc::new(self.shared.with_library_alone()),
            ..self.clone()
        }
    }

    /// Makes a run of this fitter on its first device.
    fn make_run(&self) -> Result<SpectralRun<'_>> {
        let device = &self.device.inner;
        SpectralRun::new(
            self,
            device.clone(),
            self.shared.idle.borrow(device),
            self.max_memory,
        )
    }
}
