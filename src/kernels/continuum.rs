//! The continuum by variable projection (Golub & Pereyra 1973): S_jc = weight_j value_j p_c(λ_j), C = SᵀS, C a = SᵀD.
//! Writes a and C's Cholesky factor, adds ln det C. Under a robust loss, `robust.rs` then refines a. Rows f32 or f64,
//! sums and the solve f64. Twin of `shaders/continuum.wgsl`.
//!
//! The sums are made in the stored basis and transformed to the orthonormal p = transform · basis afterwards, here in
//! f64, in the shader in f32 (a tree in a fixed order). Spectra whose weights would make that inexact have bases of
//! their own (`model/set_basis.rs`).

use pulp::{Simd, WithSimd};

#[cfg(feature = "gpu")]
use super::pixel_sums::{self, Sweep};
#[cfg(feature = "gpu")]
use super::robust;
use super::robust::{NEWTON_STEPS, Refinement};
#[cfg(feature = "gpu")]
use super::shader::{Dispatch, Shader, ShaderContext};
#[cfg(feature = "gpu")]
use super::shader_rows::{self, StoredRows};
use super::{Kernel, Memory};
use crate::buffers::{BufferId, Cost, Declared, Estimator, Work};
#[cfg(feature = "gpu")]
use crate::error::Result;
use crate::math::Real;
use crate::math::aligned::Aligned;
use crate::math::gram::{Gram, PIXELS_PER_BLOCK};
use crate::math::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};

/// The continuum's arrays. The orthonormal basis at pixel j is `transform` (lower triangular, terms × terms) times
/// `basis` (terms × pixels).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Basis {
    pub terms: usize,
    pub basis: BufferId,
    pub transform: BufferId,
}

impl Basis {
    /// Declares the basis and its transform as a shader's next buffers.
    #[cfg(feature = "gpu")]
    pub(super) fn bind(&self, shader: &mut Shader, context: &ShaderContext<'_>) {
        shader.bind_block(context, "basis", "f32", self.basis, false);
        shader.bind_block(context, "transform", "f32", self.transform, false);
    }
}

/// Variable projection: C = SᵀS, S_jc = weight_j value_j p_c(λ_j); solves C a = SᵀD. Writes to `solution` the `terms`
/// coefficients a, then C's Cholesky factor L (terms × terms, row-major, lower), and adds ln det C to the member.
///
/// Under a robust `loss` this is the solution for the cleaned data, which follow the data in the same buffer. The
/// coefficients that minimise the loss then replace it. On a GPU the factor is replaced by that of C under the weights
/// of the residuals, and L⁻¹ Sᵀψ (terms) follows it; on the CPU `normal` computes both.
#[derive(Clone, Debug, PartialEq)]
pub struct Continuum {
    pub model: BufferId,
    pub pixels: usize,
    pub data: BufferId,
    pub weight: BufferId,
    pub basis: Basis,
    pub solution: BufferId,
    pub loss: Option<Estimator>,
}

impl Kernel for Continuum {
    const WORK: Work = Work::NormalMatrix;

    fn member_buffers(&self) -> Vec<BufferId> {
        vec![self.model, self.solution]
    }

    /// Returns (T (T + 1) + 2 T) N operations for T terms and N pixels; under a loss 4 T N more for each Newton step.
    fn cost(&self, _: Declared<'_>) -> Cost {
        let terms = self.basis.terms;
        let steps = if self.loss.is_some() { NEWTON_STEPS } else { 0 };
        Cost::new(
            (terms * (terms + 3) + 4 * steps * terms) * self.pixels,
            (3 + terms) * self.pixels,
        )
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        let Basis {
            terms,
            basis,
            transform,
        } = self.basis;
        let mut ln_det = f64::NAN;
        let mut scratch = memory.take_scratch();
        memory.write(self.solution, |memory, solution| {
            let pixels = self.pixels;
            let value = &memory.floats(self.model)[..pixels];
            let weight = memory.floats(self.weight);
            let basis = memory.floats(basis);
            let transform = memory.floats(transform);
            let (data, cleaned_data) = memory.floats(self.data).split_at(pixels);
            let rows = ContinuumRows {
                terms,
                pixels,
                value,
                data: if self.loss.is_some() {
                    cleaned_data
                } else {
                    data
                },
                weight,
                basis,
                transform,
                solution,
                block: &mut scratch.products,
            };
            ln_det = rows.run_vectorised();
            if let Some(loss) = self.loss {
                Refinement {
                    loss,
                    terms,
                    pixels,
                    value,
                    data,
                    weight,
                    basis,
                    transform,
                    solution,
                }
                .run_vectorised();
            }
        });
        memory.give_scratch_back(scratch);
        memory.add(|_, sums| sums.ln_det += ln_det);
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        let text = include_str!("../../shaders/continuum.wgsl");
        let terms = self.basis.terms;
        pixel_sums::check_size("continuum terms", terms)?;
        let mut shader = context.start_shader("continuum", text, Dispatch::WORKGROUPS);
        shader.bind_state(true);
        let rows = StoredRows {
            buffer: self.model,
            rows: 1,
            pixels: self.pixels,
        };
        shader_rows::declare_stored_rows(&mut shader, context, rows);
        shader.bind_block(context, "pixel_data", "f32", self.data, false);
        shader.bind_block(context, "weight", "f32", self.weight, false);
        self.basis.bind(&mut shader, context);
        shader.bind_block(context, "solution", "f32", self.solution, true);
        shader.constants.unsigned("PIXELS", self.pixels);
        shader.constants.unsigned("TERMS", terms);
        shader.constants.unsigned("TRIANGLE", packed_length(terms));
        let sweeps = self.declare_sweeps(&mut shader);
        pixel_sums::declare_sums(&mut shader.constants, &sweeps)?;
        Ok(shader)
    }
}

