//! The distances between the same fits in f32 and in f64, in errors: a fit that f32 ends too early is one of the large
//! ones.
//!
//! `cargo run --release --example two_precisions -- MODEL.toml SPECTRA...` prints each fit that is more than 0.02
//! errors off, then how many are within 0.0001, 0.001, 0.01 and 0.02 errors, or further. By hand: a change of the
//! rules by which steps are judged and fits end is to be judged by it, with spectra of low signal to noise among them.

use popfit::{Device, ModelFile, Precision, Result, RowView, Spectra, SpectralFitter};

/// Limits of the classes that are counted, in errors.
const LIMITS: [f64; 4] = [1e-4, 1e-3, 1e-2, 2e-2];

/// Returns the largest difference of a parameter in units of its error.
fn distance(single: &RowView<'_>, double: &RowView<'_>) -> f64 {
    let pairs = single.parameters().zip(double.parameters()).zip(double.errors());
    let measured = pairs.filter(|(_, error)| *error > 0.0);
    measured.map(|((x, y), error)| (x - y).abs() / error).fold(0.0, f64::max)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, files @ ..] = arguments.as_slice() else {
        eprintln!("usage: two_precisions MODEL.toml SPECTRA...");
        std::process::exit(2);
    };
    let model = ModelFile::open(model)?.build()?;
    let mut counts = [0; LIMITS.len() + 1];
    for file in files {
        let spectra = Spectra::open(file)?;
        let fit = |precision| SpectralFitter::new(model.clone(), Device::cpu()).precision(precision).fit(&spectra);
        let (single, double) = (fit(Precision::F32)?, fit(Precision::F64)?);
        for (row, (single, double)) in single.rows().zip(double.rows()).enumerate() {
            let distance = distance(&single, &double);
            let class = LIMITS.iter().filter(|limit| distance > **limit).count();
            counts[class] += 1;
            if class == LIMITS.len() {
                let (chi2, other) = (single.chi2(), double.chi2());
                println!("{file}, row {row}: {distance:.3} errors; χ² {chi2:.4} in f32, {other:.4} in f64");
            }
        }
    }
    println!("within {LIMITS:?} errors, and further: {counts:?} fits");
    Ok(())
}
