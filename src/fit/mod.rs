//! Fits: the one place that joins spectra, model, solver and device.

mod assemble;
mod blank;
mod canary;
mod check;
mod control;
mod covariance;
mod coverage;
mod curve;
mod device;
mod finish;
mod flag;
mod fold;
mod given;
mod inspect;
mod journal;
mod layout;
mod limits;
mod negative_flux;
mod pass;
mod picture;
mod posterior;
mod probability;
mod profile;
pub(crate) mod quantity;
mod ready;
mod redo;
mod rest;
mod rough;
mod row;
mod run;
mod shared;
mod simplices;
mod solve;
mod sound;
mod stages;
mod table;
pub(crate) mod task;
mod values;
mod waiting;
mod workers;

use std::sync::Arc;

use crate::error::{Error, InvalidSetting, Result};
use crate::model::{self, FirstGuess, SpectralModel, VelocityScan};
use crate::recording::Precision;
use crate::solver::{LevenbergMarquardt, MOST_STARTS, Solver};
use crate::spectra::{Spectra, SpectraReader};
pub use check::JacobianCheck;
pub use control::{Control, Progress, Summary};
pub use coverage::ArmCoverage;
pub use curve::{CurveColumns, CurveFit, CurveFitter, Curves, Interval};
pub use device::{Device, DeviceDescription};
use finish::Finish;
pub use flag::{FlagDescription, Flags};
pub use journal::Journal;
pub use picture::ArmFit;
pub use posterior::VelocityPosterior;
pub use profile::{DeviceProfile, DeviceStage, HostStage, Profile, Rounds};
pub use row::{FitRow, Id};
use run::Run;
use shared::Shared;
pub use table::{FitTable, Sink};

/// Starts of a spectrum of which the number is not set, about: populations are made for so many.
const USUAL_STARTS: usize = 2;

/// Fits spectra with a model, on a device.
#[derive(Clone, Debug)]
pub struct SpectralFitter {
    pub(crate) model: SpectralModel,
    device: Device,
    solver: Solver,
    /// `None`: as many as compete with the best.
    starts: Option<usize>,
    seed: u64,
    max_memory: Option<u64>,
    strict: bool,
    precision: Precision,
    pub(crate) velocity_scan: VelocityScan,
    released_errors: bool,
    /// `None`: as the device wants it.
    pub(crate) batch_size: Option<usize>,
    cpu_fallback: Option<bool>,
    shared: Arc<Shared>,
}

impl SpectralFitter {
    /// Most starts a spectrum can have.
    pub const MOST_STARTS: usize = MOST_STARTS;

