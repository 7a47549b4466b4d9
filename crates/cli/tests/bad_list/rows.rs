//! A fault of one spectrum is a row, and no other row changes by a byte.

use std::collections::HashMap;

use crate::damage::{keep, scale};
use crate::setup::{Arrays, Place, Run, SPECTRA, TERMS, number};
use popfit_testing::tiny::PIXELS;

/// The spectrum that is spoiled.
const BAD: usize = 3;

type Row = HashMap<String, String>;
type Spoil = fn(&mut Arrays);

/// Faults of the spoiled spectrum: row of the list, damage, expected `status_text` (empty: it is fitted), expected
/// words on standard error.
const FAULTS: [(&str, Spoil, &str, &[&str]); 14] = [
    (
        "1 NaN",
        |a| a.flux[at(7)] = f64::NAN,
        "non_finite_input",
        &["arm b", "pixel 7", "flux is NaN"],
    ),
    (
        "1 inf",
        |a| a.flux[at(0)] = f64::INFINITY,
        "non_finite_input",
        &["pixel 0", "flux is inf"],
    ),
    (
        "2",
        |a| (a.flux[at(7)], a.weight[at(7)]) = (f64::NAN, 0.0),
        "",
        &[],
    ),
    ("3", |a| a.weight[at(7)] = 0.0, "", &[]),
    ("3 mask", |a| a.mask[at(7)] = true, "", &[]),
    (
        "4",
        |a| a.weight[at(7)] = -4.0,
        "bad_weight",
        &["arm b", "pixel 7", "ivar is -4"],
    ),
    (
        "5 NaN",
        |a| a.weight[at(63)] = f64::NAN,
        "bad_weight",
        &["pixel 63", "ivar is NaN"],
    ),
    (
        "5 inf",
        |a| a.weight[at(7)] = f64::INFINITY,
        "bad_weight",
        &["pixel 7", "ivar is inf"],
    ),
    (
        "6",
        |a| a.mask[at(0)..at(PIXELS)].fill(true),
        "no_data",
        &["no pixel counts"],
    ),
    (
        "7",
        |a| keep(a, BAD, TERMS + 1),
        "underdetermined",
        &[
            "3 unmasked pixels",
            "2 free parameters",
            "2 continuum terms",
        ],
    ),
    (
        "7 one",
        |a| keep(a, BAD, 1),
        "underdetermined",
        &[
            "1 unmasked pixels",
            "2 free parameters",
            "the 1 continuum terms that they determine",
        ],
    ),
    ("8", |a| keep(a, BAD, TERMS + 2), "", &[]),
    ("18", |a| scale(a, BAD, 1e-17), "", &[]),
    ("19", |a| scale(a, BAD, 1e30), "", &[]),
];

const fn at(pixel: usize) -> usize {
    BAD * PIXELS + pixel
}

#[track_caller]
fn others_are_equal(run: &Run, clean: &Run, what: &str) {
    let (lines, clean) = (run.lines(), clean.lines());
    assert_eq!(lines.len(), clean.len(), "{what}");
    for (n, (line, clean)) in lines.iter().zip(clean).enumerate() {
        assert!(
            n == BAD || *line == clean,
            "{what}: spectrum {n}:\n{line}\n{clean}"
        );
    }
}

#[track_caller]
fn is_bad_input(row: &Row, cause: &str) {
    assert_eq!(
        (row["status"].as_str(), row["status_text"].as_str()),
        ("-1", cause),
        "{row:?}"
    );
    for column in ["chi2", "objective", "a_err", "b_err", "correlation_a_b"] {
        assert_eq!(row[column], "nan", "{column} of {row:?}");
    }
}

#[track_caller]
fn is_fitted(row: &Row) {
    assert!(number(row, "status") > 0.0, "{row:?}");
    assert!(
        ["chi2", "a", "b", "a_err", "b_err"]
            .iter()
            .all(|c| number(row, c).is_finite()),
        "{row:?}"
    );
}

/// Largest distance of a and b in errors.
fn offset(row: &Row, other: &Row) -> f64 {
    let one =
        |c: &str| (number(row, c) - number(other, c)).abs() / number(other, &format!("{c}_err"));
    one("a").max(one("b"))
}

