//! Doppler shift and resampling of template rows onto a spectrum's pixels (see `docs/src/equations.md`): pixel j reads
//! fractional index q_j − atanh(v/c)/Δlnλ, whole and fractional parts kept apart. Rows out: value, ∂/∂u of the
//! velocity, tangents. Twin of `shaders/resample.wgsl`.

use pulp::NullaryFnOnce;

#[cfg(feature = "gpu")]
use super::shader::{Dispatch, Shader, ShaderContext};
#[cfg(feature = "gpu")]
use super::shader_rows;
use super::{Interpolation, Kernel, LIGHT, Memory, Segment, Velocity};
use crate::buffers::{BufferId, Cost, Declared, Parameter, Work};
#[cfg(feature = "gpu")]
use crate::error::Result;
use crate::math::Real;
use crate::math::lanes::pick;
use crate::math::taps::{TAP_CHUNK_PIXELS, TAPS, TapPlaces, TapWeights, apply};

/// Doppler shift and resampling. Output rows: the value, ∂/∂v if the velocity is a parameter, then the input's
/// tangents, derivatives by the solver's `u`. Pixel j reads the template at fractional index
/// `index[j] + fraction[j] − atanh(v/c)/Δlnλ`, clamped to its segment. `index` packs `segment << 24 | whole index`.
#[derive(Clone, Debug, PartialEq)]
pub struct Resample {
    pub input: BufferId,
    pub input_columns: usize,
    pub output: BufferId,
    /// Rows of the input: 1 + tangents.
    pub rows: usize,
    /// Stride of the output, a multiple of 16; the last ones may be padding of weight 0.
    pub pixels: usize,
    pub index: BufferId,
    pub fraction: BufferId,
    pub segments: Vec<Segment>,
    pub interpolation: Interpolation,
    pub velocity: Velocity,
    /// With a row for the velocity, if it is a parameter.
    pub derivatives: bool,
}

impl Resample {
    /// Returns the number of rows of the output: those of the input, and one for a derivative by velocity if it is
    /// fitted.
    pub fn output_rows(&self) -> usize {
        self.rows + usize::from(self.derivatives && matches!(self.velocity, Velocity::Parameter(_)))
    }
}

impl Kernel for Resample {
    const WORK: Work = Work::Observe;

    fn member_buffers(&self) -> Vec<BufferId> {
        vec![self.input, self.output]
    }

    /// Returns 2 · taps R N operations for R rows, with that of the velocity, of N pixels.
    fn cost(&self, _: Declared<'_>) -> Cost {
        let taps = if self.interpolation == Interpolation::Cubic {
            4
        } else {
            2
        };
        let output = self.output_rows() * self.pixels;
        Cost::new(
            2 * taps * output,
            self.rows * self.input_columns + output + 2 * self.pixels,
        )
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        memory.write(self.output, |memory, output| {
            let rows = ResampledRows {
                stage: self,
                parameters: memory.parameters(),
                u: memory.trial(),
                input: memory.floats(self.input),
                index: memory.indices(self.index),
                fraction: memory.floats(self.fraction),
                output,
            };
            rows.run_vectorised();
        });
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        let text = include_str!("../../shaders/resample.wgsl");
        let mut shader = context.start_shader("resample", text, Dispatch::pixels(self.pixels));
        shader.bind_state(false);
        shader_rows::declare_resampled_rows(&mut shader, context, self);
        shader.bind_block(context, "output", "f32", self.output, true);
        shader.constants.unsigned("OUTPUT_ROWS", self.output_rows());
        shader.constants.unsigned("PIXELS", self.pixels);
        Ok(shader)
    }
}

/// Mask that extracts the pixel from an index as the model packs it, without its segment.
pub(super) const PIXEL_MASK: i32 = 0xff_ffff;
/// Number of template pixels that no shift exceeds.
const LARGEST_SHIFT: f64 = (1 << 25) as f64;

