//! Interpolation of as many neighbouring pixels at once as a vector has elements: a quarter of the time of single loads
//! and horizontal sums. The products and their order are those of the scalar code, and so are the bits.

use std::arch::x86_64::{__m256, __m256i, __m512, __m512i};

use pulp::NullaryFnOnce;
use pulp::x86::{V3, V4};

use super::{CHUNK, Places, TAPS, Weights, Window, apply_plainly};
use crate::math::Real;

/// Computes a chunk's pixels with vector instructions; returns `false`, undone, if numbers or machine do not suit.
#[inline(always)]
pub fn apply<R: Real>(places: &Places, weight: &Weights<R>, row: &[R], output: &mut [R]) -> bool {
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
        (Some(simd), _) => simd.vectorize(Chunk {
            simd,
            places,
            weight,
            row,
            output,
        }),
        (_, Some(simd)) => simd.vectorize(Chunk {
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

struct Chunk<'a, S> {
    simd: S,
    places: &'a Places,
    weight: &'a Weights<f32>,
    row: &'a [f32],
    output: &'a mut [f32],
}

impl NullaryFnOnce for Chunk<'_, V4> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        run::<_, 16>(self);
    }
}

impl NullaryFnOnce for Chunk<'_, V3> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        run::<_, 8>(self);
    }
}

/// Computes a chunk's pixels from their taps, LANES at a time, the fastest way that each group's window allows.
#[inline(always)]
fn run<S: Pick<LANES>, const LANES: usize>(chunk: Chunk<'_, S>) {
    let Chunk {
        simd,
        places,
        weight,
        row,
        output,
    } = chunk;
    let (whole, rest) = output.as_chunks_mut::<LANES>();
    let first = whole.len() * LANES;
    let base = places.base.as_chunks::<LANES>().0;
    let weights = weight
        .each_ref()
        .map(|weight| weight.as_chunks::<LANES>().0);
    // a length that the compiler knows: nothing is checked
    for (block, out) in (0..CHUNK / LANES).zip(whole) {
        let (base, weight) = (&base[block], weights.map(|weight| &weight[block]));
        *out = match places.window[block] {
            Window::Near { at } => simd.choose(
                offsets(base, at as i32),
                weight,
                &row[at..at + LANES + TAPS],
            ),
            Window::Wide { at } => simd.permute(
                differences(base, at as i32),
                weight,
                &row[at..at + 2 * LANES],
            ),
            Window::Apart => simd.transpose(base, weight, row),
        };
    }
    apply_plainly(&places.base, weight, first, row, rest);
}

/// Returns the distances of the pixels' first elements from element `at`.
#[inline(always)]
fn differences<const LANES: usize>(base: &[i32; LANES], at: i32) -> [i32; LANES] {
    let mut differences = [0; LANES];
    differences
        .iter_mut()
        .zip(base)
        .for_each(|(d, b)| *d = b - at);
    differences
}

/// Returns by how much pixel i begins after element `at + i`.
#[inline(always)]
fn offsets<const LANES: usize>(base: &[i32; LANES], at: i32) -> [i32; LANES] {
    let mut offsets = differences(base, at);
    offsets
        .iter_mut()
        .zip(0..)
        .for_each(|(offset, i)| *offset -= i);
    offsets
}

type OfTaps<'a, const LANES: usize> = [&'a [f32; LANES]; TAPS];

trait Pick<const LANES: usize>: Copy {
    /// Pixel i begins at element i of `window`, or where its offset is 1 at the next one.
    fn choose(self, offset: [i32; LANES], weight: OfTaps<LANES>, window: &[f32]) -> [f32; LANES];

    /// Pixels that begin at these elements of `window`, two vectors long.
    fn permute(self, offset: [i32; LANES], weight: OfTaps<LANES>, window: &[f32]) -> [f32; LANES];

    /// Pixels that begin anywhere in the row.
    fn transpose(self, base: &[i32; LANES], weight: OfTaps<LANES>, row: &[f32]) -> [f32; LANES];
}

/// Copies the first LANES elements of a slice.
#[inline(always)]
fn part<const LANES: usize>(from: &[f32]) -> [f32; LANES] {
    let mut part = [0f32; LANES];
    part.copy_from_slice(&from[..LANES]);
    part
}

/// Σ weight · tap, in the order of the taps.
#[inline(always)]
fn sum_of_16(simd: V4, weight: OfTaps<16>, taps: [__m512; TAPS]) -> [f32; 16] {
    let mut sum = simd.avx512f._mm512_mul_ps(pulp::cast(*weight[0]), taps[0]);
    for (weight, tap) in weight.into_iter().zip(taps).skip(1) {
        sum = simd.avx512f._mm512_fmadd_ps(pulp::cast(*weight), tap, sum);
    }
    pulp::cast(sum)
}

/// The same.
#[inline(always)]
fn sum_of_8(simd: V3, weight: OfTaps<8>, taps: [__m256; TAPS]) -> [f32; 8] {
    let mut sum = simd.avx._mm256_mul_ps(pulp::cast(*weight[0]), taps[0]);
    for (weight, tap) in weight.into_iter().zip(taps).skip(1) {
        sum = simd.fma._mm256_fmadd_ps(pulp::cast(*weight), tap, sum);
    }
    pulp::cast(sum)
}

