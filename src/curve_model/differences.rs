//! Derivatives by differences in f64.

use super::model::{Context, Failure, Model};
use crate::recording::CustomInput;

/// ε^⅓ of f64: truncation and rounding of a central difference are both about 1e-11 of the value.
const STEP: f64 = 6e-6;
/// Smallest size of a parameter for a step, in its units: near zero its own size says nothing.
const SMALLEST: f64 = 0.01;
/// Largest relative difference between the slopes to two points where a model is smooth.
const SMOOTH: f64 = 0.1;

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

impl Stencil {
    /// Chooses two points around or beside a parameter, within its bounds, for a difference quotient; `None` between
    /// equal bounds.
    fn new(parameter: f64, scale: f64, lower: f64, upper: f64) -> Option<Stencil> {
        let wanted = STEP * parameter.abs().max(SMALLEST * scale);
        let (below, above) = (parameter - lower, upper - parameter);
        let room = below.max(above);
        if room.is_nan() || room <= 0.0 {
            return None;
        }
        // the actual step after rounding
        let step = (parameter + wanted) - parameter;
        if step <= below && step <= above {
            return Some(Stencil { offsets: [-step, step], weights: [-0.5 / step, 0.5 / step], own: 0.0 });
        }
        let step = step.min(0.5 * room) * if above >= below { 1.0 } else { -1.0 };
        Some(Stencil { offsets: [step, 2.0 * step], weights: [2.0 / step, -0.5 / step], own: -1.5 / step })
    }
}

/// Points at which differences are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    /// As the stencils say.
    Both,
    /// The parameter itself and one point beside it: half of the evaluations, and some thousandths of an error, far
    /// from the end of a fit.
    One,
}

impl Stencil {
    /// Returns which of its two points is taken with the parameter itself where one will do: the nearer one.
    fn nearer(&self) -> usize {
        usize::from(self.offsets[1].abs() <= self.offsets[0].abs())
    }

    /// Computes the derivatives (n) from the values at the parameter itself and at the [`nearer`](Self::nearer) point,
    /// each (n).
    fn fill_from_one(&self, value: &[f64], at: &[f64], row: &mut [f64]) {
        let offset = self.offsets[self.nearer()];
        row.iter_mut().zip(at.iter().zip(value)).for_each(|(slope, (at, value))| *slope = (at - value) / offset);
    }

