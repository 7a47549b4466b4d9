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
    /// Number of directions that the data do not determine, which include parameters without effect.
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
    let has_effect = |p: &usize| diagonal_of(*p) > 0.0 && diagonal_of(*p).is_finite();
    let (indices, without_effect): (Vec<usize>, Vec<usize>) =
        (0..count).filter(|&p| free[p]).partition(has_effect);
    let n = indices.len();
    let mut result = Covariance {
        errors: vec![f64::NAN; count],
        correlations: vec![f64::NAN; count * count.saturating_sub(1) / 2],
        undetermined: without_effect.len(),
    };
    without_effect
        .iter()
        .for_each(|&p| result.errors[p] = f64::INFINITY);
    if n == 0 {
        return result;
    }
    // 2. Invert the scaled matrix without its undetermined directions.
    let diagonal: Vec<f64> = indices.iter().map(|&p| diagonal_of(p)).collect();
    let scaled = DMatrix::from_fn(n, n, |i, j| {
        normal_matrix[packed_index(indices[i], indices[j])] / (diagonal[i] * diagonal[j]).sqrt()
    });
    let eigen = SymmetricEigen::new(scaled);
    let is_determined: Vec<bool> = eigen.eigenvalues.iter().map(|&v| v > tolerance).collect();
    let mut parameter_is_determined = vec![true; n];
    let mut inverse = DMatrix::zeros(n, n);
    for (k, is_determined) in is_determined.iter().enumerate() {
        let vector: DVector<f64> = eigen.eigenvectors.column(k).into_owned();
        if *is_determined {
            inverse += &vector * vector.transpose() / eigen.eigenvalues[k];
        } else {
            result.undetermined += 1;
            parameter_is_determined
                .iter_mut()
                .zip(vector.iter())
                .for_each(|(is_determined, component)| *is_determined &= component.abs() < 1e-3);
        }
    }
    // 3. Scale back to errors and correlations.
    for i in 0..n {
        if !parameter_is_determined[i] {
            result.errors[indices[i]] = f64::INFINITY;
            continue;
        }
        result.errors[indices[i]] = (inverse[(i, i)] / diagonal[i]).sqrt();
        for j in (0..i).filter(|&j| parameter_is_determined[j]) {
            let pair = pair_index(indices[j], indices[i], count);
            result.correlations[pair] =
                inverse[(i, j)] / (inverse[(i, i)] * inverse[(j, j)]).sqrt();
        }
    }
    result
}

/// Returns the index of the correlation of parameters a < b in the flat list of all pairs of `count` parameters.
pub fn pair_index(a: usize, b: usize, count: usize) -> usize {
    a * (2 * count - a - 1) / 2 + b - a - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covariance_inverts_and_reports_undetermined_parameters() {
        // [[4, 2], [2, 3]]⁻¹ = [[3, −2], [−2, 4]] / 8; the parameter in the middle is fixed.
        let packed = [4.0, 0.0, 1.0, 2.0, 0.0, 3.0];
        let covariances = covariance(&packed, &[true, false, true], 1e-10);
        assert!(
            (covariances.errors[0] - (3f64 / 8.0).sqrt()).abs() < 1e-12
                && covariances.errors[1].is_nan()
        );
        assert!((covariances.correlations[pair_index(0, 2, 3)] + 2.0 / 12f64.sqrt()).abs() < 1e-12);
        // The first two parameters only occur as a product.
        let packed = [1.0, 1.0, 1.0, 0.0, 0.0, 4.0];
        let covariances = covariance(&packed, &[true; 3], 1e-10);
        assert!(
            covariances.undetermined == 1
                && covariances.errors[..2] == [f64::INFINITY; 2]
                && covariances.correlations[0].is_nan()
        );
        assert!((covariances.errors[2] - 0.5).abs() < 1e-12);
        // The first has no effect, which changes nothing for the others.
        let packed = [0.0, 0.0, 4.0, 0.0, 2.0, 3.0];
        let covariances = covariance(&packed, &[true; 3], 1e-10);
        assert!(
            covariances.undetermined == 1
                && covariances.errors[0] == f64::INFINITY
                && covariances.correlations[0].is_nan()
        );
        assert!(
            (covariances.errors[1] - (3f64 / 8.0).sqrt()).abs() < 1e-12
                && covariances.correlations[2].is_finite()
        );
    }

    #[test]
    fn pairs_are_numbered_in_order() {
        let order: Vec<usize> = (0..4)
            .flat_map(|a| (a + 1..4).map(move |b| pair_index(a, b, 4)))
            .collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    }
}
