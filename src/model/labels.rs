//! Resolves the settings of labels to the model's parameters and the sources of network inputs.

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
pub struct LabelResolver<'a> {
    pub settings: &'a BTreeMap<String, LabelSettings>,
    pub clip_starts: bool,
    /// Names of all labels of all arms.
    pub label_names: Vec<&'a str>,
}

impl LabelResolver<'_> {
    /// Returns a copy of the user's settings of a label, or the default ones if there are none.
    fn settings_of(&self, name: &str) -> LabelSettings {
        self.settings.get(name).cloned().unwrap_or_default()
    }

    /// Appends a label's parameter to `parameters`, unless it is fixed or tied. Narrows the bounds instead if another
    /// arm has declared it.
    pub fn declare_parameter(
        &self,
        label: &Label,
        parameters: &mut Vec<ModelParameter>,
    ) -> Result<()> {
        // 1. A fixed or tied label has no parameter.
        let settings = self.settings_of(&label.name);
        if settings.fixed.is_some() || settings.tied.is_some() {
            return check_fixed_or_tied(label, &settings);
        }
        let (lower, upper) = physical_bounds(label, &settings);
        if let Some(parameter) = parameters.iter_mut().find(|p| p.solver.name == label.name) {
            // 2. The bounds of a label that arms share lie inside the training range of each of them.
            if settings.bounds.is_none() {
                parameter.lower = parameter.lower.max(lower);
                parameter.upper = parameter.upper.min(upper);
                check_bounds(&label.name, parameter.lower, parameter.upper)?;
            }
            return Ok(());
        }
        // 3. A new parameter is scaled as the network scales its input.
        check_bounds(&label.name, lower, upper)?;
        if label.transform == Transform::Log10 && lower <= 0.0 {
            let message = format!(
                "its bounds are {lower} to {upper}, but the lower one must be positive, as the network takes its \
                 logarithm"
            );
            return Err(label_error(&label.name, message));
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
        parameters.push(self.make_parameter(solver, lower..=upper, settings)?);
        Ok(())
    }

    /// Makes a parameter from its scaling, physical bounds and settings; fails on a start out of bounds or a prior
    /// without σ > 0.
    pub fn make_parameter(
        &self,
        solver: Parameter,
        bounds: RangeInclusive<f64>,
        settings: LabelSettings,
    ) -> Result<ModelParameter> {
        let (lower, upper) = bounds.into_inner();
        let name = &solver.name;
        match settings.start {
            Some(start) if !start.is_finite() => {
                let message = format!("{name} starts at {start}, which is no finite number");
                return Err(Error::model_setting(format!("labels.{name}"), message));
            }
            Some(start) if (start < lower || start > upper) && !self.clip_starts => {
                let message =
                    format!("{name} starts at {start}, outside its bounds {lower} to {upper}");
                return Err(Error::model_setting(format!("labels.{name}"), message));
            }
            _ => {}
        }
        if let Some((mean, sigma)) = settings.prior
            && !(mean.is_finite() && sigma.is_finite() && sigma > 0.0)
        {
            return Err(label_error(
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
    pub fn motion_settings(&self, name: &str) -> Result<LabelSettings> {
        let settings = self.settings_of(name);
        let LabelColumns { lower, upper, .. } = &settings.columns;
        let is_constrained =
            settings.bounds.is_some() || settings.fixed.is_some() || settings.tied.is_some();
        if is_constrained || lower.is_some() || upper.is_some() {
            let message =
                format!("{name}: a start and a prior may be said of it, its range elsewhere");
            return Err(Error::model_setting(format!("labels.{name}"), message));
        }
        Ok(settings)
    }

    /// Returns the source of a network input: a parameter's index, a fixed value, or the linear combination of its tie.
    pub fn resolve_source(&self, label: &Label, parameters: &[ModelParameter]) -> Result<Source> {
        // 1. A fixed label has a value, a free one a parameter.
        let settings = self.settings_of(&label.name);
        if let Some(value) = settings.fixed {
            return Ok(Source::Fixed(value));
        }
        let Some(text) = settings.tied else {
            return self
                .find_parameter(&label.name, parameters)
                .map(Source::Parameter);
        };
        // 2. A tied label is a linear combination of others, of which fixed ones count as constants.
        let tie_error =
            |message: String| label_error(&label.name, format!("tied = \"{text}\": {message}"));
        let tie = tied::parse_tie(&text).map_err(tie_error)?;
        let mut constant = tie.constant;
        let mut terms = Vec::new();
        for (name, factor) in tie.terms {
            let other_label = self.settings_of(&name);
            if !self.label_names.contains(&name.as_str()) {
                let hint = hint(&name, self.label_names.iter().copied());
                return Err(tie_error(format!("no emulator has a label `{name}`{hint}")));
            } else if other_label.tied.is_some() {
                return Err(tie_error(format!("`{name}` is tied itself")));
            } else if let Some(value) = other_label.fixed {
                constant += factor * value;
            } else {
                terms.push((self.find_parameter(&name, parameters)?, factor));
            }
        }
        Ok(if terms.is_empty() {
            Source::Fixed(constant)
        } else {
            Source::Linear { constant, terms }
        })
    }

    /// Returns the index of the parameter of this name; fails if there is none.
    fn find_parameter(&self, name: &str, parameters: &[ModelParameter]) -> Result<usize> {
        let index = parameters.iter().position(|p| p.solver.name == name);
        index.ok_or_else(|| label_error(name, "no parameter of this name"))
    }
}

/// Makes the error that the settings of a label (or of velocity or vsini) make no sense.
fn label_error(name: &str, message: impl Display) -> Error {
    let setting = format!("labels.{name}");
    let message = format!("{setting}: {message}");
    Error::model_setting(setting, message)
}

/// Returns a label's physical bounds: those of its settings, or its training range where these give none or a column.
fn physical_bounds(label: &Label, settings: &LabelSettings) -> (f64, f64) {
    let (lower, upper) = settings.bounds.unwrap_or((label.min, label.max));
    let lower = if settings.columns.lower.is_some() {
        label.min
    } else {
        lower
    };
    let upper = if settings.columns.upper.is_some() {
        label.max
    } else {
        upper
    };
    (lower, upper)
}

/// Fails if a fixed or tied label also has a start, bounds or a prior, or if its fixed value is impossible.
fn check_fixed_or_tied(label: &Label, settings: &LabelSettings) -> Result<()> {
    let LabelSettings {
        start,
        bounds,
        fixed,
        tied,
        prior,
        columns,
    } = settings;
    let is_constrained = start.is_some()
        || bounds.is_some()
        || prior.is_some()
        || *columns != LabelColumns::default();
    if let Some(value) = fixed
        && (!value.is_finite() || (label.transform == Transform::Log10 && *value <= 0.0))
    {
        return Err(label_error(
            &label.name,
            format!("fixed = {value} is no value of it"),
        ));
    }
    if fixed.is_some() && is_constrained {
        return Err(label_error(
            &label.name,
            "a fixed label has no start, bounds or prior",
        ));
    }
    if tied.is_some() && (is_constrained || fixed.is_some()) {
        return Err(label_error(
            &label.name,
            "a tied label has no start, bounds, value or prior",
        ));
    }
    Ok(())
}
