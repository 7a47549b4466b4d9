//! L D Lᵀ factors of one small symmetric matrix per lane, and the solution of systems with them.

use pulp::Simd;

use crate::math::Real;
use crate::math::lanes::{LANES, Lanes, pick};
use crate::math::triangle::{packed_index, packed_length, pair_index};

/// Subtracts the product b c from a, lane by lane.
#[inline(always)]
fn subtract_product<R: Real>(a: &mut Lanes<R>, b: &Lanes<R>, c: &Lanes<R>) {
    for l in 0..LANES {
        a.0[l] = (-b.0[l]).fused(c.0[l], a.0[l]);
    }
}

/// Returns vector `v` of the lanes of packed matrices of N rows, which begin at row and column `first`. Elements above
/// the diagonal are arbitrary.
#[inline(always)]
pub fn load_packed<R: Real, S: Simd, const N: usize>(
    rows: &[Lanes<R>],
    first: usize,
    v: usize,
) -> [[R::Vector<S>; N]; N] {
    let mut matrix = [[R::vectors::<S>(&rows[packed_index(first, first)].0)[v]; N]; N];
    for i in 0..N {
        for j in 0..=i {
            matrix[i][j] = R::vectors::<S>(&rows[packed_index(first + i, first + j)].0)[v];
        }
    }
    matrix
}

/// The factors L and 1 / D of matrices of N rows, in registers.
pub struct LdlRegisters<R: Real, S: Simd, const N: usize> {
    pub lower: [[R::Vector<S>; N]; N],
    pub inverse: [R::Vector<S>; N],
}

impl<R: Real, S: Simd, const N: usize> LdlRegisters<R, S, N> {
    /// Returns room for the factors of N × N matrices, filled with zeros.
    #[inline(always)]
    pub fn new(simd: S) -> Self {
        let zero = R::splat(simd, R::ZERO);
        LdlRegisters {
            lower: [[zero; N]; N],
            inverse: [zero; N],
        }
    }

    /// Eliminates a matrix of at most 6 rows, where pivots count as positive above `least_pivot`. The calls
    /// stand one after another, so that compilers unroll the loops inside them.
    #[inline(always)]
    pub fn eliminate_all(
        &mut self,
        simd: S,
        matrix: &[[R::Vector<S>; N]; N],
        least_pivot: [R::Vector<S>; N],
    ) {
        self.eliminate_row::<0>(simd, matrix, least_pivot);
        self.eliminate_row::<1>(simd, matrix, least_pivot);
        self.eliminate_row::<2>(simd, matrix, least_pivot);
        self.eliminate_row::<3>(simd, matrix, least_pivot);
        self.eliminate_row::<4>(simd, matrix, least_pivot);
        self.eliminate_row::<5>(simd, matrix, least_pivot);
    }

    /// Eliminates row I, if the matrix has so many rows.
    #[inline(always)]
    fn eliminate_row<const I: usize>(
        &mut self,
        simd: S,
        matrix: &[[R::Vector<S>; N]; N],
        least_pivot: [R::Vector<S>; N],
    ) {
        if I >= N {
            return;
        }
        let mut row = matrix[I];
        for j in 0..I {
            for k in 0..j {
                row[j] = R::subtract_product(simd, row[j], row[k], self.lower[j][k]);
            }
        }
        let mut pivot = row[I];
        for (k, a) in row[..I].iter().enumerate() {
            let factor = R::multiply(simd, *a, self.inverse[k]);
            self.lower[I][k] = factor;
            pivot = R::subtract_product(simd, pivot, *a, factor);
        }
        self.inverse[I] = R::inverse_above(simd, least_pivot[I], pivot);
    }

    /// Returns the solution y of L D Lᵀ y = x for each lane.
    #[inline(always)]
    pub fn solve(&self, simd: S, mut x: [R::Vector<S>; N]) -> [R::Vector<S>; N] {
        for i in 0..N {
            for k in 0..i {
                x[i] = R::subtract_product(simd, x[i], self.lower[i][k], x[k]);
            }
        }
        for i in (0..N).rev() {
            x[i] = R::multiply(simd, x[i], self.inverse[i]);
            for k in i + 1..N {
                x[i] = R::subtract_product(simd, x[i], self.lower[k][i], x[k]);
            }
        }
        x
    }
}

