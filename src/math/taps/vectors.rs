//! Interpolation of as many neighbouring pixels at once as a vector has elements. It takes a quarter of the time of
//! single loads and horizontal sums. The products and their order, and thus the bits, are those of the scalar code.

use std::arch::x86_64::{__m256, __m256i, __m512, __m512i};

use pulp::NullaryFnOnce;
use pulp::x86::{V3, V4};

use super::{ReadWindow, TAP_CHUNK_PIXELS, TAPS, TapPlaces, TapWeights, apply_without_vectors};
use crate::math::Real;

/// Computes a chunk's pixels with vector instructions; returns `false` and does nothing if the numbers are not f32 or
/// the machine has no such instructions.
#[inline(always)]
pub fn apply<R: Real>(
    places: &TapPlaces,
    weight: &TapWeights<R>,
    row: &[R],
    output: &mut [R],
) -> bool {
    let (Some(weight), Some(row), Some(output)) = (
        R::single(weight.as_flattened()),
        R::single(row),
        R::single_mut(output),
    ) else {
        return false;
    };
    let Ok(weight) = weight.as_chunks().0.try_into() else {
        return false;
    };
    match (V4::try_new(), V3::try_new()) {
        (Some(simd), _) => simd.vectorize(ChunkSum {
            simd,
            places,
            weight,
            row,
            output,
        }),
        (_, Some(simd)) => simd.vectorize(ChunkSum {
            simd,
            places,
            weight,
            row,
            output,
        }),
        _ => return false,
    }
    true
}

/// Four-tap sums of a chunk.
struct ChunkSum<'a, S> {
    simd: S,
    places: &'a TapPlaces,
    weight: &'a TapWeights<f32>,
    row: &'a [f32],
    output: &'a mut [f32],
}

impl NullaryFnOnce for ChunkSum<'_, V4> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        sum_chunk::<_, 16>(self);
    }
}

impl NullaryFnOnce for ChunkSum<'_, V3> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        sum_chunk::<_, 8>(self);
    }
}

/// Computes a chunk's pixels from their taps, LANES at a time, the fastest way that each group's window allows.
#[inline(always)]
fn sum_chunk<S: SumTaps<LANES>, const LANES: usize>(chunk: ChunkSum<'_, S>) {
    let ChunkSum {
        simd,
        places,
        weight,
        row,
        output,
    } = chunk;
    let (whole_blocks, remainder) = output.as_chunks_mut::<LANES>();
    let first_of_remainder = whole_blocks.len() * LANES;
    let base = places.base.as_chunks::<LANES>().0;
    let weights = weight
        .each_ref()
        .map(|weight| weight.as_chunks::<LANES>().0);
    // The compiler knows the length of the arrays, so that no bounds are checked.
    for (block, out) in (0..TAP_CHUNK_PIXELS / LANES).zip(whole_blocks) {
        let base = &base[block];
        let weight = weights.map(|weight| &weight[block]);
        *out = match places.windows[block] {
            ReadWindow::Near { at } => simd.sum_near(
                offsets_from_pixels(base, at as i32),
                weight,
                &row[at..at + LANES + TAPS],
            ),
            ReadWindow::Wide { at } => simd.sum_wide(
                offsets_from_element(base, at as i32),
                weight,
                &row[at..at + 2 * LANES],
            ),
            ReadWindow::Apart => simd.sum_apart(base, weight, row),
        };
    }
    apply_without_vectors(&places.base, weight, first_of_remainder, row, remainder);
}

/// Returns the distances of the pixels' first elements from element `at`.
#[inline(always)]
fn offsets_from_element<const LANES: usize>(base: &[i32; LANES], at: i32) -> [i32; LANES] {
    let mut offsets = [0; LANES];
    offsets
        .iter_mut()
        .zip(base)
        .for_each(|(offset, b)| *offset = b - at);
    offsets
}

/// Returns the distance of each pixel i's first element from element `at + i`.
#[inline(always)]
fn offsets_from_pixels<const LANES: usize>(base: &[i32; LANES], at: i32) -> [i32; LANES] {
    let mut offsets = offsets_from_element(base, at);
    offsets
        .iter_mut()
        .zip(0..)
        .for_each(|(offset, i)| *offset -= i);
    offsets
}

