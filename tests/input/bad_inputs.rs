//! Bad spectra among good ones (`tests/data/bad_inputs.md`, rows 1–10, 18–22, 25, 26). They get a status or a flag, and
//! no bit of another row changes.

use std::borrow::Cow;

use popfit::spectra::Wavelength;
use popfit::{
    Continuum, Device, Emulator, Error, FitRow, FitTable, Flags, NonFinite, Spectra,
    SpectraSettings, SpectralModel, SpectralModelBuilder, Status,
};
use popfit_testing::fits::{devices, fitter, offset, pick, same_bits, sound, synb_spectra};
use popfit_testing::synb_model;

/// Number of spectra of a fit.
const SPECTRA: usize = 5;
/// Rows of the bad spectrum: the first, one in the middle, the last.
const BAD_ROWS: [usize; 3] = [0, 2, SPECTRA - 1];

/// Damages the flux and ivar of a spectrum.
type Spoil = fn(&mut [f64], &mut [f64]);
/// Returns whether a row is as expected.
type IsExpected = fn(&FitRow) -> bool;

fn is_refused(row: &FitRow, cause: &str) -> bool {
    let are_nan = |values: &[f64]| values.iter().all(|x| x.is_nan());
    row.status == Status::BadInput
        && row.status_text == cause
        && are_nan(&row.parameters)
        && are_nan(&row.errors)
        && row.chi2.is_nan()
        && row.start.is_none()
}

/// Row of the list with a description, damage of flux and ivar, and test of the result.
const BAD_SPECTRA: [(&str, Spoil, IsExpected); 14] = [
    (
        "1 NaN flux",
        |flux, _| flux[700] = f64::NAN,
        |row| is_refused(row, "non_finite_input"),
    ),
    (
        "1 infinite flux",
        |flux, _| flux[3] = f64::INFINITY,
        |row| is_refused(row, "non_finite_input"),
    ),
    (
        "2 NaN flux of ivar 0",
        |flux, ivar| (flux[700], ivar[700]) = (f64::NAN, 0.0),
        |row| row.status.is_success(),
    ),
    (
        "2 infinite flux of ivar 0",
        |flux, ivar| (flux[0], ivar[0]) = (f64::NEG_INFINITY, 0.0),
        |row| row.status.is_success(),
    ),
    (
        "4 negative ivar",
        |_, ivar| ivar[1000] = -1.0,
        |row| is_refused(row, "bad_weight"),
    ),
    (
        "5 NaN ivar",
        |_, ivar| ivar[1000] = f64::NAN,
        |row| is_refused(row, "bad_weight"),
    ),
    (
        "5 infinite ivar",
        |_, ivar| ivar[1000] = f64::INFINITY,
        |row| is_refused(row, "bad_weight"),
    ),
    (
        "6 no pixel",
        |_, ivar| ivar.fill(0.0),
        |row| is_refused(row, "no_data"),
    ),
    (
        "7 fewer pixels than parameters",
        |_, ivar| ivar[4..].fill(0.0),
        |row| is_refused(row, "underdetermined"),
    ),
    (
        "7 one pixel too few",
        |_, ivar| mask_all_but(ivar, 14),
        |row| is_refused(row, "underdetermined"),
    ),
    (
        "8 as many pixels as parameters",
        |_, ivar| mask_all_but(ivar, 15),
        |row| row.dof == 0 && row.status != Status::BadInput,
    ),
    (
        "flux zero",
        |flux, _| flux.fill(0.0),
        |row| row.status != Status::Interrupted,
    ),
    (
        "flux negative",
        |flux, _| flux.iter_mut().for_each(|f| *f = -*f),
        |row| row.status != Status::Interrupted,
    ),
    (
        "huge weights",
        |_, ivar| ivar.fill(1e300),
        |row| row.status != Status::Interrupted,
    ),
];

/// Masks all but `count` pixels, spread over the range.
fn mask_all_but(ivar: &mut [f64], count: usize) {
    let step = ivar.len() / count;
    let unmasked: Vec<usize> = (0..count).map(|k| 30 + k * step).collect();
    (0..ivar.len())
        .filter(|j| !unmasked.contains(j))
        .for_each(|j| ivar[j] = 0.0);
}