/// One member's rows.
struct ResampledRows<'a, R> {
    pub stage: &'a Resample,
    pub parameters: &'a [Parameter],
    pub u: &'a [f64],
    /// (rows, input_columns)
    pub input: &'a [R],
    pub index: &'a [i32],
    pub fraction: &'a [R],
    /// (output_rows, pixels)
    pub output: &'a mut [R],
}

/// The Doppler shift of one segment in pixels, and the segment's ends, to which pixels are clamped.
#[derive(Clone, Copy)]
pub(super) struct Shift<R> {
    /// Whole pixels of the shift.
    pub whole: i32,
    /// The rest of the shift.
    pub fraction: R,
    /// First pixel of the segment.
    pub start: i32,
    /// Last pixel of the segment.
    pub last: i32,
    /// d(fractional index)/du of the velocity.
    pub slope: R,
}

/// The input pixels that a chunk of pixels reads (its taps), their weights (4, chunk), and the weights' derivatives by
/// the velocity.
struct PixelChunk<R> {
    places: TapPlaces,
    value: TapWeights<R>,
    slope: TapWeights<R>,
}

/// Returns atanh(v/c), the shift in ln λ at the velocity v in km/s, and its derivative by v.
pub(super) fn doppler_shift(v: f64) -> (f64, f64) {
    let beta = v / LIGHT;
    let square = beta * beta;
    (
        beta * (1.0 + square * (1.0 / 3.0 + square / 5.0)),
        1.0 / LIGHT / (1.0 - square),
    )
}

impl<R: Real> ResampledRows<'_, R> {
    /// Resamples one member's rows to the observed pixels, with the widest vectors that the machine has.
    pub fn run_vectorised(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> NullaryFnOnce for ResampledRows<'_, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let (velocity, velocity_by_u) = self.stage.velocity.evaluate(self.parameters, self.u);
        let (shift, shift_by_v) = doppler_shift(velocity);
        let shifts: Vec<Shift<R>> = self
            .stage
            .segments
            .iter()
            .map(|segment| split_shift(segment, shift, shift_by_v * velocity_by_u))
            .collect();
        let pixels = self.stage.pixels;
        let columns = self.stage.input_columns;
        let has_velocity = self.stage.output_rows() > self.stage.rows;
        let zeros = [[R::ZERO; TAP_CHUNK_PIXELS]; TAPS];
        let mut chunk = PixelChunk {
            places: TapPlaces::new(),
            value: zeros,
            slope: zeros,
        };
        for start in (0..pixels).step_by(TAP_CHUNK_PIXELS) {
            let count = TAP_CHUNK_PIXELS.min(pixels - start);
            let index = &self.index[start..start + count];
            let fraction = &self.fraction[start..start + count];
            // Nearly all chunks lie inside one segment, which takes fewer steps.
            let is_cubic = self.stage.interpolation == Interpolation::Cubic;
            if !(is_cubic && chunk.set_taps_inside_segment(index, fraction, &shifts)) {
                chunk.set_taps(index, fraction, &shifts, self.stage.interpolation);
            }
            chunk.places.settle(columns);
            for row in 0..self.stage.rows {
                let input = &self.input[row * columns..][..columns];
                // The derivative by the velocity is row 1 of the output.
                let output_row = if row == 0 || !has_velocity {
                    row
                } else {
                    row + 1
                };
                apply(
                    &chunk.places,
                    &chunk.value,
                    input,
                    &mut self.output[output_row * pixels + start..][..count],
                );
            }
            if has_velocity {
                let output = &mut self.output[pixels + start..][..count];
                apply(&chunk.places, &chunk.slope, &self.input[..columns], output);
            }
        }
    }
}

/// Splits a segment's Doppler shift into whole and fractional pixels, where `shift_by_u` is d(atanh(v/c))/du.
pub(super) fn split_shift<R: Real>(segment: &Segment, shift: f64, shift_by_u: f64) -> Shift<R> {
    let shift_in_pixels = shift * segment.inverse_step;
    let whole = shift_in_pixels.floor();
    Shift {
        // Pixels that are shifted beyond the template end at its edge in any case.
        whole: whole.clamp(-LARGEST_SHIFT, LARGEST_SHIFT) as i32,
        fraction: R::of(shift_in_pixels - whole),
        start: segment.start as i32,
        last: segment.end as i32 - 1,
        slope: R::of(-segment.inverse_step * shift_by_u),
    }
}

