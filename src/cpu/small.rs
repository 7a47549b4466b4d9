//! Small fits, one per lane: rounds over a block of lanes, in which a fit that ends makes room for a
//! waiting one. f32 or f64. Twin of `shaders/small.wgsl`, which gives each fit an invocation.

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::lanes::{
    Block, Doubts, Model, ModelRows, Seat, Seated, Source, load, units as measure, unload,
};
use crate::error::Result;
use crate::math::Real;
use crate::math::lanes::LANES;
use crate::solver::small::{
    AddUp, SmallBatch, SmallColumns, SmallFitter, SmallModel, SmallParts, SmallProblem, WAITING,
};
use crate::threads;

/// Small fits on all cores.
pub struct CpuSmallFitter {
    problem: SmallProblem,
    single: Pool<f32>,
    double: Pool<f64>,
}

/// Memory of threads that have finished a task, kept for the next: to allocate and free it would cost as much as a
/// round.
type Pool<R> = Mutex<Vec<Scratch<R>>>;

/// Memory that one thread works with.
struct Scratch<R> {
    block: Block<R>,
    doubts: Option<Doubts>,
    units: Vec<f64>,
}

impl CpuSmallFitter {
    /// Makes a CPU solver that takes small curves from start to end, one per vector lane; its working memory comes
    /// later.
    pub fn new(problem: SmallProblem) -> CpuSmallFitter {
        CpuSmallFitter {
            problem,
            single: Pool::default(),
            double: Pool::default(),
        }
    }

    /// Makes all waiting fits of a part on this thread. Once the run `is_stopped`, those of a user's function, which
    /// may be slow, are left as they are.
    pub fn fit_part(
        &self,
        batch: &SmallBatch<'_>,
        columns: &mut SmallColumns<'_>,
        is_stopped: &(dyn Fn() -> bool + Sync),
    ) {
        let problem = &self.problem;
        let (rows, sums) = match &problem.model {
            SmallModel::Single(rows, sums) => {
                let functions = Functions {
                    rows: ModelRows::Lanes(rows),
                    sums: sums.as_ref(),
                    is_stopped,
                };
                return fit_part(problem, functions, &self.single, batch, columns);
            }
            SmallModel::Double(rows, sums) => (ModelRows::Lanes(rows), sums.as_ref()),
            SmallModel::Function { rows, .. } => (ModelRows::Function(rows), None),
        };
        let mut work = || {
            fit_part(
                problem,
                Functions {
                    rows,
                    sums,
                    is_stopped,
                },
                &self.double,
                batch,
                columns,
            )
        };
        match rows {
            ModelRows::Lanes(_) => work(),
            ModelRows::Function(function) => (function.during)(&mut work),
        }
    }
}

impl SmallFitter for CpuSmallFitter {
    fn fit(&mut self, parts: &dyn SmallParts) -> Result<()> {
        let fit = |part: usize| {
            if parts.begin(part).is_none() {
                return Ok(());
            }
            let is_stopped = || parts.is_stopped();
            parts.lend(part, &mut |batch, columns| {
                self.fit_part(batch, columns, &is_stopped)
            });
            parts.end(part)
        };
        threads::in_pool(|| (0..parts.count()).into_par_iter().try_for_each(fit))
    }
}

/// Functions of a model in precision R, and whether its run is to end.
#[derive(Clone, Copy)]
struct Functions<'a, R> {
    rows: ModelRows<'a, R>,
    sums: Option<&'a AddUp<R>>,
    is_stopped: &'a (dyn Fn() -> bool + Sync),
}

