//! Values of a fit's parameters and labels by name, whether they are free, tied or fixed.

use crate::math::covariance::pair_index;
use crate::recording::{Rotation, Source, Velocity};
use crate::spectral::{FitRow, SpectralFitter};

impl SpectralFitter {
    /// Returns value and standard error of a parameter or label in a row; `None` if the model has none of this name.
    /// A fixed one has the error 0, and a tied one the error that follows from those to which it is tied.
    pub fn value(&self, row: &FitRow, name: &str) -> Option<(f64, f64)> {
        let model = &self.model;
        let source = match (name, &model.velocity, &model.vsini) {
            ("velocity", Velocity::Parameter(p), _) => Source::Parameter(*p),
            ("velocity", Velocity::Fixed(x), _) => Source::Fixed(*x),
            ("vsini", _, rotation) => match rotation.as_ref()? {
                Rotation::Parameter { parameter, .. } => Source::Parameter(*parameter),
                Rotation::Fixed(x) => Source::Fixed(*x),
            },
            _ => {
                let mut labels = model
                    .arms
                    .iter()
                    .flat_map(|arm| arm.emulator.labels().iter().zip(&arm.inputs));
                labels
                    .find(|(label, _)| label.name == name)?
                    .1
                    .source
                    .clone()
            }
        };
        Some((source.value(|p| row.parameters[p]), error(row, &source)))
    }
}

/// Returns the standard error in a row of a weighted sum of parameters, Σ f_a θ_a: √(Σ_ab f_a f_b covariance_ab).
fn error(row: &FitRow, source: &Source) -> f64 {
    let slopes = source.slopes();
    let count = row.parameters.len();
    let correlation = |a: usize, b: usize| {
        let (a, b) = (a.min(b), a.max(b));
        if a == b {
            1.0
        } else {
            row.correlations[pair_index(a, b, count)]
        }
    };
    if let [(p, factor)] = slopes[..] {
        return row.errors[p] * factor.abs(); // also if a correlation is not a number
    }
    let pairs = slopes
        .iter()
        .flat_map(|a| slopes.iter().map(move |b| (a, b)));
    pairs
        .map(|((a, f), (b, g))| f * g * row.errors[*a] * row.errors[*b] * correlation(*a, *b))
        .sum::<f64>()
        .sqrt()
}
