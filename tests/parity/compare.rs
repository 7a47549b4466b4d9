//! Comparisons of two devices.

use popfit::low_level::solver::Outcome;

/// Fails unless rows of `row` numbers agree to `tolerance` of the row's largest number (at least `floor`), NaN with
/// NaN.
pub fn compare(
    label: &str,
    expected: &[f64],
    actual: &[f64],
    (row, floor): (usize, f64),
    tolerance: f64,
) -> Result<(), String> {
    if expected.len() != actual.len() {
        return Err(format!(
            "{label}: {} numbers, not {}",
            actual.len(),
            expected.len()
        ));
    }
    for (r, (expected, actual)) in expected.chunks(row).zip(actual.chunks(row)).enumerate() {
        let scale = expected
            .iter()
            .filter(|x| x.is_finite())
            .fold(floor, |m, x| f64::max(m, x.abs()));
        for (i, (e, a)) in expected.iter().zip(actual).enumerate() {
            let agree = (e.is_nan() && a.is_nan()) || e == a || (e - a).abs() <= tolerance * scale;
            if !agree {
                return Err(format!(
                    "{label}: row {r}, column {i}: {a} instead of {e}, scale {scale}"
                ));
            }
        }
    }
    Ok(())
}

/// Fails unless χ², penalty, ln det, cosines of the gradient and correlations of the normal matrix agree.
pub fn compare_sums(
    label: &str,
    cpu: &[Outcome],
    gpu: &[Outcome],
    tolerance: f64,
) -> Result<(), String> {
    compare(
        label,
        &[cpu.len() as f64],
        &[gpu.len() as f64],
        (1, 0.0),
        0.0,
    )?;
    for (c, g) in cpu.iter().zip(gpu) {
        compare(
            &format!("{label}: chi2, penalty"),
            &[c.chi2, c.penalty],
            &[g.chi2, g.penalty],
            (2, 0.0),
            tolerance,
        )?;
        compare(
            &format!("{label}: ln det"),
            &[c.ln_det, 10.0],
            &[g.ln_det, 10.0],
            (2, 0.0),
            tolerance,
        )?;
        let loss_sums = |o: &Outcome| [o.loss.curvature, o.loss.matrix_curvature, o.loss.scatter];
        compare(
            &format!("{label}: loss"),
            &loss_sums(c),
            &loss_sums(g),
            (3, 0.0),
            tolerance,
        )?;
        // A pixel may lie at the limit of downweighting.
        let [expected, actual] = [c, g].map(|outcome| outcome.loss.downweighted);
        if (expected - actual).abs() > 1.0 + 0.01 * expected {
            return Err(format!(
                "{label}: {actual} downweighted pixels instead of {expected}"
            ));
        }
        // g_p is a sum of products of residuals and J, so its rounding scales with their norms.
        let diagonal: Vec<f64> = (0..c.gradient.len())
            .map(|p| c.normal_matrix[p * (p + 3) / 2].sqrt())
            .collect();
        let cost = (c.chi2 + c.penalty).sqrt();
        let cosines = |o: &Outcome| -> Vec<f64> {
            o.gradient
                .iter()
                .zip(&diagonal)
                .filter(|(_, d)| **d > 0.0)
                .map(|(g, d)| g / d / cost)
                .chain([1.0])
                .collect()
        };
        compare(
            &format!("{label}: gradient"),
            &cosines(c),
            &cosines(g),
            (99, 0.0),
            tolerance,
        )?;
        let correlations = |o: &Outcome| -> Vec<f64> {
            let mut correlations = vec![1.0];
            for p in 0..diagonal.len() {
                for q in 0..=p {
                    let scale = diagonal[p] * diagonal[q];
                    correlations.push(if scale > 0.0 {
                        o.normal_matrix[p * (p + 1) / 2 + q] / scale
                    } else {
                        0.0
                    });
                }
            }
            correlations
        };
        compare(
            &format!("{label}: normal matrix"),
            &correlations(c),
            &correlations(g),
            (9999, 0.0),
            tolerance,
        )?;
    }
    Ok(())
}
