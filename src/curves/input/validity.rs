//! Checks of the input of one curve.

use super::data::ParameterSettings;
use super::dominance::is_beyond_floats;
use super::no_counts::may_all_be_zero;
use super::sizes::has_squares;

/// Cause of a bad input in which a point that outweighs all others has a sigma below the rounding of its y.
const BELOW_ROUNDING: &str = "bad_weight: sigma of a point that outweighs all others is below the rounding of its y: take a \
                        larger one, or a formula that goes through that point";

/// One curve as it is given. P is the number of parameters.
pub(crate) struct CurveInput<'a, Y> {
    /// (predictors, points), empty where all are known to be finite.
    pub x: &'a [f64],
    /// Function that returns the y of a point.
    pub y: Y,
    /// (points): standard deviations; `None` if all are 1.
    pub sigma: Option<&'a [f64]>,
    /// (points): true where masked.
    pub mask: Option<&'a [bool]>,
    /// (P)
    pub start: &'a [f64],
    /// (P), empty without bounds.
    pub lower: &'a [f64],
    pub upper: &'a [f64],
}

impl<Y: Fn(usize) -> f64> CurveInput<'_, Y> {
    /// Returns the number of the `points` that are not masked, or the cause why the curve cannot be fitted.
    pub fn count_unmasked(
        &self,
        points: usize,
        settings: &ParameterSettings,
    ) -> Result<usize, String> {
        let takes_counts = settings.estimator.takes_counts();
        // 1. Check each point by itself.
        let mut unmasked = 0;
        let mut size: f64 = 0.0;
        let mut has_counts = false;
        for j in (0..points).filter(|&j| !self.is_masked(j)) {
            let sigma = self.sigma_at(j);
            if !(sigma > 0.0 && sigma.is_finite()) {
                return Err(format!("bad_weight: sigma is {sigma} at point {j}"));
            }
            for (name, x) in settings.predictors.iter().zip(self.x.chunks_exact(points)) {
                if !x[j].is_finite() {
                    return Err(format!("non_finite_input: {name} is {} at point {j}", x[j]));
                }
            }
            let y = (self.y)(j);
            if !y.is_finite() {
                return Err(format!("non_finite_input: y is {y} at point {j}"));
            }
            if takes_counts && y < 0.0 {
                return Err(format!("bad_count: y is {y} at point {j}"));
            }
            unmasked += 1;
            size = size.max((y * (1.0 / sigma)).abs());
            has_counts |= y > 0.0;
        }
        if unmasked == 0 {
            return Err("no_data: no point is left".into());
        }
        // 2. Check that f64 holds the squares of the weighted data.
        if !has_squares(size) {
            return Err(format!(
                "bad_scale: y is up to {size:e} sigma, the square of which leaves f64's range"
            ));
        }
        // 3. Counts that are all 0 need a bound or a prior.
        let ParameterSettings { held, priors, .. } = *settings;
        if takes_counts && !has_counts && !may_all_be_zero(self.lower, self.upper, held, priors) {
            return Err("no_counts: every count is 0: bound a parameter, or give a prior".into());
        }
        self.check_start(settings.names)?;
        // 4. Check that points and priors can determine the free parameters.
        let free = (0..self.start.len())
            .filter(|&p| !held[p] && (self.lower.is_empty() || self.lower[p] < self.upper[p]));
        let priors = free.clone().filter(|&p| priors[p].is_some()).count();
        let free = free.count();
        if free > unmasked + priors && !settings.estimator.is_cost() {
            let and_priors = if priors > 0 {
                format!(" and {priors} priors")
            } else {
                String::new()
            };
            return Err(format!(
                "underdetermined: {unmasked} points{and_priors} for {free} free parameters"
            ));
        }
        let weights_and_data = (0..points)
            .filter(|&j| !self.is_masked(j))
            .map(|j| (1.0 / self.sigma_at(j), (self.y)(j)));
        if is_beyond_floats(weights_and_data, free.saturating_sub(priors)) {
            return Err(BELOW_ROUNDING.into());
        }
        Ok(unmasked)
    }

    /// Returns whether point `j` is masked.
    fn is_masked(&self, j: usize) -> bool {
        self.mask.is_some_and(|mask| mask[j])
    }

    /// Returns the standard deviation of point `j`.
    fn sigma_at(&self, j: usize) -> f64 {
        self.sigma.map_or(1.0, |sigma| sigma[j])
    }

    /// Checks that the start is finite and inside bounds that are in order.
    fn check_start(&self, names: &[String]) -> Result<(), String> {
        for (p, (start, name)) in self.start.iter().zip(names).enumerate() {
            if !start.is_finite() {
                return Err(format!("bad_start: `{name}` starts at {start}"));
            }
            if self.lower.is_empty() {
                continue;
            }
            let lower = self.lower[p];
            let upper = self.upper[p];
            if lower.is_nan() || upper.is_nan() || lower > upper {
                return Err(format!(
                    "bad_bounds: `{name}` lies between {lower} and {upper}"
                ));
            }
            if *start < lower || *start > upper {
                return Err(format!(
                    "start_out_of_bounds: `{name}` starts at {start}, outside {lower} to {upper}"
                ));
            }
        }
        Ok(())
    }
}
