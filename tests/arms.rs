//! Two arms through the same solver, on both devices: the synb spectra cut in two overlapping pieces.

mod common;

use std::path::Path;

use common::fits::{fitter, gpu, offset, same_bits, share, sound, synb_spectra};
use common::{array, median, shared};
use popfit::spectra::ArmSpectra;
use popfit::{Continuum, Device, Emulator, FitTable, Spectra, SpectralModel};

const SPECTRA: usize = 128;

/// Pixels of the arms "b" and "r".
const CUTS: [(&str, std::ops::Range<usize>); 2] = [("b", 0..2000), ("r", 1900..3741)];

fn two_arms(whole: &Spectra) -> Spectra {
    let source = &whole.arms[0];
    let cut = |(name, range): &(&str, std::ops::Range<usize>)| {
        let rows = |all: &[f64]| {
            all.chunks_exact(source.pixels).flat_map(|row| row[range.clone()].to_vec()).collect::<Vec<f64>>()
        };
        let mask = source.mask.chunks_exact(source.pixels).flat_map(|row| row[range.clone()].to_vec()).collect();
        let grid = source.grid(0)[range.clone()].to_vec();
        ArmSpectra::new(*name, range.len(), grid.into(), rows(&source.flux), rows(&source.ivar), Some(mask)).unwrap()
    };
    Spectra::from_arms(CUTS.iter().map(cut).collect(), Some(whole.ids.clone())).unwrap()
}

fn model(shared: &Path, arms: &[&str]) -> SpectralModel {
    let emulator = Emulator::open(shared.join("data/synb/emulator.safetensors")).unwrap();
    let builder = arms.iter().fold(SpectralModel::builder(), |builder, arm| builder.arm(*arm, emulator.clone()));
    // the continuum of the whole range, seen in halves
    builder.velocity(-1000.0..=1000.0).continuum(Continuum::chebyshev(14)).marginalise(true).build().unwrap()
}

fn fit(shared: &Path, device: &Device, spectra: &Spectra) -> FitTable {
    let table = fitter(model(shared, &["b", "r"]), device).fit(spectra).unwrap();
    sound(&table);
    table
}

#[test]
fn two_arms_on_both_devices() {
    let Some(shared) = shared() else { return };
    let spectra = two_arms(&synb_spectra(&shared));
    let cpu = fit(&shared, &Device::cpu(), &spectra);
    let (_, truth) = array(&shared.join("data/synb/fixed_vsini/truth.npz"), "parameters");
    let away = |n: usize| offset(&cpu.rows[n], &truth[5 * n..5 * n + 5], &cpu.rows[n].errors);
    let inside: Vec<usize> = (0..SPECTRA).filter(|&n| cpu.rows[n].at_bound == 0).collect();
    let offsets: Vec<f64> = inside.iter().map(|&n| away(n)).collect();
    println!(
        "two arms against the truth, largest of five in sigma: median {:.3}, within 4: {:.3}",
        median(offsets.clone()),
        share(&offsets, |s| *s < 4.0)
    );
    assert!(cpu.rows.iter().all(|row| row.status.is_success()));
    // the largest of five normal numbers has median 1.5; the 100 pixels of both arms count twice
    assert!((1.0..2.1).contains(&median(offsets.clone())));
    assert!(share(&offsets, |s| *s < 4.0) >= 0.97);
    let Some(device) = gpu() else { return };
    let on_gpu = fit(&shared, &device, &spectra);
    let apart: Vec<f64> =
        inside.iter().map(|&n| offset(&on_gpu.rows[n], &cpu.rows[n].parameters, &cpu.rows[n].errors)).collect();
    println!(
        "between devices, in sigma: median {:.5}, within 0.05: {:.3}",
        median(apart.clone()),
        share(&apart, |s| *s < 0.05)
    );
    assert!(share(&apart, |s| *s < 0.05) >= 0.98);
}

#[test]
fn a_masked_arm_drops_out_of_its_spectrum_alone() {
    let Some(shared) = shared() else { return };
    let spectra = two_arms(&synb_spectra(&shared)).slice(0..16);
    let mut masked = spectra.clone();
    let arm = &mut masked.arms[1];
    let range = 5 * arm.pixels..6 * arm.pixels;
    arm.mask[range.clone()].fill(true);
    // not even NaN under the mask is seen
    arm.flux[range.clone()].fill(f64::NAN);
    arm.ivar[range].fill(f64::NAN);
    for device in common::fits::devices() {
        let (whole, some) = (fit(&shared, &device, &spectra), fit(&shared, &device, &masked));
        for (n, (a, b)) in some.rows.iter().zip(&whole.rows).enumerate().filter(|(n, _)| *n != 5) {
            same_bits(a, b, &format!("{}: spectrum {n}", device.name()));
        }
        let blue = fitter(model(&shared, &["b"]), &device).fit(&spectra).unwrap();
        let (row, blue) = (&some.rows[5], &blue.rows[5]);
        assert!(row.status.is_success() && row.dof == blue.dof, "{row:?}\n{blue:?}");
        // a dropped arm adds exact zeros
        same_bits(row, blue, &format!("{}: the other arm alone", device.name()));
    }
}
