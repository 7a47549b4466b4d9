//! The spectral model: arms, labels, velocity, continuum; free and fixed parameters (see `docs/src/equations.md`).

mod builder;
mod cache;
mod clean;
pub(crate) mod continuum;
mod determined;
mod exposures;
mod fault;
#[cfg(feature = "files")]
mod file;
mod halves;
mod jitter;
#[cfg(feature = "files")]
mod keys;
mod labels;
mod noise;
mod objective;
mod observe;
pub(crate) mod pixels;
mod prepare;
mod reach;
mod sampling;
#[cfg(feature = "files")]
mod sections;
mod set_basis;
mod settings;
mod shared;
pub(crate) mod spread;
mod tied;
mod warnings;
mod weights;
mod window;

use crate::buffers::Estimator;
use crate::emulator::{Emulator, TemplateGrid};
use crate::recording::{LabelInput, Parameter, Rotation, Velocity, tangents};
use crate::spectra::Widening;
pub use builder::SpectralModelBuilder;
use cache::ModelCache;
pub(crate) use fault::{Cause, SpectrumFault};
#[cfg(feature = "files")]
pub use file::{ArmFiles, ModelFile};
pub(crate) use jitter::{ArmJitter, JitterPixel};
pub(crate) use noise::RawCovariance;
pub(crate) use objective::{SpectralObjective, hull_weights};
pub(crate) use observe::ArmLayout;
pub(crate) use prepare::{Prepared, PreparedArm, RawArm, prepare_spectrum};
pub(crate) use reach::{ArmMotion, Motion};
pub(crate) use sampling::Sampling;
pub use settings::{
    Arm, Continuum, ContinuumKind, ExposureVelocity, Interpolation, Jitter, LabelColumns,
    LabelSettings, LineSpread, NonFinite, Pixels, SharedLabels, SpectraSettings, VelocityScan,
};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Model with which a spectrum is compared: one emulator and one continuum per arm, shared labels and velocity.
#[derive(Clone, Debug)]
pub struct SpectralModel {
    pub(crate) arms: Vec<ModelArm>,
    /// Parameters that the fit varies: the velocity, if it is free, vsini likewise, then the free labels.
    pub(crate) parameters: Vec<ModelParameter>,
    /// Velocity of each exposure; a single one unless the model is that of several exposures.
    pub(crate) velocities: Vec<Velocity>,
    /// `None`: nothing rotates.
    pub(crate) vsini: Option<Rotation>,
    pub(crate) marginalise: bool,
    pub(crate) clip_starts: bool,
    pub(crate) spectra: SpectraSettings,
    /// Velocity of objects with several exposures; `None` if each spectrum is an object of its own.
    pub(crate) exposures: Option<ExposureVelocity>,
    /// Labels that the spectra of a cluster share; `None` if each spectrum is fitted by itself.
    pub(crate) shared: Option<SharedLabels>,
    /// Data that fitters make of the model, shared by its clones: the library of the first guess, by seed.
    pub(crate) cache: ModelCache,
}

/// An arm whose settings are checked and resolved.
#[derive(Clone, Debug)]
pub(crate) struct ModelArm {
    pub name: String,
    /// The network that the user gave.
    pub given: Arc<Emulator>,
    /// The same network with templates of about 1: those of `given` divided by `unit`.
    pub emulator: Arc<Emulator>,
    pub unit: f64,
    pub grid: TemplateGrid,
    pub range: Option<(f64, f64)>,
    pub interpolation: Interpolation,
    pub continuum: Continuum,
    pub line_spread: LineSpread,
    /// Meaning of the pixels; `None`, which samples, if the user did not say.
    pub pixels: Option<Pixels>,
    /// Intervals of ln λ in the star's frame that are masked.
    pub mask_rest: Vec<[f64; 2]>,
    /// Source and scaling of each of the emulator's labels.
    pub inputs: Vec<LabelInput>,
}

