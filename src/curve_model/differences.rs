//! Derivatives by differences in f64.

use super::model::{Context, Failure, Model};
use crate::recording::CustomInput;

/// ε^⅓ of f64: truncation and rounding of a central difference are both about 1e-11 of the value.
const USUAL_RELATIVE_STEP: f64 = 6e-6;
/// Smallest step as a share of a parameter: some of its last digits.
const MIN_RELATIVE_STEP: f64 = 64.0 * f64::EPSILON;
/// Smallest size of a parameter for a step, in its units: near zero its own size is no measure.
const MIN_SIZE_IN_UNITS: f64 = 0.01;
/// Largest relative difference between the slopes to two points where a model is smooth.
const MAX_SMOOTH_SLOPE_DIFFERENCE: f64 = 0.1;
/// Change of a model's values by a step, as a share of their range, above which the step is too long: a parameter's own
/// size is no measure where a narrow line lies at a large wavelength.
const MAX_CHANGE_PER_RANGE: f64 = 0.01;
/// Change above which the step stays: the parameter does not move a line, but is an offset, or the residuals are nearly
/// 0.
const MIN_OFFSET_CHANGE_PER_RANGE: f64 = 10.0;
/// Change for which a shorter step is taken.
const TARGET_CHANGE_PER_RANGE: f64 = 1e-4;
/// Smallest range of values, as a share of the largest: the change by a shorter step must be far above their rounding.
const MIN_RANGE_PER_VALUE: f64 = 1e-5;
/// Maximum number of times that other steps are taken.
pub(super) const MAX_STEP_CORRECTIONS: usize = 3;
/// Step of a model that computes in f32, in units of the usual one: about ε^⅓ of f32, so that rounding leaves
/// 3e-5 of a difference.
const SINGLE_PRECISION_STEP_SHARE: f64 = 400.0;
/// Smallest number of values that distinguish f32 from numbers that happen to be short.
const MIN_LONG_VALUES: usize = 4;

/// Finite-difference stencil of one parameter: three points of the parabola whose slope at the parameter itself is the
/// derivative.
#[derive(Clone, Copy)]
struct Stencil {
    /// Offsets of the two other points from the parameter.
    offsets: [f64; 2],
    /// Weights of the values at these points.
    weights: [f64; 2],
    /// Weight of the value at the parameter itself.
    own_weight: f64,
}

/// A parameter, and its step as a share of the usual one.
#[derive(Clone, Copy)]
pub(super) struct DifferenceStep {
    parameter: usize,
    share: f64,
}

/// Points at which differences are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    /// Both points of the stencils.
    Both,
    /// The parameter itself and the nearer of the stencil's points: half of the evaluations, for fits that are far from
    /// their end.
    One,
}

impl Stencil {
    /// Chooses two points around or beside a parameter, within its bounds, for a difference quotient: `max_step` away
    /// where there is room on both sides. Returns `None` between equal bounds.
    fn new(parameter: f64, max_step: f64, lower: f64, upper: f64) -> Option<Stencil> {
        let below = parameter - lower;
        let above = upper - parameter;
        let room = below.max(above);
        if room.is_nan() || room <= 0.0 {
            return None;
        }
        // 1. Central differences, by the actual step after rounding, where there is room.
        let step = (parameter + max_step) - parameter;
        if step <= below && step <= above {
            return Some(Stencil {
                offsets: [-step, step],
                weights: [-0.5 / step, 0.5 / step],
                own_weight: 0.0,
            });
        }
        // 2. Otherwise two points on the side with more room.
        let step = step.min(0.5 * room) * if above >= below { 1.0 } else { -1.0 };
        Some(Stencil {
            offsets: [step, 2.0 * step],
            weights: [2.0 / step, -0.5 / step],
            own_weight: -1.5 / step,
        })
    }

    /// Returns the index of the nearer point, which is used alone for one-sided differences.
    fn nearer_point(&self) -> usize {
        usize::from(self.offsets[1].abs() <= self.offsets[0].abs())
    }

    /// Computes the derivatives (n) from the values at the parameter itself and at the
    /// [`nearer_point`](Self::nearer_point), each (n).
    fn one_sided_derivatives(&self, value: &[f64], beside: &[f64], row: &mut [f64]) {
        let offset = self.offsets[self.nearer_point()];
        row.iter_mut()
            .zip(beside.iter().zip(value))
            .for_each(|(slope, (beside, value))| *slope = (beside - value) / offset);
    }

