//! Bad spectra among good ones (`tests/data/bad_inputs.md`, rows 1–10, 18–22, 25, 26): a row or a flag of their own,
//! and not a bit of another's changes.

use std::borrow::Cow;

use popfit::spectra::Wavelength;
use popfit::{
    Continuum, Device, Emulator, Error, FitRow, FitTable, Flags, NonFinite, Spectra,
    SpectraSettings, SpectralModel, SpectralModelBuilder, Status,
};
use popfit_testing::fits::{devices, fitter, offset, pick, same_bits, sound, synb_spectra};
use popfit_testing::synb_model;

const GOOD: usize = 5;
/// Places of the bad spectrum: first, in the middle, last.
const PLACES: [usize; 3] = [0, 2, GOOD - 1];

type Spoil = fn(&mut [f64], &mut [f64]);
type Outcome = fn(&FitRow) -> bool;

fn refused(row: &FitRow, cause: &str) -> bool {
    let nan = |values: &[f64]| values.iter().all(|x| x.is_nan());
    row.status == Status::BadInput
        && row.status_text == cause
        && nan(&row.parameters)
        && nan(&row.errors)
        && row.chi2.is_nan()
        && row.start.is_none()
}

/// Row of the list, what is done to flux and ivar, what must come out.
const FAULTS: [(&str, Spoil, Outcome); 14] = [
    (
        "1 NaN flux",
        |flux, _| flux[700] = f64::NAN,
        |row| refused(row, "non_finite_input"),
    ),
    (
        "1 infinite flux",
        |flux, _| flux[3] = f64::INFINITY,
        |row| refused(row, "non_finite_input"),
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
        |row| refused(row, "bad_weight"),
    ),
    (
        "5 NaN ivar",
        |_, ivar| ivar[1000] = f64::NAN,
        |row| refused(row, "bad_weight"),
    ),
    (
        "5 infinite ivar",
        |_, ivar| ivar[1000] = f64::INFINITY,
        |row| refused(row, "bad_weight"),
    ),
    (
        "6 no pixel",
        |_, ivar| ivar.fill(0.0),
        |row| refused(row, "no_data"),
    ),
    (
        "7 fewer pixels than parameters",
        |_, ivar| ivar[4..].fill(0.0),
        |row| refused(row, "underdetermined"),
    ),
    (
        "7 one pixel too few",
        |_, ivar| keep(ivar, 14),
        |row| refused(row, "underdetermined"),
    ),
    (
        "8 as many pixels as parameters",
        |_, ivar| keep(ivar, 15),
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
fn keep(ivar: &mut [f64], count: usize) {
    let step = ivar.len() / count;
    let kept: Vec<usize> = (0..count).map(|k| 30 + k * step).collect();
    (0..ivar.len())
        .filter(|j| !kept.contains(j))
        .for_each(|j| ivar[j] = 0.0);
}

/// The first spectra of synb, no pixel masked.
fn good() -> Spectra<'static> {
    let mut spectra = synb_spectra().slice(0..GOOD);
    spectra.arms[0].mask = Cow::default();
    spectra
}

/// A copy in which the spectrum at `place` is spoiled.
fn spoiled(
    spectra: &Spectra,
    place: usize,
    spoil: impl Fn(&mut [f64], &mut [f64]),
) -> Spectra<'static> {
    let mut out = spectra.clone().into_owned();
    let arm = &mut out.arms[0];
    let range = place * arm.pixels..(place + 1) * arm.pixels;
    spoil(
        &mut arm.flux.to_mut()[range.clone()],
        &mut arm.ivar.to_mut()[range],
    );
    out
}

fn others_are_unchanged(table: &FitTable, clean: &FitTable, place: usize, what: &str) {
    assert_eq!(table.len(), clean.len());
    sound(table);
    for (n, (row, clean)) in table.to_rows().into_iter().zip(clean.to_rows()).enumerate() {
        assert_eq!((&row.id, row.row), (&clean.id, n as u64));
        if n != place {
            same_bits(row, clean, &format!("{what}: bad {place}, spectrum {n}"));
        }
    }
}

#[test]
fn a_bad_spectrum_is_a_row_and_the_others_do_not_change() {
    let good = good();
    for device in devices() {
        let fitter = fitter(synb_model(), &device);
        let clean = fitter.fit(&good).unwrap();
        assert!(clean.status().iter().all(|status| status.is_success()));
        for (name, spoil, outcome) in FAULTS {
            for place in PLACES {
                let table = fitter.fit(&spoiled(&good, place, spoil)).unwrap();
                others_are_unchanged(&table, &clean, place, name);
                assert!(
                    outcome(&table.row(place).to_row()),
                    "{}: {name}: {:?}",
                    device.name(),
                    table.row(place).to_row()
                );
            }
        }
    }
}

