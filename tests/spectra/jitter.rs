//! Jitter: errors of calibration that are a fraction of the flux, added to those of the file in quadrature.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use popfit::spectra::SpectraReader;
use popfit::{
    Continuum, Control, Device, Emulator, Estimator, FitRow, Flags, Jitter, Spectra,
    SpectraSettings, SpectralModel, Status,
};
use popfit_testing::demo_emulator;
use popfit_testing::fits::{demo_spectra, devices, fitter, pick, same_bits};
use popfit_testing::random::Random;

/// Error of calibration of each pixel, as a fraction of its flux.
const FRACTION: f64 = 0.03;

fn fit_with(jitter: f64, spectra: &Spectra) -> Vec<popfit::FitRow> {
    let builder = SpectralModel::builder().arm("b", Emulator::open(demo_emulator()).unwrap());
    let builder = builder
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10));
    let settings = SpectraSettings::default().jitter(jitter);
    let model = builder.spectra(settings).build().unwrap();
    fitter(model, &Device::cpu())
        .fit(spectra)
        .unwrap()
        .to_rows()
}

/// Returns the demo's spectra whose fluxes have another error of calibration in each pixel.
fn spoil_calibration(seed: u64) -> Spectra<'static> {
    let mut spectra = demo_spectra();
    let mut random = Random(seed);
    for flux in spectra.arms[0].flux.to_mut() {
        *flux *= 1.0 + FRACTION * random.normal();
    }
    spectra
}

/// Beside the fits of the spectra as they were, whose own scatter the differences of two fits do not have.
#[test]
fn pulls_of_spectra_with_errors_of_calibration_are_normal() {
    let plain = fit_with(0.0, &demo_spectra());
    let root_mean_square = |jitter: f64| {
        let mut squares = Vec::new();
        let mut chi2_per_dof = Vec::new();
        for seed in 0..4 {
            for (row, undisturbed) in fit_with(jitter, &spoil_calibration(seed))
                .iter()
                .zip(&plain)
            {
                chi2_per_dof.push(row.chi2 / row.dof as f64);
                let values = row.parameters.iter().zip(&undisturbed.parameters);
                for ((value, before), (error, error_before)) in
                    values.zip(row.errors.iter().zip(&undisturbed.errors))
                {
                    // the added error alone, without that of the file
                    let added = error * error - error_before * error_before;
                    if error.is_finite() && (jitter == 0.0 || added > 0.0) {
                        let variance = if jitter > 0.0 { added } else { error * error };
                        squares.push((value - before).powi(2) / variance);
                    }
                }
            }
        }
        let mean = squares.iter().sum::<f64>() / squares.len() as f64;
        (mean.sqrt(), popfit_testing::median(chi2_per_dof))
    };
    let (without, chi2_without) = root_mean_square(0.0);
    let (with, chi2_with) = root_mean_square(FRACTION);
    println!(
        "without: pulls {without:.3}, χ²/dof {chi2_without:.3}; with: {with:.3}, {chi2_with:.3}"
    );
    assert!(without > 1.3 && chi2_without > 2.0);
    assert!((with - 1.0).abs() < 0.15, "{with}");
    assert!((chi2_with - 1.0).abs() < 0.05, "{chi2_with}");
}

#[test]
fn a_jitter_of_0_changes_no_bit_and_masked_pixels_stay_masked() {
    let spectra = demo_spectra();
    let plain = fit_with(0.0, &spectra);
    let with = fit_with(0.05, &spectra);
    for (row, plain) in with.iter().zip(&plain) {
        assert_eq!(row.dof, plain.dof, "no pixel comes or goes");
        assert!(row.chi2 < plain.chi2);
        assert!(row.errors.iter().zip(&plain.errors).all(|(a, b)| a >= b));
    }
}

/// Number of drawn spectra whose errors are too small.
const DRAWN: usize = 2000;
/// Stated error of drawn pixels, as a share of the true one.
const STATED_SHARE: f64 = 0.7;

fn between(random: &mut Random, low: f64, high: f64) -> f64 {
    low + (high - low) * random.uniform()
}

/// Spectra with known parameters (spectra, parameters).
struct DrawnSpectra {
    spectra: Spectra<'static>,
    truth: Vec<Vec<f64>>,
}

