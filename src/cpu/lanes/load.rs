//! Fits into lanes and out of them, several at once: lanes of a row lie side by side, those of a fit do not.

use super::block::{Block, RUNNING};
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes, pick};
use crate::math::triangle::pair_index;
use crate::solver::small::{GaussianPrior, Numbers, SmallBatch, SmallColumns, SmallProblem, unit};

/// The fits of the columns at hand.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub batch: SmallBatch<'a>,
    /// (fits, P): powers of two.
    pub units: &'a [f64],
    pub problem: &'a SmallProblem,
}

/// A lane, and the fit of the columns that is in it.
#[derive(Clone, Copy)]
pub struct Seat {
    pub lane: usize,
    pub fit: usize,
}

/// Lanes that have fits.
#[derive(Clone, Copy)]
pub struct Seated<'a> {
    /// A bit per lane.
    pub lanes: u64,
    /// (lanes): the fit of the columns in each of these.
    pub fits: &'a [usize; LANES],
}

/// Returns 1 / x of a power of two without a division, by reflecting its exponent about the bias.
fn inverse(x: f64) -> f64 {
    f64::from_bits((2046 << 52) - x.to_bits())
}

/// The damping of a fit that another precision has brought near its end.
const CONTINUED_DAMPING: f64 = 1e-9;

/// Writes successive numbers into the same lane of successive rows.
#[inline(always)]
fn put<R: Real>(rows: &mut [Lanes<R>], lane: usize, values: impl Iterator<Item = R>) {
    // a remainder, which needs no check
    rows.iter_mut()
        .zip(values)
        .for_each(|(row, x)| row.0[lane % LANES] = x);
}

/// Copies the numbers of each seat's fit from `values` (fits, rows) into its lane.
pub fn fill<R: Real, T: Into<f64> + Copy>(rows: &mut [Lanes<R>], seats: &[Seat], values: &[T]) {
    let count = rows.len();
    for &Seat { lane: l, fit: k } in seats {
        put(
            rows,
            l,
            values[k * count..][..count]
                .iter()
                .map(|x| R::of((*x).into())),
        );
    }
}

/// Writes the weights 1/σ of each seat's fit (0 where masked) into its lane; nothing where `rows` is empty.
pub fn fill_weights<R: Real>(rows: &mut [Lanes<R>], seats: &[Seat], source: &Source<'_>) {
    let (points, batch) = (rows.len(), &source.batch);
    for &Seat { lane: l, fit: k } in seats {
        let first = k * points;
        for (j, row) in rows.iter_mut().enumerate() {
            let masked = batch.mask.is_some_and(|mask| mask[first + j]);
            let sigma = batch.sigma.map_or(1.0, |sigma| sigma[first + j]);
            row.0[l % LANES] = if masked { R::ZERO } else { R::of(1.0 / sigma) };
        }
    }
}

/// Writes the scales of the fits' parameters (powers of two near the starts, or those given) into `out`, (fits, P).
pub fn units(batch: &SmallBatch<'_>, out: &mut Vec<f64>) {
    out.clear();
    match batch.units {
        Some(units) => out.extend_from_slice(units),
        None => {
            out.extend_from_slice(batch.starts);
            pulp::Arch::new().dispatch(|| out.iter_mut().for_each(|x| *x = unit(*x)));
        }
    }
}

/// Copies data, starting points, bounds and solver state of the seats' fits into their lanes of a block. Not in a
/// `pulp` dispatch, where compilers take to scattering stores, which are slow.
pub fn load<R: Real>(
    block: &mut Block<R>,
    seats: &[Seat],
    source: &Source<'_>,
    columns: &SmallColumns<'_>,
) {
    let (count, batch) = (block.parameters, &source.batch);
    match batch.y {
        Numbers::Double(y) => fill(&mut block.y, seats, y),
        Numbers::Single(y) => fill(&mut block.y, seats, y),
    }
    fill(&mut block.x, seats, batch.x);
    fill_weights(&mut block.weight, seats, source);
    for &Seat { lane: l, fit: k } in seats {
        // without the sign of 0, which what is chosen on the way may lose
        put(
            &mut block.trial,
            l,
            columns.parameters[k * count..][..count]
                .iter()
                .map(|x| R::of(*x) + R::ZERO),
        );
        let units = &source.units[k * count..][..count];
        let both = block.unit.iter_mut().zip(&mut block.per_unit).zip(units);
        both.for_each(|((unit, per_unit), x)| {
            (unit.0[l % LANES], per_unit.0[l % LANES]) = (R::of(*x), R::of(inverse(*x)))
        });
    }
    if let (Some((lower, upper)), false) = (batch.bounds, block.lower.is_empty()) {
        for &Seat { lane: l, fit: k } in seats {
            let own = if lower.len() == count {
                0..count
            } else {
                k * count..(k + 1) * count
            };
            put(
                &mut block.lower,
                l,
                lower[own.clone()].iter().map(|x| R::of(*x) + R::ZERO),
            );
            put(
                &mut block.upper,
                l,
                upper[own].iter().map(|x| R::of(*x) + R::ZERO),
            );
        }
    }
    block.start(seats, source, columns);
}

