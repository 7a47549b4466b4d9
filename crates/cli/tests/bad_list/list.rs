//! The list: number, case, and what shows that popfit meets it.

use popfit::{FitRow, Flags, Status};

use crate::damage::{
    alike, at, file, grid, keep, network, offset, own, own_grid, refused, scale, with_column,
};
use crate::kinds::{Fault, Refused, Seen, Shown, Whole};
use crate::setup::{Arrays, SPECTRA, TERMS};
use popfit_testing::tiny::PIXELS;

use Shown::Test;

const fn fault(spoil: fn(&mut Arrays, usize), expect: fn(&Seen) -> bool) -> Shown {
    fault_of("", Arrays::good, spoil, expect)
}

const fn fault_of(
    model: &'static str,
    sound: fn() -> Arrays,
    spoil: fn(&mut Arrays, usize),
    expect: fn(&Seen) -> bool,
) -> Shown {
    Shown::Fault(Fault {
        model,
        sound,
        spoil,
        expect,
    })
}

const fn model(
    model: &'static str,
    network: fn() -> Vec<u8>,
    expect: fn(&[FitRow], &[FitRow]) -> bool,
) -> Shown {
    Shown::Whole(Whole {
        model,
        network,
        arrays: Arrays::good,
        expect,
    })
}

const fn whole(arrays: fn() -> Arrays, expect: fn(&[FitRow], &[FitRow]) -> bool) -> Shown {
    Shown::Whole(Whole {
        model: "",
        network: network::two_waves,
        arrays,
        expect,
    })
}

const fn refusal(
    model: &'static str,
    file: fn() -> Vec<u8>,
    words: &'static [&'static str],
) -> Shown {
    Shown::Refused(Refused { model, file, words })
}

/// One pixel less than before, and fitted.
fn lost_a_pixel(seen: &Seen) -> bool {
    seen.row.status.is_success() && seen.row.dof == seen.before().dof - 1
}

const START: &str = "[labels.a]\nstart = { column = \"A0\" }\n";
const BOUNDS: &str = "[labels.a]\nbounds = [{ column = \"A0\" }, 5.0]\n";
const MASKING: &str = "[spectra]\nnonfinite = \"mask\"\n";
const SIMPLEX: &str = "[solver]\nkind = \"nelder-mead\"\n";

