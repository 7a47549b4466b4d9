//! Small fits, one per vector lane, in f32, which f64 continues, or in f64. Rounds run over a block of lanes, in which
//! a waiting fit takes the lane of one that ends. Twin of `shaders/small.wgsl`, which gives each fit an invocation.

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::lanes::{
    BlockModel, FitBlock, FitSource, LaneSeat, RowSource, SeatedLanes, choose_units, load_fits,
    unload_fits,
};
use crate::error::Result;
use crate::math::Real;
use crate::math::lanes::LANES;
use crate::solver::small::{
    AddUp, SmallBatch, SmallColumns, SmallFitter, SmallModel, SmallParts, SmallProblem, WAITING,
};
use crate::threads;

/// Solver of small fits on all cores.
pub struct CpuSmallFitter {
    problem: SmallProblem,
    single_pool: ScratchPool<f32>,
    double_pool: ScratchPool<f64>,
}

/// Memory of threads that have finished a task, kept for later tasks, because to allocate and free it costs as much as
/// a round.
type ScratchPool<R> = Mutex<Vec<ThreadScratch<R>>>;

/// Memory that one thread works with.
struct ThreadScratch<R> {
    block: FitBlock<R>,
    units: Vec<f64>,
}

impl CpuSmallFitter {
    /// Makes a CPU solver that takes small curves from start to end, one per vector lane; its working memory comes
    /// later.
    pub fn new(problem: SmallProblem) -> CpuSmallFitter {
        CpuSmallFitter {
            problem,
            single_pool: ScratchPool::default(),
            double_pool: ScratchPool::default(),
        }
    }

    /// Makes all waiting fits of a part on this thread. Once the run `is_stopped`, fits of a user's function, which may
    /// be slow, are left unfinished.
    pub fn fit_part(
        &self,
        batch: &SmallBatch<'_>,
        columns: &mut SmallColumns<'_>,
        is_stopped: &(dyn Fn() -> bool + Sync),
    ) {
        let problem = &self.problem;
        let (rows, sums) = match &problem.model {
            SmallModel::Single(rows, sums) => {
                let functions = FitFunctions {
                    rows: RowSource::Lanes(rows),
                    sums: sums.as_ref(),
                    is_stopped,
                };
                return fit_part_in_precision(
                    problem,
                    functions,
                    &self.single_pool,
                    batch,
                    columns,
                );
            }
            SmallModel::Double(rows, sums) => (RowSource::Lanes(rows), sums.as_ref()),
            SmallModel::Function { rows, .. } => (RowSource::Function(rows), None),
        };
        let functions = FitFunctions {
            rows,
            sums,
            is_stopped,
        };
        let mut fit =
            || fit_part_in_precision(problem, functions, &self.double_pool, batch, columns);
        match rows {
            RowSource::Lanes(_) => fit(),
            RowSource::Function(function) => (function.during)(&mut fit),
        }
    }
}

impl SmallFitter for CpuSmallFitter {
    fn fit(&mut self, parts: &dyn SmallParts) -> Result<()> {
        let fit_lent_part = |part: usize| {
            if parts.begin(part).is_none() {
                return Ok(());
            }
            let is_stopped = || parts.is_stopped();
            parts.lend(part, &mut |batch, columns| {
                self.fit_part(batch, columns, &is_stopped)
            });
            parts.finish_part(part)
        };
        threads::in_pool(|| {
            (0..parts.count())
                .into_par_iter()
                .try_for_each(fit_lent_part)
        })
    }
}

/// Functions of a model in precision R, and one that reports whether the run is to stop.
#[derive(Clone, Copy)]
struct FitFunctions<'a, R> {
    rows: RowSource<'a, R>,
    sums: Option<&'a AddUp<R>>,
    is_stopped: &'a (dyn Fn() -> bool + Sync),
}

