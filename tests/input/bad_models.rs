//! Models and requests that cannot work, or only in part (`tests/data/bad_inputs.md`, rows 11, 12, 14–17, 22–24, 37),
//! on networks whose answers are known.

use popfit::low_level::checks::check_spectra;
use popfit::{
    Device, Emulator, Error, FitRow, Flags, LabelSettings, Spectra, SpectralModel, Status,
};
use popfit_testing::fits::{devices, fitter, same_bits, sound};
use popfit_testing::tiny::{self, Layer, PIXELS, linear, network, spectra, wave, wavelength};

/// Returns the only row of a table after a check of its consistency.
fn only_row(table: popfit::FitTable) -> FitRow {
    sound(&table);
    table.row(0)
}

#[test]
fn a_label_without_effect_is_flagged_and_the_others_have_errors() {
    let emulator = linear(&["a", "idle"], |l, j| if l == 0 { wave(0, j) } else { 0.0 });
    let without_idle = linear(&["a"], |_, j| wave(0, j));
    let data = spectra(&emulator, &[2.0, 1.0], 0.01);
    for device in devices() {
        let row = only_row(
            fitter(tiny::model(emulator.clone(), 0.0), &device)
                .fit(&data)
                .unwrap(),
        );
        let expected = only_row(
            fitter(tiny::model(without_idle.clone(), 0.0), &device)
                .fit(&data)
                .unwrap(),
        );
        assert!(
            row.status.is_success() && row.flags.contains(Flags::UNDETERMINED),
            "{row:?}"
        );
        assert!(
            (row.chi2 - expected.chi2).abs() < 1e-3 && row.errors[1] == f64::INFINITY,
            "{row:?}\n{expected:?}"
        );
        assert!(
            (row.errors[0] / expected.errors[0] - 1.0).abs() < 1e-3,
            "{row:?}\n{expected:?}"
        );
        assert!((row.parameters[0] - 2.0).abs() < 0.1, "{row:?}");
    }
}

#[test]
fn degenerate_labels_are_flagged_and_the_others_have_errors() {
    // Label b has the same effect as a.
    let emulator = linear(&["a", "b", "c"], |l, j| wave(if l == 2 { 3 } else { 0 }, j));
    let without_b = linear(&["a", "c"], |l, j| wave(if l == 1 { 3 } else { 0 }, j));
    let data = spectra(&emulator, &[2.0, 1.0, -1.5], 0.01);
    for device in devices() {
        let row = only_row(
            fitter(tiny::model(emulator.clone(), 0.0), &device)
                .fit(&data)
                .unwrap(),
        );
        let expected = only_row(
            fitter(tiny::model(without_b.clone(), 0.0), &device)
                .fit(&data)
                .unwrap(),
        );
        assert!(row.flags.contains(Flags::UNDETERMINED), "{row:?}");
        assert!(
            (row.chi2 - expected.chi2).abs() < 1e-3,
            "{row:?}\n{expected:?}"
        );
        assert!(row.errors[..2] == [f64::INFINITY; 2], "{row:?}");
        assert!((row.parameters[2] - expected.parameters[1]).abs() < 0.05 * expected.errors[1]);
        assert!(
            (row.errors[2] / expected.errors[1] - 1.0).abs() < 1e-3,
            "{row:?}\n{expected:?}"
        );
    }
}

/// Flux 1 + z, and infinite above z = 4.13.
fn overflowing_network() -> Emulator {
    let hidden = Layer {
        outputs: 2,
        weight: vec![1.0, 1.0],
        bias: vec![-3.0, 20.0],
    };
    let output = Layer {
        outputs: PIXELS,
        weight: [3e38, 1.0].repeat(PIXELS),
        bias: vec![-19.0; PIXELS],
    };
    network(&["z"], "relu", &[hidden, output])
}

