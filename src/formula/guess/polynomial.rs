//! Least squares for a polynomial, by orthogonal polynomials on the points (Forsythe 1957).

use super::scale::middle_and_half_range;

/// Returns the `count` coefficients, from c0 on, of the polynomial nearest to the points. Those that the points do not
/// determine are 0.
pub fn fit_polynomial(x: &[f64], y: &[f64], count: usize) -> Vec<f64> {
    // 1. Scale the points to numbers between −1 and 1.
    let (x0, sx) = middle_and_half_range(x);
    let (y0, sy) = middle_and_half_range(y);
    let t: Vec<f64> = x.iter().map(|x| (x - x0) / sx).collect();
    let mut residuals: Vec<f64> = y.iter().map(|y| (y - y0) / sy).collect();
    // 2. Project the residuals onto one orthogonal polynomial after the other. They follow the recurrence
    //    pₖ₊₁(t) = (t − αₖ) pₖ(t) − βₖ pₖ₋₁(t), applied to their values at the points and to their coefficients.
    let mut coefficients = vec![0.0; count];
    let mut previous_values = vec![0.0; t.len()];
    let mut values = vec![1.0; t.len()];
    let mut previous_terms = vec![0.0; count];
    let mut terms = vec![0.0; count];
    terms[0] = 1.0;
    let mut previous_square = 1.0;
    let total = t.len() as f64;
    for k in 0..count.min(t.len()) {
        let square: f64 = values.iter().map(|p| p * p).sum();
        // Where x is repeated, nothing but rounding errors is left of higher polynomials.
        if square <= 1e-26 * total * 4f64.powi(-(k as i32)) {
            break;
        }
        let projection = values
            .iter()
            .zip(&residuals)
            .map(|(p, y)| p * y)
            .sum::<f64>()
            / square;
        coefficients
            .iter_mut()
            .zip(&terms)
            .for_each(|(coefficient, term)| *coefficient += projection * term);
        residuals
            .iter_mut()
            .zip(&values)
            .for_each(|(y, p)| *y -= projection * p);
        let alpha = values.iter().zip(&t).map(|(p, t)| t * p * p).sum::<f64>() / square;
        let beta = if k == 0 {
            0.0
        } else {
            square / previous_square
        };
        previous_square = square;
        let next_values = (0..t.len())
            .map(|j| (t[j] - alpha) * values[j] - beta * previous_values[j])
            .collect();
        previous_values = std::mem::replace(&mut values, next_values);
        let times_t = |i: usize| if i == 0 { 0.0 } else { terms[i - 1] };
        let next_terms = (0..count)
            .map(|i| times_t(i) - alpha * terms[i] - beta * previous_terms[i])
            .collect();
        previous_terms = std::mem::replace(&mut terms, next_terms);
    }
    // 3. Convert from powers of t = (x − x₀)/sₓ to powers of x: the shift by Horner's scheme, from the highest power
    //    on.
    let shift = x0 / sx;
    for lowest in 0..count {
        for i in (lowest..count - 1).rev() {
            coefficients[i] -= shift * coefficients[i + 1];
        }
    }
    let mut power = 1.0;
    for coefficient in &mut coefficients {
        *coefficient = *coefficient / power * sy;
        power *= sx;
    }
    coefficients[0] += y0;
    coefficients
}
