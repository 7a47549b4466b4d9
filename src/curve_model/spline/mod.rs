//! Tabulated templates as cubic splines: amplitude · S(x − shift) + offset, in one to three dimensions.

mod table;
mod wgsl;

use std::sync::Arc;

use self::table::{Knots, spline_coefficients};
use super::model::{Context, Failure, Model};
use super::{CurveModel, Wgsl};
use crate::error::{Error, Result};

/// Maximum number of predictors.
const MAX_SPLINE_AXES: usize = 3;
/// Maximum number of coefficients: every adapter allows bindings of 128 MiB.
const MAX_SPLINE_COEFFICIENTS: usize = 1 << 24;
const PREDICTORS: [&str; MAX_SPLINE_AXES] = ["x", "y", "z"];
const SHIFTS: [&str; MAX_SPLINE_AXES] = ["x0", "y0", "z0"];

/// A template's grid along one predictor: `first`, `first + step`, …
#[derive(Clone, Copy, Debug)]
pub struct SplineAxis {
    /// First point of the grid.
    pub first: f64,
    /// Distance of neighbouring points, positive.
    pub step: f64,
    /// Number of points, at least 2.
    pub count: usize,
}

impl SplineAxis {
    /// Returns the axis with points at 0, 1, …, `count` − 1, as Gpufit's templates have.
    pub fn unit(count: usize) -> SplineAxis {
        SplineAxis {
            first: 0.0,
            step: 1.0,
            count,
        }
    }
}

/// The natural spline through a table: a tensor product of cubic B-splines (de Boor 1978, ch. XVII).
#[derive(Clone, Debug)]
struct Spline {
    axes: Vec<SplineAxis>,
    /// (count + 2, …), row by row.
    coefficients: Vec<f64>,
}

impl CurveModel {
    /// Makes a tabulated template with Gpufit's parameters: a · S(x − x0, y − y0, z − z0) + c, in the order a, x0, y0,
    /// z0, c, with as many of the predictors x, y, z as there are `axes` (1 to 3). `values` has a number for every
    /// point of the grid, row by row, with the last axis the fastest. S is the natural cubic spline through them.
    /// Beyond the edge of the grid it continues as a straight line.
    ///
    /// The model runs on both devices.
    ///
    /// # Errors
    /// Returns [`Error::ShapeMismatch`] if the number of values is not that of the grid's points. Returns
    /// [`Error::Model`] if there are not 1 to 3 axes, if an axis has fewer than two points or a step that is not
    /// positive, if the grid has too many points, or if a value is not finite.
    pub fn spline(axes: &[SplineAxis], values: &[f64]) -> Result<CurveModel> {
        check_table(axes, values)?;
        let spline = Spline {
            axes: axes.to_vec(),
            coefficients: spline_coefficients(axes, values),
        };
        let wgsl = Wgsl {
            value: wgsl::write_fill(axes, false),
            linearisation: wgsl::write_fill(axes, true),
            differences: String::new(),
            table: spline.coefficients.iter().map(|c| *c as f32).collect(),
        };
        let predictors = spline.predictors();
        let parameters = spline.parameters();
        let model = CurveModel::of_rust("spline", predictors, parameters, Arc::new(spline));
        Ok(CurveModel {
            wgsl: Some(Arc::new(wgsl)),
            ..model
        })
    }
}

/// Fails unless there are 1 to 3 axes of at least two points, positive steps, and one finite value per grid point.
fn check_table(axes: &[SplineAxis], values: &[f64]) -> Result<()> {
    let fault = |argument, message: String| {
        Err(Error::model_setting(argument, format!("spline: {message}")))
    };
    // 1. Each axis has at least two points at finite, positive steps.
    if axes.is_empty() || axes.len() > MAX_SPLINE_AXES {
        return fault(
            "axes",
            format!("{} axes, not 1 to {MAX_SPLINE_AXES}", axes.len()),
        );
    }
    for (d, axis) in axes.iter().enumerate() {
        let SplineAxis { first, step, count } = *axis;
        if !(first.is_finite() && step.is_finite() && step > 0.0 && count >= 2) {
            return fault(
                "axes",
                format!(
                    "axis {} of {count} points from {first} by {step}",
                    PREDICTORS[d]
                ),
            );
        }
    }
    // 2. The table of coefficients, with two more along each axis, is not too large.
    let count_with = |extra: usize| {
        axes.iter().try_fold(1usize, |product, axis| {
            product.checked_mul(axis.count.checked_add(extra)?)
        })
    };
    match count_with(2) {
        Some(count) if count <= MAX_SPLINE_COEFFICIENTS => {}
        _ => {
            return fault(
                "axes",
                format!("more than {MAX_SPLINE_COEFFICIENTS} points"),
            );
        }
    }
    // 3. There is a finite value for each point.
    let expected = count_with(0).unwrap_or(0);
    if values.len() != expected {
        let counts: Vec<String> = axes.iter().map(|axis| axis.count.to_string()).collect();
        let message = format!(
            "{} numbers, not the {} = {expected} of the axes",
            values.len(),
            counts.join(" × ")
        );
        return Err(Error::mismatch("values", message).naming("values"));
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(k) => fault("values", format!("value {k} is {}", values[k])),
        None => Ok(()),
    }
}