/// Returns the first spectra of synb without masks.
fn good_spectra() -> Spectra<'static> {
    let mut spectra = synb_spectra().slice(0..SPECTRA);
    spectra.arms[0].mask = Cow::default();
    spectra
}

/// Returns a copy in which one spectrum is damaged.
fn spoil_spectrum(
    spectra: &Spectra,
    bad_row: usize,
    spoil: impl Fn(&mut [f64], &mut [f64]),
) -> Spectra<'static> {
    let mut damaged = spectra.clone().into_owned();
    let arm = &mut damaged.arms[0];
    let range = bad_row * arm.pixels..(bad_row + 1) * arm.pixels;
    spoil(
        &mut arm.flux.to_mut()[range.clone()],
        &mut arm.ivar.to_mut()[range],
    );
    damaged
}

fn assert_other_rows_unchanged(table: &FitTable, clean: &FitTable, bad_row: usize, case: &str) {
    assert_eq!(table.len(), clean.len());
    sound(table);
    for (n, (row, clean)) in table.to_rows().into_iter().zip(clean.to_rows()).enumerate() {
        assert_eq!((&row.id, row.row), (&clean.id, n as u64));
        if n != bad_row {
            same_bits(row, clean, &format!("{case}: bad {bad_row}, spectrum {n}"));
        }
    }
}

#[test]
fn a_bad_spectrum_gets_a_status_and_other_rows_do_not_change() {
    let good = good_spectra();
    for device in devices() {
        let fitter = fitter(synb_model(), &device);
        let clean = fitter.fit(&good).unwrap();
        assert!(clean.status().iter().all(|status| status.is_success()));
        for (name, spoil, outcome) in BAD_SPECTRA {
            for bad_row in BAD_ROWS {
                let table = fitter.fit(&spoil_spectrum(&good, bad_row, spoil)).unwrap();
                assert_other_rows_unchanged(&table, &clean, bad_row, name);
                assert!(
                    outcome(&table.row(bad_row)),
                    "{}: {name}: {:?}",
                    device.name(),
                    table.row(bad_row)
                );
            }
        }
    }
}

#[test]
fn masked_values_do_not_change_the_fit() {
    let good = good_spectra();
    for device in devices() {
        let fitter = fitter(synb_model(), &device);
        let zero = spoil_spectrum(&good, 1, |_, ivar| ivar[100..120].fill(0.0));
        let expected = fitter.fit(&zero).unwrap();
        let unmasked = fitter.fit(&good).unwrap();
        assert_eq!(expected.row(1).dof, unmasked.row(1).dof - 20);
        let mut nan = zero.clone();
        nan.arms[0].flux.to_mut()[good.arms[0].pixels + 100..][..20].fill(f64::NAN);
        same_bits(
            fitter.fit(&nan).unwrap().row(1),
            expected.row(1),
            "NaN flux under ivar 0",
        );
        let mut masked = good.clone();
        let arm = &mut masked.arms[0];
        arm.mask = vec![false; arm.flux.len()].into();
        let range = arm.pixels + 100..arm.pixels + 120;
        arm.mask.to_mut()[range.clone()].fill(true);
        arm.flux.to_mut()[range.clone()].fill(f64::INFINITY);
        arm.ivar.to_mut()[range].fill(-1.0);
        same_bits(
            fitter.fit(&masked).unwrap().row(1),
            expected.row(1),
            "nonsense under the mask",
        );
    }
}

fn model_builder() -> SpectralModelBuilder {
    let emulator = Emulator::open(popfit_testing::demo_emulator()).unwrap();
    SpectralModel::builder()
        .arm("", emulator)
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10))
}

#[test]
fn non_finite_flux_is_masked_on_request() {
    let settings = SpectraSettings::default().nonfinite(NonFinite::Mask);
    let good = good_spectra();
    let fitter = fitter(
        model_builder().spectra(settings).build().unwrap(),
        &Device::cpu(),
    );
    let bad = fitter
        .fit(&spoil_spectrum(&good, 1, |flux, _| {
            flux[50..53].fill(f64::NAN)
        }))
        .unwrap();
    let zero = fitter
        .fit(&spoil_spectrum(&good, 1, |_, ivar| ivar[50..53].fill(0.0)))
        .unwrap();
    let mut row = bad.row(1);
    assert!(row.flags.contains(Flags::NONFINITE_MASKED) && row.status.is_success());
    row.flags.set(Flags::NONFINITE_MASKED, false);
    same_bits(&row, zero.row(1), "masked by hand");
    assert!(
        bad.to_rows()
            .into_iter()
            .enumerate()
            .all(|(n, row)| n == 1 || !row.flags.contains(Flags::NONFINITE_MASKED))
    );
}

