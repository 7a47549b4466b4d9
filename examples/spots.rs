//! A hundred thousand spots of light, 7 × 7 pixels each, fitted by their counts' likelihood, and one of them as lmfit
//! would report it: `cargo run --release --example spots`

use popfit::{CurveFitter, Curves, Device, Estimator, Formula};

const SIDE: usize = 7;
const SPOTS: usize = 100_000;

fn main() -> popfit::Result<()> {
    let spot = Formula::parse_with("a*exp(-((x-x0)^2 + (y-y0)^2)/(2*s^2)) + b", &["x", "y"])?;
    // all x, then all y
    let pixels: Vec<f64> = (0..SIDE * SIDE)
        .map(|j| j % SIDE)
        .chain((0..SIDE * SIDE).map(|j| j / SIDE))
        .map(|x| x as f64)
        .collect();
    let mut counts = Vec::new();
    for k in 0..SPOTS {
        let truth = [
            80.0,
            3.0 + 0.3 * (k as f64).sin(),
            3.0 + 0.3 * (k as f64).cos(),
            1.1,
            4.0,
        ];
        // what a camera would add as noise is left to it
        counts.extend(
            spot.values(&pixels, &truth)?
                .iter()
                .map(|mean| mean.round()),
        );
    }
    let start = [60.0, 3.0, 3.0, 1.3, 5.0];
    let first = Curves::on_common_grid(
        pixels.clone(),
        counts[..SIDE * SIDE].to_vec(),
        start.to_vec(),
    );
    let curves = Curves::on_common_grid(pixels, counts, start.repeat(SPOTS));
    let fitter = CurveFitter::new(spot, Device::auto()?).estimator(Estimator::Poisson);

    // columns for many fits, without memory of its own for each
    let columns = fitter.fit_columns(&curves)?;
    let arrived = columns
        .status
        .iter()
        .filter(|status| status.is_success())
        .count();
    println!("{arrived} of {SPOTS} arrived");
    println!(
        "the first at x {:.3} ± {:.3}",
        columns.parameters[1], columns.errors[1]
    );

    // everything about one
    println!("{}", fitter.report(&fitter.fit(&first)?[0]));
    Ok(())
}