impl ModelArm {
    /// Returns whether the arm differs from another one by its name alone.
    fn is_alike(&self, other: &ModelArm) -> bool {
        let ModelArm {
            name: _,
            given,
            emulator: _,
            unit: _,
            grid: _,
            range,
            interpolation,
            continuum,
            ..
        } = self;
        let ModelArm {
            line_spread,
            pixels,
            mask_rest,
            inputs,
            ..
        } = self;
        Arc::ptr_eq(given, &other.given)
            && (range, interpolation, continuum)
                == (&other.range, &other.interpolation, &other.continuum)
            && (line_spread, pixels) == (&other.line_spread, &other.pixels)
            && (mask_rest, inputs) == (&other.mask_rest, &other.inputs)
    }

    /// Returns the indices of the parameters by which the arm's template is differentiated, in the order of its
    /// derivative rows.
    pub fn tangents(&self) -> Vec<usize> {
        tangents(&self.inputs)
    }
}

/// A free parameter with its units, bounds, start and prior.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModelParameter {
    /// Name, origin and scale of the solver's u.
    pub solver: Parameter,
    /// Physical bounds; equal bounds hold the parameter.
    pub lower: f64,
    pub upper: f64,
    /// Physical start; chosen by the first guess if absent.
    pub start: Option<f64>,
    /// Physical mean and standard deviation.
    pub prior: Option<(f64, f64)>,
    /// Columns with values per spectrum, which replace these numbers.
    pub columns: LabelColumns,
}

impl ModelParameter {
    /// Returns the parameter's lower to upper bound, in physical units.
    pub fn bounds(&self) -> RangeInclusive<f64> {
        self.lower..=self.upper
    }
}

/// Bounds, start and prior of a parameter for one spectrum; physical units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ParameterLimits {
    pub lower: f64,
    pub upper: f64,
    pub start: Option<f64>,
    pub prior: Option<(f64, f64)>,
}

impl ParameterLimits {
    /// Returns whether the bounds are equal, which holds the parameter at their value.
    pub fn is_held(&self) -> bool {
        self.lower == self.upper
    }

    /// Returns the mean of the parameter's prior in the solver's u, and the reciprocal of its standard deviation, which
    /// is 0 without a prior.
    pub fn prior_in_u(&self, parameter: &ModelParameter) -> (f64, f64) {
        self.prior.map_or((0.0, 0.0), |(mean, sigma)| {
            (parameter.to_u(mean), parameter.solver.scale / sigma)
        })
    }
}

impl ModelParameter {
    /// Converts a physical value to the solver's dimensionless u.
    pub fn to_u(&self, physical: f64) -> f64 {
        (physical - self.solver.origin) / self.solver.scale
    }

    /// Converts the solver's dimensionless u to a physical value.
    pub fn to_physical(&self, u: f64) -> f64 {
        self.solver.origin + self.solver.scale * u
    }

    /// Returns whether the bounds are equal, which holds the parameter at their value.
    pub fn is_held(&self) -> bool {
        self.lower == self.upper
    }

    /// Returns the model's own bounds, start and prior of the parameter, for spectra whose columns give no others.
    pub fn limits(&self) -> ParameterLimits {
        let ModelParameter {
            lower,
            upper,
            start,
            prior,
            ..
        } = *self;
        ParameterLimits {
            lower,
            upper,
            start,
            prior,
        }
    }
}

impl SpectralModel {
    /// Returns a builder without arms, on which a model's settings are made before `build`.
    pub fn builder() -> SpectralModelBuilder {
        SpectralModelBuilder::default()
    }

    /// Returns the names of the free parameters, in the order of the result table's columns.
    pub fn parameters(&self) -> Vec<String> {
        self.parameters
            .iter()
            .map(|parameter| parameter.solver.name.clone())
            .collect()
    }

    /// Returns (lower, upper) of each free parameter, in physical units, in the order of `parameters`.
    pub fn bounds(&self) -> Vec<(f64, f64)> {
        self.parameters.iter().map(|p| (p.lower, p.upper)).collect()
    }

