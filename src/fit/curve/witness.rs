//! A GPU's word against the host's: of some of the fits that it brings home together, the cost at their ends is computed again.
//!
//! The models are the user's, and in f32 two honest devices may end in different minima: what must agree is the cost at the parameters
//! which the device itself names. Models that are WGSL alone the device is asked again, for another readback.
//!
//! A device that ends fits early is not looked for. What Levenberg–Marquardt has found the host carries on in f64 from where it was left
//! (`polish`, `resume`), which costs time and no digit. Simplices and models of WGSL alone have nobody to do so, and no sound bound: how
//! far f32 ends from a minimum goes with the square of the Jacobian's condition, which in NIST's problems exceeds what f32 holds.

use super::data::Curve;
use super::{CurveRun, CurveSolver};
use crate::error::{Error, Result};
use crate::rows::triangle::packed_index;
use crate::solver::search::Told;
use crate::solver::{Estimator, Outcome, Status};

/// Fits that are looked at, of those that come home together.
const FEW: usize = 8;
/// Allowed difference of a cost, as a share of it: the sums' rounding, and what the last step, if it is taken on trust, may promise in
/// units of `ftol` (`BEST_CONTRACTION` of the step).
const SHARE: f64 = 1e-3;
const TRUST: f64 = 1e3;
/// Cost below which differences cannot be told, because f32 has a least number.
const FLOOR: f64 = 1e-30;
/// Share of the terms of which a point is made that rounding may change: 1700 units of f32's last place where the
/// functions are popfit's; those of WGSL itself are as good as a driver makes them.
const ROUNDING: f64 = 1e-4;
pub(super) const ROUNDING_OF_WGSL: f64 = 2e-3;
/// And between two kernels of one device.
const ROUNDING_AGAIN: f64 = 2e-6;
/// And to a predictor: four units.
pub(super) const ROUNDING_OF_X: f64 = 1.0 / 4_194_304.0;

/// Some of the fits that have ended well, evenly.
pub(super) fn few(fits: impl Iterator<Item = usize>, status: impl Fn(usize) -> Option<Status>) -> Vec<usize> {
    let ended: Vec<usize> = fits.filter(|&k| status(k).is_some_and(Status::is_success)).collect();
    let count = ended.len().min(FEW);
    (0..count).map(|i| ended[i * ended.len() / count]).collect()
}

impl CurveRun {
    /// [`Error::DeviceUntrusted`] when the cost that a GPU `told` of a fit is not that of its `parameters`. Whether it still falls there is
    /// no question of trust: f32 may be at its end where f64 is not.
    pub(super) fn hear(&self, curve: &Curve, parameters: &[f64], told: f64) -> Result<()> {
        let problem = self.problem(curve);
        let Some(rows) = problem.rows(parameters) else { return Ok(()) };
        let (cost, squares): (f64, Vec<f64>) = (rows.cost(), rows.squares().collect());
        // the device's rows are in other units
        let unit = curve.gain * curve.gain;
        // as a rule; the rest takes as long again
        if (told - unit * cost).abs() <= SHARE * unit * cost {
            return Ok(());
        }
        let conditioned: f64 = parameters.iter().zip(&squares).map(|(x, a)| x * x * a).sum();
        let rounding = if self.model.formula().is_some() { ROUNDING } else { ROUNDING_OF_WGSL };
        let point = rounding.powi(2) * self.squares(curve, conditioned) + self.squares_by_x(curve, parameters);
        self.judge((told, unit * cost), unit * point)
    }

    /// The same where the host has no model: what the device has `told` against what it says there `now`.
    pub(super) fn hear_again(&self, curve: &Curve, told: &Outcome, now: &Outcome) -> Result<()> {
        self.judge((told.chi2 + told.penalty, now.chi2 + now.penalty), self.point_again(curve, now))
    }

    /// The same of objectives at one point in two readbacks, for a fit with these sums at its start.
    pub(super) fn hear_objective(&self, curve: &Curve, told: Told, start: &Outcome) -> Result<()> {
        let point = self.point_again(curve, start);
        if told.before.is_finite() && told.now.is_finite() {
            self.judge((told.before, told.now), point)?;
        }
        Ok(())
    }

    /// Returns the square of what rounding does to the points between two kernels of one device.
    fn point_again(&self, curve: &Curve, sums: &Outcome) -> f64 {
        let square = |(p, u): (usize, &f64)| u * u * sums.normal_matrix[packed_index(p, p)];
        let unit = curve.gain * curve.gain;
        let conditioned = sums.parameters.iter().enumerate().map(square).sum::<f64>() / unit;
        unit * ROUNDING_AGAIN.powi(2) * self.squares(curve, conditioned)
    }

    /// Squares of what the points' rounding is a share of: the data, and the parameters by their derivatives, whose squares are
    /// `conditioned`.
    fn squares(&self, curve: &Curve, conditioned: f64) -> f64 {
        let square = |(y, weight): (&f64, &f64)| match self.estimator {
            // a count's error is its root
            Estimator::Poisson => weight * y,
            _ => (weight * y).powi(2),
        };
        let data: f64 = curve.y.iter().zip(&curve.weight).map(square).sum();
        (1 + curve.start.len()) as f64 * (data + conditioned)
    }

    /// The square of what the rounding of predictors does.
    fn squares_by_x(&self, curve: &Curve, parameters: &[f64]) -> f64 {
        let problem = self.problem(curve);
        let x = curve.x.iter().map(|x| x * (1.0 + ROUNDING_OF_X)).collect();
        let moved = Curve { x, ..curve.clone() };
        let rows = |curve: &Curve| self.problem(curve).model_rows(false, parameters, &curve.scale);
        let (Some(here), Some(there)) = (problem.model_rows(false, parameters, &curve.scale), rows(&moved)) else {
            return 0.0;
        };
        let points = curve.weight.iter().zip(here.iter().zip(&there)).filter(|(weight, _)| **weight > 0.0);
        points.map(|(weight, (a, b))| (weight * (b - a)).powi(2)).sum()
    }

    /// By how much a cost may differ: Σ 2 |residual| · rounding, by Cauchy and Schwarz, and Σ rounding², which is `point`.
    fn judge(&self, (told, cost): (f64, f64), point: f64) -> Result<()> {
        let trusted = match self.solver {
            CurveSolver::Lm(settings) => TRUST * settings.ftol,
            CurveSolver::NelderMead(_) => 0.0,
        };
        let allowed = (SHARE + trusted) * cost + 2.0 * (cost * point).sqrt() + point + FLOOR;
        if (told - cost).abs() <= allowed || !allowed.is_finite() {
            return Ok(());
        }
        // nothing else tells which of them is wrong
        let or =
            if self.model.alike().is_some() { ", or its twin in Rust is another model (`check_jacobian`)" } else { "" };
        Err(self.untrusted(format!("a curve's fit has a cost of {cost}, not {told}{or}")))
    }

    fn untrusted(&self, message: String) -> Error {
        Error::DeviceUntrusted { device: self.device.inner.name(), message }
    }
}
