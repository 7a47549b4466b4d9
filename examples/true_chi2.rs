//! Recomputes the χ² of every fit that reports success: `cargo run --release --example true_chi2 [CURVES] [DEVICE]`.
//!
//! Draws CURVES (300,000) noisy curves of twenty models, with starts that are 20 to 50 % off, and fits them to columns; a tenth of
//! them, too, as single fits of formulas and of closures. A success is false where the χ² of its parameters, in plain Rust and f64,
//! is not the one reported. With `SHOW` in the environment each of them is printed.

use popfit::{Closure, CurveFitter, CurveModel, Curves, Device, Formula};
use popfit_testing::regressions::{Ends, NOISES, Noisy, REGRESSIONS, Regression};

/// Relative difference of χ² that f32 columns and fits in f64 may have.
const TOLERANCES: [f64; 2] = [1e-4, 1e-6];

/// Fits `noisy` curves of `model` to columns, or one by one.
fn fit(model: CurveModel, device: &Device, noisy: &Noisy, columns: bool) -> popfit::Result<Ends> {
    let curves = Curves::on_common_grid(noisy.x.clone(), &noisy.y[..], &noisy.starts[..]);
    let fitter = CurveFitter::new(model, device.clone());
    if columns {
        let columns = fitter.fit_columns(&curves)?;
        let success = columns.status.iter().map(|status| status.is_success()).collect();
        return Ok(Ends { success, chi2: columns.chi2, parameters: columns.parameters });
    }
    let fits = fitter.fit(&curves)?;
    Ok(Ends {
        success: fits.iter().map(|fit| fit.status.is_success()).collect(),
        chi2: fits.iter().map(|fit| fit.chi2).collect(),
        parameters: fits.into_iter().flat_map(|fit| fit.parameters).collect(),
    })
}

/// A model as a closure, with numerical derivatives.
fn closure(regression: &'static Regression, names: &[String]) -> popfit::Result<CurveModel> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let places = regression.places(&names);
    let values = move |x: &[f64], p: &[f64], y: &mut [f64]| {
        let own: Vec<f64> = places.iter().map(|&place| p[place]).collect();
        y.iter_mut().zip(x).for_each(|(y, &x)| *y = (regression.value)(&own, x));
    };
    Ok(Closure::new(&["x"], &names, values)?.into())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().map_or(Ok(300_000), |text| text.parse())?;
    let device: Device = arguments.next().map_or(Ok(Device::cpu()), |name| name.parse())?;
    let each = count.div_ceil(REGRESSIONS.len() * NOISES.len());
    println!("{:26} {:>5}  columns                 formulas                closures", "success, false, worst", "noise");
    let mut totals = [(0, 0); 3];
    for regression in &REGRESSIONS {
        let formula = Formula::parse(regression.formula)?;
        let names = formula.parameters().to_vec();
        for (seed, noise) in NOISES.into_iter().enumerate() {
            print!("{:26} {noise:5}", regression.name);
            for (kind, total) in totals.iter_mut().enumerate() {
                let curves = if kind == 0 { each } else { each.div_ceil(10) };
                let noisy = regression.draw(&names, curves, noise, seed as u64 + 1);
                let model = if kind == 2 { closure(regression, &names)? } else { formula.clone().into() };
                let here = if kind == 2 { Device::cpu() } else { device.clone() };
                let ends = fit(model, &here, &noisy, kind == 0)?;
                let found = regression.compare(&names, &noisy, &ends, TOLERANCES[kind.min(1)]);
                if std::env::var_os("SHOW").is_some() {
                    found.wrong.iter().for_each(|wrong| print!("\n    {wrong}"));
                }
                let share = 100.0 * found.successes as f64 / curves as f64;
                print!("  {share:6.2}% {:4} {:8.1e}", found.wrong.len(), found.worst);
                *total = (total.0 + found.successes, total.1 + found.wrong.len());
            }
            println!();
        }
    }
    for (kind, (successes, wrong)) in ["columns", "formulas", "closures"].iter().zip(totals) {
        println!("{kind}: {wrong} of {successes} successes have another chi-square");
    }
    Ok(())
}
