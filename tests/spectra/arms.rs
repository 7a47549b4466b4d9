//! Two arms through the same solver, on both devices: the synb spectra cut in two overlapping pieces.

use popfit::low_level::checks::{check_spectra, list_notes};
use popfit::spectra::ArmSpectra;
use popfit::{
    Arm, Continuum, Device, Emulator, FitTable, LineSpread, Spectra, SpectraSettings,
    SpectralModel, Values,
};
use popfit_testing::fits::{fitter, gpu, offset, same_bits, share, sound, synb_spectra};
use popfit_testing::{array, data_folder, median};

const SPECTRA: usize = 128;

/// Pixels of the arms "b" and "r".
const CUTS: [(&str, std::ops::Range<usize>); 2] = [("b", 0..2000), ("r", 1900..3741)];

fn cut_into_two_arms(whole: &Spectra) -> Spectra<'static> {
    let source = &whole.arms[0];
    let cut_arm = |(name, range): &(&str, std::ops::Range<usize>)| {
        let cut_rows = |values: &Values| {
            values
                .to_double()
                .chunks_exact(source.pixels)
                .flat_map(|row| row[range.clone()].to_vec())
                .collect::<Vec<f64>>()
        };
        let mask = source
            .mask
            .chunks_exact(source.pixels)
            .flat_map(|row| row[range.clone()].to_vec())
            .collect();
        let grid = source.grid(0)[range.clone()].to_vec();
        ArmSpectra::new(
            *name,
            range.len(),
            grid,
            cut_rows(&source.flux),
            cut_rows(&source.ivar),
            Some(mask),
        )
        .unwrap()
    };
    Spectra::from_arms(CUTS.iter().map(cut_arm).collect(), Some(whole.ids.clone())).unwrap()
}

fn model(arms: &[&str]) -> SpectralModel {
    let emulator = Emulator::open(popfit_testing::demo_emulator()).unwrap();
    let builder = arms.iter().fold(SpectralModel::builder(), |builder, arm| {
        builder.arm(*arm, emulator.clone())
    });
    // Each arm has a continuum with as many terms as the whole range.
    builder
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::chebyshev(14))
        .marginalise(true)
        .build()
        .unwrap()
}

fn fit(device: &Device, spectra: &Spectra) -> FitTable {
    let table = fitter(model(&["b", "r"]), device).fit(spectra).unwrap();
    sound(&table);
    table
}

#[test]
fn fits_of_two_arms_agree_with_the_truth_and_between_devices() {
    let spectra = cut_into_two_arms(&synb_spectra());
    let cpu = fit(&Device::cpu(), &spectra);
    let (_, truth) = array(
        &data_folder().join("synb/fixed_vsini/truth.npz"),
        "parameters",
    );
    let offset_from_truth =
        |n: usize| offset(&cpu.row(n), &truth[5 * n..5 * n + 5], &cpu.row(n).errors);
    let inside_bounds: Vec<usize> = (0..SPECTRA).filter(|&n| cpu.row(n).at_bound == 0).collect();
    let offsets: Vec<f64> = inside_bounds
        .iter()
        .map(|&n| offset_from_truth(n))
        .collect();
    println!(
        "two arms against the truth, largest of five in sigma: median {:.3}, within 4: {:.3}",
        median(offsets.clone()),
        share(&offsets, |s| *s < 4.0)
    );
    assert!(cpu.status().iter().all(|status| status.is_success()));
    // The largest of five normal numbers has median 1.5. The 100 pixels of both arms count twice.
    assert!((1.0..2.1).contains(&median(offsets.clone())));
    assert!(share(&offsets, |s| *s < 4.0) >= 0.97);
    let Some(device) = gpu() else { return };
    let on_gpu = fit(&device, &spectra);
    let offsets_between_devices: Vec<f64> = inside_bounds
        .iter()
        .map(|&n| offset(&on_gpu.row(n), &cpu.row(n).parameters, &cpu.row(n).errors))
        .collect();
    println!(
        "between devices, in sigma: median {:.5}, within 0.05: {:.3}",
        median(offsets_between_devices.clone()),
        share(&offsets_between_devices, |s| *s < 0.05)
    );
    assert!(share(&offsets_between_devices, |s| *s < 0.05) >= 0.98);
}

