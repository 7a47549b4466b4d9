//! Tests of a GPU that is lost, short of memory, slow or wrong at the k-th call, for every k until a run meets no
//! fault. There is no panic and no hang. The rows are those that the device computes without faults, or the error is
//! clear; with a fallback to the CPU, the rows are the CPU's.
#![cfg(feature = "gpu")]

mod work;

use popfit::low_level::Journal;
use popfit::low_level::gpu::{Fault, Faults};
use popfit::low_level::{DeviceRows, Schema, TableWriter};
use popfit::spectra::{SpectraReader, Wavelength};
use popfit::{
    Continuum, Device, Error, FitTable, LevenbergMarquardt, Metadata, NelderMead, Result, Solver,
    Spectra, SpectralFitter, Summary,
};
use popfit_testing::fits::{fitter, same_bits};
use popfit_testing::tiny::{self, linear, spectra, wave};
use work::{
    FitFunction, FitRecord, are_identical, fit_columns_of_curves, fit_curves,
    fit_curves_by_simplices, fit_curves_unpolished, fit_refilled_population, fit_spectra,
    fit_spectra_by_both_solvers, fit_spectra_by_simplices, fit_wgsl_curves,
    make_fitter_and_spectra, open_gpu, scan_velocities, scan_velocities_refitted,
};

/// Upper limit of the number of calls of a run of this size, before which a sweep ends.
const MAX_CALLS: u64 = 200;
/// Number of last calls, which read results back, and none of which a sweep leaves out.
const LAST_CALLS: u64 = 4;

/// Returns whether an error is the one with which a lasting fault must end.
fn is_clear(fault: Fault, error: &Error) -> bool {
    match fault {
        Fault::Lost | Fault::Stall | Fault::Crash => matches!(error, Error::DeviceLost { .. }),
        Fault::OutOfMemory => matches!(error, Error::OutOfMemory { .. }),
        Fault::Mapping => matches!(error, Error::Device { .. }),
        Fault::Zeros | Fault::Garbage | Fault::Wrong | Fault::Early => {
            matches!(error, Error::DeviceUntrusted { .. })
        }
    }
}

/// Kinds of runs: whether a fault lasts, and whether the run may fall back to the CPU.
const RUN_KINDS: [(bool, bool); 3] = [(false, false), (true, true), (true, false)];

/// Injects the fault at the k-th call, or at all from the k-th on, for every k, or for every `step`-th and the last.
/// The rows must be the device's, or the CPU's after a fallback, bit by bit.
fn sweep_calls(fault: Fault, named_fit: (&str, FitFunction), step: usize) {
    sweep_calls_with(fault, named_fit, step, are_identical);
}

/// Sweeps the calls as [`sweep_calls`] does, for rows that need only be `alike`.
fn sweep_calls_with(
    fault: Fault,
    (name, fit): (&str, FitFunction),
    step: usize,
    alike: fn(&[FitRecord], &[FitRecord]) -> bool,
) {
    let Some(gpu) = open_gpu() else { return };
    let reference = fit(&gpu.clone().into(), false).unwrap();
    let cpu = fit(&Device::cpu(), false).unwrap();
    // 1. A run without a fault counts the calls. It also compiles the kernels, as a device that works or was reopened
    //    has them.
    let faults = Faults::new(fault, u64::MAX, false);
    let gpu = gpu.with_faults(faults.clone()).unwrap();
    fit(&gpu.clone().into(), false).unwrap();
    let n_calls = faults.calls();
    // 2. Each run meets the fault at another call.
    for (lasting, fallback) in RUN_KINDS.into_iter().take(if step == 1 { 3 } else { 2 }) {
        let mut n_errors = 0;
        let mut n_fallbacks = 0;
        for k in (1..).filter(|k| {
            k % step as u64 == 1 % step as u64
                || (n_calls.saturating_sub(LAST_CALLS)..=n_calls + 1).contains(k)
        }) {
            let case =
                || format!("{name}: {fault:?}, call {k}, lasting: {lasting}, fallback: {fallback}");
            assert!(k < MAX_CALLS, "{}", case());
            faults.arm(u64::MAX, false);
            gpu.revive().unwrap();
            faults.arm(k, lasting);
            match fit(&gpu.clone().into(), fallback) {
                Ok(rows) if fallback && are_identical(&rows, &cpu) => n_fallbacks += 1,
                Ok(rows) if alike(&rows, &reference) => {}
                Ok(rows) => panic!("{}: other rows: {rows:?}", case()),
                // A fault that does not last is cured by reopening the device.
                Err(error) if lasting && !fallback && is_clear(fault, &error) => n_errors += 1,
                Err(error) => panic!("{}: {error}", case()),
            }
            if faults.calls() < k {
                println!(
                    "{}: {n_errors} errors, {n_fallbacks} runs ended by the CPU",
                    case()
                );
                break;
            }
        }
        // 3. A lasting fault ends with an error or a fallback; another leaves no trace.
        assert_eq!(
            (n_errors > 0, n_fallbacks > 0),
            (lasting && !fallback, lasting && fallback),
            "{name}: {fault:?}"
        );
    }
}

