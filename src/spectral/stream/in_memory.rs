//! Fits of spectra in memory: the workers of all devices take a batch each, until none is left.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};
use std::{panic, thread};

use crate::control::Control;
use crate::error::Result;
use crate::spectra::Spectra;
use crate::spectral::SpectralFitter;
use crate::spectral::results::row::FitRow;
use crate::spectral::run::Run;
use crate::spectral::stream::workers::{Tally, Workers};
use crate::threads;

/// Fits spectra in memory and returns their rows in order. `user_starts` (spectra, parameters) in physical units
/// replace the first guess. Of several errors that of the first batch is returned.
///
/// A caller in a rayon pool of its own keeps to that pool, unless `control` asks for threads, and to the first device:
/// the thread itself is then the only worker, and fits all spectra as one batch, because nothing would run beside the
/// slowest fits of a smaller one.
pub fn fit(
    fitter: &SpectralFitter,
    spectra: &Spectra,
    user_starts: Option<&[f64]>,
    control: &Control,
) -> Result<Vec<FitRow>> {
    control.scope(|| fit_here(fitter, spectra, user_starts, control))?
}

/// Fits spectra with workers that compute in the current pool of this thread.
fn fit_here(
    fitter: &SpectralFitter,
    spectra: &Spectra,
    user_starts: Option<&[f64]>,
    control: &Control,
) -> Result<Vec<FitRow>> {
    let tally = &Tally::new(control, spectra.len() as u64);
    let workers = Workers::new(fitter, control);
    let begin_of_run = workers.begin;
    let is_alone = rayon::current_thread_index().is_some();
    let batch = if is_alone {
        spectra.len().max(1)
    } else {
        workers.batch()
    };
    let parameters = fitter.model.parameters.len();
    let begins: Vec<usize> = (0..spectra.len().max(1)).step_by(batch).collect();
    let fitted: Vec<OnceLock<Result<Vec<FitRow>>>> =
        begins.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = |run: Run| {
        // A population that is alone has room for more spectra instead of more starts.
        let mut run = if user_starts.is_some() && !is_alone {
            run.planned_for_single_starts()
        } else {
            run
        };
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(&begin) = begins.get(place) else {
                return;
            };
            let part = begin..spectra.len().min(begin + batch);
            let starts =
                user_starts.map(|all| &all[part.start * parameters..part.end * parameters]);
            let rows = run.fit_batch(&[&spectra.borrow_rows(part)], starts);
            if rows.is_err() {
                // No worker takes another batch.
                next.store(begins.len(), Ordering::Relaxed);
            }
            let _ = fitted[place].set(rows);
        }
    };
    let workers = workers.at_most(begins.len());
    // Each device gets its first worker before any gets its second.
    let mut runs: Vec<(usize, Run)> = workers.runs(tally)?.into_iter().enumerate().collect();
    runs.sort_by_key(|(number, _)| number % workers.sharing);
    runs.truncate(begins.len());
    let mut runs = runs.into_iter().map(|(_, run)| run);
    let own = runs.next();
    let (end, ended) = mpsc::channel();
    thread::scope(|scope| {
        if control.timeout.is_some() {
            scope.spawn(move || tally.watch(begin_of_run, &ended));
        }
        // The thread that watches ends with the last worker.
        let _end = end;
        let pool = threads::current_pool();
        let work = &work;
        let others: Vec<_> = runs
            .map(|run| {
                let pool = pool.clone();
                scope.spawn(move || threads::with_pool(pool, || work(run)))
            })
            .collect();
        own.into_iter().for_each(work);
        for other in others {
            other
                .join()
                .unwrap_or_else(|panic| panic::resume_unwind(panic));
        }
    });
    let mut all = Vec::with_capacity(spectra.len());
    for rows in fitted.into_iter().filter_map(OnceLock::into_inner) {
        all.extend(rows?);
    }
    Ok(all)
}
