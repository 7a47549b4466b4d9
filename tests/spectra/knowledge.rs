//! Prior knowledge of parameters: tied labels, and starts, bounds and priors from columns of the spectra's own table.

use std::path::Path;

use popfit::spectra::{Column, ColumnValues};
use popfit::{
    Continuum, Device, Emulator, FitTable, LabelSettings, Spectra, SpectralModel,
    SpectralModelBuilder,
};
use popfit_testing::fits::{column, devices, fitter, offset, pick, same_bits, sound, synb_spectra};
use popfit_testing::{f64s, file, npy, npz, tiny};

fn tied(text: &str) -> LabelSettings {
    LabelSettings::default().tied(text)
}

fn fit(model: SpectralModel, spectra: &Spectra, device: &Device) -> FitTable {
    let table = fitter(model, device).fit(spectra).unwrap();
    sound(&table);
    table
}

#[test]
fn a_tied_label_follows_its_formula() {
    let emulator = tiny::linear(&["a", "b", "c"], tiny::wave);
    // b = 0.5 + 2 a − c
    let truth = [1.0, 2.0, 0.5, -2.0, -3.0, -0.5];
    let spectra = tiny::spectra(&emulator, &truth, 0.0);
    for device in devices() {
        let model = tiny::builder(emulator.clone(), 0.0)
            .label("b", tied("0.5 + 2*a - c"))
            .build()
            .unwrap();
        assert_eq!(model.parameters(), ["a", "c"]);
        let table = fit(model, &spectra, &device);
        for (row, truth) in table.to_rows().into_iter().zip(truth.chunks(3)) {
            assert!(row.status.is_success() && row.dof == 62, "{row:?}");
            // Replicated edges make the spline less accurate in the first and the last pixel.
            let away = offset(&row, &[truth[0], truth[2]], &row.errors);
            assert!(away < 0.1, "{}: {row:?}", device.name());
        }
    }
}

#[test]
fn a_label_tied_to_fixed_ones_is_fixed() {
    let emulator = tiny::linear(&["a", "b"], tiny::wave);
    let spectra = tiny::spectra(&emulator, &[1.0, 0.7], 0.01);
    let fixed = |x| LabelSettings::default().fixed(x);
    let build = |b| {
        tiny::builder(emulator.clone(), 0.0)
            .label("b", b)
            .build()
            .unwrap()
    };
    let plain = fit(build(fixed(0.75)), &spectra, &Device::cpu());
    let constant = fit(build(tied("0.25 + 0.5")), &spectra, &Device::cpu());
    same_bits(plain.row(0), constant.row(0), "a constant tie");
}

#[test]
fn invalid_ties_are_refused() {
    let emulator = tiny::linear(&["feh", "alpha", "teff"], tiny::wave);
    let build = |settings| {
        SpectralModel::builder()
            .arm("", emulator.clone())
            .label("alpha", settings)
            .build()
    };
    for (text, message) in [
        (
            "0.4 - 0.1*fe",
            "no emulator has a label `fe`; did you mean `feh`?",
        ),
        ("alpha", "`alpha` is tied itself"),
        (
            "feh*teff",
            "character 9: a product of two labels is not linear",
        ),
    ] {
        let error = build(tied(text)).unwrap_err().to_string();
        assert!(
            error.contains("labels.alpha") && error.contains(message),
            "{error}"
        );
    }
    let tied_with_start = tied("feh").start(0.0);
    assert!(
        build(tied_with_start)
            .unwrap_err()
            .to_string()
            .contains("labels.alpha: a tied label has no start")
    );
}

fn spectra(columns: Vec<Column>) -> (Emulator, Spectra<'static>) {
    let emulator = tiny::linear(&["a", "b"], tiny::wave);
    let mut spectra = tiny::spectra(&emulator, &[1.0, 0.5, 1.0, 0.5, 1.0, 0.5], 0.01);
    spectra.file = "stars.npz".into();
    spectra.columns = columns;
    (emulator, spectra)
}

fn with_columns(emulator: &Emulator, settings: LabelSettings) -> SpectralModelBuilder {
    with_settings(emulator, settings)
}

fn with_prior(emulator: &Emulator, settings: LabelSettings) -> SpectralModelBuilder {
    with_settings(emulator, settings.prior(0.0, 1.0))
}

fn with_settings(emulator: &Emulator, settings: LabelSettings) -> SpectralModelBuilder {
    SpectralModel::builder()
        .arm("", emulator.clone())
        .continuum(Continuum::none())
        .label("a", settings)
}

