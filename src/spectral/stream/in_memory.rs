//! Fits of spectra in memory: the workers of all devices take one batch after another, until none is left.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};
use std::{panic, thread};

use crate::error::Result;
use crate::spectra::Spectra;
use crate::spectral::SpectralFitter;
use crate::spectral::results::row::FitRow;
use crate::spectral::run::SpectralRun;
use crate::spectral::stream::workers::{RunProgress, Workers};
use crate::threads;

/// Fits spectra in memory and returns their rows in order. `user_starts` (spectra, parameters) in physical units
/// replace the first guess. If several batches fail, the error of the first one is returned.
///
/// A caller in a rayon pool of its own uses only that pool, unless its control asks for threads, and only the first
/// device: the thread itself is then the only worker. It fits all spectra as one batch, because nothing would run
/// beside the slowest fits of a smaller one.
pub fn fit_in_memory(
    fitter: &SpectralFitter,
    spectra: &Spectra,
    user_starts: Option<&[f64]>,
) -> Result<Vec<FitRow>> {
    fitter
        .control
        .scope(|| fit_in_current_pool(fitter, spectra, user_starts))?
}

/// Fits spectra with workers that compute in the current pool of this thread.
fn fit_in_current_pool(
    fitter: &SpectralFitter,
    spectra: &Spectra,
    user_starts: Option<&[f64]>,
) -> Result<Vec<FitRow>> {
    let control = &fitter.control;
    // 1. Divide the spectra into batches.
    let progress = &RunProgress::new(control, spectra.len() as u64);
    let workers = Workers::new(fitter);
    let run_begin = workers.begin;
    let is_alone = rayon::current_thread_index().is_some();
    let batch_size = if is_alone || fitter.needs_whole_files() {
        spectra.len().max(1)
    } else {
        workers.batch_size()
    };
    let parameters = fitter.model.parameters.len();
    let batch_begins: Vec<usize> = (0..spectra.len().max(1)).step_by(batch_size).collect();
    let batch_rows: Vec<OnceLock<Result<Vec<FitRow>>>> =
        batch_begins.iter().map(|_| OnceLock::new()).collect();
    let next_batch = AtomicUsize::new(0);
    let fit_batches = |run: SpectralRun| {
        // A population that is alone has room for more spectra instead of more starts.
        let mut run = if user_starts.is_some() && !is_alone {
            run.planned_for_single_starts()
        } else {
            run
        };
        loop {
            let batch = next_batch.fetch_add(1, Ordering::Relaxed);
            let Some(&begin) = batch_begins.get(batch) else {
                return;
            };
            let range = begin..spectra.len().min(begin + batch_size);
            let starts =
                user_starts.map(|starts| &starts[range.start * parameters..range.end * parameters]);
            let rows = run.fit_batch(&[&spectra.borrow_rows(range)], starts);
            if rows.is_err() {
                // No worker takes another batch.
                next_batch.store(batch_begins.len(), Ordering::Relaxed);
            }
            let _ = batch_rows[batch].set(rows);
        }
    };
    // 2. Create at most one run per batch. Each device gets its first worker before any gets its second.
    let workers = workers.limit_to_batches(batch_begins.len());
    let mut runs: Vec<(usize, SpectralRun)> = workers
        .create_runs(progress)?
        .into_iter()
        .enumerate()
        .collect();
    runs.sort_by_key(|(number, _)| number % workers.per_device);
    runs.truncate(batch_begins.len());
    let mut runs = runs.into_iter().map(|(_, run)| run);
    let run_of_this_thread = runs.next();
    // 3. Fit on this thread and on one more per further run.
    let (end, ended) = mpsc::channel();
    thread::scope(|scope| {
        if control.timeout.is_some() {
            scope.spawn(move || progress.watch_for_stop(run_begin, &ended));
        }
        // The watching thread ends when this sender is dropped with the last worker.
        let _end = end;
        let pool = threads::current_pool();
        let fit_batches = &fit_batches;
        let threads: Vec<_> = runs
            .map(|run| {
                let pool = pool.clone();
                scope.spawn(move || threads::with_pool(pool, || fit_batches(run)))
            })
            .collect();
        if let Some(run) = run_of_this_thread {
            fit_batches(run);
        }
        for thread in threads {
            thread
                .join()
                .unwrap_or_else(|panic| panic::resume_unwind(panic));
        }
    });
    // 4. Join the rows in the order of the batches.
    let mut all_rows = Vec::with_capacity(spectra.len());
    for rows in batch_rows.into_iter().filter_map(OnceLock::into_inner) {
        all_rows.extend(rows?);
    }
    Ok(all_rows)
}
