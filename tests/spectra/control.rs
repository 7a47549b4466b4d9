//! Progress and cancelling: there is one row per spectrum in any case, and finished rows keep their bits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use popfit::low_level::Journal;
use popfit::spectra::SpectraReader;
use popfit::{
    Control, Device, FitTable, LevenbergMarquardt, NelderMead, Solver, Spectra, SpectralFitter,
    Status, VelocityScan,
};
use popfit_testing::fits::{devices, fitter, least_memory, same_bits, sound};
use popfit_testing::tiny::{self, linear, spectra, wave};

/// Yields batches of at most `max_batch` spectra.
struct Slices {
    all: Spectra<'static>,
    max_batch: usize,
    next: usize,
}

impl SpectraReader for Slices {
    fn len(&self) -> u64 {
        self.all.len() as u64
    }

    fn next_batch(&mut self, max: usize) -> popfit::Result<Option<Spectra<'static>>> {
        let end = (self.next + max.min(self.max_batch)).min(self.all.len());
        let rows = self.next..end;
        self.next = end;
        Ok(Some(self.all.slice(rows)).filter(|batch| !batch.is_empty()))
    }

    fn empty(&self) -> Spectra<'static> {
        self.all.slice(0..0)
    }
}

const SPECTRA: usize = 64;
const BATCH: usize = 8;

fn setup(device: &Device) -> (SpectralFitter, Slices) {
    let emulator = linear(&["a", "b"], wave);
    let labels: Vec<f64> = (0..2 * SPECTRA)
        .map(|k| 5.0 * (k as f64 * 0.7).sin())
        .collect();
    let all = spectra(&emulator, &labels, 0.01);
    (
        fitter(tiny::model(emulator, 0.5), device).batch_size(BATCH),
        Slices {
            all,
            max_batch: BATCH,
            next: 0,
        },
    )
}

fn count_interrupted(table: &FitTable) -> usize {
    let is_interrupted = |row: &popfit::FitRow| row.status == Status::Interrupted;
    for row in table.to_rows().into_iter().filter(is_interrupted) {
        assert_eq!(
            (row.status.code(), row.status_text.as_str()),
            (-2, "interrupted")
        );
        assert!(row.parameters.iter().all(|x| x.is_finite()), "{row:?}");
    }
    table.to_rows().into_iter().filter(is_interrupted).count()
}

#[test]
fn progress_rises_to_the_number_of_spectra() {
    for device in devices() {
        let (fitter, mut source) = setup(&device);
        let reports = Arc::new(Mutex::new(Vec::new()));
        let log = reports.clone();
        let progress = move |done, total| log.lock().unwrap().push((done, total));
        let control = Control {
            progress: Some(Arc::new(progress)),
            ..Control::default()
        };
        fitter
            .clone()
            .control(control.clone())
            .fit_stream(&mut source, &mut fitter.table())
            .unwrap();
        let reports = reports.lock().unwrap();
        assert!(
            reports.is_sorted() && reports.iter().all(|(_, total)| *total == SPECTRA as u64),
            "{reports:?}"
        );
        assert_eq!(reports.last(), Some(&(SPECTRA as u64, SPECTRA as u64)));
        assert!(
            reports.len() > SPECTRA / BATCH,
            "more than one report per batch: {reports:?}"
        );
    }
}

/// Two threads share the batches. The rows have the order of the input and the bits of a single call.
#[test]
fn several_workers_give_the_same_bits_in_the_order_of_the_input() {
    for device in devices() {
        let (fitter, mut source) = setup(&device);
        let whole = fitter.fit(&source.all).unwrap();
        let mut table = fitter.table();
        let summary = fitter.fit_stream(&mut source, &mut table).unwrap();
        assert_eq!((summary.fits, table.len()), (SPECTRA as u64, SPECTRA));
        table
            .to_rows()
            .into_iter()
            .zip(whole.to_rows())
            .for_each(|(row, whole)| same_bits(row, whole, "in batches"));
    }
}

/// A batch that cannot be fitted ends the run. The rows of the batches before it are written.
#[test]
fn a_bad_spectrum_ends_a_strict_run_after_the_batches_before_it() {
    let (fitter, mut source) = setup(&Device::cpu());
    let arm = &mut source.all.arms[0];
    arm.flux.to_mut()[30 * arm.pixels] = f64::NAN;
    let mut table = fitter.table();
    let error = fitter
        .strict(true)
        .fit_stream(&mut source, &mut table)
        .unwrap_err();
    assert!(error.to_string().contains("30"), "{error}");
    assert_eq!(table.len(), 24);
}

