//! Flags: each is set where the row has what it says, and nowhere else.

mod common;

use common::fits::{devices, fitter};
use common::tiny;
use fitsio_pure::bintable::{BinaryColumnData, parse_binary_table_columns, read_binary_column};
use fitsio_pure::hdu::{HduInfo, parse_fits};
use popfit::spectra::ArmSpectra;
use popfit::{
    Arm, ArmFit, Continuum, Device, Emulator, FitRow, FitTable, Fitter, LabelSettings, LevenbergMarquardt, Metadata,
    RvTabWriter, Sink, Spectra, SpectralModel, SpectralModelBuilder, flag,
};
use statrs::distribution::{ChiSquared, ContinuousCDF};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
/// Flags of what is improbable.
const IMPROBABLE: u32 = flag::NEGATIVE_FLUX | flag::HIGH_CHI2 | flag::LOW_CHI2;

fn emulator() -> Emulator {
    Emulator::open(format!("{DATA}/emulator.safetensors")).unwrap()
}

/// Some of the demo's spectra: S/N 5 to 100.
fn demo() -> Spectra {
    Spectra::open(format!("{DATA}/spectra.npz")).unwrap().slice(0..12)
}

/// The demo's model with these arms.
fn builder(arms: &[&str]) -> SpectralModelBuilder {
    let builder = SpectralModel::builder().velocity(-1000.0..=1000.0).continuum(Continuum::rbf(10)).marginalise(true);
    arms.iter().fold(builder, |builder, name| builder.add_arm(Arm::new(*name, emulator())))
}

fn has(row: &FitRow, bit: u32) -> bool {
    row.flags & bit != 0
}

/// Spectra whose flux is `change(arm, pixel, flux, error)`; every arm starts as a copy of the demo's only one.
fn changed(arms: &[&str], change: impl Fn(usize, usize, f64, f64) -> f64) -> Spectra {
    let spectra = demo();
    let arm = |(a, name): (usize, &&str)| {
        let mut arm = ArmSpectra { name: (*name).to_string(), ..spectra.arms[0].clone() };
        let pixels = arm.pixels;
        let all = arm.flux.iter_mut().zip(&arm.ivar).enumerate();
        all.for_each(|(k, (flux, ivar))| *flux = change(a, k % pixels, *flux, ivar.sqrt().recip()));
        arm
    };
    Spectra::from_arms(arms.iter().enumerate().map(arm).collect(), Some(spectra.ids.clone())).unwrap()
}

#[test]
fn extrapolation_is_flagged_without_a_hull() {
    let emulator = tiny::linear(&["a", "b"], tiny::wave); // trained from −10 to 10
    let wide = LabelSettings { start: Some(8.0), bounds: Some((-20.0, 20.0)), ..LabelSettings::default() };
    let model = tiny::builder(emulator.clone(), 8.0).label("a", wide.clone()).label("b", wide).build().unwrap();
    let spectra = tiny::spectra(&emulator, &[9.0, -9.0, 11.0, 0.0, 0.0, -12.0], 0.001);
    for device in devices() {
        let table = fitter(model.clone(), &device).fit(&spectra).unwrap();
        let outside: Vec<bool> = table.rows.iter().map(|row| has(row, flag::OUTSIDE_HULL)).collect();
        assert_eq!(outside, [false, true, true], "{}: {table:?}", device.name());
        // the training range as bounds: a fit that ends on one is inside
        let table = fitter(tiny::model(emulator.clone(), 8.0), &device).fit(&spectra).unwrap();
        let flags: Vec<u32> = table.rows.iter().map(|row| row.flags & (flag::OUTSIDE_HULL | flag::AT_BOUND)).collect();
        assert_eq!(flags, [0, flag::AT_BOUND, flag::AT_BOUND], "{}: {table:?}", device.name());
    }
}

#[test]
fn ordinary_spectra_are_not_improbable() {
    for device in devices() {
        let table = fitter(builder(&["b"]).build().unwrap(), &device).fit(&demo()).unwrap();
        assert!(table.rows.iter().all(|row| row.flags & IMPROBABLE == 0), "{}: {table:?}", device.name());
    }
}