#[test]
fn a_lost_device_is_reopened_or_reported() {
    sweep_calls(Fault::Lost, ("lm", fit_spectra), 1);
    sweep_calls(Fault::Lost, ("curves", fit_curves), 4);
    sweep_calls(Fault::Lost, ("columns", fit_columns_of_curves), 4);
}

#[test]
fn a_device_short_of_memory_is_reopened_or_reported() {
    sweep_calls(Fault::OutOfMemory, ("lm", fit_spectra), 1);
    sweep_calls(Fault::OutOfMemory, ("curves", fit_curves), 4);
    sweep_calls(Fault::OutOfMemory, ("columns", fit_columns_of_curves), 4);
}

#[test]
fn a_run_short_of_memory_halves_its_starts_in_flight() {
    let Some(gpu) = open_gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (reference, _) = run_with_journal(&gpu.clone().into(), &folder.path().join("whole"));
    let mut n_halved = 0;
    for k in (40..120).step_by(9) {
        let device = gpu
            .clone()
            .with_faults(Faults::new(Fault::OutOfMemory, k, false))
            .unwrap()
            .into();
        let (table, summary) = run_with_journal(&device, &folder.path().join(k.to_string()));
        for (row, expected) in table.to_rows().into_iter().zip(reference.to_rows()) {
            same_bits(row, expected, &format!("call {k}"));
        }
        n_halved += usize::from(
            summary
                .failures
                .iter()
                .any(|failure| failure.contains("starts at once")),
        );
    }
    assert!(n_halved > 0, "no submission ran out of memory");
}

#[test]
fn a_buffer_that_cannot_be_mapped_is_reported() {
    sweep_calls(Fault::Mapping, ("lm", fit_spectra), 1);
}

#[test]
fn results_of_zeros_are_not_trusted() {
    sweep_calls(Fault::Zeros, ("lm", fit_spectra), 1);
    sweep_calls(Fault::Zeros, ("refilled", fit_refilled_population), 3);
    sweep_calls(Fault::Zeros, ("simplex", fit_spectra_by_simplices), 6);
    sweep_calls(Fault::Zeros, ("curves", fit_curves), 3);
    sweep_calls(Fault::Zeros, ("columns", fit_columns_of_curves), 1);
}

#[test]
fn results_of_nan_are_not_trusted() {
    sweep_calls(Fault::Garbage, ("lm", fit_spectra), 1);
    sweep_calls(Fault::Garbage, ("curves", fit_curves), 3);
    sweep_calls(Fault::Garbage, ("columns", fit_columns_of_curves), 1);
}

#[test]
fn results_of_spectra_that_are_1_percent_off_are_not_trusted() {
    sweep_calls(Fault::Wrong, ("lm", fit_spectra), 1);
    sweep_calls(Fault::Wrong, ("refilled", fit_refilled_population), 8);
    sweep_calls(Fault::Wrong, ("simplex", fit_spectra_by_simplices), 6);
    sweep_calls(Fault::Wrong, ("scan", scan_velocities), 1);
    sweep_calls(Fault::Wrong, ("refitted scan", scan_velocities_refitted), 2);
}

#[test]
fn results_of_curves_that_are_1_percent_off_are_not_trusted() {
    sweep_calls(Fault::Wrong, ("curves", fit_curves), 1);
    sweep_calls(Fault::Wrong, ("simplices", fit_curves_by_simplices), 12);
    sweep_calls(Fault::Wrong, ("columns", fit_columns_of_curves), 1);
}

