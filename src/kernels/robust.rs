//! Residuals of an arm under a robust loss ρ with ψ = ρ′/2 (see `docs/src/equations.md`): their weights ω = ψ(r)/r, and
//! the continuum that minimises Σ ρ(r).
//!
//! The coefficients a come from Newton steps that begin at the least-squares fit of the cleaned data,
//!
//! ```text
//! a ← a + (κ C)⁻¹ Sᵀψ,     κ = max(Σ ψ′ / N, ω₀/2),
//! ```
//!
//! with C = SᵀS of that fit, N the number of pixels, and ω₀ the weight of a small residual. C ω₀ is an upper limit of
//! the curvature of half the cost, so no step raises it (Huber 1981, section 7.8). Sums f64, rows f32 or f64.

use pulp::NullaryFnOnce;

#[cfg(feature = "gpu")]
use super::shader::Shader;
use crate::buffers::{Estimator, LossSums};
use crate::math::Real;
use crate::math::gram::BLOCK;
use crate::math::triangle::{packed_index, packed_length, solve_lower, solve_upper};

/// Newton steps of the continuum's coefficients. Each leaves some tenth of their error, and the sums of `normal` take
/// account of what is left.
pub(super) const STEPS: usize = 1;
/// Least mean of ψ′ that shortens a Newton step of the continuum, as a share of ω₀.
const LEAST_MEAN: f64 = 0.5;
/// Least ratio of Σ ψ′ to Σ ω in the normal matrix, as a share of that of normal residuals. Of the ratios from 0.5 to 1
/// it takes the fewest rounds (`docs/trials.md`).
const LEAST_RATIO: f64 = 0.98;
/// A pixel counts as downweighted if its weight is below this share of that of a small residual.
const DOWNWEIGHTED: f64 = 0.5;
/// Sums over pixels side by side.
const LANES: usize = 16;

/// A number for each pixel of a block; 0 beyond the end of a row.
pub(super) type Block<R> = [R; BLOCK];

/// Returns Σ of a block.
#[inline(always)]
fn total<R: Real>(values: &Block<R>) -> f64 {
    let mut lanes = [R::ZERO; LANES];
    for part in values.chunks_exact(LANES) {
        lanes.iter_mut().zip(part).for_each(|(sum, x)| *sum += *x);
    }
    lanes.map(R::to_f64).iter().sum()
}

/// Returns Σ a b over the pixels of a row.
#[inline(always)]
fn dot<R: Real>(a: &[R], b: &Block<R>) -> f64 {
    let mut lanes = [R::ZERO; LANES];
    let (whole, rest) = a.split_at(a.len() - a.len() % LANES);
    for (a, b) in whole.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        lanes.iter_mut().zip(a).zip(b).for_each(|((sum, a), b)| *sum = a.fused(*b, *sum));
    }
    lanes.iter_mut().zip(rest).zip(&b[whole.len()..]).for_each(|((sum, a), b)| *sum = a.fused(*b, *sum));
    lanes.map(R::to_f64).iter().sum()
}

/// Sums over the residuals of an arm.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Σ ρ.
    pub cost: f64,
    /// Σ ω.
    weight: f64,
    /// Σ ψ′, Σ ψ², and the number of downweighted pixels.
    loss: LossSums,
}

impl Tally {
    /// Adds the residuals of a block, and returns the roots of their weights. Pixels whose `mask` is 0 do not count.
    #[inline(always)]
    pub fn add<R: Real>(&mut self, loss: Estimator, residuals: &Block<R>, mask: &[R]) -> Block<R> {
        let zeros = [R::ZERO; BLOCK];
        let (mut weights, mut curvatures, mut on) = (zeros, zeros, zeros);
        loss.weigh(residuals, &mut weights, &mut curvatures);
        self.cost += loss.cost(residuals);
        on.iter_mut().zip(mask).for_each(|(on, mask)| *on = if *mask > R::ZERO { R::ONE } else { R::ZERO });
        let least = R::of(DOWNWEIGHTED * loss.central_weight());
        let (mut squares, mut few, mut roots) = (zeros, zeros, zeros);
        for j in 0..BLOCK {
            let weight = weights[j] * on[j];
            let psi = weight * residuals[j];
            few[j] = if weight < least { on[j] } else { R::ZERO };
            (weights[j], curvatures[j], squares[j]) = (weight, curvatures[j] * on[j], psi * psi);
            roots[j] = weight.root();
        }
        self.weight += total(&weights);
        self.loss.curvature += total(&curvatures);
        self.loss.scatter += total(&squares);
        self.loss.downweighted += total(&few);
        roots
    }

    /// Returns the factor of the normal matrix, which gives it the loss's own curvature on average, and not less than
    /// for normal residuals: far from the minimum Σ ψ′ may vanish.
    pub fn ratio(&self, loss: Estimator) -> f64 {
        let least = LEAST_RATIO * loss.normal_means().ratio();
        if self.weight > 0.0 { (self.loss.curvature / self.weight).max(least) } else { 1.0 }
    }

