//! From what is said of labels to parameters and sources.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

use super::builder::check_bounds;
use super::settings::{LabelColumns, LabelSettings};
use super::{ModelParameter, tied};
use crate::emulator::Label;
use crate::error::{Error, Result};
use crate::recording::{Parameter, Source, Transform};
use crate::suggest::hint;

/// Settings of the labels as the user gave them, by name.
pub struct Labels<'a> {
    pub settings: &'a BTreeMap<String, LabelSettings>,
    pub clip_starts: bool,
    /// All labels of all arms.
    pub known: Vec<&'a str>,
}

impl Labels<'_> {
    /// Returns a copy of the user's settings of a label, or the default ones if there are none.
    fn of(&self, name: &str) -> LabelSettings {
        self.settings.get(name).cloned().unwrap_or_default()
    }

    /// Appends a label's parameter to `parameters`, unless it is fixed or tied; if another arm has, narrows its bounds
    /// instead.
    pub fn declare(&self, label: &Label, parameters: &mut Vec<ModelParameter>) -> Result<()> {
        let settings = self.of(&label.name);
        if settings.fixed.is_some() || settings.tied.is_some() {
            return check_known(label, &settings);
        }
        let (lower, upper) = bounds(label, &settings);
        if let Some(parameter) = parameters.iter_mut().find(|p| p.solver.name == label.name) {
            if settings.bounds.is_none() {
                // inside every arm's training range
                parameter.lower = parameter.lower.max(lower);
                parameter.upper = parameter.upper.min(upper);
                check_bounds(&label.name, parameter.lower, parameter.upper)?;
            }
            return Ok(());
        }
        check_bounds(&label.name, lower, upper)?;
        if label.transform == Transform::Log10 && lower <= 0.0 {
            let message = format!(
                "its bounds are {lower} to {upper}, but the lower one must be positive, as the network takes its \
                 logarithm"
            );
            return Err(wrong_label(&label.name, message));
        }
        let (origin, scale) = match label.transform {
            Transform::Identity => (label.mean, label.std),
            Transform::Log10 => {
                let centre = 10f64.powf(label.mean);
                (centre, centre * std::f64::consts::LN_10 * label.std)
            }
        };
        let solver = Parameter {
            name: label.name.clone(),
            origin,
            scale,
        };
        parameters.push(self.parameter(solver, lower..=upper, settings)?);
        Ok(())
    }

    /// Makes a parameter from its scaling, physical bounds and settings; fails on a start out of bounds or a prior
    /// without σ > 0.
    pub fn parameter(
        &self,
        solver: Parameter,
        bounds: RangeInclusive<f64>,
        settings: LabelSettings,
    ) -> Result<ModelParameter> {
        let (lower, upper) = bounds.into_inner();
        let name = &solver.name;
        match settings.start {
            Some(x) if !x.is_finite() => {
                let message = format!("{name} starts at {x}, which is no finite number");
                return Err(Error::model_setting(format!("labels.{name}"), message));
            }
            Some(x) if (x < lower || x > upper) && !self.clip_starts => {
                let message =
                    format!("{name} starts at {x}, outside its bounds {lower} to {upper}");
                return Err(Error::model_setting(format!("labels.{name}"), message));
            }
            _ => {}
        }
        if let Some((mean, sigma)) = settings.prior
            && !(mean.is_finite() && sigma.is_finite() && sigma > 0.0)
        {
            return Err(wrong_label(
                name,
                format!("prior of mean {mean} and sigma {sigma}"),
            ));
        }
        let LabelSettings {
            start,
            prior,
            columns,
            ..
        } = settings;
        Ok(ModelParameter {
            solver,
            lower,
            upper,
            start,
            prior,
            columns,
        })
    }

    /// Returns the settings of velocity or vsini; fails unless they are a start and a prior alone.
    pub fn motion(&self, name: &str) -> Result<LabelSettings> {
        let settings = self.of(name);
        let LabelColumns { lower, upper, .. } = &settings.columns;
        let other =
            settings.bounds.is_some() || settings.fixed.is_some() || settings.tied.is_some();
        if other || lower.is_some() || upper.is_some() {
            let message =
                format!("{name}: a start and a prior may be said of it, its range elsewhere");
            return Err(Error::model_setting(format!("labels.{name}"), message));
        }
        Ok(settings)
    }

    /// Returns where a network input comes from: a parameter's index, a fixed value, or the linear combination of its
    /// tie.
    pub fn source(&self, label: &Label, parameters: &[ModelParameter]) -> Result<Source> {
        let settings = self.of(&label.name);
        if let Some(value) = settings.fixed {
            return Ok(Source::Fixed(value));
        }
        let Some(text) = settings.tied else {
            return self.free(&label.name, parameters).map(Source::Parameter);
        };
        let wrong =
            |message: String| wrong_label(&label.name, format!("tied = \"{text}\": {message}"));
        let tie = tied::parse(&text).map_err(wrong)?;
        let (mut constant, mut terms) = (tie.constant, Vec::new());
        for (name, factor) in tie.terms {
            let other = self.of(&name);
            if !self.known.contains(&name.as_str()) {
                let hint = hint(&name, self.known.iter().copied());
                return Err(wrong(format!("no emulator has a label `{name}`{hint}")));
            } else if other.tied.is_some() {
                return Err(wrong(format!("`{name}` is tied itself")));
            } else if let Some(value) = other.fixed {
                constant += factor * value;
            } else {
                terms.push((self.free(&name, parameters)?, factor));
            }
        }
        Ok(if terms.is_empty() {
            Source::Fixed(constant)
        } else {
            Source::Linear { constant, terms }
        })
    }

    /// Returns the index of the parameter of this name; fails if there is none.
    fn free(&self, name: &str, parameters: &[ModelParameter]) -> Result<usize> {
        let place = parameters.iter().position(|p| p.solver.name == name);
        place.ok_or_else(|| wrong_label(name, "no parameter of this name"))
    }
}

