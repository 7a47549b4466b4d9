//! Four-tap sums at irregular positions of a row, to which resampling by cubic splines or linearly is reduced.

#[cfg(target_arch = "x86_64")]
mod vectors;

use super::Real;

/// Number of pixels of a chunk.
pub const TAP_CHUNK_PIXELS: usize = 64;
/// Number of taps of a pixel.
pub const TAPS: usize = 4;
/// Minimum number of pixels that are computed together.
const MIN_LANES: usize = 8;

/// TapWeights of each tap at each pixel.
pub type TapWeights<R> = [[R; TAP_CHUNK_PIXELS]; TAPS];

/// Positions at which the pixels of a chunk read a row: pixel i reads row\[`base[i]`\] and the three elements after it.
pub struct TapPlaces {
    pub base: [i32; TAP_CHUNK_PIXELS],
    /// Number of pixels that this machine computes together.
    lanes: usize,
    /// Window that each group of `lanes` pixels reads.
    windows: [ReadWindow; TAP_CHUNK_PIXELS / MIN_LANES],
}

/// Elements of a row that a group of neighbouring pixels reads.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "only the vector code of x86-64 reads the places")
)]
enum ReadWindow {
    /// Pixel i reads from element `at + i` or the one after it: two loads per tap hold them all.
    Near { at: usize },
    /// Two vectors from `at` on hold all elements.
    Wide { at: usize },
    /// The elements are further apart: each pixel reads its own.
    Apart,
}

impl TapPlaces {
    /// Makes positions at which every pixel reads its own elements from 0 on.
    pub fn new() -> TapPlaces {
        TapPlaces {
            base: [0; TAP_CHUNK_PIXELS],
            lanes: machine_lanes(),
            windows: [ReadWindow::Apart; TAP_CHUNK_PIXELS / MIN_LANES],
        }
    }

    /// Chooses, once for all rows of `length` elements, how each group of neighbouring pixels reads its elements.
    #[inline(always)]
    pub fn settle(&mut self, length: usize) {
        match self.lanes {
            16 => self.choose_windows::<16>(length),
            _ => self.choose_windows::<8>(length),
        }
    }

    /// Chooses the window of each group of LANES pixels by how far apart its elements are.
    #[inline(always)]
    fn choose_windows<const LANES: usize>(&mut self, length: usize) {
        for (window, base) in self
            .windows
            .iter_mut()
            .zip(self.base.as_chunks::<LANES>().0)
        {
            // 1. Find the range of the elements, and that of their offsets from one element per pixel.
            let mut lowest = i32::MAX;
            let mut highest = 0;
            let mut min_offset = i32::MAX;
            let mut max_offset = i32::MIN;
            for (b, i) in base.iter().zip(0..) {
                lowest = lowest.min(*b);
                highest = highest.max(*b);
                min_offset = min_offset.min(b - i);
                max_offset = max_offset.max(b - i);
            }
            // 2. Choose the smallest window that has them all.
            let lowest = (lowest as usize).min(length.saturating_sub(2 * LANES));
            let highest = highest as usize + 3;
            let near = usize::try_from(min_offset)
                .ok()
                .filter(|at| at + LANES + TAPS <= length && max_offset - min_offset <= 1);
            *window = match near {
                Some(at) => ReadWindow::Near { at },
                _ if length >= 2 * LANES && highest - lowest < 2 * LANES => {
                    ReadWindow::Wide { at: lowest }
                }
                _ => ReadWindow::Apart,
            };
        }
    }
}

/// Returns the number of f32 in the widest vectors of the machine.
fn machine_lanes() -> usize {
    #[cfg(target_arch = "x86_64")]
    if pulp::x86::V4::try_new().is_some() {
        return 16;
    }
    MIN_LANES
}

/// Computes the first `output.len()` pixels of a chunk: Σ_t `weight[t][i]` · row\[`base[i]` + t\].
#[inline(always)]
pub fn apply<R: Real>(places: &TapPlaces, weight: &TapWeights<R>, row: &[R], output: &mut [R]) {
    #[cfg(target_arch = "x86_64")]
    if vectors::apply(places, weight, row, output) {
        return;
    }
    apply_without_vectors(&places.base, weight, 0, row, output);
}

/// Computes pixels `first..first + output.len()` of a chunk as [`apply`] does, without vector instructions by hand.
#[inline(always)]
fn apply_without_vectors<R: Real>(
    base: &[i32; TAP_CHUNK_PIXELS],
    weight: &TapWeights<R>,
    first: usize,
    row: &[R],
    output: &mut [R],
) {
    for (i, out) in (first..).zip(output) {
        let c = &row[base[i] as usize..][..TAPS];
        let mut sum = weight[0][i] * c[0];
        for t in 1..TAPS {
            sum = weight[t][i].fused(c[t], sum);
        }
        *out = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_code_has_the_bits_of_plain_sums() {
        let mut window_kinds = std::collections::HashSet::new();
        let row: Vec<f32> = (0..300)
            .map(|k| ((k * 7919) % 101) as f32 / 101.0 - 0.5)
            .collect();
        for (start, stride) in [
            (0, 1.0),
            (0, 0.3),
            (3, 1.7),
            (100, 3.0),
            (9, 1.08),
            (70, 0.9),
            (230, 1.03),
            (233, 1.0),
        ] {
            let mut places = TapPlaces::new();
            let mut weight = [[0f32; TAP_CHUNK_PIXELS]; TAPS];
            for (i, base) in places.base.iter_mut().enumerate() {
                *base = (start + (i as f64 * stride) as usize).min(row.len() - TAPS) as i32;
                for (t, weight) in weight.iter_mut().enumerate() {
                    weight[i] = ((i * 31 + t * 17) % 29) as f32 / 29.0;
                }
            }
            places.settle(row.len());
            for count in [0, 1, 15, 16, 48, 63, 64] {
                let mut by_vectors = vec![f32::NAN; count];
                let mut without_vectors = vec![f32::NAN; count];
                apply(&places, &weight, &row, &mut by_vectors);
                apply_without_vectors(&places.base, &weight, 0, &row, &mut without_vectors);
                assert_eq!(by_vectors, without_vectors);
            }
            window_kinds.extend(
                places.windows[..TAP_CHUNK_PIXELS / places.lanes]
                    .iter()
                    .map(std::mem::discriminant),
            );
        }
        assert_eq!(window_kinds.len(), 3, "near, wide and apart");
        let short_row = [1.0f32, 2.0, 3.0, 4.0];
        let mut out = [0f32; 16];
        let mut places = TapPlaces::new();
        let mut weight = [[0f32; TAP_CHUNK_PIXELS]; TAPS];
        weight[2].fill(1.0);
        places.settle(short_row.len());
        apply(&places, &weight, &short_row, &mut out);
        assert_eq!(out, [3.0; 16]);
    }
}
