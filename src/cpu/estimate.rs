//! Adds a curve's points to a member's sums under an estimator other than least squares, with no continuum: each point counts with
//! the cost, residual r and slope s of `solver/estimator.rs`, χ² += cost, g += Jᵀr, A += JᵀJ, J = s · tangents.
//! Rows f32 or f64, shares and sums f64. Twin of `shaders/estimate.wgsl`.

use pulp::{Simd, WithSimd};

use super::normal;
use crate::rows::Real;
use crate::rows::gram::{BLOCK, Gram};
use crate::solver::Estimator;
use crate::solver::member::Sums;

/// One member's rows and its curve's arrays.
pub struct Estimate<'a, R> {
    pub estimator: Estimator,
    pub pixels: usize,
    /// The parameter of each tangent row.
    pub columns: &'a [usize],
    /// (1 + columns, pixels)
    pub model: &'a [R],
    pub data: &'a [R],
    pub weight: &'a [R],
    pub sums: &'a mut Sums,
}

impl<R: Real> Estimate<'_, R> {
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> WithSimd for Estimate<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows = self.columns.len();
        let mut gram = Gram::<R>::new(rows + 1, 0, self.pixels);
        let mut slopes = vec![R::ZERO; gram.width()];
        for start in (0..self.pixels).step_by(BLOCK) {
            let count = BLOCK.min(self.pixels - start);
            let residuals = gram.row(rows);
            for j in 0..count {
                let [data, weight, model] =
                    [self.data, self.weight, self.model].map(|values| values[start + j].to_f64());
                (residuals[j], slopes[j]) = (R::ZERO, R::ZERO);
                if weight > 0.0 {
                    let share = self.estimator.share(data, weight, model);
                    self.sums.chi2 += share.cost;
                    (residuals[j], slopes[j]) = (R::of(share.residual), R::of(share.slope));
                }
            }
            for i in 0..rows {
                let tangent = &self.model[(1 + i) * self.pixels + start..][..count];
                for ((j, slope), t) in gram.row(i).iter_mut().zip(&slopes).zip(tangent) {
                    // what a masked point's tangent is does not matter
                    *j = if *slope > R::ZERO { *slope * *t } else { R::ZERO };
                }
            }
            gram.add(simd, count);
        }
        normal::gather(&gram, 0, self.columns, &[], self.sums);
    }
}
