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
use crate::math::taps::{CHUNK, Places, TAPS, Weights, apply};

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
            let rows = MemberRows {
                stage: self,
                parameters: memory.parameters(),
                u: memory.trial(),
                input: memory.floats(self.input),
                index: memory.indices(self.index),
                fraction: memory.floats(self.fraction),
                output,
            };
            rows.run();
        });
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        let text = include_str!("../../shaders/resample.wgsl");
        let mut shader = context.start("resample", text, Dispatch::pixels(self.pixels));
        shader.state(false);
        shader_rows::declare_resampled_rows(&mut shader, context, self);
        shader.block(context, "output", "f32", self.output, true);
        shader.constants.unsigned("OUTPUT_ROWS", self.output_rows());
        shader.constants.unsigned("PIXELS", self.pixels);
        Ok(shader)
    }
}

/// Mask that extracts the pixel from an index as the model packs it, without its segment.
pub(super) const PIXEL: i32 = 0xff_ffff;
/// Template pixels that no shift exceeds.
const FARTHEST: f64 = (1 << 25) as f64;

/// One member's rows.
struct MemberRows<'a, R> {
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

/// The shift of one segment in pixels, split; what its pixels are held to.
#[derive(Clone, Copy)]
pub(super) struct Shift<R> {
    pub whole: i32,
    pub fraction: R,
    pub start: i32,
    /// Last pixel.
    pub last: i32,
    /// d(fractional index)/du of the velocity.
    pub slope: R,
}

/// A chunk's places, its taps' weights (4, chunk) and their derivatives by the velocity.
struct Chunk<R> {
    places: Places,
    value: Weights<R>,
    slope: Weights<R>,
}

/// Returns atanh(v/c), the shift in ln λ at the velocity v in km/s, and its derivative by v.
pub(super) fn doppler(v: f64) -> (f64, f64) {
    let beta = v / LIGHT;
    let square = beta * beta;
    (
        beta * (1.0 + square * (1.0 / 3.0 + square / 5.0)),
        1.0 / LIGHT / (1.0 - square),
    )
}

impl<R: Real> MemberRows<'_, R> {
    /// Resamples one member's rows to the observed pixels, with the widest vectors that the machine has.
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> NullaryFnOnce for MemberRows<'_, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let (v, dv) = self.stage.velocity.at(self.parameters, self.u);
        let (shift, slope) = doppler(v);
        let split = |segment: &Segment| split(segment, shift, slope * dv);
        let shifts: Vec<Shift<R>> = self.stage.segments.iter().map(split).collect();
        let (pixels, columns) = (self.stage.pixels, self.stage.input_columns);
        let has_velocity = self.stage.output_rows() > self.stage.rows;
        let zeros = [[R::ZERO; CHUNK]; TAPS];
        let mut chunk = Chunk {
            places: Places::new(),
            value: zeros,
            slope: zeros,
        };
        for start in (0..pixels).step_by(CHUNK) {
            let count = CHUNK.min(pixels - start);
            let (index, fraction) = (
                &self.index[start..start + count],
                &self.fraction[start..start + count],
            );
            let cubic = self.stage.interpolation == Interpolation::Cubic;
            if !(cubic && chunk.fill_inside(index, fraction, &shifts)) {
                chunk.fill(index, fraction, &shifts, self.stage.interpolation);
            }
            chunk.places.settle(columns);
            for row in 0..self.stage.rows {
                let input = &self.input[row * columns..][..columns];
                let target = if row == 0 || !has_velocity {
                    row
                } else {
                    row + 1
                };
                apply(
                    &chunk.places,
                    &chunk.value,
                    input,
                    &mut self.output[target * pixels + start..][..count],
                );
            }
            if has_velocity {
                let output = &mut self.output[pixels + start..][..count];
                apply(&chunk.places, &chunk.slope, &self.input[..columns], output);
            }
        }
    }
}

/// Splits a segment's Doppler shift into whole and fractional pixels, where `by_u` is d(atanh(v/c))/du.
pub(super) fn split<R: Real>(segment: &Segment, shift: f64, by_u: f64) -> Shift<R> {
    let s = shift * segment.inverse_step;
    let whole = s.floor();
    Shift {
        // pixels that are shifted further than any template reaches end at its edge all the same
        whole: whole.clamp(-FARTHEST, FARTHEST) as i32,
        fraction: R::of(s - whole),
        start: segment.start as i32,
        last: segment.end as i32 - 1,
        slope: R::of(-segment.inverse_step * by_u),
    }
}