    /// Computes the derivatives (n) from the values at the parameter itself and at both points `beside` it, each (n).
    fn two_sided_derivatives(&self, value: &[f64], beside: [&[f64]; 2], row: &mut [f64]) {
        let Stencil {
            offsets,
            weights,
            own_weight,
        } = *self;
        // 1. As a rule all values are finite, and a loop without an early exit is vectorised.
        let mut are_finite = true;
        for ((slope, value), (first, second)) in row
            .iter_mut()
            .zip(value)
            .zip(beside[0].iter().zip(beside[1]))
        {
            *slope = weights[0] * first + weights[1] * second + own_weight * value;
            are_finite &= slope.is_finite();
        }
        if are_finite {
            return;
        }
        // 2. Where one value is not, the other one is enough.
        for (j, slope) in row.iter_mut().enumerate() {
            let first = beside[0][j];
            let second = beside[1][j];
            match (first.is_finite(), second.is_finite()) {
                (true, true) => {}
                (true, false) => *slope = (first - value[j]) / offsets[0],
                _ => *slope = (second - value[j]) / offsets[1],
            }
        }
    }
}

/// A model at one point, whose derivatives are taken by differences.
pub(super) struct FiniteDifferences<'a> {
    pub model: &'a dyn Model,
    pub context: &'a Context,
    pub input: &'a CustomInput<'a>,
}

