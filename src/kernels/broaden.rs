//! Rotational broadening of template rows (see `docs/src/equations.md`): each segment convolved with Gray's profile of
//! radius R = (vsini/c)/Δlnλ pixels, continued by its end values. Rows out: value, ∂/∂u of vsini if it is a parameter,
//! tangents. Twin of `shaders/broaden.wgsl`.
//!
//! The kernel is computed in f64, once per member and segment, and is as wide as the member's own vsini asks. Its
//! weights are second differences, which would cancel in f32. A GPU therefore integrates the profile on either side of
//! each kink by Gauss–Legendre sums of positive terms (relative error 1.5e-7).
//!
//! At vsini = 0 the derivative is that from above, so that a member on this bound can leave it.

use pulp::{Simd, WithSimd};

#[cfg(feature = "gpu")]
use super::shader::{Dispatch, Shader, ShaderContext};
use super::{Kernel, LIGHT, Memory, Segment};
use crate::buffers::{BufferId, Cost, Declared, Parameter, Work};
#[cfg(feature = "gpu")]
use crate::error::{Error, Result};
use crate::math::Real;
use crate::math::convolve::Padded;
#[cfg(feature = "gpu")]
use crate::math::rotation;
use crate::math::rotation::RotationKernel;

#[cfg(feature = "gpu")]
/// Weights and slopes of all segments that fit a workgroup's 16 KiB.
const MAX_WEIGHTS: usize = 1536;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rotation {
    /// Index into [`Recording::parameters`](crate::recording::Recording::parameters), and the largest vsini that it may
    /// take; km/s.
    Parameter { parameter: usize, most: f64 },
    /// km/s.
    Fixed(f64),
}

/// Rotational broadening (Gray 2005, limb darkening 0.6) inside each segment, which is continued by its end values.
/// Output rows: the value, ∂/∂vsini if it is a parameter, then the input's tangents, derivatives by the solver's `u`.
/// Nothing happens at vsini ≤ 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Broaden {
    pub input: BufferId,
    pub output: BufferId,
    /// Rows of the input: 1 + tangents.
    pub rows: usize,
    pub columns: usize,
    pub segments: Vec<Segment>,
    pub rotation: Rotation,
    /// With a row for vsini, if it is a parameter.
    pub derivatives: bool,
}

impl Broaden {
    /// Returns the number of rows of the output: those of the input, and one for a derivative by vsini if it is fitted.
    pub fn output_rows(&self) -> usize {
        self.rows
            + usize::from(self.derivatives && matches!(self.rotation, Rotation::Parameter { .. }))
    }

    /// Returns vsini in km/s at `u`, and its derivative by u.
    pub fn vsini(&self, parameters: &[Parameter], u: &[f64]) -> (f64, f64) {
        match self.rotation {
            Rotation::Fixed(v) => (v, 0.0),
            Rotation::Parameter { parameter, .. } => {
                let Parameter { origin, scale, .. } = &parameters[parameter];
                (origin + scale * u[parameter], *scale)
            }
        }
    }
}

impl Kernel for Broaden {
    const WORK: Work = Work::Observe;

    fn member_buffers(&self) -> Vec<BufferId> {
        vec![self.input, self.output]
    }

    /// Returns no operations: the sums depend on the member's vsini.
    fn cost(&self, _: Declared<'_>) -> Cost {
        Cost::new(0, (self.rows + self.output_rows()) * self.columns)
    }

    fn cacheable_output(&self, _: Declared<'_>) -> Option<BufferId> {
        Some(self.output)
    }

