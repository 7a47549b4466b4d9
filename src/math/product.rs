//! Matrix product of row-major matrices: output\[row\]\[n\] = Σ_k input\[row\]\[k\] weight\[k\]\[n\]. Twin of
//! `shaders/product.wgsl`.
//!
//! Weights are packed once, in panels of 64 columns, so that a product of a few dozen rows needs no packing. While rows
//! are multiplied by a panel, the next panel is prefetched. Every element is one chain of fused multiply-adds in
//! ascending k: a row has the same bits whichever rows are computed with it. A general library's product packs the 3 MB
//! of a DESI output layer again in every call, and its sums depend on the number of rows. The first guess,
//! `Emulator::templates` and `popfit-argmin` use this product, too.

use std::hint::black_box;

use pulp::{Simd, WithSimd};

use crate::math::Real;

/// Number of columns of a panel.
const PANEL_COLUMNS: usize = 64;
/// Number of lines of each row of a panel.
const LINES_PER_PANEL: usize = 4;
/// Number of columns of a line.
const LINE_COLUMNS: usize = PANEL_COLUMNS / LINES_PER_PANEL;

/// Weights of neighbouring columns: in f32 a cache line, which no vector straddles.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct WeightLine<R>([R; LINE_COLUMNS]);

/// Row of a panel.
type PanelRow<R> = [WeightLine<R>; LINES_PER_PANEL];

/// Matrix (inner, columns) packed in panels (panel, inner, 64), the last one padded with zeros: the right factor of
/// products.
#[derive(Clone, Debug)]
pub struct Packed<R> {
    rows: Vec<PanelRow<R>>,
    inner: usize,
    columns: usize,
}

impl<R: Real> Packed<R> {
    /// Returns the numbers of rows and of columns of the matrix.
    pub fn shape(&self) -> [usize; 2] {
        [self.inner, self.columns]
    }

    /// Packs a row-major matrix (inner, columns) into panels of columns, as products read it.
    pub fn new(matrix: &[R], inner: usize, columns: usize) -> Packed<R> {
        let mut packed = Packed::zeros(inner, columns);
        for (p, panel) in packed.rows.chunks_exact_mut(inner.max(1)).enumerate() {
            let start = p * PANEL_COLUMNS;
            let count = PANEL_COLUMNS.min(columns - start);
            for (k, row) in panel.iter_mut().enumerate() {
                let sources = matrix[k * columns + start..][..count].chunks(LINE_COLUMNS);
                for (line, source) in row.iter_mut().zip(sources) {
                    line.0[..source.len()].copy_from_slice(source);
                }
            }
        }
        packed
    }

    /// Packs the transpose of a row-major matrix (columns, inner) into panels, as products read it.
    pub fn transposed(matrix: &[R], columns: usize, inner: usize) -> Packed<R> {
        let mut packed = Packed::zeros(inner, columns);
        packed.set_transposed(matrix, columns, inner);
        packed
    }

    /// Replaces the matrix by the transpose of a row-major one (columns, inner), in the same memory if it has its
    /// shape.
    pub fn set_transposed(&mut self, matrix: &[R], columns: usize, inner: usize) {
        if self.shape() != [inner, columns] {
            *self = Packed::zeros(inner, columns);
        }
        let lines = matrix[..columns * inner].chunks(LINE_COLUMNS * inner.max(1));
        for (n, sources) in lines.enumerate() {
            let panel = &mut self.rows[n / LINES_PER_PANEL * inner..][..inner];
            let columns = sources.chunks_exact(inner);
            // A whole line at a time is written once, and each of its columns is read in order.
            for (k, row) in panel.iter_mut().enumerate() {
                let line = &mut row[n % LINES_PER_PANEL].0;
                line.iter_mut()
                    .zip(columns.clone())
                    .for_each(|(x, column)| *x = column[k]);
            }
        }
    }

