//! Matrix product of a tile: output\[row\]\[n\] = Σ_k input\[row\]\[k\] weight\[k\]\[n\]. Twin of `shaders/product.wgsl`.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use crate::rows::Real;

/// Longest sum in one call: up to about here faer gives the same bits whatever the number of rows.
const INNER: usize = 256;

/// (rows, inner) × (inner, columns) → (rows, columns), all row-major.
pub fn product<R: Real>(input: &[R], weight: &[R], output: &mut [R], inner: usize, columns: usize) {
    let rows = input.len() / inner;
    // row-major (r, c) is column-major (c, r): the transposed product has unit strides everywhere
    let input = MatRef::from_column_major_slice(input, inner, rows);
    let weight = MatRef::from_column_major_slice(weight, columns, inner);
    let mut output = MatMut::from_column_major_slice_mut(output, columns, rows);
    for start in (0..inner).step_by(INNER) {
        let count = INNER.min(inner - start);
        let accumulate = if start == 0 { Accum::Replace } else { Accum::Add };
        let (left, right) = (weight.subcols(start, count), input.subrows(start, count));
        matmul(output.as_mut(), accumulate, left, right, R::ONE, Par::Seq);
    }
}