    fn cacheable_parameters(&self) -> Vec<usize> {
        match self.rotation {
            Rotation::Parameter { parameter, .. } => vec![parameter],
            Rotation::Fixed(_) => Vec::new(),
        }
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        memory.write(self.output, |memory, output| {
            BroadenedRows {
                stage: self,
                parameters: memory.parameters(),
                u: memory.trial(),
                input: memory.floats(self.input),
                output,
            }
            .run_vectorised();
        });
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        let text = include_str!("../../shaders/broaden.wgsl");
        let mut shader = context.start_shader("broaden", text, Dispatch::pixels(self.columns));
        shader.bind_state(false);
        shader.bind_block(context, "input", "f32", self.input, false);
        shader.bind_block(context, "output", "f32", self.output, true);
        let constants = &mut shader.constants;
        // 1. vsini at the trial point, and the width of the profile at the largest one.
        let (largest_vsini, vsini, scale) = match self.rotation {
            Rotation::Fixed(v) => (v, constants.literal(v), 0.0),
            Rotation::Parameter { parameter: p, most } => {
                let Parameter { origin, scale, .. } = &context.parameters()[p];
                let vsini_origin = constants.literal(*origin);
                let vsini_scale = constants.literal(*scale);
                (
                    most,
                    format!("{vsini_origin} + {vsini_scale} * trial({p}u, slot)"),
                    *scale,
                )
            }
        };
        constants.line(&format!("fn vsini(slot: u32) -> f32 {{ return {vsini}; }}"));
        let half = self
            .segments
            .iter()
            .map(|segment| {
                // f32 may round a bound up, and with it the radius beyond a whole number.
                rotation::reach(largest_vsini * segment.inverse_step / LIGHT * (1.0 + 1e-6))
            })
            .max()
            .unwrap_or(1);
        if self.segments.len() * (half + 1) > MAX_WEIGHTS {
            let message = format!(
                "vsini of {largest_vsini} km/s reaches {half} pixels, more than a GPU's workgroup has room for"
            );
            return Err(Error::model(message));
        }
        constants.unsigned("HALF", half);
        constants.unsigned("SEGMENTS", self.segments.len());
        constants.unsigned("ROWS", self.rows);
        constants.unsigned("OUTPUT_ROWS", self.output_rows());
        constants.unsigned("COLUMNS", self.columns);
        constants.float("VSINI_SCALE", scale);
        let (c1, c2) = rotation::profile();
        constants.float("ROTATION_1", c1);
        constants.float("ROTATION_2", c2);
        // 2. The segment of a pixel, and the radius per vsini in a segment.
        let mut segment_cases = String::new();
        let mut radius_cases = String::new();
        for (
            i,
            Segment {
                start,
                end,
                inverse_step,
            },
        ) in self.segments.iter().enumerate()
        {
            segment_cases += &format!(
                "if pixel >= {start}u && pixel < {end}u {{ return vec3<u32>({start}u, {end}u, {i}u); }}\n"
            );
            radius_cases += &format!(
                "if segment == {i}u {{ return {}; }}\n",
                constants.literal(inverse_step / LIGHT)
            );
        }
        constants.line(&format!(
            "fn segment_of(pixel: u32) -> vec3<u32> {{\n{segment_cases}return vec3<u32>();\n}}"
        ));
        constants.line(&format!(
            "fn by_vsini(segment: u32) -> f32 {{\n{radius_cases}return 0.0;\n}}"
        ));
        Ok(shader)
    }
}

/// One member's rows.
struct BroadenedRows<'a, R> {
    pub stage: &'a Broaden,
    pub parameters: &'a [Parameter],
    pub u: &'a [f64],
    /// (rows, columns)
    pub input: &'a [R],
    /// (output_rows, columns)
    pub output: &'a mut [R],
}

impl<R: Real> BroadenedRows<'_, R> {
    /// Broadens one member's rows by rotation, with the widest vectors that the machine has.
    pub fn run_vectorised(self) {
        pulp::Arch::new().dispatch(self);
    }

    /// Returns the weights of the rotation profile in a segment, from the centre outwards, and their derivatives by u.
    fn profile_weights(&self, segment: &Segment) -> (Vec<R>, Vec<R>) {
        let (vsini, by_u) = self.stage.vsini(self.parameters, self.u);
        let by_vsini = segment.inverse_step / LIGHT;
        let kernel = RotationKernel::new(vsini * by_vsini);
        let slopes = kernel.slopes.iter().map(|s| R::of(s * by_vsini * by_u));
        (
            kernel.weights.iter().map(|w| R::of(*w)).collect(),
            slopes.collect(),
        )
    }
}

impl<R: Real> WithSimd for BroadenedRows<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let columns = self.stage.columns;
        let is_free = self.stage.output_rows() > self.stage.rows;
        let profiles: Vec<(Vec<R>, Vec<R>)> = self
            .stage
            .segments
            .iter()
            .map(|segment| self.profile_weights(segment))
            .collect();
        self.output.fill(R::ZERO);
        for (segment, (weights, slopes)) in self.stage.segments.iter().zip(&profiles) {
            let range = segment.start..segment.end;
            let mut padded = Padded::new(range.len(), weights.len() - 1);
            for (row, input) in self.input.chunks_exact(columns).enumerate() {
                padded.set(&input[range.clone()]);
                // The derivative by vsini is row 1 of the output.
                let output_row = if row == 0 || !is_free { row } else { row + 1 };
                padded.convolve(
                    simd,
                    weights,
                    &mut self.output[output_row * columns..][range.clone()],
                );
                if row == 0 && is_free {
                    padded.convolve(simd, slopes, &mut self.output[columns..][range.clone()]);
                }
            }
        }
    }
}