/// TapWeights of LANES pixels for each tap.
type TapWeightLanes<'a, const LANES: usize> = [&'a [f32; LANES]; TAPS];

/// Four-tap sums of LANES pixels, Σ weight · tap in the order of the taps.
trait SumTaps<const LANES: usize>: Copy {
    /// Sums for pixels i that begin at element i of `window`, or at the next one where their offset is 1.
    fn sum_near(
        self,
        offset: [i32; LANES],
        weight: TapWeightLanes<LANES>,
        window: &[f32],
    ) -> [f32; LANES];

    /// Sums for pixels that begin at these elements of `window`, which is two vectors long.
    fn sum_wide(
        self,
        offset: [i32; LANES],
        weight: TapWeightLanes<LANES>,
        window: &[f32],
    ) -> [f32; LANES];

    /// Sums for pixels that begin anywhere in the row.
    fn sum_apart(
        self,
        base: &[i32; LANES],
        weight: TapWeightLanes<LANES>,
        row: &[f32],
    ) -> [f32; LANES];
}

/// Copies the first LANES elements of a slice.
#[inline(always)]
fn copy_lanes<const LANES: usize>(from: &[f32]) -> [f32; LANES] {
    let mut lanes = [0f32; LANES];
    lanes.copy_from_slice(&from[..LANES]);
    lanes
}

/// Returns Σ weight · tap of 16 pixels, in the order of the taps.
#[inline(always)]
fn weighted_sum_of_16(simd: V4, weight: TapWeightLanes<16>, taps: [__m512; TAPS]) -> [f32; 16] {
    let mut sum = simd.avx512f._mm512_mul_ps(pulp::cast(*weight[0]), taps[0]);
    for (weight, tap) in weight.into_iter().zip(taps).skip(1) {
        sum = simd.avx512f._mm512_fmadd_ps(pulp::cast(*weight), tap, sum);
    }
    pulp::cast(sum)
}

/// Returns Σ weight · tap of 8 pixels, in the order of the taps.
#[inline(always)]
fn weighted_sum_of_8(simd: V3, weight: TapWeightLanes<8>, taps: [__m256; TAPS]) -> [f32; 8] {
    let mut sum = simd.avx._mm256_mul_ps(pulp::cast(*weight[0]), taps[0]);
    for (weight, tap) in weight.into_iter().zip(taps).skip(1) {
        sum = simd.fma._mm256_fmadd_ps(pulp::cast(*weight), tap, sum);
    }
    pulp::cast(sum)
}

impl SumTaps<16> for V4 {
    #[inline(always)]
    fn sum_near(self, offset: [i32; 16], weight: TapWeightLanes<16>, window: &[f32]) -> [f32; 16] {
        let load_vector = |from: &[f32]| -> __m512 { pulp::cast(copy_lanes::<16>(from)) };
        let offset: __m512i = pulp::cast(offset);
        let reads_next_element = self.avx512f._mm512_test_epi32_mask(offset, offset);
        let mut current = load_vector(window);
        let mut taps = [self.avx512f._mm512_setzero_ps(); TAPS];
        for (t, tap) in taps.iter_mut().enumerate() {
            let next_elements = load_vector(&window[t + 1..]);
            *tap = self
                .avx512f
                ._mm512_mask_blend_ps(reads_next_element, current, next_elements);
            current = next_elements;
        }
        weighted_sum_of_16(self, weight, taps)
    }

    #[inline(always)]
    fn sum_wide(self, offset: [i32; 16], weight: TapWeightLanes<16>, window: &[f32]) -> [f32; 16] {
        let load_vector = |from: &[f32]| -> __m512 { pulp::cast(copy_lanes::<16>(from)) };
        let low = load_vector(window);
        let high = load_vector(&window[16..]);
        let mut index: __m512i = pulp::cast(offset);
        let one = self.avx512f._mm512_set1_epi32(1);
        let mut taps = [self.avx512f._mm512_setzero_ps(); TAPS];
        for tap in &mut taps {
            *tap = self.avx512f._mm512_permutex2var_ps(low, index, high);
            index = self.avx512f._mm512_add_epi32(index, one);
        }
        weighted_sum_of_16(self, weight, taps)
    }

