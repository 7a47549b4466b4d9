//! The 128 synb spectra, fitted from first guesses, against the f64 reference minima and the truth
//! (`tests/data/README.md`).

use std::path::{Path, PathBuf};

use popfit::{Device, FitRow, FitTable, Spectra};
use popfit_testing::fits::{fitter, gpu, offset, share, synb_spectra};
use popfit_testing::synb::{self, Comparison};
use popfit_testing::{array, median, synb_model};

const PARAMETERS: usize = 5;

fn folder() -> PathBuf {
    synb::folder("fixed_vsini")
}

fn fit(device: &Device) -> (FitTable, Spectra<'static>) {
    let spectra = synb_spectra();
    let table = fitter(synb_model(), device).fit(&spectra).unwrap();
    assert_eq!(table.names(), ["velocity", "teff", "logg", "feh", "alpha"]);
    assert_eq!(table.len(), 128);
    for (n, row) in table.to_rows().into_iter().enumerate() {
        assert!(row.status.is_success(), "{n}: {row:?}");
    }
    (table, spectra)
}

/// Checks a device's table against the reference.
fn assert_meets_the_reference(table: &FitTable, spectra: &Spectra, folder: &Path) {
    let comparison = Comparison::new(table, spectra, folder);
    comparison.print("fixed vsini", table);
    let Comparison {
        gaps,
        offsets,
        ratios,
    } = &comparison;
    assert!(share(gaps, |g| *g <= 0.02) >= 0.99);
    assert!(
        gaps.iter().all(|g| *g <= 0.1),
        "{:?}",
        gaps.iter().position(|g| *g > 0.1)
    );
    assert!(share(offsets, |s| *s <= 0.1) >= 0.99);
    assert!(comparison.errors_within(0.05) >= 0.95);
    assert!((median(ratios.clone()) - 1.0).abs() <= 0.01);
    // rvspecfit ends 41 too high here.
    assert!(
        gaps[10].abs() < 0.02 && offsets[10] < 0.1,
        "spectrum 10: {} {}",
        gaps[10],
        offsets[10]
    );
}

/// Checks that (fitted − true) / error has mean 0 and standard deviation 1.
fn assert_pulls_are_normal(table: &FitTable, folder: &Path) {
    let (_, truth) = array(&folder.join("truth.npz"), "parameters");
    for (p, name) in table.names().iter().enumerate() {
        let pull = |(n, row): (usize, FitRow)| {
            (row.parameters[p] - truth[n * PARAMETERS + p]) / row.errors[p]
        };
        // A parameter at a bound has no error.
        let free_rows = table
            .to_rows()
            .into_iter()
            .enumerate()
            .filter(|(_, row)| row.at_bound >> p & 1 == 0);
        let pulls: Vec<f64> = free_rows.map(pull).collect();
        assert!(pulls.len() > 120, "{name}: {}", pulls.len());
        let count = pulls.len() as f64;
        let mean = pulls.iter().sum::<f64>() / count;
        let deviation =
            (pulls.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt();
        println!("pulls of {name}: mean {mean:.3}, standard deviation {deviation:.3}");
        assert!(
            mean.abs() < 0.25 && (0.8..1.2).contains(&deviation),
            "{name}: {mean} {deviation}"
        );
    }
}

#[test]
fn the_128_spectra_meet_the_reference_on_the_cpu() {
    let (table, spectra) = fit(&Device::cpu());
    assert_meets_the_reference(&table, &spectra, &folder());
    assert_pulls_are_normal(&table, &folder());
}

#[test]
fn the_128_spectra_meet_the_reference_on_the_gpu() {
    let Some(device) = gpu() else { return };
    let (table, spectra) = fit(&device);
    assert_meets_the_reference(&table, &spectra, &folder());
    let (cpu, _) = fit(&Device::cpu());
    let (_, errors) = array(&folder().join("rvspecfit.npz"), "ref_err");
    let pairs = table
        .to_rows()
        .into_iter()
        .zip(cpu.to_rows())
        .zip(errors.chunks_exact(PARAMETERS));
    let offsets: Vec<f64> = pairs
        .map(|((gpu, cpu), errors)| offset(&gpu, &cpu.parameters, errors))
        .collect();
    println!(
        "between devices, in sigma: median {:.5}, at most {:.4}, {:.4} within 0.02",
        median(offsets.clone()),
        offsets.iter().copied().fold(0.0, f64::max),
        share(&offsets, |s| *s <= 0.02)
    );
    assert!(share(&offsets, |s| *s <= 0.02) >= 0.98);
    for (gpu, cpu) in table.to_rows().into_iter().zip(cpu.to_rows()) {
        assert!(
            gpu.start == cpu.start || (gpu.objective - cpu.objective).abs() < 0.02,
            "{gpu:?}\n{cpu:?}"
        );
    }
}
