//! The NIST StRD problems of nonlinear regression, as formulas, from both starts, with the same settings for all.

use popfit::{CurveFit, CurveFitter, Device};
use popfit_testing::fits::gpu;
use popfit_testing::nist::{digits, problems};

/// One fit.
struct Row {
    name: String,
    /// 1 or 2
    start: usize,
    /// Digits of parameters and of errors.
    parameters: f64,
    errors: f64,
    /// Root mean square of the residuals over that of the data.
    residual: f64,
    fit: CurveFit,
}

/// Every problem from either start, by this fitter but for the formula.
fn run(
    (what, differences): (&str, bool),
    settings: impl Fn(CurveFitter) -> CurveFitter,
    device: &Device,
) -> Vec<Row> {
    let mut table = Vec::new();
    for problem in problems().unwrap() {
        let fitter = settings(CurveFitter::new(problem.model(differences), device.clone()));
        for (start, fit) in problem.fit(&fitter).unwrap().into_iter().enumerate() {
            let parameters = digits(&fit.parameters, &problem.certified);
            let errors = digits(&fit.errors, &problem.certified_errors);
            let name = &problem.name;
            println!(
                "{what}: {name:9} {} {parameters:5.2} {errors:5.2} nfev {:4} {} chi2 {:e}",
                start + 1,
                fit.evaluations,
                fit.message,
                fit.chi2
            );
            let residual = (fit.chi2 / problem.y.iter().map(|y| y * y).sum::<f64>()).sqrt();
            table.push(Row {
                name: name.clone(),
                start: start + 1,
                parameters,
                errors,
                residual,
                fit,
            });
        }
    }
    assert_eq!(table.len(), 54);
    let mean = table.iter().map(|row| row.parameters).sum::<f64>() / table.len() as f64;
    println!(
        "{what}: {} of 54 with 4 digits, mean {mean:.2}",
        solved(&table)
    );
    table
}

fn solved(table: &[Row]) -> usize {
    table.iter().filter(|row| row.parameters >= 4.0).count()
}

#[test]
fn nist_values_are_reached_on_the_cpu() {
    let table = run(("lm", false), |fitter| fitter, &Device::cpu());
    let solved: Vec<_> = table.iter().filter(|row| row.parameters >= 4.0).collect();
    assert!(solved.len() == 54);
    assert!(
        table
            .iter()
            .filter(|row| row.start == 2)
            .all(|row| row.parameters >= 6.0)
    );
    let mean = table.iter().map(|row| row.parameters).sum::<f64>() / table.len() as f64;
    assert!(mean >= 9.0, "{mean}");
    for row in solved {
        assert!(row.fit.status.is_success(), "{}", row.name);
        // Residuals of 1e-13 of the data (Lanczos1): rounding these to f64 leaves 3.4 digits of their scatter, whatever
        // the arithmetic (`tests/python/check_lanczos1.py`).
        assert!(
            row.errors >= 6.0 || row.residual < 1e-12,
            "{}: {}",
            row.name,
            row.errors
        );
    }
}

#[test]
fn nist_values_are_reached_by_finite_differences() {
    let table = run(("lm, differences", true), |fitter| fitter, &Device::cpu());
    assert!(solved(&table) >= 51);
    // Differences are not exact: if the option had no effect, the fits would be those of the symbolic derivatives.
    let symbolic = run(("lm", false), |fitter| fitter, &Device::cpu());
    let pairs = table.iter().zip(&symbolic);
    assert!(
        pairs
            .filter(|(a, b)| a.fit.parameters != b.fit.parameters)
            .count()
            > 27
    );
}

#[test]
fn nist_values_are_reached_by_simplices() {
    let simplex = |fitter: CurveFitter| fitter.solver(CurveFitter::NELDER_MEAD);
    assert!(solved(&run(("nelder-mead", false), simplex, &Device::cpu())) >= 50);
}

#[test]
fn nist_values_are_reached_in_f32() {
    let Some(device) = gpu() else { return };
    assert!(
        solved(&run(
            ("lm, gpu", false),
            |fitter| fitter.polish(false),
            &device
        )) >= 42
    );
    assert!(solved(&run(("lm, gpu, polished", false), |fitter| fitter, &device)) >= 48);
}