    #[inline(always)]
    fn sum_apart(self, base: &[i32; 16], weight: TapWeightLanes<16>, row: &[f32]) -> [f32; 16] {
        let base = base.as_chunks::<8>().0;
        let [low_weight, high_weight] =
            [0, 1].map(|k| weight.map(|weight| &weight.as_chunks::<8>().0[k]));
        // There are no closures around intrinsics, which would become calls.
        let low = SumTaps::<8>::sum_apart(*self, &base[0], low_weight, row);
        pulp::cast([
            low,
            SumTaps::<8>::sum_apart(*self, &base[1], high_weight, row),
        ])
    }
}

impl SumTaps<8> for V3 {
    #[inline(always)]
    fn sum_near(self, offset: [i32; 8], weight: TapWeightLanes<8>, window: &[f32]) -> [f32; 8] {
        let load_vector = |from: &[f32]| -> __m256 { pulp::cast(copy_lanes::<8>(from)) };
        // The blend below selects by the sign bit.
        let reads_next_element: __m256 =
            pulp::cast(self.avx2._mm256_slli_epi32::<31>(pulp::cast(offset)));
        let mut current = load_vector(window);
        let mut taps = [self.avx._mm256_setzero_ps(); TAPS];
        for (t, tap) in taps.iter_mut().enumerate() {
            let next_elements = load_vector(&window[t + 1..]);
            *tap = self
                .avx
                ._mm256_blendv_ps(current, next_elements, reads_next_element);
            current = next_elements;
        }
        weighted_sum_of_8(self, weight, taps)
    }

    #[inline(always)]
    fn sum_wide(self, offset: [i32; 8], weight: TapWeightLanes<8>, window: &[f32]) -> [f32; 8] {
        let load_vector = |from: &[f32]| -> __m256 { pulp::cast(copy_lanes::<8>(from)) };
        let low = load_vector(window);
        let high = load_vector(&window[8..]);
        let mut index: __m256i = pulp::cast(offset);
        let one = self.avx._mm256_set1_epi32(1);
        let mut taps = [self.avx._mm256_setzero_ps(); TAPS];
        for tap in &mut taps {
            let from_low = self.avx2._mm256_permutevar8x32_ps(low, index);
            let from_high = self.avx2._mm256_permutevar8x32_ps(high, index);
            // The fourth bit of the index says which half has the element.
            let is_in_high: __m256 = pulp::cast(self.avx2._mm256_slli_epi32::<28>(index));
            *tap = self.avx._mm256_blendv_ps(from_low, from_high, is_in_high);
            index = self.avx2._mm256_add_epi32(index, one);
        }
        weighted_sum_of_8(self, weight, taps)
    }

    #[inline(always)]
    fn sum_apart(self, base: &[i32; 8], weight: TapWeightLanes<8>, row: &[f32]) -> [f32; 8] {
        // 1. Load the four elements of each pixel, for pixels i and i + 4 into one vector.
        let load_taps = |i: usize| copy_lanes::<TAPS>(&row[base[i] as usize..]);
        let load_pair = |i: usize| -> __m256 { pulp::cast([load_taps(i), load_taps(i + 4)]) };
        let [a, b, c, d] = std::array::from_fn(load_pair);
        // 2. Transpose them to one vector per tap.
        let low_ab = self.avx._mm256_unpacklo_ps(a, b);
        let high_ab = self.avx._mm256_unpackhi_ps(a, b);
        let low_cd = self.avx._mm256_unpacklo_ps(c, d);
        let high_cd = self.avx._mm256_unpackhi_ps(c, d);
        let taps = [
            self.avx._mm256_shuffle_ps::<0x44>(low_ab, low_cd),
            self.avx._mm256_shuffle_ps::<0xee>(low_ab, low_cd),
            self.avx._mm256_shuffle_ps::<0x44>(high_ab, high_cd),
            self.avx._mm256_shuffle_ps::<0xee>(high_ab, high_cd),
        ];
        weighted_sum_of_8(self, weight, taps)
    }
}
