//! Four-tap sums at irregular places of a row: what resampling by a cubic spline or linearly comes down to.

#[cfg(target_arch = "x86_64")]
mod vectors;

use super::Real;

/// Pixels of a chunk.
pub const CHUNK: usize = 64;
/// Taps of a pixel.
pub const TAPS: usize = 4;
/// Fewest pixels that are worked on together.
const FEWEST: usize = 8;

/// Weights of each tap at each pixel.
pub type Weights<R> = [[R; CHUNK]; TAPS];

/// Places from which the pixels of a chunk read a row: pixel i reads row\[`base[i]`\] and the three elements after it.
pub struct Places {
    pub base: [i32; CHUNK],
    /// Pixels that this machine works on together.
    lanes: usize,
    /// Window from which each group of `lanes` pixels reads.
    window: [Window; CHUNK / FEWEST],
}

#[derive(Clone, Copy)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "only the vector code of x86-64 reads the places")
)]
enum Window {
    /// Pixel i reads from element `at + i` or the one after it: two loads a tap hold them all.
    Near {
        at: usize,
    },
    /// Two vectors from `at` hold all that they read.
    Wide {
        at: usize,
    },
    Apart,
}

impl Places {
    /// Makes places at which every pixel reads from element 0, each on its own.
    pub fn new() -> Places {
        Places {
            base: [0; CHUNK],
            lanes: lanes(),
            window: [Window::Apart; CHUNK / FEWEST],
        }
    }

    /// Chooses, once for all rows of `length` elements, how each group of neighbouring pixels reads its elements.
    #[inline(always)]
    pub fn settle(&mut self, length: usize) {
        match self.lanes {
            16 => self.settle_in::<16>(length),
            _ => self.settle_in::<8>(length),
        }
    }

    /// Chooses how each group of LANES pixels reads, by how far apart the elements are that it needs.
    #[inline(always)]
    fn settle_in<const LANES: usize>(&mut self, length: usize) {
        for (window, base) in self.window.iter_mut().zip(self.base.as_chunks::<LANES>().0) {
            let (mut lowest, mut highest, mut first, mut last) = (i32::MAX, 0, i32::MAX, i32::MIN);
            for (b, i) in base.iter().zip(0..) {
                (lowest, highest) = (lowest.min(*b), highest.max(*b));
                (first, last) = (first.min(b - i), last.max(b - i));
            }
            let (lowest, highest) = (
                (lowest as usize).min(length.saturating_sub(2 * LANES)),
                highest as usize + 3,
            );
            let near = usize::try_from(first)
                .ok()
                .filter(|at| at + LANES + TAPS <= length && last - first <= 1);
            *window = match near {
                Some(at) => Window::Near { at },
                _ if length >= 2 * LANES && highest - lowest < 2 * LANES => {
                    Window::Wide { at: lowest }
                }
                _ => Window::Apart,
            };
        }
    }
}

/// Returns how many f32 the machine's widest vectors hold.
fn lanes() -> usize {
    #[cfg(target_arch = "x86_64")]
    if pulp::x86::V4::try_new().is_some() {
        return 16;
    }
    FEWEST
}

/// Computes the first `output.len()` pixels of a chunk: Σ_t `weight[t][i]` · row\[`base[i]` + t\].
#[inline(always)]
pub fn apply<R: Real>(places: &Places, weight: &Weights<R>, row: &[R], output: &mut [R]) {
    #[cfg(target_arch = "x86_64")]
    if vectors::apply(places, weight, row, output) {
        return;
    }
    apply_plainly(&places.base, weight, 0, row, output);
}

/// Computes pixels `first..first + output.len()` of a chunk as [`apply`] does, without vector instructions by hand.
#[inline(always)]
fn apply_plainly<R: Real>(
    base: &[i32; CHUNK],
    weight: &Weights<R>,
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
    fn vectors_have_the_bits_of_plain_sums() {
        let mut kinds = std::collections::HashSet::new();
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
            let (mut places, mut weight) = (Places::new(), [[0f32; CHUNK]; TAPS]);
            for (i, base) in places.base.iter_mut().enumerate() {
                *base = (start + (i as f64 * stride) as usize).min(row.len() - TAPS) as i32;
                for (t, weight) in weight.iter_mut().enumerate() {
                    weight[i] = ((i * 31 + t * 17) % 29) as f32 / 29.0;
                }
            }
            places.settle(row.len());
            for count in [0, 1, 15, 16, 48, 63, 64] {
                let (mut fast, mut plain) = (vec![f32::NAN; count], vec![f32::NAN; count]);
                apply(&places, &weight, &row, &mut fast);
                apply_plainly(&places.base, &weight, 0, &row, &mut plain);
                assert_eq!(fast, plain);
            }
            kinds.extend(
                places.window[..CHUNK / places.lanes]
                    .iter()
                    .map(std::mem::discriminant),
            );
        }
        assert_eq!(kinds.len(), 3, "near, wide and apart");
        let (short, mut out) = ([1.0f32, 2.0, 3.0, 4.0], [0f32; 16]);
        let (mut places, mut weight) = (Places::new(), [[0f32; CHUNK]; TAPS]);
        weight[2].fill(1.0);
        places.settle(short.len());
        apply(&places, &weight, &short, &mut out);
        assert_eq!(out, [3.0; 16]);
    }
}