    /// Adds the arm's sums to a member's; `ratio` is the factor of the normal matrix.
    pub fn add_to(&self, ratio: f64, sums: &mut LossSums) {
        sums.curvature += ratio * self.weight;
        sums.scatter += self.loss.scatter;
        sums.downweighted += self.loss.downweighted;
    }
}

/// A member's rows in an arm, with the continuum that was fitted to the cleaned data by least squares.
pub(super) struct Refinement<'a, R> {
    pub loss: Estimator,
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
    /// Coefficients a (terms), which become those under the loss, and C's Cholesky factor (terms, terms).
    pub solution: &'a mut [R],
}

impl<R: Real> Refinement<'_, R> {
    /// Replaces the coefficients by those under the loss, with the machine's widest vectors.
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }

    /// Returns the coefficients of the stored basis, transformᵀ a.
    fn stored(&self, a: &[f64]) -> Vec<R> {
        let rows = || self.transform.chunks_exact(self.terms).zip(a);
        (0..self.terms).map(|k| R::of(rows().map(|(row, a)| row[k].to_f64() * a).sum())).collect()
    }

    /// Returns Sᵀψ in the stored basis, and κ.
    #[inline(always)]
    fn slopes(&self, coefficients: &[R]) -> (Vec<f64>, f64) {
        let mut slopes = vec![0.0; self.terms];
        let (mut curvature, mut number) = (0.0, 0.0);
        let zeros = [R::ZERO; BLOCK];
        let (mut scaled, mut residual, mut weights, mut curvatures, mut on) = (zeros, zeros, zeros, zeros, zeros);
        for start in (0..self.pixels).step_by(BLOCK) {
            let count = BLOCK.min(self.pixels - start);
            let mut smooth = zeros;
            for (k, &factor) in coefficients.iter().enumerate() {
                let basis = &self.basis[k * self.pixels + start..][..count];
                smooth.iter_mut().zip(basis).for_each(|(s, b)| *s = factor.fused(*b, *s));
            }
            if count < BLOCK {
                (scaled, residual, on) = (zeros, zeros, zeros);
            }
            let [data, mask, value] = [self.data, self.weight, self.value].map(|row| &row[start..start + count]);
            for (((s, on), w), v) in scaled.iter_mut().zip(&mut on).zip(mask).zip(value) {
                (*s, *on) = if *w > R::ZERO { (*w * *v, R::ONE) } else { (R::ZERO, R::ZERO) };
            }
            for (((r, d), v), s) in residual.iter_mut().zip(data).zip(&scaled).zip(&smooth) {
                *r = *d - *v * *s;
            }
            self.loss.weigh(&residual, &mut weights, &mut curvatures);
            for j in 0..BLOCK {
                scaled[j] *= weights[j] * residual[j];
                curvatures[j] *= on[j];
            }
            curvature += total(&curvatures);
            number += total(&on);
            for (k, slope) in slopes.iter_mut().enumerate() {
                let basis = &self.basis[k * self.pixels + start..][..count];
                *slope += dot(basis, &scaled);
            }
        }
        (slopes, (curvature / f64::max(number, 1.0)).max(LEAST_MEAN * self.loss.central_weight()))
    }
}

impl<R: Real> NullaryFnOnce for Refinement<'_, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let terms = self.terms;
        let mut a: Vec<f64> = self.solution[..terms].iter().map(|x| x.to_f64()).collect();
        let mut factor = vec![0.0; packed_length(terms)];
        for i in 0..terms {
            (0..=i).for_each(|j| factor[packed_index(i, j)] = self.solution[terms + i * terms + j].to_f64());
        }
        for _ in 0..STEPS {
            let (slopes, curvature) = self.slopes(&self.stored(&a));
            let rows = self.transform.chunks_exact(terms).enumerate();
            let one = |(i, row): (usize, &[R])| row[..=i].iter().zip(&slopes).map(|(t, s)| t.to_f64() * s).sum();
            let mut step: Vec<f64> = rows.map(one).collect();
            solve_lower(&factor, &mut step);
            solve_upper(&factor, &mut step);
            a.iter_mut().zip(&step).for_each(|(a, step)| *a += step / curvature);
        }
        self.solution.iter_mut().zip(&a).for_each(|(x, a)| *x = R::of(*a));
    }
}

/// Declares a robust loss to a shader, which uses it once or twice: `loss_at(r)` is ρ, ψ/r and ψ′ of a residual.
#[cfg(feature = "gpu")]
pub(super) fn declare_loss(shader: &mut Shader, loss: Estimator) {
    if shader.uses.contains(&"estimator") {
        return;
    }
    shader.uses.push("estimator");
    let constants = &mut shader.constants;
    constants.float("LOSS_SCALE", loss.scale().unwrap_or(1.0));
    constants.float("LEAST_CURVATURE", LEAST_MEAN * loss.central_weight());
    constants.float("LEAST_WEIGHT", DOWNWEIGHTED * loss.central_weight());
    constants.float("LEAST_RATIO", LEAST_RATIO * loss.normal_means().ratio());
    let value = loss.wgsl_loss("loss_argument(r)");
    constants.line(&format!("fn loss_at(r: f32) -> vec3<f32> {{ return {value}; }}"));
}