impl<R: Real> Block<R> {
    /// Resets damping, counters and status in the lanes of fits that begin, or go on from another precision.
    fn start(&mut self, seats: &[Seat], source: &Source<'_>, columns: &SmallColumns<'_>) {
        let settings = &source.problem.settings;
        // f32, which alone comes before f64, takes at most `max_rounds`: a budget of twice that is never spent
        let may_be_spent = source.problem.budget < settings.max_rounds.saturating_mul(2);
        for &Seat { lane: l, fit: k } in seats {
            let (l, promise) = (l % LANES, columns.promises[k]);
            let continued = promise > 0.0;
            self.mu.0[l] = R::of(if continued {
                CONTINUED_DAMPING
            } else {
                settings.initial_damping
            });
            self.nu.0[l] = R::of(2.0);
            self.floor.0[l] = R::of(if continued {
                0.0
            } else {
                settings.diagonal_floor
            });
            self.promise.0[l] = R::of(promise);
            (self.rounds.0[l], self.rejections.0[l]) = (R::ZERO, R::ZERO);
            if may_be_spent {
                let left = source
                    .problem
                    .budget
                    .saturating_sub(columns.rounds[k].into());
                self.most_rounds.0[l] = R::of(settings.max_rounds.min(left).into());
            }
            self.status.0[l] = R::of(RUNNING);
        }
    }
}

/// Writes the correlations in lane `l` below the diagonal of a fit's matrix (P, P): NaN where a variance (P) is.
pub fn put_correlations<R: Real>(
    lanes: &[Lanes<R>],
    l: usize,
    variances: &[f64],
    matrix: &mut [f64],
) {
    let count = variances.len();
    for p in 1..count {
        for q in 0..p {
            let is_lost = variances[p].is_nan() | variances[q].is_nan();
            matrix[p * count + q] = pick(
                is_lost,
                f64::NAN,
                lanes[pair_index(p, q)].0[l % LANES].to_f64(),
            );
        }
    }
}

/// Writes the results in the seats' lanes to their fits' columns; variances and correlations from f64 blocks in which
/// fits end.
pub fn unload<R: Real>(
    block: &Block<R>,
    seats: &[Seat],
    problem: &SmallProblem,
    columns: &mut SmallColumns<'_>,
) {
    // f32 is followed by f64, or by `Doubts`, and rough derivatives by others
    let variances = size_of::<R>() == 8 && block.ends;
    let count = block.parameters;
    for &Seat { lane: l, fit: k } in seats {
        let l = l % LANES;
        let own = &mut columns.parameters[k * count..][..count];
        own.iter_mut()
            .zip(&block.accepted)
            .for_each(|(to, x)| *to = x.0[l].to_f64());
        if !variances {
            continue;
        }
        for (p, to) in columns.variances[k * count..][..count]
            .iter_mut()
            .enumerate()
        {
            let held = !block.lower.is_empty() && block.lower[p].0[l] == block.upper[p].0[l];
            let at_bound = block.free[p].0[l] == R::ZERO;
            let inside = pick(at_bound, f64::NAN, block.delta[p].0[l].to_f64());
            *to = pick(held, 0.0, inside);
        }
        let SmallColumns {
            variances,
            correlations,
            ..
        } = &mut *columns;
        if let Some(all) = correlations {
            let variances = &variances[k * count..][..count];
            put_correlations(
                &block.correlations,
                l,
                variances,
                &mut all[k * count * count..][..count * count],
            );
        }
    }
    for &Seat { lane: l, fit: k } in seats {
        let residual = |prior: &GaussianPrior| {
            (prior.mean - block.accepted[prior.parameter].0[l].to_f64()) * prior.weight
        };
        let penalty = |prior: &GaussianPrior| residual(prior).powi(2);
        columns.chi2[k] =
            block.sums[0].0[l].to_f64() - problem.priors.iter().map(penalty).sum::<f64>();
        columns.promises[k] = block.promise.0[l].to_f64();
        columns.status[k] = block.status.0[l].to_f64() as i8;
        columns.rounds[k] = columns.rounds[k].saturating_add(block.rounds.0[l].to_f64() as u16);
    }
}
