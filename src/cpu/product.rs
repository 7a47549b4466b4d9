//! Matrix product of a tile: output\[row\]\[n\] = Σ_k input\[row\]\[k\] weight\[k\]\[n\]. Twin of `shaders/product.wgsl`.
//!
//! Weights are packed once, in panels of 64 columns, so that a tile of a few dozen rows pays no packing (a general product
//! packs the 3 MB of a DESI output layer again in every call). While rows go by a panel, the next one is brought near. Every
//! element is one chain of fused multiply-adds in ascending k: a row has the same bits in any tile.

use std::hint::black_box;

use pulp::{Simd, WithSimd};

use crate::rows::Real;

/// Columns of a panel.
pub const PANEL: usize = 64;
const LINES: usize = 4;

/// Weights side by side: in f32 a line of the cache, which no vector straddles.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Line<R>([R; PANEL / LINES]);

/// A panel's row.
pub type Row<R> = [Line<R>; LINES];

/// (inner, columns) row-major to panels (panel, inner, 64), the last one zero padded.
pub fn pack<R: Real>(weight: &[R], inner: usize, columns: usize) -> Vec<Row<R>> {
    let mut packed = vec![[Line([R::ZERO; PANEL / LINES]); LINES]; columns.div_ceil(PANEL) * inner];
    for (p, panel) in packed.chunks_exact_mut(inner).enumerate() {
        let start = p * PANEL;
        let count = PANEL.min(columns - start);
        for (k, row) in panel.iter_mut().enumerate() {
            let own = weight[k * columns + start..][..count].chunks(PANEL / LINES);
            row.iter_mut().zip(own).for_each(|(line, own)| line.0[..own.len()].copy_from_slice(own));
        }
    }
    packed
}

/// The product of a tile's rows.
pub struct Product<'a, R> {
    /// (rows, inner)
    pub input: &'a [R],
    /// From [`pack`].
    pub packed: &'a [Row<R>],
    /// (rows, columns)
    pub output: &'a mut [R],
    pub inner: usize,
    pub columns: usize,
}

impl<R: Real> Product<'_, R> {
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> WithSimd for Product<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // as many accumulators as the registers hold, besides the weights and one factor
        if S::REGISTER_COUNT >= 32 { self.panels::<S, 6, 4>(simd) } else { self.panels::<S, 6, 2>(simd) }
    }
}

/// A panel, where its columns go, and some lines of the next one.
struct Panel<'a, R> {
    rows: &'a [Row<R>],
    first: usize,
    columns: usize,
    /// One a row.
    next: &'a [Line<R>],
}

impl<R: Real> Product<'_, R> {
    /// `N` rows against `V` vectors of columns at a time.
    #[inline(always)]
    fn panels<S: Simd, const N: usize, const V: usize>(self, simd: S) {
        let Product { input, packed, output, inner, columns } = self;
        for (p, rows) in packed.chunks_exact(inner).enumerate() {
            let next = packed.get((p + 1) * inner..).and_then(|rest| rest.get(..inner)).unwrap_or(rows).as_flattened();
            let groups = input.chunks(N * inner).zip(output.chunks_mut(N * columns));
            for ((input, output), part) in groups.zip((0..LINES).cycle()) {
                let next = &next[part * inner..][..inner];
                let panel = Panel { rows, first: p * PANEL, columns, next };
                match input.len() / inner {
                    6 => tile::<R, S, 6, V>(simd, input, &panel, output),
                    5 => tile::<R, S, 5, V>(simd, input, &panel, output),
                    4 => tile::<R, S, 4, V>(simd, input, &panel, output),
                    3 => tile::<R, S, 3, V>(simd, input, &panel, output),
                    2 => tile::<R, S, 2, V>(simd, input, &panel, output),
                    _ => tile::<R, S, 1, V>(simd, input, &panel, output),
                }
            }
        }
    }
}

/// `N` rows against one panel.
#[inline(always)]
fn tile<R: Real, S: Simd, const N: usize, const V: usize>(
    simd: S,
    input: &[R],
    panel: &Panel<'_, R>,
    output: &mut [R],
) {
    let Panel { rows: weights, first, columns, next } = *panel;
    let (lanes, inner) = (R::lanes::<S>(), weights.len());
    let count = PANEL.min(columns - first);
    let rows: [&[R]; N] = std::array::from_fn(|r| &input[r * inner..][..inner]);
    for start in (0..PANEL).step_by(V * lanes) {
        let mut sums = [[R::splat(simd, R::ZERO); V]; N];
        let mut touched = 0;
        for (k, (weights, next)) in weights.iter().zip(next).enumerate() {
            // read, so that it is in the cache when its turn comes
            touched |= next.0[0].bits();
            let weights: [R::Vector<S>; V] = std::array::from_fn(|v| {
                let place = start + v * lanes;
                R::vectors::<S>(&weights[place * LINES / PANEL].0)[place % (PANEL / LINES) / lanes]
            });
            for (sums, row) in sums.iter_mut().zip(&rows) {
                let x = R::splat(simd, row[k]);
                for (sum, weight) in sums.iter_mut().zip(&weights) {
                    *sum = R::multiply_add(simd, *weight, x, *sum);
                }
            }
        }
        black_box(touched);
        // a copy to be read in a loop: the sums themselves stay in registers only where each is read by its own name
        let sums: [[R::Vector<S>; V]; N] = std::array::from_fn(|r| std::array::from_fn(|v| sums[r][v]));
        let width = (V * lanes).min(count.saturating_sub(start));
        for (r, sum) in sums.iter().enumerate() {
            let out = &mut output[r * columns + first + start.min(count)..][..width];
            match R::vectors_mut::<S>(out) {
                // a copy of unknown length would be a call
                whole if whole.len() == V => whole.copy_from_slice(sum),
                _ => out.copy_from_slice(&R::elements::<S>(sum)[..width]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_same_bits_in_any_tile() {
        for (inner, columns) in [(4, 256), (200, 3872), (256, 208), (300, 1024), (1000, 64)] {
            let value = |k: usize| ((k * 7919 + 13) % 1009) as f32 / 1009.0 - 0.5;
            let input: Vec<f32> = (0..70 * inner).map(value).collect();
            let weight: Vec<f32> = (0..inner * columns).map(|k| value(k + 5)).collect();
            let mut all = vec![f32::NAN; 70 * columns];
            let packed = pack(&weight, inner, columns);
            Product { input: &input, packed: &packed, output: &mut all, inner, columns }.run();
            for (start, rows) in [(0, 1), (3, 2), (5, 5), (65, 5), (10, 15), (1, 32)] {
                let mut some = vec![f32::NAN; rows * columns];
                let input = &input[start * inner..][..rows * inner];
                Product { input, packed: &packed, output: &mut some, inner, columns }.run();
                let expected = &all[start * columns..][..rows * columns];
                assert!(some.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits()), "{inner} {columns} {rows}");
                // number by number, as a machine without vectors does
                let plain = Product { input, packed: &packed, output: &mut some, inner, columns };
                plain.with_simd(pulp::Scalar::new());
                assert!(some.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits()), "{inner} {columns} {rows}");
            }
        }
    }
}