/// Makes the error that the settings of a label (or of velocity or vsini) make no sense.
fn wrong_label(name: &str, message: impl Display) -> Error {
    let setting = format!("labels.{name}");
    let message = format!("{setting}: {message}");
    Error::model_setting(setting, message)
}

/// Returns a label's physical bounds: those of its settings, or its training range where these give none or a column.
fn bounds(label: &Label, settings: &LabelSettings) -> (f64, f64) {
    let (lower, upper) = settings.bounds.unwrap_or((label.min, label.max));
    let or = |said: f64, column: &Option<String>, range: f64| {
        if column.is_some() { range } else { said }
    };
    let LabelColumns {
        lower: low,
        upper: high,
        ..
    } = &settings.columns;
    (or(lower, low, label.min), or(upper, high, label.max))
}

/// Fails if a fixed or tied label also has a start, bounds or a prior, or if its fixed value is impossible.
fn check_known(label: &Label, settings: &LabelSettings) -> Result<()> {
    let LabelSettings {
        start,
        bounds,
        fixed,
        tied,
        prior,
        columns,
    } = settings;
    let more = start.is_some()
        || bounds.is_some()
        || prior.is_some()
        || *columns != LabelColumns::default();
    if let Some(value) = fixed
        && (!value.is_finite() || (label.transform == Transform::Log10 && *value <= 0.0))
    {
        return Err(wrong_label(
            &label.name,
            format!("fixed = {value} is no value of it"),
        ));
    }
    if fixed.is_some() && more {
        return Err(wrong_label(
            &label.name,
            "a fixed label has no start, bounds or prior",
        ));
    }
    if tied.is_some() && (more || fixed.is_some()) {
        return Err(wrong_label(
            &label.name,
            "a tied label has no start, bounds, value or prior",
        ));
    }
    Ok(())
}
