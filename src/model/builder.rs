//! Builds and validates a [`SpectralModel`].

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::cache::ModelCache;
use super::labels::LabelResolver;
use super::settings::{
    Arm, Continuum, ExposureVelocity, Jitter, LabelSettings, LineSpread, Pixels, SharedLabels,
    SpectraSettings,
};
use super::{ModelArm, ModelParameter, SpectralModel};
use crate::emulator::{Emulator, TemplateGrid};
use crate::error::{Error, Result};
use crate::names::check_name;
use crate::recording::{LabelInput, Parameter, Rotation, Velocity};
use crate::spectra::Widening;

/// Maximum number of free parameters.
pub(super) const MAX_FREE_PARAMETERS: usize = 32;
/// Unit of velocity and vsini in the solver, in km/s.
const VELOCITY_SCALE: f64 = 10.0;
/// Maximum vsini in km/s, above the break-up speed of every star.
const MAX_VSINI: f64 = 1000.0;

#[derive(Clone, Copy, Debug, PartialEq)]
enum VelocitySetting {
    Fixed(f64),
    Range(f64, f64),
}

/// Builder of a spectral model; [`build`](SpectralModelBuilder::build) checks all settings.
#[derive(Clone, Debug)]
pub struct SpectralModelBuilder {
    arms: Vec<Arm>,
    continuum: Continuum,
    marginalise: bool,
    clip_starts: bool,
    velocity: VelocitySetting,
    vsini: VelocitySetting,
    labels: BTreeMap<String, LabelSettings>,
    spectra: SpectraSettings,
    exposures: Option<ExposureVelocity>,
    shared: Option<SharedLabels>,
}

impl Default for SpectralModelBuilder {
    fn default() -> Self {
        SpectralModelBuilder {
            arms: Vec::new(),
            continuum: Continuum::chebyshev(10),
            marginalise: false,
            clip_starts: false,
            velocity: VelocitySetting::Fixed(0.0),
            vsini: VelocitySetting::Fixed(0.0),
            labels: BTreeMap::new(),
            spectra: SpectraSettings::default(),
            exposures: None,
            shared: None,
        }
    }
}

impl SpectralModelBuilder {
    /// Adds an arm (one spectrograph channel) to the model: its name in the files of spectra, and its emulator. A
    /// single arm may be called "" when the spectra's arrays carry no arm's name.
    #[must_use]
    pub fn arm(self, name: impl Into<String>, emulator: Emulator) -> Self {
        self.add_arm(Arm::new(name, emulator))
    }

    /// Adds an arm (one spectrograph channel) with its own range, interpolation, continuum and line spread.
    #[must_use]
    pub fn add_arm(mut self, arm: Arm) -> Self {
        self.arms.push(arm);
        self
    }

    /// Sets the continuum of every arm that has none of its own; `Continuum::chebyshev(10)` unless set.
    #[must_use]
    pub fn continuum(mut self, continuum: Continuum) -> Self {
        self.continuum = continuum;
        self
    }

    /// Sets whether the objective also has ln det C − Σ ln ivar of the continuum terms (rvspecfit's −2 ln L).
    #[must_use]
    pub fn marginalise(mut self, marginalise: bool) -> Self {
        self.marginalise = marginalise;
        self
    }

    /// Sets whether a start outside its bounds is moved onto the nearer one and flagged, instead of refused.
    #[must_use]
    pub fn clip_starts(mut self, clip: bool) -> Self {
        self.clip_starts = clip;
        self
    }

    /// Makes the radial velocity a free parameter with these bounds, km/s, positive = receding. Without it the spectra
    /// are at rest.
    #[must_use]
    pub fn velocity(mut self, range: RangeInclusive<f64>) -> Self {
        self.velocity = VelocitySetting::Range(*range.start(), *range.end());
        self
    }

    /// Holds the radial velocity at this value, km/s, instead of fitting it.
    #[must_use]
    pub fn fixed_velocity(mut self, velocity: f64) -> Self {
        self.velocity = VelocitySetting::Fixed(velocity);
        self
    }

    /// Makes the projected rotation velocity a free parameter with these bounds, km/s. Without it nothing rotates.
    #[must_use]
    pub fn vsini(mut self, range: RangeInclusive<f64>) -> Self {
        self.vsini = VelocitySetting::Range(*range.start(), *range.end());
        self
    }

