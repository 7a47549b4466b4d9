//! Steps of three to six parameters without bounds. All numbers of a register's lanes stay in registers from the matrix
//! to the step, and do not pass through memory.

use pulp::Simd;

use super::block::{FitBlock, gradient, normal};
use super::solve::{LdlRegisters, load_packed};
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes};

/// Returns vector `v` of each of N rows.
#[inline(always)]
fn load_rows<R: Real, S: Simd, const N: usize>(rows: &[Lanes<R>], v: usize) -> [R::Vector<S>; N] {
    let mut vectors = [R::vectors::<S>(&rows[0].0)[v]; N];
    for i in 0..N {
        vectors[i] = R::vectors::<S>(&rows[i].0)[v];
    }
    vectors
}

/// Returns vector `v` of the gradient's rows among a block's sums.
#[inline(always)]
fn load_gradient<R: Real, S: Simd, const N: usize>(
    sums: &[Lanes<R>],
    v: usize,
) -> [R::Vector<S>; N] {
    let mut vectors = [R::vectors::<S>(&sums[0].0)[v]; N];
    for i in 0..N {
        vectors[i] = R::vectors::<S>(&sums[gradient(i)].0)[v];
    }
    vectors
}

/// The terms of the reduction 2 gᵀδ − δᵀAδ that a step δ predicts, and the squared lengths of the step and of the
/// parameters that move, in the metric of A's diagonal.
pub struct PredictedReductions<R> {
    /// 2 gᵀδ
    pub linear_term: Lanes<R>,
    /// δᵀAδ
    pub quadratic_term: Lanes<R>,
    pub squared_length: Lanes<R>,
    pub squared_scale: Lanes<R>,
}

impl<R: Real> PredictedReductions<R> {
    /// Returns terms and lengths that are all zero.
    pub fn new() -> PredictedReductions<R> {
        let zero = Lanes::splat(R::ZERO);
        PredictedReductions {
            linear_term: zero,
            quadratic_term: zero,
            squared_length: zero,
            squared_scale: zero,
        }
    }
}

impl<R: Real> FitBlock<R> {
    /// Solves the damped systems of 3 to 6 parameters without bounds in registers, as `factorise_damped` and
    /// `solve_free` do.
    #[inline(always)]
    pub fn solve_in_registers<S: Simd, const N: usize>(&mut self, simd: S) {
        let zero = R::splat(simd, R::ZERO);
        let one = R::splat(simd, R::ONE);
        let minus_one = R::splat(simd, -R::ONE);
        let undamped = R::splat(simd, R::of(self.precision_limits().undamped));
        for v in 0..LANES / R::lanes::<S>() {
            let mu = R::vectors::<S>(&self.mu.0)[v];
            let floor = R::vectors::<S>(&self.diagonal_floor.0)[v];
            let mut matrix = load_packed::<R, S, N>(&self.sums, 1, v);
            let unit = load_rows::<R, S, N>(&self.unit, v);
            let inverse_unit = load_rows::<R, S, N>(&self.inverse_unit, v);
            // The least diagonal element is a share of the largest, in the parameters' units.
            let mut least_diagonal = zero;
            for i in 0..N {
                let scaled = R::multiply(simd, R::multiply(simd, matrix[i][i], unit[i]), unit[i]);
                least_diagonal = R::larger(simd, scaled, least_diagonal);
            }
            least_diagonal = R::multiply(simd, least_diagonal, floor);
            let mut is_undamped = one;
            let mut is_positive = one;
            for i in 0..N {
                let a = matrix[i][i];
                let least_element = R::multiply(
                    simd,
                    R::multiply(simd, least_diagonal, inverse_unit[i]),
                    inverse_unit[i],
                );
                let largest = R::larger(simd, a, least_element);
                let damping = R::multiply(simd, mu, largest);
                let negligible = R::multiply(simd, undamped, a);
                let is_undamped_here = R::choose_less(simd, damping, negligible, is_undamped, zero);
                // A parameter without influence on the model stays where it is.
                is_undamped = R::choose_less(simd, zero, a, is_undamped_here, is_undamped);
                matrix[i][i] =
                    R::choose_less(simd, zero, a, R::multiply_add(simd, mu, largest, a), one);
            }
            let mut factors = LdlRegisters::<R, S, N>::new(simd);
            factors.eliminate_all(simd, &matrix, [zero; N]);
            for i in 0..N {
                // The inverse is NaN where the pivot was not positive.
                is_positive =
                    R::choose_less(simd, minus_one, factors.inverse[i], is_positive, zero);
            }
            let delta = factors.solve(simd, load_gradient::<R, S, N>(&self.sums, v));
            for (row, delta) in self.delta.iter_mut().zip(delta) {
                R::vectors_mut::<S>(&mut row.0)[v] = delta;
            }
            R::vectors_mut::<S>(&mut self.is_undamped_step.0)[v] = is_undamped;
            R::vectors_mut::<S>(&mut self.factors.positive.0)[v] = is_positive;
        }
    }

    /// Returns the cost reductions that the steps of N parameters predict, and the lengths by which convergence is
    /// judged.
    #[inline(always)]
    pub fn predict_reductions_in_registers<S: Simd, const N: usize>(
        &self,
        simd: S,
    ) -> PredictedReductions<R> {
        let zero = R::splat(simd, R::ZERO);
        let two = R::splat(simd, R::of(2.0));
        let mut totals = PredictedReductions::new();
        for v in 0..LANES / R::lanes::<S>() {
            let delta = load_rows::<R, S, N>(&self.delta, v);
            let g = load_gradient::<R, S, N>(&self.sums, v);
            let x = load_rows::<R, S, N>(&self.accepted, v);
            let mut linear_term = zero;
            let mut quadratic_term = zero;
            let mut squared_length = zero;
            let mut squared_scale = zero;
            for p in 0..N {
                // Row p of A δ, left of the diagonal.
                let mut slope = zero;
                for (q, delta) in delta[..p].iter().enumerate() {
                    let a = R::vectors::<S>(&self.sums[normal(p, q)].0)[v];
                    slope = R::multiply_add(simd, a, *delta, slope);
                }
                let a = R::vectors::<S>(&self.sums[normal(p, p)].0)[v];
                let d = delta[p];
                let twice = R::multiply(simd, two, d);
                let square = R::multiply(simd, R::multiply(simd, a, d), d);
                linear_term = R::multiply_add(simd, twice, g[p], linear_term);
                quadratic_term = R::plus(
                    simd,
                    quadratic_term,
                    R::multiply_add(simd, twice, slope, square),
                );
                squared_length = R::plus(simd, squared_length, square);
                let scale = R::multiply(simd, R::multiply(simd, a, x[p]), x[p]);
                let scale_if_moving = R::choose_less(simd, zero, d, scale, zero);
                squared_scale = R::plus(
                    simd,
                    squared_scale,
                    R::choose_less(simd, d, zero, scale, scale_if_moving),
                );
            }
            let rows = [
                &mut totals.linear_term,
                &mut totals.quadratic_term,
                &mut totals.squared_length,
                &mut totals.squared_scale,
            ];
            for (row, total) in
                rows.into_iter()
                    .zip([linear_term, quadratic_term, squared_length, squared_scale])
            {
                R::vectors_mut::<S>(&mut row.0)[v] = total;
            }
        }
        totals
    }
}