/// The fault is not detected, but changes nothing: the host continues the fits of curves by Levenberg–Marquardt in f64,
/// from the points at which the device has ended them.
#[test]
fn curves_that_end_early_are_polished_by_the_host() {
    let Some(gpu) = open_gpu() else { return };
    let early = Device::from(gpu.with_faults(Faults::new(Fault::Early, 1, true)).unwrap());
    let fit_on_cpu = |fit: FitFunction| fit(&Device::cpu(), false).unwrap();
    let distance_unpolished = largest_distance(
        &fit_curves_unpolished(&early, false).unwrap(),
        &fit_on_cpu(fit_curves),
        1,
    );
    assert!(
        distance_unpolished > 0.1,
        "the fault ends fits at their ends: {distance_unpolished}"
    );
    let distances = [
        largest_distance(
            &fit_curves(&early, false).unwrap(),
            &fit_on_cpu(fit_curves),
            1,
        ),
        largest_distance(
            &fit_columns_of_curves(&early, false).unwrap(),
            &fit_on_cpu(fit_columns_of_curves),
            9,
        ),
    ];
    println!(
        "{distance_unpolished:.3} errors from the minimum as left, {:.1e} and {:.1e} as told",
        distances[0], distances[1]
    );
    assert!(distances[0] < 1e-6 && distances[1] < 1e-3, "{distances:?}");
}

/// Returns the largest difference of two parameters between fits, in units of the errors of the CPU's. Each record has
/// so many curves of two parameters.
fn largest_distance(fits: &[FitRecord], cpu: &[FitRecord], curves: usize) -> f64 {
    let mut largest: f64 = 0.0;
    for (FitRecord(_, numbers), FitRecord(_, cpu_numbers)) in fits.iter().zip(cpu) {
        let parameters = &numbers[..2 * curves];
        let (cpu_parameters, cpu_errors) = cpu_numbers[..4 * curves].split_at(2 * curves);
        for ((x, cpu_x), error) in parameters.iter().zip(cpu_parameters).zip(cpu_errors) {
            largest = largest.max((x - cpu_x).abs() / error);
        }
    }
    largest
}

/// The CPU continues some of the fits, and detects that the device ended them early.
#[test]
fn spectra_that_end_early_are_not_trusted() {
    let Some(gpu) = open_gpu() else { return };
    let early = Device::from(gpu.with_faults(Faults::new(Fault::Early, 1, true)).unwrap());
    for fit in [fit_spectra, fit_refilled_population] {
        let spectra = fit(&early, false);
        assert!(
            matches!(&spectra, Err(Error::DeviceUntrusted { .. })),
            "{spectra:?}"
        );
    }
}

/// Loose tolerances, few spectra, and noise of any size are no faults of a device.
#[test]
fn loose_tolerances_and_any_noise_are_trusted() {
    let Some(gpu) = open_gpu() else { return };
    let lm = LevenbergMarquardt::default();
    let simplex = NelderMead::default();
    let solvers: [Solver; 6] = [
        lm.into(),
        lm.ftol(1e-3).into(),
        lm.xtol(1e-2).gtol(0.1).into(),
        simplex.fatol(1.0).into(),
        simplex.linearise(false).into(),
        Solver::LevenbergMarquardtThenNelderMead(lm.ftol(1e-2), simplex.fatol(0.1)),
    ];
    let emulator = linear(&["a", "b"], wave);
    let labels: Vec<f64> = (0..24).map(|k| 5.0 * (f64::from(k) * 0.7).sin()).collect();
    for noise in [1e-4, 0.01, 1.0] {
        let spectra = spectra(&emulator, &labels, noise);
        for marginalise in [false, true] {
            let builder = tiny::builder(emulator.clone(), 0.5).continuum(Continuum::chebyshev(3));
            let model = builder.marginalise(marginalise).build().unwrap();
            for (solver, count) in solvers
                .iter()
                .flat_map(|solver| [1, 2, 4, 12].map(|count| (*solver, count)))
            {
                let fitter = SpectralFitter::new(model.clone(), gpu.clone().into())
                    .solver(solver)
                    .cpu_fallback(false);
                let result = fitter.fit(&spectra.slice(0..count));
                assert!(
                    result.is_ok(),
                    "{solver:?}, {count} spectra, noise {noise}, {marginalise}: {result:?}"
                );
            }
        }
    }
}