/// Spoils the pixels of one spectrum in an arm.
type Spoil = fn(&mut ArmSpectra, std::ops::Range<usize>);

/// Faults that make an arm of one spectrum worthless: a mask over NaN, no weight under NaN flux, NaN throughout.
const LOSSES: [(&str, Spoil); 3] = [
    ("masked", |arm, range| {
        arm.mask.to_mut()[range.clone()].fill(true);
        arm.flux.to_mut()[range.clone()].fill(f64::NAN);
        arm.ivar.to_mut()[range].fill(f64::NAN);
    }),
    ("without weight", |arm, range| {
        arm.flux.to_mut()[range.clone()].fill(f64::NAN);
        arm.ivar.to_mut()[range].fill(0.0);
    }),
    ("missing", |arm, range| {
        arm.flux.to_mut()[range.clone()].fill(f64::NAN);
        arm.ivar.to_mut()[range].fill(f64::NAN);
    }),
];

#[test]
fn an_arm_without_data_drops_out_of_its_spectrum_alone() {
    let spectra = cut_into_two_arms(&synb_spectra()).slice(0..16);
    for device in popfit_testing::fits::devices() {
        let whole = fit(&device, &spectra);
        let blue = fitter(model(&["b"]), &device).fit(&spectra).unwrap();
        for (loss, spoil) in LOSSES {
            let mut spoilt = spectra.clone();
            let arm = &mut spoilt.arms[1];
            let range = 5 * arm.pixels..6 * arm.pixels;
            spoil(arm, range);
            let spoilt = fit(&device, &spoilt);
            for (n, (a, b)) in spoilt
                .to_rows()
                .into_iter()
                .zip(whole.to_rows())
                .enumerate()
                .filter(|(n, _)| *n != 5)
            {
                same_bits(a, b, &format!("{}, {loss}: spectrum {n}", device.name()));
            }
            let row = &spoilt.row(5);
            let blue = &blue.row(5);
            assert!(
                row.status.is_success() && row.dof == blue.dof,
                "{loss}: {row:?}\n{blue:?}"
            );
            // A dropped arm adds exact zeros to chi2, ln det C, dof and terms.
            same_bits(
                row,
                blue,
                &format!("{}, {loss}: the other arm alone", device.name()),
            );
        }
    }
}

/// A file without one of the model's arms is fitted without it; one with none of them is refused.
#[test]
fn an_arm_that_a_file_lacks_drops_out() {
    let mut spectra = cut_into_two_arms(&synb_spectra()).slice(0..8);
    for device in popfit_testing::fits::devices() {
        let blue = fitter(model(&["b"]), &device).fit(&spectra).unwrap();
        let alone = Spectra {
            arms: vec![spectra.arms[0].clone()],
            ..spectra.clone()
        };
        let two_arm_fitter = fitter(model(&["b", "r"]), &device);
        assert!(
            list_notes(&two_arm_fitter, &alone)[0].contains("arm \"r\"")
                && list_notes(&two_arm_fitter, &spectra).is_empty()
        );
        let fits = two_arm_fitter.fit(&alone).unwrap();
        for (row, blue) in fits.to_rows().into_iter().zip(blue.to_rows()) {
            same_bits(row, blue, &format!("{}: a file of one arm", device.name()));
        }
        let drawn_arms = two_arm_fitter.model_spectrum(&alone, &fits.row(0)).unwrap();
        assert!(
            drawn_arms[0].unmasked > 0
                && drawn_arms[1].model.is_empty()
                && drawn_arms[1].chi2.to_bits() == 0
        );
    }
    // An arm is not dropped because of a typing error.
    let mut misspelt = spectra.clone();
    misspelt.arms[1].name = "R".into();
    for error in [
        check_spectra(
            &fitter(model(&["b", "r"]), &popfit::Device::cpu()),
            [&misspelt],
        )
        .unwrap_err(),
        fitter(model(&["b", "r"]), &popfit::Device::cpu())
            .fit(&misspelt)
            .unwrap_err(),
    ] {
        assert!(
            error
                .to_string()
                .contains("it has no arm \"r\", but an arm \"R\" that the model does not use"),
            "{error}"
        );
    }
    misspelt.arms[1].name = "z".into();
    assert!(
        fitter(model(&["b", "r"]), &popfit::Device::cpu())
            .fit(&misspelt)
            .is_ok()
    );
    spectra.arms.iter_mut().for_each(|arm| arm.name.push('x'));
    let error = fitter(model(&["b", "r"]), &popfit::Device::cpu())
        .fit(&spectra)
        .unwrap_err();
    assert!(
        error.to_string().contains("there are arms: bx, rx"),
        "{error}"
    );
}