impl Pick<16> for V4 {
    #[inline(always)]
    fn choose(self, offset: [i32; 16], weight: OfTaps<16>, window: &[f32]) -> [f32; 16] {
        let vector = |from: &[f32]| -> __m512 { pulp::cast(part::<16>(from)) };
        let offset: __m512i = pulp::cast(offset);
        let which = self.avx512f._mm512_test_epi32_mask(offset, offset);
        let (mut here, mut taps) = (vector(window), [self.avx512f._mm512_setzero_ps(); TAPS]);
        for (t, tap) in taps.iter_mut().enumerate() {
            let next = vector(&window[t + 1..]);
            *tap = self.avx512f._mm512_mask_blend_ps(which, here, next);
            here = next;
        }
        sum_of_16(self, weight, taps)
    }

    #[inline(always)]
    fn permute(self, offset: [i32; 16], weight: OfTaps<16>, window: &[f32]) -> [f32; 16] {
        let vector = |from: &[f32]| -> __m512 { pulp::cast(part::<16>(from)) };
        let (low, high) = (vector(window), vector(&window[16..]));
        let mut index: __m512i = pulp::cast(offset);
        let one = self.avx512f._mm512_set1_epi32(1);
        let mut taps = [self.avx512f._mm512_setzero_ps(); TAPS];
        for tap in &mut taps {
            *tap = self.avx512f._mm512_permutex2var_ps(low, index, high);
            index = self.avx512f._mm512_add_epi32(index, one);
        }
        sum_of_16(self, weight, taps)
    }

    #[inline(always)]
    fn transpose(self, base: &[i32; 16], weight: OfTaps<16>, row: &[f32]) -> [f32; 16] {
        let base = base.as_chunks::<8>().0;
        let [low, high] = [0, 1].map(|k| weight.map(|weight| &weight.as_chunks::<8>().0[k]));
        // no closures around intrinsics: they would become calls
        let low = Pick::<8>::transpose(*self, &base[0], low, row);
        pulp::cast([low, Pick::<8>::transpose(*self, &base[1], high, row)])
    }
}

impl Pick<8> for V3 {
    #[inline(always)]
    fn choose(self, offset: [i32; 8], weight: OfTaps<8>, window: &[f32]) -> [f32; 8] {
        let vector = |from: &[f32]| -> __m256 { pulp::cast(part::<8>(from)) };
        // the sign says which
        let which: __m256 = pulp::cast(self.avx2._mm256_slli_epi32::<31>(pulp::cast(offset)));
        let (mut here, mut taps) = (vector(window), [self.avx._mm256_setzero_ps(); TAPS]);
        for (t, tap) in taps.iter_mut().enumerate() {
            let next = vector(&window[t + 1..]);
            *tap = self.avx._mm256_blendv_ps(here, next, which);
            here = next;
        }
        sum_of_8(self, weight, taps)
    }

    #[inline(always)]
    fn permute(self, offset: [i32; 8], weight: OfTaps<8>, window: &[f32]) -> [f32; 8] {
        let vector = |from: &[f32]| -> __m256 { pulp::cast(part::<8>(from)) };
        let (low, high) = (vector(window), vector(&window[8..]));
        let mut index: __m256i = pulp::cast(offset);
        let one = self.avx._mm256_set1_epi32(1);
        let mut taps = [self.avx._mm256_setzero_ps(); TAPS];
        for tap in &mut taps {
            let of_low = self.avx2._mm256_permutevar8x32_ps(low, index);
            let of_high = self.avx2._mm256_permutevar8x32_ps(high, index);
            // the fourth bit says which
            let which: __m256 = pulp::cast(self.avx2._mm256_slli_epi32::<28>(index));
            *tap = self.avx._mm256_blendv_ps(of_low, of_high, which);
            index = self.avx2._mm256_add_epi32(index, one);
        }
        sum_of_8(self, weight, taps)
    }

    #[inline(always)]
    fn transpose(self, base: &[i32; 8], weight: OfTaps<8>, row: &[f32]) -> [f32; 8] {
        let four = |i: usize| part::<TAPS>(&row[base[i] as usize..]);
        let pair = |i: usize| -> __m256 { pulp::cast([four(i), four(i + 4)]) };
        let [a, b, c, d] = std::array::from_fn(pair);
        let (low, high) = (
            self.avx._mm256_unpacklo_ps(a, b),
            self.avx._mm256_unpackhi_ps(a, b),
        );
        let (low_too, high_too) = (
            self.avx._mm256_unpacklo_ps(c, d),
            self.avx._mm256_unpackhi_ps(c, d),
        );
        let taps = [
            self.avx._mm256_shuffle_ps::<0x44>(low, low_too),
            self.avx._mm256_shuffle_ps::<0xee>(low, low_too),
            self.avx._mm256_shuffle_ps::<0x44>(high, high_too),
            self.avx._mm256_shuffle_ps::<0xee>(high, high_too),
        ];
        sum_of_8(self, weight, taps)
    }
}