/// Results that the host cannot compute are checked by a second evaluation on the device.
#[test]
fn curves_of_wgsl_alone_that_are_1_percent_off_are_not_trusted() {
    let Some(gpu) = open_gpu() else { return };
    for simplex in [false, true] {
        let reference = fit_wgsl_curves(&gpu.clone().into(), simplex).unwrap();
        let faults = Faults::new(Fault::Wrong, u64::MAX, false);
        let gpu = gpu.clone().with_faults(faults.clone()).unwrap();
        fit_wgsl_curves(&gpu.clone().into(), simplex).unwrap();
        let calls = faults.calls();
        let mut n_repeated = 0;
        for k in (1..=calls).filter(|k| calls < 20 || k % 8 == 1 || k + 2 * LAST_CALLS > calls) {
            faults.arm(k, false);
            let fits = fit_wgsl_curves(&gpu.clone().into(), simplex).unwrap();
            assert!(are_identical(&fits, &reference), "call {k}: {fits:?}");
            n_repeated += u64::from(faults.calls() > calls);
        }
        assert!(n_repeated > 0, "no wrong readback of {calls} was seen");
    }
}

/// Simplices that begin at slightly wrong starts find the same minimum, with other bits.
#[test]
fn simplices_from_starts_1_percent_off_end_at_the_same_minimum() {
    let agree = |a: &[FitRecord], b: &[FitRecord]| {
        let fits_agree = |(FitRecord(_, a), FitRecord(_, b)): (&FitRecord, &FitRecord)| {
            // The numbers are χ², the objective, two parameters, and their errors.
            let parameter_agrees = |p: usize| {
                (a[p] - b[p]).abs() < 0.05 * b[p + 2] && (a[p + 2] / b[p + 2] - 1.0).abs() < 1e-3
            };
            (0..2).all(|k| (a[k] / b[k] - 1.0).abs() < 1e-3)
                && parameter_agrees(2)
                && parameter_agrees(3)
        };
        a.iter().zip(b).all(fits_agree)
    };
    sweep_calls_with(
        Fault::Wrong,
        ("lm, then simplices", fit_spectra_by_both_solvers),
        4,
        agree,
    );
}

/// The spot checks on the CPU use the grid of each spectrum.
#[test]
fn spectra_with_grids_of_their_own_are_trusted() {
    let Some(gpu) = open_gpu() else { return };
    let emulator = linear(&["a", "b"], wave);
    let labels: Vec<f64> = (0..2 * work::SPECTRA)
        .map(|k| 5.0 * (k as f64 * 0.7).sin())
        .collect();
    let mut spectra = spectra(&emulator, &labels, 0.01);
    let arm = &mut spectra.arms[0];
    // The template covers 63 pixels, and each spectrum has one more.
    let grid = |k: usize| {
        (0..tiny::PIXELS).map(move |j| 5000.0 * ((0.04 * k as f64 + 0.9 * j as f64) * 1e-4).exp())
    };
    arm.wavelength = Wavelength::Own((0..work::SPECTRA).flat_map(grid).collect());
    let fit = |device: &Device| {
        fitter(tiny::model(emulator.clone(), 0.5), device)
            .cpu_fallback(false)
            .fit(&spectra)
            .unwrap()
    };
    let gpu_rows = fit(&gpu.into()).to_rows();
    let cpu_rows = fit(&Device::cpu()).to_rows();
    for (row, cpu) in gpu_rows.into_iter().zip(cpu_rows) {
        assert!(
            row.status.is_success() && (row.chi2 / cpu.chi2 - 1.0).abs() < 1e-3,
            "{row:?}\n{cpu:?}"
        );
    }
}

#[test]
fn a_device_that_does_not_answer_is_lost() {
    sweep_calls(Fault::Stall, ("lm", fit_spectra), 1);
    sweep_calls(Fault::Stall, ("columns", fit_columns_of_curves), 1);
}

#[test]
fn a_device_that_crashes_while_the_host_waits_is_lost() {
    sweep_calls(Fault::Crash, ("lm", fit_spectra), 1);
}

/// Reader that yields batches of four spectra.
struct BatchesOfFour {
    spectra: Spectra<'static>,
    next: usize,
}

impl SpectraReader for BatchesOfFour {
    fn len(&self) -> u64 {
        self.spectra.len() as u64
    }

    fn next_batch(&mut self, _: usize) -> Result<Option<Spectra<'static>>> {
        let rows = self.next..(self.next + 4).min(self.spectra.len());
        self.next = rows.end;
        Ok(Some(self.spectra.slice(rows)).filter(|batch| !batch.is_empty()))
    }

    fn empty(&self) -> Spectra<'static> {
        self.spectra.slice(0..0)
    }
}