impl FiniteDifferences<'_> {
    /// Returns the usual steps of all parameters.
    pub fn usual_steps(&self) -> Vec<DifferenceStep> {
        (0..self.input.parameters.len())
            .map(|parameter| DifferenceStep {
                parameter,
                share: 1.0,
            })
            .collect()
    }

    /// Appends to `rows` the points beside the parameters (P) at which [`combine`](Self::combine) needs values for
    /// these steps; returns the number of appended rows.
    pub fn append_points(
        &self,
        sides: Sides,
        steps: &[DifferenceStep],
        rows: &mut Vec<f64>,
    ) -> usize {
        let mut count = 0;
        for step in steps {
            let Some((stencil, positions)) = self.place_stencil(step) else {
                continue;
            };
            let used_positions = match sides {
                Sides::Both => &positions[..],
                Sides::One => std::slice::from_ref(&positions[stencil.nearer_point()]),
            };
            for position in used_positions {
                let row = rows.len();
                rows.extend(self.input.parameters);
                rows[row + step.parameter] = *position;
            }
            count += used_positions.len();
        }
        count
    }

    /// Computes derivatives for these steps into `rows` (1 + P, n), the first of which has the values, from the values
    /// `beside` at the points that [`append_points`](Self::append_points) has chosen, (points, n). Returns corrections
    /// of the steps that are too long, or too short for values that were computed in f32.
    pub fn combine(
        &self,
        sides: Sides,
        steps: &[DifferenceStep],
        beside: &[f64],
        rows: &mut [f64],
    ) -> Vec<DifferenceStep> {
        let points = rows.len() / (1 + self.input.parameters.len());
        let (value, derivatives) = rows.split_at_mut(points);
        let range = range(value);
        let is_single = steps.iter().any(|step| step.share == 1.0) && is_single(value);
        let mut remaining = beside;
        let mut corrections = Vec::new();
        for step in steps {
            // 1. Compute the derivative. Between equal bounds it is 0.
            let row = &mut derivatives[step.parameter * points..][..points];
            let Some((stencil, _)) = self.place_stencil(step) else {
                row.fill(0.0);
                continue;
            };
            let first;
            (first, remaining) = remaining.split_at(points);
            let mut change = largest_change(value, first);
            if sides == Sides::One {
                stencil.one_sided_derivatives(value, first, row);
            } else {
                let second;
                (second, remaining) = remaining.split_at(points);
                change = change.max(largest_change(value, second));
                stencil.two_sided_derivatives(value, [first, second], row);
            }
            // 2. Correct a step that changes the values too much, or by little more than the rounding of f32.
            let is_too_long = change > MAX_CHANGE_PER_RANGE * range
                && change < MIN_OFFSET_CHANGE_PER_RANGE * range;
            if is_too_long {
                let shortening = TARGET_CHANGE_PER_RANGE * range / change;
                corrections.push(DifferenceStep {
                    share: step.share * shortening,
                    ..*step
                });
            } else if is_single {
                corrections.push(DifferenceStep {
                    share: SINGLE_PRECISION_STEP_SHARE,
                    ..*step
                });
            }
        }
        corrections
    }

    /// Replaces derivatives in `rows` (1 + P, n) that are not finite by differences where the values are finite and the
    /// model is smooth: the slopes to both points of the stencil are alike. Derivatives by held parameters become 0.
    /// Those by a free parameter that is 0 stay: there the formula is more likely singular, which its user should know.
    pub fn replace_overflows(&self, rows: &mut [f64]) -> Result<(), Failure> {
        let points = rows.len() / (1 + self.input.parameters.len());
        let (value, derivatives) = rows.split_at_mut(points);
        let mut beside = [vec![0.0; points], vec![0.0; points]];
        for (p, row) in derivatives.chunks_exact_mut(points.max(1)).enumerate() {
            // 1. Choose the derivatives that overflow where the values do not.
            let overflows = row
                .iter()
                .zip(&*value)
                .any(|(slope, value)| !slope.is_finite() && value.is_finite());
            if !overflows {
                continue;
            }
            let stencil = self.evaluate_beside(p, &mut beside)?;
            if stencil.is_some() && self.input.parameters[p] == 0.0 {
                continue;
            }
            // 2. Replace them where the slopes on both sides agree.
            for (j, slope) in row.iter_mut().enumerate() {
                if slope.is_finite() {
                    continue;
                }
                let Some(Stencil {
                    offsets,
                    weights,
                    own_weight,
                }) = stencil
                else {
                    *slope = 0.0;
                    continue;
                };
                let slopes = [0, 1].map(|k| (beside[k][j] - value[j]) / offsets[k]);
                let steeper = slopes[0].abs().max(slopes[1].abs());
                if (slopes[0] - slopes[1]).abs() <= MAX_SMOOTH_SLOPE_DIFFERENCE * steeper {
                    *slope = weights[0] * beside[0][j]
                        + weights[1] * beside[1][j]
                        + own_weight * value[j];
                }
            }
        }
        Ok(())
    }

    /// Computes the values at the two points of parameter `p`'s stencil, each (n), and returns the stencil; `None` if
    /// its bounds leave no room for one.
    fn evaluate_beside(
        &self,
        p: usize,
        values: &mut [Vec<f64>; 2],
    ) -> Result<Option<Stencil>, Failure> {
        let CustomInput { x, parameters, .. } = *self.input;
        let usual_step = DifferenceStep {
            parameter: p,
            share: 1.0,
        };
        let Some((stencil, positions)) = self.place_stencil(&usual_step) else {
            return Ok(None);
        };
        let mut moved = parameters.to_vec();
        for (position, values) in positions.into_iter().zip(values) {
            moved[p] = position;
            self.model.values(self.context, x, &moved, values)?;
        }
        Ok(Some(stencil))
    }

    /// Returns the stencil of a step and its parameter's values at the two points; `None` if the bounds leave no room
    /// for one.
    fn place_stencil(&self, step: &DifferenceStep) -> Option<(Stencil, [f64; 2])> {
        let p = step.parameter;
        let x = self.input.parameters[p];
        let (scale, lower, upper) = match self.input.limits {
            Some(limits) => (limits.scale[p], limits.lower[p], limits.upper[p]),
            None => (x.abs().max(1.0), f64::NEG_INFINITY, f64::INFINITY),
        };
        let max_step = (usual_step(x, scale) * step.share).max(MIN_RELATIVE_STEP * x.abs());
        let stencil = Stencil::new(x, max_step, lower, upper)?;
        let positions = stencil
            .offsets
            .map(|offset| (x + offset).clamp(lower, upper));
        Some((stencil, positions))
    }
}

/// Returns the usual step of a parameter.
fn usual_step(parameter: f64, scale: f64) -> f64 {
    USUAL_RELATIVE_STEP * parameter.abs().max(MIN_SIZE_IN_UNITS * scale)
}