/// Draws spectra from the demo's network. Their noise is that of photons, of which the stated errors are
/// `stated_share`, and errors of calibration that are a fraction of the flux.
fn draw_spectra(count: usize, stated_share: f64, calibration: f64) -> DrawnSpectra {
    let mut random = Random(63);
    let like = pick(&demo_spectra(), &[0]);
    let template_fitter = fitter(fitted_model(Jitter::Fraction(0.0)), &Device::cpu());
    let pixels = like.arms[0].pixels;
    let mut drawn = DrawnSpectra {
        spectra: pick(&demo_spectra(), &vec![0; count]),
        truth: Vec::new(),
    };
    let mut templates: Vec<(Vec<f64>, Vec<f64>)> = Vec::new();
    for _ in 0..count.div_ceil(10) {
        let parameters = vec![
            between(&mut random, -200.0, 200.0),
            between(&mut random, 4600.0, 6300.0),
            between(&mut random, 1.5, 4.3),
            between(&mut random, -2.0, 0.0),
            between(&mut random, 0.0, 0.3),
        ];
        let prediction = template_fitter.predict(&parameters, Some(&like)).unwrap();
        templates.push((parameters, prediction[0].flux.clone()));
    }
    let mut flux = Vec::with_capacity(count * pixels);
    let mut ivar = Vec::with_capacity(count * pixels);
    for n in 0..count {
        let (parameters, template) = &templates[n / 10];
        drawn.truth.push(parameters.clone());
        let signal_to_noise = between(&mut random, 20.0, 60.0);
        let slope = between(&mut random, -0.3, 0.3);
        for (j, value) in template.iter().enumerate() {
            let value = value * (1.0 + slope * j as f64 / pixels as f64);
            if !value.is_finite() {
                flux.push(0.0);
                ivar.push(0.0);
                continue;
            }
            let photon_error = value.sqrt() / signal_to_noise;
            let error = photon_error.hypot(calibration * value);
            flux.push(value + error * random.normal());
            ivar.push((stated_share * photon_error).powi(-2));
        }
    }
    drawn.spectra.arms[0].flux = flux.into();
    drawn.spectra.arms[0].ivar = ivar.into();
    drawn.spectra.arms[0].mask = Vec::new().into();
    drawn
}

fn fitted_model(jitter: Jitter) -> SpectralModel {
    SpectralModel::builder()
        .arm("b", Emulator::open(demo_emulator()).unwrap())
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::chebyshev(4))
        .spectra(SpectraSettings::default().jitter(jitter))
        .build()
        .unwrap()
}

/// Returns the standard deviation of the pulls of all parameters.
fn pulls(rows: &[FitRow], truth: &[Vec<f64>]) -> f64 {
    let mut sum_of_squares = 0.0;
    let mut count = 0;
    for (row, truth) in rows.iter().zip(truth) {
        if row.at_bound != 0 || !row.status.is_success() {
            continue;
        }
        for ((value, error), truth) in row.parameters.iter().zip(&row.errors).zip(truth) {
            sum_of_squares += ((value - truth) / error).powi(2);
            count += 1;
        }
    }
    assert!(count > 4 * rows.len(), "{count} pulls");
    (sum_of_squares / f64::from(u32::try_from(count).unwrap())).sqrt()
}

/// The noise is that of photons, and all errors are too small by one factor.
#[test]
fn pulls_of_spectra_with_errors_too_small_are_normal_again() {
    let DrawnSpectra { spectra, truth } = draw_spectra(DRAWN, STATED_SHARE, 0.0);
    let fit = |jitter| fitter(fitted_model(jitter), &Device::cpu()).fit(&spectra);
    let without = pulls(&fit(Jitter::Fraction(0.0)).unwrap().to_rows(), &truth);
    let rows = fit(Jitter::Fitted).unwrap().to_rows();
    let with = pulls(&rows, &truth);
    let with_factors = rows.iter().filter(|row| row.error_factors[0] > 1.0).count();
    assert!(
        with_factors > DRAWN * 9 / 10,
        "{with_factors} have a factor"
    );
    let flagged = |row: &&FitRow| row.flags.intersects(Flags::HIGH_CHI2 | Flags::LOW_CHI2);
    let flagged = rows.iter().filter(flagged).count();
    println!("pulls {without:.3}; with the fitted jitter {with:.3}; {flagged} flagged");
    assert!((1.35..1.5).contains(&without), "{without}");
    assert!((0.97..1.03).contains(&with), "{with}");
    assert!(flagged <= DRAWN / 500, "{flagged} flagged");
}

