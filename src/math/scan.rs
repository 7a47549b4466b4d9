//! Cross-correlation of rows with a signal over a range of shifts.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::Real;

/// Number of rows in a register tile, against one vector of shifts: eight accumulators.
const CORRELATION_TILE_ROWS: usize = 8;
/// Maximum number of shifts in a vector of any machine.
const MAX_LANES: usize = 16;

/// Interleaves rows as [`Correlate`] reads them: (count, length) to (count / 8, length, 8), count a multiple of 8.
pub fn interleaved(rows: &[f32], length: usize) -> Vec<f32> {
    let mut interleaved = Vec::with_capacity(rows.len());
    for eight_rows in rows.chunks_exact(CORRELATION_TILE_ROWS * length) {
        for j in 0..length {
            interleaved.extend((0..CORRELATION_TILE_ROWS).map(|i| eight_rows[i * length + j]));
        }
    }
    interleaved
}

/// Cross-correlation out\[r\]\[s\] = Σ_b rows\[r\]\[b\] signal\[b + s\] for s = 0…wanted − 1; `signal` has length +
/// `shifts` elements.
pub struct Correlate<'a> {
    /// (count, length), [`interleaved`].
    pub rows: &'a [f32],
    pub length: usize,
    pub signal: &'a [f32],
    /// (count, shifts). Further shifts are computed where that costs nothing, else their elements are left as they are.
    pub out: &'a mut [f32],
    pub wanted: usize,
    /// [`padded_shifts`] of the wanted number.
    pub shifts: usize,
}

/// Returns the number of shifts rounded up to whole vectors of any machine.
pub const fn padded_shifts(shifts: usize) -> usize {
    shifts.next_multiple_of(MAX_LANES)
}

impl Correlate<'_> {
    /// Computes the correlations of all rows at all shifts, with the widest vectors that the machine has.
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl WithSimd for Correlate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Correlate {
            rows,
            length,
            signal,
            out,
            wanted,
            shifts,
        } = self;
        // Two vectors of shifts at once hide the latency of the sums, where there are enough registers.
        let computed = wanted.next_multiple_of(S::F32_LANES);
        let in_pairs = if S::REGISTER_COUNT >= 32 {
            computed / S::F32_LANES / 2 * 2 * S::F32_LANES
        } else {
            0
        };
        for r in (0..rows.len() / length).step_by(CORRELATION_TILE_ROWS) {
            let tile_rows = &rows[r * length..(r + CORRELATION_TILE_ROWS) * length];
            let out = &mut out[r * shifts..(r + CORRELATION_TILE_ROWS) * shifts];
            for s in (0..in_pairs).step_by(2 * S::F32_LANES) {
                store_sums::<S, 2>(
                    correlate_tile(simd, tile_rows, &signal[s..]),
                    &mut out[s..],
                    shifts,
                );
            }
            for s in (in_pairs..computed).step_by(S::F32_LANES) {
                store_sums::<S, 1>(
                    correlate_tile(simd, tile_rows, &signal[s..]),
                    &mut out[s..],
                    shifts,
                );
            }
        }
    }
}

/// Copies the sums of eight rows to the front of each row of `out` (8, shifts).
#[inline(always)]
fn store_sums<S: Simd, const V: usize>(
    sums: [[S::f32s; V]; CORRELATION_TILE_ROWS],
    out: &mut [f32],
    shifts: usize,
) {
    for (sum, out) in sums.iter().zip(out.chunks_mut(shifts)) {
        out[..V * S::F32_LANES].copy_from_slice(f32::elements::<S>(sum));
    }
}

/// Correlates eight rows with the signal at `V` vectors of shifts.
#[inline(always)]
fn correlate_tile<S: Simd, const V: usize>(
    simd: S,
    rows: &[f32],
    signal: &[f32],
) -> [[S::f32s; V]; CORRELATION_TILE_ROWS] {
    let mut sums = [[simd.splat_f32s(0.0); V]; CORRELATION_TILE_ROWS];
    for (j, column) in rows.chunks_exact(CORRELATION_TILE_ROWS).enumerate() {
        let window = &f32::vectors::<S>(&signal[j..j + V * S::F32_LANES])[..V];
        for (sums, x) in sums.iter_mut().zip(column) {
            let x = simd.splat_f32s(*x);
            for (sum, window) in sums.iter_mut().zip(window) {
                *sum = simd.mul_add_f32s(x, *window, *sum);
            }
        }
    }
    sums
}