#[test]
fn a_strict_fitter_fails_on_a_bad_spectrum() {
    let bad = spoil_spectrum(&good_spectra(), 3, |_, ivar| ivar[17] = -2.0);
    let error = fitter(synb_model(), &Device::cpu())
        .strict(true)
        .fit(&bad)
        .unwrap_err();
    let message = error.to_string();
    assert!(
        matches!(error, Error::BadSpectrum { row: 3, .. }),
        "{message}"
    );
    for part in [
        "spectra.npz",
        "row 3",
        "id 3",
        "bad_weight",
        "pixel 17",
        "ivar",
        "-2",
    ] {
        assert!(message.contains(part), "{message}: no {part}");
    }
    // The error names the first bad spectrum, even if there are several batches.
    let bad = spoil_spectrum(&bad, 1, |_, ivar| ivar[5] = -2.0);
    let error = fitter(synb_model(), &Device::cpu())
        .strict(true)
        .batch_size(1)
        .fit(&bad)
        .unwrap_err();
    assert!(
        matches!(error, Error::BadSpectrum { row: 1, .. }),
        "{error}"
    );
}

#[test]
fn starts_outside_their_bounds_are_refused_or_clipped_per_spectrum() {
    let good = good_spectra();
    let start = [0.0, 6000.0, 3.0, -1.0, 0.2];
    for device in devices() {
        let refusing = fitter(synb_model(), &device);
        let clipping = fitter(
            model_builder()
                .marginalise(true)
                .clip_starts(true)
                .build()
                .unwrap(),
            &device,
        );
        let clean = refusing.fit_from(&good, &start.repeat(SPECTRA)).unwrap();
        for bad_row in BAD_ROWS {
            let starts_with = |p: usize, value: f64| {
                let mut starts = start.repeat(SPECTRA);
                starts[5 * bad_row + p] = value;
                starts
            };
            for (p, value, cause) in [
                (1, 99_000.0, "start_out_of_bounds"),
                (0, -1001.0, "start_out_of_bounds"),
                (2, f64::NAN, "bad_start"),
            ] {
                let table = refusing.fit_from(&good, &starts_with(p, value)).unwrap();
                assert_other_rows_unchanged(&table, &clean, bad_row, cause);
                assert!(
                    is_refused(&table.row(bad_row), cause),
                    "{:?}",
                    table.row(bad_row)
                );
            }
            let clipped = clipping.fit_from(&good, &starts_with(1, 99_000.0)).unwrap();
            assert_other_rows_unchanged(&clipped, &clean, bad_row, "clipped start");
            assert!(clipped.row(bad_row).flags.contains(Flags::START_CLIPPED));
            assert!(
                clipped.row(bad_row).status.code() >= 0,
                "{:?}",
                clipped.row(bad_row)
            );
        }
    }
    // Without data the parameters are NaN, also if there is a start.
    let table = fitter(synb_model(), &Device::cpu())
        .fit_from(
            &spoil_spectrum(&good, 2, |_, ivar| ivar.fill(0.0)),
            &start.repeat(SPECTRA),
        )
        .unwrap();
    assert!(is_refused(&table.row(2), "no_data"), "{:?}", table.row(2));
    let error = fitter(synb_model(), &Device::cpu())
        .fit_from(&good, &start)
        .unwrap_err();
    assert!(matches!(error, Error::ShapeMismatch { .. }), "{error}");
}

