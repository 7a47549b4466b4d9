//! Effect of each label on a library's lines.

use nalgebra::DMatrix;

/// Returns for each label how much lines change over its range (root of summed squares of a linear fit), relative to
/// the largest.
///
/// `labels` (templates, labels) have the range 1, or 0 where they are fixed. Each of `lines` is (templates, bins), one
/// per segment. The changes are the coefficients c of a linear fit, l ≈ c₀ + Σ c_k x_k in every bin, so that labels
/// which are correlated in the library do not count for each other.
pub fn measure_label_effects(labels: &[Vec<f64>], lines: &[&[f32]]) -> Vec<f64> {
    let templates = labels.len();
    let count = labels.first().map_or(0, Vec::len);
    // 1. Solve the linear fit. The pseudo-inverse shares a fixed label with the constant, of which it is a multiple.
    let design = DMatrix::from_fn(templates, count + 1, |row, k| {
        if k < count { labels[row][k] } else { 1.0 }
    });
    let Ok(inverse) = design.pseudo_inverse(1e-9) else {
        return vec![1.0; count];
    };
    // 2. Sum each label's squared coefficients over the bins of all segments.
    let mut squares = vec![0.0; count];
    for rows in lines {
        let bins = rows.len() / templates;
        let mut coefficients = vec![0.0; bins];
        for (k, square) in squares.iter_mut().enumerate() {
            coefficients.fill(0.0);
            for (template, row) in rows.chunks_exact(bins).enumerate() {
                let factor = inverse[(k, template)];
                for (coefficient, line) in coefficients.iter_mut().zip(row) {
                    *coefficient += factor * f64::from(*line);
                }
            }
            *square += coefficients.iter().map(|c| c * c).sum::<f64>();
        }
    }
    // 3. Compare with the label that changes the lines most.
    let largest = squares.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    squares
        .into_iter()
        .map(|square| (square / largest).sqrt())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_of_correlated_labels_are_separated() {
        // the second label follows the first, and changes a quarter as much; the third is fixed
        let labels: Vec<Vec<f64>> = (0..20)
            .map(|k| (f64::from(k) / 19.0, f64::from(k * k % 7) / 12.0))
            .map(|(a, b)| vec![a, a / 2.0 + b, 0.0])
            .collect();
        let lines: Vec<f32> = labels
            .iter()
            .flat_map(|x| [(3.0 * x[0]) as f32, (4.0 * x[0] + 1.25 * x[1]) as f32])
            .collect();
        let effects = measure_label_effects(&labels, &[&lines[..], &lines[..]]);
        assert!(
            (effects[0] - 1.0).abs() < 1e-6
                && (effects[1] - 0.25).abs() < 1e-6
                && effects[2] < 1e-6,
            "{effects:?}"
        );
    }
}
