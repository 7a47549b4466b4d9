//! A GPU that is lost, short of memory, slow or wrong at the k-th call, for every k until a run passes untouched: no
//! panic, no hang, and the rows that the device makes when nothing is wrong, or a clear error; with the CPU's help, the
//! CPU's rows.
#![cfg(feature = "gpu")]

mod work;

use popfit::low_level::gpu::{Fault, Faults};
use popfit::spectra::{SpectraReader, Wavelength};
use popfit::{
    Continuum, Control, Device, DeviceRows, Error, FitTable, Journal, LevenbergMarquardt, Metadata,
    NelderMead, Result, Schema, Solver, Spectra, SpectralFitter, Summary, TableWriter,
};
use popfit_testing::fits::{fitter, same_bits};
use popfit_testing::tiny::{self, linear, spectra, wave};
use work::{
    Fit, Work, both, columns, curves, gpu, lm, refilled, refitted_scan, same, scan, setup, simplex,
    simplices, unpolished, wgsl_curves,
};

/// Calls that a run of this size can make: a sweep ends before.
const MANY: u64 = 200;
/// The last ones bring results home: none of them is left out.
const LAST: u64 = 4;

/// The error that a lasting fault must end with.
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

/// Kinds of runs: whether a fault lasts, and whether the CPU helps.
const KINDS: [(bool, bool); 3] = [(false, false), (true, true), (true, false)];

/// The k-th call goes wrong, or all from the k-th on, for every k, or for every `step`-th and the last; the rows are
/// the device's, or the CPU's where that helps, bit by bit.
fn sweep(fault: Fault, what: (&str, Work), step: usize) {
    sweep_with(fault, what, step, same);
}

/// The same for rows that are to be `alike`.
fn sweep_with(
    fault: Fault,
    (name, work): (&str, Work),
    step: usize,
    alike: fn(&[Fit], &[Fit]) -> bool,
) {
    let Some(gpu) = gpu() else { return };
    let (reference, cpu) = (
        work(&gpu.clone().into(), false).unwrap(),
        work(&Device::cpu(), false).unwrap(),
    );
    // a device that is still good, or that was made anew on the way, has its kernels compiled
    let faults = Faults::new(fault, u64::MAX, false);
    let gpu = gpu.with_faults(faults.clone()).unwrap();
    work(&gpu.clone().into(), false).unwrap();
    let last = faults.calls();
    for (lasting, fallback) in KINDS.into_iter().take(if step == 1 { 3 } else { 2 }) {
        let (mut failed, mut helped) = (0, 0);
        for k in (1..).filter(|k| {
            k % step as u64 == 1 % step as u64 || (last.saturating_sub(LAST)..=last + 1).contains(k)
        }) {
            let what =
                || format!("{name}: {fault:?}, call {k}, lasting: {lasting}, fallback: {fallback}");
            assert!(k < MANY, "{}", what());
            faults.arm(u64::MAX, false);
            gpu.revive().unwrap();
            faults.arm(k, lasting);
            match work(&gpu.clone().into(), fallback) {
                Ok(rows) if fallback && same(&rows, &cpu) => helped += 1,
                Ok(rows) if alike(&rows, &reference) => {}
                Ok(rows) => panic!("{}: other rows: {rows:?}", what()),
                // once made anew it is as good as new
                Err(error) if lasting && !fallback && is_clear(fault, &error) => failed += 1,
                Err(error) => panic!("{}: {error}", what()),
            }
            if faults.calls() < k {
                println!(
                    "{}: {failed} errors, {helped} runs ended by the CPU",
                    what()
                );
                break;
            }
        }
        assert_eq!(
            (failed > 0, helped > 0),
            (lasting && !fallback, lasting && fallback),
            "{name}: {fault:?}"
        );
    }
}

#[test]
fn a_lost_device() {
    sweep(Fault::Lost, ("lm", lm), 1);
    sweep(Fault::Lost, ("curves", curves), 4);
    sweep(Fault::Lost, ("columns", columns), 4);
}

#[test]
fn too_little_memory() {
    sweep(Fault::OutOfMemory, ("lm", lm), 1);
    sweep(Fault::OutOfMemory, ("curves", curves), 4);
    sweep(Fault::OutOfMemory, ("columns", columns), 4);
}

