//! Settings of the solvers.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::simplex::LANES;
use crate::error::{Error, InvalidSetting, Result};
use crate::setters::setters;

/// Most starts a spectrum can have.
pub const MOST_STARTS: usize = 64;

/// Population Levenberg–Marquardt (Marquardt 1963 scaling, damping of Nielsen 1999; near the end the curvature that
/// residuals add, a structured secant after Dennis, Gay & Welsch 1981, but for small fits of written-out models).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LevenbergMarquardt {
    /// Linearisations a member may use.
    pub max_rounds: u32,
    /// Converged when the predicted reduction of the cost is at most `ftol` × cost. For spectra a cost above 10⁴ counts
    /// as 10⁴.
    pub ftol: f64,
    /// Converged when the scaled step is at most `xtol` × the scaled parameters that it moves.
    pub xtol: f64,
    /// Converged when the cosine between the residual and every column of the Jacobian is at most `gtol`.
    pub gtol: f64,
    /// μ₀, relative to the diagonal of the normal matrix.
    pub initial_damping: f64,
    /// Rejected steps in a row before a member has stalled.
    pub max_rejections: u32,
    /// The damping's diagonal is at least this share of its largest element: without (0), a parameter on which the
    /// model hardly depends where it is moves undamped, however far. Depends on how the parameters are scaled, unlike
    /// the rest: when all else has arrived, it is let go.
    pub diagonal_floor: f64,
    /// A step is shortened until no parameter moves by more than this times its magnitude (at least a tenth of its
    /// unit). Convergence is that of the step before.
    pub largest_step: f64,
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
            diagonal_floor: 0.0,
            largest_step: 1e30,
        }
    }
}

setters!(LevenbergMarquardt {
    max_rounds: u32;
    ftol: f64;
    xtol: f64;
    gtol: f64;
    initial_damping: f64;
    max_rejections: u32;
    diagonal_floor: f64;
    largest_step: f64;
});

impl LevenbergMarquardt {
    /// Fails for settings that make no sense: tolerances must be finite and not negative, the damping positive, and
    /// there must be a round.
    pub fn validate(&self) -> Result<()> {
        first_of(self.faults())
    }

    /// Lists the settings that make no sense, with what is wrong with each; empty if all are valid.
    pub(crate) fn faults(&self) -> Vec<InvalidSetting> {
        let tolerances =
            [("ftol", self.ftol), ("xtol", self.xtol), ("gtol", self.gtol), ("diagonal_floor", self.diagonal_floor)];
        let mut faults: Vec<_> = tolerances.into_iter().filter_map(|(name, value)| not_negative(name, value)).collect();
        faults.extend(positive("initial_damping", self.initial_damping));
        if !(self.largest_step > 0.0 && self.largest_step <= 1e30) {
            let message = format!("must lie between 0 and 1e30, not {}", self.largest_step);
            faults.push(InvalidSetting::new("largest_step", message));
        }
        faults.extend(some_rounds(self.max_rounds));
        faults
    }
}

impl fmt::Display for LevenbergMarquardt {
    /// `key = value`, line by line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LevenbergMarquardt { max_rounds, ftol, xtol, gtol, initial_damping, max_rejections, .. } = self;
        writeln!(f, "max_rounds = {max_rounds}\nftol = {ftol:e}\nxtol = {xtol:e}\ngtol = {gtol:e}")?;
        writeln!(f, "diagonal_floor = {:e}\nlargest_step = {:e}", self.diagonal_floor, self.largest_step)?;
        write!(f, "initial_damping = {initial_damping:e}\nmax_rejections = {max_rejections}")
    }
}

/// Population Nelder–Mead (Nelder & Mead 1965; adaptive coefficients, Gao & Han 2012) on the objective itself. Unless
/// [`linearise`](Self::linearise) is false, one linearisation at the start shapes the first simplex, and a quadratic
/// surface refines its end; the linearisation counts as one evaluation and one per free parameter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NelderMead {
    /// Iterations that each search of a simplex may use.
    pub max_rounds: u32,
    /// Converged when the surface around the best vertex has its minimum at most this lower, or by what rounding hides.
    /// In units of the lowest χ²/dof where a [`CurveFitter`](crate::CurveFitter) does not know the noise.
    pub fatol: f64,
    /// Edge of a simplex that no linearisation shapes, and half of the longest that one may have, in the solver's
    /// units: standard deviations of a label in the training set, 10 km/s.
    pub size: f64,
    /// A simplex that no linearisation shaped is spread again around its best vertex, ever smaller, until two in a row
    /// gain no more than `fatol`; at most so often.
    pub max_restarts: u32,
    /// Whether the search may linearise the model at the start. Without, it compares objectives alone, as it does for
    /// models that have no derivatives (scalar costs), and takes several times as many evaluations.
    pub linearise: bool,
}

