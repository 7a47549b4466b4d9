//! Small symmetric matrices in packed form: the lower triangle by rows, with element (i, j ≤ i) at i (i + 1) / 2 + j.

/// Returns the number of elements of a packed n × n triangle, n (n + 1) / 2.
pub const fn packed_length(n: usize) -> usize {
    n * (n + 1) / 2
}

/// Returns the index of element (i, j) in a packed triangle, which is also the index of (j, i).
pub const fn packed_index(i: usize, j: usize) -> usize {
    if i >= j {
        i * (i + 1) / 2 + j
    } else {
        j * (j + 1) / 2 + i
    }
}

/// Returns the index of element (i, j < i) among the n (n − 1) / 2 elements below the diagonal, by rows.
pub const fn pair_index(i: usize, j: usize) -> usize {
    i * (i - 1) / 2 + j
}

/// Replaces a packed symmetric matrix by its Cholesky factor L. Returns `false` if a pivot is not positive; the matrix
/// is then partly overwritten.
#[must_use]
pub fn cholesky(matrix: &mut [f64], n: usize) -> bool {
    for i in 0..n {
        for j in 0..=i {
            let mut sum = matrix[packed_index(i, j)];
            for k in 0..j {
                sum -= matrix[packed_index(i, k)] * matrix[packed_index(j, k)];
            }
            if i > j {
                matrix[packed_index(i, j)] = sum / matrix[packed_index(j, j)];
            } else if sum > 0.0 && sum.is_finite() {
                matrix[packed_index(i, i)] = sum.sqrt();
            } else {
                return false;
            }
        }
    }
    true
}

/// Solves L x = b in place for a packed lower triangle L; `x` holds b and receives the solution.
pub fn solve_lower(factor: &[f64], x: &mut [f64]) {
    for i in 0..x.len() {
        let mut sum = x[i];
        for k in 0..i {
            sum -= factor[packed_index(i, k)] * x[k];
        }
        x[i] = sum / factor[packed_index(i, i)];
    }
}

/// Solves Lᵀ x = b in place for a packed lower triangle L; `x` holds b and receives the solution.
pub fn solve_upper(factor: &[f64], x: &mut [f64]) {
    for i in (0..x.len()).rev() {
        let mut sum = x[i];
        for k in i + 1..x.len() {
            sum -= factor[packed_index(k, i)] * x[k];
        }
        x[i] = sum / factor[packed_index(i, i)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cholesky_solves_positive_matrices_and_rejects_others() {
        // A = [[4, 2], [2, 3]], b = [2, 5]: x = [-0.5, 2]
        let mut a = [4.0, 2.0, 3.0];
        assert!(cholesky(&mut a, 2));
        let mut x = [2.0, 5.0];
        solve_lower(&a, &mut x);
        solve_upper(&a, &mut x);
        assert!((x[0] + 0.5).abs() < 1e-15 && (x[1] - 2.0).abs() < 1e-15);
        assert!(!cholesky(&mut [1.0, 2.0, 1.0], 2));
        assert!(!cholesky(&mut [f64::NAN], 1));
    }
}
