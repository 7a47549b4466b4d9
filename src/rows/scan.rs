//! Cross-correlation of rows with a signal over a range of shifts.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::Real;

/// Rows in a register tile, against one vector of shifts: eight accumulators.
const SIDE: usize = 8;
/// Most shifts in a vector of any machine.
const WIDEST: usize = 16;

/// Rows as [`Correlate`] reads them: (count, length) to (count / 8, length, 8), count a multiple of 8.
pub fn interleaved(rows: &[f32], length: usize) -> Vec<f32> {
    let eight =
        |some: &[f32]| (0..length).flat_map(|j| (0..SIDE).map(move |i| i * length + j)).map(|k| some[k]).collect();
    rows.chunks_exact(SIDE * length).flat_map(|some| -> Vec<f32> { eight(some) }).collect()
}

/// out\[r\]\[s\] = Σ_b rows\[r\]\[b\] signal\[b + s\], s = 0…shifts − 1; `signal` has length + `padded_shifts(shifts)` elements.
pub struct Correlate<'a> {
    /// (count, length), [`interleaved`].
    pub rows: &'a [f32],
    pub length: usize,
    pub signal: &'a [f32],
    /// (count, shifts), shifts from [`padded_shifts`].
    pub out: &'a mut [f32],
    pub shifts: usize,
}

/// Shifts are padded to this.
pub const fn padded_shifts(shifts: usize) -> usize {
    shifts.next_multiple_of(WIDEST)
}

impl Correlate<'_> {
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl WithSimd for Correlate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Correlate { rows, length, signal, out, shifts } = self;
        // two vectors of shifts at once hide the latency of the sums, where there are registers for them
        let both = if S::REGISTER_COUNT >= 32 { shifts / S::F32_LANES / 2 * 2 * S::F32_LANES } else { 0 };
        for r in (0..rows.len() / length).step_by(SIDE) {
            let (some, out) = (&rows[r * length..(r + SIDE) * length], &mut out[r * shifts..(r + SIDE) * shifts]);
            for s in (0..both).step_by(2 * S::F32_LANES) {
                put::<S, 2>(tile(simd, some, &signal[s..]), &mut out[s..], shifts);
            }
            for s in (both..shifts).step_by(S::F32_LANES) {
                put::<S, 1>(tile(simd, some, &signal[s..]), &mut out[s..], shifts);
            }
        }
    }
}

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

/// Σ_b row\[b\] signal\[b + s\] for each of some shifts.
pub fn correlate_one(row: &[f32], signal: &[f32], shifts: Range<usize>) -> Vec<f32> {
    let mut out = vec![0.0; shifts.len()];
    for (first, out) in shifts.step_by(SIDE).zip(out.chunks_mut(SIDE)) {
        pulp::Arch::new().dispatch(Few { row, signal: &signal[first..], out });
    }
    out
}

/// At most eight shifts, from 0.
struct Few<'a> {
    row: &'a [f32],
    signal: &'a [f32],
    out: &'a mut [f32],
}

impl WithSimd for Few<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Few { row, signal, out } = self;
        // a look at seven velocities asks for eight; in arms of wider bins, or at an end of the range, for fewer
        match out.len() {
            8 => out.copy_from_slice(&few::<S, 8>(simd, row, signal)),
            7 => out.copy_from_slice(&few::<S, 7>(simd, row, signal)),
            6 => out.copy_from_slice(&few::<S, 6>(simd, row, signal)),
            _ => {
                for (s, out) in out.iter_mut().enumerate() {
                    [*out] = few::<S, 1>(simd, row, &signal[s..]);
                }
            }
        }
    }
}

#[inline(always)]
fn few<S: Simd, const N: usize>(simd: S, row: &[f32], signal: &[f32]) -> [f32; N] {
    let whole = row.len() / S::F32_LANES * S::F32_LANES;
    let mut sums = [simd.splat_f32s(0.0); N];
    for (b, x) in (0..whole).step_by(S::F32_LANES).zip(f32::vectors::<S>(&row[..whole])) {
        for (s, sum) in sums.iter_mut().enumerate() {
            let window = f32::vectors::<S>(&signal[b + s..b + s + S::F32_LANES])[0];
            *sum = simd.mul_add_f32s(*x, window, *sum);
        }
    }
    let rest = |s: usize| (whole..row.len()).map(|b| row[b] * signal[b + s]).sum::<f32>();
    std::array::from_fn(|s| simd.reduce_sum_f32s(sums[s]) + rest(s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meets_plain_sums() {
        let (count, length, shifts) = (8, 37, padded_shifts(5));
        let value = |k: usize| ((k * 7919) % 101) as f32 / 101.0 - 0.5;
        let rows: Vec<f32> = (0..count * length).map(value).collect();
        let signal: Vec<f32> = (0..length + shifts).map(|k| value(k + 13)).collect();
        let mut out = vec![f32::NAN; count * shifts];
        Correlate { rows: &interleaved(&rows, length), length, signal: &signal, out: &mut out, shifts }.run();
        for r in 0..count {
            for s in 0..shifts {
                let exact: f32 = (0..length).map(|b| rows[r * length + b] * signal[b + s]).sum();
                assert!((out[r * shifts + s] - exact).abs() < 1e-4);
            }
        }
        for wanted in [0..0, 0..1, 2..7, 1..7, 0..7, 3..11, 1..16] {
            let few = correlate_one(&rows[..length], &signal, wanted.clone());
            assert_eq!(few.len(), wanted.len());
            for (s, few) in wanted.zip(few) {
                let exact: f32 = (0..length).map(|b| rows[b] * signal[b + s]).sum();
                assert!((few - exact).abs() < 1e-4, "shift {s}: {few} {exact}");
            }
        }
    }
}