/// Whole spectra and one arm of two, upside down or with too much sky subtracted; under every kind of continuum.
#[test]
fn negative_flux_is_flagged() {
    let is_flagged = |model: SpectralModelBuilder, spectra: &Spectra, device: &Device, expected: bool| {
        // the flag does not wait for the minimum
        let few = LevenbergMarquardt { max_rounds: 2, ..LevenbergMarquardt::default() };
        let table = Fitter::new(model.build().unwrap(), device.clone(), few).unwrap().starts(1).fit(spectra).unwrap();
        let found: Vec<bool> = table.rows.iter().map(|row| has(row, flag::NEGATIVE_FLUX)).collect();
        assert_eq!(found, vec![expected; spectra.len()], "{}", device.name());
    };
    for device in devices() {
        is_flagged(builder(&["b"]), &changed(&["b"], |_, _, flux, _| -flux), &device, true);
    }
    let cpu = Device::cpu();
    is_flagged(builder(&["b"]), &changed(&["b"], |_, _, flux, _| flux - 2.0 * median_flux()), &cpu, true);
    let one_arm = |a: usize, _: usize, flux: f64, _: f64| if a == 1 { -flux } else { flux };
    is_flagged(builder(&["b", "r"]), &changed(&["b", "r"], one_arm), &cpu, true);
    let none = |builder: SpectralModelBuilder| builder.continuum(Continuum::none());
    is_flagged(none(builder(&["b"])), &changed(&["b"], |_, _, flux, _| -flux), &cpu, true);
    // a third of the pixels, or the noise of an arm without a star: what is negative is not the arm
    is_flagged(builder(&["b"]), &changed(&["b"], |_, j, flux, _| if j % 3 == 0 { -flux } else { flux }), &cpu, false);
    let mut random = common::random::Random(7);
    let noise: Vec<f64> = (0..demo().arms[0].flux.len()).map(|_| random.normal()).collect();
    let pixels = demo().arms[0].pixels;
    let sky = |a: usize, j: usize, flux: f64, error: f64| if a == 1 { noise[j] * error } else { flux };
    assert!(noise[..pixels].iter().filter(|x| **x < 0.0).count() * 2 > pixels, "the median of the noise is negative");
    is_flagged(builder(&["b", "r"]), &changed(&["b", "r"], sky), &cpu, false);
}

/// Of all the demo's spectra that are taken.
fn median_flux() -> f64 {
    common::median(demo().arms[0].flux.clone())
}

/// The continuum that the flag looks at is negative where that of the final model is: half of an arm is upside down, from one end
/// to beyond the middle of the weight or not as far.
#[test]
fn the_continuum_that_is_flagged_is_the_fits() {
    let pixels = demo().arms[0].pixels as f64;
    for share in [0.3, 0.42, 0.62, 0.75] {
        let spectra = changed(&["b"], |_, j, flux, _| if (j as f64) < share * pixels { -flux } else { flux });
        let fitter = fitter(builder(&["b"]).build().unwrap(), &Device::cpu()).starts(1);
        let table = fitter.fit(&spectra).unwrap();
        for (row, fit) in table.rows.iter().zip(fitter.model_spectra(&spectra, &table.rows).unwrap()) {
            let expected = is_model_negative(&fit.unwrap()[0]);
            assert_eq!(has(row, flag::NEGATIVE_FLUX), expected, "{share}: {row:?}");
            assert_eq!(expected, share > 0.5);
        }
    }
}

/// Whether the weighted median of the model is below zero; templates are positive, so that its sign is the continuum's.
fn is_model_negative(arm: &ArmFit) -> bool {
    let (mut weight, mut negative) = (0.0, 0.0);
    for ((model, error), _) in arm.model.iter().zip(&arm.error).zip(&arm.mask).filter(|(_, masked)| !**masked) {
        weight += error.powi(-2);
        negative += if *model < 0.0 { error.powi(-2) } else { 0.0 };
    }
    negative > 0.5 * weight
}

/// Errors that are wrong by these factors, from right to far off: the flags are where another library has p < 1e-6.
#[test]
fn improbable_chi2_is_flagged() {
    let (mut low, mut high) = (0, 0);
    for factor in [0.7f64, 0.9, 0.94, 0.97, 1.0, 1.03, 1.06, 1.1, 1.3] {
        let mut spectra = demo();
        spectra.arms[0].ivar.iter_mut().for_each(|ivar| *ivar *= factor);
        for row in &fitter(builder(&["b"]).build().unwrap(), &Device::cpu()).fit(&spectra).unwrap().rows {
            let chi2 = ChiSquared::new(row.dof as f64).unwrap();
            assert_eq!(has(row, flag::LOW_CHI2), chi2.cdf(row.chi2) < 1e-6, "{factor}: {row:?}");
            assert_eq!(has(row, flag::HIGH_CHI2), chi2.sf(row.chi2) < 1e-6, "{factor}: {row:?}");
            assert_eq!(has(row, flag::POOR_CHI2), row.chi2 > 2.0 * row.dof as f64, "{factor}: {row:?}");
            (low, high) = (low + u32::from(has(row, flag::LOW_CHI2)), high + u32::from(has(row, flag::HIGH_CHI2)));
        }
    }
    assert!(low > 12 && high > 12, "{low} {high}: the factors reach beyond both limits");
}

