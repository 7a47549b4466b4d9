//! Minima that parameters run away from: the cost no longer falls, whatever the solver says, and the data do not determine them.

use super::polish::{Problem, Rows};

/// A direction that lowers the cost by less than this share of it is none: scipy's default `ftol`.
const LEAST_GAIN: f64 = 1e-8;
/// Multiples of a step that are tried, from the longest to the shortest, each a quarter of the one before it.
const LONGEST: f64 = 64.0;
const TRIALS: i32 = 18;
/// A Gauss-Newton step of more than this share of a parameter's size that leads nowhere says that the data do not determine it.
const RUNAWAY: f64 = 0.5;

impl Problem<'_> {
    /// Returns the parameters that the data do not determine at a minimum, or `None` where the cost still falls.
    ///
    /// At a minimum neither the Gauss-Newton step nor the gradient over the squared columns of the Jacobian, each at 18 lengths, lowers
    /// the cost by more than 1e-8 of it. Where parameters run to infinity the step stays as long as they are, and gains nothing:
    /// with residuals r₀ + a e^(−θ) both Jᵀr and JᵀJ vanish, their ratio grows, and (Jᵀr)²/JᵀJ, the gain that it promises, does not.
    pub fn runaways(&self, rows: &Rows, parameters: &[f64]) -> Option<Vec<usize>> {
        let movable = self.movable(rows, parameters);
        let idle = self.idle(rows, &movable);
        let acting: Vec<usize> = movable.into_iter().filter(|p| !idle.contains(p)).collect();
        if acting.is_empty() {
            return Some(idle);
        }
        let squares: Vec<f64> = rows.squares().collect();
        let descent: Vec<f64> = acting.iter().map(|&p| rows.gradient[p] / squares[p]).collect();
        let step = rows.least_step(&acting, parameters)?;
        if self.falls_along(rows, parameters, (&acting, &step))
            || self.falls_along(rows, parameters, (&acting, &descent))
        {
            return None;
        }
        let size = |p: usize| parameters[p].abs().max(self.curve.scale[p]);
        let runs = |(&p, d): (&usize, &f64)| (d.abs() > RUNAWAY * size(p)).then_some(p);
        Some(acting.iter().zip(&step).filter_map(runs).chain(idle).collect())
    }

    /// Returns the free parameters that are inside their bounds, or at one that they would leave downhill.
    fn movable(&self, rows: &Rows, parameters: &[f64]) -> Vec<usize> {
        let (lower, upper) = (&self.curve.lower, &self.curve.upper);
        let is_pushed = |p: usize| {
            let slope = rows.gradient[p];
            (parameters[p] <= lower[p] && slope <= 0.0) || (parameters[p] >= upper[p] && slope >= 0.0)
        };
        self.curve.free().into_iter().filter(|&p| !is_pushed(p)).collect()
    }

    /// Returns whether a multiple of a step of `some` parameters lowers the cost.
    fn falls_along(&self, rows: &Rows, parameters: &[f64], (some, step): (&[usize], &[f64])) -> bool {
        (0..TRIALS).any(|k| {
            let length = LONGEST * 0.25_f64.powi(k);
            let mut trial = parameters.to_vec();
            some.iter().zip(step).for_each(|(&p, d)| {
                trial[p] = (trial[p] + length * d).clamp(self.curve.lower[p], self.curve.upper[p]);
            });
            self.rows(&trial).is_some_and(|found| found.cost() < rows.cost() * (1.0 - LEAST_GAIN))
        })
    }
}