/// Computes Σ_b row\[b\] signal\[b + s\] of two rows, each with its own signal, for each of some shifts.
pub fn correlate_two(
    rows: [&[f32]; 2],
    signals: [&[f32]; 2],
    shifts: Range<usize>,
) -> [Vec<f32>; 2] {
    let [mut first, mut second] = [(); 2].map(|()| vec![0.0; shifts.len()]);
    let out = first
        .chunks_mut(SHIFTS_AT_ONCE)
        .zip(second.chunks_mut(SHIFTS_AT_ONCE));
    for (shift, (first, second)) in shifts.step_by(SHIFTS_AT_ONCE).zip(out) {
        let signals = signals.map(|signal| &signal[shift..]);
        pulp::Arch::new().dispatch(CorrelateTwo {
            rows,
            signals,
            out: [first, second],
        });
    }
    [first, second]
}

/// Number of shifts that are computed at once for each of two rows: eight accumulators in all.
const SHIFTS_AT_ONCE: usize = 4;

/// Correlation of two rows at up to four shifts, from 0 on.
struct CorrelateTwo<'a> {
    rows: [&'a [f32]; 2],
    signals: [&'a [f32]; 2],
    out: [&'a mut [f32]; 2],
}

impl WithSimd for CorrelateTwo<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let sums = match self.out[0].len() {
            4 => correlate_at_shifts::<S, 4>(simd, self.rows, self.signals),
            3 => correlate_at_shifts::<S, 3>(simd, self.rows, self.signals),
            2 => correlate_at_shifts::<S, 2>(simd, self.rows, self.signals),
            _ => correlate_at_shifts::<S, 1>(simd, self.rows, self.signals),
        };
        for (out, sums) in self.out.into_iter().zip(sums) {
            out.copy_from_slice(&sums[..out.len()]);
        }
    }
}

/// Returns the correlations of two rows, each with its own signal, at the first N shifts.
#[inline(always)]
fn correlate_at_shifts<S: Simd, const N: usize>(
    simd: S,
    rows: [&[f32]; 2],
    signals: [&[f32]; 2],
) -> [[f32; SHIFTS_AT_ONCE]; 2] {
    let length = rows[0].len();
    let vector_length = length / S::F32_LANES * S::F32_LANES;
    let mut sums = [[simd.splat_f32s(0.0); N]; 2];
    let vectors = rows.map(|row| f32::vectors::<S>(&row[..vector_length]));
    // All slices have one length, so that no bounds are checked in the loop.
    let windows = signals.map(|signal| {
        std::array::from_fn::<_, N, _>(|s| f32::vectors::<S>(&signal[s..s + vector_length]))
    });
    let count = vector_length / S::F32_LANES;
    let vectors = vectors.map(|row| &row[..count]);
    let windows = windows.map(|shifted| shifted.map(|window| &window[..count]));
    for k in 0..count {
        for i in 0..2 {
            for s in 0..N {
                sums[i][s] = simd.mul_add_f32s(vectors[i][k], windows[i][s][k], sums[i][s]);
            }
        }
    }
    let mut result = [[0.0; SHIFTS_AT_ONCE]; 2];
    for i in 0..2 {
        for s in 0..N {
            let remainder: f32 = (vector_length..length)
                .map(|b| rows[i][b] * signals[i][b + s])
                .sum();
            result[i][s] = simd.reduce_sum_f32s(sums[i][s]) + remainder;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlations_agree_with_plain_sums() {
        let count = 8;
        let length = 37;
        let wanted = 5;
        let shifts = padded_shifts(wanted);
        let value = |k: usize| ((k * 7919) % 101) as f32 / 101.0 - 0.5;
        let rows: Vec<f32> = (0..count * length).map(value).collect();
        let signal: Vec<f32> = (0..length + shifts).map(|k| value(k + 13)).collect();
        let mut out = vec![f32::NAN; count * shifts];
        Correlate {
            rows: &interleaved(&rows, length),
            length,
            signal: &signal,
            out: &mut out,
            wanted,
            shifts,
        }
        .run();
        for r in 0..count {
            for s in 0..wanted {
                let exact: f32 = (0..length)
                    .map(|b| rows[r * length + b] * signal[b + s])
                    .sum();
                assert!((out[r * shifts + s] - exact).abs() < 1e-4);
            }
        }
        for range in [0..0, 0..1, 2..4, 2..5, 1..5, 0..5, 2..8, 3..11, 1..16] {
            let two_rows = [&rows[..length], &rows[length..2 * length]];
            let second_signal = &signal[1..];
            let sums = correlate_two(two_rows, [&signal, second_signal], range.clone());
            for ((row, signal), sums) in two_rows
                .into_iter()
                .zip([&signal[..], second_signal])
                .zip(sums)
            {
                assert_eq!(sums.len(), range.len());
                for (s, sum) in range.clone().zip(sums) {
                    let exact: f32 = (0..length).map(|b| row[b] * signal[b + s]).sum();
                    assert!((sum - exact).abs() < 1e-4, "shift {s}: {sum} {exact}");
                }
            }
        }
    }
}