impl<R: Real> PixelChunk<R> {
    /// Sets the taps of cubic splines for a whole chunk inside one segment; returns false, and sets none, for other
    /// chunks. The same bits as [`set_taps`](Self::set_taps).
    #[inline(always)]
    fn set_taps_inside_segment(
        &mut self,
        index: &[i32],
        fraction: &[R],
        shifts: &[Shift<R>],
    ) -> bool {
        let (Ok(index), Ok(position)) = (
            <&[i32; TAP_CHUNK_PIXELS]>::try_from(index),
            <&[R; TAP_CHUNK_PIXELS]>::try_from(fraction),
        ) else {
            return false;
        };
        let (lowest, highest) = index
            .iter()
            .fold((i32::MAX, i32::MIN), |(lowest, highest), i| {
                (lowest.min(*i), highest.max(*i))
            });
        if lowest < 0 || lowest >> 24 != highest >> 24 {
            return false;
        }
        let Shift {
            whole,
            fraction,
            start,
            last,
            slope: index_by_u,
        } = shifts[(lowest >> 24) as usize];
        if (lowest & PIXEL_MASK) - whole - 2 < start || (highest & PIXEL_MASK) - whole + 2 > last {
            return false;
        }
        let cubic = Cubic::new();
        for i in 0..TAP_CHUNK_PIXELS {
            let x = position[i] - fraction;
            let borrows = x < R::ZERO;
            let x = pick(borrows, x + R::ONE, x);
            self.places.base[i] = (index[i] & PIXEL_MASK) - whole - i32::from(borrows) - 1;
            let (value, slope) = cubic.weights_at(x);
            for t in 0..TAPS {
                self.value[t][i] = value[t];
                self.slope[t][i] = slope[t] * index_by_u;
            }
        }
        true
    }

    /// Sets the input pixels that each pixel of at most a chunk reads (its taps), and their weights. `index` is packed
    /// as in the model, segment and pixel, or −1.
    #[inline(always)]
    fn set_taps(
        &mut self,
        index: &[i32],
        fraction: &[R],
        shifts: &[Shift<R>],
        interpolation: Interpolation,
    ) {
        let mut packed = [-1i32; TAP_CHUNK_PIXELS];
        packed[..index.len()].copy_from_slice(index);
        let mut position = [R::ZERO; TAP_CHUNK_PIXELS];
        let mut used_pixels = [R::ZERO; TAP_CHUNK_PIXELS];
        let mut slope = [R::ZERO; TAP_CHUNK_PIXELS];
        position[..index.len()].copy_from_slice(fraction);
        // 1. The first tap that is read, and that which would be read if the segment had no edges.
        let mut base = [0i32; TAP_CHUNK_PIXELS];
        let mut unclamped_base = [0i32; TAP_CHUNK_PIXELS];
        // Segments are in ascending order. Nearly always there is one, and none where all pixels are masked.
        let mut used = packed.iter().filter(|p| **p >= 0);
        let lowest = used.next().map_or(0, |p| p >> 24);
        let highest = used.next_back().map_or(lowest, |p| p >> 24);
        for (segment, shift) in (0..=highest).zip(shifts).skip(lowest as usize) {
            // Copied, and every array read before it is written: otherwise the compiler does not vectorise this loop.
            let Shift {
                whole,
                fraction,
                start,
                last,
                slope: index_by_u,
            } = *shift;
            let highest_base = (last - 3).max(start);
            for i in 0..TAP_CHUNK_PIXELS {
                let in_segment = packed[i] >> 24 == segment;
                let old_position = position[i];
                let old_slope = slope[i];
                let old_used = used_pixels[i];
                let old_unclamped_base = unclamped_base[i];
                let old_base = base[i];
                let k = (packed[i] & PIXEL_MASK) - whole;
                let x = old_position - fraction;
                let borrows = x < R::ZERO;
                let k = k - i32::from(borrows);
                let x = pick(borrows, x + R::ONE, x);
                let is_clamped = (k < start) | (k >= last);
                let k = k.max(start).min(last) - 1;
                position[i] = pick(in_segment, pick(is_clamped, R::ZERO, x), old_position);
                slope[i] = pick(in_segment, pick(is_clamped, R::ZERO, index_by_u), old_slope);
                used_pixels[i] = pick(in_segment, R::ONE, old_used);
                unclamped_base[i] = pick(in_segment, k, old_unclamped_base);
                base[i] = pick(in_segment, k.max(start).min(highest_base), old_base);
            }
        }
        // 2. The weights of the taps; 0 for masked pixels.
        self.places.base = base;
        self.set_weights(&position, interpolation);
        for (value, by_u) in self.value.iter_mut().zip(&mut self.slope) {
            (0..TAP_CHUNK_PIXELS).for_each(|i| value[i] *= used_pixels[i]);
            (0..TAP_CHUNK_PIXELS).for_each(|i| by_u[i] *= slope[i]);
        }
        self.fold_edges(&packed, &unclamped_base, shifts);
    }