#[test]
fn starts_come_from_a_column() {
    let (emulator, spectra) = spectra(vec![column("A0", vec![0.5, f64::INFINITY, 11.0])]);
    let columns = LabelSettings::default().start_column("A0");
    for device in devices() {
        let table = fit(
            with_columns(&emulator, columns.clone()).build().unwrap(),
            &spectra,
            &device,
        );
        let texts: Vec<String> = table
            .to_rows()
            .into_iter()
            .map(|row| row.status_text)
            .collect();
        assert_eq!(texts[1..], ["bad_start", "start_out_of_bounds"]);
        assert!(table.row(0).status.is_success() && (table.row(0).parameters[0] - 1.0).abs() < 0.1);
        let clipped = fit(
            with_columns(&emulator, columns.clone())
                .clip_starts(true)
                .build()
                .unwrap(),
            &spectra,
            &device,
        );
        assert!(
            clipped.row(2).status.is_success() && clipped.row(2).flags.bits() & 1 == 1,
            "{:?}",
            clipped.row(2)
        );
    }
}

#[test]
fn a_missing_column_is_an_error_that_names_file_and_column() {
    let (emulator, spectra) = spectra(vec![column("A0", vec![0.0; 3])]);
    let columns = LabelSettings::default().start_column("A1");
    let model = with_columns(&emulator, columns).build().unwrap();
    let error = fitter(model, &Device::cpu())
        .fit(&spectra)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("stars.npz") && error.contains("`A1`"),
        "{error}"
    );
}

#[test]
fn bounds_and_priors_come_from_columns() {
    let lower = column("LOW", vec![-5.0, 2.0, 3.0]);
    let upper = column("HIGH", vec![5.0, 4.0, 2.0]);
    let mean = column("MEAN", vec![1.5, 0.2, 0.0]);
    let sigma = column("SIGMA", vec![1e-5, 1e4, -1.0]);
    let (emulator, spectra) = spectra(vec![lower, upper, mean, sigma]);
    let bounds = LabelSettings::default()
        .lower_column("LOW")
        .upper_column("HIGH");
    let prior = LabelSettings::default()
        .mean_column("MEAN")
        .sigma_column("SIGMA");
    for device in devices() {
        let table = fit(
            with_columns(&emulator, bounds.clone()).build().unwrap(),
            &spectra,
            &device,
        );
        let [free, pinned, reversed] = &table.to_rows()[..] else {
            panic!("three rows")
        };
        assert!(
            free.at_bound == 0 && (free.parameters[0] - 1.0).abs() < 0.1,
            "{free:?}"
        );
        assert_eq!((pinned.at_bound, pinned.parameters[0]), (1, 2.0));
        assert_eq!(reversed.status_text, "bad_bounds");
        let table = fit(
            with_prior(&emulator, prior.clone()).build().unwrap(),
            &spectra,
            &device,
        );
        let [tight, loose, bad] = &table.to_rows()[..] else {
            panic!("three rows")
        };
        assert!(
            (tight.parameters[0] - 1.5).abs() < 1e-3 && tight.errors[0] < 1.001e-5,
            "{tight:?}"
        );
        assert!((loose.parameters[0] - 1.0).abs() < 0.1, "{loose:?}");
        assert_eq!(bad.status_text, "bad_prior");
    }
}

/// NaN is refused as a bound. An infinite bound leaves that of the model.
#[test]
fn bounds_in_columns_may_be_infinite_but_not_nan() {
    let low = column("LOW", vec![f64::NEG_INFINITY, f64::NAN, f64::INFINITY]);
    let (emulator, spectra) = spectra(vec![low, column("MEAN", vec![1.0, f64::INFINITY, 1.0])]);
    let bounds = LabelSettings::default().lower_column("LOW");
    let prior = LabelSettings::default().mean_column("MEAN");
    for device in devices() {
        let table = fit(
            with_columns(&emulator, bounds.clone()).build().unwrap(),
            &spectra,
            &device,
        );
        assert!(table.row(0).status.is_success() && (table.row(0).parameters[0] - 1.0).abs() < 0.1);
        let texts: Vec<String> = table
            .to_rows()
            .into_iter()
            .map(|row| row.status_text)
            .collect();
        assert_eq!(texts[1..], ["bad_bounds", "bad_bounds"]);
        assert!(
            table.row(1).message.contains("LOW is NaN"),
            "{}",
            table.row(1).message
        );
        let table = fit(
            with_prior(&emulator, prior.clone()).build().unwrap(),
            &spectra,
            &device,
        );
        assert_eq!(table.row(1).status_text, "bad_prior");
    }
}

