//! Files of few spectra are fitted together, and each row is what its file alone would give.

use std::borrow::Cow;

use popfit::spectra::{ArmSpectra, Wavelength};
use popfit::{Control, Device, Spectra, Values};
use popfit_testing::files::Files;
use popfit_testing::fits::{devices, fitter, pick, same_bits, synb_spectra};
use popfit_testing::synb_model;

/// Takes the last `fewer` pixels from an arm.
fn shorten(arm: &mut ArmSpectra, fewer: usize) {
    let kept = arm.pixels - fewer;
    let Wavelength::Shared(grid) = &arm.wavelength else {
        panic!("a shared grid")
    };
    arm.wavelength = Wavelength::Shared(grid[..kept].into());
    let rows = |all: &Values| -> Values {
        all.to_double()
            .chunks(arm.pixels)
            .flat_map(|row| row[..kept].to_vec())
            .collect()
    };
    (arm.flux, arm.ivar) = (rows(&arm.flux), rows(&arm.ivar));
    (arm.pixels, arm.mask) = (kept, Cow::default());
}

/// One to three spectra each: on one grid, on grids of their own, with fewer pixels, some of them bad.
fn files(spectra: &Spectra) -> Vec<Spectra<'static>> {
    let mut files = Vec::new();
    let mut first = 0;
    while first + 3 <= 40 {
        let k = files.len();
        let count = 1 + k % 3;
        let mut file = pick(spectra, &(first..first + count).collect::<Vec<_>>());
        let arm = &mut file.arms[0];
        let Wavelength::Shared(grid) = &arm.wavelength else {
            panic!("a shared grid")
        };
        match k % 5 {
            1 => {
                arm.wavelength =
                    Wavelength::Shared(grid.iter().map(|w| w * (1.0 + 1e-7 * k as f64)).collect())
            }
            2 => arm.wavelength = Wavelength::Own(grid.repeat(count).into()),
            3 => shorten(arm, 40 + k),
            _ => {}
        }
        if k % 7 == 6 {
            arm.ivar.to_mut().fill(0.0);
        }
        file.file = format!("file {k}").into();
        files.push(file);
        first += count;
    }
    files
}

fn meets_its_file(device: &Device, files: &[Spectra<'static>]) {
    let fitter = fitter(synb_model(), device);
    let mut table = fitter.table();
    let control = Control::default().profile(true);
    let summary = fitter
        .fit_stream(&mut Files::new(files), &mut table, &control)
        .unwrap();
    let mut rows = table.rows();
    for file in files {
        for alone in fitter.fit(file).unwrap().to_rows() {
            let row = rows.next().unwrap().to_row();
            same_bits(&row, &alone, &format!("{}, {}", device.name(), file.file));
            assert_eq!(
                (&row.file, row.row, &row.id),
                (&file.file, alone.row, &alone.id)
            );
        }
    }
    assert!(rows.next().is_none());
    let rounds = &summary.profile.unwrap().devices[0].rounds;
    let together = rounds.iter().flat_map(|rounds| &rounds.active).max();
    println!("{}: at most {together:?} members in a round", device.name());
    assert!(together.is_some_and(|most| *most >= 12), "{together:?}");
}

/// Files have different numbers of pixels, as SDSS's do.
#[test]
fn files_of_other_lengths_share_a_population() {
    let spectra = synb_spectra();
    let shorter = |k: usize| {
        let mut file = pick(&spectra, &[k]);
        shorten(&mut file.arms[0], 3 * k);
        file.file = format!("file {k}").into();
        file
    };
    let files: Vec<Spectra<'static>> = (0..14).map(shorter).collect();
    devices()
        .iter()
        .for_each(|device| meets_its_file(device, &files));
}

/// Spectra that lack the same end share a continuum basis, in each file one of its own.
#[test]
fn files_with_windows_of_their_own_share_a_population() {
    let spectra = synb_spectra();
    let blue_end_masked = |k: usize| {
        let mut file = pick(&spectra, &(12 * k..12 * k + 12).collect::<Vec<_>>());
        let arm = &mut file.arms[0];
        shorten(arm, 100 * k);
        let masked = arm.pixels / 3;
        arm.ivar
            .to_mut()
            .chunks_mut(arm.pixels)
            .skip(2)
            .for_each(|ivar| ivar[..masked].fill(0.0));
        file.file = format!("file {k}").into();
        file
    };
    let files: Vec<Spectra<'static>> = (0..3).map(blue_end_masked).collect();
    devices()
        .iter()
        .for_each(|device| meets_its_file(device, &files));
}

#[test]
fn a_row_is_that_of_its_file_alone() {
    let files = files(&synb_spectra());
    assert!(files.len() >= 18);
    devices()
        .iter()
        .for_each(|device| meets_its_file(device, &files));
}
