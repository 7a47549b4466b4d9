//! Spectra with many masked pixels, or pixels of little weight, end at the minimum of the reference:
//! `tests/reference/make_masks.py`.

use popfit::{Arm, Continuum, Device, Emulator, FitRow, FitTable, Spectra, SpectralModel};
use popfit_testing::fits::{demo_spectra, devices, fitter};
use popfit_testing::{array, demo_emulator, demo_file};
use serde_json::Value;

const REFERENCE: &str = include_str!("../reference/masks.json");
/// Largest height of an objective above the reference's.
const MAX_EXCESS: f64 = 0.05;
/// Largest offset of parameters, in errors, if the objectives agree.
const MAX_OFFSET_IN_ERRORS: f64 = 0.02;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn index(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap().iter()
}

fn model(case: &Value) -> SpectralModel {
    let terms = index(&case["terms"]);
    with_continuum(if case["basis"] == "rbf" {
        Continuum::rbf(terms)
    } else {
        Continuum::chebyshev(terms)
    })
}

/// The demo's model with another continuum.
fn with_continuum(continuum: Continuum) -> SpectralModel {
    with_arm(arm(), continuum)
}

/// The arm of the demo's model.
fn arm() -> Arm {
    Arm::new("b", Emulator::open(demo_emulator()).unwrap())
}

fn with_arm(arm: Arm, continuum: Continuum) -> SpectralModel {
    let builder = SpectralModel::builder()
        .add_arm(arm)
        .velocity(-1000.0..=1000.0);
    builder
        .continuum(continuum)
        .marginalise(true)
        .build()
        .unwrap()
}

/// The demo's spectra with the case's masks and weights.
fn spectra(case: &Value) -> Spectra<'static> {
    let count = items(&case["fits"]).count();
    let mut spectra = demo_spectra().slice(0..count);
    let arm = &mut spectra.arms[0];
    for n in 0..count {
        let pixel_of = |range: &Value, k: usize| n * arm.pixels + index(&range[k]);
        for range in items(&case["masked"]) {
            arm.mask.to_mut()[pixel_of(range, 0)..pixel_of(range, 1)].fill(true);
        }
        for range in items(&case["lowered"]) {
            arm.ivar.to_mut()[pixel_of(range, 0)..pixel_of(range, 1)]
                .iter_mut()
                .for_each(|w| *w *= number(&range[2]));
        }
    }
    spectra
}

/// Compares a table with the reference. Of the case that judges the starts, llvmpipe ends a fit 0.0008 dex from a
/// bound, 0.0005 above and 0.1 errors off. The poor cases are far from any model, so that f32 rounds their objectives
/// by more.
fn check_against_reference(case: &Value, table: &FitTable, judges_parameters: bool) {
    assert_eq!(table.len(), items(&case["fits"]).count());
    let is_poor = case["is_poor"].as_bool().unwrap();
    let mut max_excess = f64::NEG_INFINITY;
    let mut max_offset = 0f64;
    for (n, (row, expected)) in table
        .to_rows()
        .into_iter()
        .zip(items(&case["fits"]))
        .enumerate()
    {
        let description = format!(
            "{}, spectrum {n}: {} {}",
            case["name"], row.status_text, row.message
        );
        assert!(row.status.is_success(), "{description}");
        let rank = index(&expected["rank"]);
        assert_eq!(row.continuum_terms, [rank as u32], "{description}");
        assert_eq!(
            row.dof,
            (index(&expected["unmasked"]) - 5 - rank) as i64,
            "{description}"
        );
        let excess = row.objective - number(&expected["objective"]);
        let rounding = if is_poor {
            1e-6 * number(&expected["objective"])
        } else {
            0.0
        };
        assert!(
            excess <= MAX_EXCESS.max(rounding),
            "{description}: {excess} above the reference"
        );
        max_excess = max_excess.max(excess);
        if is_poor || excess.abs() <= MAX_EXCESS && judges_parameters {
            max_offset = max_offset.max(largest_offset(&row, expected));
            assert!(
                max_offset <= MAX_OFFSET_IN_ERRORS,
                "{description}: {max_offset} errors off"
            );
        }
    }
    println!(
        "{}: objective at most {max_excess:.4} above, parameters {max_offset:.4} errors off",
        case["name"]
    );
}

/// Returns the largest offset of the parameters, in errors of the reference, which has one at bounds, too.
fn largest_offset(row: &FitRow, expected: &Value) -> f64 {
    let pairs = row
        .parameters
        .iter()
        .zip(items(&expected["parameters"]))
        .zip(items(&expected["errors"]));
    pairs
        .map(|((x, y), error)| (x - number(y)).abs() / number(error))
        .fold(0.0, f64::max)
}

