//! Progress and cancelling: one row a spectrum whatever happens, and what was finished keeps its bits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use popfit::spectra::SpectraReader;
use popfit::{
    Control, Device, FitTable, Journal, LevenbergMarquardt, NelderMead, Solver, Spectra,
    SpectralFitter, Status, VelocityScan,
};
use popfit_testing::fits::{devices, fitter, least_memory, same_bits, sound};
use popfit_testing::tiny::{self, linear, spectra, wave};

/// Yields batches of at most `most` spectra.
struct Slices {
    all: Spectra<'static>,
    most: usize,
    next: usize,
}

impl SpectraReader for Slices {
    fn len(&self) -> u64 {
        self.all.len() as u64
    }

    fn next_batch(&mut self, max: usize) -> popfit::Result<Option<Spectra<'static>>> {
        let end = (self.next + max.min(self.most)).min(self.all.len());
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
            most: BATCH,
            next: 0,
        },
    )
}

fn interrupted(table: &FitTable) -> usize {
    let is = |row: &popfit::FitRow| row.status == Status::Interrupted;
    for row in table.to_rows().into_iter().filter(is) {
        assert_eq!(
            (row.status.code(), row.status_text.as_str()),
            (-2, "interrupted")
        );
        assert!(row.parameters.iter().all(|x| x.is_finite()), "{row:?}");
    }
    table.to_rows().into_iter().filter(is).count()
}

#[test]
fn progress_rises_to_the_end() {
    for device in devices() {
        let (fitter, mut source) = setup(&device);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let progress = move |done, total| log.lock().unwrap().push((done, total));
        let control = Control::default().progress(progress);
        fitter
            .fit_stream(&mut source, &mut fitter.table(), &control)
            .unwrap();
        let seen = seen.lock().unwrap();
        assert!(
            seen.is_sorted() && seen.iter().all(|(_, total)| *total == SPECTRA as u64),
            "{seen:?}"
        );
        assert_eq!(seen.last(), Some(&(SPECTRA as u64, SPECTRA as u64)));
        assert!(
            seen.len() > SPECTRA / BATCH,
            "more than once a batch: {seen:?}"
        );
    }
}

/// Two threads share the batches: rows come in the order of the input, with the bits of a single one.
#[test]
fn workers_change_nothing() {
    for device in devices() {
        let (fitter, mut source) = setup(&device);
        let whole = fitter.fit(&source.all).unwrap();
        let mut table = fitter.table();
        let summary = fitter
            .fit_stream(&mut source, &mut table, &Control::default())
            .unwrap();
        assert_eq!((summary.fits, table.len()), (SPECTRA as u64, SPECTRA));
        table
            .to_rows()
            .into_iter()
            .zip(whole.to_rows())
            .for_each(|(row, whole)| same_bits(row, whole, "in batches"));
    }
}

/// A batch that cannot be fitted ends the run; what came before it is written.
#[test]
fn the_first_error_ends_the_run() {
    let (fitter, mut source) = setup(&Device::cpu());
    let arm = &mut source.all.arms[0];
    arm.flux.to_mut()[30 * arm.pixels] = f64::NAN;
    let mut table = fitter.table();
    let error = fitter
        .strict(true)
        .fit_stream(&mut source, &mut table, &Control::default())
        .unwrap_err();
    assert!(error.to_string().contains("30"), "{error}");
    assert_eq!(table.len(), 24);
}

