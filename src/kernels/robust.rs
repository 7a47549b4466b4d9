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

use pulp::{Simd, WithSimd};

use super::memory::Scratch;
#[cfg(feature = "gpu")]
use super::shader::Shader;
use crate::buffers::{Estimator, LossSums};
use crate::math::Real;
use crate::math::gram::PIXELS_PER_BLOCK;
use crate::math::triangle::{packed_index, packed_length, solve_lower, solve_upper};

/// Number of Newton steps of the continuum's coefficients. Each leaves some tenth of their error, and the sums of
/// `normal` correct for the rest.
pub(super) const NEWTON_STEPS: usize = 1;
/// Smallest mean of ψ′ that shortens a Newton step of the continuum, as a share of ω₀.
const LEAST_MEAN_CURVATURE: f64 = 0.5;
/// Smallest ratio of Σ ψ′ to Σ ω in the normal matrix, as a share of that of normal residuals. Of the shares from 0.5
/// to 1 it takes the fewest rounds (`docs/trials.md`).
const LEAST_MATRIX_FACTOR: f64 = 0.98;
/// Weight of a pixel, as a share of that of a small residual, below which it counts as downweighted.
const DOWNWEIGHTED: f64 = 0.5;

/// Numbers of a block's pixels; 0 beyond the end of a row.
pub(super) type PixelBlock<R> = [R; PIXELS_PER_BLOCK];

/// Adds Σ a_k p_k to `sums` at the first pixels of a block, given the rows p_k from there on, `stride` apart, four
/// terms at a time.
#[inline(always)]
pub(super) fn add_terms<R: Real>(factors: &[R], rows: &[R], stride: usize, sums: &mut [R]) {
    let pixels = sums.len();
    let row = |k: usize| &rows[k * stride..][..pixels];
    let whole = factors.len() - factors.len() % 4;
    for k in (0..whole).step_by(4) {
        let [a, b, c, d] = [factors[k], factors[k + 1], factors[k + 2], factors[k + 3]];
        let [p, q, r, t] = [row(k), row(k + 1), row(k + 2), row(k + 3)];
        for ((((sum, p), q), r), t) in sums.iter_mut().zip(p).zip(q).zip(r).zip(t) {
            *sum = d.fused(*t, c.fused(*r, b.fused(*q, a.fused(*p, *sum))));
        }
    }
    for (k, &factor) in factors.iter().enumerate().skip(whole) {
        sums.iter_mut()
            .zip(row(k))
            .for_each(|(sum, p)| *sum = factor.fused(*p, *sum));
    }
}

/// Returns the sums of blocks.
#[inline(always)]
fn sum_blocks<R: Real, S: Simd, const N: usize>(simd: S, blocks: [&PixelBlock<R>; N]) -> [f64; N] {
    let blocks = blocks.map(|block| R::vectors::<S>(block));
    let mut lanes = [R::splat(simd, R::ZERO); N];
    // Plain loops here and below, because a closure would leave the scope of the vector instructions.
    for k in 0..PIXELS_PER_BLOCK / R::lanes::<S>() {
        for (sum, block) in lanes.iter_mut().zip(&blocks) {
            *sum = R::plus(simd, *sum, block[k]);
        }
    }
    let mut sums = [0.0; N];
    for q in 0..N {
        sums[q] = R::total(simd, lanes[q]).to_f64();
    }
    sums
}

/// Returns Σ a b over the pixels of some rows a: several at a time, because each sum waits for its last addition.
#[inline(always)]
fn dot_products<R: Real, S: Simd, const N: usize>(
    simd: S,
    rows: [&[R]; N],
    b: &PixelBlock<R>,
) -> [f64; N] {
    let vectors = rows.map(|row| R::vectors::<S>(row));
    let factors = R::vectors::<S>(b);
    let count = vectors.first().map_or(0, |row| row.len());
    let mut lanes = [R::splat(simd, R::ZERO); N];
    for k in 0..count {
        for q in 0..N {
            lanes[q] = R::multiply_add(simd, vectors[q][k], factors[k], lanes[q]);
        }
    }
    let mut sums = [0.0; N];
    for q in 0..N {
        let mut sum = R::total(simd, lanes[q]);
        for j in count * R::lanes::<S>()..rows[q].len() {
            sum = rows[q][j].fused(b[j], sum);
        }
        sums[q] = sum.to_f64();
    }
    sums
}

/// A robust loss, and the least ratio of Σ ψ′ to Σ ω in the normal matrix, which takes an integral.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Weighing {
    pub loss: Estimator,
    least_ratio: f64,
}

