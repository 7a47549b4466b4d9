//! Networks that end inside the data: pixels that their templates do not cover do not count, and the fits to the other
//! pixels are right. `tests/reference/check_ends.py` draws thousands of such stars.

use std::path::PathBuf;

use popfit::{
    Continuum, Device, Emulator, FitRow, FitTable, Flags, LabelSettings, Spectra, SpectralModel,
};
use popfit_testing::cut::cut_emulator;
use popfit_testing::fits::{devices, fitter};
use popfit_testing::{array, data_folder, demo_emulator};

/// Parameters that need not have errors: at a bound, or without rotation.
const NO_ERRORS_EXPECTED: Flags = Flags::AT_BOUND.union(Flags::NO_ROTATION);
/// Å: the pieces of three.npz.
const THREE_PIECES: [(f64, f64); 3] = [(4050.0, 4338.0), (4400.0, 4858.0), (4868.0, 5300.0)];

fn path(name: &str) -> PathBuf {
    data_folder().join("ends").join(name)
}

/// Returns the distances of parameter `name` from its true values, the column `T` + NAME of a file, in errors; 0 where
/// the row has no error.
fn pulls(table: &FitTable, file: &str, name: &str) -> Vec<f64> {
    let (_, truth) = array(&path(file), &format!("T{}", name.to_uppercase()));
    let p = table
        .names()
        .iter()
        .position(|parameter_name| parameter_name == name)
        .unwrap();
    let pull = |row: &FitRow, truth: f64| (row.parameters[p] - truth) / row.errors[p];
    let rows = table.to_rows();
    let pulls = rows.iter().zip(truth).map(|(row, truth)| pull(row, truth));
    let pulls: Vec<f64> = pulls.collect();
    assert!(
        3 * pulls.iter().filter(|pull| pull.is_nan()).count() <= pulls.len(),
        "{name}: {pulls:?}"
    );
    pulls
        .into_iter()
        .map(|pull| if pull.is_nan() { 0.0 } else { pull })
        .collect()
}

/// Checks that these parameters are less than `limit` errors off in all spectra of a file.
fn check_pulls(model: &SpectralModel, file: &str, names: &[&str], limit: f64) -> FitTable {
    let spectra = Spectra::open(path(file)).unwrap();
    let mut table_of_last_device = None;
    for device in devices() {
        let table = fitter(model.clone(), &device).fit(&spectra).unwrap();
        assert!(
            table.status().iter().all(|status| status.is_success()),
            "{}",
            device.name()
        );
        assert!(
            table
                .to_rows()
                .iter()
                .all(|row| row.unreached.iter().all(|pixels| *pixels > 0)),
            "{}",
            device.name()
        );
        for name in names {
            let pulls = pulls(&table, file, name);
            let largest = pulls
                .iter()
                .copied()
                .fold(0.0, |largest: f64, pull| largest.max(pull.abs()));
            assert!(largest < limit, "{}, {name}: {pulls:.1?}", device.name());
        }
        table_of_last_device = Some(table);
    }
    table_of_last_device.unwrap()
}

/// With templates that are zero beyond their ends, all 16 stars of 20 to 80 km/s ended below 3 km/s.
#[test]
fn vsini_is_right_on_the_networks_own_grid() {
    let emulator = Emulator::open(path("network.safetensors")).unwrap();
    let model = SpectralModel::builder()
        .arm("b", emulator)
        .velocity(-300.0..=300.0)
        .vsini(0.0..=200.0);
    let model = model.continuum(Continuum::chebyshev(3)).build().unwrap();
    let table = check_pulls(&model, "vsini.npz", &["velocity", "vsini"], 4.0);
    assert!(
        table
            .flags()
            .iter()
            .filter(|flags| flags.intersects(NO_ERRORS_EXPECTED))
            .count()
            <= 2
    );
}

/// Strong lines lie just beyond both ends of the network. Compared with its end values, they moved velocities by up to
/// 23 errors and labels by up to 41. The first guess must not use them either: it took them for missing lines.
#[test]
fn strong_lines_beyond_the_ends_move_no_parameter() {
    let model = SpectralModel::builder()
        .arm("b", cut_emulator(&[(4345.0, 4858.0)]))
        .velocity(-1000.0..=1000.0);
    let model = model.continuum(Continuum::chebyshev(10)).build().unwrap();
    check_pulls(
        &model,
        "velocity.npz",
        &["velocity", "teff", "logg", "feh", "alpha"],
        5.0,
    );
}