impl Spline {
    /// Returns S and its derivatives by the predictors at one point.
    fn evaluate(&self, x: [f64; MAX_SPLINE_AXES]) -> (f64, [f64; MAX_SPLINE_AXES]) {
        // 1. Four B-splines are not 0 along each axis.
        let axes = self.axes.len();
        let mut knots = [Knots::default(); MAX_SPLINE_AXES];
        for (d, axis) in self.axes.iter().enumerate() {
            knots[d] = Knots::at((x[d] - axis.first) / axis.step, axis.count);
        }
        // 2. Sum over all products of one B-spline per axis. Its index along each axis is a digit of k to the base 4.
        let mut value = 0.0;
        let mut slopes = [0.0; MAX_SPLINE_AXES];
        for k in 0..1usize << (2 * axes) {
            let digit = |d: usize| (k >> (2 * (axes - 1 - d))) & 3;
            let index = (0..axes).fold(0, |index, d| {
                index * (self.axes[d].count + 2) + knots[d].cell + digit(d)
            });
            let coefficient = self.coefficients[index];
            let weight = |d: usize| knots[d].value[digit(d)];
            value += (0..axes).fold(coefficient, |product, d| product * weight(d));
            for (e, slope) in slopes[..axes].iter_mut().enumerate() {
                let factor = |d: usize| {
                    if d == e {
                        knots[d].slope[digit(d)]
                    } else {
                        weight(d)
                    }
                };
                *slope += (0..axes).fold(coefficient, |product, d| product * factor(d));
            }
        }
        for (axis, slope) in self.axes.iter().zip(&mut slopes) {
            *slope /= axis.step;
        }
        (value, slopes)
    }

    /// Calls `visit` with the index of every point, S, and its derivatives.
    fn visit_points(
        &self,
        x: &[f64],
        parameters: &[f64],
        mut visit: impl FnMut(usize, f64, [f64; MAX_SPLINE_AXES]),
    ) {
        let axes = self.axes.len();
        let points = x.len() / axes;
        for j in 0..points {
            let mut shifted = [0.0; MAX_SPLINE_AXES];
            for d in 0..axes {
                shifted[d] = x[d * points + j] - parameters[1 + d];
            }
            let (value, slopes) = self.evaluate(shifted);
            visit(j, value, slopes);
        }
    }
}

impl Model for Spline {
    fn predictors(&self) -> Vec<String> {
        PREDICTORS[..self.axes.len()]
            .iter()
            .map(|name| (*name).to_owned())
            .collect()
    }

    fn parameters(&self) -> Vec<String> {
        let shifts = SHIFTS[..self.axes.len()].iter();
        ["a"]
            .iter()
            .chain(shifts)
            .chain(&["c"])
            .map(|name| (*name).to_owned())
            .collect()
    }

    fn values(
        &self,
        _: &Context,
        x: &[f64],
        parameters: &[f64],
        values: &mut [f64],
    ) -> Result<(), Failure> {
        let amplitude = parameters[0];
        let offset = parameters[parameters.len() - 1];
        self.visit_points(x, parameters, |j, value, _| {
            values[j] = amplitude * value + offset
        });
        Ok(())
    }

    fn linearise(
        &self,
        _: &Context,
        x: &[f64],
        parameters: &[f64],
        rows: &mut [f64],
    ) -> Result<bool, Failure> {
        let axes = self.axes.len();
        let points = x.len() / axes;
        let amplitude = parameters[0];
        let offset = parameters[1 + axes];
        self.visit_points(x, parameters, |j, value, slopes| {
            rows[j] = amplitude * value + offset;
            rows[points + j] = value;
            for (d, slope) in slopes[..axes].iter().enumerate() {
                rows[(2 + d) * points + j] = -amplitude * slope;
            }
            rows[(2 + axes) * points + j] = 1.0;
        });
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