#[test]
fn work_without_memory_is_done_with_half_as_many_at_once() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (reference, _) = stream(&gpu.clone().into(), &folder.path().join("whole"));
    let mut halved = 0;
    for k in (40..120).step_by(9) {
        let device = gpu
            .clone()
            .with_faults(Faults::new(Fault::OutOfMemory, k, false))
            .unwrap()
            .into();
        let (table, summary) = stream(&device, &folder.path().join(k.to_string()));
        for (row, expected) in table.to_rows().into_iter().zip(reference.to_rows()) {
            same_bits(row, expected, &format!("call {k}"));
        }
        halved += usize::from(
            summary
                .failures
                .iter()
                .any(|failure| failure.contains("starts at once")),
        );
    }
    assert!(halved > 0, "no submission ran out of memory");
}

#[test]
fn a_buffer_that_cannot_be_mapped() {
    sweep(Fault::Mapping, ("lm", lm), 1);
}

#[test]
fn zeros_in_place_of_results() {
    sweep(Fault::Zeros, ("lm", lm), 1);
    sweep(Fault::Zeros, ("refilled", refilled), 3);
    sweep(Fault::Zeros, ("simplex", simplex), 6);
    sweep(Fault::Zeros, ("curves", curves), 3);
    sweep(Fault::Zeros, ("columns", columns), 1);
}

#[test]
fn noise_in_place_of_results() {
    sweep(Fault::Garbage, ("lm", lm), 1);
    sweep(Fault::Garbage, ("curves", curves), 3);
    sweep(Fault::Garbage, ("columns", columns), 1);
}

#[test]
fn results_that_are_a_little_off() {
    sweep(Fault::Wrong, ("lm", lm), 1);
    sweep(Fault::Wrong, ("refilled", refilled), 8);
    sweep(Fault::Wrong, ("simplex", simplex), 6);
    sweep(Fault::Wrong, ("scan", scan), 1);
    sweep(Fault::Wrong, ("refitted scan", refitted_scan), 2);
}

#[test]
fn curves_that_are_a_little_off() {
    sweep(Fault::Wrong, ("curves", curves), 1);
    sweep(Fault::Wrong, ("simplices", simplices), 12);
    sweep(Fault::Wrong, ("columns", columns), 1);
}

/// Nobody notices, and nothing is lost: what Levenberg–Marquardt has found of curves the host carries on, in f64, from
/// where the device has left it.
#[test]
fn curves_that_end_early_are_ended_by_the_host() {
    let Some(gpu) = gpu() else { return };
    let early = Device::from(gpu.with_faults(Faults::new(Fault::Early, 1, true)).unwrap());
    // parameters, errors and χ² of each curve
    let split = |fits: &[Fit], curves: usize| -> Vec<[Vec<f64>; 2]> {
        let all = fits
            .iter()
            .map(|Fit(_, n)| [n[..2 * curves].to_vec(), n[2 * curves..4 * curves].to_vec()]);
        all.collect()
    };
    let distance = |found: &[Fit], cpu: &[Fit], curves: usize| {
        let one = |([x, _], [at, error]): (&[Vec<f64>; 2], &[Vec<f64>; 2])| {
            let each = x
                .iter()
                .zip(at)
                .zip(error)
                .map(|((x, at), error)| (x - at).abs() / error);
            each.fold(0.0, f64::max)
        };
        split(found, curves)
            .iter()
            .zip(&split(cpu, curves))
            .map(one)
            .fold(0.0, f64::max)
    };
    let cpu = |work: Work| work(&Device::cpu(), false).unwrap();
    let left = distance(&unpolished(&early, false).unwrap(), &cpu(curves), 1);
    assert!(left > 0.1, "the fault ends fits at their ends: {left}");
    let found = curves(&early, false).unwrap();
    let apart = [
        distance(&found, &cpu(curves), 1),
        distance(&columns(&early, false).unwrap(), &cpu(columns), 9),
    ];
    println!(
        "{left:.3} errors from the minimum as left, {:.1e} and {:.1e} as told",
        apart[0], apart[1]
    );
    assert!(apart[0] < 1e-6 && apart[1] < 1e-3, "{apart:?}");
}

/// The CPU continues some fits, and finds the device out.
#[test]
fn spectra_that_end_early_are_noticed() {
    let Some(gpu) = gpu() else { return };
    let early = Device::from(gpu.with_faults(Faults::new(Fault::Early, 1, true)).unwrap());
    for work in [lm, refilled] {
        let spectra = work(&early, false);
        assert!(
            matches!(&spectra, Err(Error::DeviceUntrusted { .. })),
            "{spectra:?}"
        );
    }
}

