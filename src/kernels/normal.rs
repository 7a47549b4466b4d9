//! Adds one arm to a member's sums (see `docs/src/equations.md`): with r = D − weight · value · continuum and J =
//! weight · continuum · tangents, χ² += rᵀr, g += Jᵀr, A += JᵀJ − Bᵀ C⁻¹ B, B = SᵀJ, C = L Lᵀ from `continuum`. Rows
//! f32 or f64, sums f64. Twin of `shaders/normal.wgsl`.
//!
//! Under a robust loss ρ the rows of S, J and r are multiplied by the roots of the weights ω = ψ(r)/r. Then χ² += Σ ρ,
//! g += Jᵀψ − Bᵀ C⁻¹ Sᵀψ, and A is multiplied by Σ ψ′ / Σ ω (`robust.rs`).

use pulp::{Simd, WithSimd};

#[cfg(feature = "gpu")]
use super::pixel_sums::{self, Sweep};
#[cfg(feature = "gpu")]
use super::robust;
use super::robust::{LossTally, Weighing, add_terms};
#[cfg(feature = "gpu")]
use super::shader::{Dispatch, Shader, ShaderContext};
#[cfg(feature = "gpu")]
use super::shader_rows::{self, StoredRows};
use super::{Basis, Kernel, Memory};
#[cfg(feature = "gpu")]
use super::{Continuum, Resample};
use crate::buffers::{BufferId, Cost, Declared, Estimator, Sums, Work};
#[cfg(feature = "gpu")]
use crate::error::Result;
use crate::math::Real;
use crate::math::aligned::Aligned;
use crate::math::gram::{Gram, PIXELS_PER_BLOCK};
#[cfg(feature = "gpu")]
use crate::math::triangle::packed_length;
use crate::math::triangle::{cholesky, packed_index, solve_lower};

/// Adds an arm to the member's sums: r = D − weight · value · continuum, J = weight · continuum · tangents,
/// χ² += rᵀr, g += Jᵀr, A += JᵀJ − Bᵀ C⁻¹ B with B = SᵀJ. Without a continuum it is 1 and B empty. A robust loss
/// reweights the rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Normal {
    pub model: BufferId,
    pub pixels: usize,
    /// The parameter of each tangent row.
    pub columns: Vec<usize>,
    pub data: BufferId,
    pub weight: BufferId,
    pub continuum: Option<(Basis, BufferId)>,
    pub loss: Option<Estimator>,
}

impl Kernel for Normal {
    const WORK: Work = Work::NormalMatrix;

    fn member_buffers(&self) -> Vec<BufferId> {
        std::iter::once(self.model)
            .chain(self.continuum.map(|(_, solution)| solution))
            .collect()
    }

    /// Returns ((P + 1) (P + 2) + 2 P T) N operations for P tangents, T terms and N pixels.
    fn cost(&self, _: Declared<'_>) -> Cost {
        let terms = self.continuum.map_or(0, |(basis, _)| basis.terms);
        let columns = self.columns.len();
        let products = (columns + 1) * (columns + 2) + 2 * columns * terms;
        Cost::new(products * self.pixels, (3 + columns + terms) * self.pixels)
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        let mut scratch = memory.take_scratch();
        let weighing = self.loss.map(|loss| scratch.weighing(loss));
        memory.add(|memory, sums| {
            let continuum = self.continuum.map(|(basis, solution)| Projection {
                terms: basis.terms,
                basis: memory.floats(basis.basis),
                transform: memory.floats(basis.transform),
                solution: memory.floats(solution),
            });
            let rows = NormalRows {
                pixels: self.pixels,
                columns: &self.columns,
                model: memory.floats(self.model),
                data: &memory.floats(self.data)[..self.pixels],
                weight: memory.floats(self.weight),
                continuum,
                weighing,
                sums,
                block: &mut scratch.products,
            };
            rows.run_vectorised();
        });
        memory.give_scratch_back(scratch);
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        self.fused_shader(context, None, None)
    }
}

