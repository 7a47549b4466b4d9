//! One solver over one workload, timed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use popfit::{Device, Error, Result, Solver};
use rayon::ThreadPool;

use super::peers::Peer;
use super::workload::{Answers, Workload};

/// Answers and speed of a solver.
pub struct Run {
    pub solver: &'static str,
    pub device: String,
    /// Points at which the fits ended, in the parameters' units, from the workload's first on; empty: no answer.
    pub answers: Vec<Vec<f64>>,
    pub fits_per_s: f64,
    /// Evaluations of the model and its derivatives, and additions and multiplications in them, a fit; popfit's without
    /// those at starts that an earlier fit has.
    pub evaluations: f64,
    pub operations: f64,
}

/// Fits that tell how many more there is time for.
const FIRST: usize = 16;
/// popfit may take this many times the budget for all fits; a solver that would take longer does fewer.
const PATIENCE: f64 = 10.0;

/// Times popfit on as many of the workload's fits as `budget` allows, repeatedly until it is spent.
pub fn popfit(
    workload: &Workload,
    name: &'static str,
    solver: Solver,
    device: &Device,
    pool: &ThreadPool,
    budget: Duration,
) -> Result<Run> {
    pool.install(|| {
        // a first time for what is made once, a second for the speed
        let first = FIRST.min(workload.fits());
        workload.popfit(device, solver, first)?;
        let begin = Instant::now();
        workload.popfit(device, solver, first)?;
        let possible =
            first as f64 * PATIENCE * budget.as_secs_f64() / begin.elapsed().as_secs_f64();
        let count = (possible as usize).clamp(first, workload.fits());
        let (begin, mut rounds, mut answers) = (Instant::now(), 0, Answers::default());
        while rounds == 0 || begin.elapsed() < budget {
            answers = workload.popfit(device, solver, count)?;
            rounds += 1;
        }
        let seconds = begin.elapsed().as_secs_f64();
        let derivatives = matches!(solver, Solver::LevenbergMarquardt(_));
        let evaluations = answers.evaluations / count as f64;
        // a processor makes what many starts share once
        let shared = if derivatives && device.name().starts_with("cpu") {
            workload.repeats(count)
        } else {
            0
        };
        let made = evaluations - shared as f64 / count as f64;
        Ok(Run {
            solver: name,
            device: device.name(),
            answers: answers.by_fit(count),
            fits_per_s: count as f64 * f64::from(rounds) / seconds,
            evaluations,
            operations: made * workload.problems().problem(0)?.operations(derivatives),
        })
    })
}

/// Answer and cost of one fit of a peer.
struct Fit {
    index: usize,
    answer: Vec<f64>,
    busy: Duration,
    /// Evaluations without derivatives and with them.
    counts: (u64, u64),
}

/// Times another crate's solver on as many fits as `budget` allows, one fit at a time on each thread. Making buffers
/// and loading a fit's data are not timed.
pub fn peer(workload: &Workload, peer: Peer, pool: &ThreadPool, budget: Duration) -> Result<Run> {
    let problems = workload.problems();
    let (next, begin) = (AtomicUsize::new(0), Instant::now());
    let (fits, failure) = (Mutex::new(Vec::new()), Mutex::new(None));
    pool.broadcast(|_| {
        let work = || {
            let mut problem = problems.problem(0)?;
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                // every thread does one, so that there is an answer
                if index >= problems.len()
                    || (index >= pool.current_num_threads() && begin.elapsed() > budget)
                {
                    return Ok(());
                }
                problem.turn_to(problems, index)?;
                let start = Instant::now();
                let answer = peer.solve(&problem, workload.points());
                let busy = start.elapsed();
                let answer = answer.map(|u| problem.physical(&u)).unwrap_or_default();
                let fit = Fit {
                    index,
                    answer,
                    busy,
                    counts: problem.evaluations(),
                };
                fits.lock().map_err(|_| panicked())?.push(fit);
            }
        };
        if let Err(error) = work()
            && let Ok(mut failure) = failure.lock()
        {
            *failure = Some(error);
        }
    });
    if let Some(error) = failure.into_inner().map_err(|_| panicked())? {
        return Err(error);
    }
    let mut fits = fits.into_inner().map_err(|_| panicked())?;
    fits.sort_by_key(|fit| fit.index);
    let sum =
        |of: &dyn Fn(&Fit) -> f64| fits.iter().map(of).sum::<f64>() / fits.len().max(1) as f64;
    let (plain, full) = (
        sum(&|fit| fit.counts.0 as f64),
        sum(&|fit| fit.counts.1 as f64),
    );
    let problem = problems.problem(0)?;
    let threads = pool.current_num_threads();
    Ok(Run {
        solver: peer.name(),
        device: format!("cpu ({threads} threads)"),
        fits_per_s: threads as f64 / sum(&|fit| fit.busy.as_secs_f64()),
        evaluations: plain + full,
        operations: plain * problem.operations(false) + full * problem.operations(true),
        answers: fits.into_iter().map(|fit| fit.answer).collect(),
    })
}

/// Returns the error that a thread of the benchmark panicked.
fn panicked() -> Error {
    Error::Internal("a thread of the benchmark panicked".into())
}
