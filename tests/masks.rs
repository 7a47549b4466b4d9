//! Spectra of which much is masked, or hardly weighs, end at the reference's minimum: `tests/reference/make_masks.py`.

use popfit::{Continuum, Emulator, FitRow, FitTable, Spectra, SpectralModel};
use popfit_testing::fits::{devices, fitter};
use serde_json::Value;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
const REFERENCE: &str = include_str!("reference/masks.json");
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
    let continuum = if case["basis"] == "rbf" { Continuum::rbf(terms) } else { Continuum::chebyshev(terms) };
    let emulator = Emulator::open(format!("{DATA}/emulator.safetensors")).unwrap();
    let builder = SpectralModel::builder().arm("b", emulator).velocity(-1000.0..=1000.0);
    builder.continuum(continuum).marginalise(true).build().unwrap()
}

/// The demo's spectra with the case's masks and weights.
fn spectra(case: &Value) -> Spectra<'static> {
    let count = items(&case["fits"]).count();
    let mut spectra = Spectra::open(format!("{DATA}/spectra.npz")).unwrap().slice(0..count);
    let arm = &mut spectra.arms[0];
    for n in 0..count {
        let at = |range: &Value, k: usize| n * arm.pixels + index(&range[k]);
        for range in items(&case["masked"]) {
            arm.mask.to_mut()[at(range, 0)..at(range, 1)].fill(true);
        }
        for range in items(&case["lowered"]) {
            arm.ivar.to_mut()[at(range, 0)..at(range, 1)].iter_mut().for_each(|w| *w *= number(&range[2]));
        }
    }
    spectra
}

/// Holds a table to the reference. Of the case that judges the starts, llvmpipe ends a fit 0.0008 dex from a bound,
/// 0.0005 above and 0.1 errors off.
fn check(case: &Value, table: &FitTable, judges_parameters: bool) {
    assert_eq!(table.len(), items(&case["fits"]).count());
    let (mut gap, mut offset) = (f64::NEG_INFINITY, 0f64);
    for (n, (row, expected)) in table.rows().zip(items(&case["fits"])).enumerate() {
        let what = format!("{}, spectrum {n}: {} {}", case["name"], row.status_text, row.message);
        assert!(row.status.is_success(), "{what}");
        let rank = index(&expected["rank"]);
        assert_eq!(row.continuum_terms, [rank as u32], "{what}");
        assert_eq!(row.dof, (index(&expected["unmasked"]) - 5 - rank) as i64, "{what}");
        let above = row.objective - number(&expected["objective"]);
        assert!(above <= GAP, "{what}: {above} above the reference");
        gap = gap.max(above);
        if above.abs() <= GAP && judges_parameters {
            offset = offset.max(largest_offset(&row, expected));
            assert!(offset <= OFFSET, "{what}: {offset} errors off");
        }
    }
    println!("{}: objective at most {gap:.4} above, parameters {offset:.4} errors off", case["name"]);
}

/// Returns the largest offset, in errors, of the parameters that have an error.
fn largest_offset(row: &FitRow, expected: &Value) -> f64 {
    let pairs = row.parameters.iter().zip(items(&expected["parameters"])).zip(items(&expected["errors"]));
    let all = pairs.zip(&row.errors).filter(|(_, error)| error.is_finite());
    all.map(|(((x, y), error), _)| (x - number(y)).abs() / number(error)).fold(0.0, f64::max)
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
            let fitter = if case["starts"].is_null() { fitter } else { fitter.starts(index(&case["starts"])) };
            let table = fitter.fit(&spectra(case)).unwrap();
            check(case, &table, is_cpu || !case["starts"].is_null());
        }
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
            assert_eq!(alone.row(n), together.row(n), "spectrum {n}");
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
        let first = together.rows().map(|row| row.start).collect::<Vec<_>>();
        assert!(first.iter().any(|start| start.is_some_and(|start| start >= 4)), "no further start won: {first:?}");
        let few = fitter(model(stiff), &device).max_memory(1 << 26).fit(&all).unwrap();
        for n in 0..all.len() {
            let alone = fitter(model(stiff), &device).fit(&all.slice(n..n + 1)).unwrap();
            // parameters at their bounds have errors of NaN, which equal nothing
            let text = |row: &FitRow| format!("{row:?}");
            assert_eq!(text(&alone.row(0)), text(&together.row(n)), "spectrum {n}");
            assert_eq!(text(&few.row(n)), text(&together.row(n)), "spectrum {n}");
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
    all.arms[0].ivar.to_mut()[2 * pixels + 1000..][..60].iter_mut().for_each(|w| *w = 1e15 * median);
    for device in devices() {
        let table = fitter(model(case), &device).fit(&all).unwrap();
        for row in [&table.row(0), &table.row(2)] {
            assert_eq!(row.status_text, "bad_weight");
            assert!(row.message.contains("pixel 1000") && row.message.contains("times the median"), "{}", row.message);
        }
        let others = table.rows().enumerate().filter(|(n, _)| ![0, 2].contains(n));
        assert!(others.into_iter().all(|(_, row)| row.status.is_success()));
    }
}
