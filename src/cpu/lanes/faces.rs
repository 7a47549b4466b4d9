//! Active bounds of a block's steps: a step goes from bound to bound, as `solver/round/step/faces.rs` does for one
//! member.
#![expect(clippy::needless_range_loop, reason = "one index for many arrays")]

use super::block::{FitBlock, RUNNING_LANE_STATUS, gradient, normal};
use super::step::replace_if;
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes, absolute, pick};
use crate::solver::Interval;
use crate::solver::round::step::equations::interpolate;

impl<R: Real> FitBlock<R> {
    /// Moves the reached step towards `delta` up to the first bound, or releases a wrongly held parameter. Returns
    /// `false` when all lanes have arrived.
    #[inline(always)]
    pub fn turn_at_bounds(&mut self) -> bool {
        if self.is_step_inside() {
            return false;
        }
        let share_gone = self.move_to_bounds();
        let largest_gain = self.find_release_gains(&share_gone);
        for p in 0..self.parameters {
            let gain = &self.scratch[p].0;
            let free = &mut self.is_free[p].0;
            for l in 0..LANES {
                let is_free = free[l];
                let largest_gain = largest_gain.0[l];
                free[l] = replace_if(
                    (largest_gain > R::ZERO) & (gain[l] == largest_gain),
                    R::ONE,
                    is_free,
                );
            }
        }
        let running = R::of(RUNNING_LANE_STATUS);
        (0..LANES).any(|l| {
            self.status.0[l] == running && (share_gone.0[l] < R::ONE || largest_gain.0[l] > R::ZERO)
        })
    }

    /// Returns whether, in every running lane, the step stays inside the bounds and no bound holds a parameter.
    #[inline(always)]
    fn is_step_inside(&self) -> bool {
        let mut all_inside = true;
        let running = R::of(RUNNING_LANE_STATUS);
        for p in 0..self.parameters {
            let x = &self.accepted[p].0;
            let delta = &self.delta[p].0;
            let free = &self.is_free[p].0;
            let lower = &self.lower[p].0;
            let upper = &self.upper[p].0;
            let status = &self.status.0;
            for l in 0..LANES {
                let interval = Interval {
                    lower: lower[l],
                    upper: upper[l],
                };
                let is_held = (free[l] == R::ZERO) & interval.has_room();
                all_inside &=
                    (status[l] != running) | (interval.contains(x[l] + delta[l]) & !is_held);
            }
        }
        all_inside
    }

    /// Moves the reached step towards `delta` up to the first bound, and holds the parameters that meet it. Returns the
    /// share of the remaining step that was gone.
    #[inline(always)]
    fn move_to_bounds(&mut self) -> Lanes<R> {
        let mut share_gone = Lanes::splat(R::ONE);
        for p in 0..self.parameters {
            let inside = self.share_inside(p);
            (0..LANES).for_each(|l| share_gone.0[l] = share_gone.0[l].minimum(inside.0[l]));
            self.scratch[p] = inside;
        }
        for p in 0..self.parameters {
            let inside = &self.scratch[p].0;
            let x = &self.accepted[p].0;
            let delta = &self.delta[p].0;
            let lower = &self.lower[p].0;
            let upper = &self.upper[p].0;
            let reached = &mut self.reached_step[p].0;
            let free = &mut self.is_free[p].0;
            for l in 0..LANES {
                let from = reached[l];
                let to = delta[l];
                let gone = share_gone.0[l];
                let is_free = free[l];
                let meets = (is_free > R::ZERO) & (gone < R::ONE) & (inside[l] == gone);
                let interval = Interval {
                    lower: lower[l],
                    upper: upper[l],
                };
                // The bits of a lane that has arrived do not change while it waits for others.
                reached[l] = replace_if(
                    meets,
                    interval.step_to_face(x[l], to),
                    interpolate(from, to, gone),
                );
                free[l] = replace_if(meets, R::ZERO, is_free);
            }
        }
        share_gone
    }

    /// Returns the share (0 to 1) of the way from the reached step to `delta` that lies inside the bounds of parameter
    /// p.
    #[inline(always)]
    fn share_inside(&self, p: usize) -> Lanes<R> {
        let x = &self.accepted[p].0;
        let lower = &self.lower[p].0;
        let upper = &self.upper[p].0;
        let reached = &self.reached_step[p].0;
        let delta = &self.delta[p].0;
        let free = &self.is_free[p].0;
        let mut inside = Lanes::splat(R::ONE);
        for l in 0..LANES {
            let share = Interval {
                lower: lower[l],
                upper: upper[l],
            }
            .share_inside(x[l], reached[l], delta[l]);
            inside.0[l] = pick(free[l] > R::ZERO, share, R::ONE);
        }
        inside
    }

    /// Writes the gain of releasing each parameter that is held although the cost falls inwards into `scratch`; returns
    /// the largest gain.
    #[inline(always)]
    fn find_release_gains(&mut self, share_gone: &Lanes<R>) -> Lanes<R> {
        let mut largest = Lanes::splat(R::ZERO);
        for p in 0..self.parameters {
            let free = &self.is_free[p].0;
            let any_held = (0..LANES).fold(false, |any, l| any | (free[l] == R::ZERO));
            let gains = if any_held {
                self.release_gain(p)
            } else {
                Lanes::splat(R::ZERO)
            };
            for l in 0..LANES {
                let gain = pick(share_gone.0[l] < R::ONE, R::ZERO, gains.0[l]);
                self.scratch[p].0[l] = gain;
                largest.0[l] = largest.0[l].maximum(gain);
            }
        }
        largest
    }

    /// Returns the cost reduction predicted if parameter p alone is released from its bound; 0 unless the cost falls
    /// inwards.
    #[inline(always)]
    fn release_gain(&self, p: usize) -> Lanes<R> {
        let mut slope = self.sums[gradient(p)];
        let mut rounding_scale = slope;
        (0..LANES).for_each(|l| rounding_scale.0[l] = absolute(slope.0[l]));
        for (q, reached) in self.reached_step.iter().enumerate() {
            let a = &self.sums[normal(p, q)].0;
            for l in 0..LANES {
                let term = a[l] * reached.0[l];
                slope.0[l] += -term;
                rounding_scale.0[l] += absolute(term);
            }
        }
        let a = &self.sums[normal(p, p)].0;
        let per_unit = &self.inverse_unit[p].0;
        let reached = &self.reached_step[p].0;
        let x = &self.accepted[p].0;
        let lower = &self.lower[p].0;
        let upper = &self.upper[p].0;
        let free = &self.is_free[p].0;
        let mut gains = Lanes::splat(R::ZERO);
        for l in 0..LANES {
            let a = a[l];
            let reached = reached[l];
            let interval = Interval {
                lower: lower[l],
                upper: upper[l],
            };
            let damping = self.mu.0[l]
                * a.maximum(self.least_diagonal.0[l] * per_unit[l] * per_unit[l])
                * reached;
            let slope = slope.0[l] - damping;
            let rounding_scale = rounding_scale.0[l] + absolute(damping);
            let gain = interval.gain_inwards(x[l] + reached, slope, rounding_scale, a);
            gains.0[l] = pick(free[l] == R::ZERO, gain, R::ZERO);
        }
        gains
    }
}
