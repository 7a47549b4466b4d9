//! Standard errors and correlations from a normal matrix (P, P), in f64 on the host (see `docs/src/equations.md`).

use nalgebra::{DMatrix, DVector, SymmetricEigen};

use crate::math::triangle::packed_index;

/// Standard errors and correlations of the parameters that are free at the solution.
#[derive(Clone, Debug)]
pub struct Covariance {
    /// Standard errors (P): NaN for parameters that are not free, infinite for those that the data do not determine.
    pub errors: Vec<f64>,
    /// Correlations (P (P − 1) / 2) of the pairs (0,1), (0,2), …; NaN if one of the pair has no finite error.
    pub correlations: Vec<f64>,
    /// Number of directions that the data do not determine. A parameter without effect is one.
    pub undetermined: usize,
}

/// Inverts the packed normal matrix of the free parameters into errors, correlations and the number of undetermined
/// directions.
///
/// The matrix is scaled to a unit diagonal. Directions whose eigenvalue is below `tolerance` are undetermined.
/// Parameters that take part in them, and those without effect, have infinite errors. The others have those of the
/// pseudo-inverse.
pub fn covariance(normal_matrix: &[f64], free: &[bool], tolerance: f64) -> Covariance {
    // 1. Leave out parameters without effect.
    let count = free.len();
    let diagonal_of = |p: usize| normal_matrix[packed_index(p, p)];
    let acts = |p: &usize| diagonal_of(*p) > 0.0 && diagonal_of(*p).is_finite();
    let (index, idle): (Vec<usize>, Vec<usize>) = (0..count).filter(|&p| free[p]).partition(acts);
    let n = index.len();
    let mut out = Covariance {
        errors: vec![f64::NAN; count],
        correlations: vec![f64::NAN; count * count.saturating_sub(1) / 2],
        undetermined: idle.len(),
    };
    idle.iter().for_each(|&p| out.errors[p] = f64::INFINITY);
    if n == 0 {
        return out;
    }
    // 2. Invert the scaled matrix without its undetermined directions.
    let diagonal: Vec<f64> = index.iter().map(|&p| diagonal_of(p)).collect();
    let scaled = DMatrix::from_fn(n, n, |i, j| {
        normal_matrix[packed_index(index[i], index[j])] / (diagonal[i] * diagonal[j]).sqrt()
    });
    let eigen = SymmetricEigen::new(scaled);
    let kept: Vec<bool> = eigen.eigenvalues.iter().map(|&v| v > tolerance).collect();
    let mut determined = vec![true; n];
    let mut inverse = DMatrix::zeros(n, n);
    for (k, kept) in kept.iter().enumerate() {
        let vector: DVector<f64> = eigen.eigenvectors.column(k).into_owned();
        if *kept {
            inverse += &vector * vector.transpose() / eigen.eigenvalues[k];
        } else {
            out.undetermined += 1;
            determined
                .iter_mut()
                .zip(vector.iter())
                .for_each(|(d, v)| *d &= v.abs() < 1e-3);
        }
    }
    // 3. Scale back to errors and correlations.
    for i in 0..n {
        if !determined[i] {
            out.errors[index[i]] = f64::INFINITY;
            continue;
        }
        out.errors[index[i]] = (inverse[(i, i)] / diagonal[i]).sqrt();
        for j in (0..i).filter(|&j| determined[j]) {
            let pair = pair_index(index[j], index[i], count);
            out.correlations[pair] = inverse[(i, j)] / (inverse[(i, i)] * inverse[(j, j)]).sqrt();
        }
    }
    out
}

/// Returns the place of the correlation of parameters a < b in the flat list of all pairs of `count` parameters.
pub fn pair_index(a: usize, b: usize, count: usize) -> usize {
    a * (2 * count - a - 1) / 2 + b - a - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverts_and_names_the_degenerate() {
        // [[4, 2], [2, 3]]⁻¹ = [[3, −2], [−2, 4]] / 8; the middle parameter is held
        let packed = [4.0, 0.0, 1.0, 2.0, 0.0, 3.0];
        let c = covariance(&packed, &[true, false, true], 1e-10);
        assert!((c.errors[0] - (3f64 / 8.0).sqrt()).abs() < 1e-12 && c.errors[1].is_nan());
        assert!((c.correlations[pair_index(0, 2, 3)] + 2.0 / 12f64.sqrt()).abs() < 1e-12);
        // the first two parameters only occur as a product
        let packed = [1.0, 1.0, 1.0, 0.0, 0.0, 4.0];
        let c = covariance(&packed, &[true; 3], 1e-10);
        assert!(
            c.undetermined == 1
                && c.errors[..2] == [f64::INFINITY; 2]
                && c.correlations[0].is_nan()
        );
        assert!((c.errors[2] - 0.5).abs() < 1e-12);
        // the first has no effect, which changes nothing for the others
        let packed = [0.0, 0.0, 4.0, 0.0, 2.0, 3.0];
        let c = covariance(&packed, &[true; 3], 1e-10);
        assert!(c.undetermined == 1 && c.errors[0] == f64::INFINITY && c.correlations[0].is_nan());
        assert!((c.errors[1] - (3f64 / 8.0).sqrt()).abs() < 1e-12 && c.correlations[2].is_finite());
    }

    #[test]
    fn pairs_are_numbered_in_order() {
        let order: Vec<usize> = (0..4)
            .flat_map(|a| (a + 1..4).map(move |b| pair_index(a, b, 4)))
            .collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    }
}
