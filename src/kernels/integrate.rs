//! Doppler shift and means over a spectrum's pixels (see `docs/src/equations.md`), for pixels that are wider than the
//! template's. Twin of `shaders/integrate.wgsl`.
//!
//! A pixel's mean of the template Σ_k c_k B(x − k) is Σ_k c_k [Q(b − k) − Q(a − k)] / (b − a). Here a and b are the
//! fractional indices of its edges, and Q is the integral of B. Its derivative by a shift of both edges is Σ_k c_k [B(b
//! − k) − B(a − k)] / (b − a). B is the cubic B-spline or, for linear interpolation, a triangle. Far below an edge Q is
//! 1, so taps between the edges are summed, and four taps are weighted at each edge. Output rows are those of
//! `resample.rs`. Beyond a segment's ends its end coefficients are used.

use super::resample::{Cubic, PIXEL_MASK, Shift, doppler_shift, split_shift};
#[cfg(feature = "gpu")]
use super::shader::{Dispatch, Shader, ShaderContext};
#[cfg(feature = "gpu")]
use super::shader_rows;
use super::{Interpolation, Kernel, Memory, Resample};
use crate::buffers::{BufferId, Cost, Declared, Parameter, Work};
#[cfg(feature = "gpu")]
use crate::error::Result;
use crate::math::Real;
use crate::math::taps::TAPS;

/// Typical number of taps between a pixel's edges, for estimates of cost.
const TYPICAL_WIDTH: usize = 4;

/// Doppler shift and means over pixels. Output rows are those of [`Resample`].
#[derive(Clone, Debug, PartialEq)]
pub struct Integrate {
    /// The template's rows, and the places of the pixels' centres in them.
    pub centres: Resample,
    /// (2, pixels) Distances from a pixel's centre to its lower and upper edge, in template pixels; their sum is
    /// positive.
    pub edges: BufferId,
}

impl Kernel for Integrate {
    const WORK: Work = Work::Observe;

    fn member_buffers(&self) -> Vec<BufferId> {
        self.centres.member_buffers()
    }

    /// Returns (4 · 4 + width) R N operations for R rows of N pixels, each `width` template pixels wide.
    fn cost(&self, _: Declared<'_>) -> Cost {
        let Resample {
            rows,
            input_columns,
            pixels,
            ..
        } = self.centres;
        let output = self.centres.output_rows() * pixels;
        Cost::new(
            (4 * TAPS + TYPICAL_WIDTH) * output,
            rows * input_columns + output + 4 * pixels,
        )
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        memory.write(self.centres.output, |memory, output| {
            let rows = IntegratedRows {
                stage: &self.centres,
                input: memory.floats(self.centres.input),
                index: memory.indices(self.centres.index),
                fraction: memory.floats(self.centres.fraction),
                edges: memory.floats(self.edges),
                output,
            };
            rows.integrate(memory.parameters(), memory.trial());
        });
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        let text = include_str!("../../shaders/integrate.wgsl");
        let mut shader =
            context.start_shader("integrate", text, Dispatch::pixels(self.centres.pixels));
        shader.bind_state(false);
        shader_rows::declare_resampled_rows(&mut shader, context, &self.centres);
        shader.bind_block(context, "edges", "f32", self.edges, false);
        shader.bind_block(context, "output", "f32", self.centres.output, true);
        shader
            .constants
            .unsigned("OUTPUT_ROWS", self.centres.output_rows());
        shader.constants.unsigned("PIXELS", self.centres.pixels);
        Ok(shader)
    }
}

/// One member's rows.
struct IntegratedRows<'a, R> {
    stage: &'a Resample,
    /// (rows, input_columns)
    input: &'a [R],
    index: &'a [i32],
    fraction: &'a [R],
    /// (2, pixels)
    edges: &'a [R],
    /// (output_rows, pixels)
    output: &'a mut [R],
}

/// An edge of a pixel: the first tap that it weighs, and the taps' integrals up to it and values at it.
struct Edge<R> {
    first: i32,
    integrals: [R; TAPS],
    values: [R; TAPS],
}

impl<R: Real> Edge<R> {
    /// Returns the edge at a fractional template index.
    fn at(index: f64, interpolation: Interpolation) -> Edge<R> {
        let whole = index.floor();
        let x = R::of(index - whole);
        let (integrals, values) = match interpolation {
            Interpolation::Cubic => (cubic_integrals(x), Cubic::new().weights_at(x).0),
            Interpolation::Linear => (linear_integrals(x), [R::ZERO, R::ONE - x, x, R::ZERO]),
        };
        Edge {
            first: whole as i32 - 1,
            integrals,
            values,
        }
    }
}