#[test]
fn masked_spectra_end_at_the_minimum_of_the_reference() {
    let reference: Value = serde_json::from_str(REFERENCE).unwrap();
    for device in devices() {
        let is_cpu = device.name().starts_with("cpu");
        // A software GPU compiles kernels of many terms for minutes. `check_masks.py` has these cases.
        let max_terms = if is_cpu { usize::MAX } else { 10 };
        for case in items(&reference["cases"]).filter(|case| index(&case["terms"]) <= max_terms) {
            let fitter = fitter(model(case), &device);
            // Most cases judge the continuum, with four starts; those without a number judge the starts, too.
            let fitter = if case["starts"].is_null() {
                fitter
            } else {
                fitter.starts(index(&case["starts"]))
            };
            let table = fitter.fit(&spectra(case)).unwrap();
            check_against_reference(case, &table, is_cpu || !case["starts"].is_null());
        }
    }
}

/// The demo's 64 spectra without the blue `share` of their pixels.
fn demo_without_blue_end(share: f64) -> Spectra<'static> {
    let mut spectra = demo_spectra();
    let pixels = spectra.arms[0].pixels;
    let masked = (share * pixels as f64) as usize;
    spectra.arms[0]
        .mask
        .to_mut()
        .chunks_mut(pixels)
        .for_each(|mask| mask[..masked].fill(true));
    spectra
}

/// Returns a row as text, which equals itself even if the row contains NaN.
fn row_text(row: &FitRow) -> String {
    format!("{row:?}")
}

/// If a mask or the arm's range leaves only one wide line of a hot star, the continuum that is fitted without lines
/// absorbs much of it, and hides its velocity. No fit ends higher than the one that starts at the truth.
#[test]
fn a_wide_line_alone_is_found_at_its_velocity() {
    let (_, truth) = array(&demo_file("truth.npz"), "parameters");
    let whole = demo_without_blue_end(0.0);
    let red_end = whole.arms[0].grid(0)[(0.6 * whole.arms[0].pixels as f64) as usize];
    let cases = [
        (demo_without_blue_end(0.6), arm()),
        (demo_without_blue_end(0.65), arm()),
        (whole, arm().range(red_end..=6000.0)),
    ];
    for (k, (spectra, arm)) in cases.into_iter().enumerate() {
        let fitter = fitter(with_arm(arm, Continuum::rbf(10)), &Device::cpu());
        let guessed = fitter.fit(&spectra).unwrap();
        let from_truth = fitter.fit_from(&spectra, &truth).unwrap();
        for (row, from_truth) in guessed.to_rows().into_iter().zip(from_truth.to_rows()) {
            let excess = row.objective - from_truth.objective;
            assert!(
                excess <= MAX_EXCESS,
                "case {k}, spectrum {}: {excess} above the fit from the truth",
                row.row
            );
        }
    }
}

/// The evaluated model has the χ² of the fit for each kind of continuum basis: that of the grid, that of a window that
/// many spectra share, and one of the spectrum alone.
#[test]
fn models_of_masked_spectra_have_the_chi2_of_their_fits() {
    let mut spectra = demo_without_blue_end(0.3);
    let pixels = spectra.arms[0].pixels;
    let mask = spectra.arms[0].mask.to_mut();
    (0..20).for_each(|n| mask[n * pixels..][..pixels].fill(false));
    for n in 20..40 {
        let unmasked = n * pixels + pixels / 2..n * pixels + pixels - 60 * (n - 20);
        (n * pixels..(n + 1) * pixels).for_each(|j| mask[j] = !unmasked.contains(&j));
    }
    let fitter = fitter(with_continuum(Continuum::rbf(10)), &Device::cpu());
    let rows: Vec<FitRow> = fitter.fit(&spectra).unwrap().to_rows();
    for (row, arms) in rows
        .iter()
        .zip(fitter.model_spectra(&spectra, &rows).unwrap())
    {
        let chi2_of_model = arms.unwrap()[0].chi2;
        assert!(
            (chi2_of_model - row.chi2).abs() <= 1e-3 * row.chi2,
            "row {}: {chi2_of_model} instead of {}",
            row.row,
            row.chi2
        );
    }
}

