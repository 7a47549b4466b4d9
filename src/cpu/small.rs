//! Small fits, one per lane: rounds over a block of lanes, in which a fit that ends makes room for a
//! waiting one. f32 or f64. Twin of `shaders/small.wgsl`, which gives each fit an invocation.

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::lanes::{Block, Doubts, Model, Seat, Source, load, units as measure, unload};
use crate::error::Result;
use crate::math::Real;
use crate::math::lanes::LANES;
use crate::solver::small::{
    AddUp, LaneModel, SmallBatch, SmallColumns, SmallFitter, SmallModel, SmallParts, SmallProblem, WAITING,
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
        CpuSmallFitter { problem, single: Pool::default(), double: Pool::default() }
    }

    /// Makes all waiting fits of a part on this thread.
    pub fn fit_part(&self, batch: &SmallBatch<'_>, columns: &mut SmallColumns<'_>) {
        match &self.problem.model {
            SmallModel::Single(rows, sums) => fit_part(&self.problem, rows, sums, &self.single, batch, columns),
            SmallModel::Double(rows, sums) => fit_part(&self.problem, rows, sums, &self.double, batch, columns),
        }
    }
}

impl SmallFitter for CpuSmallFitter {
    fn fit(&mut self, parts: &dyn SmallParts) -> Result<()> {
        let fit = |part: usize| {
            if parts.begin(part).is_none() {
                return Ok(());
            }
            parts.lend(part, &mut |batch, columns| self.fit_part(batch, columns));
            parts.end(part)
        };
        threads::in_pool(|| (0..parts.count()).into_par_iter().try_for_each(fit))
    }
}

/// Makes all waiting fits of a part in precision R.
fn fit_part<R: Real>(
    problem: &SmallProblem,
    rows: &LaneModel<R>,
    sums: &Option<AddUp<R>>,
    pool: &Pool<R>,
    batch: &SmallBatch<'_>,
    columns: &mut SmallColumns<'_>,
) {
    let shared_x: Vec<R> = if batch.own_grid { Vec::new() } else { batch.x.iter().map(|x| R::of(*x)).collect() };
    let is_plain = problem.estimator.is_least_squares() && !batch.is_weighted() && !batch.own_grid;
    let model = Model { rows, sums: sums.as_ref().filter(|_| is_plain), shared_x: &shared_x };
    let mut scratch = Scratch::take(pool, problem, batch);
    let Scratch { block, doubts, units } = &mut scratch;
    measure(batch, units);
    let source = Source { batch: *batch, units, problem };
    fit_waiting(block, doubts, &model, &source, columns);
    if let Some(doubts) = doubts {
        doubts.settle(&source, columns);
    }
    pool.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
}

impl<R: Real> Scratch<R> {
    /// Takes working memory of the batch's shape from the pool of spare ones, or makes it.
    fn take(pool: &Pool<R>, problem: &SmallProblem, batch: &SmallBatch<'_>) -> Scratch<R> {
        let known = pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        known.filter(|scratch| scratch.block.has_shape_of(batch)).unwrap_or_else(|| {
            let single = size_of::<R>() == 4;
            // what f32's rounding does is known of these
            let plain = problem.estimator.is_least_squares() && problem.priors.is_empty();
            let doubts = (single && plain).then(|| Doubts::new(problem, batch));
            Scratch { block: Block::new(problem, batch, !single || plain), doubts, units: Vec::new() }
        })
    }
}

/// Fits all curves whose status in the columns is waiting, in the lanes of one block, and writes their results there.
fn fit_waiting<R: Real>(
    block: &mut Block<R>,
    doubts: &mut Option<Doubts>,
    model: &Model<'_, R>,
    source: &Source<'_>,
    columns: &mut SmallColumns<'_>,
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
        block.linearise(problem, model, taken);
        block.step(problem);
        ended.clear();
        let finished = taken & !block.running();
        let mut left = finished;
        taken ^= left;
        // only the bits that are set: which lane ends is nothing that a processor could guess
        while left != 0 {
            let l = left.trailing_zeros() as usize;
            ended.push(Seat { lane: l, fit: fits[l % LANES] });
            left &= left - 1;
        }
        if size_of::<R>() == 8 && !ended.is_empty() {
            block.variances(problem, model, finished);
        }
        unload(block, &ended, problem, columns);
        if let Some(doubts) = doubts {
            doubts.take(block, &ended, source, columns);
        }
    }
}

/// Each lane is a bit.
const _: () = assert!(LANES == u64::BITS as usize);
