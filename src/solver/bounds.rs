//! Box constraints.

use super::thresholds::UNCERTAIN_SLOPE_SHARE;
use crate::math::Real;
use crate::math::lanes::pick;

/// Lower and upper bounds of the parameters of one fit, (P) each. A parameter with equal bounds is held.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    pub lower: &'a [f64],
    pub upper: &'a [f64],
}

impl Bounds<'_> {
    /// Returns the bounds of parameter `p`.
    pub fn of(&self, p: usize) -> Interval<f64> {
        Interval {
            lower: self.lower[p],
            upper: self.upper[p],
        }
    }

    /// Returns the indices of the parameters whose bounds leave room to move.
    pub fn free_parameters(&self) -> Vec<usize> {
        (0..self.lower.len())
            .filter(|&p| self.of(p).has_room())
            .collect()
    }

    /// Returns the indices of the parameters that lie strictly between their bounds at `point`.
    pub fn interior_parameters(&self, point: &[f64]) -> Vec<usize> {
        (0..point.len())
            .filter(|&p| self.lower[p] < point[p] && point[p] < self.upper[p])
            .collect()
    }

    /// Moves a point in place into the bounds, parameter by parameter.
    pub fn clamp(&self, point: &mut [f64]) {
        for (x, (lower, upper)) in point.iter_mut().zip(self.lower.iter().zip(self.upper)) {
            *x = x.clamp(*lower, *upper);
        }
    }
}

/// Bounds of one parameter of one fit, in f32 or f64. As in `round/step/equations.rs`, nothing has a branch.
#[derive(Clone, Copy, Debug)]
pub struct Interval<R> {
    pub lower: R,
    pub upper: R,
}

impl<R: Real> Interval<R> {
    /// Returns whether the bounds leave room for the parameter.
    #[inline(always)]
    pub fn has_room(self) -> bool {
        self.lower < self.upper
    }

    /// Returns whether a parameter at `x` may move: there is room, and the `gradient`, minus half the derivative of
    /// the cost, does not push it against a bound.
    #[inline(always)]
    pub fn lets_move(self, x: R, gradient: R) -> bool {
        let pushed_down = (x <= self.lower) & (gradient <= R::ZERO);
        let pushed_up = (x >= self.upper) & (gradient >= R::ZERO);
        self.has_room() & !(pushed_down | pushed_up)
    }

    /// Returns whether x is neither below nor above the bounds.
    #[inline(always)]
    pub fn contains(self, x: R) -> bool {
        !((x < self.lower) | (x > self.upper))
    }

    /// Returns the step from `x` to the bound that a step of `goal` would cross.
    #[inline(always)]
    pub fn step_to_face(self, x: R, goal: R) -> R {
        pick(x + goal < self.lower, self.lower, self.upper) - x
    }

    /// Returns the share (0 to 1) of the way between the steps `from` and `goal` that stays inside the bounds of a
    /// parameter at `x`.
    #[inline(always)]
    pub fn share_inside(self, x: R, from: R, goal: R) -> R {
        let distance = goal - from;
        let share = ((self.step_to_face(x, goal) - from) / distance)
            .maximum(R::ZERO)
            .minimum(R::ONE);
        pick(
            self.contains(x + goal) | (distance == R::ZERO),
            R::ONE,
            share,
        )
    }

    /// Returns the cost reduction predicted if this parameter, which is held at `x`, is the only one that is freed; 0
    /// unless the cost falls inwards.
    ///
    /// `slope` is the gradient of the damped model there, `size_of_terms` the sum of the magnitudes of its terms, and
    /// `diagonal` the parameter's element of the normal matrix.
    #[inline(always)]
    pub fn gain_inwards(self, x: R, slope: R, size_of_terms: R, diagonal: R) -> R {
        let slope_inwards = pick(x - self.lower <= self.upper - x, slope, -slope);
        let is_certain = slope_inwards > R::of(UNCERTAIN_SLOPE_SHARE) * size_of_terms;
        let gains = self.has_room() & (diagonal > R::ZERO) & is_certain;
        pick(gains, slope_inwards * (slope_inwards / diagonal), R::ZERO)
    }
}