#[test]
fn a_model_that_is_not_finite_at_the_start_gets_a_status() {
    let data = spectra(&overflowing_network(), &[1.0], 0.01);
    for device in devices() {
        let row = only_row(
            fitter(tiny::model(overflowing_network(), 6.0), &device)
                .fit(&data)
                .unwrap(),
        );
        assert_eq!(
            (row.status, row.status_text.as_str()),
            (Status::NotFinite, "non_finite_model_at_start"),
            "{row:?}"
        );
        let good = only_row(
            fitter(tiny::model(overflowing_network(), 0.0), &device)
                .fit(&data)
                .unwrap(),
        );
        assert!(
            good.status.is_success() && (good.parameters[0] - 1.0).abs() < 0.01,
            "{good:?}"
        );
    }
}

#[test]
fn steps_to_points_where_the_model_is_not_finite_are_rejected() {
    // The data lie where the model overflows: z = 7 fits best, but cannot be reached.
    let good_spectrum = spectra(&overflowing_network(), &[1.0], 0.01);
    let unreachable_flux = vec![8.0; PIXELS];
    let flux = good_spectrum.arms[0].flux.to_double();
    let flux = [&flux[..], &unreachable_flux, &flux].concat();
    let data = Spectra::from_arrays(wavelength(), flux, vec![1e4; 3 * PIXELS], None, None).unwrap();
    for device in devices() {
        let fitter = fitter(tiny::model(overflowing_network(), 0.0), &device);
        let table = fitter.fit(&data).unwrap();
        sound(&table);
        let row = &table.row(1);
        let expected = only_row(fitter.fit(&good_spectrum).unwrap());
        println!(
            "{}: {} at z = {}",
            device.name(),
            row.status_text,
            row.parameters[0]
        );
        assert!(
            row.chi2.is_finite() && row.parameters[0] > 2.0 && row.parameters[0] < 4.2,
            "{row:?}"
        );
        assert!(
            row.evaluations > 3 && row.status == Status::Stalled || row.status.is_success(),
            "{row:?}"
        );
        same_bits(table.row(0), &expected, "beside it");
        same_bits(table.row(2), &expected, "beside it");
    }
}

#[test]
fn invalid_bounds_starts_and_priors_of_a_model_are_errors() {
    let build = |settings: LabelSettings| {
        let emulator = linear(&["a", "b"], wave);
        SpectralModel::builder()
            .arm("", emulator)
            .label("a", settings)
            .build()
    };
    for bounds in [
        (1.0, -1.0),
        (f64::NAN, 1.0),
        (0.0, f64::NAN),
        (0.0, f64::INFINITY),
    ] {
        let error = build(LabelSettings::default().bounds(bounds.0..=bounds.1)).unwrap_err();
        assert!(
            matches!(&error, Error::BadBounds { parameter, .. } if parameter == "a"),
            "{error}"
        );
    }
    for (start, cause) in [(11.0, "outside its bounds"), (f64::NAN, "no finite number")] {
        let error = build(LabelSettings::default().start(start))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(cause) && error.contains('a') && error.contains("starts at"),
            "{error}"
        );
    }
    for settings in [
        LabelSettings::default().fixed(f64::NAN),
        LabelSettings::default().prior(0.0, 0.0),
        LabelSettings::default().prior(f64::NAN, 1.0),
    ] {
        let error = build(settings).unwrap_err().to_string();
        assert!(error.contains("labels.a"), "{error}");
    }
    let velocity = SpectralModel::builder()
        .arm("", linear(&["a"], wave))
        .velocity(10.0..=-10.0)
        .build()
        .unwrap_err();
    assert!(
        matches!(&velocity, Error::BadBounds { parameter, .. } if parameter == "velocity"),
        "{velocity}"
    );
    let unknown_label = SpectralModel::builder()
        .arm("", linear(&["a"], wave))
        .label("teff", LabelSettings::default())
        .build();
    assert!(unknown_label.unwrap_err().to_string().contains("\"teff\""));
}