#[cfg(feature = "gpu")]
impl Normal {
    /// Returns the shader that adds an arm to χ², gradient and normal matrix; it does the given earlier stages, too.
    pub(crate) fn fused_shader(
        &self,
        context: &ShaderContext<'_>,
        resample: Option<&Resample>,
        continuum: Option<&Continuum>,
    ) -> Result<Shader> {
        let text = include_str!("../../shaders/normal.wgsl");
        let terms = self.continuum.map_or(0, |(basis, _)| basis.terms);
        pixel_sums::check_size("continuum terms", terms)?;
        let mut shader = context.start_shader("normal", text, Dispatch::WORKGROUPS);
        shader.bind_state(true);
        // 1. The model's rows, stored in a buffer or resampled by this kernel.
        let rows = 1 + self.columns.len();
        match resample {
            Some(resample) => {
                shader.uses.push("resampled_rows");
                shader_rows::declare_resampled_rows(&mut shader, context, resample);
            }
            None => {
                let stored = StoredRows {
                    buffer: self.model,
                    rows,
                    pixels: self.pixels,
                };
                shader_rows::declare_stored_rows(&mut shader, context, stored);
            }
        }
        shader.bind_block(context, "pixel_data", "f32", self.data, false);
        shader.bind_block(context, "weight", "f32", self.weight, false);
        shader.uses.extend(["members", "state", "math"]);
        // 2. The continuum: none, solved by an earlier kernel, or by this one.
        if let Some((basis, solution)) = self.continuum {
            basis.bind(&mut shader, context);
            if continuum.is_none() {
                shader.bind_block(context, "solution", "f32", solution, false);
            }
        }
        shader.uses.push(match (self.continuum, continuum) {
            (None, _) => "no_continuum",
            (_, None) => "projection",
            (_, Some(_)) => "elimination_first",
        });
        // 3. The tangents of each parameter, and the sums over pixels, after those of the continuum.
        let constants = &mut shader.constants;
        constants.unsigned("PIXELS", self.pixels);
        constants.unsigned("TERMS", terms);
        constants.unsigned("TRIANGLE", packed_length(terms));
        let parameters = pixel_sums::declare_tangents(constants, &self.columns)?;
        let least_squares_sums = pixel_sums::count_normal_sums(parameters, terms);
        let mut sweeps = continuum.map_or(Vec::new(), |continuum| {
            continuum.declare_sweeps(&mut shader)
        });
        shader
            .constants
            .unsigned("FIRST", sweeps.iter().map(|sweep| sweep.sums).sum());
        shader.uses.push(if self.loss.is_some() {
            "robust"
        } else {
            "least_squares"
        });
        let mut sums = least_squares_sums;
        if let Some(loss) = self.loss {
            robust::declare_loss(&mut shader, loss);
            shader.constants.unsigned("OF_LOSS", least_squares_sums);
            sums += pixel_sums::LOSS_SUM_COUNT;
        }
        sweeps.push(Sweep {
            function: "reduce_sums",
            sums,
            // the coefficients in the stored basis
            kept: if continuum.is_some() { 0 } else { terms },
        });
        pixel_sums::declare_sums(&mut shader.constants, &sweeps)?;
        Ok(shader)
    }

    /// Returns how many bytes of workgroup memory the kernel needs if `continuum` is fused into it, or without.
    pub(crate) fn workgroup_bytes(&self, continuum: Option<&Continuum>) -> u32 {
        pixel_sums::workgroup_bytes(
            &self.columns,
            continuum.map_or(0, |continuum| continuum.basis.terms),
            self.loss.is_some(),
        )
    }
}

/// Number of partial sums of χ²: a vector's worth of f64, so that the loop over pixels becomes vector code.
const COST_LANES: usize = 16;

/// One member's rows and its spectrum's arrays.
struct NormalRows<'a, R> {
    pub pixels: usize,
    /// The parameter of each tangent row.
    pub columns: &'a [usize],
    /// (1 + columns, pixels)
    pub model: &'a [R],
    pub data: &'a [R],
    pub weight: &'a [R],
    pub continuum: Option<Projection<'a, R>>,
    pub weighing: Option<Weighing>,
    pub sums: &'a mut Sums,
    /// Memory for a block of rows.
    pub block: &'a mut Aligned<R>,
}

