//! Starting values for fits of built-in models, guessed from the points of a curve.
//!
//! Points are scaled to numbers near 1. `near` finds where to look: a peak, a step, a frequency. `search` tries
//! parameters around it. For each trial it solves for the linear parameters by least squares (variable projection,
//! Golub & Pereyra 1973). It moves the best trials by a compass search (Kolda, Lewis & Torczon 2003) and a few damped
//! Gauss-Newton steps. The roles of a model's parameters, and which values are tried, stand in its row of
//! `builtin/table.rs`.

mod near;
mod periodogram;
mod polynomial;
mod recognise;
mod scale;
mod search;

use super::Formula;
use crate::error::{Error, Result};
use near::SearchRegion;
use recognise::recognise;
use scale::PointScale;
use search::GuessSearch;

/// Role of a parameter: how it scales with the units of x and y, and how it is varied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// Height of a function of no unit.
    Height,
    /// Area of a function of no unit.
    Area,
    /// Height at x = 0 of a function that decays by the rate of this index.
    HeightAtZero(usize),
    /// Height at x = 1 of a power whose exponent has this index.
    HeightAtOne(usize),
    Offset,
    /// Place along the predictor of this index.
    Place(usize),
    /// Width along the predictor of this index; it keeps its sign.
    Width(usize),
    /// A rate that keeps its sign.
    Rate,
    /// A rate that may change its sign.
    Damping,
    Frequency,
    /// Phase, in radians, of the frequency of this index.
    Phase(usize),
    /// Number without a unit that keeps its sign.
    Exponent,
    /// Number without a unit that may change its sign.
    Shape,
    /// Fano's parameter.
    Asymmetry,
}

/// Feature of the points around which the parameters of a model are searched for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Anchor {
    /// All points.
    Whole,
    /// Points of x > 0, or with `or_zero` of x ≥ 0, in units of their geometric mean.
    Positive {
        or_zero: bool,
    },
    Peak,
    Step,
    /// A peak over two predictors.
    Spot,
    /// The strongest frequencies.
    Wave,
}

/// Way to guess the parameters of a built-in model.
#[derive(Clone, Copy, Debug)]
pub enum GuessMethod {
    /// Linear least squares for the coefficients of a polynomial.
    Polynomial,
    /// Constant numbers, which do not depend on the points.
    Fixed(&'static [f64]),
    /// All combinations of the numbers in `grid`, a row for each parameter that is not solved for: places and widths in
    /// units of the anchor's width.
    Search {
        roles: &'static [Role],
        anchor: Anchor,
        grid: &'static [&'static [f64]],
    },
}

impl Formula {
    /// Guesses starting values of a built-in model's parameters, in their order, for the points `x` (predictors, n) and
    /// `y` (n), all of the same weight.
    ///
    /// The formula may have been typed and its names may be others: it only has to be the formula of a
    /// [built-in model](Self::builtin). Points that are not finite are left out, and the order of the others does not
    /// matter. All numbers are finite, also for fewer points than parameters. Peaks may be dips. Frequencies are looked
    /// for up to half the mean number of points per unit of x.
    ///
    /// ```
    /// # use popfit::Formula;
    /// let line = Formula::builtin("linear1d")?;
    /// let start = line.guess(&[0.0, 1.0, 2.0, 3.0], &[1.0, 3.0, 5.0, 7.0])?;
    /// assert!((start[0] - 1.0).abs() < 1e-12 && (start[1] - 2.0).abs() < 1e-12);
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Usage`] if the formula is none of a built-in model, or if no point is finite;
    /// [`Error::ShapeMismatch`] if `x` has not as many numbers per predictor as `y`.
    pub fn guess(&self, x: &[f64], y: &[f64]) -> Result<Vec<f64>> {
        // 1. Check the arguments and recognise the model.
        let predictor_count = self.predictors.len();
        if x.len() != predictor_count * y.len() {
            let message = format!(
                "{} numbers for {} points of {predictor_count} predictors",
                x.len(),
                y.len()
            );
            return Err(Error::mismatch("x", message).naming("x"));
        }
        let Some((method, formula_indices)) = recognise(self) else {
            return Err(Error::Usage(format!(
                "there is no guess for `{}`, which is not the formula of a built-in model: give starts",
                self.text
            )));
        };
        // 2. Keep the points of which all numbers are finite.
        let is_finite = |j: &usize| {
            y[*j].is_finite() && (0..predictor_count).all(|d| x[d * y.len() + j].is_finite())
        };
        let finite_points: Vec<usize> = (0..y.len()).filter(is_finite).collect();
        if finite_points.is_empty() {
            let message = format!(
                "no point is left for a guess: of {} points none is finite",
                y.len()
            );
            return Err(Error::Usage(message));
        }
        let axes: Vec<Vec<f64>> = x
            .chunks(y.len())
            .map(|row| finite_points.iter().map(|j| row[*j]).collect())
            .collect();
        let y: Vec<f64> = finite_points.iter().map(|j| y[*j]).collect();
        // 3. Guess the parameters, in the order of the built-in model.
        let guess = match method {
            GuessMethod::Fixed(starts) => starts.to_vec(),
            GuessMethod::Polynomial => {
                polynomial::fit_polynomial(&axes[0], &y, self.parameters.len())
            }
            GuessMethod::Search {
                roles,
                anchor,
                grid,
            } => {
                let (scale, points) = PointScale::scale_points(axes, y, roles, anchor);
                let regions = SearchRegion::find_all(&points, anchor);
                let grouped_points = points.group_for_search(anchor);
                let mut search = GuessSearch::new(self, &formula_indices, roles, grouped_points);
                let best_trial = search.find_best(&regions, grid);
                scale.unscale_parameters(best_trial, roles)
            }
        };
        // 4. Put them into the order of the formula's parameters, as finite numbers.
        let mut parameters = vec![0.0; guess.len()];
        for (value, index) in guess.into_iter().zip(formula_indices) {
            parameters[index] = if value.is_nan() {
                1.0
            } else {
                value.clamp(-scale::MAX_GUESS, scale::MAX_GUESS)
            };
        }
        Ok(parameters)
    }
}

#[cfg(test)]
mod tests;
