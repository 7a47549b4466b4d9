//! Spectra of which much is masked, or hardly weighs, end at the reference's minimum: `tests/reference/make_masks.py`.

use popfit::{Arm, Continuum, Device, Emulator, FitRow, FitTable, Spectra, SpectralModel};
use popfit_testing::fits::{demo_spectra, devices, fitter};
use popfit_testing::{array, demo_emulator, demo_file};
use serde_json::Value;

const REFERENCE: &str = include_str!("../reference/masks.json");
/// Largest height of an objective above the reference's.
const GAP: f64 = 0.05;
/// Largest offset of parameters, in errors, if the objectives agree.
const OFFSET: f64 = 0.02;

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
        let at = |range: &Value, k: usize| n * arm.pixels + index(&range[k]);
        for range in items(&case["masked"]) {
            arm.mask.to_mut()[at(range, 0)..at(range, 1)].fill(true);
        }
        for range in items(&case["lowered"]) {
            arm.ivar.to_mut()[at(range, 0)..at(range, 1)]
                .iter_mut()
                .for_each(|w| *w *= number(&range[2]));
        }
    }
    spectra
}

/// Holds a table to the reference. Of the case that judges the starts, llvmpipe ends a fit 0.0008 dex from a bound,
/// 0.0005 above and 0.1 errors off. The poor cases are far from any model, so that f32 rounds their objectives by more.
fn check(case: &Value, table: &FitTable, judges_parameters: bool) {
    assert_eq!(table.len(), items(&case["fits"]).count());
    let is_poor = case["is_poor"].as_bool().unwrap();
    let (mut gap, mut offset) = (f64::NEG_INFINITY, 0f64);
    for (n, (row, expected)) in table
        .to_rows()
        .into_iter()
        .zip(items(&case["fits"]))
        .enumerate()
    {
        let what = format!(
            "{}, spectrum {n}: {} {}",
            case["name"], row.status_text, row.message
        );
        assert!(row.status.is_success(), "{what}");
        let rank = index(&expected["rank"]);
        assert_eq!(row.continuum_terms, [rank as u32], "{what}");
        assert_eq!(
            row.dof,
            (index(&expected["unmasked"]) - 5 - rank) as i64,
            "{what}"
        );
        let above = row.objective - number(&expected["objective"]);
        let rounding = if is_poor {
            1e-6 * number(&expected["objective"])
        } else {
            0.0
        };
        assert!(
            above <= GAP.max(rounding),
            "{what}: {above} above the reference"
        );
        gap = gap.max(above);
        if is_poor || above.abs() <= GAP && judges_parameters {
            offset = offset.max(largest_offset(&row, expected));
            assert!(offset <= OFFSET, "{what}: {offset} errors off");
        }
    }
    println!(
        "{}: objective at most {gap:.4} above, parameters {offset:.4} errors off",
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
fn masked_spectra_end_at_the_reference() {
    let reference: Value = serde_json::from_str(REFERENCE).unwrap();
    for device in devices() {
        let is_cpu = device.name().starts_with("cpu");
        // kernels of many terms take a software GPU's compiler minutes: `check_masks.py` has them
        let most = if is_cpu { usize::MAX } else { 10 };
        for case in items(&reference["cases"]).filter(|case| index(&case["terms"]) <= most) {
            let fitter = fitter(model(case), &device);
            // Most cases judge the continuum, with four starts; those without a number judge the starts, too.
            let fitter = if case["starts"].is_null() {
                fitter
            } else {
                fitter.starts(index(&case["starts"]))
            };
            let table = fitter.fit(&spectra(case)).unwrap();
            check(case, &table, is_cpu || !case["starts"].is_null());
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

/// A row as text, which equals itself even if it holds NaN.
fn text(row: &FitRow) -> String {
    format!("{row:?}")
}

/// Where one wide line is left of a hot star, by a mask or by the arm's range, the continuum that is fitted without
/// lines takes up much of it, and hides its velocity. No fit ends higher than the one that starts at the truth.
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
        let (found, best) = (
            fitter.fit(&spectra).unwrap(),
            fitter.fit_from(&spectra, &truth).unwrap(),
        );
        for (row, best) in found.to_rows().into_iter().zip(best.to_rows()) {
            let above = row.objective - best.objective;
            assert!(
                above <= GAP,
                "case {k}, spectrum {}: {above} above the fit from the truth",
                row.row
            );
        }
    }
}

/// The model that is drawn has the χ² of the fit, whichever continuum basis a spectrum has: the grid's, a window's that
/// many share, or one of its own.
#[test]
fn masked_spectra_are_drawn_as_they_were_fitted() {
    let mut spectra = demo_without_blue_end(0.3);
    let pixels = spectra.arms[0].pixels;
    let mask = spectra.arms[0].mask.to_mut();
    (0..20).for_each(|n| mask[n * pixels..][..pixels].fill(false));
    for n in 20..40 {
        let kept = n * pixels + pixels / 2..n * pixels + pixels - 60 * (n - 20);
        (n * pixels..(n + 1) * pixels).for_each(|j| mask[j] = !kept.contains(&j));
    }
    let fitter = fitter(with_continuum(Continuum::rbf(10)), &Device::cpu());
    let rows: Vec<FitRow> = fitter.fit(&spectra).unwrap().to_rows();
    for (row, arms) in rows
        .iter()
        .zip(fitter.model_spectra(&spectra, &rows).unwrap())
    {
        let drawn = arms.unwrap()[0].chi2;
        assert!(
            (drawn - row.chi2).abs() <= 1e-3 * row.chi2,
            "row {}: {drawn} instead of {}",
            row.row,
            row.chi2
        );
    }
}

/// Spectra that lack the same end are fitted with one continuum basis, and others beside them with their own. No bit
/// depends on which spectra are fitted together.
#[test]
fn spectra_of_one_window_keep_their_bits() {
    let mut spectra = demo_without_blue_end(0.3);
    let pixels = spectra.arms[0].pixels;
    let mask = spectra.arms[0].mask.to_mut();
    // whole ones, and ones that lack other parts
    (0..8).for_each(|n| mask[n * pixels..][..pixels].fill(false));
    (8..16).for_each(|n| mask[n * pixels + pixels - (n - 6) * 120..][..(n - 6) * 120].fill(true));
    for device in devices() {
        let fitter = fitter(with_continuum(Continuum::rbf(10)), &device);
        let together = fitter.fit(&spectra).unwrap();
        let few = fitter.fit(&spectra.slice(4..22)).unwrap();
        for n in [0, 5, 8, 12, 15, 16, 30, 63] {
            let alone = fitter
                .fit(&spectra.slice(n..n + 1))
                .unwrap()
                .row(0)
                .to_row();
            assert_eq!(
                text(&alone),
                text(&together.row(n).to_row()),
                "spectrum {n}"
            );
        }
        (4..22).for_each(|n| {
            assert_eq!(
                text(&few.row(n - 4).to_row()),
                text(&together.row(n).to_row()),
                "spectrum {n}"
            )
        });
    }
}

/// A spectrum's bits do not depend on neighbours whose continuum bases are their own.
#[test]
fn neighbours_of_masked_spectra_keep_their_bits() {
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
        let (alone, together) = (fit(&plain), fit(&mixed));
        for n in (0..plain.len()).step_by(2) {
            assert_eq!(
                alone.row(n).to_row(),
                together.row(n).to_row(),
                "spectrum {n}"
            );
        }
    }
}

/// Spectra whose χ² stays large have further starts, and their rows depend neither on the batch nor on its memory.
#[test]
fn further_starts_depend_on_one_spectrum_alone() {
    let reference: Value = serde_json::from_str(REFERENCE).unwrap();
    let stiff = items(&reference["cases"]).last().unwrap();
    let all = spectra(stiff);
    for device in devices() {
        let together = fitter(model(stiff), &device).fit(&all).unwrap();
        let first = together
            .to_rows()
            .into_iter()
            .map(|row| row.start)
            .collect::<Vec<_>>();
        assert!(
            first
                .iter()
                .any(|start| start.is_some_and(|start| start >= 4)),
            "no further start won: {first:?}"
        );
        let few = fitter(model(stiff), &device)
            .max_memory(1 << 26)
            .fit(&all)
            .unwrap();
        for n in 0..all.len() {
            let alone = fitter(model(stiff), &device)
                .fit(&all.slice(n..n + 1))
                .unwrap();
            assert_eq!(
                text(&alone.row(0).to_row()),
                text(&together.row(n).to_row()),
                "spectrum {n}"
            );
            assert_eq!(
                text(&few.row(n).to_row()),
                text(&together.row(n).to_row()),
                "spectrum {n}"
            );
        }
    }
}

/// Pixels whose weight is out of all proportion are refused, and the first is named; a few that are merely large are
/// not.
#[test]
fn weights_out_of_proportion_are_refused() {
    let reference: Value = serde_json::from_str(REFERENCE).unwrap();
    let case = &reference["cases"][0];
    let mut all = spectra(case);
    let pixels = all.arms[0].pixels;
    let median = {
        let mut sorted: Vec<f64> = all.arms[0].ivar.to_double()[..pixels].to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[pixels / 2]
    };
    all.arms[0].ivar.to_mut()[1000] = 1e30 * median;
    all.arms[0].ivar.to_mut()[pixels + 1000] *= 1e6;
    // so many that the others might be the ones that were lowered, but not so far
    all.arms[0].ivar.to_mut()[2 * pixels + 1000..][..60]
        .iter_mut()
        .for_each(|w| *w = 1e15 * median);
    for device in devices() {
        let table = fitter(model(case), &device).fit(&all).unwrap();
        for row in [&table.row(0).to_row(), &table.row(2).to_row()] {
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
