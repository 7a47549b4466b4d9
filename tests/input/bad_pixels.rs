//! Pixels that files mark as bad without a mask: by NaN in flux or error, by errors of zero, or by huge errors.

use std::borrow::Cow;

use popfit::{
    Continuum, Device, Emulator, FitRow, Flags, NonFinite, Spectra, SpectraSettings, SpectralModel,
};
use popfit_testing::fits::{devices, fitter, open_bytes, same_bits, synb_spectra};
use popfit_testing::fits_bytes::{FitsBytes, f64s as f64s_of_fits};
use popfit_testing::{f64s, npz, tiny};

/// Returns three spectra of synb without masks.
fn good_spectra() -> Spectra<'static> {
    let mut spectra = synb_spectra().slice(0..3);
    spectra.arms[0].mask = Cow::default();
    spectra
}

fn model(settings: SpectraSettings) -> SpectralModel {
    let emulator = Emulator::open(popfit_testing::demo_emulator()).unwrap();
    let builder = SpectralModel::builder()
        .arm("", emulator)
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10));
    builder.spectra(settings).build().unwrap()
}

/// Damages the flux and ivar of one pixel.
type Spoil = fn(&mut f64, &mut f64);
/// Returns whether a pixel is bad.
type Choose = fn(usize) -> bool;

/// Returns a copy in which the bad pixels of the second spectrum are damaged.
fn spoil_second(
    good: &Spectra,
    is_bad: impl Fn(usize) -> bool,
    spoil: impl Fn(&mut f64, &mut f64),
) -> Spectra<'static> {
    let mut damaged = good.clone().into_owned();
    let arm = &mut damaged.arms[0];
    let pixels = arm.pixels;
    let flux = arm.flux.to_mut();
    let ivar = arm.ivar.to_mut();
    (0..pixels)
        .filter(|j| is_bad(*j))
        .for_each(|j| spoil(&mut flux[pixels + j], &mut ivar[pixels + j]));
    damaged
}

/// Fits spectra, and returns the second row.
fn fit_second(settings: &SpectraSettings, spectra: &Spectra, device: &Device) -> FitRow {
    fitter(model(settings.clone()), device)
        .fit(spectra)
        .unwrap()
        .row(1)
}

const BAD_PIXELS: std::ops::Range<usize> = 0..200;

#[test]
fn pixels_that_are_not_finite_are_masked_on_request() {
    let good = good_spectra();
    let mask = SpectraSettings::default().nonfinite(NonFinite::Mask);
    let cases: [(&str, Spoil); 5] = [
        ("NaN in flux and error", |y, w| {
            (*y, *w) = (f64::NAN, f64::NAN)
        }),
        ("NaN in the error alone", |_, w| *w = f64::NAN),
        ("sigma 0", |_, w| *w = f64::INFINITY),
        ("NaN flux, sigma 0", |y, w| {
            (*y, *w) = (f64::NAN, f64::INFINITY)
        }),
        ("NaN flux, negative error", |y, w| {
            (*y, *w) = (f64::NAN, -1.0)
        }),
    ];
    for device in devices() {
        let expected = fit_second(
            &mask,
            &spoil_second(&good, |j| BAD_PIXELS.contains(&j), |_, w| *w = 0.0),
            &device,
        );
        for (name, spoil) in cases {
            let bad = spoil_second(&good, |j| BAD_PIXELS.contains(&j), spoil);
            let mut row = fit_second(&mask, &bad, &device);
            assert!(
                row.flags.contains(Flags::NONFINITE_MASKED),
                "{name}: {row:?}"
            );
            row.flags.set(Flags::NONFINITE_MASKED, false);
            same_bits(&row, &expected, name);
            assert_eq!(
                fit_second(&SpectraSettings::default(), &bad, &device).status_text,
                "bad_weight",
                "{name}"
            );
        }
    }
    // A negative error with a finite flux is a fault, and does not mark a bad pixel.
    let negative = spoil_second(&good, |j| j == 7, |_, w| *w = -1.0);
    assert_eq!(
        fit_second(&mask, &negative, &Device::cpu()).status_text,
        "bad_weight"
    );
    let all_bad = spoil_second(&good, |_| true, |_, w| *w = f64::INFINITY);
    let row = fit_second(&mask, &all_bad, &Device::cpu());
    assert!(
        row.status_text == "no_data" && row.message.contains("not finite"),
        "{}",
        row.message
    );
}