    /// Makes a packed matrix (inner, columns) of zeros.
    pub fn zeros(inner: usize, columns: usize) -> Packed<R> {
        let rows = vec![
            [WeightLine([R::ZERO; LINE_COLUMNS]); LINES_PER_PANEL];
            columns.div_ceil(PANEL_COLUMNS) * inner
        ];
        Packed {
            rows,
            inner,
            columns,
        }
    }

    /// Returns `input` (rows, inner) times this matrix: (rows, columns).
    pub fn product(&self, input: &[R]) -> Vec<R> {
        let mut output = vec![R::ZERO; input.len() / self.inner.max(1) * self.columns];
        MatrixProduct {
            input,
            packed: self,
            output: &mut output,
            accumulate: false,
        }
        .run();
        output
    }

    /// Returns the size of the packed weights in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.rows[..])
    }

    /// Returns the size that [`new`](Packed::new) and [`transposed`](Packed::transposed) would have, in bytes.
    pub fn bytes_of(inner: u64, columns: u64) -> u64 {
        columns
            .next_multiple_of(PANEL_COLUMNS as u64)
            .saturating_mul(inner)
            .saturating_mul(size_of::<R>() as u64)
    }
}

/// Product of some rows and a packed matrix.
#[derive(Debug)]
pub struct MatrixProduct<'a, R> {
    /// (rows, inner)
    pub input: &'a [R],
    /// (inner, columns)
    pub packed: &'a Packed<R>,
    /// (rows, columns)
    pub output: &'a mut [R],
    /// Adds the product to the output instead of replacing it.
    pub accumulate: bool,
}

impl<R: Real> MatrixProduct<'_, R> {
    /// Computes `output` = `input` times the packed matrix, or adds that to `output` if `accumulate`.
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> WithSimd for MatrixProduct<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // As many accumulators as the registers hold, besides the weights and one factor.
        if S::REGISTER_COUNT >= 32 {
            self.multiply_panels::<S, 6, 4>(simd)
        } else {
            self.multiply_panels::<S, 6, 2>(simd)
        }
    }
}

/// Panel to multiply by, the destination of its columns, and the lines to prefetch.
struct PanelTask<'a, R> {
    rows: &'a [PanelRow<R>],
    /// First column in the output.
    first: usize,
    columns: usize,
    accumulate: bool,
    /// Lines of the next panel, one per row of this one.
    prefetched: &'a [WeightLine<R>],
}

impl<R: Real> MatrixProduct<'_, R> {
    /// Computes the matrix product, `N` rows against `V` vectors of columns at a time.
    #[inline(always)]
    fn multiply_panels<S: Simd, const N: usize, const V: usize>(self, simd: S) {
        let MatrixProduct {
            input,
            packed:
                &Packed {
                    rows: ref packed,
                    inner,
                    columns,
                },
            output,
            accumulate,
        } = self;
        if inner == 0 && !accumulate {
            output.fill(R::ZERO);
        }
        for (p, rows) in packed.chunks_exact(inner.max(1)).enumerate() {
            let next_panel = packed
                .get((p + 1) * inner..)
                .and_then(|rest| rest.get(..inner))
                .unwrap_or(rows)
                .as_flattened();
            // Each group of N rows brings a quarter of the next panel into the cache.
            let groups = input.chunks(N * inner).zip(output.chunks_mut(N * columns));
            for ((input, output), line) in groups.zip((0..LINES_PER_PANEL).cycle()) {
                let prefetched = &next_panel[line * inner..][..inner];
                let task = PanelTask {
                    rows,
                    first: p * PANEL_COLUMNS,
                    columns,
                    accumulate,
                    prefetched,
                };
                match input.len() / inner {
                    6 => multiply_tile::<R, S, 6, V>(simd, input, &task, output),
                    5 => multiply_tile::<R, S, 5, V>(simd, input, &task, output),
                    4 => multiply_tile::<R, S, 4, V>(simd, input, &task, output),
                    3 => multiply_tile::<R, S, 3, V>(simd, input, &task, output),
                    2 => multiply_tile::<R, S, 2, V>(simd, input, &task, output),
                    _ => multiply_tile::<R, S, 1, V>(simd, input, &task, output),
                }
            }
        }
    }
}

