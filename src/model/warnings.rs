//! Warnings about what is allowed in a model, but seldom meant: assumptions, bounds beyond the training range, labels
//! without effect.

use super::{ModelArm, SpectralModel};
use crate::emulator::{Emulator, Label};
use crate::recording::Source;

/// Relative to a template's largest value. A change that is smaller over the whole training range is lost in the
/// rounding of f32, and no data tell it.
const EFFECT: f64 = 1e-5;
/// Points of the other labels, and values of the label at each, at which its effect is looked for.
const POINTS: usize = 8;
const VALUES: usize = 5;

/// Returns the warning that the emulator of this arm is assumed to have a certain activation, which its file does not
/// say.
fn assumed_activation(arm: &ModelArm) -> String {
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
    pub fn assumptions(&self) -> Vec<String> {
        let assumed = self
            .arms
            .iter()
            .filter(|arm| arm.emulator.assumes_activation());
        assumed.map(assumed_activation).collect()
    }

    /// Returns a sentence for each assumed activation and for each label that may leave its emulator's training range.
    pub fn warnings(&self) -> Vec<String> {
        let beyond = self
            .labels()
            .filter_map(|(arm, l)| self.beyond_training(arm, l));
        self.assumptions().into_iter().chain(beyond).collect()
    }

    /// Returns the names of free labels that change no template at sampled points, so that no spectrum can determine
    /// them. Their errors are infinite.
    pub fn idle_labels(&self) -> Vec<String> {
        let is_idle = |p: usize| {
            let mut own = self
                .labels()
                .filter(|(arm, l)| depends_on(&arm.inputs[*l].source, p))
                .peekable();
            own.peek().is_some() && own.all(|(arm, l)| !has_effect(&arm.emulator, l))
        };
        let free = self
            .parameters
            .iter()
            .enumerate()
            .filter(|(_, parameter)| parameter.lower < parameter.upper);
        free.filter(|(p, _)| is_idle(*p))
            .map(|(_, parameter)| parameter.solver.name.clone())
            .collect()
    }

    /// Returns all pairs of an arm and the index of a label of its emulator.
    fn labels(&self) -> impl Iterator<Item = (&ModelArm, usize)> {
        self.arms
            .iter()
            .flat_map(|arm| (0..arm.inputs.len()).map(move |l| (arm, l)))
    }

    /// Returns a warning if the bounds or value of label `l` of an arm leave its training range, else `None`.
    fn beyond_training(&self, arm: &ModelArm, l: usize) -> Option<String> {
        let label = &arm.emulator.labels()[l];
        let source = &arm.inputs[l].source;
        let (lower, upper) = source.range(|p| self.parameters[p].bounds()).into_inner();
        let what = match source {
            Source::Parameter(_) => "its bounds are",
            Source::Fixed(_) => "it is held at",
            Source::Linear { .. } => "it is tied, and may reach",
        };
        let Label { name, min, max, .. } = label;
        if lower >= *min && upper <= *max {
            return None;
        }
        // sums of tied labels are not exact: 0.35000000000000003 is 0.35
        let [low, high] = [lower, upper].map(|x| format!("{x:.6}").parse().unwrap_or(x));
        let said = if low == high {
            low.to_string()
        } else {
            format!("{low} to {high}")
        };
        Some(format!(
            "label {name}: {what} {said}, but the emulator of arm \"{}\" was trained from {min} to {max}, and \
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

/// Returns whether a template changes when label `l` does, at a few points spread over the training range.
fn has_effect(emulator: &Emulator, l: usize) -> bool {
    /// Multiples of it fill an interval evenly.
    const GOLDEN: f64 = 0.618_033_988_749_895;
    let at = |label: &Label, share: f64| label.min + share * (label.max - label.min);
    (0..POINTS).any(|k| {
        let share = |other: usize| ((k * (other + 1)) as f64 * GOLDEN + 0.5).fract();
        let row = |value: usize| {
            let value = value as f64 / (VALUES - 1) as f64;
            let labels = emulator.labels().iter().enumerate();
            labels
                .map(move |(i, label)| at(label, if i == l { value } else { share(i) }))
                .collect::<Vec<f64>>()
        };
        let templates = emulator.templates(&(0..VALUES).flat_map(row).collect::<Vec<f64>>());
        let (first, others) = templates.split_at(emulator.pixels());
        let largest = first.iter().fold(0f32, |most, t| most.max(t.abs()));
        let is_near =
            |(t, other): (&f32, &f32)| f64::from((t - other).abs()) <= EFFECT * f64::from(largest);
        !others
            .chunks_exact(first.len())
            .all(|other| first.iter().zip(other).all(is_near))
    })
}
