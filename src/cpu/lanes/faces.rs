//! The ways of a block's steps through their boxes, from face to face; what `solver/round/step/faces.rs` does for one
//! member.
#![expect(clippy::needless_range_loop, reason = "one index for many arrays")]

use super::block::{Block, RUNNING, gradient, normal};
use super::step::renew;
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes, absolute, pick};
use crate::solver::Interval;
use crate::solver::round::step::equations::interpolate;

impl<R: Real> Block<R> {
    /// Moves the step `given` towards `delta` up to the first bound, or frees a wrongly held parameter; `false` when no
    /// lane goes on.
    #[inline(always)]
    pub fn turn(&mut self) -> bool {
        if self.is_clear() {
            return false;
        }
        let first = self.meet_faces();
        let most = self.find_vain(&first);
        for p in 0..self.parameters {
            let (gain, free) = (&self.least[p].0, &mut self.free[p].0);
            for l in 0..LANES {
                let (is_free, most) = (free[l], most.0[l]);
                free[l] = renew((most > R::ZERO) & (gain[l] == most), R::ONE, is_free);
            }
        }
        let running = R::of(RUNNING);
        (0..LANES)
            .any(|l| self.status.0[l] == running && (first.0[l] < R::ONE || most.0[l] > R::ZERO))
    }

    /// Returns whether, in every running lane, the step stays inside the bounds and no bound holds a parameter.
    #[inline(always)]
    fn is_clear(&self) -> bool {
        let (mut clear, running) = (true, R::of(RUNNING));
        for p in 0..self.parameters {
            let (x, delta, free) = (&self.accepted[p].0, &self.delta[p].0, &self.free[p].0);
            let (lower, upper, status) = (&self.lower[p].0, &self.upper[p].0, &self.status.0);
            for l in 0..LANES {
                let interval = Interval {
                    lower: lower[l],
                    upper: upper[l],
                };
                let held = (free[l] == R::ZERO) & interval.has_room();
                clear &= (status[l] != running) | (interval.contains(x[l] + delta[l]) & !held);
            }
        }
        clear
    }

    /// Moves the step `given` towards `delta` up to the first bound, holds what meets it, and returns the shares gone.
    #[inline(always)]
    fn meet_faces(&mut self) -> Lanes<R> {
        let mut first = Lanes::splat(R::ONE);
        for p in 0..self.parameters {
            let inside = self.share_inside(p);
            (0..LANES).for_each(|l| first.0[l] = first.0[l].minimum(inside.0[l]));
            self.least[p] = inside;
        }
        for p in 0..self.parameters {
            let inside = &self.least[p].0;
            let (x, delta, lower, upper) = (
                &self.accepted[p].0,
                &self.delta[p].0,
                &self.lower[p].0,
                &self.upper[p].0,
            );
            let (given, free) = (&mut self.given[p].0, &mut self.free[p].0);
            for l in 0..LANES {
                let (from, to, first, is_free) = (given[l], delta[l], first.0[l], free[l]);
                let meets = (is_free > R::ZERO) & (first < R::ONE) & (inside[l] == first);
                let interval = Interval {
                    lower: lower[l],
                    upper: upper[l],
                };
                // a lane that has arrived waits for others without a change of its bits
                given[l] = renew(
                    meets,
                    interval.step_to_face(x[l], to),
                    interpolate(from, to, first),
                );
                free[l] = renew(meets, R::ZERO, is_free);
            }
        }
        first
    }

    /// Returns how far (0 to 1) the way from `given` to `delta` stays inside the bounds of parameter p, lane by lane.
    #[inline(always)]
    fn share_inside(&self, p: usize) -> Lanes<R> {
        let (x, lower, upper) = (&self.accepted[p].0, &self.lower[p].0, &self.upper[p].0);
        let (given, delta, free) = (&self.given[p].0, &self.delta[p].0, &self.free[p].0);
        let mut inside = Lanes::splat(R::ONE);
        for l in 0..LANES {
            let share = Interval {
                lower: lower[l],
                upper: upper[l],
            }
            .share_inside(x[l], given[l], delta[l]);
            inside.0[l] = pick(free[l] > R::ZERO, share, R::ONE);
        }
        inside
    }

    /// Writes the gain of freeing each parameter that is held though the cost falls inwards into `least`; returns the
    /// largest.
    #[inline(always)]
    fn find_vain(&mut self, first: &Lanes<R>) -> Lanes<R> {
        let mut most = Lanes::splat(R::ZERO);
        for p in 0..self.parameters {
            let free = &self.free[p].0;
            let held = (0..LANES).fold(false, |held, l| held | (free[l] == R::ZERO));
            let gains = if held {
                self.gains(p)
            } else {
                Lanes::splat(R::ZERO)
            };
            for l in 0..LANES {
                let gain = pick(first.0[l] < R::ONE, R::ZERO, gains.0[l]);
                self.least[p].0[l] = gain;
                most.0[l] = most.0[l].maximum(gain);
            }
        }
        most
    }

    /// Returns the cost reduction predicted if parameter p alone is freed from its bound; 0 unless the cost falls
    /// inwards.
    #[inline(always)]
    fn gains(&self, p: usize) -> Lanes<R> {
        let mut slope = self.sums[gradient(p)];
        let mut size = slope;
        (0..LANES).for_each(|l| size.0[l] = absolute(slope.0[l]));
        for (q, given) in self.given.iter().enumerate() {
            let a = &self.sums[normal(p, q)].0;
            for l in 0..LANES {
                let term = a[l] * given.0[l];
                slope.0[l] += -term;
                size.0[l] += absolute(term);
            }
        }
        let (a, per_unit, given) = (
            &self.sums[normal(p, p)].0,
            &self.per_unit[p].0,
            &self.given[p].0,
        );
        let (x, lower, upper, free) = (
            &self.accepted[p].0,
            &self.lower[p].0,
            &self.upper[p].0,
            &self.free[p].0,
        );
        let mut gains = Lanes::splat(R::ZERO);
        for l in 0..LANES {
            let (a, given, interval) = (
                a[l],
                given[l],
                Interval {
                    lower: lower[l],
                    upper: upper[l],
                },
            );
            let damping =
                self.mu.0[l] * a.maximum(self.lowest.0[l] * per_unit[l] * per_unit[l]) * given;
            let (slope, size) = (slope.0[l] - damping, size.0[l] + absolute(damping));
            let gain = interval.gain_inwards(x[l] + given, slope, size, a);
            gains.0[l] = pick(free[l] == R::ZERO, gain, R::ZERO);
        }
        gains
    }
}