#[test]
fn each_piece_of_a_network_has_its_own_ends() {
    let model = SpectralModel::builder()
        .arm("b", cut_emulator(&THREE_PIECES))
        .velocity(-600.0..=600.0)
        .vsini(0.0..=200.0);
    let model = model.continuum(Continuum::chebyshev(4)).build().unwrap();
    check_pulls(
        &model,
        "three.npz",
        &["velocity", "vsini", "teff", "logg", "feh", "alpha"],
        4.5,
    );
}

/// Hot stars whose Balmer lines lie at the ends of the pieces, so that the continuum absorbs their wings. The first
/// guess was off by up to 250 km/s, or had too few starts, and gravities were off by up to 80 errors.
#[test]
fn lines_at_the_ends_do_not_mislead_the_first_guess() {
    for (file, pieces) in [
        ("one.npz", &[(4345.0, 4858.0)][..]),
        ("two.npz", &[(4100.0, 4345.0), (4380.0, 4858.0)]),
    ] {
        let model = SpectralModel::builder()
            .arm("b", cut_emulator(pieces))
            .velocity(-1000.0..=1000.0);
        let model = model.continuum(Continuum::chebyshev(4)).build().unwrap();
        check_pulls(
            &model,
            file,
            &["velocity", "teff", "logg", "feh", "alpha"],
            5.0,
        );
    }
}

/// The pixels of a fit are those that count at its end, wherever it began: a fit whose start is far off is repeated.
#[test]
fn a_fit_that_moves_far_is_repeated() {
    let spectra = Spectra::open(path("velocity.npz")).unwrap();
    let (_, truth) = array(&path("velocity.npz"), "TVELOCITY");
    let model = |start: Option<f64>| {
        let builder = SpectralModel::builder()
            .arm("b", cut_emulator(&[(4345.0, 4858.0)]))
            .velocity(-1000.0..=1000.0);
        let label = |start| LabelSettings::default().start(start);
        let builder = builder.continuum(Continuum::chebyshev(10));
        start
            .map_or(builder.clone(), |start| {
                builder.label("velocity", label(start))
            })
            .build()
            .unwrap()
    };
    let fast = truth.iter().position(|v| v.abs() > 150.0).unwrap();
    let spectrum = spectra.slice(fast..fast + 1);
    let usual = fitter(model(None), &Device::cpu())
        .fit(&spectrum)
        .unwrap()
        .to_rows()
        .remove(0);
    let moved = fitter(model(Some(truth[fast] - 60.0)), &Device::cpu())
        .fit(&spectrum)
        .unwrap()
        .to_rows()
        .remove(0);
    assert!(
        (usual.parameters[0] - moved.parameters[0]).abs() < 0.1 * usual.errors[0],
        "{usual:?} {moved:?}"
    );
    assert!(
        usual.unreached[0].abs_diff(moved.unreached[0]) <= 1,
        "{} {}",
        usual.unreached[0],
        moved.unreached[0]
    );
    assert_eq!(
        usual.dof + i64::from(usual.unreached[0]),
        moved.dof + i64::from(moved.unreached[0])
    );
}

/// At 400 km/s, rotation and the spline carry light over 8 Å. A piece of 24 Å covers the pixels of 8 Å, and one of 10 Å
/// covers none.
#[test]
fn few_covered_pixels_are_flagged_and_none_is_refused() {
    let fit = |ends: (f64, f64)| {
        let builder = SpectralModel::builder()
            .arm("", cut_emulator(&[ends]))
            .fixed_velocity(0.0)
            .fixed_vsini(400.0);
        let fixed = |value| LabelSettings::default().fixed(value);
        let builder = builder
            .label("logg", fixed(4.0))
            .label("feh", fixed(0.0))
            .label("alpha", fixed(0.0));
        let model = builder.continuum(Continuum::chebyshev(2)).build().unwrap();
        let spectra = Spectra::open(demo_emulator().with_file_name("spectra.npz"))
            .unwrap()
            .slice(0..1);
        fitter(model, &Device::cpu())
            .fit(&spectra)
            .unwrap()
            .to_rows()
            .remove(0)
    };
    let row = fit((4500.0, 4524.0));
    assert!(row.flags.contains(Flags::FEW_REACHED), "{row:?}");
    assert!(row.unreached[0] > 25 && row.dof > 10, "{row:?}");
    let row = fit((4500.0, 4510.0));
    assert_eq!(row.status_text, "no_data");
    assert!(row.message.contains("the template ends"), "{}", row.message);
}