#[test]
fn a_run_cancelled_before_it_begins_has_a_row_for_every_spectrum() {
    for device in devices() {
        let (fitter, mut source) = setup(&device);
        let control = Control::default().cancel(Arc::new(AtomicBool::new(true)));
        let mut table = fitter.table();
        let summary = fitter
            .fit_stream(&mut source, &mut table, &control)
            .unwrap();
        sound(&table);
        assert_eq!(
            (table.len(), summary.fits, interrupted(&table)),
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
fn a_run_cancelled_on_its_way_keeps_what_is_finished() {
    for device in devices() {
        let (fitter, mut source) = setup(&device);
        let whole = fitter.fit(&source.all).unwrap();
        let control = Control::default();
        let cancel = control.cancel.clone();
        let progress = move |done, _| cancel.store(done >= 16, Ordering::Relaxed);
        let control = control.progress(progress);
        let mut table = fitter.table();
        fitter
            .fit_stream(&mut source, &mut table, &control)
            .unwrap();
        sound(&table);
        // another worker may have finished more by then
        let finished = SPECTRA - interrupted(&table);
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

/// A source slower than the timeout: later batches are interrupted, and the progress stands still.
#[test]
fn a_timeout_interrupts_the_rest() {
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
        let seen = furthest.clone();
        let control = Control::default()
            .timeout(std::time::Duration::from_millis(250))
            .progress(move |done, _| seen.store(done, Ordering::Relaxed));
        let mut table = fitter.table();
        let summary = fitter
            .fit_stream(&mut Slow(source), &mut table, &control)
            .unwrap();
        assert!(
            summary.interrupted as usize == interrupted(&table) && summary.interrupted >= 8,
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
        // steps so short that no fit has converged after the first rounds
        let settings = LevenbergMarquardt::default().initial_damping(1e6).gtol(0.0);
        let fitter = SpectralFitter::new(fitter.model().clone(), device.clone()).solver(settings);
        source.most = SPECTRA;
        let control = Control::default();
        let cancel = control.cancel.clone();
        // the first call comes after the first rounds
        let progress = move |_, _| cancel.store(true, Ordering::Relaxed);
        let control = control.progress(progress);
        let whole = fitter.fit(&source.all).unwrap();
        let mut table = fitter.table();
        fitter
            .fit_stream(&mut source, &mut table, &control)
            .unwrap();
        sound(&table);
        assert!(table.len() == SPECTRA && interrupted(&table) > 0);
        for (row, whole) in table.to_rows().into_iter().zip(whole.to_rows()) {
            match row.status {
                Status::Interrupted => assert!(row.errors.iter().all(|e| e.is_nan()), "{row:?}"),
                _ => same_bits(row, whole, "finished in the first rounds"),
            }
        }
    }
}

/// A run is interrupted at the n-th thing that its progress function is told, for n = 1, 2, 4, …; what it had finished
/// is not fitted again, and the rows are those of a run that was not interrupted.
#[test]
fn an_interrupted_run_goes_on_in_the_middle_of_a_batch() {
    let (lm, simplex) = (
        LevenbergMarquardt::default().initial_damping(1e6),
        NelderMead::default(),
    );
    let solvers = [
        Solver::LevenbergMarquardt(lm),
        Solver::NelderMead(simplex),
        Solver::LevenbergMarquardtThenNelderMead(lm, simplex),
    ];
    let on_cpu = solvers.map(|solver| (Device::cpu(), solver));
    let others = devices()
        .into_iter()
        .skip(1)
        .map(|device| (device, solvers[0]));
    for (device, solver) in on_cpu.into_iter().chain(others) {
        let (fitter, mut source) = setup(&device);
        source.most = SPECTRA / 2;
        let fitter = SpectralFitter::new(fitter.model().clone(), device).solver(solver);
        let whole = fitter.fit(&source.all).unwrap();
        // a batch goes through the population in many parts
        let least = least_memory(&fitter, &source.all.slice(0..1));
        let fitter = fitter.max_memory(least + least / 4);
        let folder = tempfile::tempdir().unwrap();
        let mut partly = 0;
        for n in (0..).map(|k| 1 << k) {
            source.next = 0;
            let (kept, was_cancelled) = interrupt(&fitter, &mut source, folder.path(), n);
            source.next = 0;
            let mut journal = Journal::open(&folder.path().join("out.csv"), "", true).unwrap();
            let mut table = fitter.table();
            fitter
                .fit_journaled(&mut source, &mut table, &Control::default(), &mut journal)
                .unwrap();
            table
                .to_rows()
                .into_iter()
                .zip(whole.to_rows())
                .for_each(|(row, whole)| same_bits(row, whole, &format!("{n}")));
            assert_eq!(table.len(), SPECTRA);
            journal.remove().unwrap();
            partly += usize::from(kept % source.most != 0);
            if !was_cancelled {
                break;
            }
        }
        assert!(
            partly > 0,
            "no batch was interrupted in its middle: {solver}"
        );
    }
}

/// A run is interrupted while velocities are scanned: rows whose scan has not ended are no successes, and the next run
/// makes them.
#[test]
fn a_scan_cancelled_on_its_way_leaves_no_half_rows() {
    for device in devices() {
        for scan in [VelocityScan::Fixed, VelocityScan::Refitted] {
            let emulator = linear(&["a"], wave);
            let labels: Vec<f64> = (0..SPECTRA).map(|k| 5.0 * (k as f64 * 0.7).sin()).collect();
            let mut source = Slices {
                all: spectra(&emulator, &labels, 0.01),
                most: SPECTRA,
                next: 0,
            };
            let model = tiny::builder(emulator, 0.5)
                .velocity(-20.0..=20.0)
                .build()
                .unwrap();
            let plain = fitter(model, &device).starts(1);
            // on the CPU a scan goes through the population in parts
            let memory = least_memory(&plain, &source.all.slice(0..1)) * 3 / 2;
            let is_cpu = device.name() == Device::cpu().name();
            let plain = if is_cpu {
                plain.max_memory(memory)
            } else {
                plain
            };
            let scanning = plain.clone().velocity_scan(scan);
            let whole = scanning.fit(&source.all).unwrap();
            let (fit, all) = (
                tellings(&plain, &mut source),
                tellings(&scanning, &mut source),
            );
            let (mut cut, mut n) = (0, fit);
            while n < all {
                cut += usize::from(interrupt_scan((&scanning, &whole), &mut source, n));
                n += (n + 1 - fit).max((all - fit) / 5);
            }
            assert!(
                cut > 0,
                "{scan:?} on {}: no scan among {} tellings was interrupted",
                device.name(),
                all - fit
            );
        }
    }
}

/// Returns how often a run calls its progress function.
fn tellings(fitter: &SpectralFitter, source: &mut Slices) -> u64 {
    let told = Arc::new(AtomicU64::new(0));
    let count = told.clone();
    let progress = move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let control = Control::default().progress(progress);
    source.next = 0;
    fitter
        .fit_stream(source, &mut fitter.table(), &control)
        .unwrap();
    told.load(Ordering::Relaxed)
}

/// Returns whether a run that is interrupted at the n-th call of its progress function had interrupted rows; another
/// run ends it.
fn interrupt_scan(
    (fitter, whole): (&SpectralFitter, &FitTable),
    source: &mut Slices,
    n: u64,
) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let (control, told) = (Control::default(), AtomicU64::new(0));
    let cancel = control.cancel.clone();
    let progress = move |_, _| {
        cancel.store(
            told.fetch_add(1, Ordering::Relaxed) + 1 >= n,
            Ordering::Relaxed,
        )
    };
    let stopped = control.progress(progress);
    let mut cut = false;
    for control in [stopped, Control::default()] {
        let mut journal = Journal::open(&folder.path().join("out.csv"), "", true).unwrap();
        let mut table = fitter.table();
        source.next = 0;
        fitter
            .fit_journaled(source, &mut table, &control, &mut journal)
            .unwrap();
        sound(&table);
        assert_eq!(table.len(), SPECTRA);
        let was_stopped = control.cancel.load(Ordering::Relaxed);
        assert!(was_stopped || interrupted(&table) == 0);
        cut |= interrupted(&table) > 0;
        for (row, whole) in table.to_rows().into_iter().zip(whole.to_rows()) {
            if row.status == Status::Interrupted {
                assert!(row.posterior.is_none(), "{row:?}");
            } else {
                same_bits(&row, &whole, &format!("telling {n}"));
                assert_eq!(row.posterior, whole.posterior);
            }
        }
    }
    cut
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
    let (cancel, told) = (control.cancel.clone(), AtomicU64::new(0));
    let progress = move |_, _| {
        cancel.store(
            told.fetch_add(1, Ordering::Relaxed) + 1 >= n,
            Ordering::Relaxed,
        )
    };
    let control = control.progress(progress);
    let mut journal = Journal::open(&folder.join("out.csv"), "", false).unwrap();
    let mut table = fitter.table();
    fitter
        .fit_journaled(source, &mut table, &control, &mut journal)
        .unwrap();
    sound(&table);
    let kept = SPECTRA - interrupted(&table);
    assert_eq!(journal.has_rows(), kept > 0);
    (kept, kept < SPECTRA)
}