#[test]
fn equal_bounds_hold_a_parameter() {
    let emulator = linear(&["a", "b", "c"], wave);
    let data = spectra(&emulator, &[2.0, 1.0, -1.5], 0.01);
    let held = LabelSettings::default().bounds(1.0..=1.0);
    let fixed = LabelSettings::default().fixed(1.0);
    for device in devices() {
        let model_with = |b| {
            tiny::builder(emulator.clone(), 0.0)
                .label("b", b)
                .build()
                .unwrap()
        };
        let held = only_row(
            fitter(model_with(held.clone()), &device)
                .fit(&data)
                .unwrap(),
        );
        let fixed = only_row(
            fitter(model_with(fixed.clone()), &device)
                .fit(&data)
                .unwrap(),
        );
        assert!(held.status.is_success() && fixed.status.is_success());
        assert_eq!((held.parameters.len(), fixed.parameters.len()), (3, 2));
        assert_eq!((held.parameters[1], held.errors[1]), (1.0, 0.0));
        assert!(
            held.at_bound == 0 && !held.flags.contains(Flags::AT_BOUND),
            "held is not run into"
        );
        assert_eq!(held.dof, fixed.dof);
        assert_eq!(held.dof, PIXELS as i64 - 2);
        for (a, b) in [(0, 0), (2, 1)] {
            assert!(
                (held.parameters[a] - fixed.parameters[b]).abs() < 1e-3 * fixed.errors[b],
                "{held:?}\n{fixed:?}"
            );
            assert!(
                (held.errors[a] / fixed.errors[b] - 1.0).abs() < 1e-5,
                "{held:?}\n{fixed:?}"
            );
        }
    }
}

#[test]
fn arrays_of_different_lengths_are_errors() {
    let shapes: [(usize, usize, Option<usize>); 4] = [
        (128, 127, None),
        (127, 128, None),
        (128, 128, Some(64)),
        (100, 100, None),
    ];
    for (flux, ivar, mask) in shapes {
        let mask = mask.map(|n| vec![false; n]);
        let error =
            Spectra::from_arrays(wavelength(), vec![1.0; flux], vec![1.0; ivar], mask, None)
                .unwrap_err();
        assert!(matches!(error, Error::ShapeMismatch { .. }), "{error}");
    }
    let error = linear(&["a"], wave)
        .with_wavelength(vec![1.0, 2.0])
        .unwrap_err();
    assert!(matches!(error, Error::ShapeMismatch { .. }), "{error}");
}

#[test]
fn populations_larger_than_a_dispatch_are_fitted() {
    // 2048 spectra of 40 starts are 81,920 members, but a dispatch has at most 65,535 workgroups.
    let names = ["a", "b", "c", "d"];
    let emulator = linear(&names, wave);
    let labels: Vec<f64> = (0..2048 * 4)
        .map(|k| 5.0 * (k as f64 * 0.7).sin())
        .collect();
    let data = spectra(&emulator, &labels, 0.01);
    let model = SpectralModel::builder()
        .arm("", emulator)
        .continuum(popfit::Continuum::none())
        .build()
        .unwrap();
    for device in devices() {
        let fitter = fitter(model.clone(), &device)
            .starts(40)
            .max_memory(1 << 30);
        let table = fitter.fit(&data).unwrap();
        sound(&table);
        let members: u32 = table
            .to_rows()
            .into_iter()
            .map(|row| row.evaluations / row.rounds.max(1))
            .sum();
        println!("{}: about {members} members", device.name());
        for n in [0, 700, 1637, 1638, 1639, 2047] {
            let row = &table.row(n);
            assert!(
                row.status.is_success() && row.evaluations >= 33 && row.n_starts_agree >= 1,
                "{row:?}"
            );
            let offsets_in_errors = row
                .parameters
                .iter()
                .zip(&labels[4 * n..])
                .zip(&row.errors)
                .map(|((a, b), e)| ((a - b) / e).abs());
            assert!(offsets_in_errors.fold(0.0, f64::max) < 6.0, "{row:?}");
            same_bits(
                only_row(fitter.fit(&data.slice(n..n + 1)).unwrap()),
                row,
                "alone",
            );
        }
    }
}

#[test]
fn too_little_memory_is_an_error() {
    let emulator = linear(&["a", "b"], wave);
    let data = spectra(&emulator, &[1.0, 2.0], 0.01);
    for device in devices() {
        let error = fitter(tiny::model(emulator.clone(), 0.0), &device)
            .max_memory(100)
            .fit(&data)
            .unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    }
}

