// Private vectors and the packed triangle of one member's damped system, and its Cholesky solve; size `order` <=
// PARAMETERS.
var<private> matrix: array<f32, TRIANGLE>;
var<private> x: array<f32, PARAMETERS>;

// matrix <- its Cholesky factor; false when a pivot is not positive.
fn cholesky(order: u32) -> bool {
    for (var i = 0u; i < order; i++) {
        for (var j = 0u; j <= i; j++) {
            var sum = matrix[packed(i, j)];
            for (var k = 0u; k < j; k++) {
                sum -= matrix[packed(i, k)] * matrix[packed(j, k)];
            }
            if i > j {
                matrix[packed(i, j)] = sum / matrix[packed(j, j)];
            } else if sum > 0.0 && is_finite(sum) {
                matrix[packed(i, i)] = sqrt(sum);
            } else {
                return false;
            }
        }
    }
    return true;
}

// x <- (L L^T)^-1 x; false when an element is not finite.
fn cholesky_solve(order: u32) -> bool {
    for (var i = 0u; i < order; i++) {
        var sum = x[i];
        for (var k = 0u; k < i; k++) {
            sum -= matrix[packed(i, k)] * x[k];
        }
        x[i] = sum / matrix[packed(i, i)];
    }
    var finite = true;
    for (var left = order; left > 0u; left--) {
        let i = left - 1u;
        var sum = x[i];
        for (var k = left; k < order; k++) {
            sum -= matrix[packed(k, i)] * x[k];
        }
        x[i] = sum / matrix[packed(i, i)];
        finite = finite && is_finite(x[i]);
    }
    return finite;
}
