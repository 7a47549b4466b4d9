//! `popfit-bench two-precisions`: compares the fits of the same spectra in f32 and in f64. A fit that f32 ends too
//! early ends at a distance.
//!
//! Prints each fit whose parameters differ by more than 0.02 errors or of which only one is a success, then the number
//! of fits within 0.0001, 0.001, 0.01 and 0.02 errors, and of the others. It judges a change of the rules by which
//! steps are accepted and fits end. Include spectra of low signal-to-noise ratio.

use std::path::PathBuf;

use popfit::{Device, FitRow, ModelFile, Precision, Spectra, SpectralFitter};
use popfit_cli::Failure;

/// Limits of the classes that are counted, in errors.
const LIMITS: [f64; 4] = [1e-4, 1e-3, 1e-2, 2e-2];

/// Returns the largest difference of a parameter in units of its error; infinity if only one of the fits is a success,
/// or if a parameter is no number in one of them alone.
fn distance(single: &FitRow, double: &FitRow) -> f64 {
    if single.status.is_success() != double.status.is_success() {
        return f64::INFINITY;
    }
    let pairs = single
        .parameters
        .iter()
        .zip(&double.parameters)
        .zip(&double.errors);
    let distances = pairs.map(|((x, y), error)| match (x.is_nan(), y.is_nan()) {
        (true, true) => 0.0,
        (false, false) if *error > 0.0 => (x - y).abs() / error,
        // a parameter at a bound has no error
        (false, false) => 0.0,
        _ => f64::INFINITY,
    });
    distances.fold(0.0, f64::max)
}

#[derive(clap::Args)]
pub struct Arguments {
    /// Model file
    model: PathBuf,
    /// Files of spectra
    #[arg(required = true)]
    spectra: Vec<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let model = ModelFile::open(&arguments.model)?.build()?;
    let mut counts = [0; LIMITS.len() + 1];
    for file in &arguments.spectra {
        let spectra = Spectra::open(file)?;
        let fit = |precision| {
            SpectralFitter::new(model.clone(), Device::cpu())
                .precision(precision)
                .fit(&spectra)
        };
        let (single, double) = (fit(Precision::F32)?, fit(Precision::F64)?);
        for (row, (single, double)) in single
            .to_rows()
            .into_iter()
            .zip(double.to_rows())
            .enumerate()
        {
            let distance = distance(&single, &double);
            let class = LIMITS.iter().filter(|limit| distance > **limit).count();
            counts[class] += 1;
            if class == LIMITS.len() {
                let (chi2, other) = (single.chi2, double.chi2);
                let (status, other_status) = (single.status, double.status);
                println!(
                    "{}, row {row}: {distance:.3} errors; {status:?}, χ² {chi2:.4} in f32, {other_status:?}, \
                     {other:.4} in f64",
                    file.display()
                );
            }
        }
    }
    println!("within {LIMITS:?} errors, and further: {counts:?} fits");
    Ok(())
}
