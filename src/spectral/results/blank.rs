//! Rows of spectra that are not fitted yet, or cannot be fitted.

use crate::error::Error;
use crate::model::{Fault, SpectralModel};
use crate::solver::Status;
use crate::spectra::{Ids, Spectra};
use crate::spectral::results::row::{FitRow, Id};

/// Returns a row of results that has a spectrum's id, file and row number, but no fit yet.
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

/// Returns a row of results without a fit that belongs to no spectrum, with lengths that suit the model.
pub fn nobody(model: &SpectralModel) -> FitRow {
    let none = vec![0; model.arms.len()];
    FitRow {
        continuum_terms: none.clone(),
        unreached: none,
        ..FitRow::new(0, model.parameters.len())
    }
}

/// Marks the row of a spectrum that cannot be fitted as a bad input, with the fault's name as status text and its
/// detail as message. Its parameters stay NaN.
pub fn refuse(row: &mut FitRow, fault: Fault) {
    row.status = Status::BadInput;
    row.status_text = fault.cause.name().into();
    row.message = fault.detail;
}

/// Writes a spectrum's start (or else the model's, or NaN) into its row, with a message that the run was cancelled
/// before its fit. `start` is the user's or that of the first guess.
pub fn place_at_start(model: &SpectralModel, row: &mut FitRow, start: Option<&[f64]>) {
    row.message = "interrupted before its fit began; the parameters are its start".into();
    for (p, parameter) in model.parameters.iter().enumerate() {
        row.parameters[p] = start.map_or(parameter.start.unwrap_or(f64::NAN), |x| x[p]);
    }
}

/// Returns the error, with file, row and id, with which a strict run ends at a spectrum that cannot be fitted.
pub fn strict(row: &FitRow, fault: &Fault) -> Error {
    Error::BadSpectrum {
        file: if row.file.is_empty() {
            "spectra".into()
        } else {
            row.file.to_string()
        },
        row: row.row,
        id: row.id.to_string(),
        cause: format!("{}: {}", fault.cause.name(), fault.detail),
    }
}
