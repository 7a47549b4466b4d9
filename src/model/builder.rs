//! Builds and validates a [`SpectralModel`].

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::settings::{Arm, Continuum, ContinuumKind, LabelSettings, SpectraSettings};
use super::{ModelArm, ModelParameter, SpectralModel};
use crate::emulator::{Emulator, Label, TemplateGrid};
use crate::error::{Error, Result};
use crate::solver::recording::{LabelInput, Parameter, Source, Transform, Velocity};

/// Most free parameters, and most continuum terms of an arm.
const MOST_PARAMETERS: usize = 32;
/// km/s: the solver's unit of velocity.
const VELOCITY_SCALE: f64 = 10.0;

#[derive(Clone, Copy, Debug, PartialEq)]
enum VelocitySetting {
    Fixed(f64),
    Range(f64, f64),
}

/// Collects what a user says; [`build`](SpectralModelBuilder::build) checks it.
#[derive(Clone, Debug)]
pub struct SpectralModelBuilder {
    arms: Vec<Arm>,
    continuum: Continuum,
    marginalise: bool,
    clip_starts: bool,
    velocity: VelocitySetting,
    labels: BTreeMap<String, LabelSettings>,
    spectra: SpectraSettings,
}

impl Default for SpectralModelBuilder {
    fn default() -> Self {
        SpectralModelBuilder {
            arms: Vec::new(),
            continuum: Continuum::chebyshev(10),
            marginalise: false,
            clip_starts: false,
            velocity: VelocitySetting::Fixed(0.0),
            labels: BTreeMap::new(),
            spectra: SpectraSettings::default(),
        }
    }
}

impl SpectralModelBuilder {
    /// Adds an arm with default settings. A single arm may be called "" when the spectra's arrays carry no arm's name.
    #[must_use]
    pub fn arm(self, name: impl Into<String>, emulator: Emulator) -> Self {
        self.add_arm(Arm::new(name, emulator))
    }

    /// Adds an arm.
    #[must_use]
    pub fn add_arm(mut self, arm: Arm) -> Self {
        self.arms.push(arm);
        self
    }

    /// The continuum of every arm that has none of its own; `Continuum::chebyshev(10)` unless set.
    #[must_use]
    pub fn continuum(mut self, continuum: Continuum) -> Self {
        self.continuum = continuum;
        self
    }

    /// Adds ln det C − Σ ln ivar to the objective (rvspecfit's −2 ln L).
    #[must_use]
    pub fn marginalise(mut self, marginalise: bool) -> Self {
        self.marginalise = marginalise;
        self
    }

    /// Starts outside the bounds are moved onto them and flagged, instead of refused.
    #[must_use]
    pub fn clip_starts(mut self, clip: bool) -> Self {
        self.clip_starts = clip;
        self
    }

    /// Frees the velocity inside a range, km/s, positive = receding. Without it the spectra are at rest.
    #[must_use]
    pub fn velocity(mut self, range: RangeInclusive<f64>) -> Self {
        self.velocity = VelocitySetting::Range(*range.start(), *range.end());
        self
    }

    /// Fixes the velocity, km/s.
    #[must_use]
    pub fn fixed_velocity(mut self, velocity: f64) -> Self {
        self.velocity = VelocitySetting::Fixed(velocity);
        self
    }