    /// Computes the derivatives (n) from the values at the parameter itself and at both points beside it, each (n).
    fn fill(&self, value: &[f64], at: [&[f64]; 2], row: &mut [f64]) {
        let Stencil { offsets, weights, own } = *self;
        // as a rule all are finite, and a loop without an early exit is vector code
        let mut are_finite = true;
        for ((slope, value), (first, second)) in row.iter_mut().zip(value).zip(at[0].iter().zip(at[1])) {
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
    /// taken between the other side and the parameter itself.
    pub fn linearise(&self, rows: &mut [f64]) -> Result<(), Failure> {
        let CustomInput { x, parameters, .. } = *self.input;
        let points = rows.len() / (1 + parameters.len());
        let (value, derivatives) = rows.split_at_mut(points);
        self.model.try_values(self.context, x, parameters, value)?;
        let mut at = [vec![0.0; points], vec![0.0; points]];
        for (p, row) in derivatives.chunks_exact_mut(points.max(1)).enumerate() {
            match self.values_beside(p, &mut at)? {
                Some(stencil) => stencil.fill(value, [&at[0], &at[1]], row),
                None => row.fill(0.0),
            }
        }
        Ok(())
    }

    /// Does what [`linearise`](Self::linearise) does by one call of the model.
    pub fn linearise_at_once(&self, rows: &mut [f64]) -> Result<(), Failure> {
        let points = rows.len() / (1 + self.input.parameters.len());
        let mut parameters = Vec::new();
        let count = self.append_points(Sides::Both, &mut parameters);
        let mut values = vec![f64::NAN; count * points];
        self.model.values_many(&vec![*self.context; count], self.input.x, &parameters, &mut values)?;
        self.combine(Sides::Both, &values, rows);
        Ok(())
    }

    /// Appends the parameters (P) and the points beside them at which [`combine`](Self::combine) needs values; returns
    /// how many rows these are.
    pub fn append_points(&self, sides: Sides, all: &mut Vec<f64>) -> usize {
        let parameters = self.input.parameters;
        all.extend_from_slice(parameters);
        let mut rows = 1;
        for p in 0..parameters.len() {
            let Some((stencil, points)) = self.beside(p) else { continue };
            let taken = match sides {
                Sides::Both => &points[..],
                Sides::One => std::slice::from_ref(&points[stencil.nearer()]),
            };
            for x in taken {
                let row = all.len();
                all.extend_from_slice(parameters);
                all[row + p] = *x;
            }
            rows += taken.len();
        }
        rows
    }

    /// Computes what [`linearise`](Self::linearise) does from `values` at the points that
    /// [`append_points`](Self::append_points) has chosen, (rows, n).
    pub fn combine(&self, sides: Sides, values: &[f64], rows: &mut [f64]) {
        let points = rows.len() / (1 + self.input.parameters.len());
        let (value, derivatives) = rows.split_at_mut(points);
        let (own, mut beside) = values.split_at(points);
        value.copy_from_slice(own);
        for (p, row) in derivatives.chunks_exact_mut(points.max(1)).enumerate() {
            let Some((stencil, _)) = self.beside(p) else {
                row.fill(0.0);
                continue;
            };
            let (first, rest) = beside.split_at(points);
            beside = rest;
            if sides == Sides::One {
                stencil.fill_from_one(value, first, row);
                continue;
            }
            let (second, rest) = beside.split_at(points);
            stencil.fill(value, [first, second], row);
            beside = rest;
        }
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
            for (j, slope) in row.iter_mut().enumerate().filter(|(_, slope)| !slope.is_finite()) {
                let Some(Stencil { offsets, weights, own }) = stencil else {
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
        let Some((stencil, points)) = self.beside(p) else { return Ok(None) };
        let mut moved = parameters.to_vec();
        for (point, values) in points.into_iter().zip(at) {
            moved[p] = point;
            self.model.try_values(self.context, x, &moved, values)?;
        }
        Ok(Some(stencil))
    }

    /// Returns parameter `p`'s stencil and its values at the two points; `None` if its bounds leave no room for one.
    fn beside(&self, p: usize) -> Option<(Stencil, [f64; 2])> {
        let CustomInput { parameters, limits, .. } = *self.input;
        let (scale, lower, upper) = match limits {
            Some(limits) => (limits.scale[p], limits.lower[p], limits.upper[p]),
            None => (parameters[p].abs().max(1.0), f64::NEG_INFINITY, f64::INFINITY),
        };
        let stencil = Stencil::new(parameters[p], scale, lower, upper)?;
        Some((stencil, stencil.offsets.map(|offset| (parameters[p] + offset).clamp(lower, upper))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The derivative of exp at `parameter` between the bounds.
    fn slope(parameter: f64, lower: f64, upper: f64) -> f64 {
        let Some(stencil) = Stencil::new(parameter, 1.0, lower, upper) else { return 0.0 };
        let at = |offset: f64| {
            let x = parameter + offset;
            assert!((lower..=upper).contains(&x), "{x}");
            x.exp()
        };
        let sum: f64 = stencil.offsets.iter().zip(stencil.weights).map(|(offset, weight)| weight * at(*offset)).sum();
        let mut rough = [f64::NAN];
        stencil.fill_from_one(&[parameter.exp()], &[at(stencil.offsets[stencil.nearer()])], &mut rough);
        assert!((rough[0] - parameter.exp()).abs() < 1e-5 * parameter.exp(), "{parameter} {lower} {upper}: {rough:?}");
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
            assert!((found - exact).abs() < tolerance * exact, "{parameter} {lower} {upper}: {found}");
        }
        assert!(Stencil::new(1.0, 1.0, 1.0, 1.0).is_none());
    }
}
