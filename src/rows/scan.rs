//! Cross-correlation of rows with a signal over a range of shifts.

use pulp::{Simd, WithSimd};

use super::Real;

/// Rows and vectors of shifts in a register tile.
const SIDE: usize = 4;
const VECTORS: usize = 2;
/// Most shifts in a register tile of any machine.
const WIDEST: usize = 32;

/// out\[r\]\[s\] = Σ_b rows\[r\]\[b\] signal\[b + s\], s = 0…shifts − 1; `signal` has length + `padded_shifts(shifts)` elements.
pub struct Correlate<'a> {
    /// (count, length), count a multiple of 4.
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
        for r in (0..rows.len() / length).step_by(SIDE) {
            let four: [&[f32]; SIDE] = std::array::from_fn(|i| &rows[(r + i) * length..(r + i + 1) * length]);
            for s in (0..shifts).step_by(VECTORS * S::F32_LANES) {
                let sums = tile(simd, four, &signal[s..s + length + VECTORS * S::F32_LANES]);
                for (i, sum) in sums.iter().enumerate() {
                    let sum = f32::elements::<S>(sum);
                    out[(r + i) * shifts + s..][..sum.len()].copy_from_slice(sum);
                }
            }
        }
    }
}

/// Four rows against two vectors of shifts: eight accumulators.
#[inline(always)]
fn tile<S: Simd>(simd: S, rows: [&[f32]; SIDE], signal: &[f32]) -> [[S::f32s; VECTORS]; SIDE] {
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; SIDE];
    let length = rows[0].len();
    let rows = rows.map(|row| &row[..length]);
    for j in 0..length {
        let low = simd.partial_load_f32s(&signal[j..j + S::F32_LANES]);
        let high = simd.partial_load_f32s(&signal[j + S::F32_LANES..j + 2 * S::F32_LANES]);
        for (sums, row) in sums.iter_mut().zip(&rows) {
            let factor = simd.splat_f32s(row[j]);
            sums[0] = simd.mul_add_f32s(factor, low, sums[0]);
            sums[1] = simd.mul_add_f32s(factor, high, sums[1]);
        }
    }
    sums
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
        Correlate { rows: &rows, length, signal: &signal, out: &mut out, shifts }.run();
        for r in 0..count {
            for s in 0..shifts {
                let exact: f32 = (0..length).map(|b| rows[r * length + b] * signal[b + s]).sum();
                assert!((out[r * shifts + s] - exact).abs() < 1e-4);
            }
        }
    }
}