/// The demo's stars do not rotate: vsini ends at 0 or near it. A label at a bound has flag 16 with or without that.
#[test]
fn no_rotation_is_not_at_a_bound() {
    for device in devices() {
        let rotating = builder(&["b"]).vsini(0.0..=300.0);
        let table = fitter(rotating.clone().build().unwrap(), &device).fit(&demo()).unwrap();
        assert_eq!(check_rotation(&table), [true, false], "{}", device.name());
        let hot = LabelSettings { bounds: Some((8000.0, 9000.0)), ..LabelSettings::default() };
        let table = fitter(rotating.label("teff", hot).build().unwrap(), &device).fit(&demo()).unwrap();
        assert!(check_rotation(&table)[1], "{}", device.name());
        // the upper bound says nothing of rest
        let fast = builder(&["b"]).vsini(0.0..=0.1);
        let table = fitter(fast.build().unwrap(), &device).fit(&demo()).unwrap();
        assert!(table.rows.iter().any(|row| row.parameters[1] == 0.1 && has(row, flag::AT_BOUND)));
        check_rotation(&table);
    }
}

/// Compares flags with the bounds where parameters ended; whether any row has no rotation, and whether any is at a bound.
fn check_rotation(table: &FitTable) -> [bool; 2] {
    assert_eq!(table.parameters[1], "vsini");
    for row in &table.rows {
        let at_rest = row.at_bound & 2 != 0 && row.parameters[1] == 0.0;
        assert_eq!(has(row, flag::NO_ROTATION), at_rest, "{row:?}");
        let others = if at_rest { row.at_bound & !2 } else { row.at_bound };
        assert_eq!(has(row, flag::AT_BOUND), others != 0, "{row:?}");
        assert!(!at_rest || row.errors[1].is_nan());
    }
    [flag::NO_ROTATION, flag::AT_BOUND].map(|bit| table.rows.iter().any(|row| has(row, bit)))
}

#[test]
fn no_rotation_is_no_warning_of_rvspecfits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rvtab_1.fits");
    let (fitter, spectra) = (fitter(builder(&["b"]).vsini(0.0..=300.0).build().unwrap(), &Device::cpu()), demo());
    let rows = fitter.fit(&spectra).unwrap().rows;
    let warnings = rvs_warn(&path, &fitter, (&spectra, &rows));
    let at_rest: Vec<usize> = (0..rows.len()).filter(|k| has(&rows[*k], flag::NO_ROTATION)).collect();
    assert!(!at_rest.is_empty());
    for k in at_rest.into_iter().filter(|k| rows[*k].at_bound == 2 && !has(&rows[*k], flag::OUTSIDE_HULL)) {
        assert_eq!(warnings[k] & !1, 0, "{:?}", rows[k]); // a faint one may gain little over its continuum
    }
}

/// The column RVS_WARN of a table of these rows.
fn rvs_warn(path: &std::path::Path, fitter: &Fitter, (spectra, rows): (&Spectra, &[FitRow])) -> Vec<i64> {
    let mut writer = RvTabWriter::create(path, fitter, &[spectra.slice(0..0)], &Metadata::default()).unwrap();
    writer.append(spectra, rows).unwrap();
    writer.finish().unwrap();
    let bytes = std::fs::read(path).unwrap();
    let fits = parse_fits(&bytes).unwrap();
    let hdu = fits.find_by_name("RVTAB").unwrap();
    let HduInfo::BinaryTable { tfields, .. } = hdu.info else { panic!("no table") };
    let columns = parse_binary_table_columns(&hdu.cards, tfields).unwrap();
    let place = columns.iter().position(|column| column.name.as_deref() == Some("RVS_WARN")).unwrap();
    let BinaryColumnData::Long(warnings) = read_binary_column(&bytes, hdu, place).unwrap() else { panic!("not long") };
    warnings
}