#[test]
fn a_run_cancelled_before_it_begins_has_a_row_for_every_spectrum() {
    for device in devices() {
        let (fitter, mut source) = setup(&device);
        let control = Control {
            cancel: Arc::new(AtomicBool::new(true)),
            ..Control::default()
        };
        let mut table = fitter.table();
        let summary = fitter
            .clone()
            .control(control.clone())
            .fit_stream(&mut source, &mut table)
            .unwrap();
        sound(&table);
        assert_eq!(
            (table.len(), summary.fits, count_interrupted(&table)),
            (SPECTRA, SPECTRA as u64, SPECTRA)
        );
        for (n, row) in table.to_rows().into_iter().enumerate() {
            assert!(
                row.row == n as u64 && row.parameters == [0.5, 0.5] && row.chi2.is_nan(),
                "{row:?}"
            );
        }
    }
}

#[test]
fn a_cancelled_run_keeps_its_finished_rows() {
    for device in devices() {
        let (fitter, mut source) = setup(&device);
        let whole = fitter.fit(&source.all).unwrap();
        let control = Control::default();
        let cancel = control.cancel.clone();
        let progress = move |done, _| cancel.store(done >= 16, Ordering::Relaxed);
        let control = Control {
            progress: Some(Arc::new(progress)),
            ..control
        };
        let mut table = fitter.table();
        fitter
            .clone()
            .control(control.clone())
            .fit_stream(&mut source, &mut table)
            .unwrap();
        sound(&table);
        // Another worker may have finished more spectra by then.
        let finished = SPECTRA - count_interrupted(&table);
        assert!(
            table.len() == SPECTRA && (16..SPECTRA).contains(&finished),
            "{finished} finished"
        );
        let pairs = table
            .to_rows()
            .into_iter()
            .zip(whole.to_rows())
            .filter(|(row, _)| row.status != Status::Interrupted);
        pairs.for_each(|(row, whole)| same_bits(row, whole, "finished"));
    }
}

/// The source is slower than the timeout. Later batches are interrupted, and the progress stands still.
#[test]
fn a_timeout_interrupts_the_later_batches() {
    struct Slow(Slices);
    impl SpectraReader for Slow {
        fn len(&self) -> u64 {
            self.0.len()
        }

        fn next_batch(&mut self, max: usize) -> popfit::Result<Option<Spectra<'static>>> {
            std::thread::sleep(std::time::Duration::from_millis(100));
            self.0.next_batch(max)
        }

        fn empty(&self) -> Spectra<'static> {
            self.0.empty()
        }
    }
    for device in devices() {
        let (fitter, source) = setup(&device);
        let whole = fitter.fit(&source.all).unwrap();
        let furthest = Arc::new(AtomicU64::new(0));
        let furthest_report = furthest.clone();
        let control = Control {
            timeout: Some(std::time::Duration::from_millis(250)),
            progress: Some(Arc::new(move |done, _| {
                furthest_report.store(done, Ordering::Relaxed)
            })),
            ..Control::default()
        };
        let mut table = fitter.table();
        let summary = fitter
            .clone()
            .control(control.clone())
            .fit_stream(&mut Slow(source), &mut table)
            .unwrap();
        assert!(
            summary.interrupted as usize == count_interrupted(&table) && summary.interrupted >= 8,
            "{summary:?}"
        );
        assert!(
            furthest.load(Ordering::Relaxed) <= SPECTRA as u64 - summary.interrupted,
            "{summary:?}"
        );
        let pairs = table
            .to_rows()
            .into_iter()
            .zip(whole.to_rows())
            .filter(|(row, _)| row.status != Status::Interrupted);
        pairs.for_each(|(row, whole)| same_bits(row, whole, "finished"));
    }
}

