//! Steps of three to six parameters without bounds: all of one for a register's lanes, so that its numbers need not
//! pass through memory.

use pulp::Simd;

use super::block::{Block, gradient, normal};
use super::solve::{Eliminated, packed};
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes};

/// Returns vector `v` of each of N rows.
#[inline(always)]
fn parts<R: Real, S: Simd, const N: usize>(rows: &[Lanes<R>], v: usize) -> [R::Vector<S>; N] {
    let mut all = [R::vectors::<S>(&rows[0].0)[v]; N];
    for i in 0..N {
        all[i] = R::vectors::<S>(&rows[i].0)[v];
    }
    all
}

/// Returns vector `v` of the gradient's rows among a block's sums.
#[inline(always)]
fn gradients<R: Real, S: Simd, const N: usize>(sums: &[Lanes<R>], v: usize) -> [R::Vector<S>; N] {
    let mut all = [R::vectors::<S>(&sums[0].0)[v]; N];
    for i in 0..N {
        all[i] = R::vectors::<S>(&sums[gradient(i)].0)[v];
    }
    all
}

/// 2 gᵀδ and δᵀAδ, and the squared lengths of the step and of the parameters that move.
pub struct Promises<R> {
    pub gain: Lanes<R>,
    pub loss: Lanes<R>,
    pub length: Lanes<R>,
    pub size: Lanes<R>,
}

impl<R: Real> Promises<R> {
    /// Returns predicted gains, losses and lengths that are all zero.
    pub fn new() -> Promises<R> {
        let zero = Lanes::splat(R::ZERO);
        Promises {
            gain: zero,
            loss: zero,
            length: zero,
            size: zero,
        }
    }
}

impl<R: Real> Block<R> {
    /// Solves the damped systems of 3 to 6 parameters without bounds in registers, as `factorise` and `solve_free` do.
    #[inline(always)]
    pub fn solve_few<S: Simd, const N: usize>(&mut self, simd: S) {
        let (zero, one) = (R::splat(simd, R::ZERO), R::splat(simd, R::ONE));
        let (minus, undamped) = (
            R::splat(simd, -R::ONE),
            R::splat(simd, R::of(self.rounding().undamped)),
        );
        for v in 0..LANES / R::lanes::<S>() {
            let (mu, floor) = (
                R::vectors::<S>(&self.mu.0)[v],
                R::vectors::<S>(&self.floor.0)[v],
            );
            let mut matrix = packed::<R, S, N>(&self.sums, 1, v);
            let (unit, per_unit) = (
                parts::<R, S, N>(&self.unit, v),
                parts::<R, S, N>(&self.per_unit, v),
            );
            let mut lowest = zero;
            for i in 0..N {
                let scaled = R::multiply(simd, R::multiply(simd, matrix[i][i], unit[i]), unit[i]);
                lowest = R::larger(simd, scaled, lowest);
            }
            lowest = R::multiply(simd, lowest, floor);
            let (mut settled, mut positive) = (one, one);
            for i in 0..N {
                let a = matrix[i][i];
                let least = R::multiply(simd, R::multiply(simd, lowest, per_unit[i]), per_unit[i]);
                let largest = R::larger(simd, a, least);
                let (damping, limit) = (
                    R::multiply(simd, mu, largest),
                    R::multiply(simd, undamped, a),
                );
                let light = R::choose_less(simd, damping, limit, settled, zero);
                // a parameter without influence stays where it is
                settled = R::choose_less(simd, zero, a, light, settled);
                matrix[i][i] =
                    R::choose_less(simd, zero, a, R::multiply_add(simd, mu, largest, a), one);
            }
            let mut done = Eliminated::<R, S, N>::new(simd);
            done.all(simd, &matrix, [zero; N]);
            for i in 0..N {
                // it is NaN where the pivot was none
                positive = R::choose_less(simd, minus, done.inverse[i], positive, zero);
            }
            let delta = done.solve(simd, gradients::<R, S, N>(&self.sums, v));
            for (row, delta) in self.delta.iter_mut().zip(delta) {
                R::vectors_mut::<S>(&mut row.0)[v] = delta;
            }
            R::vectors_mut::<S>(&mut self.settled.0)[v] = settled;
            R::vectors_mut::<S>(&mut self.factors.positive.0)[v] = positive;
        }
    }

    /// Returns the cost reductions that the steps of N parameters predict, and the lengths by which convergence is
    /// judged.
    #[inline(always)]
    pub fn promises_few<S: Simd, const N: usize>(&self, simd: S) -> Promises<R> {
        let (zero, two) = (R::splat(simd, R::ZERO), R::splat(simd, R::of(2.0)));
        let mut out = Promises::new();
        for v in 0..LANES / R::lanes::<S>() {
            let (delta, g) = (
                parts::<R, S, N>(&self.delta, v),
                gradients::<R, S, N>(&self.sums, v),
            );
            let x = parts::<R, S, N>(&self.accepted, v);
            let (mut gain, mut loss, mut length, mut size) = (zero, zero, zero, zero);
            for p in 0..N {
                // A δ, its diagonal apart
                let mut slope = zero;
                for (q, delta) in delta[..p].iter().enumerate() {
                    let a = R::vectors::<S>(&self.sums[normal(p, q)].0)[v];
                    slope = R::multiply_add(simd, a, *delta, slope);
                }
                let (a, d) = (R::vectors::<S>(&self.sums[normal(p, p)].0)[v], delta[p]);
                let (twice, square) = (
                    R::multiply(simd, two, d),
                    R::multiply(simd, R::multiply(simd, a, d), d),
                );
                gain = R::multiply_add(simd, twice, g[p], gain);
                loss = R::plus(simd, loss, R::multiply_add(simd, twice, slope, square));
                length = R::plus(simd, length, square);
                let own = R::multiply(simd, R::multiply(simd, a, x[p]), x[p]);
                let moves = R::choose_less(simd, zero, d, own, zero);
                size = R::plus(simd, size, R::choose_less(simd, d, zero, own, moves));
            }
            let all = [&mut out.gain, &mut out.loss, &mut out.length, &mut out.size];
            for (row, total) in all.into_iter().zip([gain, loss, length, size]) {
                R::vectors_mut::<S>(&mut row.0)[v] = total;
            }
        }
        out
    }
}