/// Returns whether all finite values are numbers of f32, and enough of them are no integers, so that this is no
/// accident.
fn is_single(values: &[f64]) -> bool {
    let mut fractions = values
        .iter()
        .filter(|value| value.is_finite() && **value != value.trunc());
    values
        .iter()
        .all(|value| !value.is_finite() || f64::from(*value as f32) == *value)
        && fractions.nth(MIN_LONG_VALUES - 1).is_some()
}

/// Number of values that are compared side by side, so that the loops below are vectorised.
const VALUES_PER_CHUNK: usize = 8;

/// Returns the difference between the largest and the smallest of the finite values, at least
/// [`MIN_RANGE_PER_VALUE`].
fn range(values: &[f64]) -> f64 {
    let mut smallest = [f64::INFINITY; VALUES_PER_CHUNK];
    let mut largest = [f64::NEG_INFINITY; VALUES_PER_CHUNK];
    for values in values.chunks(VALUES_PER_CHUNK) {
        for ((smallest, largest), value) in smallest.iter_mut().zip(&mut largest).zip(values) {
            // Comparisons with NaN are false.
            *smallest = if value < smallest && *value > f64::NEG_INFINITY {
                *value
            } else {
                *smallest
            };
            *largest = if value > largest && *value < f64::INFINITY {
                *value
            } else {
                *largest
            };
        }
    }
    let smallest = smallest.into_iter().fold(f64::INFINITY, f64::min);
    let largest = largest.into_iter().fold(f64::NEG_INFINITY, f64::max);
    (largest - smallest).max(MIN_RANGE_PER_VALUE * largest.abs().max(smallest.abs()))
}

/// Returns the largest difference between values that are finite.
fn largest_change(values: &[f64], changed: &[f64]) -> f64 {
    let mut largest = [0.0; VALUES_PER_CHUNK];
    for (values, changed) in values
        .chunks(VALUES_PER_CHUNK)
        .zip(changed.chunks(VALUES_PER_CHUNK))
    {
        for ((largest, a), b) in largest.iter_mut().zip(values).zip(changed) {
            let change = (a - b).abs();
            *largest = if change > *largest && change < f64::INFINITY {
                change
            } else {
                *largest
            };
        }
    }
    largest.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the derivative of exp at `parameter` between the bounds.
    fn slope(parameter: f64, lower: f64, upper: f64) -> f64 {
        let max_step = usual_step(parameter, 1.0);
        let Some(stencil) = Stencil::new(parameter, max_step, lower, upper) else {
            return 0.0;
        };
        let at = |offset: f64| {
            let x = parameter + offset;
            assert!((lower..=upper).contains(&x), "{x}");
            x.exp()
        };
        let sum: f64 = stencil
            .offsets
            .iter()
            .zip(stencil.weights)
            .map(|(offset, weight)| weight * at(*offset))
            .sum();
        let mut one_sided = [f64::NAN];
        stencil.one_sided_derivatives(
            &[parameter.exp()],
            &[at(stencil.offsets[stencil.nearer_point()])],
            &mut one_sided,
        );
        assert!(
            (one_sided[0] - parameter.exp()).abs() < 1e-5 * parameter.exp(),
            "{parameter} {lower} {upper}: {one_sided:?}"
        );
        sum + stencil.own_weight * parameter.exp()
    }

    #[test]
    fn differences_are_one_sided_at_bounds_and_never_outside() {
        for (parameter, lower, upper, tolerance) in [
            (1.0, f64::NEG_INFINITY, f64::INFINITY, 1e-10),
            (1.0, 1.0, 2.0, 1e-9),
            (1.0, 0.0, 1.0, 1e-9),
            (1.0, 0.0, 1.0 + 1e-9, 1e-9),
            (0.0, 0.0, 3.0, 1e-7),
            // The bounds are narrower than a step.
            (1.0, 1.0, 1.0 + 1e-7, 1e-7),
        ] {
            let exact = f64::exp(parameter);
            let derivative = slope(parameter, lower, upper);
            assert!(
                (derivative - exact).abs() < tolerance * exact,
                "{parameter} {lower} {upper}: {derivative}"
            );
        }
        assert!(Stencil::new(1.0, 1.0, 1.0, 1.0).is_none());
    }
}