impl<R: Real> Chunk<R> {
    /// Fills the taps of a chunk of cubic splines that is whole and inside one segment; else returns `false`, undone.
    /// The same bits as [`fill`](Self::fill).
    #[inline(always)]
    fn fill_inside(&mut self, index: &[i32], fraction: &[R], shifts: &[Shift<R>]) -> bool {
        let (Ok(index), Ok(position)) = (
            <&[i32; CHUNK]>::try_from(index),
            <&[R; CHUNK]>::try_from(fraction),
        ) else {
            return false;
        };
        let (lowest, highest) = index
            .iter()
            .fold((i32::MAX, i32::MIN), |(a, b), i| (a.min(*i), b.max(*i)));
        if lowest < 0 || lowest >> 24 != highest >> 24 {
            return false;
        }
        let Shift {
            whole,
            fraction,
            start,
            last,
            slope: by_u,
        } = shifts[(lowest >> 24) as usize];
        if (lowest & PIXEL) - whole - 2 < start || (highest & PIXEL) - whole + 2 > last {
            return false;
        }
        let weights = Cubic::new();
        for i in 0..CHUNK {
            let x = position[i] - fraction;
            let borrows = x < R::ZERO;
            let x = pick(borrows, x + R::ONE, x);
            self.places.base[i] = (index[i] & PIXEL) - whole - i32::from(borrows) - 1;
            let (value, slope) = weights.at(x);
            for t in 0..TAPS {
                self.value[t][i] = value[t];
                self.slope[t][i] = slope[t] * by_u;
            }
        }
        true
    }

    /// Computes which input pixels each pixel of at most a chunk reads (its taps), and with which weights. `index` as
    /// the model packs it, segment and pixel, or −1.
    #[inline(always)]
    fn fill(
        &mut self,
        index: &[i32],
        fraction: &[R],
        shifts: &[Shift<R>],
        interpolation: Interpolation,
    ) {
        let mut packed = [-1i32; CHUNK];
        packed[..index.len()].copy_from_slice(index);
        let (mut position, mut on, mut slope) =
            ([R::ZERO; CHUNK], [R::ZERO; CHUNK], [R::ZERO; CHUNK]);
        position[..index.len()].copy_from_slice(fraction);
        // the first tap that is read, and that were it not for edges
        let (mut base, mut before) = ([0i32; CHUNK], [0i32; CHUNK]);
        // segments follow one another
        let mut counted = packed.iter().filter(|p| **p >= 0);
        let lowest = counted.next().map_or(0, |p| p >> 24);
        let highest = counted.next_back().map_or(lowest, |p| p >> 24);
        // nearly always one segment, and nothing where all is masked
        for (segment, shift) in (0..=highest).zip(shifts).skip(lowest as usize) {
            // copied, and every array read before it is written: else the compiler makes no vectors of this
            let Shift {
                whole,
                fraction,
                start,
                last,
                slope: by_u,
            } = *shift;
            let highest_base = (last - 3).max(start);
            for i in 0..CHUNK {
                let own = packed[i] >> 24 == segment;
                let old = (position[i], slope[i], on[i], before[i], base[i]);
                let (k, x) = ((packed[i] & PIXEL) - whole, old.0 - fraction);
                let borrows = x < R::ZERO;
                let (k, x) = (k - i32::from(borrows), pick(borrows, x + R::ONE, x));
                let held = (k < start) | (k >= last);
                let k = k.max(start).min(last) - 1;
                position[i] = pick(own, pick(held, R::ZERO, x), old.0);
                slope[i] = pick(own, pick(held, R::ZERO, by_u), old.1);
                on[i] = pick(own, R::ONE, old.2);
                before[i] = pick(own, k, old.3);
                base[i] = pick(own, k.max(start).min(highest_base), old.4);
            }
        }
        self.places.base = base;
        self.weigh(&position, interpolation);
        for (value, by_u) in self.value.iter_mut().zip(&mut self.slope) {
            (0..CHUNK).for_each(|i| value[i] *= on[i]);
            (0..CHUNK).for_each(|i| by_u[i] *= slope[i]);
        }
        self.mend(&packed, &before, shifts);
    }