/// Result of `continuum`.
#[derive(Clone, Copy)]
struct Projection<'a, R> {
    pub terms: usize,
    /// (terms, pixels)
    pub basis: &'a [R],
    /// (terms, terms) lower triangular.
    pub transform: &'a [R],
    /// (terms + terms²): coefficients, then the Cholesky factor L of C; under a robust loss more, which is not needed.
    pub solution: &'a [R],
}

impl<R: Real> Projection<'_, R> {
    /// Returns the coefficients of the stored basis, transformᵀ a, from those of the orthonormal one, a.
    fn coefficients<T: Real>(&self) -> Vec<T> {
        (0..self.terms)
            .map(|k| {
                let rows = self.transform.chunks_exact(self.terms).zip(self.solution);
                T::of(rows.map(|(row, a)| row[k].to_f64() * a.to_f64()).sum())
            })
            .collect()
    }
}

impl<R: Real> NormalRows<'_, R> {
    /// Adds one member's χ², gradient and normal matrix of an arm to its sums, with the machine's widest vectors.
    pub fn run_vectorised(self) {
        pulp::Arch::new().dispatch(self);
    }

    /// Adds an arm's χ² to the member's sums, and nothing else, where no derivatives are needed. Residuals are computed
    /// in f64: in f32, those of a spectrum of S/N 100 leave an error of some 1e-3 in χ², more than the tolerance of a
    /// simplex.
    #[inline(always)]
    fn add_cost(self) {
        let coefficients = self
            .continuum
            .map(|c| c.coefficients::<f64>())
            .unwrap_or_default();
        let mut continuum = [1.0; PIXELS_PER_BLOCK];
        let mut lanes = [0.0; COST_LANES];
        for start in (0..self.pixels).step_by(PIXELS_PER_BLOCK) {
            let count = PIXELS_PER_BLOCK.min(self.pixels - start);
            if let Some(c) = self.continuum {
                continuum.fill(0.0);
                for (k, &coefficient) in coefficients.iter().enumerate() {
                    let basis = &c.basis[k * self.pixels + start..][..count];
                    continuum
                        .iter_mut()
                        .zip(basis)
                        .for_each(|(sum, b)| *sum += coefficient * b.to_f64());
                }
            }
            if let Some(Weighing { loss, .. }) = self.weighing {
                let mut residuals = [0.0; PIXELS_PER_BLOCK];
                let [data, weight, value] =
                    [self.data, self.weight, self.model].map(|row| &row[start..start + count]);
                for ((((r, d), w), v), c) in residuals
                    .iter_mut()
                    .zip(data)
                    .zip(weight)
                    .zip(value)
                    .zip(&continuum)
                {
                    *r = if *w > R::ZERO {
                        d.to_f64() - w.to_f64() * v.to_f64() * c
                    } else {
                        0.0
                    };
                }
                self.sums.chi2 += loss.cost(&residuals);
                continue;
            }
            let [data, weight, value] = [self.data, self.weight, self.model]
                .map(|row| row[start..start + count].chunks(COST_LANES));
            for (((data, weight), value), continuum) in data
                .zip(weight)
                .zip(value)
                .zip(continuum.chunks(COST_LANES))
            {
                for ((((sum, d), w), v), c) in lanes
                    .iter_mut()
                    .zip(data)
                    .zip(weight)
                    .zip(value)
                    .zip(continuum)
                {
                    let residual = d.to_f64() - w.to_f64() * v.to_f64() * c;
                    // The value at a masked pixel may be anything.
                    *sum += if *w > R::ZERO {
                        residual * residual
                    } else {
                        0.0
                    };
                }
            }
        }
        self.sums.chi2 += lanes.iter().sum::<f64>();
    }

    /// Adds an arm's χ², gradient and normal matrix to the sums, from `gram`, with rows S (terms), J (columns), r.
    fn accumulate(&mut self, gram: &Gram<R>, tally: Option<LossTally<R>>) {
        let terms = self.continuum.map_or(0, |c| c.terms);
        let count = self.columns.len();
        if let Some(tally) = tally {
            return self.accumulate_robust(gram, &tally, tally.matrix_factor());
        }
        // 1. L⁻¹ B, one column per tangent.
        let residual = terms + count;
        let mut projected = vec![0.0; terms * count];
        if let Some(continuum) = self.continuum {
            let factor = &continuum.solution[terms..];
            for i in 0..count {
                for c in 0..terms {
                    let row = &continuum.transform[c * terms..][..=c];
                    let mut sum: f64 = row
                        .iter()
                        .enumerate()
                        .map(|(k, t)| t.to_f64() * gram.sum(terms + i, k))
                        .sum();
                    for k in 0..c {
                        sum -= factor[c * terms + k].to_f64() * projected[i * terms + k];
                    }
                    projected[i * terms + c] = sum / factor[c * terms + c].to_f64();
                }
            }
        }
        // 2. The sums without the continuum.
        self.sums.chi2 += gram.sum(residual, residual);
        add_projected(
            gram,
            terms,
            self.columns,
            &Projected {
                columns: &projected,
                ..Projected::default()
            },
            self.sums,
        );
    }

    /// Adds the same sums under a robust loss, with the continuum in the stored basis: the sums without the continuum
    /// do not depend on its basis.
    fn accumulate_robust(&mut self, gram: &Gram<R>, tally: &LossTally<R>, ratio: f64) {
        let terms = self.continuum.map_or(0, |c| c.terms);
        let residual = terms + self.columns.len();
        // 1. The Cholesky factor of C under the weights.
        let mut factor: Vec<f64> = (0..terms)
            .flat_map(|i| (0..=i).map(move |j| gram.sum(i, j)))
            .collect();
        for i in 0..terms {
            // A term that no pixel sees leaves the solve.
            let diagonal = &mut factor[packed_index(i, i)];
            *diagonal = if *diagonal == 0.0 { 1.0 } else { *diagonal };
        }
        let is_positive_definite = cholesky(&mut factor, terms);
        // 2. L⁻¹ times the products of the terms with each tangent and with the residual.
        let solved_row = |i: usize| {
            let mut row: Vec<f64> = (0..terms).map(|k| gram.sum(i, k)).collect();
            solve_lower(&factor, &mut row);
            row
        };
        let columns: Vec<f64> = (terms..residual).flat_map(solved_row).collect();
        // 3. The sums without the continuum.
        self.sums.chi2 += if is_positive_definite {
            tally.cost
        } else {
            f64::NAN
        };
        tally.add_to(ratio, &mut self.sums.loss);
        let projected = Projected {
            columns: &columns,
            residual: &solved_row(residual),
            ratio,
        };
        add_projected(gram, terms, self.columns, &projected, self.sums);
    }
}