#[test]
fn missing_devices_are_errors() {
    for name in ["gpu:no such adapter", "gpu:9999"] {
        let error = name.parse::<Device>().unwrap_err();
        assert!(matches!(error, Error::NoAdapter(_)), "{error}");
    }
    for name in ["", "cuda", "gpu:", "gpux"] {
        assert!(
            matches!(
                name.parse::<Device>().unwrap_err(),
                Error::InvalidArgument { .. }
            ),
            "{name}"
        );
    }
    // The fitter names the device that it uses.
    let model = tiny::model(linear(&["a"], wave), 0.0);
    assert!(
        fitter(model, &Device::cpu())
            .device_name()
            .starts_with("cpu")
    );
}

#[test]
fn labels_with_the_names_of_velocity_or_vsini_are_refused() {
    for name in ["velocity", "vsini"] {
        let error = SpectralModel::builder()
            .arm("x", linear(&["a", name], wave))
            .build()
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("arm \"x\"") && error.contains(name),
            "{error}"
        );
    }
}

#[test]
fn contradictory_settings_and_bad_numbers_of_starts_are_errors() {
    let fixed = LabelSettings::default().fixed(1.0);
    for settings in [
        fixed.clone().bounds(1.0..=0.0),
        fixed.clone().prior(0.0, 1.0),
        fixed.start(0.0),
    ] {
        let error = SpectralModel::builder()
            .arm("", linear(&["a", "b"], wave))
            .label("a", settings)
            .build()
            .unwrap_err();
        assert!(
            error.to_string().contains("labels.a: a fixed label"),
            "{error}"
        );
    }
    let emulator = linear(&["a"], wave);
    let data = spectra(&emulator, &[1.0], 0.01);
    for starts in [0, 65, 1000] {
        let error = fitter(tiny::model(emulator.clone(), 0.0), &Device::cpu())
            .starts(starts)
            .fit(&data)
            .unwrap_err();
        let Error::InvalidSettings { faults } = &error else {
            panic!("{error}")
        };
        assert!(
            faults[0].name == "starts" && faults[0].message.contains(&starts.to_string()),
            "{error}"
        );
    }
}

#[test]
fn a_table_of_other_columns_is_refused_as_a_sink() {
    use popfit::{FitTable, Sink};
    let emulator = linear(&["a"], wave);
    let data = spectra(&emulator, &[1.0], 0.01);
    let fitter = fitter(tiny::model(emulator, 0.0), &Device::cpu());
    let rows = fitter.fit(&data).unwrap().to_rows();
    let error = Sink::append(&mut FitTable::default(), &data, &rows).unwrap_err();
    assert!(
        error.to_string().contains("SpectralFitter::table"),
        "{error}"
    );
    let mut table = fitter.table();
    Sink::append(&mut table, &data, &rows).unwrap();
    assert_eq!(table.floats("a").map(|column| column.len()), Some(1));
}

#[test]
fn a_label_that_keeps_every_point_outside_the_hull_is_named() {
    let emulator = Emulator::open(popfit_testing::demo_emulator()).unwrap();
    let settings = LabelSettings::default().fixed(50_000.0);
    let model = SpectralModel::builder()
        .arm("", emulator.clone())
        .label("teff", settings)
        .build()
        .unwrap();
    let ones = vec![1.0; emulator.pixels()];
    let data = Spectra::from_arrays(
        emulator.wavelength().to_vec(),
        ones.clone(),
        ones,
        None,
        None,
    )
    .unwrap();
    let fitter = fitter(model, &Device::cpu());
    for error in [
        check_spectra(&fitter, [&data]).unwrap_err(),
        fitter.fit(&data).unwrap_err(),
    ] {
        let message = error.to_string();
        assert!(
            message.contains("teff is fixed at 50000, its network was trained from 4"),
            "{message}"
        );
        assert!(!message.contains("logg"), "{message}");
    }
}