/// The factors L and 1 / D of one matrix per lane.
pub struct LdlFactors<R> {
    /// The matrix, packed; after the factorisation L, whose diagonal is unused.
    pub lower: Vec<Lanes<R>>,
    /// 1 / D.
    inverse: Vec<Lanes<R>>,
    /// Scratch: the current row of L D.
    row: Vec<Lanes<R>>,
    /// 1 where every pivot was positive, else 0.
    pub positive: Lanes<R>,
}

impl<R: Real> LdlFactors<R> {
    /// Makes room for the L D Lᵀ factors of each lane's matrix of `count` rows, filled with zeros.
    pub fn new(count: usize) -> LdlFactors<R> {
        let lanes = |n| vec![Lanes::splat(R::ZERO); n];
        LdlFactors {
            lower: lanes(packed_length(count)),
            inverse: lanes(count),
            row: lanes(count),
            positive: Lanes::splat(R::ZERO),
        }
    }

    /// Factorises each lane's matrix `lower` in place, as L D Lᵀ, and sets `positive` where all pivots exceed
    /// `least_pivots` (P).
    #[inline(always)]
    pub fn factorise<S: Simd>(&mut self, simd: S, least_pivots: &[Lanes<R>]) {
        match least_pivots.len() {
            3 => self.factorise_in_registers::<S, 3>(simd, least_pivots),
            4 => self.factorise_in_registers::<S, 4>(simd, least_pivots),
            5 => self.factorise_in_registers::<S, 5>(simd, least_pivots),
            6 => self.factorise_in_registers::<S, 6>(simd, least_pivots),
            _ => self.factorise_any(least_pivots),
        }
    }

    /// Factorises each lane's N × N matrix in place, as L D Lᵀ, with its numbers in registers.
    #[inline(always)]
    fn factorise_in_registers<S: Simd, const N: usize>(
        &mut self,
        simd: S,
        least_pivots: &[Lanes<R>],
    ) {
        let lanes = R::lanes::<S>();
        let Some(least_pivots) = least_pivots.first_chunk::<N>() else {
            return;
        };
        let (Some(inverses), lower) = (
            self.inverse.first_chunk_mut::<N>(),
            &mut self.lower[..packed_length(N)],
        ) else {
            return;
        };
        for v in 0..LANES / lanes {
            let mut factors = LdlRegisters::<R, S, N>::new(simd);
            let mut pivots = [R::splat(simd, R::ZERO); N];
            for i in 0..N {
                pivots[i] = R::vectors::<S>(&least_pivots[i].0)[v];
            }
            let matrix = load_packed(lower, 0, v);
            factors.eliminate_all(simd, &matrix, pivots);
            for i in 0..N {
                for k in 0..i {
                    R::vectors_mut::<S>(&mut lower[packed_index(i, k)].0)[v] = factors.lower[i][k];
                }
                R::vectors_mut::<S>(&mut inverses[i].0)[v] = factors.inverse[i];
            }
        }
        self.positive = Lanes::splat(R::ONE);
        for inverse in inverses {
            let positive = &mut self.positive.0;
            // A NaN is no positive pivot.
            (0..LANES).for_each(|l| positive[l] *= pick(inverse.0[l] >= R::ZERO, R::ONE, R::ZERO));
        }
    }

    /// Factorises each lane's matrix of any number of parameters in place, as L D Lᵀ. Lanes with a pivot of at most
    /// `least_pivots` are not positive definite.
    #[inline(always)]
    fn factorise_any(&mut self, least_pivots: &[Lanes<R>]) {
        self.positive = Lanes::splat(R::ONE);
        for (i, least_pivot) in least_pivots.iter().enumerate() {
            for j in 0..i {
                let mut sum = self.lower[packed_index(i, j)];
                for k in 0..j {
                    subtract_product(&mut sum, &self.row[k], &self.lower[packed_index(j, k)]);
                }
                self.row[j] = sum;
            }
            let mut pivot = self.lower[packed_index(i, i)];
            for k in 0..i {
                let row = &self.row[k];
                let inverse = &self.inverse[k];
                let factor = &mut self.lower[packed_index(i, k)];
                for l in 0..LANES {
                    factor.0[l] = row.0[l] * inverse.0[l];
                    pivot.0[l] = (-row.0[l]).fused(factor.0[l], pivot.0[l]);
                }
            }
            let inverse = &mut self.inverse[i].0;
            let positive = &mut self.positive.0;
            for l in 0..LANES {
                let is_positive = pivot.0[l] > least_pivot.0[l];
                inverse[l] = if is_positive {
                    R::ONE / pivot.0[l]
                } else {
                    R::NAN
                };
                positive[l] *= pick(is_positive, R::ONE, R::ZERO);
            }
        }
    }

