//! Result of a fit: one typed row per spectrum.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::flag::Flags;
use crate::solver::Status;
use crate::spectral::results::moments::VelocityPosterior;

/// Identifier of a spectrum. It is never converted to f64.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
            Id::Integer(n) => n.fmt(f),
            Id::Text(s) => s.fmt(f),
        }
    }
}

/// The fit of one spectrum. P is the number of free parameters of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FitRow {
    /// Identifier of the spectrum.
    pub id: Id,
    /// File of the spectrum.
    #[serde(skip)]
    pub file: Arc<str>,
    /// Row in the file, from 0.
    pub row: u64,
    /// Status with which the fit ended.
    pub status: Status,
    /// Name of the status, or the cause of `bad_input`.
    pub status_text: String,
    /// Details of a `bad_input` (arm, pixel and value) or of an interrupted fit. Not a column of the table.
    pub message: String,
    /// Number of rounds of the winning start.
    pub rounds: u32,
    /// Number of linearisations of all starts.
    pub evaluations: u32,
    /// χ² = Σ ivar (flux − model)² over the unmasked pixels, or the cost under the model's robust loss, without priors
    /// and penalties.
    pub chi2: f64,
    /// Degrees of freedom: unmasked pixels − free parameters − continuum terms.
    pub dof: i64,
    /// χ² plus priors and penalties, and plus ln det of the normal matrix of the continuum if the model marginalises
    /// over it. The start with the lowest objective wins.
    pub objective: f64,
    /// (P) Physical values.
    pub parameters: Vec<f64>,
    /// (P) Standard errors, NaN if there is none. If parameters ended at a bound, the errors of the others are
    /// conditional: they hold if the true values of those parameters are at the bound.
    pub errors: Vec<f64>,
    /// (P) Standard errors with all bounds released, if
    /// [`SpectralFitter::released_errors`](crate::SpectralFitter::released_errors) asks for them; empty otherwise. The
    /// covariance counts parameters at a bound as free.
    pub released_errors: Vec<f64>,
    /// Bit p is set if parameter p ended at a bound.
    pub at_bound: u32,
    /// Warnings and other facts about the fit.
    pub flags: Flags,
    /// Index of the winning start, from 0. The further starts of a spectrum with a large χ²/dof, and one beyond a fold,
    /// come after its first ones. `None` without a winner, which tables write as −1.
    pub start: Option<u32>,
    /// (arms) Number of the model's continuum terms that the data of the arm determine; 0 if the arm has no data.
    pub continuum_terms: Vec<u32>,
    /// (arms) Number of good pixels that are left out because the template does not cover them at the velocity and
    /// vsini of the fit.
    pub unreached: Vec<u32>,
    /// Number of basins of the first guess whose starts ended within 0.1 of the winner's objective, or were stopped on
    /// the way there. Starts of one basin count once, because they would end together anyway, and so do all further
    /// starts together.
    pub n_starts_agree: u32,
    /// Share of the unmasked pixels to which the model's robust loss gives less than half of the weight of a pixel that
    /// fits; `None` without a loss.
    pub downweighted: Option<f64>,
    /// Posterior of the velocity; `None` without a scan, or where it gave none.
    pub posterior: Option<VelocityPosterior>,
    /// (P (P − 1) / 2) Correlation coefficients of the pairs (0,1), (0,2), … (1,2), …; NaN if an error is NaN.
    pub correlations: Vec<f64>,
}

impl FitRow {
    /// Returns a row without a fit: its status is interrupted, and its numbers, for so many parameters, are NaN.
    /// `parameters` is the number of free parameters.
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
            unreached: Vec::new(),
            n_starts_agree: 0,
            downweighted: None,
            posterior: None,
            correlations: vec![f64::NAN; parameters * parameters.saturating_sub(1) / 2],
        }
    }

    /// Sets the status, and its text, of a row whose fit has failed, and its errors and correlations to NaN.
    pub(crate) fn fail(&mut self, status: Status, text: &str) {
        (self.status, self.status_text) = (status, text.into());
        self.clear_errors();
    }

    /// Sets errors and correlations to NaN.
    pub(crate) fn clear_errors(&mut self) {
        for values in [&mut self.errors, &mut self.released_errors, &mut self.correlations] {
            values.fill(f64::NAN);
        }
    }
}
