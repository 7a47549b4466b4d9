//! A fit's parameters and labels by name, free or not.

use super::{FitRow, Fitter};
use crate::solver::recording::{Source, Velocity};

impl Fitter {
    /// Value and standard error of a parameter or label at a row's fit. What is fixed has the error 0; `None` when the model has
    /// nothing of this name.
    pub fn value(&self, row: &FitRow, name: &str) -> Option<(f64, f64)> {
        let model = &self.model;
        if let Some(p) = model.parameters.iter().position(|parameter| parameter.solver.name == name) {
            return Some((row.parameters[p], row.errors[p]));
        }
        if name == "velocity" {
            return if let Velocity::Fixed(velocity) = model.velocity { Some((velocity, 0.0)) } else { None };
        }
        let labels = model.arms.iter().flat_map(|arm| arm.emulator.labels().iter().zip(&arm.inputs));
        labels.into_iter().find(|(label, _)| label.name == name).map(|(_, input)| match input.source {
            Source::Fixed(x) => (x, 0.0),
            Source::Parameter(p) => (row.parameters[p], row.errors[p]),
        })
    }
}