/// Every row of `bad_inputs.md`.
pub const LIST: [(u8, &str, &[Shown]); 37] = [
    (
        1,
        "NaN or infinite flux",
        &[
            fault(
                |a, n| a.flux[at(n, 7)] = f64::NAN,
                |s| refused(s.row, "non_finite_input"),
            ),
            fault(
                |a, n| a.flux[at(n, 0)] = f64::INFINITY,
                |s| refused(s.row, "non_finite_input"),
            ),
            fault(
                |a, n| a.flux[at(n, 63)] = f64::NEG_INFINITY,
                |s| refused(s.row, "non_finite_input"),
            ),
            fault_of(
                MASKING,
                Arrays::good,
                |a, n| a.flux[at(n, 7)] = f64::NAN,
                |s| lost_a_pixel(s) && s.row.flags.contains(Flags::NONFINITE_MASKED),
            ),
        ],
    ),
    (
        2,
        "NaN or infinite flux of ivar 0",
        &[
            fault(
                |a, n| (a.flux[at(n, 7)], a.weight[at(n, 7)]) = (f64::NAN, 0.0),
                lost_a_pixel,
            ),
            fault(
                |a, n| (a.flux[at(n, 7)], a.weight[at(n, 7)]) = (f64::INFINITY, 0.0),
                lost_a_pixel,
            ),
            Test(
                "tests/input/bad_inputs",
                "masked_values_do_not_change_the_fit",
            ),
        ],
    ),
    (
        3,
        "ivar 0",
        &[
            fault(|a, n| a.weight[at(n, 7)] = 0.0, lost_a_pixel),
            fault(|a, n| a.mask[at(n, 7)] = true, lost_a_pixel),
        ],
    ),
    (
        4,
        "negative ivar",
        &[fault(
            |a, n| a.weight[at(n, 7)] = -4.0,
            |s| refused(s.row, "bad_weight"),
        )],
    ),
    (
        5,
        "NaN or infinite ivar",
        &[
            fault(
                |a, n| a.weight[at(n, 63)] = f64::NAN,
                |s| refused(s.row, "bad_weight"),
            ),
            fault(
                |a, n| a.weight[at(n, 7)] = f64::INFINITY,
                |s| refused(s.row, "bad_weight"),
            ),
        ],
    ),
    (
        6,
        "all pixels masked",
        &[
            fault(
                |a, n| a.mask[own(n)].fill(true),
                |s| refused(s.row, "no_data"),
            ),
            fault(
                |a, n| a.weight[own(n)].fill(0.0),
                |s| refused(s.row, "no_data"),
            ),
        ],
    ),
    (
        7,
        "fewer pixels than parameters",
        &[
            fault(
                |a, n| keep(a, n, TERMS + 1),
                |s| refused(s.row, "underdetermined"),
            ),
            fault_of(
                SIMPLEX,
                Arrays::good,
                |a, n| keep(a, n, TERMS + 1),
                |s| refused(s.row, "underdetermined"),
            ),
        ],
    ),
    (
        8,
        "as many pixels as parameters",
        &[fault(
            |a, n| keep(a, n, TERMS + 2),
            |s| s.row.dof == 0 && s.row.status.code() >= 0 && s.row.chi2.is_finite(),
        )],
    ),
    (
        9,
        "start outside bounds",
        &[
            fault_of(
                START,
                with_column,
                |a, n| a.columns[0].1[n] = 11.0,
                |s| refused(s.row, "start_out_of_bounds"),
            ),
            refusal(
                "[labels.a]\nstart = 11.0\n",
                file::sound,
                &["a starts at 11, outside its bounds"],
            ),
            Test(
                "tests/input/bad_inputs",
                "starts_outside_their_bounds_are_refused_or_clipped_per_spectrum",
            ), // and clip_starts
        ],
    ),
    (
        10,
        "NaN start",
        &[
            fault_of(
                START,
                with_column,
                |a, n| a.columns[0].1[n] = f64::NAN,
                |s| s.row.status.is_success(),
            ),
            fault_of(
                START,
                with_column,
                |a, n| a.columns[0].1[n] = f64::INFINITY,
                |s| refused(s.row, "bad_start"),
            ),
            refusal(
                "[labels.a]\nstart = nan\n",
                file::sound,
                &["labels.a.start"],
            ),
        ],
    ),
    (
        11,
        "lower above upper, NaN bound",
        &[
            fault_of(
                BOUNDS,
                with_column,
                |a, n| a.columns[0].1[n] = 6.0,
                |s| refused(s.row, "bad_bounds"),
            ),
            fault_of(
                BOUNDS,
                with_column,
                |a, n| a.columns[0].1[n] = f64::NAN,
                |s| refused(s.row, "bad_bounds"),
            ),
            refusal(
                "[labels.a]\nbounds = [2.0, 1.0]\n",
                file::sound,
                &["is not an interval", "2 to 1"],
            ),
            refusal(
                "[labels.a]\nbounds = [nan, 1.0]\n",
                file::sound,
                &["is not an interval", "NaN"],
            ),
            refusal(
                "[velocity]\nrange = [nan, 1.0]\n",
                file::sound,
                &["is not an interval", "velocity.range"],
            ),
        ],
    ),
    (
        12,
        "equal bounds",
        &[model(
            "[labels.a]\nbounds = [1.0, 1.0]\n",
            network::two_waves,
            |rows, clean| {
                let held = |(row, free): (&FitRow, &FitRow)| {
                    (row.parameters[0], row.errors[0], row.at_bound) == (1.0, 0.0, 0)
                        && row.dof == free.dof + 1
                };
                rows.iter().zip(clean).all(held)
            },
        )],
    ),
    (
        13,
        "solution on a bound",
        &[model(
            "[labels.a]\nbounds = [5.0, 6.0]\n",
            network::two_waves,
            |rows, _| {
                let row = &rows[0];
                row.status.is_success()
                    && (row.parameters[0], row.at_bound) == (5.0, 1)
                    && row.errors[0].is_nan()
                    && row.errors[1] > 0.0
                    && row.flags.contains(Flags::AT_BOUND)
            },
        )],
    ),
    (
        14,
        "a label without effect",
        &[model("", network::idle, |rows, _| {
            let flagged =
                |row: &FitRow| row.status.is_success() && row.flags.contains(Flags::UNDETERMINED);
            rows.iter()
                .all(|row| flagged(row) && row.errors.contains(&f64::INFINITY))
        })],
    ),
    (
        15,
        "a degenerate pair",
        &[
            model("", network::pair, |rows, _| {
                let flagged = |row: &FitRow| {
                    row.status.is_success() && row.flags.contains(Flags::UNDETERMINED)
                };
                rows.iter()
                    .all(|row| flagged(row) && row.errors.iter().all(|e| e.is_infinite()))
            }),
            Test(
                "tests/input/bad_models",
                "degenerate_labels_are_flagged_and_the_others_have_errors",
            ),
        ],
    ),
    (
        16,
        "model not finite at the start",
        &[model(network::FAR, network::overflowing, |rows, _| {
            let named = |row: &FitRow| row.status_text == "non_finite_model_at_start";
            rows.iter()
                .all(|row| row.status == Status::NotFinite && named(row))
        })],
    ),
    (
        17,
        "model not finite elsewhere",
        &[
            model(network::NEAR, network::overflowing, |rows, _| {
                rows.iter()
                    .all(|row| row.chi2.is_finite() && row.parameters[0] < 4.2)
            }),
            Test(
                "tests/input/bad_models",
                "steps_to_points_where_the_model_is_not_finite_are_rejected",
            ),
        ],
    ),
    (
        18,
        "flux of 1e-17",
        &[
            fault(
                |a, n| scale(a, n, 1e-17),
                |s| offset(s.row, s.before()) < 1e-6,
            ),
            fault(
                |a, n| scale(a, n, 2f64.powi(-57)),
                |s| alike(s.row, s.before()),
            ),
        ],
    ),
    (
        19,
        "flux of 1e30 among others",
        &[
            fault(
                |a, n| scale(a, n, 1e30),
                |s| offset(s.row, s.before()) < 1e-6,
            ),
            fault(
                |a, n| scale(a, n, 1e-30),
                |s| offset(s.row, s.before()) < 1e-6,
            ),
            fault(
                |a, n| scale(a, n, 2f64.powi(100)),
                |s| alike(s.row, s.before()),
            ),
        ],
    ),
    (
        20,
        "duplicated spectra",
        &[
            fault(
                |a, n| a.flux.copy_within(own((n + 1) % SPECTRA), at(n, 0)),
                |s| alike(s.row, &s.clean[(s.bad + 1) % SPECTRA]),
            ),
            Test(
                "tests/spectra/determinism",
                "a_fit_has_the_same_bits_in_any_batch_and_order",
            ),
        ],
    ),
    (
        21,
        "no spectra",
        &[whole(
            || Arrays::good().only(0..0),
            |rows, _| rows.is_empty(),
        )],
    ),
    (
        22,
        "one spectrum",
        &[
            whole(
                || Arrays::good().only(2..3),
                |rows, clean| rows.len() == 1 && alike(&rows[0], &clean[2]),
            ),
            Test(
                "tests/spectra/determinism",
                "a_fit_has_the_same_bits_among_a_hundred_thousand",
            ),
        ],
    ),
    (
        23,
        "more than the device holds",
        &[
            Test(
                "tests/spectra/determinism",
                "a_fit_has_the_same_bits_with_any_memory",
            ),
            Test(
                "tests/input/bad_models",
                "populations_larger_than_a_dispatch_are_fitted",
            ),
            Test("tests/input/bad_models", "too_little_memory_is_an_error"),
            Test("crates/cli/tests/bad_list", "arguments_that_cannot_work"),
        ],
    ),
    (
        24,
        "arrays of different lengths",
        &[
            refusal(
                "",
                file::short_ivar,
                &["spectra.npz", "b_ivar has the shape (5, 63), flux (5, 64)"],
            ),
            refusal("", file::short_grid, &["b_wavelength has the shape (63,)"]),
            Test(
                "tests/input/bad_models",
                "arrays_of_different_lengths_are_errors",
            ),
        ],
    ),
    (
        25,
        "unsorted, repeated, NaN wavelengths",
        &[
            own_grid(
                |a, n| a.wavelength.swap(at(n, 10), at(n, 11)),
                |s| refused(s.row, "bad_wavelength"),
            ),
            own_grid(
                |a, n| a.wavelength[at(n, 5)] = a.wavelength[at(n, 4)],
                |s| refused(s.row, "bad_wavelength"),
            ),
            own_grid(
                |a, n| a.wavelength[at(n, 63)] = f64::NAN,
                |s| refused(s.row, "bad_wavelength"),
            ),
            refusal(
                "",
                || grid(|w| w.swap(10, 11)),
                &["wavelength 11 (counted from 0)", "b_wavelength"],
            ),
            refusal(
                "",
                || grid(|w| w[5] = w[4]),
                &["wavelength 5 (counted from 0)"],
            ),
            refusal(
                "",
                || grid(|w| w[5] = f64::NAN),
                &["wavelength 5 (counted from 0)", "NaN"],
            ),
        ],
    ),
    (
        26,
        "no overlap of model and data",
        &[
            own_grid(
                |a, n| a.wavelength[own(n)].iter_mut().for_each(|w| *w += 1000.0),
                |s| refused(s.row, "no_overlap"),
            ),
            refusal(
                "",
                || grid(|w| w.iter_mut().for_each(|w| *w += 1000.0)),
                &["share no wavelength", "6000.00", "5000.00"],
            ),
        ],
    ),
    (
        27,
        "truncated and corrupt files",
        &[
            refusal("", || file::cut(0), &["spectra.npz"]),
            refusal("", || file::cut(PIXELS * 20), &["spectra.npz"]),
            refusal("", || file::cut(file::sound().len() - 1), &["spectra.npz"]),
            refusal("", file::flipped, &["spectra.npz"]),
            Test(
                "tests/input/loaders",
                "truncated_files_are_errors_at_every_byte",
            ),
            Test(
                "tests/input/fits_files",
                "files_truncated_at_any_byte_are_errors_or_have_fewer_arms",
            ),
            Test("tests/fuzzed", "damaged_copies_cause_no_panic"),
        ],
    ),
    (
        28,
        "claims of headers",
        &[
            refusal(
                "",
                || file::claiming("<f8", "(1000000000000, 64)"),
                &["spectra.npz", "b_flux"],
            ),
            refusal(
                "",
                || file::claiming("<f8", "(-1, 64)"),
                &["spectra.npz", "b_flux"],
            ),
            refusal(
                "",
                || file::claiming("<f8", "(18446744073709551615, 2)"),
                &["spectra.npz", "b_flux"],
            ),
            refusal(
                "",
                || file::claiming("|O", "(1, 8)"),
                &["spectra.npz", "b_flux"],
            ),
            Test(
                "tests/input/loaders",
                "duplicate_and_overlapping_entries_are_errors",
            ),
            Test(
                "tests/input/fits_files",
                "sizes_in_headers_are_checked_before_memory_is_allocated",
            ),
            Test("tests/fuzzed", "greedy_files_stay_below_the_memory_limit"),
        ],
    ),
    (
        29,
        "zip bombs",
        &[
            refusal("", file::bomb, &["spectra.npz", "is it a zip bomb?"]),
            Test("tests/input/loaders", "zip_bombs_are_too_large"),
            Test("tests/input/fits_files", "gzip_bombs_are_too_large"),
        ],
    ),
    (
        30,
        "device lost",
        &[
            Test("tests/gpu_faults", "a_lost_device_is_reopened_or_reported"),
            Test("tests/gpu_faults", "a_device_that_does_not_answer_is_lost"),
        ],
    ),
    (
        31,
        "device returns garbage",
        &[
            Test("tests/gpu_faults", "results_of_zeros_are_not_trusted"),
            Test("tests/gpu_faults", "results_of_nan_are_not_trusted"),
            Test(
                "tests/gpu_faults",
                "results_of_spectra_that_are_1_percent_off_are_not_trusted",
            ),
        ],
    ),
    (
        32,
        "kill -9, then resume",
        &[Test(
            "crates/cli/tests/resume",
            "a_killed_run_ends_with_the_bytes_of_one_that_was_not",
        )],
    ),
    (
        33,
        "disk full",
        &[Test("tests/faults", "whatever_fails_nothing_is_lost")],
    ),
    (
        34,
        "no output folder",
        &[
            Test("crates/cli/tests/bad_list", "arguments_that_cannot_work"),
            Test(
                "tests/faults",
                "a_folder_that_cannot_be_written_costs_no_fit",
            ),
        ],
    ),
    (
        35,
        "two runs, one output",
        &[
            Test(
                "src/spectral/stream/journal/tests",
                "whole_batches_are_recalled_and_a_torn_one_is_dropped",
            ),
            Test(
                "crates/cli/tests/resume",
                "no_second_run_writes_what_one_is_writing",
            ),
        ],
    ),
    (
        36,
        "resume with other data",
        &[Test(
            "crates/cli/tests/resume",
            "what_is_not_its_own_is_refused",
        )],
    ),
    (
        37,
        "no such adapter",
        &[
            Test("tests/input/bad_models", "missing_devices_are_errors"),
            Test("crates/cli/tests/bad_list", "arguments_that_cannot_work"),
        ],
    ),
];