    /// Solves each lane's factorised system in place: `x` has the right-hand side, and gets the solution.
    #[inline(always)]
    pub fn solve<S: Simd>(&self, simd: S, x: &mut [Lanes<R>]) {
        match x.len() {
            3 => self.solve_in_registers::<S, 3>(simd, x),
            4 => self.solve_in_registers::<S, 4>(simd, x),
            5 => self.solve_in_registers::<S, 5>(simd, x),
            6 => self.solve_in_registers::<S, 6>(simd, x),
            _ => self.solve_any(x),
        }
    }

    /// Solves each lane's factorised system of N unknowns in place, with its numbers in registers.
    #[inline(always)]
    fn solve_in_registers<S: Simd, const N: usize>(&self, simd: S, x: &mut [Lanes<R>]) {
        let (Some(x), lower) = (x.first_chunk_mut::<N>(), &self.lower[..packed_length(N)]) else {
            return;
        };
        for v in 0..LANES / R::lanes::<S>() {
            let mut factors = LdlRegisters::<R, S, N> {
                lower: load_packed(lower, 0, v),
                inverse: [R::splat(simd, R::ZERO); N],
            };
            let mut unknowns = factors.inverse;
            for i in 0..N {
                factors.inverse[i] = R::vectors::<S>(&self.inverse[i].0)[v];
                unknowns[i] = R::vectors::<S>(&x[i].0)[v];
            }
            let unknowns = factors.solve(simd, unknowns);
            for i in 0..N {
                R::vectors_mut::<S>(&mut x[i].0)[v] = unknowns[i];
            }
        }
    }

    /// Solves each lane's factorised system of any number of unknowns in place.
    #[inline(always)]
    fn solve_any(&self, x: &mut [Lanes<R>]) {
        for i in 0..x.len() {
            let (solved, unsolved) = x.split_at_mut(i);
            for (k, x) in solved.iter().enumerate() {
                subtract_product(&mut unsolved[0], &self.lower[packed_index(i, k)], x);
            }
        }
        for i in (0..x.len()).rev() {
            let (unsolved, solved) = x.split_at_mut(i + 1);
            let unknown = &mut unsolved[i];
            (0..LANES).for_each(|l| unknown.0[l] *= self.inverse[i].0[l]);
            for (k, x) in solved.iter().enumerate() {
                subtract_product(unknown, &self.lower[packed_index(i + 1 + k, i)], x);
            }
        }
    }

    /// Returns element (p, p) of the inverse: Σ_i v_i² / D_i, v = L⁻¹ e_p; NaN where a pivot that it needs is not
    /// positive.
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

    /// Writes the correlations of the inverse C, whose diagonal is `variances`, into `correlations`, by [`pair_index`]:
    /// C_pq / √(C_pp C_qq) with C_pq = Σ_{i ≥ p} W_ip W_iq / D_i for q < p and W = L⁻¹, which replaces L.
    #[inline(always)]
    pub fn write_correlations(&mut self, variances: &[Lanes<R>], correlations: &mut [Lanes<R>]) {
        let count = variances.len();
        // W_iq = −(L_iq + Σ_{q < k < i} L_ik W_kq), column by column
        for q in 0..count {
            for i in q + 1..count {
                let mut w = self.lower[packed_index(i, q)];
                w.0.iter_mut().for_each(|w| *w = -*w);
                for k in q + 1..i {
                    subtract_product(
                        &mut w,
                        &self.lower[packed_index(i, k)],
                        &self.lower[packed_index(k, q)],
                    );
                }
                self.lower[packed_index(i, q)] = w;
            }
        }
        for (root, variance) in self.row.iter_mut().zip(variances) {
            (0..LANES).for_each(|l| root.0[l] = variance.0[l].root());
        }
        for p in 1..count {
            for q in 0..p {
                let mut sum = self.lower[packed_index(p, q)];
                (0..LANES).for_each(|l| sum.0[l] *= self.inverse[p].0[l]);
                for i in p + 1..count {
                    let a = &self.lower[packed_index(i, p)].0;
                    let b = &self.lower[packed_index(i, q)].0;
                    (0..LANES).for_each(|l| {
                        sum.0[l] = (a[l] * self.inverse[i].0[l]).fused(b[l], sum.0[l])
                    });
                }
                let a = &self.row[p].0;
                let b = &self.row[q].0;
                (0..LANES).for_each(|l| sum.0[l] = sum.0[l] / (a[l] * b[l]));
                correlations[pair_index(p, q)] = sum;
            }
        }
    }
}
