//! Comparisons of two devices.

use popfit::low_level::solver::Outcome;

/// Rows of `row` numbers agree to `tolerance` of the largest number of the row (at least `floor`), NaN with NaN.
pub fn compare(
    what: &str,
    expected: &[f64],
    found: &[f64],
    (row, floor): (usize, f64),
    tolerance: f64,
) -> Result<(), String> {
    if expected.len() != found.len() {
        return Err(format!(
            "{what}: {} numbers, not {}",
            found.len(),
            expected.len()
        ));
    }
    for (r, (expected, found)) in expected.chunks(row).zip(found.chunks(row)).enumerate() {
        let scale = expected
            .iter()
            .filter(|x| x.is_finite())
            .fold(floor, |m, x| f64::max(m, x.abs()));
        for (i, (e, f)) in expected.iter().zip(found).enumerate() {
            let agree = (e.is_nan() && f.is_nan()) || e == f || (e - f).abs() <= tolerance * scale;
            if !agree {
                return Err(format!(
                    "{what}: row {r}, column {i}: {f} instead of {e}, scale {scale}"
                ));
            }
        }
    }
    Ok(())
}

/// χ², penalty, ln det, cosines of the gradient and correlations of the normal matrix agree.
pub fn compare_sums(
    what: &str,
    cpu: &[Outcome],
    gpu: &[Outcome],
    tolerance: f64,
) -> Result<(), String> {
    compare(
        what,
        &[cpu.len() as f64],
        &[gpu.len() as f64],
        (1, 0.0),
        0.0,
    )?;
    for (c, g) in cpu.iter().zip(gpu) {
        let (terms, found) = ([c.chi2, c.penalty], [g.chi2, g.penalty]);
        compare(
            &format!("{what}: chi2, penalty"),
            &terms,
            &found,
            (2, 0.0),
            tolerance,
        )?;
        compare(
            &format!("{what}: ln det"),
            &[c.ln_det, 10.0],
            &[g.ln_det, 10.0],
            (2, 0.0),
            tolerance,
        )?;
        let of_loss = |o: &Outcome| [o.loss.curvature, o.loss.matrix_curvature, o.loss.scatter];
        compare(
            &format!("{what}: loss"),
            &of_loss(c),
            &of_loss(g),
            (3, 0.0),
            tolerance,
        )?;
        // a pixel may lie at the limit of downweighting
        let [expected, found] = [c, g].map(|outcome| outcome.loss.downweighted);
        if (expected - found).abs() > 1.0 + 0.01 * expected {
            return Err(format!(
                "{what}: {found} downweighted pixels instead of {expected}"
            ));
        }
        // g_p is a sum of residual x J: its rounding scales with their norms
        let diagonal: Vec<f64> = (0..c.gradient.len())
            .map(|p| c.normal_matrix[p * (p + 3) / 2].sqrt())
            .collect();
        let cost = (c.chi2 + c.penalty).sqrt();
        let scaled = |o: &Outcome| -> Vec<f64> {
            o.gradient
                .iter()
                .zip(&diagonal)
                .filter(|(_, d)| **d > 0.0)
                .map(|(g, d)| g / d / cost)
                .chain([1.0])
                .collect()
        };
        compare(
            &format!("{what}: gradient"),
            &scaled(c),
            &scaled(g),
            (99, 0.0),
            tolerance,
        )?;
        let correlations = |o: &Outcome| -> Vec<f64> {
            let mut list = vec![1.0];
            for p in 0..diagonal.len() {
                for q in 0..=p {
                    let size = diagonal[p] * diagonal[q];
                    list.push(if size > 0.0 {
                        o.normal_matrix[p * (p + 1) / 2 + q] / size
                    } else {
                        0.0
                    });
                }
            }
            list
        };
        compare(
            &format!("{what}: normal matrix"),
            &correlations(c),
            &correlations(g),
            (9999, 0.0),
            tolerance,
        )?;
    }
    Ok(())
}
