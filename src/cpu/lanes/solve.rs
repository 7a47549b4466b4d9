//! L D Lᵀ of a small symmetric matrix a lane, and what is solved with it.

use pulp::Simd;

use super::step::pick;
use crate::rows::Real;
use crate::rows::lanes::{LANES, Lanes};
use crate::solver::triangle::{packed_index, packed_length};

/// a ← a − b c.
#[inline(always)]
fn subtract_product<R: Real>(a: &mut Lanes<R>, b: &Lanes<R>, c: &Lanes<R>) {
    for l in 0..LANES {
        a.0[l] = (-b.0[l]).fused(c.0[l], a.0[l]);
    }
}

/// Factors of one matrix a lane.
pub struct Factors<R> {
    /// The matrix, packed; then L, its diagonal unused.
    pub lower: Vec<Lanes<R>>,
    /// 1 / D.
    inverse: Vec<Lanes<R>>,
    /// L D, the row in work.
    row: Vec<Lanes<R>>,
    /// 1 where every pivot was positive, else 0.
    pub positive: Lanes<R>,
}

impl<R: Real> Factors<R> {
    pub fn new(count: usize) -> Factors<R> {
        let lanes = |n| vec![Lanes::splat(R::ZERO); n];
        Factors {
            lower: lanes(packed_length(count)),
            inverse: lanes(count),
            row: lanes(count),
            positive: Lanes::splat(R::ZERO),
        }
    }

    /// Factorises `lower`, where pivots count as positive above `least`, P numbers.
    #[inline(always)]
    pub fn factorise<S: Simd>(&mut self, simd: S, least: &[Lanes<R>]) {
        match least.len() {
            3 => self.factorise_few::<S, 3>(simd, least),
            4 => self.factorise_few::<S, 4>(simd, least),
            5 => self.factorise_few::<S, 5>(simd, least),
            6 => self.factorise_few::<S, 6>(simd, least),
            _ => self.factorise_many(least),
        }
    }

    /// N parameters, whose numbers stay in registers.
    #[inline(always)]
    fn factorise_few<S: Simd, const N: usize>(&mut self, simd: S, least: &[Lanes<R>]) {
        let lanes = R::lanes::<S>();
        let Some(least) = least.first_chunk::<N>() else { return };
        let (Some(inverses), lower) = (self.inverse.first_chunk_mut::<N>(), &mut self.lower[..packed_length(N)]) else {
            return;
        };
        for v in 0..LANES / lanes {
            let zero = R::splat(simd, R::ZERO);
            let mut done = ([[zero; N]; N], [zero; N]);
            // one by one, so that compilers unroll what is in them
            Self::eliminate::<S, N, 0>(simd, v, (lower, inverses), least, &mut done);
            Self::eliminate::<S, N, 1>(simd, v, (lower, inverses), least, &mut done);
            Self::eliminate::<S, N, 2>(simd, v, (lower, inverses), least, &mut done);
            Self::eliminate::<S, N, 3>(simd, v, (lower, inverses), least, &mut done);
            Self::eliminate::<S, N, 4>(simd, v, (lower, inverses), least, &mut done);
            Self::eliminate::<S, N, 5>(simd, v, (lower, inverses), least, &mut done);
        }
        self.positive = Lanes::splat(R::ONE);
        for inverse in inverses {
            let positive = &mut self.positive.0;
            // false of NaN
            (0..LANES).for_each(|l| positive[l] *= pick(inverse.0[l] >= R::ZERO, R::ONE, R::ZERO));
        }
    }

    /// Row I of part `v` of the lanes, where there is one: L's into `lower`, 1 / D into `inverses`, both into `done`.
    #[inline(always)]
    fn eliminate<S: Simd, const N: usize, const I: usize>(
        simd: S,
        v: usize,
        (lower, inverses): (&mut [Lanes<R>], &mut [Lanes<R>; N]),
        least: &[Lanes<R>; N],
        (factors, inverse): &mut ([[R::Vector<S>; N]; N], [R::Vector<S>; N]),
    ) {
        if I >= N {
            return;
        }
        let mut row = [R::splat(simd, R::ZERO); N];
        for j in 0..I {
            let mut sum = R::vectors::<S>(&lower[packed_index(I, j)].0)[v];
            for k in 0..j {
                sum = R::subtract_product(simd, sum, row[k], factors[j][k]);
            }
            row[j] = sum;
        }
        let mut pivot = R::vectors::<S>(&lower[packed_index(I, I)].0)[v];
        for k in 0..I {
            let factor = R::multiply(simd, row[k], inverse[k]);
            factors[I][k] = factor;
            R::vectors_mut::<S>(&mut lower[packed_index(I, k)].0)[v] = factor;
            pivot = R::subtract_product(simd, pivot, row[k], factor);
        }
        inverse[I] = R::inverse_above(simd, R::vectors::<S>(&least[I].0)[v], pivot);
        R::vectors_mut::<S>(&mut inverses[I].0)[v] = inverse[I];
    }

