//! Adds a curve's points to a member's sums under an estimator other than least squares, with no continuum: each point
//! counts with the cost, residual r and slope s of `buffers/estimator.rs`, χ² += cost, g += Jᵀr, A += JᵀJ, J = s ·
//! tangents. Rows f32 or f64, shares and sums f64. Twin of `shaders/estimate.wgsl`.

use pulp::{Simd, WithSimd};

use super::normal::{self, Projected};
#[cfg(feature = "gpu")]
use super::pixel_sums::{self, Sweep};
#[cfg(feature = "gpu")]
use super::shader::{Dispatch, Shader, ShaderContext};
#[cfg(feature = "gpu")]
use super::shader_rows::{self, StoredRows};
use super::{Kernel, Memory};
use crate::buffers::{BufferId, Cost, Declared, Estimator, Sums, Work};
#[cfg(feature = "gpu")]
use crate::error::Result;
use crate::math::Real;
use crate::math::aligned::Aligned;
use crate::math::gram::{Gram, PIXELS_PER_BLOCK};

/// Adds a curve's points to the member's sums under an estimator, with the fields of [`Normal`](super::Normal) and no
/// continuum.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    pub estimator: Estimator,
    pub model: BufferId,
    pub pixels: usize,
    /// The parameter of each tangent row.
    pub columns: Vec<usize>,
    pub data: BufferId,
    pub weight: BufferId,
}

impl Kernel for Estimate {
    const WORK: Work = Work::NormalMatrix;

    fn member_buffers(&self) -> Vec<BufferId> {
        vec![self.model]
    }

    /// Returns (P + 1) (P + 2) N operations for P tangents and N pixels.
    fn cost(&self, _: Declared<'_>) -> Cost {
        let columns = self.columns.len();
        Cost::new(
            (columns + 1) * (columns + 2) * self.pixels,
            (3 + columns) * self.pixels,
        )
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        let mut scratch = memory.take_scratch();
        memory.add(|memory, sums| {
            let rows = EstimatedRows {
                estimator: self.estimator,
                pixels: self.pixels,
                columns: &self.columns,
                model: memory.floats(self.model),
                data: memory.floats(self.data),
                weight: memory.floats(self.weight),
                sums,
                block: &mut scratch.products,
            };
            rows.run_vectorised();
        });
        memory.give_scratch_back(scratch);
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        let text = include_str!("../../shaders/estimate.wgsl");
        let mut shader = context.start_shader("estimate", text, Dispatch::WORKGROUPS);
        shader.bind_state(true);
        let rows = StoredRows {
            buffer: self.model,
            rows: 1 + self.columns.len(),
            pixels: self.pixels,
        };
        shader_rows::declare_stored_rows(&mut shader, context, rows);
        shader.bind_block(context, "pixel_data", "f32", self.data, false);
        shader.bind_block(context, "weight", "f32", self.weight, false);
        let constants = &mut shader.constants;
        constants.float("LOSS_SCALE", self.estimator.scale().unwrap_or(1.0));
        constants.line(&format!(
            "fn share_of(d: f32, w: f32, m: f32) -> vec3<f32> {{ return {}; }}",
            self.estimator.wgsl_share()
        ));
        constants.unsigned("PIXELS", self.pixels);
        let count = pixel_sums::declare_tangents(constants, &self.columns)?;
        let sweep = Sweep {
            function: "reduce_sums",
            sums: pixel_sums::count_normal_sums(count, 0),
            kept: 0,
        };
        pixel_sums::declare_sums(constants, &[sweep])?;
        Ok(shader)
    }
}

/// One member's rows and its curve's arrays.
struct EstimatedRows<'a, R> {
    pub estimator: Estimator,
    pub pixels: usize,
    /// The parameter of each tangent row.
    pub columns: &'a [usize],
    /// (1 + columns, pixels)
    pub model: &'a [R],
    pub data: &'a [R],
    pub weight: &'a [R],
    pub sums: &'a mut Sums,
    /// Memory for a block of rows.
    pub block: &'a mut Aligned<R>,
}

impl<R: Real> EstimatedRows<'_, R> {
    /// Adds what one member's points contribute to cost, gradient and normal matrix, with the machine's widest vectors.
    pub fn run_vectorised(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> WithSimd for EstimatedRows<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows = self.columns.len();
        let mut gram = Gram::in_memory(std::mem::take(self.block), rows + 1, 0);
        let mut slopes = [R::ZERO; PIXELS_PER_BLOCK];
        for start in (0..self.pixels).step_by(PIXELS_PER_BLOCK) {
            let count = PIXELS_PER_BLOCK.min(self.pixels - start);
            let residuals = gram.row(rows);
            for j in 0..count {
                let [data, weight, model] =
                    [self.data, self.weight, self.model].map(|values| values[start + j].to_f64());
                residuals[j] = R::ZERO;
                slopes[j] = R::ZERO;
                if weight > 0.0 {
                    let share = self.estimator.share(data, weight, model);
                    self.sums.chi2 += share.cost;
                    residuals[j] = R::of(share.residual);
                    slopes[j] = R::of(share.slope);
                }
            }
            for i in 0..rows {
                let tangent = &self.model[(1 + i) * self.pixels + start..][..count];
                for ((j, slope), t) in gram.row(i).iter_mut().zip(&slopes).zip(tangent) {
                    // The tangent at a masked point may be anything.
                    *j = if *slope > R::ZERO {
                        *slope * *t
                    } else {
                        R::ZERO
                    };
                }
            }
            gram.add(simd, count);
        }
        normal::add_projected(&gram, 0, self.columns, &Projected::default(), self.sums);
        *self.block = gram.into_memory();
    }
}
