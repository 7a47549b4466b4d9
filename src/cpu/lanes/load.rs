//! Fits into lanes and out of them.

use super::block::{Block, RUNNING};
use super::step::pick;
use crate::rows::Real;
use crate::rows::lanes::Lanes;
use crate::solver::whole::{Whole, WholeBatch, WholeColumns};

/// A batch, and which of its fits is the first of the columns at hand.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub batch: WholeBatch<'a>,
    pub first: usize,
    pub whole: &'a Whole,
}

/// 1 / x of a power of two, without a division: its exponent turned round the bias.
fn inverse(x: f64) -> f64 {
    f64::from_bits((2046 << 52) - x.to_bits())
}

/// The damping of a fit that another precision has brought near its end.
const CONTINUED_DAMPING: f64 = 1e-9;

/// Puts fit `index` of the columns into lane `l`.
pub fn load<R: Real>(block: &mut Block<R>, l: usize, source: &Source<'_>, columns: &WholeColumns<'_>, index: usize) {
    let (points, count) = (block.points, block.parameters);
    let (fit, batch) = (source.first + index, &source.batch);
    let fill = |lanes: &mut [Lanes<R>], values: &[f64]| {
        lanes.iter_mut().zip(values).for_each(|(lane, v)| lane.0[l] = R::of(*v));
    };
    fill(&mut block.y, &batch.y[fit * points..(fit + 1) * points]);
    if !block.x.is_empty() {
        let length = block.x.len();
        fill(&mut block.x, &batch.x[fit * length..(fit + 1) * length]);
    }
    for (j, weight) in block.weight.iter_mut().enumerate() {
        let masked = batch.mask.is_some_and(|mask| mask[fit * points + j]);
        let sigma = batch.sigma.map_or(1.0, |sigma| sigma[fit * points + j]);
        weight.0[l] = if masked { R::ZERO } else { R::of(1.0 / sigma) };
    }
    let begin = &columns.parameters[index * count..(index + 1) * count];
    fill(&mut block.trial, begin);
    for p in 0..count {
        let unit = batch.unit(fit * count + p);
        (block.unit[p].0[l], block.per_unit[p].0[l]) = (R::of(unit), R::of(inverse(unit)));
    }
    if let (Some((lower, upper)), false) = (batch.bounds, block.lower.is_empty()) {
        let at = if lower.len() == count { 0 } else { fit * count };
        fill(&mut block.lower, &lower[at..at + count]);
        fill(&mut block.upper, &upper[at..at + count]);
    }
    let promise = columns.promises[index];
    let continued = promise > 0.0;
    block.mu.0[l] = R::of(if continued { CONTINUED_DAMPING } else { source.whole.settings.initial_damping });
    block.nu.0[l] = R::of(2.0);
    block.floor.0[l] = R::of(if continued { 0.0 } else { source.whole.settings.diagonal_floor });
    block.promise.0[l] = R::of(promise);
    (block.rounds.0[l], block.rejections.0[l]) = (R::ZERO, R::ZERO);
    block.status.0[l] = R::of(RUNNING);
}

/// Writes lane `l` as fit `index` of the columns; its variances, if the block has just computed them.
pub fn unload<R: Real>(block: &Block<R>, l: usize, whole: &Whole, columns: &mut WholeColumns<'_>, index: usize) {
    // f32 is followed by f64, which has them
    let variances = size_of::<R>() == 8;
    let count = block.parameters;
    for p in 0..count {
        columns.parameters[index * count + p] = block.accepted[p].0[l].to_f64();
        if variances {
            let held = !block.lower.is_empty() && block.lower[p].0[l] == block.upper[p].0[l];
            let at_bound = block.free[p].0[l] == R::ZERO;
            let inside = pick(at_bound, f64::NAN, block.delta[p].0[l].to_f64());
            columns.variances[index * count + p] = pick(held, 0.0, inside);
        }
    }
    let penalty = |&(p, mean, weight): &(usize, f64, f64)| ((mean - block.accepted[p].0[l].to_f64()) * weight).powi(2);
    columns.chi2[index] = block.sums[0].0[l].to_f64() - whole.priors.iter().map(penalty).sum::<f64>();
    columns.promises[index] = block.promise.0[l].to_f64();
    columns.status[index] = block.status.0[l].to_f64() as i8;
    columns.rounds[index] = columns.rounds[index].saturating_add(block.rounds.0[l].to_f64() as u16);
}