    /// Folds taps beyond a segment's edges onto the edge; puts masked pixels beside their neighbours, so that they
    /// share a window.
    #[inline(always)]
    fn mend(&mut self, packed: &[i32; CHUNK], before: &[i32; CHUNK], shifts: &[Shift<R>]) {
        let base = &mut self.places.base;
        let mut odd = false;
        (0..CHUNK).for_each(|i| odd |= (packed[i] < 0) | (base[i] != before[i]));
        if !odd {
            return;
        }
        let mut neighbour = packed.iter().position(|p| *p >= 0).map_or(0, |i| base[i]);
        for i in 0..CHUNK {
            if packed[i] < 0 {
                base[i] = neighbour;
            } else if base[i] != before[i] {
                let shift = &shifts[(packed[i] >> 24) as usize];
                fold(&mut self.value, i, before[i], base[i], shift);
                fold(&mut self.slope, i, before[i], base[i], shift);
            }
            neighbour = base[i];
        }
    }
}

/// Moves the weights of pixel `i` from taps at `before`… to taps at `base`…, none beyond the segment's edges.
fn fold<R: Real>(weight: &mut Weights<R>, i: usize, before: i32, base: i32, shift: &Shift<R>) {
    let old: [R; TAPS] = std::array::from_fn(|t| weight[t][i]);
    (0..TAPS).for_each(|t| weight[t][i] = R::ZERO);
    for (t, w) in (0..).zip(old) {
        let at = ((before + t).clamp(shift.start, shift.last) - base) as usize;
        weight[at][i] += w;
    }
}

impl<R: Real> Chunk<R> {
    /// Returns the weights of taps k − 1 … k + 2 at fraction x, and their derivatives by x.
    #[inline(always)]
    fn weigh(&mut self, position: &[R; CHUNK], interpolation: Interpolation) {
        let (cubic, one, zero) = (Cubic::new(), R::ONE, R::ZERO);
        let linear = |x: R| ([zero, one - x, x, zero], [zero, -one, one, zero]);
        for (i, &x) in position.iter().enumerate() {
            let (value, slope) = if interpolation == Interpolation::Linear {
                linear(x)
            } else {
                cubic.at(x)
            };
            for t in 0..TAPS {
                (self.value[t][i], self.slope[t][i]) = (value[t], slope[t]);
            }
        }
    }
}

/// The numbers of a cubic B-spline's pieces.
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
    pub fn at(&self, x: R) -> ([R; TAPS], [R; TAPS]) {
        let Cubic {
            sixth,
            two,
            three,
            four,
            six,
            nine,
            twelve,
        } = *self;
        let (one, y) = (R::ONE, R::ONE - x);
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
    fn chunks_inside_a_segment_have_the_bits_of_others() {
        let of = |segment: i32, first: i32| -> Vec<i32> {
            (0..CHUNK as i32)
                .map(|i| (segment << 24) | (first + i))
                .collect()
        };
        let fraction: Vec<f32> = (0..CHUNK).map(|i| (i * 37 % 64) as f32 / 64.0).collect();
        let shift = |whole, start, last| Shift {
            whole,
            fraction: 0.3f32,
            start,
            last,
            slope: -7.5,
        };
        let shifts = [shift(-3, 0, 200), shift(5, 201, 400)];
        let mut inside = 0;
        for first in (0..140).map(|k| (0, k)).chain((200..345).map(|k| (1, k))) {
            let index = of(first.0, first.1);
            let empty = || Chunk {
                places: Places::new(),
                value: [[9.0; CHUNK]; TAPS],
                slope: [[9.0; CHUNK]; TAPS],
            };
            let (mut quick, mut whole) = (empty(), empty());
            whole.fill(&index, &fraction, &shifts, Interpolation::Cubic);
            if quick.fill_inside(&index, &fraction, &shifts) {
                inside += 1;
                let bits = |weights: Weights<f32>| weights.map(|tap| tap.map(f32::to_bits));
                assert_eq!(quick.places.base, whole.places.base, "{first:?}");
                assert_eq!(bits(quick.value), bits(whole.value), "{first:?}");
                assert_eq!(bits(quick.slope), bits(whole.slope), "{first:?}");
            }
        }
        // each that reads no pixel beyond its segment's edges: 134 − 0 and 343 − 208 places
        assert!(inside > 250 && inside < 285, "{inside}");
        let mut masked = of(0, 50);
        masked[9] = -1;
        let mut chunk = Chunk {
            places: Places::new(),
            value: [[0.0; CHUNK]; TAPS],
            slope: [[0.0; CHUNK]; TAPS],
        };
        assert!(!chunk.fill_inside(&masked, &fraction, &shifts));
        assert!(!chunk.fill_inside(&of(0, 50)[1..], &fraction[1..], &shifts));
    }
}
