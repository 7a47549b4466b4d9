//! Lengths of the arrays of curves, which must fit together.

use super::data::{Curves, GridKind};
use super::rows::CurveCounts;
use crate::curve_model::CurveModel;
use crate::error::{Error, Result};
use crate::solver::Estimator;
use crate::values::Values;

impl Curves<'_> {
    /// Returns the numbers of curves and of points, if the lengths of all arrays fit each other and the model.
    pub(crate) fn shape(&self, model: &CurveModel) -> Result<(usize, usize)> {
        let predictors = model.predictors();
        let parameters = model.parameters();
        let mismatch =
            |array: &str, message: String| Err(Error::mismatch(array, message).naming(array));
        // 1. Starts and x imply the numbers of curves and points.
        let starts = self.starts.values.len();
        if !starts.is_multiple_of(parameters.len()) {
            return mismatch(
                "starts",
                format!(
                    "{starts} numbers, no multiple of {}",
                    count_and_name(parameters, "parameter")
                ),
            );
        }
        if starts == 0 && self.y.is_empty() {
            return Ok((0, 0));
        }
        if starts == 0 {
            return mismatch("starts", format!("none, for {} numbers of y", self.y.len()));
        }
        let Some(CurveCounts { curves, points }) = self.counts(predictors.len(), parameters.len())
        else {
            let curves = starts / parameters.len();
            let times = if self.grid == GridKind::Own {
                format!("{curves} curves × ")
            } else {
                String::new()
            };
            return mismatch(
                "x",
                format!(
                    "{} numbers, no multiple of {times}{}",
                    self.x.len(),
                    count_and_name(predictors, "predictor")
                ),
            );
        };
        if let Some(users_points) = self.points.filter(|users_points| *users_points != points) {
            return mismatch(
                "points",
                format!("{users_points}, but x has {points} for each curve"),
            );
        }
        // 2. The other arrays have one of the lengths that follow.
        let length_of = |values: &Option<Values>| values.as_ref().map(Values::len);
        let of_points = format!("curves × points = {curves} × {points}, by starts and x");
        let of_bounds = format!(
            "curves × parameters = {curves} × {}, as starts",
            parameters.len()
        );
        let of_matrices = format!(
            "points × points = {points} × {points}, or as many for each of {curves} curves"
        );
        let point_lengths = [curves * points, points];
        let matrix_lengths = [points * points, curves * points * points];
        let bound_lengths = [curves * parameters.len(); 2];
        // (name, length, allowed lengths, their description)
        let arrays = [
            ("y", Some(self.y.len()), [curves * points; 2], &of_points),
            (
                "sigma",
                length_of(&self.sigma).filter(|length| *length != 1),
                point_lengths,
                &of_points,
            ),
            (
                "covariance",
                length_of(&self.covariance),
                matrix_lengths,
                &of_matrices,
            ),
            (
                "mask",
                self.mask.as_ref().map(|mask| mask.len()),
                point_lengths,
                &of_points,
            ),
            ("lower", length_of(&self.lower), bound_lengths, &of_bounds),
            ("upper", length_of(&self.upper), bound_lengths, &of_bounds),
        ];
        for (array, length, allowed, description) in arrays {
            if let Some(length) = length
                && !allowed.contains(&length)
            {
                return mismatch(array, format!("{length} numbers, not {description}"));
            }
        }
        Ok((curves, points))
    }

    /// Returns [`Error::InvalidArgument`] if there are sigmas or covariances and the estimator is Poisson's, for which
    /// they have no meaning, or if there are both.
    pub(crate) fn check_estimator(&self, estimator: Estimator) -> Result<()> {
        if estimator.takes_counts() {
            let meaningless = [
                ("sigma", self.sigma.is_some()),
                ("covariance", self.covariance.is_some()),
            ];
            if let Some((name, _)) = meaningless.into_iter().find(|(_, is_given)| *is_given) {
                let remedy = "leave it out, and mask what must not count";
                return Err(Error::invalid(
                    name,
                    format!("{name}: it has no meaning for counts (Poisson): {remedy}"),
                ));
            }
        }
        if self.sigma.is_some() && self.covariance.is_some() {
            return Err(Error::invalid(
                "covariance",
                "covariance: there are sigmas, too: give one of them",
            ));
        }
        Ok(())
    }
}

/// Returns a number of things with their names, such as `2 parameters (a, k)`.
fn count_and_name(names: &[String], kind: &str) -> String {
    format!(
        "{} {kind}{} ({})",
        names.len(),
        if names.len() == 1 { "" } else { "s" },
        names.join(", ")
    )
}
