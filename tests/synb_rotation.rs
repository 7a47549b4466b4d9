//! The 48 synb spectra with rotation, no starts given, against the f64 reference minima (shared `data/README.md`).

mod common;

use std::path::{Path, PathBuf};
use std::time::Instant;

use common::fits::{fitter, gpu, share, sound};
use common::synb::Comparison;
use common::{array, rotating_model, shared};
use popfit::{Device, FitTable, Spectra};

fn folder(shared: &Path) -> PathBuf {
    shared.join("data/synb/free_vsini")
}

fn fit(shared: &Path, device: &Device) -> (FitTable, Spectra) {
    let spectra = Spectra::open(folder(shared).join("spectra.npz")).unwrap();
    let begin = Instant::now();
    let table = fitter(rotating_model(shared), device).fit(&spectra).unwrap();
    println!("{}: {:.2} s with its first guess", device.name(), begin.elapsed().as_secs_f64());
    assert_eq!(table.parameters, ["velocity", "vsini", "teff", "logg", "feh", "alpha"]);
    sound(&table);
    assert!(table.rows.iter().all(|row| row.status.is_success()), "{:?}", table.rows);
    (table, spectra)
}

/// What the issue asks: no objective more than 0.1 above the reference, nine errors of ten within 5 %.
fn meets_the_reference(shared: &Path, device: &Device) {
    let (table, spectra) = fit(shared, device);
    let found = Comparison::new(&table, &spectra, &folder(shared));
    found.print(&device.name(), &table);
    for (n, gap) in found.gaps.iter().enumerate().filter(|(_, gap)| **gap > 0.02) {
        println!("spectrum {n}: {gap:.4} above, {:?}", table.rows[n]);
    }
    assert!(found.gaps.iter().all(|gap| *gap <= 0.1));
    assert!(found.errors_within(0.05) >= 0.9, "{}", found.errors_within(0.05));
    // where vsini is well measured the whole solution is the reference's
    let (_, errors) = array(&folder(shared).join("rvspecfit.npz"), "ref_err");
    let (_, x) = array(&folder(shared).join("rvspecfit.npz"), "ref_x");
    let measured: Vec<f64> =
        (0..table.len()).filter(|n| x[6 * n + 1] > 3.0 * errors[6 * n + 1]).map(|n| found.offsets[n]).collect();
    println!(
        "{} with vsini above three errors, {:.3} of them within 0.1 sigma",
        measured.len(),
        share(&measured, |s| *s < 0.1)
    );
    assert!(share(&measured, |s| *s < 0.1) >= 0.9);
}

#[test]
fn the_48_rotating_spectra_on_the_cpu() {
    let Some(shared) = shared() else { return };
    meets_the_reference(&shared, &Device::cpu());
}

#[test]
fn the_48_rotating_spectra_on_the_gpu() {
    let (Some(shared), Some(device)) = (shared(), gpu()) else { return };
    meets_the_reference(&shared, &device);
}