impl Weighing {
    /// Makes the weighing of residuals under a loss.
    fn new(loss: Estimator) -> Weighing {
        Weighing {
            loss,
            least_ratio: LEAST_MATRIX_FACTOR * loss.normal_means().ratio(),
        }
    }
}

impl<R> Scratch<R> {
    /// Returns the weighing of residuals under a loss, which is cached until another loss is needed.
    pub(super) fn weighing(&mut self, loss: Estimator) -> Weighing {
        match self.weighing {
            Some(cached) if cached.loss == loss => cached,
            _ => *self.weighing.insert(Weighing::new(loss)),
        }
    }
}

/// Sums over the residuals of an arm, and memory for a block of them.
pub(super) struct LossTally<R> {
    weighing: Weighing,
    /// Σ ρ.
    pub cost: f64,
    /// Σ ω.
    weight: f64,
    /// Σ ψ′, Σ ψ², and the number of downweighted pixels.
    loss: LossSums,
    residuals: PixelBlock<R>,
    /// 1 for pixels that count, else 0.
    used: PixelBlock<R>,
    weights: PixelBlock<R>,
    curvatures: PixelBlock<R>,
    squares: PixelBlock<R>,
    downweighted: PixelBlock<R>,
    /// Square roots of the weights.
    roots: PixelBlock<R>,
}

impl<R: Real> LossTally<R> {
    /// Makes sums that are all zero.
    #[inline(always)]
    pub fn new(weighing: Weighing) -> LossTally<R> {
        let zeros = [R::ZERO; PIXELS_PER_BLOCK];
        LossTally {
            weighing,
            cost: 0.0,
            weight: 0.0,
            loss: LossSums::default(),
            residuals: zeros,
            used: zeros,
            weights: zeros,
            curvatures: zeros,
            squares: zeros,
            downweighted: zeros,
            roots: zeros,
        }
    }

    /// Adds residuals of at most a block, and returns the roots of their weights. Those of pixels whose `mask` is 0 are
    /// 0, and do not count.
    #[inline(always)]
    pub fn add<S: Simd>(&mut self, simd: S, values: &[R], mask: &[R]) -> &[R] {
        let Weighing { loss, .. } = self.weighing;
        let LossTally {
            residuals,
            used,
            weights,
            curvatures,
            squares,
            downweighted,
            roots,
            ..
        } = self;
        residuals[values.len()..].fill(R::ZERO);
        used[values.len()..].fill(R::ZERO);
        residuals[..values.len()].copy_from_slice(values);
        used.iter_mut()
            .zip(mask)
            .for_each(|(used, mask)| *used = if *mask > R::ZERO { R::ONE } else { R::ZERO });
        loss.weigh(&*residuals, weights, curvatures);
        self.cost += loss.cost(residuals);
        let least_weight = R::of(DOWNWEIGHTED * loss.central_weight());
        for j in 0..PIXELS_PER_BLOCK {
            let weight = weights[j] * used[j];
            let psi = weight * residuals[j];
            downweighted[j] = if weight < least_weight {
                used[j]
            } else {
                R::ZERO
            };
            weights[j] = weight;
            curvatures[j] *= used[j];
            squares[j] = psi * psi;
            roots[j] = weight.root();
        }
        let [weight, curvature, scatter, downweighted_pixels] =
            sum_blocks(simd, [&*weights, &*curvatures, &*squares, &*downweighted]);
        self.weight += weight;
        self.loss.curvature += curvature;
        self.loss.scatter += scatter;
        self.loss.downweighted += downweighted_pixels;
        &self.roots[..values.len()]
    }

    /// Returns the factor of the normal matrix, which gives it the loss's own curvature on average, and not less than
    /// for normal residuals: far from the minimum Σ ψ′ may vanish.
    pub fn matrix_factor(&self) -> f64 {
        if self.weight > 0.0 {
            (self.loss.curvature / self.weight).max(self.weighing.least_ratio)
        } else {
            1.0
        }
    }