#[test]
fn the_unit_of_the_flux_does_not_change_the_fit() {
    let good = good_spectra();
    let scale_spectra = |factor_of: &dyn Fn(usize) -> f64| {
        (0..SPECTRA).fold(good.clone(), |spectra, n| {
            let factor = factor_of(n);
            spoil_spectrum(&spectra, n, |flux, ivar| {
                flux.iter_mut().for_each(|f| *f *= factor);
                ivar.iter_mut().for_each(|w| *w /= factor * factor);
            })
        })
    };
    for device in devices() {
        // Without the constants of −2 ln L no number of a row has a unit.
        let fitter = fitter(model_builder().build().unwrap(), &device);
        let expected = fitter.fit(&good).unwrap();
        for exponent in [-57, 100] {
            let table = fitter
                .fit(&scale_spectra(&|_| 2f64.powi(exponent)))
                .unwrap();
            assert_other_rows_unchanged(
                &table,
                &expected,
                usize::MAX,
                &format!("{}: flux times 2^{exponent}", device.name()),
            );
        }
        let factors = [1e-30, 1e-17, 1.0, 1e17, 1e30];
        let mut largest_offset = 0f64;
        for (row, expected) in fitter
            .fit(&scale_spectra(&|n| factors[n]))
            .unwrap()
            .to_rows()
            .into_iter()
            .zip(expected.to_rows())
        {
            assert!(row.status.is_success(), "{row:?}");
            largest_offset =
                largest_offset.max(offset(&row, &expected.parameters, &expected.errors));
        }
        println!(
            "{}: scales of 1e-30 to 1e30 move a parameter by at most {largest_offset:.1e} sigma",
            device.name()
        );
        assert!(largest_offset < 1e-6);
    }
}

#[test]
fn no_spectra_give_a_table_without_rows() {
    for device in devices() {
        let fitter = fitter(synb_model(), &device);
        let table = fitter.fit(&pick(&good_spectra(), &[])).unwrap();
        assert!(table.is_empty() && table.names() == fitter.parameters());
        assert_eq!(table.floats("teff"), Some(&[][..]));
    }
}

/// Damages a wavelength grid.
type SpoilGrid = fn(&mut [f64]);

/// Description, damage of the spectrum's own grid, and cause of the status.
const BAD_GRIDS: [(&str, SpoilGrid, &str); 5] = [
    ("unsorted", |grid| grid.swap(10, 11), "bad_wavelength"),
    ("repeated", |grid| grid[500] = grid[499], "bad_wavelength"),
    ("NaN", |grid| grid[3740] = f64::NAN, "bad_wavelength"),
    ("negative", |grid| grid[0] = -1.0, "bad_wavelength"),
    (
        "no overlap",
        |grid| grid.iter_mut().for_each(|w| *w += 5000.0),
        "no_overlap",
    ),
];

#[test]
fn bad_wavelength_grids_are_refused_per_spectrum() {
    let good = good_spectra();
    let arm = &good.arms[0];
    let mut with_own_grids = good.clone();
    with_own_grids.arms[0].wavelength = Wavelength::Own(arm.grid(0).repeat(SPECTRA).into());
    for device in devices() {
        let fitter = fitter(synb_model(), &device);
        let clean = fitter.fit(&with_own_grids).unwrap();
        for (row, row_of_shared_grid) in clean
            .to_rows()
            .into_iter()
            .zip(fitter.fit(&good).unwrap().to_rows())
        {
            same_bits(&row, row_of_shared_grid, "own and shared grids");
        }
        for (name, spoil, cause) in BAD_GRIDS {
            for bad_row in BAD_ROWS {
                let mut bad = with_own_grids.clone();
                let Wavelength::Own(grids) = &mut bad.arms[0].wavelength else {
                    panic!()
                };
                spoil(&mut grids.to_mut()[bad_row * arm.pixels..(bad_row + 1) * arm.pixels]);
                let table = fitter.fit(&bad).unwrap();
                assert_other_rows_unchanged(&table, &clean, bad_row, name);
                assert!(
                    is_refused(&table.row(bad_row), cause),
                    "{name}: {:?}",
                    table.row(bad_row)
                );
            }
        }
    }
    // A fault of a shared grid is an error of the whole file.
    for (name, spoil, cause) in BAD_GRIDS {
        let mut grid = arm.grid(0).to_vec();
        spoil(&mut grid);
        let error = match Spectra::from_arrays(grid, arm.flux.clone(), arm.ivar.clone(), None, None)
        {
            Ok(spectra) => fitter(synb_model(), &Device::cpu())
                .fit(&spectra)
                .unwrap_err(),
            Err(error) => error,
        };
        let is_expected = if cause == "no_overlap" {
            matches!(error, Error::NoOverlap { .. })
        } else {
            matches!(error, Error::BadWavelength { .. })
        };
        assert!(is_expected, "{name}: {error}");
    }
}