/// Loose tolerances, few spectra, and noise of any size are no fault of a device.
#[test]
fn what_a_user_asks_for_is_trusted() {
    let Some(gpu) = gpu() else { return };
    let (lm, simplex) = (LevenbergMarquardt::default(), NelderMead::default());
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
        let all = spectra(&emulator, &labels, noise);
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
                let found = fitter.fit(&all.slice(0..count));
                assert!(
                    found.is_ok(),
                    "{solver:?}, {count} spectra, noise {noise}, {marginalise}: {found:?}"
                );
            }
        }
    }
}

/// Results that no host can compute are checked by asking the device again.
#[test]
fn curves_of_wgsl_alone_that_are_a_little_off() {
    let Some(gpu) = gpu() else { return };
    for simplex in [false, true] {
        let reference = wgsl_curves(&gpu.clone().into(), simplex).unwrap();
        let faults = Faults::new(Fault::Wrong, u64::MAX, false);
        let gpu = gpu.clone().with_faults(faults.clone()).unwrap();
        wgsl_curves(&gpu.clone().into(), simplex).unwrap();
        let (calls, mut renewed) = (faults.calls(), 0);
        for k in (1..=calls).filter(|k| calls < 20 || k % 8 == 1 || k + 2 * LAST > calls) {
            faults.arm(k, false);
            let found = wgsl_curves(&gpu.clone().into(), simplex).unwrap();
            assert!(same(&found, &reference), "call {k}: {found:?}");
            renewed += u64::from(faults.calls() > calls);
        }
        assert!(renewed > 0, "no wrong readback of {calls} was seen");
    }
}

/// Simplices that begin a little off find the same minimum with other bits.
#[test]
fn starts_that_are_a_little_off() {
    let close = |a: &[Fit], b: &[Fit]| {
        let is = |(Fit(_, a), Fit(_, b)): (&Fit, &Fit)| {
            // χ², objective, two parameters, their errors
            let near = |p: usize| {
                (a[p] - b[p]).abs() < 0.05 * b[p + 2] && (a[p + 2] / b[p + 2] - 1.0).abs() < 1e-3
            };
            (0..2).all(|k| (a[k] / b[k] - 1.0).abs() < 1e-3) && near(2) && near(3)
        };
        a.iter().zip(b).all(is)
    };
    sweep_with(Fault::Wrong, ("lm, then simplices", both), 4, close);
}

/// The CPU computes some of them again, each on its own grid.
#[test]
fn spectra_with_grids_of_their_own_are_trusted() {
    let Some(gpu) = gpu() else { return };
    let (emulator, pixels) = (linear(&["a", "b"], wave), tiny::PIXELS);
    let labels: Vec<f64> = (0..2 * work::SPECTRA)
        .map(|k| 5.0 * (k as f64 * 0.7).sin())
        .collect();
    let mut all = spectra(&emulator, &labels, 0.01);
    let arm = &mut all.arms[0];
    // a pixel more for each, of 63 that the template covers
    let grid = |k: usize| {
        (0..pixels).map(move |j| 5000.0 * ((0.04 * k as f64 + 0.9 * j as f64) * 1e-4).exp())
    };
    arm.wavelength = Wavelength::Own((0..work::SPECTRA).flat_map(grid).collect());
    let fit = |device: &Device| {
        fitter(tiny::model(emulator.clone(), 0.5), device)
            .cpu_fallback(false)
            .fit(&all)
            .unwrap()
    };
    let (found, cpu) = (fit(&gpu.into()), fit(&Device::cpu()));
    for (row, cpu) in found.to_rows().into_iter().zip(cpu.to_rows()) {
        assert!(
            row.status.is_success() && (row.chi2 / cpu.chi2 - 1.0).abs() < 1e-3,
            "{row:?}\n{cpu:?}"
        );
    }
}

#[test]
fn a_device_that_does_not_answer() {
    sweep(Fault::Stall, ("lm", lm), 1);
    sweep(Fault::Stall, ("columns", columns), 1);
}

#[test]
fn a_device_that_is_lost_while_the_host_waits() {
    sweep(Fault::Crash, ("lm", lm), 1);
}

/// Yields batches of four.
struct Fours {
    all: Spectra<'static>,
    next: usize,
}

impl SpectraReader for Fours {
    fn len(&self) -> u64 {
        self.all.len() as u64
    }

