//! Settings of the solvers.

use crate::error::{Error, Result};

/// Population Levenberg–Marquardt (Marquardt 1963 scaling, damping of Nielsen 1999).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevenbergMarquardt {
    /// Linearisations a member may use.
    pub max_rounds: u32,
    /// Converged when the predicted reduction of the cost is at most `ftol` × cost.
    pub ftol: f64,
    /// Converged when the scaled step is at most `xtol` × (scaled parameters + `xtol`).
    pub xtol: f64,
    /// Converged when the cosine between the residual and every column of the Jacobian is at most `gtol`.
    pub gtol: f64,
    /// μ₀, relative to the diagonal of the normal matrix.
    pub initial_damping: f64,
    /// Rejected steps in a row before a member has stalled.
    pub max_rejections: u32,
}

impl Default for LevenbergMarquardt {
    fn default() -> Self {
        LevenbergMarquardt {
            max_rounds: 60,
            ftol: 1e-9,
            xtol: 1e-9,
            gtol: 1e-9,
            initial_damping: 1e-3,
            max_rejections: 16,
        }
    }
}

impl LevenbergMarquardt {
    /// Tolerances must be finite and not negative, the damping positive, and there must be a round.
    pub fn validate(&self) -> Result<()> {
        let tolerances = [("ftol", self.ftol), ("xtol", self.xtol), ("gtol", self.gtol)];
        for (name, value) in tolerances {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Error::Usage(format!("{name} must be finite and not negative, not {value}")));
            }
        }
        if !(self.initial_damping.is_finite() && self.initial_damping > 0.0) {
            return Err(Error::Usage(format!("initial_damping must be positive, not {}", self.initial_damping)));
        }
        if self.max_rounds == 0 {
            return Err(Error::Usage("max_rounds must be at least 1".into()));
        }
        Ok(())
    }
}