#[test]
fn masked_values_are_never_seen() {
    let good = good();
    for device in devices() {
        let fitter = fitter(synb_model(), &device);
        let zero = spoiled(&good, 1, |_, ivar| ivar[100..120].fill(0.0));
        let expected = fitter.fit(&zero).unwrap();
        let unmasked = fitter.fit(&good).unwrap();
        assert_eq!(
            expected.row(1).to_row().dof,
            unmasked.row(1).to_row().dof - 20
        );
        let mut nan = zero.clone();
        nan.arms[0].flux.to_mut()[good.arms[0].pixels + 100..][..20].fill(f64::NAN);
        same_bits(
            fitter.fit(&nan).unwrap().row(1).to_row(),
            expected.row(1).to_row(),
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
            fitter.fit(&masked).unwrap().row(1).to_row(),
            expected.row(1).to_row(),
            "nonsense under the mask",
        );
    }
}

fn builder() -> SpectralModelBuilder {
    let emulator = Emulator::open(popfit_testing::demo_emulator()).unwrap();
    SpectralModel::builder()
        .arm("", emulator)
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10))
}

#[test]
fn non_finite_flux_is_masked_on_request() {
    let settings = SpectraSettings::default().nonfinite(NonFinite::Mask);
    let good = good();
    let fitter = fitter(builder().spectra(settings).build().unwrap(), &Device::cpu());
    let bad = fitter
        .fit(&spoiled(&good, 1, |flux, _| flux[50..53].fill(f64::NAN)))
        .unwrap();
    let zero = fitter
        .fit(&spoiled(&good, 1, |_, ivar| ivar[50..53].fill(0.0)))
        .unwrap();
    let mut row = bad.row(1).to_row();
    assert!(row.flags.contains(Flags::NONFINITE_MASKED) && row.status.is_success());
    row.flags &= !Flags::NONFINITE_MASKED;
    same_bits(&row, zero.row(1).to_row(), "masked by hand");
    assert!(
        bad.to_rows()
            .into_iter()
            .enumerate()
            .all(|(n, row)| n == 1 || !row.flags.contains(Flags::NONFINITE_MASKED))
    );
}