#[cfg(feature = "gpu")]
impl Continuum {
    /// Declares the refinement of the continuum under the loss, if there is one, to a shader, and returns the sweeps
    /// over pixels that the continuum needs.
    pub(super) fn declare_sweeps(&self, shader: &mut Shader) -> Vec<Sweep> {
        let terms = self.basis.terms;
        let sums = pixel_sums::count_continuum_sums(terms);
        let mut sweeps = vec![Sweep {
            function: "reduce_continuum_sums",
            sums,
            kept: terms,
        }];
        shader.constants.unsigned(
            "FIRST_DATA",
            if self.loss.is_some() { self.pixels } else { 0 },
        );
        shader.uses.push(if self.loss.is_some() {
            "refinement"
        } else {
            "no_refinement"
        });
        if let Some(loss) = self.loss {
            robust::declare_loss(shader, loss);
            shader.constants.unsigned("STEPS", NEWTON_STEPS);
            shader.constants.unsigned("REFINED", sums);
            let sums = pixel_sums::count_refinement_sums(terms);
            sweeps.push(Sweep {
                function: "reduce_refinement_sums",
                sums,
                kept: terms,
            });
        }
        sweeps
    }
}

/// One member's rows and its spectrum's arrays.
struct ContinuumRows<'a, R> {
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
    /// Memory for a block of rows.
    pub block: &'a mut Aligned<R>,
}

impl<R: Real> ContinuumRows<'_, R> {
    /// Solves for one member's continuum coefficients; returns ln det of their matrix C, NaN if not positive definite.
    pub fn run_vectorised(self) -> f64 {
        pulp::Arch::new().dispatch(self)
    }

    /// Returns row i of the lower triangular transform, as pairs of column and element.
    fn transform_row(&self, i: usize) -> impl Iterator<Item = (usize, f64)> {
        self.transform[i * self.terms..][..=i]
            .iter()
            .map(|t| t.to_f64())
            .enumerate()
    }

    /// Returns the products of the transformed basis, packed, from those of the stored one: transform · products ·
    /// transformᵀ.
    fn transform_products(&self, gram: &Gram<R>) -> Vec<f64> {
        let terms = self.terms;
        let mut transformed = vec![0.0; packed_length(terms)];
        let mut column = vec![0.0; terms];
        for j in 0..terms {
            // column j of products · transformᵀ
            for (k, element) in column.iter_mut().enumerate() {
                *element = self.transform_row(j).map(|(l, t)| t * gram.sum(k, l)).sum();
            }
            for i in j..terms {
                transformed[packed_index(i, j)] =
                    self.transform_row(i).map(|(k, t)| t * column[k]).sum();
            }
        }
        transformed
    }

    /// Solves C a = SᵀD by Cholesky, writes a and the factor, and returns ln det C; all NaN if C is not positive
    /// definite.
    fn solve(&mut self, gram: &Gram<R>) -> f64 {
        let terms = self.terms;
        let mut factor = self.transform_products(gram);
        let mut a = vec![0.0; terms];
        for i in 0..terms {
            a[i] = self
                .transform_row(i)
                .map(|(k, t)| t * gram.sum(terms, k))
                .sum();
            // A term that no pixel sees (an arm that drops out) leaves the solve: its row is zero, its coefficient too.
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

impl<R: Real> WithSimd for ContinuumRows<'_, R> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> f64 {
        let terms = self.terms;
        let mut gram = Gram::in_memory(std::mem::take(self.block), terms + 1, 0);
        let mut scaled = [R::ZERO; PIXELS_PER_BLOCK];
        for start in (0..self.pixels).step_by(PIXELS_PER_BLOCK) {
            let count = PIXELS_PER_BLOCK.min(self.pixels - start);
            let weight = &self.weight[start..start + count];
            let value = &self.value[start..start + count];
            for ((s, w), v) in scaled.iter_mut().zip(weight).zip(value) {
                // Masked pixels are set to 0 by selection, because 0 · NaN is NaN.
                *s = if *w > R::ZERO { *w * *v } else { R::ZERO };
            }
            for c in 0..terms {
                let basis = &self.basis[c * self.pixels + start..][..count];
                for ((s, p), v) in gram.row(c).iter_mut().zip(basis).zip(&scaled) {
                    *s = *v * *p;
                }
            }
            gram.row(terms)[..count].copy_from_slice(&self.data[start..start + count]);
            gram.add(simd, count);
        }
        let ln_det = self.solve(&gram);
        *self.block = gram.into_memory();
        ln_det
    }
}
