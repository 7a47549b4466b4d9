//! Spectra that are ready to be fitted, and the monitor of a fit.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::first_guess::{FirstGuess, Start};
use crate::model::{ParameterLimits, Prepared, Sampling, SpectralModel, SpectrumFault};

/// Starts of a spectrum in the solver's units u, each with one value per parameter.
pub type StartPoints = Vec<Vec<f64>>;

/// A prepared spectrum with its starts.
#[derive(Clone)]
pub struct ReadySpectrum {
    /// Index of the spectrum in its batch.
    pub place: usize,
    /// Shared by the copies that are fitted from other starts.
    pub prepared: Arc<Prepared>,
    /// Bounds and prior of each parameter.
    pub limits: Vec<ParameterLimits>,
    pub starts: Vec<Start>,
    /// More starts may be added: where χ²/dof is large (`spectral/search/poor.rs`), and beyond a fold
    /// (`spectral/search/fold.rs`).
    pub may_add_starts: bool,
}

/// Spectra of one shape that are fitted together.
#[derive(Clone, Copy)]
pub struct ReadySpectra<'a> {
    pub model: &'a SpectralModel,
    /// Samplings of each arm for all spectra of the batch.
    pub grids: &'a [Grids],
    pub spectra: &'a [ReadySpectrum],
    /// Source of more starts, for spectra that may have them.
    pub guess: Option<&'a FirstGuess>,
}

/// The samplings of an arm for the spectra of a batch: one grid for all, or one per spectrum.
#[derive(Clone)]
pub enum Grids {
    Shared(Arc<Sampling>),
    Own(Vec<std::result::Result<Arc<Sampling>, SpectrumFault>>),
}

/// Cancels a fit, and receives its progress.
pub struct Monitor<'a> {
    /// The fit stops once this flag is set.
    pub cancel: &'a AtomicBool,
    /// Receives the share of the work that is done, from 0 to 1.
    pub progress: &'a mut dyn FnMut(f64),
}

/// The flag of work that is never cancelled.
pub static NEVER_CANCELLED: AtomicBool = AtomicBool::new(false);

impl Grids {
    /// Returns the wavelength sampling that all spectra share; `None` if each has its own.
    pub fn shared(&self) -> Option<&Arc<Sampling>> {
        match self {
            Grids::Shared(sampling) => Some(sampling),
            Grids::Own(_) => None,
        }
    }

    /// Returns the sampling of a spectrum by its index in the batch, or the fault of its wavelength grid.
    pub fn get(&self, spectrum: usize) -> std::result::Result<&Arc<Sampling>, &SpectrumFault> {
        match self {
            Grids::Shared(sampling) => Ok(sampling),
            Grids::Own(samplings) => samplings[spectrum].as_ref(),
        }
    }
}

/// Returns the wavelength sampling of a spectrum, by its index in the batch, in each arm.
pub fn collect_samplings(grids: &[Grids], spectrum: usize) -> Vec<&Sampling> {
    grids
        .iter()
        .filter_map(|grid| grid.get(spectrum).ok())
        .map(|sampling| &**sampling)
        .collect()
}

impl ReadySpectrum {
    /// Returns the points from which the spectrum is fitted, in the solver's units.
    pub fn starts(&self) -> StartPoints {
        self.starts.iter().map(|start| start.u.clone()).collect()
    }
}

impl<'a> ReadySpectra<'a> {
    /// Returns other prepared spectra together with the same model and the same wavelength samplings.
    pub fn with_spectra(self, spectra: &'a [ReadySpectrum]) -> ReadySpectra<'a> {
        ReadySpectra { spectra, ..self }
    }

    /// Returns the starts of each spectrum in the solver's units.
    pub fn starts(self) -> Vec<StartPoints> {
        self.spectra.iter().map(ReadySpectrum::starts).collect()
    }
}
