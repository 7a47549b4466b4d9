//! Least squares for a polynomial, by orthogonal polynomials on the points (Forsythe 1957).

use super::scale::span;

/// Returns the `count` coefficients, from c0 on, of the polynomial nearest to the points. Those that the points do not
/// determine are 0.
pub fn fit(x: &[f64], y: &[f64], count: usize) -> Vec<f64> {
    let ((x0, sx), (y0, sy)) = (span(x), span(y));
    let t: Vec<f64> = x.iter().map(|x| (x - x0) / sx).collect();
    let mut left: Vec<f64> = y.iter().map(|y| (y - y0) / sy).collect();
    // 1. pₖ₊₁(t) = (t − αₖ) pₖ(t) − βₖ pₖ₋₁(t), of which the values at the points and the coefficients are kept
    let mut sum = vec![0.0; count];
    let (mut before, mut here) = (vec![0.0; t.len()], vec![1.0; t.len()]);
    let (mut before_terms, mut terms) = (vec![0.0; count], vec![0.0; count]);
    terms[0] = 1.0;
    let mut last_square = 1.0;
    let total = t.len() as f64;
    for k in 0..count.min(t.len()) {
        let square: f64 = here.iter().map(|p| p * p).sum();
        // equal x leave no more than rounding errors
        if square <= 1e-26 * total * 4f64.powi(-(k as i32)) {
            break;
        }
        let share = here.iter().zip(&left).map(|(p, y)| p * y).sum::<f64>() / square;
        sum.iter_mut()
            .zip(&terms)
            .for_each(|(sum, term)| *sum += share * term);
        left.iter_mut()
            .zip(&here)
            .for_each(|(y, p)| *y -= share * p);
        let alpha = here.iter().zip(&t).map(|(p, t)| t * p * p).sum::<f64>() / square;
        let beta = if k == 0 { 0.0 } else { square / last_square };
        last_square = square;
        let next = (0..t.len())
            .map(|j| (t[j] - alpha) * here[j] - beta * before[j])
            .collect();
        before = std::mem::replace(&mut here, next);
        let shifted = |i: usize| if i == 0 { 0.0 } else { terms[i - 1] };
        let next = (0..count)
            .map(|i| shifted(i) - alpha * terms[i] - beta * before_terms[i])
            .collect();
        before_terms = std::mem::replace(&mut terms, next);
    }
    // 2. From powers of t = (x − x₀)/sₓ to powers of x: the shift by Horner's scheme, from the highest power on.
    let shift = x0 / sx;
    for lowest in 0..count {
        for i in (lowest..count - 1).rev() {
            sum[i] -= shift * sum[i + 1];
        }
    }
    let mut power = 1.0;
    for coefficient in &mut sum {
        *coefficient = *coefficient / power * sy;
        power *= sx;
    }
    sum[0] += y0;
    sum
}
