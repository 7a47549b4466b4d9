//! Derivatives by differences in f64.

use super::model::{Context, Failure, Model};
use crate::recording::CustomInput;

/// ε^⅓ of f64: truncation and rounding of a central difference are both about 1e-11 of the value.
const STEP: f64 = 6e-6;
/// Least step as a share of a parameter: some of its last digits.
const LEAST_STEP: f64 = 64.0 * f64::EPSILON;
/// Smallest size of a parameter for a step, in its units: near zero its own size says nothing.
const SMALLEST: f64 = 0.01;
/// Largest relative difference between the slopes to two points where a model is smooth.
const SMOOTH: f64 = 0.1;
/// Changes of a model's values by a step, as shares of their range, between which the step is too long: a parameter's
/// own size says little where a narrow line lies at a large wavelength. What changes values by more is no line that
/// moves, but an offset, or residuals that are nearly 0.
const LARGEST_CHANGE: f64 = 0.01;
const OFFSET_CHANGE: f64 = 10.0;
/// Change for which a shorter step is taken.
const WANTED_CHANGE: f64 = 1e-4;
/// Least range of values, as a share of the largest: the change by a shorter step is to be far above their rounding.
const LEAST_RANGE: f64 = 1e-5;
/// Most times that other steps are taken.
pub(super) const MOST_OTHERS: usize = 3;
/// Step of a model that computes in f32, in units of the usual one: about ε^⅓ of f32, so that rounding leaves 3e-5 of a
/// difference.
const SINGLE_SHARE: f64 = 400.0;
/// Least number of values that tell f32 from numbers that happen to be short.
const LEAST_VALUES: usize = 4;

/// Finite-difference stencil of one parameter: three points of the parabola whose slope at the parameter itself is the
/// derivative.
#[derive(Clone, Copy)]
struct Stencil {
    /// Offsets of the two other points from the parameter.
    offsets: [f64; 2],
    /// Weights of the values at these points.
    weights: [f64; 2],
    /// Weight of the value at the parameter itself.
    own: f64,
}

/// A parameter, and its step as a share of the usual one.
#[derive(Clone, Copy)]
pub(super) struct Step {
    parameter: usize,
    share: f64,
}

/// Points at which differences are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    /// As the stencils say.
    Both,
    /// The parameter itself and the nearer of the stencil's points: half of the evaluations, for fits that are far from
    /// their end.
    One,
}

impl Stencil {
    /// Chooses two points around or beside a parameter, at most the `wanted` step away where there is room for both
    /// sides, within its bounds, for a difference quotient; `None` between equal bounds.
    fn new(parameter: f64, wanted: f64, lower: f64, upper: f64) -> Option<Stencil> {
        let (below, above) = (parameter - lower, upper - parameter);
        let room = below.max(above);
        if room.is_nan() || room <= 0.0 {
            return None;
        }
        // the actual step after rounding
        let step = (parameter + wanted) - parameter;
        if step <= below && step <= above {
            return Some(Stencil {
                offsets: [-step, step],
                weights: [-0.5 / step, 0.5 / step],
                own: 0.0,
            });
        }
        let step = step.min(0.5 * room) * if above >= below { 1.0 } else { -1.0 };
        Some(Stencil {
            offsets: [step, 2.0 * step],
            weights: [2.0 / step, -0.5 / step],
            own: -1.5 / step,
        })
    }

    /// Returns which of its two points is taken with the parameter itself where one will do: the nearer one.
    fn nearer(&self) -> usize {
        usize::from(self.offsets[1].abs() <= self.offsets[0].abs())
    }

    /// Computes the derivatives (n) from the values at the parameter itself and at the [`nearer`](Self::nearer) point,
    /// each (n).
    fn fill_from_one(&self, value: &[f64], at: &[f64], row: &mut [f64]) {
        let offset = self.offsets[self.nearer()];
        row.iter_mut()
            .zip(at.iter().zip(value))
            .for_each(|(slope, (at, value))| *slope = (at - value) / offset);
    }

