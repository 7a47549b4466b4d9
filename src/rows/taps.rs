//! Four-tap sums at irregular places of a row: what resampling by a cubic spline or linearly comes down to.

use super::Real;

/// Pixels of a chunk.
pub const CHUNK: usize = 64;
/// Fewest pixels that share two vectors of the row.
const FEWEST: usize = 8;

/// Where the pixels of a chunk read a row: pixel i reads row\[`base[i]`\] and the three elements after it.
pub struct Places {
    pub base: [i32; CHUNK],
    /// Pixels that share two vectors on this machine.
    lanes: usize,
    /// First element that each `lanes` pixels read, where two vectors hold all that they do.
    window: [Option<usize>; CHUNK / FEWEST],
}

impl Places {
    pub fn new() -> Places {
        Places { base: [0; CHUNK], lanes: lanes(), window: [None; CHUNK / FEWEST] }
    }

    /// Looks, once for all rows of `length` elements, which pixels share two vectors.
    #[inline(always)]
    pub fn settle(&mut self, length: usize) {
        match self.lanes {
            16 => self.settle_in::<16>(length),
            _ => self.settle_in::<8>(length),
        }
    }

    #[inline(always)]
    fn settle_in<const LANES: usize>(&mut self, length: usize) {
        for (window, base) in self.window.iter_mut().zip(self.base.chunks_exact(LANES)) {
            let lowest = base.iter().fold(i32::MAX, |a, b| a.min(*b)) as usize;
            let lowest = lowest.min(length.saturating_sub(2 * LANES));
            let highest = base.iter().fold(0, |a, b| a.max(*b)) as usize + 3;
            *window = (length >= 2 * LANES && highest - lowest < 2 * LANES).then_some(lowest);
        }
    }
}

/// Elements of f32 in the vectors that permutations take.
fn lanes() -> usize {
    #[cfg(target_arch = "x86_64")]
    if pulp::x86::V4::try_new().is_some() {
        return 16;
    }
    FEWEST
}

/// The first `output.len()` pixels of a chunk: Σ_t `weight[t][i]` · row\[`base[i]` + t\], `weight` (4, chunk).
#[inline(always)]
pub fn apply<R: Real>(places: &Places, weight: &[R], row: &[R], output: &mut [R]) {
    #[cfg(target_arch = "x86_64")]
    if permuted::apply(places, weight, row, output) {
        return;
    }
    apply_plainly(&places.base, weight, 0, row, output);
}

/// Pixels `first..first + output.len()` of a chunk.
#[inline(always)]
fn apply_plainly<R: Real>(base: &[i32; CHUNK], weight: &[R], first: usize, row: &[R], output: &mut [R]) {
    for (i, out) in (first..).zip(output) {
        let c = &row[base[i] as usize..][..4];
        let mut sum = weight[i] * c[0];
        for t in 1..4 {
            sum = weight[t * CHUNK + i].fused(c[t], sum);
        }
        *out = sum;
    }
}

/// As many neighbouring pixels as a vector has elements, whose taps lie within two vectors, read these and pick by permutation: with
/// AVX-512 a quarter of the time of single loads and horizontal sums. The same products in the same order: the same bits.
#[cfg(target_arch = "x86_64")]
mod permuted {
    use std::arch::x86_64::{__m256, __m256i, __m512, __m512i};

    use pulp::NullaryFnOnce;
    use pulp::x86::{V3, V4};

    use super::{CHUNK, Places, apply_plainly};
    use crate::rows::Real;

    /// Whether it could.
    #[inline(always)]
    pub fn apply<R: Real>(places: &Places, weight: &[R], row: &[R], output: &mut [R]) -> bool {
        let (Some(weight), Some(row), Some(output)) = (R::single(weight), R::single(row), R::single_mut(output)) else {
            return false;
        };
        match (V4::try_new(), V3::try_new()) {
            (Some(simd), _) => simd.vectorize(Permuted { simd, places, weight, row, output }),
            (_, Some(simd)) => simd.vectorize(Permuted { simd, places, weight, row, output }),
            _ => return false,
        }
        true
    }