/// Each arm has its own continuum, range and line spread. The masks and the error floor of the model apply to all.
#[test]
fn arms_have_settings_of_their_own() {
    let spectra = cut_into_two_arms(&synb_spectra()).slice(0..8);
    let emulator = Emulator::open(popfit_testing::demo_emulator()).unwrap();
    let grid = spectra.arms[0].grid(0);
    let low = grid[200];
    let high = grid[1500];
    let blue = Arm::new("b", emulator.clone())
        .range(low..=high)
        .continuum(Continuum::rbf(6));
    let red = Arm::new("r", emulator)
        .continuum(Continuum::chebyshev(9))
        .line_spread(LineSpread::ResolvingPower(9000.0));
    let mask = vec![(grid[300] - 0.01, grid[309] + 0.01)];
    let settings = SpectraSettings::default().mask(mask).error_floor(0.5);
    let builder = SpectralModel::builder()
        .add_arm(blue)
        .add_arm(red)
        .velocity(-1000.0..=1000.0)
        .spectra(settings);
    let model = builder.build().unwrap();
    for device in popfit_testing::fits::devices() {
        let table = fitter(model.clone(), &device).fit(&spectra).unwrap();
        for (n, row) in table.to_rows().into_iter().enumerate() {
            let is_used = |arm: &ArmSpectra, j: usize| {
                arm.ivar.to_double()[n * arm.pixels + j] > 0.0 && !arm.mask[n * arm.pixels + j]
            };
            let blue = (200..=1500)
                .filter(|&j| !(300..310).contains(&j) && is_used(&spectra.arms[0], j))
                .count();
            let red = (0..spectra.arms[1].pixels)
                .filter(|&j| is_used(&spectra.arms[1], j))
                .count();
            assert!(row.status.is_success(), "{row:?}");
            assert_eq!(
                row.dof,
                (blue + red) as i64 - 5 - 6 - 9,
                "{}: spectrum {n}",
                device.name()
            );
        }
        let drawn_arms = fitter(model.clone(), &device)
            .model_spectrum(&spectra, &table.row(0))
            .unwrap();
        assert!(
            drawn_arms[0].mask[199]
                && drawn_arms[0].mask[305]
                && drawn_arms[0].mask[1501]
                && !drawn_arms[0].mask[250]
        );
    }
}

/// An arm of which the model's masks leave no pixel, or fewer than continuum terms, drops out of spectra that have no
/// weight there. The other arm is fitted and drawn.
#[test]
fn an_arm_that_the_model_masks_drops_out() {
    let mut spectra = cut_into_two_arms(&synb_spectra()).slice(0..4);
    let grid = spectra.arms[1].grid(0).into_owned();
    let pixels = spectra.arms[1].pixels;
    spectra.arms[1].ivar.to_mut()[..2 * pixels].fill(0.0);
    let emulator = Emulator::open(popfit_testing::demo_emulator()).unwrap();
    for unmasked in [0, 3] {
        let masked = vec![(grid[unmasked] - 0.01, grid[pixels - 1] + 0.01)];
        let builder = SpectralModel::builder()
            .arm("b", emulator.clone())
            .arm("r", emulator.clone());
        let builder = builder
            .continuum(Continuum::chebyshev(14))
            .spectra(SpectraSettings::default().mask(masked));
        let model = builder
            .velocity(-1000.0..=1000.0)
            .marginalise(true)
            .build()
            .unwrap();
        let fitter = fitter(model, &Device::cpu());
        let table = fitter.fit(&spectra).unwrap();
        for (n, row) in table.to_rows().into_iter().enumerate() {
            assert!(
                row.status.is_success(),
                "{unmasked} pixels, spectrum {n}: {row:?}"
            );
            assert_eq!(
                row.continuum_terms[1],
                if n < 2 { 0 } else { unmasked as u32 },
                "spectrum {n}"
            );
            let arms = fitter.model_spectrum(&spectra, &row).unwrap();
            assert_eq!(arms[1].unmasked, if n < 2 { 0 } else { unmasked });
        }
    }
}
