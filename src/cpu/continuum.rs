//! The continuum by variable projection (Golub & Pereyra 1973): S_jc = weight_j value_j p_c(λ_j), C = SᵀS, C a = SᵀD.
//! The orthonormal basis p = transform · basis is made pixel by pixel. Writes a and C's Cholesky factor, adds ln det C.
//! Rows f32 or f64, sums and the solve f64. Twin of `shaders/continuum.wgsl`.

use pulp::{Simd, WithSimd};

use crate::rows::Real;
use crate::rows::gram::{BLOCK, Gram};
use crate::solver::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};

/// One member's rows and its spectrum's arrays.
pub struct Continuum<'a, R> {
    pub terms: usize,
    pub pixels: usize,
    /// (pixels) the model's value.
    pub value: &'a [R],
    pub data: &'a [R],
    pub weight: &'a [R],
    /// (terms, pixels)
    pub basis: &'a [R],
    /// (terms, terms) lower triangular.
    pub transform: &'a [R],
    /// (terms + terms²): coefficients, then the factor.
    pub solution: &'a mut [R],
}

/// Orthonormal basis at `count` pixels from `start`: row c of `out` (terms, BLOCK) is Σ_(k ≤ c) transform_ck basis_k.
#[inline(always)]
pub fn orthonormal<R: Real>(
    out: &mut [R],
    basis: &[R],
    transform: &[R],
    (terms, pixels): (usize, usize),
    (start, count): (usize, usize),
) {
    for c in 0..terms {
        let row = &mut out[c * BLOCK..][..count];
        row.fill(R::ZERO);
        for k in 0..=c {
            let factor = transform[c * terms + k];
            let source = &basis[k * pixels + start..][..count];
            for (o, b) in row.iter_mut().zip(source) {
                *o = factor.fused(*b, *o);
            }
        }
    }
}

impl<R: Real> Continuum<'_, R> {
    /// Returns ln det C; NaN when C is not positive definite.
    pub fn run(self) -> f64 {
        pulp::Arch::new().dispatch(self)
    }

    fn solve(self, gram: &Gram<R>) -> f64 {
        let terms = self.terms;
        let mut factor = vec![0.0; packed_length(terms)];
        let mut a = vec![0.0; terms];
        for i in 0..terms {
            for j in 0..=i {
                factor[packed_index(i, j)] = gram.sum(i, j);
            }
            a[i] = gram.sum(terms, i);
            // a term that no pixel sees (an arm that drops out) leaves the solve: its row is zero, its coefficient too
            if factor[packed_index(i, i)] == 0.0 {
                factor[packed_index(i, i)] = 1.0;
            }
        }
        if !cholesky(&mut factor, terms) {
            self.solution.fill(R::NAN);
            return f64::NAN;
        }
        solve_lower(&factor, &mut a);
        solve_upper(&factor, &mut a);
        self.solution.fill(R::ZERO);
        let (coefficients, matrix) = self.solution.split_at_mut(terms);
        let mut ln_det = 0.0;
        for i in 0..terms {
            coefficients[i] = R::of(a[i]);
            for j in 0..=i {
                matrix[i * terms + j] = R::of(factor[packed_index(i, j)]);
            }
            ln_det += 2.0 * factor[packed_index(i, i)].ln();
        }
        ln_det
    }
}

impl<R: Real> WithSimd for Continuum<'_, R> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let terms = self.terms;
        let mut gram = Gram::<R>::new(terms + 1, 0);
        let mut p = vec![R::ZERO; terms * BLOCK];
        for start in (0..self.pixels).step_by(BLOCK) {
            let count = BLOCK.min(self.pixels - start);
            orthonormal(&mut p, self.basis, self.transform, (terms, self.pixels), (start, count));
            let weight = &self.weight[start..start + count];
            let value = &self.value[start..start + count];
            for c in 0..terms {
                let row = &mut gram.row(c)[..count];
                for (((s, p), w), v) in row.iter_mut().zip(&p[c * BLOCK..]).zip(weight).zip(value) {
                    // masked pixels by selection: 0 · NaN must not leak
                    *s = if *w == R::ZERO { R::ZERO } else { *w * *v * *p };
                }
            }
            gram.row(terms)[..count].copy_from_slice(&self.data[start..start + count]);
            gram.add(simd, count);
        }
        self.solve(&gram)
    }
}