    /// Computes the derivatives (n) from the values at the parameter itself and at both points beside it, each (n).
    fn fill(&self, value: &[f64], at: [&[f64]; 2], row: &mut [f64]) {
        let Stencil {
            offsets,
            weights,
            own,
        } = *self;
        // as a rule all are finite, and a loop without an early exit is vector code
        let mut are_finite = true;
        for ((slope, value), (first, second)) in
            row.iter_mut().zip(value).zip(at[0].iter().zip(at[1]))
        {
            *slope = weights[0] * first + weights[1] * second + own * value;
            are_finite &= slope.is_finite();
        }
        if are_finite {
            return;
        }
        for (j, slope) in row.iter_mut().enumerate() {
            let (first, second) = (at[0][j], at[1][j]);
            match (first.is_finite(), second.is_finite()) {
                (true, true) => {}
                (true, false) => *slope = (first - value[j]) / offsets[0],
                _ => *slope = (second - value[j]) / offsets[1],
            }
        }
    }
}

/// A model at one point, whose derivatives are taken by differences.
pub(super) struct Differences<'a> {
    pub model: &'a dyn Model,
    pub context: &'a Context,
    pub input: &'a CustomInput<'a>,
}

impl Differences<'_> {
    /// Computes values and, from differences of values, derivatives by each parameter into `rows` (1 + P, n). The model
    /// is never evaluated outside the limits. Where it is not finite on one side of a parameter, the difference is
    /// taken between the other side and the parameter itself. Where steps change the values too much, or by little more
    /// than the rounding of f32, others are taken.
    pub fn linearise(&self, rows: &mut [f64]) -> Result<(), Failure> {
        let points = rows.len() / (1 + self.input.parameters.len());
        // 1. The values at the parameters, and at the usual steps from them.
        let mut steps = self.usual_steps();
        let mut parameters = self.input.parameters.to_vec();
        self.append_points(Sides::Both, &steps, &mut parameters);
        let mut values = self.values(&parameters, points)?;
        rows[..points].copy_from_slice(&values[..points]);
        values.drain(..points);
        // 2. Differences, and those of other steps where some are too long or too short.
        for _ in 0..=MOST_OTHERS {
            steps = self.combine(Sides::Both, &steps, &values, rows);
            if steps.is_empty() {
                break;
            }
            parameters.clear();
            self.append_points(Sides::Both, &steps, &mut parameters);
            values = self.values(&parameters, points)?;
        }
        Ok(())
    }

    /// Returns the values (rows, n) at some points (rows, P), by one call of the model if it takes many.
    fn values(&self, parameters: &[f64], points: usize) -> Result<Vec<f64>, Failure> {
        let count = self.input.parameters.len();
        let mut values = vec![f64::NAN; parameters.len() / count * points];
        if self.model.takes_many() {
            let contexts = vec![*self.context; parameters.len() / count];
            self.model
                .values_many(&contexts, self.input.x, parameters, &mut values)?;
            return Ok(values);
        }
        for (parameters, values) in parameters
            .chunks_exact(count)
            .zip(values.chunks_exact_mut(points.max(1)))
        {
            self.model
                .try_values(self.context, self.input.x, parameters, values)?;
        }
        Ok(values)
    }

    /// Returns the usual steps of all parameters.
    pub fn usual_steps(&self) -> Vec<Step> {
        (0..self.input.parameters.len())
            .map(|parameter| Step {
                parameter,
                share: 1.0,
            })
            .collect()
    }

    /// Appends the points beside the parameters (P) at which [`combine`](Self::combine) needs values for some steps;
    /// returns how many rows these are.
    pub fn append_points(&self, sides: Sides, steps: &[Step], all: &mut Vec<f64>) -> usize {
        let parameters = self.input.parameters;
        let mut rows = 0;
        for step in steps {
            let Some((stencil, points)) = self.beside(step) else {
                continue;
            };
            let taken = match sides {
                Sides::Both => &points[..],
                Sides::One => std::slice::from_ref(&points[stencil.nearer()]),
            };
            for x in taken {
                let row = all.len();
                all.extend_from_slice(parameters);
                all[row + step.parameter] = *x;
            }
            rows += taken.len();
        }
        rows
    }

    /// Computes derivatives for some steps into `rows` (1 + P, n), the first of which has the values, from the values
    /// `beside` at the points that [`append_points`](Self::append_points) has chosen, (points, n). Returns other steps
    /// for those that are too long, or too short for values that were computed in f32.
    pub fn combine(
        &self,
        sides: Sides,
        steps: &[Step],
        mut beside: &[f64],
        rows: &mut [f64],
    ) -> Vec<Step> {
        let points = rows.len() / (1 + self.input.parameters.len());
        let (value, derivatives) = rows.split_at_mut(points);
        let (range, is_single) = (
            range(value),
            steps.iter().any(|step| step.share == 1.0) && is_single(value),
        );
        let mut others = Vec::new();
        for step in steps {
            let row = &mut derivatives[step.parameter * points..][..points];
            let Some((stencil, _)) = self.beside(step) else {
                row.fill(0.0);
                continue;
            };
            let (first, rest) = beside.split_at(points);
            beside = rest;
            let mut change = largest_change(value, first);
            if sides == Sides::One {
                stencil.fill_from_one(value, first, row);
            } else {
                let (second, rest) = beside.split_at(points);
                beside = rest;
                change = change.max(largest_change(value, second));
                stencil.fill(value, [first, second], row);
            }
            let wanted = WANTED_CHANGE * range / change;
            match change > LARGEST_CHANGE * range && change < OFFSET_CHANGE * range {
                true => others.push(Step {
                    share: step.share * wanted,
                    ..*step
                }),
                false if is_single => others.push(Step {
                    share: SINGLE_SHARE,
                    ..*step
                }),
                false => {}
            }
        }
        others
    }

    /// Replaces derivatives in `rows` (1 + P, n) that are not finite by differences where the values are finite and the
    /// model is smooth: the slopes to both points of the stencil are alike. Those by held parameters become 0. Those by
    /// a free parameter that is 0 stay: there the formula is more likely singular, which its user should be told.
    pub fn replace_overflows(&self, rows: &mut [f64]) -> Result<(), Failure> {
        let points = rows.len() / (1 + self.input.parameters.len());
        let (value, derivatives) = rows.split_at_mut(points);
        let mut at = [vec![0.0; points], vec![0.0; points]];
        for (p, row) in derivatives.chunks_exact_mut(points.max(1)).enumerate() {
            let is_open = |(slope, value): (&f64, &f64)| !slope.is_finite() && value.is_finite();
            if !row.iter().zip(&*value).any(is_open) {
                continue;
            }
            let stencil = self.values_beside(p, &mut at)?;
            if stencil.is_some() && self.input.parameters[p] == 0.0 {
                continue;
            }
            for (j, slope) in row
                .iter_mut()
                .enumerate()
                .filter(|(_, slope)| !slope.is_finite())
            {
                let Some(Stencil {
                    offsets,
                    weights,
                    own,
                }) = stencil
                else {
                    *slope = 0.0;
                    continue;
                };
                let slopes = [0, 1].map(|k| (at[k][j] - value[j]) / offsets[k]);
                let largest = slopes[0].abs().max(slopes[1].abs());
                if (slopes[0] - slopes[1]).abs() <= SMOOTH * largest {
                    *slope = weights[0] * at[0][j] + weights[1] * at[1][j] + own * value[j];
                }
            }
        }
        Ok(())
    }

    /// Computes the values at the two points of parameter `p`'s stencil, each (n), and returns the stencil; `None` if
    /// its bounds leave no room for one.
    fn values_beside(&self, p: usize, at: &mut [Vec<f64>; 2]) -> Result<Option<Stencil>, Failure> {
        let CustomInput { x, parameters, .. } = *self.input;
        let Some((stencil, points)) = self.beside(&Step {
            parameter: p,
            share: 1.0,
        }) else {
            return Ok(None);
        };
        let mut moved = parameters.to_vec();
        for (point, values) in points.into_iter().zip(at) {
            moved[p] = point;
            self.model.try_values(self.context, x, &moved, values)?;
        }
        Ok(Some(stencil))
    }

    /// Returns the stencil of a step and its parameter's values at the two points; `None` if the bounds leave no room
    /// for one.
    fn beside(&self, step: &Step) -> Option<(Stencil, [f64; 2])> {
        let CustomInput {
            parameters, limits, ..
        } = *self.input;
        let (p, x) = (step.parameter, parameters[step.parameter]);
        let (scale, lower, upper) = match limits {
            Some(limits) => (limits.scale[p], limits.lower[p], limits.upper[p]),
            None => (x.abs().max(1.0), f64::NEG_INFINITY, f64::INFINITY),
        };
        let wanted = (usual_step(x, scale) * step.share).max(LEAST_STEP * x.abs());
        let stencil = Stencil::new(x, wanted, lower, upper)?;
        Some((
            stencil,
            stencil
                .offsets
                .map(|offset| (x + offset).clamp(lower, upper)),
        ))
    }
}