#[test]
fn a_fit_cancelled_between_its_rounds_is_interrupted() {
    for device in devices() {
        let (fitter, mut source) = setup(&device);
        // The steps are so short that no fit has converged after the first rounds.
        let settings = LevenbergMarquardt::default().initial_damping(1e6).gtol(0.0);
        let fitter = SpectralFitter::new(fitter.model().clone(), device.clone()).solver(settings);
        source.max_batch = SPECTRA;
        let control = Control::default();
        let cancel = control.cancel.clone();
        // The first call comes after the first rounds.
        let progress = move |_, _| cancel.store(true, Ordering::Relaxed);
        let control = Control {
            progress: Some(Arc::new(progress)),
            ..control
        };
        let whole = fitter.fit(&source.all).unwrap();
        let mut table = fitter.table();
        fitter
            .clone()
            .control(control.clone())
            .fit_stream(&mut source, &mut table)
            .unwrap();
        sound(&table);
        assert!(table.len() == SPECTRA && count_interrupted(&table) > 0);
        for (row, whole) in table.to_rows().into_iter().zip(whole.to_rows()) {
            match row.status {
                Status::Interrupted => assert!(row.errors.iter().all(|e| e.is_nan()), "{row:?}"),
                _ => same_bits(row, whole, "finished in the first rounds"),
            }
        }
    }
}

/// A run is interrupted at the n-th call of its progress function, for n = 1, 2, 4, …. Finished spectra are not fitted
/// again, and the rows are those of a run that was not interrupted.
#[test]
fn a_run_interrupted_within_a_batch_is_resumed_with_the_same_bits() {
    let lm = LevenbergMarquardt::default().initial_damping(1e6);
    let simplex = NelderMead::default();
    let solvers = [
        Solver::LevenbergMarquardt(lm),
        Solver::NelderMead(simplex),
        Solver::LevenbergMarquardtThenNelderMead(lm, simplex),
    ];
    let on_cpu = solvers.map(|solver| (Device::cpu(), solver));
    let on_other_devices = devices()
        .into_iter()
        .skip(1)
        .map(|device| (device, solvers[0]));
    for (device, solver) in on_cpu.into_iter().chain(on_other_devices) {
        let (fitter, mut source) = setup(&device);
        source.max_batch = SPECTRA / 2;
        let fitter = SpectralFitter::new(fitter.model().clone(), device).solver(solver);
        let whole = fitter.fit(&source.all).unwrap();
        // With so little memory a batch goes through the population in many parts.
        let least = least_memory(&fitter, &source.all.slice(0..1));
        let fitter = fitter.max_memory(least + least / 4);
        let folder = tempfile::tempdir().unwrap();
        let mut interrupted_within_batches = 0;
        for n in (0..).map(|k| 1 << k) {
            source.next = 0;
            let (finished, was_cancelled) = interrupt(&fitter, &mut source, folder.path(), n);
            source.next = 0;
            let mut journal = Journal::open(&folder.path().join("out.csv"), "", true).unwrap();
            let mut table = fitter.table();
            fitter
                .fit_journaled(&mut source, &mut table, &mut journal)
                .unwrap();
            table
                .to_rows()
                .into_iter()
                .zip(whole.to_rows())
                .for_each(|(row, whole)| same_bits(row, whole, &format!("{n}")));
            assert_eq!(table.len(), SPECTRA);
            journal.remove().unwrap();
            interrupted_within_batches += usize::from(finished % source.max_batch != 0);
            if !was_cancelled {
                break;
            }
        }
        assert!(
            interrupted_within_batches > 0,
            "no batch was interrupted in its middle: {solver}"
        );
    }
}