/// Files may contain such pixels, by sigma in NPZ and by ivar in DESI's layout of FITS.
#[test]
fn files_with_nonfinite_pixels_are_read_and_masked_in_the_fit() {
    let emulator = tiny::linear(&["a", "b"], tiny::wave);
    let clean = tiny::spectra(&emulator, &[0.3, 0.2, -0.5, 0.4], 0.01);
    let pixels = tiny::PIXELS;
    let arm = &clean.arms[0];
    let is_bad = |k: usize| k < 9 || (pixels + 30..pixels + 33).contains(&k);
    let values = |value_of: &dyn Fn(usize) -> f64| {
        (0..2 * pixels)
            .map(|k| if is_bad(k) { f64::NAN } else { value_of(k) })
            .collect()
    };
    let flux: Vec<f64> = values(&|k| arm.flux.to_double()[k]);
    let sigma: Vec<f64> = values(&|_| 0.01);
    let ivar: Vec<f64> = values(&|_| 1e4);
    let shape = [2, pixels];
    let arrays = [
        ("wavelength", f64s(&[pixels], &tiny::wavelength())),
        ("flux", f64s(&shape, &flux)),
    ];
    let from_npz = open_bytes(
        "s.npz",
        &npz(
            &[&arrays[..], &[("sigma", f64s(&shape, &sigma))]].concat(),
            true,
        ),
    )
    .unwrap();
    let ids: Vec<Vec<u8>> = [1i64, 2].map(|id| id.to_be_bytes().to_vec()).to_vec();
    let file = FitsBytes::new(&[])
        .table("FIBERMAP", &[("TARGETID", "K", ids)], &[])
        .image(
            "B_WAVELENGTH",
            -64,
            &[pixels],
            &f64s_of_fits(&tiny::wavelength()),
            &[],
        )
        .image("B_FLUX", -64, &shape, &f64s_of_fits(&flux), &[])
        .image("B_IVAR", -64, &shape, &f64s_of_fits(&ivar), &[]);
    let from_fits = open_bytes("s.fits", &file.0).unwrap();
    let settings = SpectraSettings::default().nonfinite(NonFinite::Mask);
    let model = || {
        tiny::builder(emulator.clone(), 0.1)
            .spectra(settings.clone())
            .build()
            .unwrap()
    };
    let mut masked_by_hand = clean.clone();
    masked_by_hand.arms[0]
        .ivar
        .to_mut()
        .iter_mut()
        .enumerate()
        .for_each(|(k, w)| *w = if is_bad(k) { 0.0 } else { 1e4 });
    let expected = fitter(model(), &Device::cpu())
        .fit(&masked_by_hand)
        .unwrap();
    for spectra in [from_npz, from_fits] {
        let table = fitter(model(), &Device::cpu()).fit(&spectra).unwrap();
        for (row, expected) in table.to_rows().iter().zip(expected.to_rows()) {
            assert!(
                row.status.is_success() && row.flags.contains(Flags::NONFINITE_MASKED),
                "{row:?}"
            );
            assert_eq!(row.dof, expected.dof);
            assert!(
                (row.parameters[0] - expected.parameters[0]).abs() < 0.01 * row.errors[0],
                "{row:?}"
            );
        }
    }
}

