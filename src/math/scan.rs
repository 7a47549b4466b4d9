//! Cross-correlation of rows with a signal over a range of shifts.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::Real;

/// Rows in a register tile, against one vector of shifts: eight accumulators.
const SIDE: usize = 8;
/// Most shifts in a vector of any machine.
const WIDEST: usize = 16;

/// Interleaves rows as [`Correlate`] reads them: (count, length) to (count / 8, length, 8), count a multiple of 8.
pub fn interleaved(rows: &[f32], length: usize) -> Vec<f32> {
    let eight = |some: &[f32]| {
        (0..length)
            .flat_map(|j| (0..SIDE).map(move |i| i * length + j))
            .map(|k| some[k])
            .collect()
    };
    rows.chunks_exact(SIDE * length)
        .flat_map(|some| -> Vec<f32> { eight(some) })
        .collect()
}

/// out\[r\]\[s\] = Σ_b rows\[r\]\[b\] signal\[b + s\], s = 0…wanted − 1; `signal` has length + `shifts` elements.
pub struct Correlate<'a> {
    /// (count, length), [`interleaved`].
    pub rows: &'a [f32],
    pub length: usize,
    pub signal: &'a [f32],
    /// (count, shifts). What is not wanted is made where it costs nothing, else left as it is.
    pub out: &'a mut [f32],
    pub wanted: usize,
    /// [`padded_shifts`] of those.
    pub shifts: usize,
}

/// Returns the number of shifts rounded up to that to which they are padded.
pub const fn padded_shifts(shifts: usize) -> usize {
    shifts.next_multiple_of(WIDEST)
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
        // two vectors of shifts at once hide the latency of the sums, where there are registers for them
        let made = wanted.next_multiple_of(S::F32_LANES);
        let both = if S::REGISTER_COUNT >= 32 {
            made / S::F32_LANES / 2 * 2 * S::F32_LANES
        } else {
            0
        };
        for r in (0..rows.len() / length).step_by(SIDE) {
            let (some, out) = (
                &rows[r * length..(r + SIDE) * length],
                &mut out[r * shifts..(r + SIDE) * shifts],
            );
            for s in (0..both).step_by(2 * S::F32_LANES) {
                put::<S, 2>(tile(simd, some, &signal[s..]), &mut out[s..], shifts);
            }
            for s in (both..made).step_by(S::F32_LANES) {
                put::<S, 1>(tile(simd, some, &signal[s..]), &mut out[s..], shifts);
            }
        }
    }
}

/// Copies the sums of eight rows to the front of each row of `out` (8, shifts).
#[inline(always)]
fn put<S: Simd, const V: usize>(sums: [[S::f32s; V]; SIDE], out: &mut [f32], shifts: usize) {
    for (sum, out) in sums.iter().zip(out.chunks_mut(shifts)) {
        out[..V * S::F32_LANES].copy_from_slice(f32::elements::<S>(sum));
    }
}

/// Eight rows against `V` vectors of shifts.
#[inline(always)]
fn tile<S: Simd, const V: usize>(simd: S, rows: &[f32], signal: &[f32]) -> [[S::f32s; V]; SIDE] {
    let mut sums = [[simd.splat_f32s(0.0); V]; SIDE];
    for (j, eight) in rows.chunks_exact(SIDE).enumerate() {
        let window = &f32::vectors::<S>(&signal[j..j + V * S::F32_LANES])[..V];
        for (sums, x) in sums.iter_mut().zip(eight) {
            let x = simd.splat_f32s(*x);
            for (sum, window) in sums.iter_mut().zip(window) {
                *sum = simd.mul_add_f32s(x, *window, *sum);
            }
        }
    }
    sums
}

/// Σ_b row\[b\] signal\[b + s\] of two rows, each with its own signal, for each of some shifts.
pub fn correlate_two(
    rows: [&[f32]; 2],
    signals: [&[f32]; 2],
    shifts: Range<usize>,
) -> [Vec<f32>; 2] {
    let [mut first, mut second] = [(); 2].map(|()| vec![0.0; shifts.len()]);
    let out = first.chunks_mut(FEW).zip(second.chunks_mut(FEW));
    for (shift, (first, second)) in shifts.step_by(FEW).zip(out) {
        let signals = signals.map(|signal| &signal[shift..]);
        pulp::Arch::new().dispatch(Two {
            rows,
            signals,
            out: [first, second],
        });
    }
    [first, second]
}

/// Shifts at once of each of two rows: eight accumulators in all.
const FEW: usize = 4;

/// At most four shifts, from 0.
struct Two<'a> {
    rows: [&'a [f32]; 2],
    signals: [&'a [f32]; 2],
    out: [&'a mut [f32]; 2],
}

impl WithSimd for Two<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let sums = match self.out[0].len() {
            4 => few::<S, 4>(simd, self.rows, self.signals),
            3 => few::<S, 3>(simd, self.rows, self.signals),
            2 => few::<S, 2>(simd, self.rows, self.signals),
            _ => few::<S, 1>(simd, self.rows, self.signals),
        };
        for (out, sums) in self.out.into_iter().zip(sums) {
            out.copy_from_slice(&sums[..out.len()]);
        }
    }
}

/// Returns the correlations of two rows, each with its own signal, at the first N shifts.
#[inline(always)]
fn few<S: Simd, const N: usize>(
    simd: S,
    rows: [&[f32]; 2],
    signals: [&[f32]; 2],
) -> [[f32; FEW]; 2] {
    let length = rows[0].len();
    let whole = length / S::F32_LANES * S::F32_LANES;
    let mut sums = [[simd.splat_f32s(0.0); N]; 2];
    let vectors = rows.map(|row| f32::vectors::<S>(&row[..whole]));
    // slices of one length each: no window has its bounds checked
    let windows = signals
        .map(|signal| std::array::from_fn::<_, N, _>(|s| f32::vectors::<S>(&signal[s..s + whole])));
    let count = whole / S::F32_LANES;
    let (vectors, windows) = (
        vectors.map(|all| &all[..count]),
        windows.map(|some| some.map(|all| &all[..count])),
    );
    for k in 0..count {
        for i in 0..2 {
            for s in 0..N {
                sums[i][s] = simd.mul_add_f32s(vectors[i][k], windows[i][s][k], sums[i][s]);
            }
        }
    }
    let mut out = [[0.0; FEW]; 2];
    for i in 0..2 {
        for s in 0..N {
            let rest: f32 = (whole..length)
                .map(|b| rows[i][b] * signals[i][b + s])
                .sum();
            out[i][s] = simd.reduce_sum_f32s(sums[i][s]) + rest;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meets_plain_sums() {
        let (count, length, wanted) = (8, 37, 5);
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
        for wanted in [0..0, 0..1, 2..4, 2..5, 1..5, 0..5, 2..8, 3..11, 1..16] {
            let (pair, other) = ([&rows[..length], &rows[length..2 * length]], &signal[1..]);
            let sums = correlate_two(pair, [&signal, other], wanted.clone());
            for ((row, signal), sums) in pair.into_iter().zip([&signal[..], other]).zip(sums) {
                assert_eq!(sums.len(), wanted.len());
                for (s, few) in wanted.clone().zip(sums) {
                    let exact: f32 = (0..length).map(|b| row[b] * signal[b + s]).sum();
                    assert!((few - exact).abs() < 1e-4, "shift {s}: {few} {exact}");
                }
            }
        }
    }
}
