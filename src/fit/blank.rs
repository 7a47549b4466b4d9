//! Rows of spectra that are not fitted yet, or cannot be fitted.

use super::row::{FitRow, Id};
use crate::error::Error;
use crate::model::{Fault, SpectralModel};
use crate::solver::Status;
use crate::spectra::{Ids, Spectra};

/// Returns the row of a spectrum that is not fitted yet.
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

/// Returns a row without a fit that belongs to no spectrum.
pub fn nobody(model: &SpectralModel) -> FitRow {
    FitRow { continuum_terms: vec![0; model.arms.len()], ..FitRow::new(0, model.parameters.len()) }
}

/// Sets the status of a spectrum that cannot be fitted. Its parameters stay NaN.
pub fn refuse(row: &mut FitRow, fault: Fault) {
    row.status = Status::BadInput;
    row.status_text = fault.cause.name().into();
    row.message = fault.detail;
}

/// Fills the row of a spectrum whose run was cancelled before its fit began. Its parameters are the start of the user,
/// of the first guess or of the model, if there is one.
pub fn place_at_start(model: &SpectralModel, row: &mut FitRow, start: Option<&[f64]>) {
    row.message = "interrupted before its fit began; the parameters are its start".into();
    for (p, parameter) in model.parameters.iter().enumerate() {
        row.parameters[p] = start.map_or(parameter.start.unwrap_or(f64::NAN), |x| x[p]);
    }
}

/// Returns the error with which a strict run ends at a spectrum that cannot be fitted.
pub fn strict(row: &FitRow, fault: &Fault) -> Error {
    Error::BadSpectrum {
        file: row.file.to_string(),
        row: row.row,
        id: row.id.to_string(),
        cause: format!("{}: {}", fault.cause.name(), fault.detail),
    }
}