    /// Returns a fitter with the default settings of [`LevenbergMarquardt`]. No setter fails: a fit begins with a check
    /// of all settings, and [`Error::InvalidSettings`] lists each that is out of its range.
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
            shared: Arc::default(),
        }
    }

    /// Replaces the solver and its settings.
    #[must_use]
    pub fn solver(mut self, solver: impl Into<Solver>) -> SpectralFitter {
        self.solver = solver.into();
        self
    }

    /// Sets the number of starts per spectrum, 1 to 64. The first guess may find fewer distinct ones. Unless set, a
    /// spectrum has as many starts as its first guess finds competing: 1 to 4, or 8 where masks or weights leave little
    /// of it. One more start may then follow past a fold of the minimum (not with Nelder–Mead alone).
    #[must_use]
    pub fn starts(mut self, starts: usize) -> SpectralFitter {
        self.starts = Some(starts);
        self
    }

    /// Seed of the first guess's Sobol points.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> SpectralFitter {
        self.seed = seed;
        self.shared = Arc::default();
        self
    }

    /// Bytes that the population on the device may take; unless set, what the device has.
    #[must_use]
    pub fn max_memory(mut self, bytes: u64) -> SpectralFitter {
        self.max_memory = Some(bytes);
        self
    }

    /// Spectra, at least 1, that a stream reads, fits and keeps in its journal at once; unless set 256 on the CPU, 2048
    /// on GPUs. Files of fewer are fitted together, half a batch or more at once. No bit of a row depends on it.
    #[must_use]
    pub fn batch_size(mut self, spectra: usize) -> SpectralFitter {
        self.batch_size = Some(spectra);
        self
    }

    /// A GPU wants many spectra at once; on the CPU smaller batches overlap better with reading.
    fn batch_on(&self, device: &dyn crate::solver::Device) -> usize {
        self.batch_size.unwrap_or(if device.runs_wgsl() { 2048 } else { 256 })
    }

    /// Makes the first bad spectrum an error instead of a row.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> SpectralFitter {
        self.strict = strict;
        self
    }

    /// Sends a batch that a GPU has failed to fit twice to the CPU, where the run then stays ([`Summary::by_rows`]
    /// tells). Unless set it does where popfit chose the GPU (`auto`, `all`), and the failure is the run's where the
    /// user did.
    #[must_use]
    pub fn cpu_fallback(mut self, cpu_fallback: bool) -> SpectralFitter {
        self.cpu_fallback = Some(cpu_fallback);
        self
    }

    fn may_use_cpu(&self) -> bool {
        self.cpu_fallback.unwrap_or(self.device.is_chosen)
    }

    /// Scans the velocity around the best one, for its posterior's error, skewness and kurtosis; off unless set.
    #[must_use]
    pub fn velocity_scan(mut self, scan: VelocityScan) -> SpectralFitter {
        self.velocity_scan = scan;
        self
    }

    /// Returns whether rows have a velocity posterior.
    pub fn scans_velocity(&self) -> bool {
        self.velocity_scan != VelocityScan::Off
    }

    /// Adds standard errors with all bounds released ([`FitRow::released_errors`]) to the rows; off unless set. They
    /// answer how well the data determine each parameter if the bounds, and not the star, hold some of them where they
    /// ended.
    #[must_use]
    pub fn released_errors(mut self, released_errors: bool) -> SpectralFitter {
        self.released_errors = released_errors;
        self
    }

    /// Returns whether rows have standard errors with all bounds released.
    pub fn has_released_errors(&self) -> bool {
        self.released_errors
    }

    /// Precision of the rows: on the CPU f32 or f64; GPUs compute in f32. [`Precision::Mixed`] makes first rounds
    /// cheaper on GPUs.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> SpectralFitter {
        self.precision = precision;
        self
    }

    /// Names of the free parameters, in the order of the table's columns.
    pub fn parameters(&self) -> Vec<String> {
        self.model.parameters()
    }

    /// Names of the model's arms, as columns of the table call them: one that stands alone has none.
    pub fn arms(&self) -> Vec<String> {
        match self.model.arms.as_slice() {
            [_] => vec![String::new()],
            arms => arms.iter().map(|arm| arm.name.clone()).collect(),
        }
    }

    /// Returns the model.
    pub fn model(&self) -> &SpectralModel {
        &self.model
    }

    /// Returns the device's name, as the result table has it.
    pub fn device_name(&self) -> String {
        self.device.name()
    }

    /// Returns the settings on which the rows depend beside model and device, `key = value` line by line, as they are
    /// written into the table's metadata.
    pub fn settings_text(&self) -> String {
        let SpectralFitter { solver, seed, strict, precision, released_errors, .. } = self;
        [
            solver.to_string(),
            format!("starts = {}", self.starts.map_or("auto".into(), |starts| starts.to_string())),
            format!("seed = {seed}"),
            format!("strict = {strict}"),
            format!("precision = {precision}"),
            format!("released_errors = {released_errors}"),
        ]
        .join("\n")
    }

    /// A table without rows, ready to be the sink of [`fit_stream`](SpectralFitter::fit_stream).
    pub fn table(&self) -> FitTable {
        FitTable::new(self.parameters()).with_units(self.units()).with_arms(self.arms())
    }

    /// Returns name and unit of each of the emulators' labels.
    pub fn units(&self) -> Vec<(String, String)> {
        let labels = self.model.arms.iter().flat_map(|arm| arm.emulator.labels());
        let mut units: Vec<_> = labels.map(|label| (label.name.clone(), label.unit.clone())).collect();
        units.sort();
        units.dedup();
        units
    }

    /// Fits what is in memory, in one batch, on the first device alone; [`fit_with`](SpectralFitter::fit_with) shares
    /// the spectra among all devices. A spectrum that cannot be fitted is a row with its status.
    ///
    /// # Errors
    /// Returns [`Error::InvalidSettings`] and, for settings that exclude each other, [`Error::Usage`];
    /// [`Error::ShapeMismatch`], [`Error::BadWavelength`] and [`Error::NoOverlap`] if the spectra do not suit the
    /// model; [`Error::Model`] if the model has no point to start from; [`Error::BadSpectrum`] if the fitter is
    /// [strict](SpectralFitter::strict); [`Error::OutOfMemory`]; the device's errors.
    pub fn fit(&self, spectra: &Spectra) -> Result<FitTable> {
        self.tabulate(&self.run()?.batch(&[spectra], None)?)
    }

    /// Fits from the user's own starts, one per spectrum: (spectra, parameters), in physical units and in the order of
    /// [`parameters`](SpectralFitter::parameters).
    ///
    /// # Errors
    /// The errors of [`fit`](SpectralFitter::fit); [`Error::ShapeMismatch`] for another number of starts.
    pub fn fit_from(&self, spectra: &Spectra, starts: &[f64]) -> Result<FitTable> {
        let expected = spectra.len() * self.model.parameters.len();
        if starts.len() != expected {
            return Err(Error::ShapeMismatch {
                what: "starts".into(),
                message: format!(
                    "{} values, expected {} spectra × {} parameters",
                    starts.len(),
                    spectra.len(),
                    self.model.parameters.len()
                ),
            });
        }
        self.tabulate(&self.run()?.batch(&[spectra], Some(starts))?)
    }

    fn tabulate(&self, rows: &[FitRow]) -> Result<FitTable> {
        let mut table = self.table();
        table.append(rows)?;
        Ok(table)
    }

    /// [`fit`](SpectralFitter::fit), in batches, watched and stopped by `control`. After a stop there is a row for each
    /// spectrum all the same, and those that were not finished have
    /// [`Status::Interrupted`](crate::Status::Interrupted).
    ///
    /// # Errors
    /// The errors of [`fit`](SpectralFitter::fit).
    pub fn fit_with(&self, spectra: &Spectra, control: &Control) -> Result<FitTable> {
        let mut table = self.table();
        self.fit_stream(&mut spectra.reader(), &mut table, control)?;
        Ok(table)
    }

    /// Reads batches from `source`, fits them and appends their rows to `sink`. Two threads per device fit batches;
    /// they share rayon's global pool.
    ///
    /// # Errors
    /// The errors of [`fit`](SpectralFitter::fit), of `source` and of `sink`.
    pub fn fit_stream(
        &self,
        source: &mut dyn SpectraReader,
        sink: &mut dyn Sink,
        control: &Control,
    ) -> Result<Summary> {
        workers::stream(self, (source, sink), control, None)
    }

    /// [`fit_stream`](SpectralFitter::fit_stream) with a journal: batches that it knows are not fitted again, others
    /// are kept in it as soon as they are fitted. The rows are those of an uninterrupted run.
    ///
    /// # Errors
    /// The errors of [`fit_stream`](SpectralFitter::fit_stream); [`Error::Journal`] if spectra have changed since the
    /// journal recorded their rows; [`Error::Io`] if the journal cannot be read or written.
    pub fn fit_journaled(
        &self,
        source: &mut dyn SpectraReader,
        sink: &mut dyn Sink,
        control: &Control,
        journal: &mut Journal,
    ) -> Result<Summary> {
        workers::stream(self, (source, sink), control, Some(journal))
    }

    fn first_guess(&self) -> Result<&FirstGuess> {
        self.shared.first_guess(&self.model, self.seed)
    }

    /// Starts of one spectrum, at most.
    fn most_starts(&self) -> usize {
        self.starts.unwrap_or(model::MOST_STARTS)
    }

    /// Starts of a spectrum, on average.
    fn usual_starts(&self) -> usize {
        self.starts.unwrap_or(USUAL_STARTS)
    }

    /// Looks at minima again, unless the number of starts is said.
    fn looks_past_folds(&self) -> bool {
        self.starts.is_none() && !matches!(self.solver, Solver::NelderMead(_))
    }

    /// Makes rows of what its solver finds.
    fn finish(&self) -> Finish<'_> {
        Finish { model: &self.model, precision: self.precision, released_errors: self.released_errors }
    }

    /// Checks the settings, as every fit does at its beginning.
    ///
    /// # Errors
    /// [`Error::InvalidSettings`] lists every fault.
    pub fn validate(&self) -> Result<()> {
        let mut faults = self.solver.faults();
        if let Some(starts) = self.starts.filter(|starts| !(1..=MOST_STARTS).contains(starts)) {
            faults.push(InvalidSetting::new("starts", format!("it is {starts}; choose 1 to {MOST_STARTS}")));
        }
        if self.batch_size == Some(0) {
            faults.push(InvalidSetting::new("batch_size", "it is 0; choose at least 1"));
        }
        InvalidSetting::none_of(faults)
    }

    fn run(&self) -> Result<Run<'_>> {
        Run::new(self, self.device.inner.clone(), self.max_memory)
    }
}
