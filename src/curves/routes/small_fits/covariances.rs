//! Covariances of small fits, from errors and correlations that come from one normal matrix.

use super::parts::ResultRows;

/// Turns the correlations of ended fits, where the rows have any, into covariances in place: NaN of fits without
/// success.
pub(super) fn scale_correlations(rows: &mut ResultRows<'_>) {
    let Some(matrices) = rows.covariance.as_deref_mut() else {
        return;
    };
    let count = rows.errors.len() / rows.status.len();
    let fits = matrices
        .chunks_exact_mut(count * count)
        .zip(rows.errors.chunks_exact(count))
        .zip(rows.status.iter());
    for ((matrix, errors), status) in fits {
        if status.is_success() {
            scale_by_errors(matrix, errors);
        } else {
            matrix.fill(f64::NAN);
        }
    }
}

/// Turns the correlations below the diagonal of a matrix (P, P) into covariances of parameters with such errors (P).
fn scale_by_errors(matrix: &mut [f64], errors: &[f64]) {
    let count = errors.len();
    for i in 0..count {
        for j in 0..i {
            let covariance = covariance_of(matrix[i * count + j], errors[i], errors[j]);
            matrix[i * count + j] = covariance;
            matrix[j * count + i] = covariance;
        }
        matrix[i * count + i] = errors[i] * errors[i];
    }
}

/// Returns the covariance of two parameters, NaN if an error is infinite, and 0 of uncorrelated ones whatever the
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
pub(super) fn write_correlations(covariance: &[f64], matrix: &mut [f64]) {
    let count = covariance.len().isqrt();
    for i in 1..count {
        for j in 0..i {
            let element = covariance[i * count + j];
            let scale = covariance[i * count + i].sqrt() * covariance[j * count + j].sqrt();
            // Held parameters have no variance.
            matrix[i * count + j] = if element == 0.0 { 0.0 } else { element / scale };
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
        write_correlations(&covariance, &mut matrix);
        assert_eq!([matrix[3], matrix[6], matrix[7]], [0.5, 0.0, 0.0]);
        scale_by_errors(&mut matrix, &[2.0, 3.0, 0.0]);
        assert_eq!(matrix, covariance);
    }

    /// An undetermined parameter has an infinite variance and no covariances, not even with held parameters.
    #[test]
    fn infinite_errors_leave_no_covariances() {
        let mut matrix = [7.0; 9];
        (matrix[3], matrix[6], matrix[7]) = (0.5, 0.0, 0.0);
        scale_by_errors(&mut matrix, &[f64::INFINITY, 3.0, 0.0]);
        assert_eq!(
            [matrix[0], matrix[4], matrix[5], matrix[8]],
            [f64::INFINITY, 9.0, 0.0, 0.0]
        );
        assert!(
            [matrix[1], matrix[2], matrix[3], matrix[6]]
                .iter()
                .all(|c| c.is_nan())
        );
        // Without degrees of freedom held parameters keep theirs.
        (matrix[3], matrix[6], matrix[7]) = (0.5, 0.0, 0.0);
        scale_by_errors(&mut matrix, &[f64::NAN, f64::NAN, 0.0]);
        assert_eq!([matrix[5], matrix[6], matrix[8]], [0.0; 3]);
        assert!(matrix[0].is_nan() && matrix[1].is_nan());
    }
}