    fn next_batch(&mut self, _: usize) -> Result<Option<Spectra<'static>>> {
        let rows = self.next..(self.next + 4).min(self.all.len());
        self.next = rows.end;
        Ok(Some(self.all.slice(rows)).filter(|batch| !batch.is_empty()))
    }

    fn empty(&self) -> Spectra<'static> {
        self.all.slice(0..0)
    }
}

/// A run of six batches, kept in a journal, and what it says of itself.
fn stream(device: &Device, journal: &std::path::Path) -> (FitTable, Summary) {
    let (fitter, all) = setup(device, 24);
    // two starts: half of what a batch of four needs is still enough for a spectrum
    let fitter = fitter.cpu_fallback(true).batch_size(4).starts(2);
    let mut table = fitter.table();
    let mut journal = Journal::open(journal, "key", true).unwrap();
    let mut source = Fours { all, next: 0 };
    let summary = fitter
        .fit_journaled(&mut source, &mut table, &Control::default(), &mut journal)
        .unwrap();
    (table, summary)
}

/// The device of every row.
fn makers(summary: &Summary) -> Vec<String> {
    summary
        .by_rows
        .iter()
        .flat_map(|one| std::iter::repeat_n(one.device.clone(), one.rows as usize))
        .collect()
}

#[test]
fn a_run_says_which_rows_the_cpu_has_made_and_a_resumed_one_knows() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let alone = |name: &str, device: &Device| stream(device, &folder.path().join(name)).0;
    let (on_gpu, on_cpu) = (
        alone("gpu", &gpu.clone().into()),
        alone("cpu", &Device::cpu()),
    );
    let mut mixed = 0;
    let lasting = [1, 50, 60, 65, 70, 75, 80, 85].map(|call| (call, true));
    for (n, lasting) in lasting.into_iter().chain([(40, false), (70, false)]) {
        let target = folder.path().join(format!("{n} {lasting}"));
        let faults = Faults::new(Fault::Lost, n, lasting);
        let device = Device::from(gpu.clone().with_faults(faults).unwrap());
        let (table, summary) = stream(&device, &target);
        let makers = makers(&summary);
        assert_eq!((table.len(), makers.len(), summary.fits), (24, 24, 24));
        for (k, (row, maker)) in table.to_rows().into_iter().zip(&makers).enumerate() {
            let reference = if *maker == device.name() {
                &on_gpu
            } else {
                &on_cpu
            };
            same_bits(
                &row,
                reference.row(k).to_row(),
                &format!("row {k}, by {maker}, lost at call {n}"),
            );
        }
        let by_cpu = makers
            .iter()
            .filter(|name| **name == Device::cpu().name())
            .count();
        assert!(lasting || by_cpu == 0, "made anew: {:?}", summary.by_rows);
        assert!(by_cpu == 0 || !summary.failures.is_empty());
        mixed += usize::from(by_cpu > 0 && by_cpu < 24);
        println!(
            "lost at call {n}, lasting: {lasting}: {:?}, {:?}",
            summary.by_device, summary.by_rows
        );
        // another run finds everything in the journal, on a device that works
        let (again, resumed) = stream(&Device::from(gpu.clone()), &target);
        assert_eq!(resumed.by_rows, summary.by_rows);
        again
            .to_rows()
            .into_iter()
            .zip(table.to_rows())
            .for_each(|(a, b)| same_bits(a, b, "resumed"));
    }
    assert!(mixed > 0, "no run was lost between two batches");
}

#[test]
fn tables_tell_who_made_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (fitter, all) = setup(&Device::cpu(), 3);
    let table = fitter.fit(&all).unwrap();
    for extension in ["parquet", "fits"] {
        let path = folder.path().join(format!("out.{extension}"));
        let schema = Schema::default().parameters(table.names().to_vec());
        let mut writer = TableWriter::create(&path, &schema, &Metadata::default()).unwrap();
        writer.append(&table.to_rows()).unwrap();
        let made = |device: &str, rows: u64| DeviceRows {
            device: device.into(),
            rows,
        };
        writer.made_by(&[made("gpu:X", 2), made("cpu", 1)]);
        writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let holds = |text: &str| {
            bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes())
        };
        assert!(
            holds("popfit.rows") && holds("0-1 gpu:X") && holds("2-2 cpu"),
            "{extension}"
        );
        assert_eq!(FitTable::read(&path).unwrap().0.len(), 3);
    }
}