    #[inline(always)]
    fn factorise_many(&mut self, least: &[Lanes<R>]) {
        self.positive = Lanes::splat(R::ONE);
        for (i, least) in least.iter().enumerate() {
            for j in 0..i {
                let mut sum = self.lower[packed_index(i, j)];
                for k in 0..j {
                    subtract_product(&mut sum, &self.row[k], &self.lower[packed_index(j, k)]);
                }
                self.row[j] = sum;
            }
            let mut pivot = self.lower[packed_index(i, i)];
            for k in 0..i {
                let (row, inverse) = (&self.row[k], &self.inverse[k]);
                let factor = &mut self.lower[packed_index(i, k)];
                for l in 0..LANES {
                    factor.0[l] = row.0[l] * inverse.0[l];
                    pivot.0[l] = (-row.0[l]).fused(factor.0[l], pivot.0[l]);
                }
            }
            let (inverse, positive) = (&mut self.inverse[i].0, &mut self.positive.0);
            for l in 0..LANES {
                let good = pivot.0[l] > least.0[l];
                inverse[l] = if good { R::ONE / pivot.0[l] } else { R::NAN };
                positive[l] *= pick(good, R::ONE, R::ZERO);
            }
        }
    }

    /// Solves in place.
    #[inline(always)]
    pub fn solve<S: Simd>(&self, simd: S, x: &mut [Lanes<R>]) {
        match x.len() {
            3 => self.solve_few::<S, 3>(simd, x),
            4 => self.solve_few::<S, 4>(simd, x),
            5 => self.solve_few::<S, 5>(simd, x),
            6 => self.solve_few::<S, 6>(simd, x),
            _ => self.solve_many(x),
        }
    }

    #[inline(always)]
    fn solve_few<S: Simd, const N: usize>(&self, simd: S, x: &mut [Lanes<R>]) {
        let (Some(x), lower) = (x.first_chunk_mut::<N>(), &self.lower[..packed_length(N)]) else { return };
        for v in 0..LANES / R::lanes::<S>() {
            let factor = |i: usize, k: usize| R::vectors::<S>(&lower[packed_index(i, k)].0)[v];
            let mut own = [R::splat(simd, R::ZERO); N];
            for i in 0..N {
                own[i] = R::vectors::<S>(&x[i].0)[v];
                for k in 0..i {
                    own[i] = R::subtract_product(simd, own[i], factor(i, k), own[k]);
                }
            }
            for i in (0..N).rev() {
                own[i] = R::multiply(simd, own[i], R::vectors::<S>(&self.inverse[i].0)[v]);
                for k in i + 1..N {
                    own[i] = R::subtract_product(simd, own[i], factor(k, i), own[k]);
                }
                R::vectors_mut::<S>(&mut x[i].0)[v] = own[i];
            }
        }
    }

    #[inline(always)]
    fn solve_many(&self, x: &mut [Lanes<R>]) {
        for i in 0..x.len() {
            let (done, rest) = x.split_at_mut(i);
            for (k, x) in done.iter().enumerate() {
                subtract_product(&mut rest[0], &self.lower[packed_index(i, k)], x);
            }
        }
        for i in (0..x.len()).rev() {
            let (rest, done) = x.split_at_mut(i + 1);
            let out = &mut rest[i];
            (0..LANES).for_each(|l| out.0[l] *= self.inverse[i].0[l]);
            for (k, x) in done.iter().enumerate() {
                subtract_product(out, &self.lower[packed_index(i + 1 + k, i)], x);
            }
        }
    }

    /// Element (p, p) of the inverse: Σ_i v_i² / D_i, v = L⁻¹ e_p; NaN where a pivot that it needs is lost.
    #[inline(always)]
    pub fn inverse_diagonal(&mut self, p: usize) -> Lanes<R> {
        let count = self.inverse.len();
        let mut sum = self.inverse[p];
        self.row[p] = Lanes::splat(R::ONE);
        for i in p + 1..count {
            let mut v = Lanes::splat(R::ZERO);
            for k in p..i {
                subtract_product(&mut v, &self.lower[packed_index(i, k)], &self.row[k]);
            }
            for l in 0..LANES {
                let term = v.0[l] * v.0[l] * self.inverse[i].0[l];
                sum.0[l] += if v.0[l] == R::ZERO { R::ZERO } else { term };
            }
            self.row[i] = v;
        }
        sum
    }
}