    /// Returns the model without arms that differ from an earlier one by the name alone.
    pub(crate) fn with_distinct_arms(&self) -> SpectralModel {
        let mut arms: Vec<ModelArm> = Vec::new();
        for arm in &self.arms {
            if !arms.iter().any(|earlier_arm| earlier_arm.is_alike(arm)) {
                arms.push(arm.clone());
            }
        }
        SpectralModel {
            arms,
            cache: ModelCache::default(),
            ..self.clone()
        }
    }

    /// Returns the name and the emulator of each arm.
    pub fn arms(&self) -> impl Iterator<Item = (&str, &Emulator)> {
        self.arms
            .iter()
            .map(|arm| (arm.name.as_str(), arm.given.as_ref()))
    }

    /// Returns the name, the emulator's source (path or given name) and its SHA-256 of each arm.
    #[doc(hidden)]
    pub fn emulators(&self) -> Vec<(String, String, String)> {
        self.arms
            .iter()
            .map(|arm| {
                (
                    arm.name.clone(),
                    arm.emulator.source().to_string(),
                    arm.emulator.hash().to_string(),
                )
            })
            .collect()
    }

    /// Returns all settings except the emulators' contents as text, by which runs of different models are
    /// distinguished.
    #[cfg(feature = "files")]
    pub(crate) fn settings(&self) -> String {
        let SpectralModel {
            arms,
            parameters,
            velocities,
            vsini,
            marginalise,
            clip_starts,
            spectra,
            exposures,
            shared,
            cache: _,
        } = self;
        let mut text = format!(
            "{parameters:?} {velocities:?} {vsini:?} {marginalise} {clip_starts} {spectra:?} {exposures:?}"
        );
        if let Some(shared) = shared {
            text += &format!(" {shared:?}");
        }
        for ModelArm {
            name,
            range,
            interpolation,
            continuum,
            line_spread,
            pixels,
            inputs,
            ..
        } in arms
        {
            text += &format!(
                "\n{name:?} {range:?} {interpolation:?} {continuum:?} {line_spread:?} {pixels:?} {inputs:?}"
            );
        }
        text
    }

    /// Returns the bits of masks that widen errors, by which spectra are to be read; `None` if the model names none.
    pub fn widening(&self) -> Option<&Widening> {
        self.spectra.widen.as_ref()
    }

    /// Returns the robust loss of the residuals; `None` for least squares.
    pub(crate) fn loss(&self) -> Option<Estimator> {
        Some(self.spectra.loss).filter(|loss| loss.is_robust())
    }

    /// Returns the velocity, of the first exposure if there are several.
    pub(crate) fn velocity(&self) -> Velocity {
        self.velocities[0]
    }

    /// Returns the index of the velocity's parameter, of the first exposure if there are several; `None` if the
    /// velocity is fixed.
    pub(crate) fn free_velocity(&self) -> Option<usize> {
        if let Velocity::Parameter(p) = self.velocity() {
            Some(p)
        } else {
            None
        }
    }

    /// Returns the index of the parameter of vsini; `None` if vsini is fixed or the model has no rotation.
    pub(crate) fn free_vsini(&self) -> Option<usize> {
        if let Some(Rotation::Parameter { parameter, .. }) = self.vsini {
            Some(parameter)
        } else {
            None
        }
    }

    /// Returns the parameter index of each derivative row at the pixels of arm `a`: velocity and vsini if free, then
    /// labels.
    pub(crate) fn derivative_parameters(&self, a: usize) -> Vec<usize> {
        let velocity = match self.velocity_of(a) {
            Velocity::Parameter(p) => Some(p),
            Velocity::Fixed(_) => None,
        };
        velocity
            .into_iter()
            .chain(self.free_vsini())
            .chain(self.arms[a].tangents())
            .collect()
    }

    /// Returns the range of velocities in km/s; its ends are equal if the velocity is fixed.
    pub(crate) fn velocity_range(&self) -> RangeInclusive<f64> {
        match self.velocity() {
            Velocity::Fixed(velocity) => velocity..=velocity,
            Velocity::Parameter(p) => self.parameters[p].bounds(),
        }
    }
}