    /// Folds taps beyond a segment's edges onto the edge; puts masked pixels beside their neighbours, so that they
    /// share a window.
    #[inline(always)]
    fn fold_edges(
        &mut self,
        packed: &[i32; TAP_CHUNK_PIXELS],
        unclamped_base: &[i32; TAP_CHUNK_PIXELS],
        shifts: &[Shift<R>],
    ) {
        let base = &mut self.places.base;
        let mut has_exceptions = false;
        (0..TAP_CHUNK_PIXELS)
            .for_each(|i| has_exceptions |= (packed[i] < 0) | (base[i] != unclamped_base[i]));
        if !has_exceptions {
            return;
        }
        let mut neighbour = packed.iter().position(|p| *p >= 0).map_or(0, |i| base[i]);
        for i in 0..TAP_CHUNK_PIXELS {
            if packed[i] < 0 {
                base[i] = neighbour;
            } else if base[i] != unclamped_base[i] {
                let shift = &shifts[(packed[i] >> 24) as usize];
                fold_weights(&mut self.value, i, unclamped_base[i], base[i], shift);
                fold_weights(&mut self.slope, i, unclamped_base[i], base[i], shift);
            }
            neighbour = base[i];
        }
    }
}

/// Moves the weights of pixel `i` from taps at `unclamped_base`… to taps at `base`…, none beyond the segment's edges.
fn fold_weights<R: Real>(
    weights: &mut TapWeights<R>,
    i: usize,
    unclamped_base: i32,
    base: i32,
    shift: &Shift<R>,
) {
    let unclamped: [R; TAPS] = std::array::from_fn(|t| weights[t][i]);
    (0..TAPS).for_each(|t| weights[t][i] = R::ZERO);
    for (t, weight) in (0..).zip(unclamped) {
        let clamped = ((unclamped_base + t).clamp(shift.start, shift.last) - base) as usize;
        weights[clamped][i] += weight;
    }
}

impl<R: Real> PixelChunk<R> {
    /// Sets the weights of taps k − 1 … k + 2 at the fractions x in `position`, and their derivatives by x.
    #[inline(always)]
    fn set_weights(&mut self, position: &[R; TAP_CHUNK_PIXELS], interpolation: Interpolation) {
        let cubic = Cubic::new();
        let one = R::ONE;
        let zero = R::ZERO;
        let linear = |x: R| ([zero, one - x, x, zero], [zero, -one, one, zero]);
        for (i, &x) in position.iter().enumerate() {
            let (value, slope) = if interpolation == Interpolation::Linear {
                linear(x)
            } else {
                cubic.weights_at(x)
            };
            for t in 0..TAPS {
                (self.value[t][i], self.slope[t][i]) = (value[t], slope[t]);
            }
        }
    }
}

