//! Files of few spectra are fitted together, and each row has the bits of a fit of its file alone.

use std::borrow::Cow;

use popfit::spectra::{ArmSpectra, Wavelength};
use popfit::{Control, Device, Spectra, Values};
use popfit_testing::files::Files;
use popfit_testing::fits::{devices, fitter, pick, same_bits, synb_spectra};
use popfit_testing::synb_model;

/// Removes the last `removed` pixels of an arm.
fn shorten_arm(arm: &mut ArmSpectra, removed: usize) {
    let kept = arm.pixels - removed;
    let Wavelength::Shared(grid) = &arm.wavelength else {
        panic!("a shared grid")
    };
    arm.wavelength = Wavelength::Shared(grid[..kept].into());
    let shorten_rows = |values: &Values| -> Values {
        values
            .to_double()
            .chunks(arm.pixels)
            .flat_map(|row| row[..kept].to_vec())
            .collect()
    };
    arm.flux = shorten_rows(&arm.flux);
    arm.ivar = shorten_rows(&arm.ivar);
    arm.pixels = kept;
    arm.mask = Cow::default();
}

/// Returns files of one to three spectra: on one grid, on grids of their own, with fewer pixels, some without good
/// pixels.
fn mixed_files(spectra: &Spectra) -> Vec<Spectra<'static>> {
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
            3 => shorten_arm(arm, 40 + k),
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

fn assert_rows_meet_their_files(device: &Device, files: &[Spectra<'static>]) {
    let fitter = fitter(synb_model(), device);
    let mut table = fitter.table();
    let control = Control {
        profile: true,
        ..Control::default()
    };
    let summary = fitter
        .clone()
        .control(control.clone())
        .fit_stream(&mut Files::new(files), &mut table)
        .unwrap();
    let mut rows = table.to_rows().into_iter();
    for file in files {
        for alone in fitter.fit(file).unwrap().to_rows() {
            let row = rows.next().unwrap();
            same_bits(&row, &alone, &format!("{}, {}", device.name(), file.file));
            assert_eq!(
                (&row.file, row.row, &row.id),
                (&file.file, alone.row, &alone.id)
            );
        }
    }
    assert!(rows.next().is_none());
    let rounds = &summary.profile.unwrap().devices[0].rounds;
    let max_members = rounds.iter().flat_map(|rounds| &rounds.active).max();
    println!(
        "{}: at most {max_members:?} members in a round",
        device.name()
    );
    assert!(
        max_members.is_some_and(|members| *members >= 12),
        "{max_members:?}"
    );
}

/// Files have different numbers of pixels, as SDSS's do.
#[test]
fn files_with_different_numbers_of_pixels_share_a_population() {
    let spectra = synb_spectra();
    let shorter = |k: usize| {
        let mut file = pick(&spectra, &[k]);
        shorten_arm(&mut file.arms[0], 3 * k);
        file.file = format!("file {k}").into();
        file
    };
    let files: Vec<Spectra<'static>> = (0..14).map(shorter).collect();
    devices()
        .iter()
        .for_each(|device| assert_rows_meet_their_files(device, &files));
}

/// Spectra of a file that lack the same end share a continuum basis, which differs between the files.
#[test]
fn files_with_different_continuum_bases_share_a_population() {
    let spectra = synb_spectra();
    let blue_end_masked = |k: usize| {
        let mut file = pick(&spectra, &(12 * k..12 * k + 12).collect::<Vec<_>>());
        let arm = &mut file.arms[0];
        shorten_arm(arm, 100 * k);
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
        .for_each(|device| assert_rows_meet_their_files(device, &files));
}

#[test]
fn rows_have_the_bits_of_their_file_alone() {
    let files = mixed_files(&synb_spectra());
    assert!(files.len() >= 18);
    devices()
        .iter()
        .for_each(|device| assert_rows_meet_their_files(device, &files));
}
