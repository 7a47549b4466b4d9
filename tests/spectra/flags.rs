//! Flags: each is set in the rows to which its description applies, and in no others.

use fitsio_pure::bintable::{BinaryColumnData, parse_binary_table_columns, read_binary_column};
use fitsio_pure::hdu::{HduInfo, parse_fits};
use popfit::RvTabWriter;
use popfit::{
    Arm, ArmFit, Continuum, Device, Emulator, FitRow, FitTable, Flags, LabelSettings,
    LevenbergMarquardt, Metadata, Sink, Spectra, SpectraSettings, SpectralFitter, SpectralModel,
    SpectralModelBuilder,
};
use popfit_testing::fits::{demo_spectra, devices, fitter};
use popfit_testing::{demo_emulator, tiny};
use statrs::distribution::{ChiSquared, ContinuousCDF};

/// Flags for improbable data.
const IMPROBABLE: Flags = Flags::NEGATIVE_FLUX
    .union(Flags::HIGH_CHI2)
    .union(Flags::LOW_CHI2);

fn emulator() -> Emulator {
    Emulator::open(demo_emulator()).unwrap()
}

/// Some of the demo's spectra: S/N 9 to 175.
fn demo() -> Spectra<'static> {
    demo_spectra().slice(0..12)
}

/// The demo's model with these arms.
fn builder(arms: &[&str]) -> SpectralModelBuilder {
    let builder = SpectralModel::builder()
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10))
        .marginalise(true);
    arms.iter().fold(builder, |builder, name| {
        builder.add_arm(Arm::new(*name, emulator()))
    })
}

fn has(row: &FitRow, flag: Flags) -> bool {
    row.flags.contains(flag)
}

/// A pixel of the demo's spectra.
#[derive(Clone, Copy)]
struct Pixel {
    arm: usize,
    spectrum: usize,
    index: usize,
    flux: f64,
    error: f64,
}

/// The demo's spectra with another flux; every arm is a copy of their only one.
fn change_flux(arms: &[&str], flux: impl Fn(Pixel) -> f64) -> Spectra<'static> {
    let spectra = demo();
    let arm = |(a, name): (usize, &&str)| {
        let mut arm = spectra.arms[0].clone();
        arm.name = (*name).to_string();
        let pixels = arm.pixels;
        for (k, (value, ivar)) in arm
            .flux
            .to_mut()
            .iter_mut()
            .zip(&*arm.ivar.to_double())
            .enumerate()
        {
            let spectrum = k / pixels;
            let index = k % pixels;
            *value = flux(Pixel {
                arm: a,
                spectrum,
                index,
                flux: *value,
                error: ivar.sqrt().recip(),
            });
        }
        arm
    };
    Spectra::from_arms(
        arms.iter().enumerate().map(arm).collect(),
        Some(spectra.ids.clone()),
    )
    .unwrap()
}

#[test]
fn extrapolation_is_flagged_without_a_hull() {
    let emulator = tiny::linear(&["a", "b"], tiny::wave); // trained from −10 to 10
    let wide = LabelSettings::default().start(8.0).bounds(-20.0..=20.0);
    let model = tiny::builder(emulator.clone(), 8.0)
        .label("a", wide.clone())
        .label("b", wide)
        .build()
        .unwrap();
    let spectra = tiny::spectra(&emulator, &[9.0, -9.0, 11.0, 0.0, 0.0, -12.0], 0.001);
    for device in devices() {
        let table = fitter(model.clone(), &device).fit(&spectra).unwrap();
        let outside: Vec<bool> = table
            .to_rows()
            .into_iter()
            .map(|row| has(&row, Flags::OUTSIDE_HULL))
            .collect();
        assert_eq!(outside, [false, true, true], "{}: {table:?}", device.name());
        // With the training range as bounds, a fit that ends on one is inside.
        let table = fitter(tiny::model(emulator.clone(), 8.0), &device)
            .fit(&spectra)
            .unwrap();
        let flags: Vec<Flags> = table
            .to_rows()
            .into_iter()
            .map(|row| row.flags & (Flags::OUTSIDE_HULL | Flags::AT_BOUND))
            .collect();
        assert_eq!(
            flags,
            [Flags::empty(), Flags::AT_BOUND, Flags::AT_BOUND],
            "{}: {table:?}",
            device.name()
        );
    }
}

