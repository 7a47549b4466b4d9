//! The continuum terms that one spectrum's weights determine, by a rank-revealing decomposition (Golub & Van Loan 2013,
//! §5.4.2).

use nalgebra::DMatrix;

/// Share of the largest singular value below which others are dropped.
pub const SMALLEST_SINGULAR_VALUE: f64 = 1e-8;
/// Share of the longest column of the weighted basis below which another column is reached by no data.
const MIN_RELATIVE_LENGTH: f64 = 1e-200;
/// Maximum absolute value of a basis beyond a spectrum's own pixels, so that its product with a weight of 0 is 0.
pub const MAX_BASIS_VALUE: f64 = 1e30;

/// A continuum basis for one spectrum alone.
pub struct DeterminedBasis {
    /// (terms, pixels) The first `rank` rows are orthonormal under the weights and span the combinations of terms that
    /// these determine; the others are 0.
    pub basis: Vec<f32>,
    /// Number of terms that the weights determine.
    pub rank: usize,
    /// ½ ln det of the raw terms' Gram matrix under ivar, on the retained directions.
    pub ln_diagonal: f64,
}

/// Finds a basis of the combinations of continuum terms that the unmasked pixels determine, by singular values; `None`
/// without such pixels or terms.
///
/// `raw` (terms, pixels) is the basis, `weight` (at least pixels) times `scale` is √ivar, 0 where masked. The columns
/// √ivar·p_c are scaled to unit length, and right singular vectors whose singular value is below
/// [`SMALLEST_SINGULAR_VALUE`] of the largest are dropped. The result depends on basis and weights only, so that all
/// starts of a spectrum share it. `None` if no pixel has weight.
pub fn find_determined_basis(
    raw: &[f64],
    pixels: usize,
    weight: &[f32],
    scale: f64,
) -> Option<DeterminedBasis> {
    let stride = weight.len();
    let terms = raw.len() / pixels.max(1);
    let used: Vec<usize> = (0..pixels).filter(|&j| weight[j] > 0.0).collect();
    if used.is_empty() || terms == 0 {
        return None;
    }
    // 1. Make the weighted basis, and scale its columns to unit length.
    let rows = raw.chunks_exact(pixels);
    let mut design = DMatrix::from_iterator(
        used.len(),
        terms,
        rows.clone()
            .flat_map(|row| used.iter().map(|&j| row[j] * f64::from(weight[j]) * scale)),
    );
    let lengths: Vec<f64> = design.column_iter().map(|column| column.norm()).collect();
    let longest = lengths.iter().copied().fold(0.0, f64::max);
    let is_reached = |length: f64| length > longest * MIN_RELATIVE_LENGTH;
    for (mut column, &length) in design.column_iter_mut().zip(&lengths) {
        column.scale_mut(if is_reached(length) {
            length.recip()
        } else {
            0.0
        });
    }
    // 2. Decompose it by way of the triangle of a QR decomposition. Its Gram matrix would lose half of the digits.
    let svd = design.qr().r().svd(false, true);
    let singular_vectors = svd.v_t?;
    let largest = svd.singular_values.max();
    let retained: Vec<usize> = (0..svd.singular_values.len())
        .filter(|&k| svd.singular_values[k] > SMALLEST_SINGULAR_VALUE * largest)
        .collect();
    // 3. Evaluate the retained directions at all pixels: q_k = Σ_c p_c v_ck / (|√ivar·p_c| s_k), times the scale.
    let mut basis = vec![0.0; terms * stride];
    let mut sums = vec![0.0; pixels];
    for (&k, target) in retained.iter().zip(basis.chunks_exact_mut(stride)) {
        sums.fill(0.0);
        for ((c, row), &length) in rows.clone().enumerate().zip(&lengths) {
            if !is_reached(length) {
                continue;
            }
            let factor = singular_vectors[(k, c)] / (length * svd.singular_values[k]) * scale;
            sums.iter_mut()
                .zip(row)
                .for_each(|(sum, value)| *sum += factor * value);
        }
        for (target, sum) in target.iter_mut().zip(&sums) {
            *target = sum.clamp(-MAX_BASIS_VALUE, MAX_BASIS_VALUE) as f32;
        }
    }
    // 4. Sum the logarithms of the determinants that the scaling of columns and the singular values divided out.
    let ln_singular_values = retained.iter().map(|&k| svd.singular_values[k].ln());
    let reached_lengths = lengths.iter().filter(|length| is_reached(**length));
    let ln_lengths = reached_lengths.map(|length| length.ln());
    let ln_diagonal = ln_singular_values.sum::<f64>() + ln_lengths.sum::<f64>();
    Some(DeterminedBasis {
        basis,
        rank: retained.len(),
        ln_diagonal,
    })
}