    /// What is known of a label.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, settings: LabelSettings) -> Self {
        self.labels.insert(name.into(), settings);
        self
    }

    /// Masks and floors.
    #[must_use]
    pub fn spectra(mut self, settings: SpectraSettings) -> Self {
        self.spectra = settings;
        self
    }

    /// Checks everything and resolves it. Errors name the arm, label or key.
    pub fn build(self) -> Result<SpectralModel> {
        self.check_names()?;
        self.check_spectra()?;
        let mut parameters = Vec::new();
        let velocity = self.resolve_velocity(&mut parameters)?;
        let mut arms = Vec::new();
        for arm in &self.arms {
            arms.push(self.resolve_arm(arm, &mut parameters)?);
        }
        if parameters.is_empty() {
            return Err(Error::Model("nothing is free: every label and the velocity are fixed".into()));
        }
        if parameters.len() > MOST_PARAMETERS {
            return Err(Error::Model(format!("{} free parameters, at most {MOST_PARAMETERS}", parameters.len())));
        }
        Ok(SpectralModel {
            arms,
            parameters,
            velocity,
            marginalise: self.marginalise,
            clip_starts: self.clip_starts,
            spectra: self.spectra,
        })
    }

    fn check_names(&self) -> Result<()> {
        if self.arms.is_empty() {
            return Err(Error::Model("no arm".into()));
        }
        for (k, arm) in self.arms.iter().enumerate() {
            if self.arms[..k].iter().any(|other| other.name == arm.name) {
                return Err(Error::Model(format!("two arms are called \"{}\"", arm.name)));
            }
        }
        for name in self.labels.keys() {
            let known = self.arms.iter().flat_map(|arm| arm.emulator.labels()).any(|label| label.name == *name);
            if !known {
                let all: Vec<&str> = self.arms[0].emulator.labels().iter().map(|l| l.name.as_str()).collect();
                return Err(Error::Model(format!(
                    "no emulator has the label \"{name}\"; there are {}",
                    all.join(", ")
                )));
            }
        }
        Ok(())
    }

    fn check_spectra(&self) -> Result<()> {
        for (low, high) in &self.spectra.mask {
            if !(low.is_finite() && high.is_finite() && low < high) {
                return Err(Error::Model(format!("spectra.mask: {low} to {high} is no interval")));
            }
        }
        let floor = self.spectra.error_floor;
        if !(floor.is_finite() && floor >= 0.0) {
            return Err(Error::Model(format!("spectra.error_floor must not be negative: {floor}")));
        }
        Ok(())
    }

    fn resolve_velocity(&self, parameters: &mut Vec<ModelParameter>) -> Result<Velocity> {
        // beyond this the series of atanh(v/c) is worse than the network
        const LIMIT: f64 = 30_000.0;
        match self.velocity {
            VelocitySetting::Fixed(v) if v.abs() <= LIMIT => Ok(Velocity::Fixed(v)),
            VelocitySetting::Fixed(v) => Err(Error::Model(format!("velocity {v} km/s is not within ±{LIMIT}"))),
            VelocitySetting::Range(low, high) => {
                check_bounds("velocity", low, high)?;
                if low.abs().max(high.abs()) > LIMIT {
                    return Err(Error::Model(format!("velocity range {low} to {high} km/s is not within ±{LIMIT}")));
                }
                let solver = Parameter { name: "velocity".into(), origin: 0.0, scale: VELOCITY_SCALE };
                parameters.push(ModelParameter { solver, lower: low, upper: high, start: None, prior: None });
                Ok(Velocity::Parameter(parameters.len() - 1))
            }
        }
    }

    fn resolve_arm(&self, arm: &Arm, parameters: &mut Vec<ModelParameter>) -> Result<ModelArm> {
        let name = &arm.name;
        let wavelength = arm.emulator.wavelength();
        if wavelength.is_empty() {
            return Err(Error::Model(format!(
                "arm \"{name}\": the emulator carries no wavelengths; give `wavelength`"
            )));
        }
        let grid = TemplateGrid::new(wavelength).ok_or_else(|| {
            Error::Model(format!(
                "arm \"{name}\": the emulator's wavelengths are not uniform in ln λ, in any number of pieces"
            ))
        })?;
        if let Some((low, high)) = arm.range {
            check_bounds(&format!("arm \"{name}\": range"), low, high)?;
        }
        let continuum = arm.continuum.unwrap_or(self.continuum);
        check_continuum(name, continuum)?;
        let mut inputs = Vec::new();
        for label in arm.emulator.labels() {
            let source = self.resolve_label(label, parameters)?;
            inputs.push(LabelInput { source, transform: label.transform, mean: label.mean, std: label.std });
        }
        Ok(ModelArm {
            name: name.clone(),
            emulator: arm.emulator.clone(),
            grid,
            range: arm.range,
            interpolation: arm.interpolation,
            continuum,
            inputs,
        })
    }

    /// The label's parameter, shared between arms, or its fixed value.
    fn resolve_label(&self, label: &Label, parameters: &mut Vec<ModelParameter>) -> Result<Source> {
        let settings = self.labels.get(&label.name).copied().unwrap_or_default();
        let (lower, upper) = settings.bounds.unwrap_or((label.min, label.max));
        if let Some(value) = settings.fixed {
            if !value.is_finite() || (label.transform == Transform::Log10 && value <= 0.0) {
                return Err(Error::Model(format!("labels.{}: fixed = {value} is no value of it", label.name)));
            }
            return Ok(Source::Fixed(value));
        }
        if let Some(p) = parameters.iter().position(|p| p.solver.name == label.name) {
            if settings.bounds.is_none() {
                // inside every arm's training range
                parameters[p].lower = parameters[p].lower.max(lower);
                parameters[p].upper = parameters[p].upper.min(upper);
                check_bounds(&label.name, parameters[p].lower, parameters[p].upper)?;
            }
            return Ok(Source::Parameter(p));
        }
        check_bounds(&label.name, lower, upper)?;
        if label.transform == Transform::Log10 && lower <= 0.0 {
            return Err(Error::BadBounds { parameter: label.name.clone(), lower, upper });
        }
        let start = self.check_start(&label.name, settings.start, lower, upper)?;
        if let Some((mean, sigma)) = settings.prior
            && !(mean.is_finite() && sigma.is_finite() && sigma > 0.0)
        {
            return Err(Error::Model(format!("labels.{}: prior of mean {mean} and sigma {sigma}", label.name)));
        }
        let (origin, scale) = match label.transform {
            Transform::Identity => (label.mean, label.std),
            Transform::Log10 => {
                let centre = 10f64.powf(label.mean);
                (centre, centre * std::f64::consts::LN_10 * label.std)
            }
        };
        let solver = Parameter { name: label.name.clone(), origin, scale };
        parameters.push(ModelParameter { solver, lower, upper, start, prior: settings.prior });
        Ok(Source::Parameter(parameters.len() - 1))
    }

    fn check_start(&self, name: &str, start: Option<f64>, lower: f64, upper: f64) -> Result<Option<f64>> {
        match start {
            Some(x) if !x.is_finite() => Err(Error::Model(format!("BadStart: {name} starts at {x}"))),
            Some(x) if (x < lower || x > upper) && !self.clip_starts => {
                Err(Error::Model(format!("StartOutOfBounds: {name} starts at {x}, its bounds are {lower} to {upper}")))
            }
            other => Ok(other),
        }
    }
}

fn check_bounds(parameter: &str, lower: f64, upper: f64) -> Result<()> {
    if lower.is_finite() && upper.is_finite() && lower <= upper {
        return Ok(());
    }
    Err(Error::BadBounds { parameter: parameter.to_string(), lower, upper })
}

fn check_continuum(arm: &str, continuum: Continuum) -> Result<()> {
    let allowed = match continuum.kind {
        ContinuumKind::None => 0..=0,
        ContinuumKind::Chebyshev => 1..=MOST_PARAMETERS,
        ContinuumKind::Rbf => 4..=MOST_PARAMETERS,
    };
    if allowed.contains(&continuum.terms) {
        return Ok(());
    }
    let (low, high) = (allowed.start(), allowed.end());
    Err(Error::Model(format!("arm \"{arm}\": {} continuum terms, allowed are {low} to {high}", continuum.terms)))
}
