//! The 48 synb spectra with rotation, fitted from first guesses, against the f64 reference minima
//! (`tests/data/README.md`).

use std::path::PathBuf;
use std::time::Instant;

use popfit::{Device, FitTable, Spectra};
use popfit_testing::fits::{fitter, gpu, share, sound};
use popfit_testing::synb::{self, Comparison};
use popfit_testing::{array, rotating_model};

fn folder() -> PathBuf {
    synb::folder("free_vsini")
}

fn fit(device: &Device) -> (FitTable, Spectra<'static>) {
    let spectra = synb::spectra("free_vsini");
    let begin = Instant::now();
    let table = fitter(rotating_model(), device).fit(&spectra).unwrap();
    println!(
        "{}: {:.2} s with its first guess",
        device.name(),
        begin.elapsed().as_secs_f64()
    );
    assert_eq!(
        table.names(),
        ["velocity", "vsini", "teff", "logg", "feh", "alpha"]
    );
    sound(&table);
    assert!(
        table.status().iter().all(|status| status.is_success()),
        "{:?}",
        table
    );
    (table, spectra)
}

/// Checks a device against the reference: no objective more than 0.1 above it, nine errors of ten within 5 %.
fn assert_meets_the_reference(device: &Device) {
    let (table, spectra) = fit(device);
    let comparison = Comparison::new(&table, &spectra, &folder());
    comparison.print(&device.name(), &table);
    for (n, gap) in comparison
        .gaps
        .iter()
        .enumerate()
        .filter(|(_, gap)| **gap > 0.02)
    {
        println!("spectrum {n}: {gap:.4} above, {:?}", table.row(n));
    }
    assert!(comparison.gaps.iter().all(|gap| *gap <= 0.1));
    assert!(
        comparison.errors_within(0.05) >= 0.9,
        "{}",
        comparison.errors_within(0.05)
    );
    // Where vsini is well measured_offsets, the whole solution is the reference's.
    let (_, errors) = array(&folder().join("rvspecfit.npz"), "ref_err");
    let (_, x) = array(&folder().join("rvspecfit.npz"), "ref_x");
    let measured_offsets: Vec<f64> = (0..table.len())
        .filter(|n| x[6 * n + 1] > 3.0 * errors[6 * n + 1])
        .map(|n| comparison.offsets[n])
        .collect();
    println!(
        "{} with vsini above three errors, {:.3} of them within 0.1 sigma",
        measured_offsets.len(),
        share(&measured_offsets, |s| *s < 0.1)
    );
    assert!(share(&measured_offsets, |s| *s < 0.1) >= 0.9);
}

#[test]
fn the_48_rotating_spectra_meet_the_reference_on_the_cpu() {
    assert_meets_the_reference(&Device::cpu());
}

#[test]
fn the_48_rotating_spectra_meet_the_reference_on_the_gpu() {
    let Some(device) = gpu() else { return };
    assert_meets_the_reference(&device);
}