/// A row for which a column of starts or priors has NaN is fitted as if the model had none.
#[test]
fn nan_in_a_column_is_no_start_and_no_prior() {
    let nan = f64::NAN;
    let mean = column("MEAN", vec![nan, 1.5, 1.5]);
    let sigma = column("SIGMA", vec![1e-5, nan, 1e-5]);
    let (emulator, spectra) = spectra(vec![column("A0", vec![nan, 0.5, nan]), mean, sigma]);
    let start = LabelSettings::default().start_column("A0");
    let prior = LabelSettings::default()
        .mean_column("MEAN")
        .sigma_column("SIGMA");
    for device in devices() {
        let free = fit(
            with_columns(&emulator, LabelSettings::default())
                .build()
                .unwrap(),
            &spectra,
            &device,
        );
        let started = fit(
            with_columns(&emulator, start.clone()).build().unwrap(),
            &spectra,
            &device,
        );
        for row in [0, 2] {
            same_bits(started.row(row), free.row(row), "no start");
        }
        let held = fit(
            with_prior(&emulator, prior.clone()).build().unwrap(),
            &spectra,
            &device,
        );
        for row in [0, 1] {
            same_bits(held.row(row), free.row(row), "no prior");
        }
        assert!(
            (held.row(2).parameters[0] - 1.5).abs() < 1e-3,
            "{:?}",
            held.row(2)
        );
    }
}

#[test]
fn a_velocity_may_start_at_the_value_of_a_column() {
    let mut spectra = pick(&synb_spectra(), &[0, 6, 7]);
    let emulator = Emulator::open(popfit_testing::demo_emulator()).unwrap();
    let build = |settings: Option<LabelSettings>| {
        let builder = SpectralModel::builder()
            .arm("", emulator.clone())
            .velocity(-1000.0..=1000.0);
        settings
            .into_iter()
            .fold(builder, |builder, s| builder.label("velocity", s))
            .build()
            .unwrap()
    };
    let free = fit(build(None), &spectra, &Device::cpu());
    let starts: Vec<f64> = free
        .to_rows()
        .into_iter()
        .map(|row| row.parameters[0] + 20.0)
        .collect();
    spectra.columns = vec![column("V0", starts)];
    let columns = LabelSettings::default().start_column("V0");
    let started = fit(build(Some(columns)), &spectra, &Device::cpu());
    for (started, free) in started.to_rows().into_iter().zip(free.to_rows()) {
        assert!(
            (started.parameters[0] - free.parameters[0]).abs() < 0.05 * free.errors[0],
            "{started:?}\n{free:?}"
        );
    }
}

fn read(folder: &Path, arrays: &[(&str, Vec<u8>)]) -> popfit::Result<Spectra<'static>> {
    Spectra::open(file(folder, "s.npz", &npz(arrays, true)))
}

#[test]
fn npz_files_contain_columns_and_resolution_matrices() {
    let folder = tempfile::tempdir().unwrap();
    let counting_values = |count: usize| (0..count).map(|i| i as f64).collect::<Vec<f64>>();
    let mut arrays = vec![
        (
            "b_wavelength",
            f64s(&[4], &[4000.0, 4001.0, 4002.0, 4003.0]),
        ),
        ("b_flux", f64s(&[2, 4], &[1.0; 8])),
        ("b_ivar", f64s(&[2, 4], &[1.0; 8])),
        ("b_resolution", f64s(&[2, 3, 4], &counting_values(24))),
        ("TEFF0", f64s(&[2], &[5000.0, f64::NAN])),
        (
            "NAME",
            npy(
                "<U2",
                &[2],
                &"a\0\0\0b\0\0\0c\0\0\0d\0\0\0".bytes().collect::<Vec<u8>>(),
            ),
        ),
        ("other", f64s(&[3], &[1.0; 3])),
    ];
    let spectra = read(folder.path(), &arrays).unwrap();
    let resolution = spectra.arms[0].resolution.clone().unwrap();
    assert_eq!((resolution.diagonals, resolution.values[23]), (3, 23.0));
    assert_eq!(spectra.columns.len(), 2);
    assert_eq!(
        spectra.column("TEFF0").unwrap().values.number(0),
        Some(5000.0)
    );
    assert_eq!(
        spectra.column("NAME").unwrap().values,
        ColumnValues::Text(vec!["ab".into(), "cd".into()])
    );
    assert_eq!(
        spectra.slice(1..2).arms[0]
            .resolution
            .clone()
            .unwrap()
            .values[..],
        resolution.values[12..]
    );
    for shape in [&[2, 2, 4][..], &[2, 3, 3], &[1, 3, 4], &[3, 4]] {
        arrays[3].1 = f64s(shape, &counting_values(shape.iter().product()));
        let error = read(folder.path(), &arrays).unwrap_err().to_string();
        assert!(error.contains("b_resolution has the shape"), "{error}");
    }
}
