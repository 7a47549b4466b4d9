//! Result of a fit: one typed row per spectrum.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::flag::Flags;
use super::posterior::VelocityPosterior;
use crate::solver::Status;

/// A spectrum's identifier; never passes through f64.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Id {
    /// A number, as DESI's TARGETID.
    Integer(i64),
    /// Any text.
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
            Id::Integer(n) => n.fmt(f),
            Id::Text(s) => s.fmt(f),
        }
    }
}

/// One spectrum's fit. P is the number of free parameters of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FitRow {
    /// Identifier of the spectrum.
    pub id: Id,
    /// The file that it comes from.
    #[serde(skip)]
    pub file: Arc<str>,
    /// Row in the file, from 0.
    pub row: u64,
    /// Status with which the fit ended.
    pub status: Status,
    /// The status' name, or the cause of `bad_input`.
    pub status_text: String,
    /// The cause of `bad_input` in words: arm, pixel and value; or where an interrupted fit stood. Not a column of the
    /// table.
    pub message: String,
    /// Rounds of the winning start.
    pub rounds: u32,
    /// Linearisations of all starts.
    pub evaluations: u32,
    /// χ² = Σ ivar (flux − model)² over the pixels that count; priors and penalties are not in it.
    pub chi2: f64,
    /// Unmasked pixels − free parameters − continuum terms.
    pub dof: i64,
    /// χ², priors and penalties, and ln det of the continuum's normal matrix where the model marginalises over the
    /// continuum. The start with the lowest one wins.
    pub objective: f64,
    /// (P) Physical values.
    pub parameters: Vec<f64>,
    /// (P) Standard errors, NaN where there is none. Where parameters ended at a bound, the errors of the others are
    /// conditional: they hold as if the truth of those parameters were the bound.
    pub errors: Vec<f64>,
    /// (P) Standard errors with all bounds released, where
    /// [`SpectralFitter::released_errors`](crate::SpectralFitter::released_errors) asks for them; empty otherwise. The
    /// covariance counts parameters at a bound as free.
    pub released_errors: Vec<f64>,
    /// Bit p: parameter p ended at a bound.
    pub at_bound: u32,
    /// Facts that the user should know.
    pub flags: Flags,
    /// Index of the winning start, from 0; a start past a fold comes after those of the first guess. `None` without a
    /// winner, which tables write as −1.
    pub start: Option<u32>,
    /// (arms) Continuum terms that the arm's data determine, of those that the model has; 0 where the arm drops out.
    pub continuum_terms: Vec<u32>,
    /// Basins of the first guess from which starts ended within 0.1 of the winner's objective, or were stopped on the
    /// way there. Starts of one basin count once, as they would end together anyway.
    pub n_starts_agree: u32,
    /// The velocity's, where a scan was asked for.
    pub posterior: Option<VelocityPosterior>,
    /// (P (P − 1) / 2) Correlation coefficients of the pairs (0,1), (0,2), … (1,2), …; NaN where an error is.
    pub correlations: Vec<f64>,
}

impl FitRow {
    /// Returns the row of a spectrum without a fit, of so many free parameters: all its numbers are NaN, its status is
    /// [`Status::Interrupted`].
    pub fn new(id: impl Into<Id>, parameters: usize) -> FitRow {
        let nothing = vec![f64::NAN; parameters];
        FitRow {
            id: id.into(),
            file: "".into(),
            row: 0,
            status: Status::Interrupted,
            status_text: Status::Interrupted.name().into(),
            message: String::new(),
            rounds: 0,
            evaluations: 0,
            chi2: f64::NAN,
            dof: 0,
            objective: f64::NAN,
            parameters: nothing.clone(),
            errors: nothing,
            released_errors: Vec::new(),
            at_bound: 0,
            flags: Flags::empty(),
            start: None,
            continuum_terms: Vec::new(),
            n_starts_agree: 0,
            posterior: None,
            correlations: vec![f64::NAN; parameters * parameters.saturating_sub(1) / 2],
        }
    }

    /// It ended so, and has no errors.
    pub(super) fn fail(&mut self, status: Status, text: &str) {
        (self.status, self.status_text) = (status, text.into());
        self.clear_errors();
    }

    /// Sets errors and correlations to NaN.
    pub(super) fn clear_errors(&mut self) {
        for values in [&mut self.errors, &mut self.released_errors, &mut self.correlations] {
            values.fill(f64::NAN);
        }
    }
}