#[test]
fn strict_makes_a_bad_spectrum_an_error() {
    let bad = spoiled(&good(), 3, |_, ivar| ivar[17] = -2.0);
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
    // of bad spectra in several batches the first one is named
    let bad = spoiled(&bad, 1, |_, ivar| ivar[5] = -2.0);
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
fn starts_are_checked_one_by_one() {
    let good = good();
    let start = [0.0, 6000.0, 3.0, -1.0, 0.2];
    for device in devices() {
        let refusing = fitter(synb_model(), &device);
        let clipping = fitter(
            builder()
                .marginalise(true)
                .clip_starts(true)
                .build()
                .unwrap(),
            &device,
        );
        let clean = refusing.fit_from(&good, &start.repeat(GOOD)).unwrap();
        for place in PLACES {
            let with = |p: usize, value: f64| {
                let mut all = start.repeat(GOOD);
                all[5 * place + p] = value;
                all
            };
            for (p, value, cause) in [
                (1, 99_000.0, "start_out_of_bounds"),
                (0, -1001.0, "start_out_of_bounds"),
                (2, f64::NAN, "bad_start"),
            ] {
                let table = refusing.fit_from(&good, &with(p, value)).unwrap();
                others_are_unchanged(&table, &clean, place, cause);
                assert!(
                    refused(&table.row(place).to_row(), cause),
                    "{:?}",
                    table.row(place).to_row()
                );
            }
            let clipped = clipping.fit_from(&good, &with(1, 99_000.0)).unwrap();
            others_are_unchanged(&clipped, &clean, place, "clipped start");
            assert!(
                clipped
                    .row(place)
                    .to_row()
                    .flags
                    .contains(Flags::START_CLIPPED)
            );
            assert!(
                clipped.row(place).to_row().status.code() >= 0,
                "{:?}",
                clipped.row(place).to_row()
            );
        }
    }
    // without data the parameters are NaN, a start or not
    let table = fitter(synb_model(), &Device::cpu())
        .fit_from(
            &spoiled(&good, 2, |_, ivar| ivar.fill(0.0)),
            &start.repeat(GOOD),
        )
        .unwrap();
    assert!(
        refused(&table.row(2).to_row(), "no_data"),
        "{:?}",
        table.row(2).to_row()
    );
    let few = fitter(synb_model(), &Device::cpu())
        .fit_from(&good, &start)
        .unwrap_err();
    assert!(matches!(few, Error::ShapeMismatch { .. }), "{few}");
}

#[test]
fn the_scale_of_the_flux_does_not_matter() {
    let good = good();
    let scaled = |by: &dyn Fn(usize) -> f64| {
        (0..GOOD).fold(good.clone(), |spectra, n| {
            let by = by(n);
            spoiled(&spectra, n, |flux, ivar| {
                flux.iter_mut().for_each(|f| *f *= by);
                ivar.iter_mut().for_each(|w| *w /= by * by);
            })
        })
    };
    for device in devices() {
        // without the constants of −2 ln L a row has no units
        let fitter = fitter(builder().build().unwrap(), &device);
        let unit = fitter.fit(&good).unwrap();
        for exponent in [-57, 100] {
            let table = fitter.fit(&scaled(&|_| 2f64.powi(exponent))).unwrap();
            others_are_unchanged(
                &table,
                &unit,
                usize::MAX,
                &format!("{}: flux times 2^{exponent}", device.name()),
            );
        }
        let mixed = [1e-30, 1e-17, 1.0, 1e17, 1e30];
        let mut worst = 0f64;
        for (row, unit) in fitter
            .fit(&scaled(&|n| mixed[n]))
            .unwrap()
            .to_rows()
            .into_iter()
            .zip(unit.to_rows())
        {
            assert!(row.status.is_success(), "{row:?}");
            worst = worst.max(offset(&row, &unit.parameters, &unit.errors));
        }
        println!(
            "{}: scales of 1e-30 to 1e30 move a parameter by at most {worst:.1e} sigma",
            device.name()
        );
        assert!(worst < 1e-6);
    }
}

#[test]
fn no_spectra_no_rows() {
    for device in devices() {
        let fitter = fitter(synb_model(), &device);
        let table = fitter.fit(&pick(&good(), &[])).unwrap();
        assert!(table.is_empty() && table.names() == fitter.parameters());
        assert_eq!(table.floats("teff"), Some(&[][..]));
    }
}

/// Damages a wavelength grid.
type SpoilGrid = fn(&mut [f64]);

/// Row of the list, what is done to the spectrum's own grid, the cause.
const GRIDS: [(&str, SpoilGrid, &str); 5] = [
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
fn bad_grids() {
    let good = good();
    let arm = &good.arms[0];
    let mut own = good.clone();
    own.arms[0].wavelength = Wavelength::Own(arm.grid(0).repeat(GOOD).into());
    for device in devices() {
        let fitter = fitter(synb_model(), &device);
        let clean = fitter.fit(&own).unwrap();
        for (row, on_shared) in clean
            .to_rows()
            .into_iter()
            .zip(fitter.fit(&good).unwrap().to_rows())
        {
            same_bits(&row, on_shared, "own and shared grids");
        }
        for (name, spoil, cause) in GRIDS {
            for place in PLACES {
                let mut bad = own.clone();
                let Wavelength::Own(grids) = &mut bad.arms[0].wavelength else {
                    panic!()
                };
                spoil(&mut grids.to_mut()[place * arm.pixels..(place + 1) * arm.pixels]);
                let table = fitter.fit(&bad).unwrap();
                others_are_unchanged(&table, &clean, place, name);
                assert!(
                    refused(&table.row(place).to_row(), cause),
                    "{name}: {:?}",
                    table.row(place).to_row()
                );
            }
        }
    }
    // on a shared grid they are the file's fault
    for (name, spoil, cause) in GRIDS {
        let mut grid = arm.grid(0).to_vec();
        spoil(&mut grid);
        let error = match Spectra::from_arrays(grid, arm.flux.clone(), arm.ivar.clone(), None, None)
        {
            Ok(spectra) => fitter(synb_model(), &Device::cpu())
                .fit(&spectra)
                .unwrap_err(),
            Err(error) => error,
        };
        let right = if cause == "no_overlap" {
            matches!(error, Error::NoOverlap { .. })
        } else {
            matches!(error, Error::BadWavelength { .. })
        };
        assert!(right, "{name}: {error}");
    }
}
