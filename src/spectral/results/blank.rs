//! Rows of spectra that are not fitted yet, or cannot be fitted.

use crate::error::Error;
use crate::model::{Jitter, SpectralModel, SpectrumFault};
use crate::solver::Status;
use crate::spectra::{Ids, Spectra};
use crate::spectral::results::row::{FitRow, Id};

/// Returns a row of results that has a spectrum's id, file and row number, but no fit yet.
pub fn blank_row(model: &SpectralModel, spectra: &Spectra, index: usize) -> FitRow {
    FitRow {
        id: match &spectra.ids {
            Ids::Integer(ids) => Id::Integer(ids[index]),
            Ids::Text(ids) => Id::Text(ids[index].clone()),
        },
        file: spectra.file.clone(),
        row: spectra.rows[index],
        ..blank_row_without_spectrum(model)
    }
}

/// Returns a row of results without a fit that belongs to no spectrum, with lists of the model's lengths.
pub fn blank_row_without_spectrum(model: &SpectralModel) -> FitRow {
    let arms = model.arms.len();
    let jitter = match model.spectra.jitter {
        Jitter::Fitted => vec![f64::NAN; arms],
        Jitter::Fraction(_) => Vec::new(),
    };
    FitRow {
        jitter: jitter.clone(),
        jitter_errors: jitter.clone(),
        error_factors: jitter,
        continuum_terms: vec![0; arms],
        unreached: vec![0; arms],
        ..FitRow::new(0, model.parameters.len())
    }
}

/// Marks the row of a spectrum that cannot be fitted as a bad input, with the fault's name as status text and its
/// detail as message. Its parameters stay NaN.
pub fn mark_bad_input(row: &mut FitRow, fault: SpectrumFault) {
    row.status = Status::BadInput;
    row.status_text = fault.cause.name().into();
    row.message = fault.detail;
}

/// Writes the parameters of a spectrum's start into its row, with a message that the run was interrupted before its
/// fit. `start` is the user's or that of the first guess; without it the model's start, or NaN, is written.
pub fn mark_interrupted_before_fit(model: &SpectralModel, row: &mut FitRow, start: Option<&[f64]>) {
    row.message = "interrupted before its fit began; the parameters are its start".into();
    for (p, parameter) in model.parameters.iter().enumerate() {
        row.parameters[p] = match start {
            Some(values) => values[p],
            None => parameter.start.unwrap_or(f64::NAN),
        };
    }
}

/// Marks the row of a fit as interrupted that was to be repeated with other pixels or another jitter.
pub fn mark_interrupted_before_repetition(row: &mut FitRow) {
    row.mark_failed(Status::Interrupted, Status::Interrupted.name());
    row.message = "interrupted before its fit was repeated with other pixels or another jitter; the parameters are \
                   those of the fit before"
        .into();
}

/// Returns the error, with file, row and id, with which a strict run ends at a spectrum that cannot be fitted.
pub fn bad_spectrum_error(row: &FitRow, fault: &SpectrumFault) -> Error {
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
