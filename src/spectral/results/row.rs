//! Result of a fit: one typed row per spectrum, whose fields are declared in `columns.rs`.

use crate::solver::Status;
pub use crate::spectral::results::columns::FitRow;

/// Identifier of a spectrum. It is never converted to f64.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Id {
    /// An integer, such as DESI's TARGETID.
    Integer(i64),
    /// A text.
    Text(String),
}

impl From<i64> for Id {
    fn from(id: i64) -> Id {
        Id::Integer(id)
    }
}

impl From<&str> for Id {
    fn from(id: &str) -> Id {
        Id::Text(id.to_string())
    }
}

impl From<String> for Id {
    fn from(id: String) -> Id {
        Id::Text(id)
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Id::Integer(integer) => integer.fmt(f),
            Id::Text(text) => text.fmt(f),
        }
    }
}

impl FitRow {
    /// Returns a row without a fit: its status is interrupted, and its numbers are NaN. `parameters` is the number of
    /// free parameters.
    pub fn new(id: impl Into<Id>, parameters: usize) -> FitRow {
        FitRow {
            id: id.into(),
            status: Status::Interrupted,
            status_text: Status::Interrupted.name().into(),
            parameters: vec![f64::NAN; parameters],
            errors: vec![f64::NAN; parameters],
            correlations: vec![f64::NAN; parameters * parameters.saturating_sub(1) / 2],
            ..FitRow::empty()
        }
    }

    /// Sets the status, and its text, of a row whose fit has failed, and its errors and correlations to NaN.
    pub(crate) fn mark_failed(&mut self, status: Status, text: &str) {
        self.status = status;
        self.status_text = text.into();
        self.clear_errors();
    }

    /// Sets errors and correlations to NaN, also those of the exposures' velocities.
    pub(crate) fn clear_errors(&mut self) {
        for values in [
            &mut self.errors,
            &mut self.released_errors,
            &mut self.correlations,
        ] {
            values.fill(f64::NAN);
        }
        if let Some(exposures) = &mut self.exposure_velocities {
            exposures.errors.fill(f64::NAN);
        }
        self.p_constant_velocity = None;
        self.shared_p = None;
    }
}