    /// Holds the projected rotation velocity at this value, km/s; 0 leaves rotation out.
    #[must_use]
    pub fn fixed_vsini(mut self, vsini: f64) -> Self {
        self.vsini = VelocitySetting::Fixed(vsini);
        self
    }

    /// Sets the start, bounds, prior, fixed value or tie of an emulator's label, in physical units, or start and prior
    /// of a free velocity or vsini.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, settings: LabelSettings) -> Self {
        self.labels.insert(name.into(), settings);
        self
    }

    /// Sets masked wavelength intervals, the error floor, and the treatment of pixels whose flux is not finite.
    #[must_use]
    pub fn spectra(mut self, settings: SpectraSettings) -> Self {
        self.spectra = settings;
        self
    }

    /// Fits all exposures of an object together, with one velocity or with one each. Spectra have exposures if they
    /// were [joined](crate::Spectra::join_exposures). Without it each spectrum is an object of its own.
    #[must_use]
    pub fn exposures(mut self, velocity: ExposureVelocity) -> Self {
        self.exposures = Some(velocity);
        self
    }

    /// Fits the spectra of a cluster with one value of each of these labels: those of a file, or in memory, that have
    /// the same value in this column of the spectra's own table. Their other parameters are their own. Without it each
    /// spectrum is fitted by itself.
    #[must_use]
    pub fn shared(
        mut self,
        column: impl Into<String>,
        labels: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.shared = Some(SharedLabels {
            column: column.into(),
            labels: labels.into_iter().map(Into::into).collect(),
        });
        self
    }

    /// Checks all settings and makes the model, or returns an error that names the first wrong one.
    ///
    /// # Errors
    /// Returns [`Error::Model`], [`Error::BadBounds`] or [`Error::BadWavelength`] for settings that make no sense. They
    /// name the arm, label or key.
    pub fn build(self) -> Result<SpectralModel> {
        // 1. Check the settings that concern no single parameter.
        self.check_names()?;
        self.check_spectra()?;
        // 2. Declare the free parameters: velocity, vsini, then the labels of all arms.
        let mut parameters = Vec::new();
        let labels = LabelResolver {
            settings: &self.labels,
            clip_starts: self.clip_starts,
            label_names: self
                .arms
                .iter()
                .flat_map(|arm| arm.emulator.labels())
                .map(|label| label.name.as_str())
                .collect(),
        };
        let velocity = self.resolve_velocity(&labels, &mut parameters)?;
        let vsini = self.resolve_vsini(&labels, &mut parameters)?;
        for label in self.arms.iter().flat_map(|arm| arm.emulator.labels()) {
            labels.declare_parameter(label, &mut parameters)?;
        }
        // 3. Resolve the arms, whose network inputs refer to these parameters.
        let mut arms = Vec::new();
        for arm in &self.arms {
            let resolved = self.resolve_arm(arm, &labels, &parameters, &arms)?;
            arms.push(resolved);
        }
        // 4. Velocities of exposures can be free only if the velocity is.
        if self.exposures == Some(ExposureVelocity::Each) && matches!(velocity, Velocity::Fixed(_))
        {
            return Err(Error::model_setting(
                "exposures.velocity",
                "each exposure can have its own velocity only if the velocity is free: give it a range",
            ));
        }
        // 5. Shared labels are free parameters.
        if let Some(shared) = &self.shared {
            shared.check(&parameters)?;
            self.check_rest_for_shared()?;
        }
        // 6. Check the number of free parameters.
        if parameters.is_empty() {
            return Err(Error::model(
                "nothing is free: every label and the velocity are fixed",
            ));
        }
        if parameters.len() > MAX_FREE_PARAMETERS {
            return Err(Error::model_setting(
                "labels",
                format!(
                    "{} free parameters, at most {MAX_FREE_PARAMETERS}",
                    parameters.len()
                ),
            ));
        }
        Ok(SpectralModel {
            arms,
            parameters,
            velocities: vec![velocity],
            vsini,
            marginalise: self.marginalise,
            clip_starts: self.clip_starts,
            spectra: self.spectra,
            exposures: self.exposures,
            shared: self.shared,
            cache: ModelCache::default(),
        })
    }

    /// Fails if there is no arm, two arms share a name, a label is called velocity or vsini, or settings name an
    /// unknown label.
    fn check_names(&self) -> Result<()> {
        if self.arms.is_empty() {
            return Err(Error::model_setting("arm", "no arm"));
        }
        // 1. Each arm has a valid name of its own.
        for (k, arm) in self.arms.iter().enumerate() {
            check_name("name of an arm", &arm.name)
                .map_err(|message| Error::model_setting("arm.name", message))?;
            if self.arms[..k]
                .iter()
                .any(|earlier_arm| earlier_arm.name == arm.name)
            {
                return Err(Error::model_setting(
                    "arm.name",
                    format!("two arms are called \"{}\"", arm.name),
                ));
            }
        }
        // 2. No label has the name of a parameter that every model has.
        for arm in &self.arms {
            if let Some(label) = arm
                .emulator
                .labels()
                .iter()
                .find(|label| ["velocity", "vsini"].contains(&label.name.as_str()))
            {
                let message = format!(
                    "arm \"{}\": the label \"{}\" has the name of a parameter that every model has; give it another \
                     name",
                    arm.name, label.name
                );
                return Err(Error::model_setting("arm.emulator", message));
            }
        }
        // 3. All settings are those of a label, or of a free velocity or vsini.
        for name in self.labels.keys() {
            let is_free_motion = match name.as_str() {
                "velocity" => matches!(self.velocity, VelocitySetting::Range(..)),
                "vsini" => matches!(self.vsini, VelocitySetting::Range(..)),
                _ => false,
            };
            let is_label = self
                .arms
                .iter()
                .flat_map(|arm| arm.emulator.labels())
                .any(|label| label.name == *name);
            if !is_label && !is_free_motion {
                let label_names: Vec<&str> = self.arms[0]
                    .emulator
                    .labels()
                    .iter()
                    .map(|label| label.name.as_str())
                    .collect();
                let message = format!(
                    "no emulator has the label \"{name}\"; there are {}",
                    label_names.join(", ")
                );
                return Err(Error::model_setting("labels", message));
            }
        }
        Ok(())
    }

    /// Fails if an interval of a mask is empty or not finite, if `widen` is invalid, if the error floor is negative or
    /// not finite, or if the loss is invalid or not for spectra.
    fn check_spectra(&self) -> Result<()> {
        // 1. Masked intervals are finite and not empty.
        for (key, mask) in [
            ("mask", &self.spectra.mask),
            ("mask_rest", &self.spectra.mask_rest),
        ] {
            for (low, high) in mask {
                if !(low.is_finite() && high.is_finite() && low < high) {
                    let setting = format!("spectra.{key}");
                    let message = format!("{setting}: {low} to {high} is not an interval");
                    return Err(Error::model_setting(setting, message));
                }
            }
        }
        // 2. The rule that widens errors, the jitter and the error floor are valid.
        if let Some((key, message)) = self.spectra.widen.as_ref().and_then(Widening::fault) {
            let setting = format!("spectra.widen.{key}");
            let message = format!("{setting} {message}");
            return Err(Error::model_setting(setting, message));
        }
        let jitter = match self.spectra.jitter {
            Jitter::Fraction(fraction) => fraction,
            Jitter::Fitted => {
                self.check_fitted_jitter()?;
                0.0
            }
        };
        let fractions = [
            ("spectra.jitter", jitter),
            ("spectra.error_floor", self.spectra.error_floor),
        ];
        for (setting, fraction) in fractions {
            if !(fraction.is_finite() && fraction >= 0.0) {
                let message = format!("{setting} must not be negative: {fraction}");
                return Err(Error::model_setting(setting, message));
            }
        }
        // 3. The loss is valid, and one for spectra.
        let loss = self.spectra.loss;
        if let Some(fault) = loss.fault() {
            return Err(Error::model_setting(
                "spectra.loss",
                format!("spectra.loss: {}", fault.message),
            ));
        }
        if !(loss.is_least_squares() || loss.is_robust()) {
            let message =
                format!("spectra.loss: {loss:?} is for curves; spectra take a robust loss");
            return Err(Error::model_setting("spectra.loss", message));
        }
        Ok(())
    }

    /// Fails if another setting also decides how large the errors are.
    fn check_fitted_jitter(&self) -> Result<()> {
        let other = if self.spectra.error_floor != 0.0 {
            "error_floor"
        } else if self.spectra.loss.is_robust() {
            "loss"
        } else {
            return Ok(());
        };
        let setting = "spectra.jitter";
        let message = format!(
            "{setting} = \"fit\" finds the size of the errors from the residuals, and `{other}` changes them, too: give \
             one of the two"
        );
        Err(Error::model_setting(setting, message))
    }

    /// Fails if the model has what spectra that share labels cannot have: exposures, or a robust loss.
    fn check_rest_for_shared(&self) -> Result<()> {
        let message = if self.exposures.is_some() {
            "shared: objects with several exposures cannot share labels: leave out `exposures` or `shared`"
        } else if self.spectra.loss.is_robust() {
            "shared: labels are shared under least squares alone: leave out `spectra.loss` or `shared`"
        } else {
            return Ok(());
        };
        Err(Error::model_setting("shared", message))
    }

    /// Checks that the velocity is within ±30,000 km/s; if it is free, appends its parameter to `parameters`.
    fn resolve_velocity(
        &self,
        labels: &LabelResolver,
        parameters: &mut Vec<ModelParameter>,
    ) -> Result<Velocity> {
        /// Maximum speed in km/s; beyond it, the error of the series of atanh(v/c) exceeds that of the network.
        const MAX_SPEED: f64 = 30_000.0;
        let out_of_limits = |setting: String| {
            Err(Error::model_setting(
                "velocity",
                format!("velocity {setting} km/s is not within ±{MAX_SPEED}"),
            ))
        };
        match self.velocity {
            VelocitySetting::Fixed(velocity) if velocity.abs() <= MAX_SPEED => {
                Ok(Velocity::Fixed(velocity))
            }
            VelocitySetting::Fixed(velocity) => out_of_limits(velocity.to_string()),
            VelocitySetting::Range(low, high) => {
                check_bounds("velocity", low, high)?;
                if low.abs().max(high.abs()) > MAX_SPEED {
                    return out_of_limits(format!("range {low} to {high}"));
                }
                Ok(Velocity::Parameter(add_motion_parameter(
                    "velocity",
                    low..=high,
                    labels,
                    parameters,
                )?))
            }
        }
    }

    /// Checks the limits of vsini; if it is free, appends its parameter to `parameters`; `None` if it is fixed at 0.
    fn resolve_vsini(
        &self,
        labels: &LabelResolver,
        parameters: &mut Vec<ModelParameter>,
    ) -> Result<Option<Rotation>> {
        let out_of_limits = |setting: String| {
            Err(Error::model_setting(
                "vsini",
                format!("vsini {setting} km/s is not within 0 to {MAX_VSINI}"),
            ))
        };
        match self.vsini {
            VelocitySetting::Fixed(0.0) => Ok(None),
            VelocitySetting::Fixed(vsini) if (0.0..=MAX_VSINI).contains(&vsini) => {
                Ok(Some(Rotation::Fixed(vsini)))
            }
            VelocitySetting::Fixed(vsini) => out_of_limits(vsini.to_string()),
            VelocitySetting::Range(low, high) => {
                check_bounds("vsini", low, high)?;
                if low < 0.0 || high > MAX_VSINI {
                    return out_of_limits(format!("range {low} to {high}"));
                }
                let parameter = add_motion_parameter("vsini", low..=high, labels, parameters)?;
                Ok(Some(Rotation::Parameter {
                    parameter,
                    most: high,
                }))
            }
        }
    }

    /// Checks the settings of an arm, and resolves the parameter, fixed value or tie that supplies each network
    /// input. `earlier` are the arms before it.
    fn resolve_arm(
        &self,
        arm: &Arm,
        labels: &LabelResolver,
        parameters: &[ModelParameter],
        earlier: &[ModelArm],
    ) -> Result<ModelArm> {
        // 1. Check the arm's settings.
        let name = &arm.name;
        let wavelength = arm.emulator.wavelength();
        if wavelength.is_empty() {
            let message =
                format!("arm \"{name}\": the emulator carries no wavelengths; give `wavelength`");
            return Err(Error::model_setting("arm.wavelength", message));
        }
        let grid = TemplateGrid::from_wavelengths(wavelength, &format!("arm \"{name}\""))?;
        if let Some((low, high)) = arm.range {
            check_bounds(&format!("arm \"{name}\": range"), low, high)?;
        }
        let continuum = arm.continuum.unwrap_or(self.continuum);
        check_continuum(name, continuum)?;
        check_line_spread(name, arm.line_spread, &grid, wavelength[0])?;
        if arm.pixels == Some(Pixels::Integrate) && arm.line_spread == LineSpread::File {
            let message = format!(
                "arm \"{name}\": the resolution matrices of `line_spread = \"file\"` contain the pixels, so \
                 `pixels = \"integrate\"` would count them twice: leave `pixels` out"
            );
            return Err(Error::model_setting("arm.pixels", message));
        }
        // 2. Resolve the source of each network input.
        let mut inputs = Vec::new();
        for label in arm.emulator.labels() {
            let source = labels.resolve_source(label, parameters)?;
            inputs.push(LabelInput {
                source,
                transform: label.transform,
                mean: label.mean,
                std: label.std,
            });
        }
        // 3. Scale the network to templates of about 1. Arms with the same network also share the scaled one.
        let same_network = earlier
            .iter()
            .find(|earlier_arm| Arc::ptr_eq(&earlier_arm.given, &arm.emulator));
        let (emulator, unit) = match same_network {
            Some(earlier_arm) => (earlier_arm.emulator.clone(), earlier_arm.unit),
            None => arm.emulator.in_template_unit(),
        };
        Ok(ModelArm {
            name: name.clone(),
            given: arm.emulator.clone(),
            emulator,
            unit,
            grid,
            range: arm.range,
            interpolation: arm.interpolation,
            continuum,
            line_spread: arm.line_spread,
            pixels: arm.pixels,
            mask_rest: self
                .spectra
                .mask_rest
                .iter()
                .map(|&(low, high)| [low, high].map(|wavelength| wavelength.max(0.0).ln()))
                .collect(),
            inputs,
        })
    }
}