/// Fits six batches with a journal, and returns the table and the summary of the run.
fn run_with_journal(device: &Device, journal: &std::path::Path) -> (FitTable, Summary) {
    let (fitter, spectra) = make_fitter_and_spectra(device, 24);
    // With two starts, half of the capacity that a batch of four needs is still enough for a spectrum.
    let fitter = fitter.cpu_fallback(true).batch_size(4).starts(2);
    let mut table = fitter.table();
    let mut journal = Journal::open(journal, "key", true).unwrap();
    let mut source = BatchesOfFour { spectra, next: 0 };
    let summary = fitter
        .fit_journaled(&mut source, &mut table, &mut journal)
        .unwrap();
    (table, summary)
}

/// Returns the name of the device of each row.
fn devices_of_rows(summary: &Summary) -> Vec<String> {
    summary
        .by_rows
        .iter()
        .flat_map(|run| std::iter::repeat_n(run.device.clone(), run.rows as usize))
        .collect()
}

#[test]
fn the_device_of_each_row_is_reported_and_kept_in_the_journal() {
    let Some(gpu) = open_gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let run_on =
        |name: &str, device: &Device| run_with_journal(device, &folder.path().join(name)).0;
    let on_gpu = run_on("gpu", &gpu.clone().into());
    let on_cpu = run_on("cpu", &Device::cpu());
    let mut n_mixed = 0;
    let lasting_faults = [1, 50, 60, 65, 70, 75, 80, 85].map(|call| (call, true));
    for (n, lasting) in lasting_faults.into_iter().chain([(40, false), (70, false)]) {
        let target = folder.path().join(format!("{n} {lasting}"));
        let faults = Faults::new(Fault::Lost, n, lasting);
        let device = Device::from(gpu.clone().with_faults(faults).unwrap());
        let (table, summary) = run_with_journal(&device, &target);
        let devices = devices_of_rows(&summary);
        assert_eq!((table.len(), devices.len(), summary.fits), (24, 24, 24));
        for (k, (row, row_device)) in table.to_rows().into_iter().zip(&devices).enumerate() {
            let reference = if *row_device == device.maker() {
                &on_gpu
            } else {
                &on_cpu
            };
            same_bits(
                &row,
                reference.row(k),
                &format!("row {k}, by {row_device}, lost at call {n}"),
            );
        }
        let n_by_cpu = devices
            .iter()
            .filter(|name| **name == Device::cpu().maker())
            .count();
        assert!(lasting || n_by_cpu == 0, "made anew: {:?}", summary.by_rows);
        assert!(n_by_cpu == 0 || !summary.failures.is_empty());
        n_mixed += usize::from(n_by_cpu > 0 && n_by_cpu < 24);
        println!(
            "lost at call {n}, lasting: {lasting}: {:?}, {:?}",
            summary.by_device, summary.by_rows
        );
        // A second run, on a device that works, reads all rows from the journal.
        let (resumed_table, resumed_summary) =
            run_with_journal(&Device::from(gpu.clone()), &target);
        assert_eq!(resumed_summary.by_rows, summary.by_rows);
        resumed_table
            .to_rows()
            .into_iter()
            .zip(table.to_rows())
            .for_each(|(a, b)| same_bits(a, b, "resumed"));
    }
    assert!(n_mixed > 0, "no run was lost between two batches");
}

#[test]
fn tables_store_the_device_of_each_row() {
    let folder = tempfile::tempdir().unwrap();
    let (fitter, spectra) = make_fitter_and_spectra(&Device::cpu(), 3);
    let table = fitter.fit(&spectra).unwrap();
    for extension in ["parquet", "fits"] {
        let path = folder.path().join(format!("out.{extension}"));
        let schema = Schema::new(table.names().to_vec());
        let mut writer = TableWriter::create(&path, &schema, &Metadata::default()).unwrap();
        writer.append(&table.to_rows()).unwrap();
        let device_rows = |device: &str, rows: u64| DeviceRows {
            device: device.into(),
            rows,
        };
        let by_rows = [device_rows("gpu:X", 2), device_rows("cpu", 1)];
        writer.finish_run(&by_rows, None).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let contains = |text: &str| {
            bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes())
        };
        assert!(
            contains("popfit.rows") && contains("0-1 gpu:X") && contains("2-2 cpu"),
            "{extension}"
        );
        assert_eq!(FitTable::read(&path).unwrap().0.len(), 3);
    }
}