/// Returns the usual step of a parameter.
fn usual_step(parameter: f64, scale: f64) -> f64 {
    STEP * parameter.abs().max(SMALLEST * scale)
}

/// Returns whether all finite values are numbers of f32, and more than happen to be.
fn is_single(values: &[f64]) -> bool {
    let mut long = values
        .iter()
        .filter(|value| value.is_finite() && **value != value.trunc());
    values
        .iter()
        .all(|value| !value.is_finite() || f64::from(*value as f32) == *value)
        && long.nth(LEAST_VALUES - 1).is_some()
}

/// Numbers that are compared side by side, so that the loops below are vector code.
const TOGETHER: usize = 8;

/// Returns the difference between the largest and the least of the finite values, at least [`LEAST_RANGE`].
fn range(values: &[f64]) -> f64 {
    let (mut least, mut largest) = ([f64::INFINITY; TOGETHER], [f64::NEG_INFINITY; TOGETHER]);
    for values in values.chunks(TOGETHER) {
        for ((least, largest), value) in least.iter_mut().zip(&mut largest).zip(values) {
            // false of NaN
            *least = if value < least && *value > f64::NEG_INFINITY {
                *value
            } else {
                *least
            };
            *largest = if value > largest && *value < f64::INFINITY {
                *value
            } else {
                *largest
            };
        }
    }
    let (least, largest) = (
        least.into_iter().fold(f64::INFINITY, f64::min),
        largest.into_iter().fold(f64::NEG_INFINITY, f64::max),
    );
    (largest - least).max(LEAST_RANGE * largest.abs().max(least.abs()))
}