/// Projections onto the continuum's terms, which are subtracted from an arm's gradient and normal matrix.
pub(super) struct Projected<'a> {
    /// (columns, terms) L⁻¹ B.
    pub columns: &'a [f64],
    /// (terms) L⁻¹ Sᵀψ; empty where the coefficients solve their equation.
    pub residual: &'a [f64],
    /// Factor of the normal matrix.
    pub ratio: f64,
}

impl Default for Projected<'_> {
    fn default() -> Self {
        Projected {
            columns: &[],
            residual: &[],
            ratio: 1.0,
        }
    }
}

/// Adds an arm's gradient and normal matrix, without its continuum terms, to the sums. `gram` has the products of the
/// rows S (terms), J (columns), r.
pub(super) fn add_projected<R: Real>(
    gram: &Gram<R>,
    terms: usize,
    columns: &[usize],
    projected: &Projected<'_>,
    sums: &mut Sums,
) {
    let residual = terms + columns.len();
    for (i, &p) in columns.iter().enumerate() {
        let projected_residual: f64 = projected.columns[i * terms..]
            .iter()
            .zip(projected.residual)
            .map(|(b, r)| b * r)
            .sum();
        sums.gradient[p] += gram.sum(residual, terms + i) - projected_residual;
        for (j, &q) in columns.iter().enumerate().take(i + 1) {
            let column_i = &projected.columns[i * terms..][..terms];
            let column_j = &projected.columns[j * terms..][..terms];
            let projected_product: f64 = column_i.iter().zip(column_j).map(|(a, b)| a * b).sum();
            // Two rows of one parameter (a tied label) add their product twice.
            let times = projected.ratio * if i != j && p == q { 2.0 } else { 1.0 };
            sums.normal_matrix[packed_index(p, q)] +=
                times * (gram.sum(terms + i, terms + j) - projected_product);
        }
    }
}