/// Makes all waiting fits of a part in precision R.
#[inline(never)] // one copy of each precision
fn fit_part<R: Real>(
    problem: &SmallProblem,
    Functions {
        rows,
        sums,
        is_stopped,
    }: Functions<'_, R>,
    pool: &Pool<R>,
    batch: &SmallBatch<'_>,
    columns: &mut SmallColumns<'_>,
) {
    let shared_x: Vec<R> = if batch.own_grid {
        Vec::new()
    } else {
        batch.x.iter().map(|x| R::of(*x)).collect()
    };
    let is_plain = problem.estimator.is_least_squares() && !batch.is_weighted() && !batch.own_grid;
    let model = Model {
        rows,
        sums: sums.filter(|_| is_plain),
        shared_x: &shared_x,
    };
    let mut scratch = Scratch::take(pool, problem, batch);
    let Scratch {
        block,
        doubts,
        units,
    } = &mut scratch;
    measure(batch, units);
    let source = Source {
        batch: *batch,
        units,
        problem,
    };
    fit_waiting(block, doubts, &model, &source, columns, is_stopped);
    if let Some(doubts) = doubts {
        doubts.settle(&source, columns);
    }
    pool.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(scratch);
}

impl<R: Real> Scratch<R> {
    /// Takes working memory of the batch's shape from the pool of spare ones, or makes it.
    fn take(pool: &Pool<R>, problem: &SmallProblem, batch: &SmallBatch<'_>) -> Scratch<R> {
        let known = pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        known
            .filter(|scratch| scratch.block.has_shape_of(batch))
            .unwrap_or_else(|| {
                let single = size_of::<R>() == 4;
                // what f32's rounding does is known of these
                let plain = problem.estimator.is_least_squares() && problem.priors.is_empty();
                let doubts = (single && plain).then(|| Doubts::new(problem, batch));
                let is_rough = matches!(
                    problem.model,
                    SmallModel::Function {
                        is_precise: false,
                        ..
                    }
                );
                let ends = if single { plain } else { !is_rough };
                Scratch {
                    block: Block::new(problem, batch, ends),
                    doubts,
                    units: Vec::new(),
                }
            })
    }
}

/// Fits all curves whose status in the columns is waiting, in the lanes of one block, and writes their results there.
/// Those that have not ended once the run `is_stopped` keep that status, and get a χ² of NaN.
fn fit_waiting<R: Real>(
    block: &mut Block<R>,
    doubts: &mut Option<Doubts>,
    model: &Model<'_, R>,
    source: &Source<'_>,
    columns: &mut SmallColumns<'_>,
    is_stopped: &(dyn Fn() -> bool + Sync),
) {
    let problem = source.problem;
    // a bit a lane that has a fit, and which one
    let (mut taken, mut fits, mut next) = (0u64, [0; LANES], 0);
    let (mut fresh, mut ended): (Vec<Seat>, Vec<Seat>) = Default::default();
    loop {
        fresh.clear();
        while taken != u64::MAX
            && let Some(k) = (next..columns.status.len()).find(|&k| columns.status[k] == WAITING)
        {
            let l = taken.trailing_ones() as usize;
            taken |= 1 << l;
            (fits[l % LANES], next) = (k, k + 1);
            fresh.push(Seat { lane: l, fit: k });
        }
        load(block, &fresh, source, columns);
        if taken == 0 {
            return;
        }
        if matches!(model.rows, ModelRows::Function(_)) && is_stopped() {
            let ends = columns.status.iter().zip(&mut *columns.chi2);
            ends.filter(|(status, _)| **status == WAITING)
                .for_each(|(_, chi2)| *chi2 = f64::NAN);
            return;
        }
        block.linearise(
            model,
            Seated {
                lanes: taken,
                fits: &fits,
            },
            source,
        );
        block.step(problem);
        ended.clear();
        let finished = taken & !block.running();
        let mut left = finished;
        taken ^= left;
        // only the bits that are set: which lane ends is nothing that a processor could guess
        while left != 0 {
            let l = left.trailing_zeros() as usize;
            ended.push(Seat {
                lane: l,
                fit: fits[l % LANES],
            });
            left &= left - 1;
        }
        if size_of::<R>() == 8 && block.ends && !ended.is_empty() {
            block.variances(
                model,
                Seated {
                    lanes: finished,
                    fits: &fits,
                },
                source,
            );
        }
        unload(block, &ended, problem, columns);
        if let Some(doubts) = doubts {
            doubts.take(block, &ended, source, columns);
        }
    }
}

/// Each lane is a bit.
const _: () = assert!(LANES == u64::BITS as usize);