/// Makes all waiting fits of a part in precision R.
#[inline(never)] // one copy per precision
fn fit_part_in_precision<R: Real>(
    problem: &SmallProblem,
    FitFunctions {
        rows,
        sums,
        is_stopped,
    }: FitFunctions<'_, R>,
    pool: &ScratchPool<R>,
    batch: &SmallBatch<'_>,
    columns: &mut SmallColumns<'_>,
) {
    let shared_x: Vec<R> = if batch.own_grid {
        Vec::new()
    } else {
        batch.x.iter().map(|x| R::of(*x)).collect()
    };
    let is_plain = problem.estimator.is_least_squares() && !batch.is_weighted() && !batch.own_grid;
    let model = BlockModel {
        rows,
        sums: sums.filter(|_| is_plain),
        shared_x: &shared_x,
    };
    let mut scratch = ThreadScratch::take(pool, problem, batch);
    let ThreadScratch { block, units } = &mut scratch;
    choose_units(batch, units);
    let source = FitSource {
        batch: *batch,
        units,
        problem,
    };
    fit_waiting(block, &model, &source, columns, is_stopped);
    pool.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(scratch);
}

impl<R: Real> ThreadScratch<R> {
    /// Takes working memory of the batch's shape from the pool, or makes it.
    fn take(
        pool: &ScratchPool<R>,
        problem: &SmallProblem,
        batch: &SmallBatch<'_>,
    ) -> ThreadScratch<R> {
        let pooled = pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        pooled
            .filter(|scratch| scratch.block.has_shape_of(batch))
            .unwrap_or_else(|| ThreadScratch::new(problem, batch))
    }

    /// Makes working memory for a batch's shape of data.
    fn new(problem: &SmallProblem, batch: &SmallBatch<'_>) -> ThreadScratch<R> {
        ThreadScratch {
            block: FitBlock::new(problem, batch),
            units: Vec::new(),
        }
    }
}

/// Fits all curves whose status in the columns is waiting, in the lanes of one block, and writes their results there.
/// Those that have not ended once the run `is_stopped` keep that status, and get a χ² of NaN.
fn fit_waiting<R: Real>(
    block: &mut FitBlock<R>,
    model: &BlockModel<'_, R>,
    source: &FitSource<'_>,
    columns: &mut SmallColumns<'_>,
    is_stopped: &(dyn Fn() -> bool + Sync),
) {
    let problem = source.problem;
    // A bit per lane that has a fit, and the index of that fit.
    let mut occupied = 0u64;
    let mut fits = [0; LANES];
    let mut next = 0;
    let mut entered: Vec<LaneSeat> = Vec::new();
    let mut ended: Vec<LaneSeat> = Vec::new();
    loop {
        // 1. Give each empty lane the next waiting fit.
        entered.clear();
        while occupied != u64::MAX
            && let Some(fit) = (next..columns.status.len()).find(|&k| columns.status[k] == WAITING)
        {
            let lane = occupied.trailing_ones() as usize;
            occupied |= 1 << lane;
            fits[lane % LANES] = fit;
            next = fit + 1;
            entered.push(LaneSeat { lane, fit });
        }
        load_fits(block, &entered, source, columns);
        if occupied == 0 {
            return;
        }
        if matches!(model.rows, RowSource::Function(_)) && is_stopped() {
            for (status, chi2) in columns.status.iter().zip(&mut *columns.chi2) {
                if *status == WAITING {
                    *chi2 = f64::NAN;
                }
            }
            return;
        }
        // 2. Run a round.
        block.linearise(
            model,
            SeatedLanes {
                lanes: occupied,
                fits: &fits,
            },
            source,
        );
        block.step_lanes(problem);
        // 3. Find the lanes whose fits have ended. The loop visits only the bits that are set, because a processor
        //    cannot predict which lane ends.
        ended.clear();
        let finished = occupied & !block.running_lanes();
        occupied ^= finished;
        let mut unvisited = finished;
        while unvisited != 0 {
            let lane = unvisited.trailing_zeros() as usize;
            ended.push(LaneSeat {
                lane,
                fit: fits[lane % LANES],
            });
            unvisited &= unvisited - 1;
        }
        // 4. Write their results.
        if block.may_end && !ended.is_empty() {
            block.compute_variances(
                model,
                SeatedLanes {
                    lanes: finished,
                    fits: &fits,
                },
                source,
            );
        }
        unload_fits(block, &ended, problem, columns);
    }
}

/// Each lane has a bit in a mask.
const _: () = assert!(LANES == u64::BITS as usize);