/// Appends the parameter `name` (velocity or vsini), bounded by `range` in km/s, to `parameters`; returns its index.
fn add_motion_parameter(
    name: &str,
    range: RangeInclusive<f64>,
    labels: &LabelResolver,
    parameters: &mut Vec<ModelParameter>,
) -> Result<usize> {
    let solver = Parameter {
        name: name.into(),
        origin: 0.0,
        scale: VELOCITY_SCALE,
    };
    let settings = labels.motion_settings(name)?;
    parameters.push(labels.make_parameter(solver, range, settings)?);
    Ok(parameters.len() - 1)
}

/// Fails with the parameter's name unless both bounds are finite and `lower` ≤ `upper`.
pub(super) fn check_bounds(parameter: &str, lower: f64, upper: f64) -> Result<()> {
    if lower.is_finite() && upper.is_finite() && lower <= upper {
        return Ok(());
    }
    Err(Error::BadBounds {
        parameter: parameter.to_string(),
        lower,
        upper,
    })
}

/// Fails unless the number of continuum terms is one that their kind allows.
fn check_continuum(arm: &str, continuum: Continuum) -> Result<()> {
    let allowed = continuum.kind.terms();
    if allowed.contains(&continuum.terms) {
        return Ok(());
    }
    let low = allowed.start();
    let high = allowed.end();
    let message = format!(
        "arm \"{arm}\": {} continuum terms, allowed are {low} to {high}",
        continuum.terms
    );
    Err(Error::model_setting("continuum.terms", message))
}

/// Fails unless the width of an arm's line spread is positive and at most 200 template pixels; `first` is the shortest
/// wavelength (Å).
fn check_line_spread(arm: &str, spread: LineSpread, grid: &TemplateGrid, first: f64) -> Result<()> {
    /// Maximum width in template pixels. A wider line spread is surely a mistake, and costs more than the network.
    const MAX_LINE_SPREAD_PIXELS: f64 = 200.0;
    let (setting, value, width) = match spread {
        LineSpread::None | LineSpread::File => return Ok(()),
        LineSpread::ResolvingPower(power) => ("resolving_power", power, 1.0 / power),
        LineSpread::Fwhm(width) => ("fwhm", width, width / first),
    };
    let smallest_step = grid
        .segments
        .iter()
        .map(|segment| segment.step)
        .fold(f64::INFINITY, f64::min);
    if value.is_finite() && value > 0.0 && width / smallest_step <= MAX_LINE_SPREAD_PIXELS {
        return Ok(());
    }
    let message = format!(
        "arm \"{arm}\": a line spread of {setting} = {value} is not between 0 and {MAX_LINE_SPREAD_PIXELS} pixels wide"
    );
    Err(Error::model_setting("arm.line_spread", message))
}