/// Spectra that lack the same end are fitted with one continuum basis, and others beside them with their own. No bit
/// depends on which spectra are fitted together.
#[test]
fn spectra_with_one_window_have_the_same_bits_in_any_batch() {
    let mut spectra = demo_without_blue_end(0.3);
    let pixels = spectra.arms[0].pixels;
    let mask = spectra.arms[0].mask.to_mut();
    // Some spectra are whole, and others lack other parts.
    (0..8).for_each(|n| mask[n * pixels..][..pixels].fill(false));
    (8..16).for_each(|n| mask[n * pixels + pixels - (n - 6) * 120..][..(n - 6) * 120].fill(true));
    for device in devices() {
        let fitter = fitter(with_continuum(Continuum::rbf(10)), &device);
        let together = fitter.fit(&spectra).unwrap();
        let in_smaller_batch = fitter.fit(&spectra.slice(4..22)).unwrap();
        for n in [0, 5, 8, 12, 15, 16, 30, 63] {
            let alone = fitter.fit(&spectra.slice(n..n + 1)).unwrap().row(0);
            assert_eq!(row_text(&alone), row_text(&together.row(n)), "spectrum {n}");
        }
        (4..22).for_each(|n| {
            assert_eq!(
                row_text(&in_smaller_batch.row(n - 4)),
                row_text(&together.row(n)),
                "spectrum {n}"
            )
        });
    }
}

/// A spectrum's bits do not depend on neighbours whose continuum bases are their own.
#[test]
fn neighbours_of_masked_spectra_have_the_same_bits() {
    let reference: Value = serde_json::from_str(REFERENCE).unwrap();
    let cases: Vec<&Value> = items(&reference["cases"]).collect();
    let plain = spectra(cases[0]);
    let mut mixed = plain.clone();
    let pixels = mixed.arms[0].pixels;
    for n in (1..mixed.len()).step_by(2) {
        mixed.arms[0].mask.to_mut()[n * pixels..][..pixels / 2].fill(true);
    }
    for device in devices() {
        let fit = |spectra: &Spectra| fitter(model(cases[0]), &device).fit(spectra).unwrap();
        let alone = fit(&plain);
        let together = fit(&mixed);
        for n in (0..plain.len()).step_by(2) {
            assert_eq!(alone.row(n), together.row(n), "spectrum {n}");
        }
    }
}

/// Spectra whose χ² stays large have further starts, and their rows depend neither on the batch nor on its memory.
#[test]
fn further_starts_depend_on_one_spectrum_alone() {
    let reference: Value = serde_json::from_str(REFERENCE).unwrap();
    let stiff = items(&reference["cases"]).last().unwrap();
    let spectra = spectra(stiff);
    for device in devices() {
        let together = fitter(model(stiff), &device).fit(&spectra).unwrap();
        let winning_starts = together
            .to_rows()
            .into_iter()
            .map(|row| row.start)
            .collect::<Vec<_>>();
        assert!(
            winning_starts
                .iter()
                .any(|start| start.is_some_and(|start| start >= 4)),
            "no further start won: {winning_starts:?}"
        );
        let with_little_memory = fitter(model(stiff), &device)
            .max_memory(1 << 26)
            .fit(&spectra)
            .unwrap();
        for n in 0..spectra.len() {
            let alone = fitter(model(stiff), &device)
                .fit(&spectra.slice(n..n + 1))
                .unwrap();
            assert_eq!(
                row_text(&alone.row(0)),
                row_text(&together.row(n)),
                "spectrum {n}"
            );
            assert_eq!(
                row_text(&with_little_memory.row(n)),
                row_text(&together.row(n)),
                "spectrum {n}"
            );
        }
    }
}

/// Spectra with weights out of all proportion are refused, and the message names the first such pixel. Spectra with a
/// few merely large weights are fitted.
#[test]
fn weights_out_of_proportion_are_refused() {
    let reference: Value = serde_json::from_str(REFERENCE).unwrap();
    let case = &reference["cases"][0];
    let mut spectra = spectra(case);
    let pixels = spectra.arms[0].pixels;
    let median = {
        let mut sorted: Vec<f64> = spectra.arms[0].ivar.to_double()[..pixels].to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[pixels / 2]
    };
    spectra.arms[0].ivar.to_mut()[1000] = 1e30 * median;
    spectra.arms[0].ivar.to_mut()[pixels + 1000] *= 1e6;
    // These are so many that the weights of the other pixels might have been lowered, but not by such a factor.
    spectra.arms[0].ivar.to_mut()[2 * pixels + 1000..][..60]
        .iter_mut()
        .for_each(|w| *w = 1e15 * median);
    for device in devices() {
        let table = fitter(model(case), &device).fit(&spectra).unwrap();
        for row in [&table.row(0), &table.row(2)] {
            assert_eq!(row.status_text, "bad_weight");
            assert!(
                row.message.contains("pixel 1000") && row.message.contains("times the median"),
                "{}",
                row.message
            );
        }
        let others = table
            .to_rows()
            .into_iter()
            .enumerate()
            .filter(|(n, _)| ![0, 2].contains(n));
        assert!(others.into_iter().all(|(_, row)| row.status.is_success()));
    }
}
