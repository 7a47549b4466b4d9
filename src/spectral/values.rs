//! Values of a fit's parameters and labels by name, whether they are free, tied or fixed.

use crate::math::covariance::pair_index;
use crate::recording::{Rotation, Source, Velocity};
use crate::spectral::{FitRow, SpectralFitter};

impl SpectralFitter {
    /// Returns value and standard error of a parameter or label in a row; `None` if the model has none of this name.
    /// A fixed one has the error 0, and a tied one the error that follows from those to which it is tied.
    pub fn value(&self, row: &FitRow, name: &str) -> Option<(f64, f64)> {
        let model = &self.model;
        let source = match (name, model.velocity(), &model.vsini) {
            ("velocity", Velocity::Parameter(p), _) => Source::Parameter(p),
            ("velocity", Velocity::Fixed(velocity), _) => Source::Fixed(velocity),
            ("vsini", _, rotation) => match rotation.as_ref()? {
                Rotation::Parameter { parameter, .. } => Source::Parameter(*parameter),
                Rotation::Fixed(vsini) => Source::Fixed(*vsini),
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
        Some((
            source.value(|p| row.parameters[p]),
            standard_error(row, &source),
        ))
    }
}

/// Returns the standard error in a row of a weighted sum of parameters, Σ f_a θ_a: √(Σ_ab f_a f_b covariance_ab).
fn standard_error(row: &FitRow, source: &Source) -> f64 {
    let weights = source.slopes();
    if let [(p, weight)] = weights[..] {
        // This holds even if a correlation is not a number.
        return row.errors[p] * weight.abs();
    }
    let count = row.parameters.len();
    let correlation = |a: usize, b: usize| {
        if a == b {
            1.0
        } else {
            row.correlations[pair_index(a.min(b), a.max(b), count)]
        }
    };
    let pairs = weights
        .iter()
        .flat_map(|a| weights.iter().map(move |b| (a, b)));
    let variance: f64 = pairs
        .map(|((a, f_a), (b, f_b))| {
            f_a * f_b * row.errors[*a] * row.errors[*b] * correlation(*a, *b)
        })
        .sum();
    variance.sqrt()
}