    struct Permuted<'a, S> {
        simd: S,
        places: &'a Places,
        weight: &'a [f32],
        row: &'a [f32],
        output: &'a mut [f32],
    }

    impl NullaryFnOnce for Permuted<'_, V4> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            run::<_, 16>(self);
        }
    }

    impl NullaryFnOnce for Permuted<'_, V3> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            run::<_, 8>(self);
        }
    }

    #[inline(always)]
    fn run<S: Pick<LANES>, const LANES: usize>(permuted: Permuted<'_, S>) {
        let Permuted { simd, places, weight, row, output } = permuted;
        for (block, output) in output.chunks_mut(LANES).enumerate() {
            let first = block * LANES;
            match (places.window[block], <&mut [f32; LANES]>::try_from(&mut *output)) {
                (Some(lowest), Ok(output)) => {
                    let mut offset = [0i32; LANES];
                    let base = &places.base[first..first + LANES];
                    offset.iter_mut().zip(base).for_each(|(o, b)| *o = b - lowest as i32);
                    *output = simd.pick(offset, &weight[first..], &row[lowest..][..2 * LANES]);
                }
                _ => apply_plainly(&places.base, weight, first, row, output),
            }
        }
    }

    trait Pick<const LANES: usize>: Copy {
        /// Pixels that begin at these elements of `window`, two vectors long.
        fn pick(self, offset: [i32; LANES], weight: &[f32], window: &[f32]) -> [f32; LANES];
    }

    #[inline(always)]
    fn part<const LANES: usize>(from: &[f32]) -> [f32; LANES] {
        let mut part = [0f32; LANES];
        part.copy_from_slice(&from[..LANES]);
        part
    }

    impl Pick<16> for V4 {
        #[inline(always)]
        fn pick(self, offset: [i32; 16], weight: &[f32], window: &[f32]) -> [f32; 16] {
            let vector = |from: &[f32]| -> __m512 { pulp::cast(part::<16>(from)) };
            let (low, high) = (vector(window), vector(&window[16..]));
            let mut index: __m512i = pulp::cast(offset);
            let one = self.avx512f._mm512_set1_epi32(1);
            let mut sum = self.avx512f._mm512_setzero_ps();
            for t in 0..4 {
                let weight = vector(&weight[t * CHUNK..]);
                let c = self.avx512f._mm512_permutex2var_ps(low, index, high);
                sum = match t {
                    0 => self.avx512f._mm512_mul_ps(weight, c),
                    _ => self.avx512f._mm512_fmadd_ps(weight, c, sum),
                };
                index = self.avx512f._mm512_add_epi32(index, one);
            }
            pulp::cast(sum)
        }
    }

    impl Pick<8> for V3 {
        #[inline(always)]
        fn pick(self, offset: [i32; 8], weight: &[f32], window: &[f32]) -> [f32; 8] {
            let vector = |from: &[f32]| -> __m256 { pulp::cast(part::<8>(from)) };
            let (low, high) = (vector(window), vector(&window[8..]));
            let mut index: __m256i = pulp::cast(offset);
            let one = self.avx._mm256_set1_epi32(1);
            let mut sum = self.avx._mm256_setzero_ps();
            for t in 0..4 {
                let weight = vector(&weight[t * CHUNK..]);
                let of_low = self.avx2._mm256_permutevar8x32_ps(low, index);
                let of_high = self.avx2._mm256_permutevar8x32_ps(high, index);
                // the fourth bit says which
                let which: __m256 = pulp::cast(self.avx2._mm256_slli_epi32::<28>(index));
                let c = self.avx._mm256_blendv_ps(of_low, of_high, which);
                sum = match t {
                    0 => self.avx._mm256_mul_ps(weight, c),
                    _ => self.fma._mm256_fmadd_ps(weight, c, sum),
                };
                index = self.avx2._mm256_add_epi32(index, one);
            }
            pulp::cast(sum)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_have_the_bits_of_plain_sums() {
        let row: Vec<f32> = (0..300).map(|k| ((k * 7919) % 101) as f32 / 101.0 - 0.5).collect();
        for (start, stride) in [(0, 1.0), (0, 0.3), (3, 1.7), (100, 3.0), (230, 1.03), (233, 1.0)] {
            let (mut places, mut weight) = (Places::new(), vec![0f32; 4 * CHUNK]);
            for i in 0..CHUNK {
                places.base[i] = (start + (i as f64 * stride) as usize).min(row.len() - 4) as i32;
                for t in 0..4 {
                    weight[t * CHUNK + i] = ((i * 31 + t * 17) % 29) as f32 / 29.0;
                }
            }
            places.settle(row.len());
            for count in [0, 1, 15, 16, 48, 63, 64] {
                let (mut fast, mut plain) = (vec![f32::NAN; count], vec![f32::NAN; count]);
                apply(&places, &weight, &row, &mut fast);
                apply_plainly(&places.base, &weight, 0, &row, &mut plain);
                assert_eq!(fast, plain);
            }
        }
        let (short, mut out) = ([1.0f32, 2.0, 3.0, 4.0], [0f32; 16]);
        let (mut places, mut weight) = (Places::new(), vec![0f32; 4 * CHUNK]);
        weight[2 * CHUNK..3 * CHUNK].fill(1.0);
        places.settle(short.len());
        apply(&places, &weight, &short, &mut out);
        assert_eq!(out, [3.0; 16]);
    }
}
