//! The NIST StRD problems of nonlinear regression (shared `data/nist`), as formulas, from both starts, with the same settings for all.

mod common;

use common::nist::problems;
use popfit::{CurveFit, CurveFitter, Curves, Device, Solver};

/// Digits on which the worst number agrees with the certified ones, 0 to 11.
fn digits(found: &[f64], certified: &[f64]) -> f64 {
    let one = |(f, c): (&f64, &f64)| -((f - c).abs() / c.abs()).log10();
    let worst = found.iter().zip(certified).map(one).fold(11.0, |a: f64, b| if b.is_nan() { 0.0 } else { a.min(b) });
    worst.max(0.0)
}

/// One fit.
struct Row {
    name: String,
    /// 1 or 2.
    start: usize,
    /// Digits of parameters and of errors.
    parameters: f64,
    errors: f64,
    /// Root mean square of the residuals over that of the data.
    residual: f64,
    fit: CurveFit,
}

/// Every problem from either start.
fn run(device: &Device, solver: Option<Solver>, polish: bool) -> Option<Vec<Row>> {
    let mut table = Vec::new();
    for problem in problems()? {
        let mut fitter = CurveFitter::new(problem.formula.clone(), device.clone()).unwrap().polish(polish);
        if let Some(solver) = solver {
            fitter = fitter.solver(solver).unwrap();
        }
        let curves = Curves::shared(problem.x.clone(), problem.y.repeat(2), problem.starts.concat());
        for (start, fit) in fitter.fit(&curves).unwrap().into_iter().enumerate() {
            let parameters = digits(&fit.parameters, &problem.parameters);
            let errors = digits(&fit.errors, &problem.errors);
            println!(
                "{:9} {} {:5.2} {:5.2} nfev {:4} {} chi2 {:e}",
                problem.name,
                start + 1,
                parameters,
                errors,
                fit.nfev,
                fit.message,
                fit.chi2
            );
            let residual = (fit.chi2 / problem.y.iter().map(|y| y * y).sum::<f64>()).sqrt();
            table.push(Row { name: problem.name.clone(), start: start + 1, parameters, errors, residual, fit });
        }
    }
    let solved = table.iter().filter(|row| row.parameters >= 4.0).count();
    let mean = table.iter().map(|row| row.parameters).sum::<f64>() / table.len() as f64;
    println!("{solved} of {} with 4 digits, mean {mean:.2}", table.len());
    Some(table)
}

#[test]
fn certified_answers_on_the_cpu() {
    let Some(table) = run(&Device::cpu(), None, true) else { return };
    let solved: Vec<_> = table.iter().filter(|row| row.parameters >= 4.0).collect();
    assert!(solved.len() >= 53);
    assert!(table.iter().filter(|row| row.start == 2).all(|row| row.parameters >= 6.0));
    let mean = table.iter().map(|row| row.parameters).sum::<f64>() / table.len() as f64;
    assert!(mean >= 9.0, "{mean}");
    for row in solved {
        assert!(row.fit.status.is_success(), "{}", row.name);
        // residuals of 1e-13 of the data (Lanczos1) are rounding for the most part, and so is their scatter
        assert!(row.errors >= 6.0 || row.residual < 1e-12, "{}: {}", row.name, row.errors);
    }
}