/// On every device, and in a batch with spectra that have such a flag.
#[test]
fn ordinary_spectra_have_no_flag_for_improbable_data() {
    let spectra = change_flux(&["b"], |p| if p.spectrum < 2 { -p.flux } else { p.flux });
    for device in devices() {
        let table = fitter(builder(&["b"]).build().unwrap(), &device)
            .starts(1)
            .fit(&spectra)
            .unwrap();
        for (k, row) in table.to_rows().into_iter().enumerate() {
            assert_eq!(
                has(&row, Flags::NEGATIVE_FLUX),
                k < 2,
                "{}: {row:?}",
                device.name()
            );
            assert!(
                k < 2 || !row.flags.intersects(IMPROBABLE),
                "{}: {row:?}",
                device.name()
            );
        }
    }
}

/// Whole spectra, or one arm of two, are negated or have too much sky subtracted. There is a continuum or none.
#[test]
fn negative_flux_is_flagged() {
    check_negative(builder(&["b"]), &change_flux(&["b"], |p| -p.flux), true);
    let flux = demo().arms[0].flux.to_double().into_owned();
    let medians: Vec<f64> = flux
        .chunks(flux.len() / 12)
        .map(|flux| popfit_testing::median(flux.to_vec()))
        .collect();
    check_negative(
        builder(&["b"]),
        &change_flux(&["b"], |p| p.flux - 2.0 * medians[p.spectrum]),
        true,
    );
    check_negative(
        builder(&["b"]).continuum(Continuum::none()),
        &change_flux(&["b"], |p| -p.flux),
        true,
    );
    let one_arm = change_flux(&["b", "r"], |p| if p.arm == 1 { -p.flux } else { p.flux });
    check_negative(builder(&["b", "r"]), &one_arm, true);
    // An arm with every third pixel negated is not flagged.
    let third = change_flux(&["b"], |p| if p.index % 3 == 0 { -p.flux } else { p.flux });
    check_negative(builder(&["b"]), &third, false);
}

/// The sign of noise is random, so that an arm without a star must not be flagged.
#[test]
fn noise_is_not_flagged_as_negative_flux() {
    let mut random = popfit_testing::random::Random(7);
    let noise: Vec<f64> = (0..demo().arms[0].flux.len())
        .map(|_| random.normal())
        .collect();
    let pixels = demo().arms[0].pixels;
    let is_negative = |noise: &[f64]| noise.iter().filter(|x| **x < 0.0).count() * 2 > pixels;
    assert!(
        noise.chunks(pixels).any(is_negative),
        "the median of some noise is negative"
    );
    let one_dark = change_flux(&["b", "r"], |p| {
        if p.arm == 1 {
            noise[p.spectrum * pixels + p.index] * p.error
        } else {
            p.flux
        }
    });
    check_negative(builder(&["b", "r"]), &one_dark, false);
}

/// Checks the flag for negative flux in all rows. It does not depend on whether the fits reach their minima.
fn check_negative(model: SpectralModelBuilder, spectra: &Spectra, expected: bool) {
    let two_rounds = LevenbergMarquardt::default().max_rounds(2);
    let table = SpectralFitter::new(model.build().unwrap(), Device::cpu())
        .solver(two_rounds)
        .starts(1)
        .fit(spectra)
        .unwrap();
    let flagged: Vec<bool> = table
        .to_rows()
        .into_iter()
        .map(|row| has(&row, Flags::NEGATIVE_FLUX))
        .collect();
    assert_eq!(flagged, vec![expected; spectra.len()]);
}

/// The flag is set where the weighted median of the final model is negative. An arm is negated from one end to beyond
/// the middle of its weight, or not as far.
#[test]
fn negative_flux_is_flagged_where_the_fitted_continuum_is_negative() {
    let pixels = demo().arms[0].pixels as f64;
    for share in [0.3, 0.42, 0.62, 0.75] {
        let spectra = change_flux(&["b"], |p| {
            if (p.index as f64) < share * pixels {
                -p.flux
            } else {
                p.flux
            }
        });
        let fitter = fitter(builder(&["b"]).build().unwrap(), &Device::cpu()).starts(1);
        let table = fitter.fit(&spectra).unwrap();
        for (row, fit) in table
            .to_rows()
            .into_iter()
            .zip(fitter.model_spectra(&spectra, &table.to_rows()).unwrap())
        {
            let expected = is_model_negative(&fit.unwrap()[0]);
            assert_eq!(
                has(&row, Flags::NEGATIVE_FLUX),
                expected,
                "{share}: {row:?}"
            );
            assert_eq!(expected, share > 0.5);
        }
    }
}