/// The fraction is that of the draws, the objective has the variances, and devices agree. Right errors need none.
#[test]
fn errors_of_calibration_are_found() {
    let DrawnSpectra { spectra, truth } = draw_spectra(200, 1.0, 2.0 * FRACTION);
    let arm = &spectra.arms[0];
    let [flux, ivar] = [&arm.flux, &arm.ivar].map(|values| values.to_double());
    for device in devices() {
        let table = fitter(fitted_model(Jitter::Fitted), &device)
            .fit(&spectra)
            .unwrap();
        let rows = table.to_rows();
        assert!((0.93..1.07).contains(&pulls(&rows, &truth)));
        let with_fractions = rows.iter().filter(|row| row.jitter[0] > 0.0).count();
        assert!(with_fractions > 190, "{with_fractions}");
        let mut squares = Vec::new();
        for (n, row) in rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.jitter[0] > 0.0)
        {
            assert_eq!(row.error_factors, [1.0]);
            squares.push(((row.jitter[0] - 2.0 * FRACTION) / row.jitter_errors[0]).powi(2));
            let pixels = n * arm.pixels..(n + 1) * arm.pixels;
            let log_ratios = flux[pixels.clone()]
                .iter()
                .zip(&ivar[pixels])
                .map(|(y, w)| {
                    let added = row.jitter[0] * y;
                    (w * added * added).ln_1p()
                });
            let [expected, found] = [log_ratios.sum(), row.objective - row.chi2];
            assert!(
                (found / expected - 1.0_f64).abs() < 0.02,
                "{n}: {found}, {expected}"
            );
        }
        let mean_square = squares.iter().sum::<f64>() / squares.len() as f64;
        assert!((0.75..1.3).contains(&mean_square), "{mean_square}");
        for name in ["jitter", "jitter_err", "error_factor"] {
            assert!(table.column(name).is_some(), "{name}");
        }
    }
    let right = draw_spectra(200, 1.0, 0.0);
    let rows = fitter(fitted_model(Jitter::Fitted), &Device::cpu())
        .fit(&right.spectra)
        .unwrap()
        .to_rows();
    let needs_none = |row: &&FitRow| row.jitter[0] == 0.0 && row.error_factors[0] == 1.0;
    let count = rows.iter().filter(needs_none).count();
    assert!((60..=140).contains(&count), "{count} of 200");
    assert!(
        rows.iter()
            .all(|row| (row.jitter[0] == 0.0) == row.jitter_errors[0].is_nan())
    );
}

/// Spectra that are read as one batch.
struct OneBatch<'a> {
    spectra: &'a Spectra<'a>,
    is_read: bool,
}

impl SpectraReader for OneBatch<'_> {
    fn len(&self) -> u64 {
        self.spectra.len() as u64
    }

    fn next_batch(&mut self, _: usize) -> popfit::Result<Option<Spectra<'static>>> {
        let is_read = std::mem::replace(&mut self.is_read, true);
        let rows: Vec<usize> = (0..self.spectra.len()).collect();
        Ok((!is_read).then(|| pick(self.spectra, &rows)))
    }

    fn empty(&self) -> Spectra<'static> {
        pick(self.spectra, &[])
    }
}

/// A fit that was to be repeated when the run was cancelled is interrupted: it has errors without jitter.
#[test]
fn a_cancelled_run_has_no_fit_without_its_jitter() {
    let DrawnSpectra { spectra, .. } = draw_spectra(60, STATED_SHARE, 0.0);
    let fitter = fitter(fitted_model(Jitter::Fitted), &Device::cpu());
    let whole = fitter.fit(&spectra).unwrap().to_rows();
    let mut interrupted = 0;
    for calls in 1..6 {
        let control = Control::default();
        let cancel = control.cancel.clone();
        let remaining = AtomicU64::new(calls);
        let control = Control {
            progress: Some(Arc::new(move |_, _| {
                if remaining.fetch_sub(1, Ordering::Relaxed) == 1 {
                    cancel.store(true, Ordering::Relaxed);
                }
            })),
            ..control
        };
        let mut table = fitter.table();
        let mut source = OneBatch {
            spectra: &spectra,
            is_read: false,
        };
        fitter
            .clone()
            .control(control.clone())
            .fit_stream(&mut source, &mut table)
            .unwrap();
        for (row, whole) in table.to_rows().iter().zip(&whole) {
            match row.status {
                Status::Interrupted => interrupted += 1,
                _ => same_bits(row, whole, "not interrupted"),
            }
        }
    }
    assert!(interrupted > 0);
}

#[test]
fn a_fitted_jitter_refuses_what_else_sets_the_errors() {
    let build = |settings: SpectraSettings| {
        SpectralModel::builder()
            .arm("b", Emulator::open(demo_emulator()).unwrap())
            .spectra(settings.jitter(Jitter::Fitted))
            .build()
    };
    for (settings, word) in [
        (SpectraSettings::default().error_floor(0.5), "error_floor"),
        (
            SpectraSettings::default().loss(Estimator::Huber(1.345)),
            "loss",
        ),
    ] {
        let message = build(settings).unwrap_err().to_string();
        assert!(
            message.contains("spectra.jitter") && message.contains(word),
            "{message}"
        );
    }
    let spectra = demo_spectra();
    let fitter = fitter(fitted_model(Jitter::Fitted), &Device::cpu());
    let row = &fitter.fit(&spectra).unwrap().to_rows()[0];
    let points = row.parameters.repeat(spectra.len());
    let message = fitter
        .objective(&spectra, &points, false)
        .unwrap_err()
        .to_string();
    assert!(message.contains("jitter"), "{message}");
}
