//! `popfit-bench memory-of-curves`: peak memory of a million fits of 25 points, whose input is lent as f32 or given as
//! f64.

use clap::ValueEnum;
use popfit::{CurveFitter, Curves, Device, Formula};
use popfit_cli::Failure;
use popfit_testing::memory::read_peak_mebibytes;

const FITS: usize = 1_000_000;
const POINTS: usize = 25;

#[derive(clap::Args)]
pub struct Arguments {
    /// Type of the input
    #[arg(default_value = "f32")]
    input: Input,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Input {
    F32,
    F64,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let x: Vec<f32> = (0..POINTS).map(|j| 0.2 * j as f32).collect();
    let y = (0..FITS * POINTS).map(|i| {
        let (k, j) = (i / POINTS, i % POINTS);
        (3.0 + (k % 7) as f32) * (-(0.4 + 0.05 * (k % 13) as f32) * x[j]).exp()
            + 0.05 * (i as f32 * 12.9898).sin()
    });
    let starts = (0..2 * FITS).map(|i| if i % 2 == 0 { 3.0 } else { 0.7 });
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)")?, Device::cpu());
    let columns = if arguments.input == Input::F64 {
        let (y, starts): (Vec<f64>, Vec<f64>) =
            (y.map(f64::from).collect(), starts.map(f64::from).collect());
        println!("input {:?} MiB", read_peak_mebibytes());
        fitter.fit_columns(&Curves::on_common_grid(&x, y, starts))?
    } else {
        let (y, starts): (Vec<f32>, Vec<f32>) = (y.collect(), starts.collect());
        println!("input {:?} MiB", read_peak_mebibytes());
        fitter.fit_columns(&Curves::on_common_grid(&x, &y, &starts))?
    };
    let arrived = columns
        .status
        .iter()
        .filter(|status| status.is_success())
        .count();
    println!(
        "{arrived} of {} arrived, peak {:?} MiB",
        columns.len(),
        read_peak_mebibytes()
    );
    Ok(())
}