/// Returns the largest difference between values that are finite.
fn largest_change(values: &[f64], others: &[f64]) -> f64 {
    let mut most = [0.0; TOGETHER];
    for (values, others) in values.chunks(TOGETHER).zip(others.chunks(TOGETHER)) {
        for ((most, a), b) in most.iter_mut().zip(values).zip(others) {
            let change = (a - b).abs();
            *most = if change > *most && change < f64::INFINITY {
                change
            } else {
                *most
            };
        }
    }
    most.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The derivative of exp at `parameter` between the bounds.
    fn slope(parameter: f64, lower: f64, upper: f64) -> f64 {
        let wanted = usual_step(parameter, 1.0);
        let Some(stencil) = Stencil::new(parameter, wanted, lower, upper) else {
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
        let mut rough = [f64::NAN];
        stencil.fill_from_one(
            &[parameter.exp()],
            &[at(stencil.offsets[stencil.nearer()])],
            &mut rough,
        );
        assert!(
            (rough[0] - parameter.exp()).abs() < 1e-5 * parameter.exp(),
            "{parameter} {lower} {upper}: {rough:?}"
        );
        sum + stencil.own * parameter.exp()
    }

    #[test]
    fn one_sided_at_bounds_and_never_outside() {
        for (parameter, lower, upper, tolerance) in [
            (1.0, f64::NEG_INFINITY, f64::INFINITY, 1e-10),
            (1.0, 1.0, 2.0, 1e-9),
            (1.0, 0.0, 1.0, 1e-9),
            (1.0, 0.0, 1.0 + 1e-9, 1e-9),
            (0.0, 0.0, 3.0, 1e-7),
            // narrower than a step
            (1.0, 1.0, 1.0 + 1e-7, 1e-7),
        ] {
            let exact = f64::exp(parameter);
            let found = slope(parameter, lower, upper);
            assert!(
                (found - exact).abs() < tolerance * exact,
                "{parameter} {lower} {upper}: {found}"
            );
        }
        assert!(Stencil::new(1.0, 1.0, 1.0, 1.0).is_none());
    }
}
