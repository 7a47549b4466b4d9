//! Warnings about settings that are allowed, but seldom intended: assumptions, bounds beyond the training range, labels
//! without effect.

use super::{ModelArm, SpectralModel};
use crate::emulator::{Emulator, Label};
use crate::recording::Source;

/// Smallest change of a template by a label, relative to the template's largest value. A label that changes it less
/// over the whole training range is lost in the rounding of f32, and no data determine it.
const MIN_RELATIVE_EFFECT: f64 = 1e-5;
/// Number of points in the space of the other labels at which a label's effect is looked for.
const SAMPLED_POINTS: usize = 8;
/// Number of values of the label itself at each of these points.
const VALUES_PER_POINT: usize = 5;

/// Returns the warning that the emulator of this arm is assumed to have a certain activation, which its file does not
/// say.
fn describe_assumed_activation(arm: &ModelArm) -> String {
    format!(
        "arm \"{}\": {} does not say its activation, and {} is assumed. The Payne's networks of 2019 have \
         sigmoid: name it in the model file, `activation = \"sigmoid\"`",
        arm.name,
        arm.emulator.source(),
        arm.emulator.activation().name()
    )
}

impl SpectralModel {
    /// Returns a sentence for each arm whose emulator's activation is assumed because its file does not say it.
    #[doc(hidden)]
    pub fn assumptions(&self) -> Vec<String> {
        self.arms
            .iter()
            .filter(|arm| arm.emulator.assumes_activation())
            .map(describe_assumed_activation)
            .collect()
    }

    /// Returns a sentence for each assumed activation and for each label that may leave its emulator's training range.
    #[doc(hidden)]
    pub fn warnings(&self) -> Vec<String> {
        let range_warnings = self
            .arm_labels()
            .filter_map(|(arm, label)| self.warn_beyond_training(arm, label));
        self.assumptions()
            .into_iter()
            .chain(range_warnings)
            .collect()
    }

    /// Returns the names of free labels that change no template at sampled points, so that no spectrum can determine
    /// them. Their errors are infinite.
    #[doc(hidden)]
    pub fn idle_labels(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (index, parameter) in self.parameters.iter().enumerate() {
            if parameter.lower < parameter.upper && self.is_idle(index) {
                names.push(parameter.solver.name.clone());
            }
        }
        names
    }

    /// Returns whether network inputs depend on a parameter, but none of them changes its template.
    fn is_idle(&self, parameter: usize) -> bool {
        let mut dependent_labels = self
            .arm_labels()
            .filter(|(arm, label)| depends_on(&arm.inputs[*label].source, parameter))
            .peekable();
        dependent_labels.peek().is_some()
            && dependent_labels.all(|(arm, label)| !has_effect(&arm.emulator, label))
    }

    /// Returns all pairs of an arm and the index of a label of its emulator.
    fn arm_labels(&self) -> impl Iterator<Item = (&ModelArm, usize)> {
        self.arms
            .iter()
            .flat_map(|arm| (0..arm.inputs.len()).map(move |label| (arm, label)))
    }

    /// Returns a warning if the bounds or the value of an arm's label leave its training range, else `None`.
    fn warn_beyond_training(&self, arm: &ModelArm, index: usize) -> Option<String> {
        let label = &arm.emulator.labels()[index];
        let source = &arm.inputs[index].source;
        let (lower, upper) = source.range(|p| self.parameters[p].bounds()).into_inner();
        let verb = match source {
            Source::Parameter(_) => "its bounds are",
            Source::Fixed(_) => "it is held at",
            Source::Linear { .. } => "it is tied, and may reach",
        };
        let Label { name, min, max, .. } = label;
        if lower >= *min && upper <= *max {
            return None;
        }
        // Sums of tied labels are not exact: we print 0.35000000000000003 as 0.35.
        let [low, high] = [lower, upper].map(|x| format!("{x:.6}").parse().unwrap_or(x));
        let values = if low == high {
            low.to_string()
        } else {
            format!("{low} to {high}")
        };
        Some(format!(
            "label {name}: {verb} {values}, but the emulator of arm \"{}\" was trained from {min} to {max}, and \
             extrapolates beyond",
            arm.name
        ))
    }
}

/// Returns whether a network input depends on this parameter, directly or by a tie.
fn depends_on(source: &Source, parameter: usize) -> bool {
    match source {
        Source::Parameter(p) => *p == parameter,
        Source::Linear { terms, .. } => terms.iter().any(|(p, _)| *p == parameter),
        Source::Fixed(_) => false,
    }
}

/// Returns whether the template changes with a label, at a few points spread over the training range.
fn has_effect(emulator: &Emulator, label: usize) -> bool {
    (0..SAMPLED_POINTS).any(|point| has_effect_at(emulator, label, point))
}

/// Returns whether the template changes with a label while the other labels stay at a point of their training ranges.
fn has_effect_at(emulator: &Emulator, varied_label: usize, point: usize) -> bool {
    /// Golden ratio, whose multiples (modulo 1) fill an interval evenly.
    const GOLDEN_RATIO: f64 = 0.618_033_988_749_895;
    // 1. Evaluate templates at several values of the label.
    let mut label_vectors = Vec::new();
    for step in 0..VALUES_PER_POINT {
        for (index, label) in emulator.labels().iter().enumerate() {
            let share = if index == varied_label {
                step as f64 / (VALUES_PER_POINT - 1) as f64
            } else {
                ((point * (index + 1)) as f64 * GOLDEN_RATIO + 0.5).fract()
            };
            label_vectors.push(label.min + share * (label.max - label.min));
        }
    }
    let templates = emulator.templates(&label_vectors);
    // 2. Compare them with the first, relative to its largest value.
    let (first_template, other_templates) = templates.split_at(emulator.pixels());
    let largest_flux = first_template
        .iter()
        .fold(0f32, |largest, flux| largest.max(flux.abs()));
    let smallest_effect = MIN_RELATIVE_EFFECT * f64::from(largest_flux);
    let is_near =
        |(first, other): (&f32, &f32)| f64::from((first - other).abs()) <= smallest_effect;
    !other_templates
        .chunks_exact(first_template.len())
        .all(|template| first_template.iter().zip(template).all(is_near))
}
