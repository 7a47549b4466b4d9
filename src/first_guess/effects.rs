//! Effect of each label on a library's lines.

use nalgebra::DMatrix;

/// Returns for each label how much lines change over its range (root of summed squares of a linear fit), relative to
/// the largest.
///
/// `labels` (templates, labels) have the range 1, or 0 where they are fixed. Each of `lines` is (templates, bins), one
/// per segment. The changes are the coefficients c of a linear fit, l ≈ c₀ + Σ c_k x_k in every bin, so that labels
/// which are correlated in the library do not count for each other.
pub fn effects(labels: &[Vec<f64>], lines: &[&[f32]]) -> Vec<f64> {
    let (templates, count) = (labels.len(), labels.first().map_or(0, Vec::len));
    let design = DMatrix::from_fn(templates, count + 1, |row, k| {
        if k < count { labels[row][k] } else { 1.0 }
    });
    // a fixed label is a multiple of the constant, which the pseudo-inverse shares between them
    let Ok(inverse) = design.pseudo_inverse(1e-9) else {
        return vec![1.0; count];
    };
    let mut squares = vec![0.0; count];
    for lines in lines {
        let bins = lines.len() / templates;
        let mut change = vec![0.0; bins];
        for (k, square) in squares.iter_mut().enumerate() {
            change.fill(0.0);
            for (template, line) in lines.chunks_exact(bins).enumerate() {
                let factor = inverse[(k, template)];
                change
                    .iter_mut()
                    .zip(line)
                    .for_each(|(sum, l)| *sum += factor * f64::from(*l));
            }
            *square += change.iter().map(|c| c * c).sum::<f64>();
        }
    }
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
    fn a_label_counts_by_what_it_changes_itself() {
        // the second label follows the first, and changes a quarter as much; the third is fixed
        let labels: Vec<Vec<f64>> = (0..20)
            .map(|k| (f64::from(k) / 19.0, f64::from(k * k % 7) / 12.0))
            .map(|(a, b)| vec![a, a / 2.0 + b, 0.0])
            .collect();
        let lines: Vec<f32> = labels
            .iter()
            .flat_map(|x| [(3.0 * x[0]) as f32, (4.0 * x[0] + 1.25 * x[1]) as f32])
            .collect();
        let found = effects(&labels, &[&lines[..], &lines[..]]);
        assert!(
            (found[0] - 1.0).abs() < 1e-6 && (found[1] - 0.25).abs() < 1e-6 && found[2] < 1e-6,
            "{found:?}"
        );
    }
}
