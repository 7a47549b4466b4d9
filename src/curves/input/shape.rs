//! Lengths of the arrays of curves, which must fit together.

use super::data::{Curves, GridKind};
use super::rows::Counts;
use crate::error::{Error, Result};
use crate::solver::Estimator;
use crate::values::Values;

impl Curves<'_> {
    /// Returns the numbers of curves and of points, if the lengths of all arrays fit each other and the
    /// numbers of `predictors` and `parameters`.
    pub(crate) fn shape(
        &self,
        predictors: &[String],
        parameters: &[String],
    ) -> Result<(usize, usize)> {
        let wrong = |what: &str, message: String| Err(Error::mismatch(what, message).naming(what));
        let starts = self.starts.len();
        if !starts.is_multiple_of(parameters.len()) {
            return wrong(
                "starts",
                format!(
                    "{starts} numbers, no multiple of {}",
                    named(parameters, "parameter")
                ),
            );
        }
        if starts == 0 && self.y.is_empty() {
            return Ok((0, 0));
        }
        if starts == 0 {
            return wrong("starts", format!("none, for {} numbers of y", self.y.len()));
        }
        let Some(Counts { curves, points }) = self.counts(predictors.len(), parameters.len())
        else {
            let (x, curves) = (self.x.len(), starts / parameters.len());
            let times = if self.grid == GridKind::Own {
                format!("{curves} curves × ")
            } else {
                String::new()
            };
            return wrong(
                "x",
                format!(
                    "{x} numbers, no multiple of {times}{}",
                    named(predictors, "predictor")
                ),
            );
        };
        if let Some(said) = self.points.filter(|said| *said != points) {
            return wrong(
                "points",
                format!("{said}, but x has {points} for each curve"),
            );
        }
        let length = |values: &Option<Values>| values.as_ref().map(Values::len);
        let of_points = format!("curves × points = {curves} × {points}, by starts and x");
        let of_bounds = format!(
            "curves × parameters = {curves} × {}, as starts",
            parameters.len()
        );
        let each = [curves * points, points];
        let of_matrices = format!(
            "points × points = {points} × {points}, or as many for each of {curves} curves"
        );
        let matrices = [points * points, curves * points * points];
        let of_curves = [curves * parameters.len(); 2];
        let all = [
            ("y", Some(self.y.len()), [curves * points; 2], &of_points),
            (
                "sigma",
                length(&self.sigma).filter(|found| *found != 1),
                each,
                &of_points,
            ),
            (
                "covariance",
                length(&self.covariance),
                matrices,
                &of_matrices,
            ),
            (
                "mask",
                self.mask.as_ref().map(|mask| mask.len()),
                each,
                &of_points,
            ),
            ("lower", length(&self.lower), of_curves, &of_bounds),
            ("upper", length(&self.upper), of_curves, &of_bounds),
        ];
        match all
            .into_iter()
            .find(|(_, found, wanted, _)| found.is_some_and(|found| !wanted.contains(&found)))
        {
            Some((what, found, _, why)) => {
                wrong(what, format!("{} numbers, not {why}", found.unwrap_or(0)))
            }
            None => Ok((curves, points)),
        }
    }

    /// Returns [`Error::InvalidArgument`] if there are sigmas or covariances and the estimator is Poisson's, for which
    /// they have no meaning, or if there are both.
    pub(crate) fn check_estimator(&self, estimator: Estimator) -> Result<()> {
        let given = [
            ("sigma", self.sigma.is_some()),
            ("covariance", self.covariance.is_some()),
        ];
        match given
            .into_iter()
            .find(|(_, is_given)| estimator.takes_counts() && *is_given)
        {
            Some((name, _)) => {
                let remedy = "leave it out, and mask what must not count";
                Err(Error::invalid(
                    name,
                    format!("{name}: it has no meaning for counts (Poisson): {remedy}"),
                ))
            }
            None if self.sigma.is_some() && self.covariance.is_some() => Err(Error::invalid(
                "covariance",
                "covariance: there are sigmas, too: give one of them",
            )),
            None => Ok(()),
        }
    }
}

/// Returns a number of things with their names, such as `2 parameters (a, k)`.
fn named(names: &[String], what: &str) -> String {
    format!(
        "{} {what}{} ({})",
        names.len(),
        if names.len() == 1 { "" } else { "s" },
        names.join(", ")
    )
}