impl Default for NelderMead {
    fn default() -> Self {
        NelderMead { max_rounds: 1500, fatol: 1e-3, size: 0.5, max_restarts: 6, linearise: true }
    }
}

setters!(NelderMead {
    max_rounds: u32;
    fatol: f64;
    size: f64;
    max_restarts: u32;
    linearise: bool;
});

impl NelderMead {
    /// Fails for settings that make no sense: the tolerance must be finite and not negative, the size positive, and
    /// there must be a round.
    pub fn validate(&self) -> Result<()> {
        first_of(self.faults())
    }

    /// Lists the settings that make no sense, with what is wrong with each; empty if all are valid.
    pub(crate) fn faults(&self) -> Vec<InvalidSetting> {
        let faults = [not_negative("fatol", self.fatol), positive("size", self.size), some_rounds(self.max_rounds)];
        faults.into_iter().flatten().collect()
    }
}

/// Turns the first of some faults into [`Error::Usage`]; `Ok` if there are none.
fn first_of(faults: Vec<InvalidSetting>) -> Result<()> {
    faults.first().map_or(Ok(()), |fault| Err(Error::Usage(format!("{} {}", fault.name, fault.message))))
}

/// Returns what is wrong with a setting that must be finite and ≥ 0; `None` if it is right.
fn not_negative(name: &str, value: f64) -> Option<InvalidSetting> {
    let message = || format!("must be finite and not negative, not {value}");
    (!(value.is_finite() && value >= 0.0)).then(|| InvalidSetting::new(name, message()))
}

/// Returns what is wrong with a setting that must be finite and > 0; `None` if it is right.
fn positive(name: &str, value: f64) -> Option<InvalidSetting> {
    (!(value.is_finite() && value > 0.0)).then(|| InvalidSetting::new(name, format!("must be positive, not {value}")))
}

/// Returns what is wrong with a maximum of 0 rounds; `None` for any other.
fn some_rounds(max_rounds: u32) -> Option<InvalidSetting> {
    (max_rounds == 0).then(|| InvalidSetting::new("max_rounds", "must be at least 1"))
}

impl NelderMead {
    /// Returns by how much objectives of vertices may differ at convergence: absolutely, and relative to the lowest.
    /// `noise` is that of the rows, and `dof` is `None` where it is not known.
    pub(crate) fn tolerances(&self, dof: Option<f64>, noise: f64) -> (f64, f64) {
        dof.map_or((self.fatol, noise), |dof| (0.0, noise.max(self.fatol / dof)))
    }
}

impl NelderMead {
    /// Returns by how much noise changes a minimum: absolutely, or as a share of the lowest objective if `dof` is
    /// given. The other one is 0; `fatol` counts in it.
    pub(crate) fn unit(dof: Option<f64>) -> (f64, f64) {
        dof.map_or((1.0, 0.0), |dof| (0.0, 1.0 / dof))
    }
}

impl fmt::Display for NelderMead {
    /// `key = value`, line by line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NelderMead { max_rounds, fatol, size, max_restarts, linearise } = self;
        writeln!(f, "simplex_max_rounds = {max_rounds}\nfatol = {fatol:e}\nsize = {size}")?;
        write!(f, "max_restarts = {max_restarts}\nlinearise = {linearise}")
    }
}

/// Method that moves a population's members.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Needs a recording of linearisations.
    LevenbergMarquardt(LevenbergMarquardt),
    /// Needs a recording of evaluations.
    NelderMead(NelderMead),
}

impl Method {
    /// Returns the number of members (points that are evaluated side by side) that each start takes.
    pub const fn lanes(&self) -> usize {
        match self {
            Method::LevenbergMarquardt(_) => 1,
            Method::NelderMead(_) => LANES,
        }
    }
}