/// Multiplies `N` rows by one panel: `V` vectors of columns at a time, and two or one where fewer are left.
#[inline(always)]
fn multiply_tile<R: Real, S: Simd, const N: usize, const V: usize>(
    simd: S,
    input: &[R],
    task: &PanelTask<'_, R>,
    output: &mut [R],
) {
    let lanes = R::lanes::<S>();
    let inner = task.rows.len();
    let count = PANEL_COLUMNS.min(task.columns - task.first);
    let rows: [&[R]; N] = std::array::from_fn(|r| &input[r * inner..][..inner]);
    let mut start = 0;
    while start < count {
        if count - start > (V - 1) * lanes {
            multiply_strip::<R, S, N, V>(simd, &rows, task, start, output);
            start += V * lanes;
        } else if V > 2 && count - start > lanes {
            multiply_strip::<R, S, N, 2>(simd, &rows, task, start, output);
            start += 2 * lanes;
        } else {
            multiply_strip::<R, S, N, 1>(simd, &rows, task, start, output);
            start += lanes;
        }
    }
}

/// Multiplies `N` rows by `V` vectors of a panel's columns, from the column `start` on.
#[inline(always)]
fn multiply_strip<R: Real, S: Simd, const N: usize, const V: usize>(
    simd: S,
    rows: &[&[R]; N],
    task: &PanelTask<'_, R>,
    start: usize,
    output: &mut [R],
) {
    let PanelTask {
        rows: weights,
        first,
        columns,
        accumulate,
        prefetched,
    } = *task;
    let lanes = R::lanes::<S>();
    let mut sums = [[R::splat(simd, R::ZERO); V]; N];
    let mut prefetched_bits = 0;
    for (k, (weights, next_line)) in weights.iter().zip(prefetched).enumerate() {
        // Reading the line brings it into the cache.
        prefetched_bits |= next_line.0[0].bits();
        let weights: [R::Vector<S>; V] = std::array::from_fn(|v| {
            let column = start + v * lanes;
            R::vectors::<S>(&weights[column / LINE_COLUMNS].0)[column % LINE_COLUMNS / lanes]
        });
        for (sums, row) in sums.iter_mut().zip(rows) {
            let x = R::splat(simd, row[k]);
            for (sum, weight) in sums.iter_mut().zip(&weights) {
                *sum = R::multiply_add(simd, *weight, x, *sum);
            }
        }
    }
    black_box(prefetched_bits);
    // Loops below read a copy: the sums themselves stay in registers only if each is read by a constant index.
    let mut sums: [[R::Vector<S>; V]; N] =
        std::array::from_fn(|r| std::array::from_fn(|v| sums[r][v]));
    let width = (V * lanes).min(columns - first - start);
    for (r, sums) in sums.iter_mut().enumerate() {
        let out = &mut output[r * columns + first + start..][..width];
        match R::vectors_mut::<S>(out) {
            // A copy of unknown length would be a call.
            whole if whole.len() == V => {
                if accumulate {
                    for (sum, out) in sums.iter_mut().zip(&*whole) {
                        *sum = R::plus(simd, *out, *sum);
                    }
                }
                whole.copy_from_slice(sums);
            }
            _ if accumulate => out
                .iter_mut()
                .zip(R::elements::<S>(sums))
                .for_each(|(out, sum)| *out += *sum),
            _ => out.copy_from_slice(&R::elements::<S>(sums)[..width]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_same_bits_in_any_tile() {
        for (inner, columns) in [(4, 256), (200, 3872), (256, 208), (300, 1024), (1000, 64)] {
            let value = |k: usize| ((k * 7919 + 13) % 1009) as f32 / 1009.0 - 0.5;
            let input: Vec<f32> = (0..70 * inner).map(value).collect();
            let weight: Vec<f32> = (0..inner * columns).map(|k| value(k + 5)).collect();
            let mut all_rows = vec![f32::NAN; 70 * columns];
            let packed = &Packed::new(&weight, inner, columns);
            MatrixProduct {
                input: &input,
                packed,
                output: &mut all_rows,
                accumulate: false,
            }
            .run();
            for (start, rows) in [(0, 1), (3, 2), (5, 5), (65, 5), (10, 15), (1, 32)] {
                let mut some_rows = vec![f32::NAN; rows * columns];
                let input = &input[start * inner..][..rows * inner];
                MatrixProduct {
                    input,
                    packed,
                    output: &mut some_rows,
                    accumulate: false,
                }
                .run();
                let expected = &all_rows[start * columns..][..rows * columns];
                assert!(
                    some_rows
                        .iter()
                        .zip(expected)
                        .all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{inner} {columns} {rows}"
                );
                // Number by number, as on a machine without vectors.
                let scalar_product = MatrixProduct {
                    input,
                    packed,
                    output: &mut some_rows,
                    accumulate: false,
                };
                scalar_product.with_simd(pulp::Scalar::new());
                assert!(
                    some_rows
                        .iter()
                        .zip(expected)
                        .all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{inner} {columns} {rows}"
                );
            }
        }
    }

    fn assert_products_agree_with_plain_sums<R: Real>(rows: usize, inner: usize, columns: usize) {
        let value = |k: usize| R::of(((k * 7919 + 13) % 1009) as f64 / 1009.0 - 0.5);
        let input: Vec<R> = (0..rows * inner).map(value).collect();
        let weight: Vec<R> = (0..inner * columns).map(|k| value(k + 5)).collect();
        let transposed_weight: Vec<R> = (0..columns)
            .flat_map(|n| (0..inner).map(move |k| k * columns + n))
            .map(|index| weight[index])
            .collect();
        let packed = [
            Packed::new(&weight, inner, columns),
            Packed::transposed(&transposed_weight, columns, inner),
        ];
        let products = packed.each_ref().map(|packed| packed.product(&input));
        let mut doubled = products[0].clone();
        MatrixProduct {
            input: &input,
            packed: &packed[0],
            output: &mut doubled,
            accumulate: true,
        }
        .run();
        for (row, n) in (0..rows).flat_map(|row| (0..columns).map(move |n| (row, n))) {
            let exact: f64 = (0..inner)
                .map(|k| input[row * inner + k].to_f64() * weight[k * columns + n].to_f64())
                .sum();
            let computed = [
                products[0][row * columns + n],
                products[1][row * columns + n],
            ]
            .map(Real::to_f64);
            assert!(
                (computed[0] - exact).abs() < 1e-4,
                "{rows} {inner} {columns}: {} {exact}",
                computed[0]
            );
            assert_eq!(
                computed[0].to_bits(),
                computed[1].to_bits(),
                "{rows} {inner} {columns}"
            );
            assert_eq!(
                doubled[row * columns + n].to_f64().to_bits(),
                (2.0 * computed[0]).to_bits()
            );
        }
    }

    #[test]
    fn products_of_awkward_sizes_agree_with_plain_sums() {
        for (rows, inner) in [(0, 3), (1, 1), (7, 17), (13, 65)] {
            for columns in [0, 1, 7, 8, 16, 17, 31, 33, 63, 64, 65, 100, 130] {
                assert_products_agree_with_plain_sums::<f32>(rows, inner, columns);
                assert_products_agree_with_plain_sums::<f64>(rows, inner, columns);
            }
        }
        let mut output = [f32::NAN; 6];
        MatrixProduct {
            input: &[],
            packed: &Packed::new(&[], 0, 3),
            output: &mut output,
            accumulate: false,
        }
        .run();
        assert_eq!(output, [0.0; 6], "an empty sum");
    }
}
