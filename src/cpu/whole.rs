//! Whole fits of tiny problems, a lane each: rounds over a block of lanes, in which a fit that ends makes room for a waiting one.
//! f32 or f64. Twin of `shaders/whole.wgsl`, which gives each fit an invocation.

use rayon::prelude::*;

use super::lanes::{Block, RUNNING, Source, load, unload};
use crate::error::Result;
use crate::rows::Real;
use crate::rows::lanes::LANES;
use crate::solver::whole::{LaneModel, WAITING, Whole, WholeBatch, WholeColumns, WholeFits, WholeModel};

/// Fits that one thread takes at a time.
const TASK: usize = 2048;

/// Whole fits on all cores.
pub struct CpuWhole(pub Whole);

impl WholeFits for CpuWhole {
    fn fit(&mut self, batch: &WholeBatch<'_>, columns: &mut WholeColumns<'_>) -> Result<()> {
        match &self.0.model {
            WholeModel::Single(model) => all(&self.0, model, batch, columns),
            WholeModel::Double(model) => all(&self.0, model, batch, columns),
        }
        Ok(())
    }
}

/// Cuts the columns into tasks.
fn all<R: Real>(whole: &Whole, model: &LaneModel<R>, batch: &WholeBatch<'_>, columns: &mut WholeColumns<'_>) {
    let shared_x: Vec<R> = if batch.own_grid { Vec::new() } else { batch.x.iter().map(|x| R::of(*x)).collect() };
    let count = whole.parameters;
    let parameters =
        columns.parameters.par_chunks_mut(TASK * count).zip(columns.variances.par_chunks_mut(TASK * count));
    let sums = columns.chi2.par_chunks_mut(TASK).zip(columns.promises.par_chunks_mut(TASK));
    let ends = columns.status.par_chunks_mut(TASK).zip(columns.rounds.par_chunks_mut(TASK));
    let new = || {
        let own_x = if batch.own_grid { whole.predictors } else { 0 };
        let weighted = batch.sigma.is_some() || batch.mask.is_some();
        Block::new(count, whole.points, (weighted, batch.bounds.is_some()), own_x)
    };
    parameters.zip(sums).zip(ends).enumerate().for_each_init(new, |block, (task, ((parameters, sums), ends))| {
        let mut columns = WholeColumns {
            parameters: parameters.0,
            variances: parameters.1,
            chi2: sums.0,
            promises: sums.1,
            status: ends.0,
            rounds: ends.1,
        };
        let source = Source { batch: *batch, first: task * TASK, whole };
        some(block, whole, (model, &shared_x), &source, &mut columns);
    });
}

/// Fits all that wait in the columns.
fn some<R: Real>(
    block: &mut Block<R>,
    whole: &Whole,
    (model, shared_x): (&LaneModel<R>, &[R]),
    source: &Source<'_>,
    columns: &mut WholeColumns<'_>,
) {
    let mut next = 0;
    let mut fits: [Option<usize>; LANES] = [None; LANES];
    let mut fill = |block: &mut Block<R>, l: usize, columns: &WholeColumns<'_>| {
        let waiting = (next..columns.status.len()).find(|&i| columns.status[i] == WAITING);
        next = waiting.map_or(columns.status.len(), |i| i + 1);
        match waiting {
            Some(index) => load(block, l, source, columns, index),
            None => block.status.0[l] = R::ZERO,
        }
        waiting
    };
    for (l, fit) in fits.iter_mut().enumerate() {
        *fit = fill(block, l, columns);
    }
    while fits.iter().any(Option::is_some) {
        block.linearise(whole, model, shared_x);
        block.step(whole);
        let running = block.status.0.map(|status| status == R::of(RUNNING));
        let ended = running.iter().zip(&fits).any(|(running, fit)| fit.is_some() && !running);
        if ended && matches!(whole.model, WholeModel::Double(_)) {
            block.variances(whole, model, shared_x);
        }
        for (l, fit) in fits.iter_mut().enumerate() {
            if let (Some(index), false) = (*fit, running[l]) {
                unload(block, l, whole, columns, index);
                *fit = fill(block, l, columns);
            }
        }
    }
}