/// Returns whether the weighted median of the model is below zero; templates are positive, so that its sign is the
/// continuum's.
fn is_model_negative(arm: &ArmFit) -> bool {
    let mut weight = 0.0;
    let mut negative = 0.0;
    for ((model, error), _) in arm
        .model
        .iter()
        .zip(&arm.error)
        .zip(&arm.mask)
        .filter(|(_, masked)| !**masked)
    {
        weight += error.powi(-2);
        negative += if *model < 0.0 { error.powi(-2) } else { 0.0 };
    }
    negative > 0.5 * weight
}

/// The inverse variances are wrong by factors from 0.7 to 1.3. The flags are set where another library has p < 1e-6.
#[test]
fn improbable_chi2_is_flagged() {
    let mut low_count = 0;
    let mut high_count = 0;
    for factor in [0.7f64, 0.9, 0.94, 0.97, 1.0, 1.03, 1.06, 1.1, 1.3] {
        let mut spectra = demo();
        spectra.arms[0]
            .ivar
            .to_mut()
            .iter_mut()
            .for_each(|ivar| *ivar *= factor);
        for row in fitter(builder(&["b"]).build().unwrap(), &Device::cpu())
            .fit(&spectra)
            .unwrap()
            .to_rows()
        {
            let chi2 = ChiSquared::new(row.dof as f64).unwrap();
            assert_eq!(
                has(&row, Flags::LOW_CHI2),
                chi2.cdf(row.chi2) < 1e-6,
                "{factor}: {row:?}"
            );
            assert_eq!(
                has(&row, Flags::HIGH_CHI2),
                chi2.sf(row.chi2) < 1e-6,
                "{factor}: {row:?}"
            );
            assert_eq!(
                has(&row, Flags::POOR_CHI2),
                row.chi2 > 2.0 * row.dof as f64,
                "{factor}: {row:?}"
            );
            low_count += u32::from(has(&row, Flags::LOW_CHI2));
            high_count += u32::from(has(&row, Flags::HIGH_CHI2));
        }
    }
    assert!(
        low_count > 12 && high_count > 12,
        "{low_count} {high_count}: the factors reach beyond both limits"
    );
}

/// The stars of the demo do not rotate, so that vsini ends at 0 or near it.
#[test]
fn fits_without_rotation_are_not_flagged_at_a_bound() {
    for device in devices() {
        let model = builder(&["b"]).vsini(0.0..=300.0).build().unwrap();
        let table = fitter(model, &device)
            .starts(2)
            .fit(&demo().slice(0..6))
            .unwrap();
        assert_eq!(check_rotation(&table), [true, false], "{}", device.name());
    }
}

/// A label at a bound also sets flag 16, and a fit at the upper bound of vsini is not flagged as without rotation.
#[test]
fn other_bounds_are_flagged_at_a_bound() {
    let hot = LabelSettings::default().bounds(8000.0..=9000.0);
    let model = builder(&["b"])
        .vsini(0.0..=300.0)
        .label("teff", hot)
        .build()
        .unwrap();
    assert!(check_rotation(&fitter(model, &Device::cpu()).fit(&demo()).unwrap())[1]);
    let table = fitter(
        builder(&["b"]).vsini(0.0..=0.1).build().unwrap(),
        &Device::cpu(),
    )
    .fit(&demo())
    .unwrap();
    assert!(
        table
            .to_rows()
            .into_iter()
            .any(|row| row.parameters[1] == 0.1 && has(&row, Flags::AT_BOUND))
    );
    check_rotation(&table);
    // A lower bound of vsini above 0 is a bound like others.
    let table = fitter(
        builder(&["b"]).vsini(150.0..=300.0).build().unwrap(),
        &Device::cpu(),
    )
    .fit(&demo())
    .unwrap();
    assert!(
        table
            .to_rows()
            .into_iter()
            .any(|row| row.parameters[1] == 150.0 && has(&row, Flags::AT_BOUND))
    );
    check_rotation(&table);
}

/// Compares flags with the bounds at which parameters ended. Returns whether any row has no rotation, and whether any
/// is at a bound.
fn check_rotation(table: &FitTable) -> [bool; 2] {
    assert_eq!(table.names()[1], "vsini");
    for row in table.to_rows() {
        let at_rest = row.at_bound & 2 != 0 && row.parameters[1] == 0.0;
        assert_eq!(has(&row, Flags::NO_ROTATION), at_rest, "{row:?}");
        let other_bounds = if at_rest {
            row.at_bound & !2
        } else {
            row.at_bound
        };
        assert_eq!(has(&row, Flags::AT_BOUND), other_bounds != 0, "{row:?}");
        assert!(!at_rest || row.errors[1].is_nan());
    }
    [Flags::NO_ROTATION, Flags::AT_BOUND]
        .map(|flag| table.to_rows().into_iter().any(|row| has(&row, flag)))
}