/// Coefficients of a cubic B-spline's pieces.
pub(super) struct Cubic<R> {
    sixth: R,
    two: R,
    three: R,
    four: R,
    six: R,
    nine: R,
    twelve: R,
}

impl<R: Real> Cubic<R> {
    /// Returns the constants of cubic splines in this precision.
    #[inline(always)]
    pub fn new() -> Cubic<R> {
        let [sixth, two, three, four, six, nine, twelve] =
            [1.0 / 6.0, 2.0, 3.0, 4.0, 6.0, 9.0, 12.0].map(R::of);
        Cubic {
            sixth,
            two,
            three,
            four,
            six,
            nine,
            twelve,
        }
    }

    /// Returns the weights of four taps at fraction x, and their derivatives.
    #[inline(always)]
    pub fn weights_at(&self, x: R) -> ([R; TAPS], [R; TAPS]) {
        let Cubic {
            sixth,
            two,
            three,
            four,
            six,
            nine,
            twelve,
        } = *self;
        let one = R::ONE;
        let y = one - x;
        let value = [
            y * y * y * sixth,
            ((three * x - six) * x * x + four) * sixth,
            (((three - three * x) * x + three) * x + one) * sixth,
            x * x * x * sixth,
        ];
        let slope = [
            -(y * y) / two,
            (nine * x - twelve) * x * sixth,
            ((six - nine * x) * x + three) * sixth,
            x * x / two,
        ];
        (value, slope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_set_taps_have_the_same_bits_inside_a_segment() {
        let fraction: Vec<f32> = (0..TAP_CHUNK_PIXELS)
            .map(|i| (i * 37 % 64) as f32 / 64.0)
            .collect();
        let shift = |whole, start, last| Shift {
            whole,
            fraction: 0.3f32,
            start,
            last,
            slope: -7.5,
        };
        let shifts = [shift(-3, 0, 200), shift(5, 201, 400)];
        let mut chunks_inside = 0;
        for (segment, first) in (0..140).map(|k| (0, k)).chain((200..345).map(|k| (1, k))) {
            let index = packed_indices(segment, first);
            let mut inside = filled_chunk(9.0);
            let mut general = filled_chunk(9.0);
            general.set_taps(&index, &fraction, &shifts, Interpolation::Cubic);
            if inside.set_taps_inside_segment(&index, &fraction, &shifts) {
                chunks_inside += 1;
                let bits = |weights: TapWeights<f32>| weights.map(|tap| tap.map(f32::to_bits));
                assert_eq!(inside.places.base, general.places.base, "{segment} {first}");
                assert_eq!(bits(inside.value), bits(general.value), "{segment} {first}");
                assert_eq!(bits(inside.slope), bits(general.slope), "{segment} {first}");
            }
        }
        // Those that read no pixel beyond their segment's edges: 134 − 0 and 343 − 208 places.
        assert!(
            chunks_inside > 250 && chunks_inside < 285,
            "{chunks_inside}"
        );
        let mut masked = packed_indices(0, 50);
        masked[9] = -1;
        let mut chunk = filled_chunk(0.0);
        assert!(!chunk.set_taps_inside_segment(&masked, &fraction, &shifts));
        let incomplete = &packed_indices(0, 50)[1..];
        assert!(!chunk.set_taps_inside_segment(incomplete, &fraction[1..], &shifts));
    }

    /// Returns the packed indices of a chunk of pixels of a segment, from `first` on.
    fn packed_indices(segment: i32, first: i32) -> Vec<i32> {
        (0..TAP_CHUNK_PIXELS as i32)
            .map(|i| (segment << 24) | (first + i))
            .collect()
    }

    /// Makes a chunk whose weights all have this value.
    fn filled_chunk(value: f32) -> PixelChunk<f32> {
        PixelChunk {
            places: TapPlaces::new(),
            value: [[value; TAP_CHUNK_PIXELS]; TAPS],
            slope: [[value; TAP_CHUNK_PIXELS]; TAPS],
        }
    }
}
