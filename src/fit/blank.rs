//! Rows of spectra that have no fit, yet or ever.

use super::row::{FitRow, Id};
use crate::model::{Cause, SpectralModel};
use crate::solver::Status;
use crate::spectra::{Ids, Spectra};

/// A row without a fit yet.
pub fn blank(model: &SpectralModel, spectra: &Spectra, place: usize) -> FitRow {
    let count = model.parameters.len();
    FitRow {
        id: match &spectra.ids {
            Ids::Integer(ids) => Id::Integer(ids[place]),
            Ids::Text(ids) => Id::Text(ids[place].clone()),
        },
        file: spectra.file.clone(),
        row: spectra.rows[place],
        status: Status::Interrupted,
        status_text: Status::Interrupted.name().into(),
        rounds: 0,
        evaluations: 0,
        chi2: f64::NAN,
        dof: 0,
        objective: f64::NAN,
        parameters: vec![f64::NAN; count],
        errors: vec![f64::NAN; count],
        at_bound: 0,
        flags: 0,
        start: -1,
        n_starts_agree: 0,
        correlations: vec![f64::NAN; count * count.saturating_sub(1) / 2],
    }
}

/// The row of a spectrum that cannot be fitted: parameters at their start where the user or the model names one.
pub fn refuse(model: &SpectralModel, row: &mut FitRow, cause: Cause, start: Option<&[f64]>) {
    row.status = Status::BadInput;
    row.status_text = cause.name().into();
    for (p, parameter) in model.parameters.iter().enumerate() {
        row.parameters[p] = start.map_or(parameter.start.unwrap_or(f64::NAN), |x| x[p]);
    }
}