/// Errors of 10⁹ and 10¹⁰ mark bad pixels, whatever their share, their flux and its unit. The row has the same bits as
/// with a mask.
#[test]
fn huge_errors_have_the_effect_of_a_mask() {
    let is_bad: [(&str, Choose); 5] = [
        ("one pixel", |j| j == 1000),
        ("40 %, the left", |j| j < 1496),
        ("55 %, scattered", |j| j * 7919 % 100 < 55),
        ("60 %, the right", |j| j > 1496),
        ("97 %", |j| j % 32 != 0),
    ];
    let plain = SpectraSettings::default();
    let floor = SpectraSettings::default().error_floor(0.3);
    let marks = [
        (1e9, 0.0, 1.0, &plain),
        (1e9, 0.0, 1e4, &floor),
        (1e10, 7e3, 1e4, &plain),
        (1e10, f64::NAN, 1e-17, &floor),
        (1e20, 1e10, 1.0, &floor),
    ];
    for (case, is_bad) in is_bad {
        for (error, flux, unit, settings) in marks {
            let mut good = good_spectra();
            good.arms[0]
                .flux
                .to_mut()
                .iter_mut()
                .for_each(|y| *y *= unit);
            good.arms[0]
                .ivar
                .to_mut()
                .iter_mut()
                .for_each(|w| *w /= unit * unit);
            let masked = fit_second(
                settings,
                &spoil_second(&good, is_bad, |_, w| *w = 0.0),
                &Device::cpu(),
            );
            let mark = |y: &mut f64, w: &mut f64| {
                (*y, *w) = (flux, f64::from((1.0 / (error * error)) as f32))
            };
            let marked = fit_second(settings, &spoil_second(&good, is_bad, mark), &Device::cpu());
            assert!(masked.status.is_success(), "{case}: {masked:?}");
            same_bits(
                &marked,
                &masked,
                &format!("{case}, error {error:e}, flux {flux}, unit {unit:e}"),
            );
        }
    }
}

/// Implausibly large weights are refused, also beside marked pixels, and also if their flux is zero.
#[test]
fn implausibly_large_weights_are_refused() {
    let good = good_spectra();
    let mark_pixel = |j: usize, w: &mut f64| *w = if j % 5 < 3 && j != 1000 { 1e-20 } else { *w };
    for (count, flux, factor) in [
        (1, None, 1e30),
        (60, None, 1e15),
        (60, Some(0.0), 1e15),
        (1, Some(0.0), 1e13),
    ] {
        for with_marks in [false, true] {
            let mut spectra = good.clone();
            let arm = &mut spectra.arms[0];
            let pixels = arm.pixels;
            if with_marks {
                (0..pixels).for_each(|j| mark_pixel(j, &mut arm.ivar.to_mut()[pixels + j]));
            }
            for j in pixels + 1003..pixels + 1003 + count {
                arm.ivar.to_mut()[j] = factor * arm.ivar.to_double()[pixels + 1000];
                arm.flux.to_mut()[j] = flux.unwrap_or(arm.flux.to_double()[j]);
            }
            let row = fit_second(&SpectraSettings::default(), &spectra, &Device::cpu());
            assert!(
                row.status_text == "bad_weight",
                "{count} {flux:?} {factor:e} {with_marks}: {row:?}"
            );
            assert!(
                row.message.contains("pixel 1003: ") && row.message.contains("times the median"),
                "{}",
                row.message
            );
        }
    }
}

/// Messages explain weights beyond the range of f32.
#[test]
fn weights_beyond_single_precision_are_explained() {
    let good = good_spectra();
    let faint = spoil_second(
        &good,
        |_| true,
        |y, w| (*y, *w) = (*y * 1e-20, f64::from((*w * 1e40) as f32)),
    );
    let row = fit_second(&SpectraSettings::default(), &faint, &Device::cpu());
    for words in [
        "ivar is inf",
        "sigma is 0 there",
        "float32",
        "scale the flux",
        "float64",
    ] {
        assert!(
            row.status_text == "bad_weight" && row.message.contains(words),
            "{words}: {}",
            row.message
        );
    }
    let bright = spoil_second(
        &good,
        |_| true,
        |y, w| (*y, *w) = (*y * 1e30, f64::from((*w * 1e-60) as f32)),
    );
    let row = fit_second(&SpectraSettings::default(), &bright, &Device::cpu());
    for words in ["ivar is 0", "float32", "scale the flux"] {
        assert!(
            row.status_text == "no_data" && row.message.contains(words),
            "{words}: {}",
            row.message
        );
    }
}