#[test]
fn a_fault_of_one_spectrum_is_its_row() {
    let place = Place::new("");
    let clean = place.fit(&Arrays::good().bytes(), &[]);
    (0..SPECTRA).for_each(|n| is_fitted(&clean.row(n)));
    for (name, spoil, cause, words) in FAULTS {
        let mut arrays = Arrays::good();
        spoil(&mut arrays);
        let run = place.fit(&arrays.bytes(), &[]);
        others_are_equal(&run, &clean, name);
        let (row, before) = (run.row(BAD), clean.row(BAD));
        match (cause, name) {
            ("", "8") => assert!(
                row["dof"] == "0" && number(&row, "status") >= 0.0,
                "{row:?}"
            ),
            ("", "18" | "19") => assert!(offset(&row, &before) < 1e-6, "{row:?}\n{before:?}"),
            ("", _) => {
                is_fitted(&row);
                assert_eq!(number(&row, "dof"), number(&before, "dof") - 1.0, "{name}");
            }
            _ => {
                is_bad_input(&row, cause);
                run.says(&[&["spectra.npz", "row 3", "id 3", cause], words].concat());
                let strict = place.fit(&arrays.bytes(), &["--strict"]);
                strict.is_refused(&[&["spectra.npz", "row 3", "id 3", cause], words].concat());
                assert_eq!(place.fit(&arrays.bytes(), &["--quiet"]).message, "");
            }
        }
    }
}

#[test]
fn a_sigma_that_is_none_is_named() {
    let place = Place::new("");
    let clean = place.fit(&Arrays::good().with_sigma().bytes(), &[]);
    for (sigma, words) in [
        (-0.25, "(sigma -0.25)"),
        (0.0, "(sigma 0)"),
        (f64::NAN, "(sigma NaN)"),
    ] {
        let mut arrays = Arrays::good().with_sigma();
        arrays.weight[at(9)] = sigma;
        let run = place.fit(&arrays.bytes(), &[]);
        others_are_equal(&run, &clean, words);
        is_bad_input(&run.row(BAD), "bad_weight");
        run.says(&["pixel 9", words]);
    }
    let mut arrays = Arrays::good().with_sigma();
    arrays.weight[at(9)] = f64::INFINITY;
    is_fitted(&place.fit(&arrays.bytes(), &[]).row(BAD));
}

#[test]
fn a_fault_of_ones_own_grid_is_a_row() {
    let place = Place::new("");
    let good = Arrays::good().with_own_grids();
    let clean = place.fit(&good.bytes(), &[]);
    let cases: [(&str, Spoil, &str, &[&str]); 4] = [
        (
            "25 unsorted",
            |a| a.wavelength.swap(at(10), at(11)),
            "bad_wavelength",
            &["arm b", "wavelength 11", "increase"],
        ),
        (
            "25 NaN",
            |a| a.wavelength[at(5)] = f64::NAN,
            "bad_wavelength",
            &["arm b", "wavelength 5", "NaN"],
        ),
        (
            "25 repeated",
            |a| a.wavelength[at(5)] = a.wavelength[at(4)],
            "bad_wavelength",
            &["wavelength 5"],
        ),
        (
            "26",
            |a| {
                a.wavelength[at(0)..at(PIXELS)]
                    .iter_mut()
                    .for_each(|w| *w += 1000.0)
            },
            "no_overlap",
            &["arm b", "the data cover 6000.00", "the model 5000.00"],
        ),
    ];
    for (name, spoil, cause, words) in cases {
        let mut arrays = good.clone();
        spoil(&mut arrays);
        let run = place.fit(&arrays.bytes(), &[]);
        others_are_equal(&run, &clean, name);
        is_bad_input(&run.row(BAD), cause);
        run.says(&[&["row 3", cause], words].concat());
        place.fit(&arrays.bytes(), &["--strict"]).is_refused(words);
    }
}

#[test]
fn five_faults_are_told_and_the_others_counted() {
    let mut arrays = Arrays::good();
    arrays.flux.extend_from_within(..);
    arrays.weight.extend_from_within(..);
    arrays.mask.extend_from_within(..);
    (0..7).for_each(|n| arrays.weight[n * PIXELS] = -1.0);
    let run = Place::new("").fit(&arrays.bytes(), &[]);
    assert_eq!(run.message.matches("pixel 0").count(), 5, "{}", run.message);
    run.says(&["… and 2 more", "7 bad_weight"]);
}

#[test]
fn masks_of_the_model_are_named() {
    // 6: not a lack of overlap
    let masked = Place::new("[spectra]\nmask = [[1000, 9000]]\n").fit(&Arrays::good().bytes(), &[]);
    is_bad_input(&masked.row(0), "no_data");
    // and a run without a single fit has an exit code of its own, with a table all the same
    assert_eq!(masked.code, Some(3), "{}", masked.message);
    masked.says(&[
        "the model's masks cover all",
        "no fit converged (5 no_data): out.csv has a row for every spectrum",
    ]);
}
