//! Starting values for fits of built-in models, guessed from the points of a curve.
//!
//! Points are scaled to numbers near 1. `near` finds where to look: a peak, a step, a frequency. `search` tries
//! parameters around it. For each it solves the linear parameters by least squares (variable projection, Golub &
//! Pereyra 1973). It moves the best by a compass search (Kolda, Lewis & Torczon 2003) and a few damped Gauss-Newton
//! steps. The roles of a model's parameters, and which values are tried, stand in its row of `builtin/table.rs`.

mod near;
mod periodogram;
mod polynomial;
mod recognise;
mod scale;
mod search;

use super::Formula;
use crate::error::{Error, Result};
use near::Near;
use recognise::recognise;
use scale::Scale;
use search::Search;

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

/// Place to look at for a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Anchor {
    /// All points.
    Whole,
    /// Points of x ≥ 0, or if `or_zero` is not set of x > 0, beside their geometric mean.
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
pub enum Guess {
    /// Linear least squares for the coefficients of a polynomial.
    Polynomial,
    /// These numbers, whatever the points are.
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
    /// The formula may have been typed and its names may be others: what counts is that it is that of a
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
        let predictors = self.predictors.len();
        if x.len() != predictors * y.len() {
            let message = format!(
                "{} numbers for {} points of {predictors} predictors",
                x.len(),
                y.len()
            );
            return Err(Error::mismatch("x", message).naming("x"));
        }
        let Some((guess, order)) = recognise(self) else {
            return Err(Error::Usage(format!(
                "there is no guess for `{}`, which is not the formula of a built-in model: give starts",
                self.text
            )));
        };
        let is_finite = |j: &usize| {
            y[*j].is_finite() && (0..predictors).all(|d| x[d * y.len() + j].is_finite())
        };
        let kept: Vec<usize> = (0..y.len()).filter(is_finite).collect();
        if kept.is_empty() {
            let message = format!(
                "no point is left for a guess: of {} points none is finite",
                y.len()
            );
            return Err(Error::Usage(message));
        }
        let axes: Vec<Vec<f64>> = x
            .chunks(y.len())
            .map(|row| kept.iter().map(|j| row[*j]).collect())
            .collect();
        let y: Vec<f64> = kept.iter().map(|j| y[*j]).collect();
        // the guess has the order of the built-in model
        let found = match guess {
            Guess::Fixed(starts) => starts.to_vec(),
            Guess::Polynomial => polynomial::fit(&axes[0], &y, self.parameters.len()),
            Guess::Search {
                roles,
                anchor,
                grid,
            } => {
                let (scale, points) = Scale::of(axes, y, roles, anchor);
                let near = Near::find(&points, anchor);
                let mut search = Search::new(self, &order, roles, points.grouped(anchor));
                let best = search.run(&near, grid);
                scale.restore(best, roles)
            }
        };
        let mut parameters = vec![0.0; found.len()];
        for (value, place) in found.into_iter().zip(order) {
            parameters[place] = if value.is_nan() {
                1.0
            } else {
                value.clamp(-scale::LARGEST, scale::LARGEST)
            };
        }
        Ok(parameters)
    }
}

#[cfg(test)]
mod tests;
