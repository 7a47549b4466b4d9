//! Rows of spectra that have no fit, yet or ever.

use super::row::{FitRow, Id};
use crate::error::Error;
use crate::model::{Fault, SpectralModel};
use crate::solver::Status;
use crate::spectra::{Ids, Spectra};

/// A row without a fit yet.
pub fn blank(model: &SpectralModel, spectra: &Spectra, place: usize) -> FitRow {
    FitRow {
        id: match &spectra.ids {
            Ids::Integer(ids) => Id::Integer(ids[place]),
            Ids::Text(ids) => Id::Text(ids[place].clone()),
        },
        file: spectra.file.clone(),
        row: spectra.rows[place],
        ..nobody(model)
    }
}

/// The same, of no spectrum.
pub fn nobody(model: &SpectralModel) -> FitRow {
    FitRow { continuum_terms: vec![0; model.arms.len()], ..FitRow::new(0, model.parameters.len()) }
}

/// Makes the row of a spectrum that cannot be fitted: its parameters stay NaN.
pub fn refuse(row: &mut FitRow, fault: Fault) {
    row.status = Status::BadInput;
    row.status_text = fault.cause.name().into();
    row.message = fault.detail;
}

/// Parameters at their start where the user, the first guess or the model names one: a blank row then is that of a
/// spectrum whose run was cancelled before its fit began.
pub fn place_at_start(model: &SpectralModel, row: &mut FitRow, start: Option<&[f64]>) {
    row.message = "interrupted before its fit began; the parameters are its start".into();
    for (p, parameter) in model.parameters.iter().enumerate() {
        row.parameters[p] = start.map_or(parameter.start.unwrap_or(f64::NAN), |x| x[p]);
    }
}

/// Returns the error that a strict run makes of a spectrum that cannot be fitted.
pub fn strict(row: &FitRow, fault: &Fault) -> Error {
    Error::BadSpectrum {
        file: row.file.to_string(),
        row: row.row,
        id: row.id.to_string(),
        cause: format!("{}: {}", fault.cause.name(), fault.detail),
    }
}