#[test]
fn fits_without_rotation_do_not_set_rvs_warn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rvtab_1.fits");
    let fitter = fitter(
        builder(&["b"]).vsini(0.0..=300.0).build().unwrap(),
        &Device::cpu(),
    );
    let spectra = demo();
    let rows = fitter.fit(&spectra).unwrap().to_rows();
    let warnings = read_rvs_warn(&path, &fitter, (&spectra, &rows));
    let at_rest: Vec<usize> = (0..rows.len())
        .filter(|k| has(&rows[*k], Flags::NO_ROTATION))
        .collect();
    assert!(!at_rest.is_empty());
    for k in at_rest
        .into_iter()
        .filter(|k| rows[*k].at_bound == 2 && !has(&rows[*k], Flags::OUTSIDE_HULL))
    {
        assert_eq!(warnings[k] & !1, 0, "{:?}", rows[k]); // A faint spectrum may gain little over its continuum.
    }
}

/// Returns the column RVS_WARN of a table of these rows.
fn read_rvs_warn(
    path: &std::path::Path,
    fitter: &SpectralFitter,
    (spectra, rows): (&Spectra, &[FitRow]),
) -> Vec<i64> {
    let mut writer =
        RvTabWriter::create(path, fitter, &[spectra.slice(0..0)], &Metadata::default()).unwrap();
    writer.append(spectra, rows).unwrap();
    writer.finish().unwrap();
    let bytes = std::fs::read(path).unwrap();
    let fits = parse_fits(&bytes).unwrap();
    let hdu = fits.find_by_name("RVTAB").unwrap();
    let HduInfo::BinaryTable { tfields, .. } = hdu.info else {
        panic!("no table")
    };
    let columns = parse_binary_table_columns(&hdu.cards, tfields).unwrap();
    let place = columns
        .iter()
        .position(|column| column.name.as_deref() == Some("RVS_WARN"))
        .unwrap();
    let BinaryColumnData::Long(warnings) = read_binary_column(&bytes, hdu, place).unwrap() else {
        panic!("not long")
    };
    warnings
}

/// Pixels that a model leaves out do not count as masked. Of the demo's 4,002 to 5,498 Å, an arm from 4,002 to 4,600 Å
/// takes 40 %, and so does a model that masks the rest.
#[test]
fn pixels_outside_the_range_of_an_arm_are_not_masked() {
    let builder = |arm| {
        SpectralModel::builder()
            .velocity(-1000.0..=1000.0)
            .continuum(Continuum::rbf(4))
            .add_arm(arm)
    };
    let make_fitter = |arm: Arm| fitter(builder(arm).build().unwrap(), &Device::cpu());
    let whole_range = || make_fitter(Arm::new("b", emulator()));
    let narrow_range = || make_fitter(Arm::new("b", emulator()).range(4002.0..=4600.0));
    let masked_red_end = || {
        let settings = SpectraSettings::default().mask(vec![(4600.0, 5500.0)]);
        fitter(
            builder(Arm::new("b", emulator()))
                .spectra(settings)
                .build()
                .unwrap(),
            &Device::cpu(),
        )
    };
    let is_flagged = |fitter: SpectralFitter, masked: f64| {
        let mut spectra = demo();
        let arm = &mut spectra.arms[0];
        let end = (masked * arm.pixels as f64) as usize;
        (0..spectra.ids.len()).for_each(|n| arm.mask.to_mut()[n * arm.pixels..][..end].fill(true));
        let table = fitter.fit(&spectra).unwrap();
        let flagged = table
            .flags()
            .iter()
            .filter(|flags| flags.contains(Flags::MANY_MASKED))
            .count();
        assert!(flagged == 0 || flagged == table.len(), "{flagged}");
        flagged > 0
    };
    assert!(!is_flagged(whole_range(), 0.4) && is_flagged(whole_range(), 0.6));
    assert!(
        !is_flagged(narrow_range(), 0.0)
            && !is_flagged(narrow_range(), 0.15)
            && is_flagged(narrow_range(), 0.25)
    );
    assert!(
        !is_flagged(masked_red_end(), 0.0)
            && !is_flagged(masked_red_end(), 0.15)
            && is_flagged(masked_red_end(), 0.25)
    );
}