/// Returns the integrals of cubic B-splines at k − 1 … k + 2 up to k + x.
fn cubic_integrals<R: Real>(x: R) -> [R; TAPS] {
    let [half, two_thirds, third, eighth, tail] =
        [1.0 / 2.0, 2.0 / 3.0, 1.0 / 3.0, 1.0 / 8.0, 1.0 / 24.0].map(R::of);
    // from a spline's middle to x
    let from_middle = |x: R| x * (two_thirds - x * x * (third - x * eighth));
    let y = R::ONE - x;
    [
        R::ONE - y * y * y * y * tail,
        half + from_middle(x),
        half - from_middle(y),
        x * x * x * x * tail,
    ]
}

/// Returns the integrals of triangles at k − 1 … k + 2 up to k + x.
fn linear_integrals<R: Real>(x: R) -> [R; TAPS] {
    let half = R::of(0.5);
    let y = R::ONE - x;
    [R::ONE, R::ONE - y * y * half, x * x * half, R::ZERO]
}

impl<R: Real> IntegratedRows<'_, R> {
    /// Computes one member's means over the observed pixels; pixels that are not used are 0.
    fn integrate(self, parameters: &[Parameter], u: &[f64]) {
        let IntegratedRows {
            stage,
            input,
            index,
            fraction,
            edges,
            output,
        } = self;
        let (velocity, velocity_by_u) = stage.velocity.evaluate(parameters, u);
        let (shift, shift_by_v) = doppler_shift(velocity);
        let shifts: Vec<Shift<f64>> = stage
            .segments
            .iter()
            .map(|segment| split_shift(segment, shift, shift_by_v * velocity_by_u))
            .collect();
        let pixels = stage.pixels;
        let columns = stage.input_columns;
        let has_velocity = stage.output_rows() > stage.rows;
        for (j, &packed) in index.iter().enumerate().take(pixels) {
            let Some(&Shift {
                whole,
                fraction: shift_fraction,
                start,
                last,
                slope,
            }) = shifts.get((packed >> 24) as usize)
            else {
                (0..stage.output_rows()).for_each(|row| output[row * pixels + j] = R::ZERO);
                continue;
            };
            let centre =
                f64::from((packed & PIXEL_MASK) - whole) + (fraction[j].to_f64() - shift_fraction);
            let below = edges[j].to_f64();
            let above = edges[pixels + j].to_f64();
            let [low, high] = [centre - below, centre + above]
                .map(|index| Edge::<R>::at(index, stage.interpolation));
            let per_width = R::of(1.0 / (below + above));
            // 1. The mean of each row.
            for (row, values) in input.chunks_exact(columns).enumerate().take(stage.rows) {
                let coefficient = |k: i32| values[k.clamp(start, last) as usize];
                let between = (low.first..high.first).fold(R::ZERO, |sum, k| sum + coefficient(k));
                let weighted = |sum: R, t: usize| {
                    let high_tap = coefficient(high.first + t as i32);
                    let low_tap = coefficient(low.first + t as i32);
                    sum + (high.integrals[t] * high_tap - low.integrals[t] * low_tap)
                };
                let output_row = if row == 0 || !has_velocity {
                    row
                } else {
                    row + 1
                };
                output[output_row * pixels + j] = (0..TAPS).fold(between, weighted) * per_width;
            }
            // 2. The derivative of the first row by the velocity.
            if has_velocity {
                let value = |edge: &Edge<R>| {
                    let coefficient =
                        |t: usize| input[(edge.first + t as i32).clamp(start, last) as usize];
                    (0..TAPS).fold(R::ZERO, |sum, t| sum + edge.values[t] * coefficient(t))
                };
                output[pixels + j] = (value(&high) - value(&low)) * per_width * R::of(slope);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Differences of a tap's integrals are Simpson's sums of its values, and the integral over a whole tap is 1.
    #[test]
    fn integrals_are_those_of_the_values() {
        for interpolation in [Interpolation::Cubic, Interpolation::Linear] {
            let edge_at = |x: f64| Edge::<f64>::at(5.0 + x, interpolation);
            let [start, middle, end] = [0.25, 0.375, 0.5].map(edge_at);
            for t in 0..TAPS {
                let simpson =
                    (start.values[t] + 4.0 * middle.values[t] + end.values[t]) * 0.25 / 6.0;
                assert!(
                    (end.integrals[t] - start.integrals[t] - simpson).abs() < 1e-12,
                    "{interpolation:?}, tap {t}"
                );
            }
            // Integrals are continuous where an edge moves to the next template pixel.
            let before = edge_at(1.0 - 1e-12);
            let after = edge_at(1.0);
            assert_eq!((before.first, after.first), (4, 5));
            assert!((before.integrals[0] - 1.0).abs() < 1e-9);
            (1..TAPS).for_each(|t| {
                assert!(
                    (before.integrals[t] - after.integrals[t - 1]).abs() < 1e-9,
                    "tap {t}"
                )
            });
        }
    }
}