    /// Adds the arm's sums to a member's; `ratio` is the factor of the normal matrix.
    pub fn add_to(&self, ratio: f64, sums: &mut LossSums) {
        sums.curvature += self.loss.curvature;
        sums.matrix_curvature += ratio * self.weight;
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
    pub fn run_vectorised(self) {
        pulp::Arch::new().dispatch(self);
    }

    /// Returns the coefficients of the stored basis, transformᵀ a.
    fn coefficients_of_stored_basis(&self, a: &[f64]) -> Vec<R> {
        (0..self.terms)
            .map(|k| {
                let rows = self.transform.chunks_exact(self.terms).zip(a);
                R::of(rows.map(|(row, a)| row[k].to_f64() * a).sum())
            })
            .collect()
    }

    /// Returns Sᵀψ in the stored basis, and κ.
    #[inline(always)]
    fn gradient_and_curvature<S: Simd>(&self, simd: S, coefficients: &[R]) -> (Vec<f64>, f64) {
        let mut slopes = vec![0.0; self.terms];
        let mut curvature = 0.0;
        let mut pixel_count = 0.0;
        let zeros = [R::ZERO; PIXELS_PER_BLOCK];
        let mut scaled = zeros;
        let mut residual = zeros;
        let mut weights = zeros;
        let mut curvatures = zeros;
        let mut used = zeros;
        for start in (0..self.pixels).step_by(PIXELS_PER_BLOCK) {
            let count = PIXELS_PER_BLOCK.min(self.pixels - start);
            // 1. Residuals, weights and curvatures of a block of pixels.
            let mut continuum = zeros;
            let basis = &self.basis[start..];
            add_terms(coefficients, basis, self.pixels, &mut continuum[..count]);
            if count < PIXELS_PER_BLOCK {
                scaled = zeros;
                residual = zeros;
                used = zeros;
            }
            let [data, mask, value] =
                [self.data, self.weight, self.value].map(|row| &row[start..start + count]);
            for (((s, used), w), v) in scaled.iter_mut().zip(&mut used).zip(mask).zip(value) {
                (*s, *used) = if *w > R::ZERO {
                    (*w * *v, R::ONE)
                } else {
                    (R::ZERO, R::ZERO)
                };
            }
            for (((r, d), v), c) in residual.iter_mut().zip(data).zip(&scaled).zip(&continuum) {
                *r = *d - *v * *c;
            }
            self.loss.weigh(&residual, &mut weights, &mut curvatures);
            for j in 0..PIXELS_PER_BLOCK {
                scaled[j] *= weights[j] * residual[j];
                curvatures[j] *= used[j];
            }
            let [block_curvature, block_pixels] = sum_blocks(simd, [&curvatures, &used]);
            curvature += block_curvature;
            pixel_count += block_pixels;
            // 2. Their part of Sᵀψ, four terms at a time.
            let row = |k: usize| &basis[k * self.pixels..][..count];
            let mut fours = slopes.chunks_exact_mut(4);
            let mut k = 0;
            for four in &mut fours {
                let sums =
                    dot_products(simd, [row(k), row(k + 1), row(k + 2), row(k + 3)], &scaled);
                four.iter_mut()
                    .zip(sums)
                    .for_each(|(slope, sum)| *slope += sum);
                k += 4;
            }
            for slope in fours.into_remainder() {
                let [sum] = dot_products(simd, [row(k)], &scaled);
                *slope += sum;
                k += 1;
            }
        }
        (
            slopes,
            (curvature / f64::max(pixel_count, 1.0))
                .max(LEAST_MEAN_CURVATURE * self.loss.central_weight()),
        )
    }
}

impl<R: Real> WithSimd for Refinement<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let terms = self.terms;
        let mut a: Vec<f64> = self.solution[..terms].iter().map(|x| x.to_f64()).collect();
        let mut factor = vec![0.0; packed_length(terms)];
        for i in 0..terms {
            (0..=i).for_each(|j| {
                factor[packed_index(i, j)] = self.solution[terms + i * terms + j].to_f64()
            });
        }
        for _ in 0..NEWTON_STEPS {
            let coefficients = self.coefficients_of_stored_basis(&a);
            let (slopes, curvature) = self.gradient_and_curvature(simd, &coefficients);
            let mut step: Vec<f64> = self
                .transform
                .chunks_exact(terms)
                .enumerate()
                .map(|(i, row)| {
                    row[..=i]
                        .iter()
                        .zip(&slopes)
                        .map(|(t, s)| t.to_f64() * s)
                        .sum()
                })
                .collect();
            solve_lower(&factor, &mut step);
            solve_upper(&factor, &mut step);
            a.iter_mut()
                .zip(&step)
                .for_each(|(a, step)| *a += step / curvature);
        }
        self.solution
            .iter_mut()
            .zip(&a)
            .for_each(|(x, a)| *x = R::of(*a));
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
    constants.float(
        "LEAST_CURVATURE",
        LEAST_MEAN_CURVATURE * loss.central_weight(),
    );
    constants.float("LEAST_WEIGHT", DOWNWEIGHTED * loss.central_weight());
    constants.float("LEAST_RATIO", Weighing::new(loss).least_ratio);
    let value = loss.wgsl_loss("loss_argument(r)");
    constants.line(&format!(
        "fn loss_at(r: f32) -> vec3<f32> {{ return {value}; }}"
    ));
}
