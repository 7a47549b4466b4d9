//! Covariances of small fits, from errors and correlations that come from one normal matrix.

use super::parts::Rows;

/// Turns the correlations of ended fits, where the rows have any, into covariances in place: NaN of fits without
/// success.
pub(super) fn scale_correlations(rows: &mut Rows<'_>) {
    let Some(all) = rows.covariance.as_deref_mut() else {
        return;
    };
    let p = rows.errors.len() / rows.status.len();
    let fits = all
        .chunks_exact_mut(p * p)
        .zip(rows.errors.chunks_exact(p))
        .zip(rows.status.iter());
    for ((matrix, errors), status) in fits {
        if status.is_success() {
            scale(matrix, errors);
        } else {
            matrix.fill(f64::NAN);
        }
    }
}

/// Turns the correlations below the diagonal of a matrix (P, P) into covariances of parameters with such errors (P).
fn scale(matrix: &mut [f64], errors: &[f64]) {
    let p = errors.len();
    for i in 0..p {
        for j in 0..i {
            let covariance = covariance_of(matrix[i * p + j], errors[i], errors[j]);
            (matrix[i * p + j], matrix[j * p + i]) = (covariance, covariance);
        }
        matrix[i * p + i] = errors[i] * errors[i];
    }
}

/// Returns the covariance of two parameters, NaN beside an infinite error. Uncorrelated ones have none, whatever the
/// errors.
#[inline(always)]
fn covariance_of(correlation: f64, error: f64, other: f64) -> f64 {
    match correlation * error * other {
        _ if error.is_infinite() || other.is_infinite() => f64::NAN,
        _ if correlation == 0.0 => 0.0,
        covariance => covariance,
    }
}

/// Writes the correlations of a covariance (P, P) below the diagonal of a matrix.
pub(super) fn put_correlations(covariance: &[f64], matrix: &mut [f64]) {
    let p = covariance.len().isqrt();
    for i in 1..p {
        for j in 0..i {
            let (element, scale) = (
                covariance[i * p + j],
                covariance[i * p + i].sqrt() * covariance[j * p + j].sqrt(),
            );
            // held parameters have no variance
            matrix[i * p + j] = if element == 0.0 { 0.0 } else { element / scale };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlations_and_errors_make_the_covariance() {
        let covariance = [4.0, 3.0, 0.0, 3.0, 9.0, 0.0, 0.0, 0.0, 0.0];
        let mut matrix = [7.0; 9];
        put_correlations(&covariance, &mut matrix);
        assert_eq!([matrix[3], matrix[6], matrix[7]], [0.5, 0.0, 0.0]);
        scale(&mut matrix, &[2.0, 3.0, 0.0]);
        assert_eq!(matrix, covariance);
    }

    /// What is undetermined has an infinite variance and no covariances, with held parameters neither.
    #[test]
    fn infinite_errors_leave_no_covariances() {
        let mut matrix = [7.0; 9];
        (matrix[3], matrix[6], matrix[7]) = (0.5, 0.0, 0.0);
        scale(&mut matrix, &[f64::INFINITY, 3.0, 0.0]);
        assert_eq!(
            [matrix[0], matrix[4], matrix[5], matrix[8]],
            [f64::INFINITY, 9.0, 0.0, 0.0]
        );
        assert!(
            [matrix[1], matrix[2], matrix[3], matrix[6]]
                .iter()
                .all(|c| c.is_nan())
        );
        // without degrees of freedom held parameters keep theirs
        (matrix[3], matrix[6], matrix[7]) = (0.5, 0.0, 0.0);
        scale(&mut matrix, &[f64::NAN, f64::NAN, 0.0]);
        assert_eq!([matrix[5], matrix[6], matrix[8]], [0.0; 3]);
        assert!(matrix[0].is_nan() && matrix[1].is_nan());
    }
}
