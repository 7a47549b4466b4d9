//! Peak memory of a million fits of 25 points: input that is lent as f32, or given as f64.
//! `cargo run --release --example memory_of_curves -- f32|f64`

use popfit::{CurveFitter, Curves, Device, Formula, Result};

const FITS: usize = 1_000_000;
const POINTS: usize = 25;

/// Peak resident memory in MiB, where the system tells.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()
        .map(|kib| kib >> 10)
}

fn main() -> Result<()> {
    let x: Vec<f32> = (0..POINTS).map(|j| 0.2 * j as f32).collect();
    let y = (0..FITS * POINTS).map(|i| {
        let (k, j) = (i / POINTS, i % POINTS);
        (3.0 + (k % 7) as f32) * (-(0.4 + 0.05 * (k % 13) as f32) * x[j]).exp()
            + 0.05 * (i as f32 * 12.9898).sin()
    });
    let starts = (0..2 * FITS).map(|i| if i % 2 == 0 { 3.0 } else { 0.7 });
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)")?, Device::cpu());
    let columns = if std::env::args().nth(1).as_deref() == Some("f64") {
        let (y, starts): (Vec<f64>, Vec<f64>) =
            (y.map(f64::from).collect(), starts.map(f64::from).collect());
        println!("input {:?} MiB", peak());
        fitter.fit_columns(&Curves::on_common_grid(&x, y, starts))?
    } else {
        let (y, starts): (Vec<f32>, Vec<f32>) = (y.collect(), starts.collect());
        println!("input {:?} MiB", peak());
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
        peak()
    );
    Ok(())
}