impl<R: Real> WithSimd for NormalRows<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let terms = self.continuum.map_or(0, |c| c.terms);
        let rows = self.columns.len();
        if rows == 0 {
            return self.add_cost();
        }
        let skipped_rows = if self.weighing.is_some() { 0 } else { terms };
        let mut gram = Gram::in_memory(std::mem::take(self.block), terms + rows + 1, skipped_rows);
        let coefficients = self
            .continuum
            .map(|c| c.coefficients::<R>())
            .unwrap_or_default();
        let mut continuum = [R::ONE; PIXELS_PER_BLOCK];
        let mut scaled = [R::ZERO; PIXELS_PER_BLOCK];
        let mut weights = [R::ZERO; PIXELS_PER_BLOCK];
        let mut tally = self.weighing.map(LossTally::new);
        for start in (0..self.pixels).step_by(PIXELS_PER_BLOCK) {
            let count = PIXELS_PER_BLOCK.min(self.pixels - start);
            let weight = &self.weight[start..start + count];
            let value = &self.model[start..start + count];
            // 1. The residuals.
            for ((s, w), v) in scaled.iter_mut().zip(weight).zip(value) {
                *s = if *w > R::ZERO { *w * *v } else { R::ZERO };
            }
            if let Some(c) = self.continuum {
                continuum.fill(R::ZERO);
                add_terms(
                    &coefficients,
                    &c.basis[start..],
                    self.pixels,
                    &mut continuum[..count],
                );
            }
            let data = &self.data[start..start + count];
            for (((r, d), v), c) in gram
                .row(terms + rows)
                .iter_mut()
                .zip(data)
                .zip(&scaled)
                .zip(&continuum)
            {
                *r = *d - *v * *c;
            }
            // 2. Their weights under the loss, by whose roots the rows are multiplied.
            let weights = match &mut tally {
                None => weight,
                Some(tally) => {
                    let residuals = &mut gram.row(terms + rows)[..count];
                    let roots = tally.add(simd, residuals, weight);
                    for (((h, w), s), root) in
                        weights.iter_mut().zip(weight).zip(&mut scaled).zip(roots)
                    {
                        (*h, *s) = (*w * *root, *s * *root);
                    }
                    residuals
                        .iter_mut()
                        .zip(roots)
                        .for_each(|(r, root)| *r *= *root);
                    &weights[..count]
                }
            };
            // 3. The continuum's terms and the tangents.
            if let Some(c) = self.continuum {
                for k in 0..terms {
                    let basis = &c.basis[k * self.pixels + start..][..count];
                    gram.row(k)
                        .iter_mut()
                        .zip(basis)
                        .zip(&scaled)
                        .for_each(|((row, b), v)| *row = *v * *b);
                }
            }
            for i in 0..rows {
                let tangent = &self.model[(1 + i) * self.pixels + start..][..count];
                for (((j, w), t), c) in gram
                    .row(terms + i)
                    .iter_mut()
                    .zip(weights)
                    .zip(tangent)
                    .zip(&continuum)
                {
                    *j = if *w > R::ZERO { *w * *c * *t } else { R::ZERO };
                }
            }
            gram.add(simd, count);
        }
        self.accumulate(&gram, tally);
        *self.block = gram.into_memory();
    }
}