/// A run is interrupted while velocities are scanned. Rows whose scan has not ended are no successes, and the next run
/// makes them.
#[test]
fn a_cancelled_scan_leaves_interrupted_rows() {
    for device in devices() {
        for scan in [VelocityScan::Fixed, VelocityScan::Refitted] {
            let emulator = linear(&["a"], wave);
            let labels: Vec<f64> = (0..SPECTRA).map(|k| 5.0 * (k as f64 * 0.7).sin()).collect();
            let mut source = Slices {
                all: spectra(&emulator, &labels, 0.01),
                max_batch: SPECTRA,
                next: 0,
            };
            let model = tiny::builder(emulator, 0.5)
                .velocity(-20.0..=20.0)
                .build()
                .unwrap();
            let plain = fitter(model, &device).starts(1);
            // On the CPU a scan goes through the population in parts.
            let memory = least_memory(&plain, &source.all.slice(0..1)) * 3 / 2;
            let is_cpu = device.name() == Device::cpu().name();
            let plain = if is_cpu {
                plain.max_memory(memory)
            } else {
                plain
            };
            let scanning = plain.clone().velocity_scan(scan);
            let whole = scanning.fit(&source.all).unwrap();
            let calls_of_fit = count_progress_calls(&plain, &mut source);
            let calls_in_all = count_progress_calls(&scanning, &mut source);
            let mut interrupted_scans = 0;
            let mut call = calls_of_fit;
            while call < calls_in_all {
                interrupted_scans +=
                    usize::from(interrupt_scan((&scanning, &whole), &mut source, call));
                call += (call + 1 - calls_of_fit).max((calls_in_all - calls_of_fit) / 5);
            }
            assert!(
                interrupted_scans > 0,
                "{scan:?} on {}: no scan among {} progress calls was interrupted",
                device.name(),
                calls_in_all - calls_of_fit
            );
        }
    }
}

/// Returns how often a run calls its progress function.
fn count_progress_calls(fitter: &SpectralFitter, source: &mut Slices) -> u64 {
    let calls = Arc::new(AtomicU64::new(0));
    let counter = calls.clone();
    let progress = move |_, _| {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    let control = Control {
        progress: Some(Arc::new(progress)),
        ..Control::default()
    };
    source.next = 0;
    fitter
        .clone()
        .control(control.clone())
        .fit_stream(source, &mut fitter.table())
        .unwrap();
    calls.load(Ordering::Relaxed)
}

/// Returns whether a run that is interrupted at the n-th call of its progress function had interrupted rows; another
/// run ends it.
fn interrupt_scan(
    (fitter, whole): (&SpectralFitter, &FitTable),
    source: &mut Slices,
    n: u64,
) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::default();
    let calls = AtomicU64::new(0);
    let cancel = control.cancel.clone();
    let progress = move |_, _| {
        cancel.store(
            calls.fetch_add(1, Ordering::Relaxed) + 1 >= n,
            Ordering::Relaxed,
        )
    };
    let stopping_control = Control {
        progress: Some(Arc::new(progress)),
        ..control
    };
    let mut has_interrupted_rows = false;
    for control in [stopping_control, Control::default()] {
        let mut journal = Journal::open(&folder.path().join("out.csv"), "", true).unwrap();
        let mut table = fitter.table();
        source.next = 0;
        fitter
            .clone()
            .control(control.clone())
            .fit_journaled(source, &mut table, &mut journal)
            .unwrap();
        sound(&table);
        assert_eq!(table.len(), SPECTRA);
        let was_stopped = control.cancel.load(Ordering::Relaxed);
        assert!(was_stopped || count_interrupted(&table) == 0);
        has_interrupted_rows |= count_interrupted(&table) > 0;
        for (row, whole) in table.to_rows().into_iter().zip(whole.to_rows()) {
            if row.status == Status::Interrupted {
                assert!(row.posterior.is_none(), "{row:?}");
            } else {
                same_bits(&row, &whole, &format!("call {n}"));
                assert_eq!(row.posterior, whole.posterior);
            }
        }
    }
    has_interrupted_rows
}

/// Interrupts a run at the n-th call of its progress function. Returns the number of finished rows, and whether some
/// were not finished.
fn interrupt(
    fitter: &SpectralFitter,
    source: &mut Slices,
    folder: &std::path::Path,
    n: u64,
) -> (usize, bool) {
    let control = Control::default();
    let cancel = control.cancel.clone();
    let calls = AtomicU64::new(0);
    let progress = move |_, _| {
        cancel.store(
            calls.fetch_add(1, Ordering::Relaxed) + 1 >= n,
            Ordering::Relaxed,
        )
    };
    let control = Control {
        progress: Some(Arc::new(progress)),
        ..control
    };
    let mut journal = Journal::open(&folder.join("out.csv"), "", false).unwrap();
    let mut table = fitter.table();
    fitter
        .clone()
        .control(control.clone())
        .fit_journaled(source, &mut table, &mut journal)
        .unwrap();
    sound(&table);
    let finished = SPECTRA - count_interrupted(&table);
    assert_eq!(journal.has_rows(), finished > 0);
    (finished, finished < SPECTRA)
}
