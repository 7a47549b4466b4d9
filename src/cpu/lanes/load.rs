//! Copies of fits into lanes and out of them, several at once. The lanes of a row are adjacent in memory; the numbers
//! of a fit are not.

use super::block::{FitBlock, RUNNING_LANE_STATUS};
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes, pick};
use crate::math::triangle::pair_index;
use crate::solver::small::{GaussianPrior, Numbers, SmallBatch, SmallColumns, SmallProblem, unit};

/// The fits of the present columns.
#[derive(Clone, Copy)]
pub struct FitSource<'a> {
    pub batch: SmallBatch<'a>,
    /// (fits, P): powers of two in which parameters are measured.
    pub units: &'a [f64],
    pub problem: &'a SmallProblem,
}

/// A lane, and the index in the columns of the fit that is in it.
#[derive(Clone, Copy)]
pub struct LaneSeat {
    pub lane: usize,
    pub fit: usize,
}

/// The lanes that have fits.
#[derive(Clone, Copy)]
pub struct SeatedLanes<'a> {
    /// Bit mask of the lanes that have fits.
    pub lanes: u64,
    /// (lanes): index in the columns of the fit in each of these lanes.
    pub fits: &'a [usize; LANES],
}

/// Returns 1 / x of a power of two without a division, by reflecting its exponent about the bias.
fn inverse_power_of_two(x: f64) -> f64 {
    f64::from_bits((2046 << 52) - x.to_bits())
}

/// Initial damping of a fit that another precision has brought near its end.
const CONTINUED_DAMPING: f64 = 1e-9;

/// Writes successive numbers into the same lane of successive rows.
#[inline(always)]
fn write_lane<R: Real>(rows: &mut [Lanes<R>], lane: usize, values: impl Iterator<Item = R>) {
    // The index is a remainder, so that it needs no check.
    rows.iter_mut()
        .zip(values)
        .for_each(|(row, x)| row.0[lane % LANES] = x);
}

/// Copies the numbers of each seat's fit from `values` (fits, rows) into its lane.
fn copy_to_lanes<R: Real, T: Into<f64> + Copy>(
    rows: &mut [Lanes<R>],
    seats: &[LaneSeat],
    values: &[T],
) {
    let count = rows.len();
    for &LaneSeat { lane: l, fit: k } in seats {
        write_lane(
            rows,
            l,
            values[k * count..][..count]
                .iter()
                .map(|x| R::of((*x).into())),
        );
    }
}

/// Writes the weights 1/σ of each seat's fit (0 where masked) into its lane; nothing where `rows` is empty.
fn copy_weights<R: Real>(rows: &mut [Lanes<R>], seats: &[LaneSeat], source: &FitSource<'_>) {
    let points = rows.len();
    let batch = &source.batch;
    for &LaneSeat { lane: l, fit: k } in seats {
        let first = k * points;
        for (j, row) in rows.iter_mut().enumerate() {
            let masked = batch.mask.is_some_and(|mask| mask[first + j]);
            let sigma = batch.sigma.map_or(1.0, |sigma| sigma[first + j]);
            row.0[l % LANES] = if masked { R::ZERO } else { R::of(1.0 / sigma) };
        }
    }
}

/// Writes the scales of the fits' parameters (powers of two near the starts, or those that the batch has) into
/// `chosen`, (fits, P).
pub fn choose_units(batch: &SmallBatch<'_>, chosen: &mut Vec<f64>) {
    chosen.clear();
    match batch.units {
        Some(units) => chosen.extend_from_slice(units),
        None => {
            chosen.extend_from_slice(batch.starts);
            pulp::Arch::new().dispatch(|| chosen.iter_mut().for_each(|x| *x = unit(*x)));
        }
    }
}

/// Copies data, starting points, bounds and solver state of the seats' fits into their lanes of a block. This is
/// not done in a `pulp` dispatch, where compilers use scattering stores, which are slow.
pub fn load_fits<R: Real>(
    block: &mut FitBlock<R>,
    seats: &[LaneSeat],
    source: &FitSource<'_>,
    columns: &SmallColumns<'_>,
) {
    let count = block.parameters;
    let batch = &source.batch;
    match batch.y {
        Numbers::Double(y) => copy_to_lanes(&mut block.y, seats, y),
        Numbers::Single(y) => copy_to_lanes(&mut block.y, seats, y),
    }
    copy_to_lanes(&mut block.x, seats, batch.x);
    copy_weights(&mut block.weight, seats, source);
    for &LaneSeat { lane: l, fit: k } in seats {
        // Adding 0 removes the sign of −0, which `replace_if` may or may not keep.
        write_lane(
            &mut block.trial,
            l,
            columns.parameters[k * count..][..count]
                .iter()
                .map(|x| R::of(*x) + R::ZERO),
        );
        let units = &source.units[k * count..][..count];
        let unit_pairs = block
            .unit
            .iter_mut()
            .zip(&mut block.inverse_unit)
            .zip(units);
        unit_pairs.for_each(|((unit, per_unit), x)| {
            (unit.0[l % LANES], per_unit.0[l % LANES]) =
                (R::of(*x), R::of(inverse_power_of_two(*x)))
        });
    }
    if let (Some((lower, upper)), false) = (batch.bounds, block.lower.is_empty()) {
        for &LaneSeat { lane: l, fit: k } in seats {
            let range = if lower.len() == count {
                0..count
            } else {
                k * count..(k + 1) * count
            };
            write_lane(
                &mut block.lower,
                l,
                lower[range.clone()].iter().map(|x| R::of(*x) + R::ZERO),
            );
            write_lane(
                &mut block.upper,
                l,
                upper[range].iter().map(|x| R::of(*x) + R::ZERO),
            );
        }
    }
    block.reset_solver_state(seats, source, columns);
}

impl<R: Real> FitBlock<R> {
    /// Resets damping, counters and status in the lanes of fits that begin, or are continued from another precision.
    fn reset_solver_state(
        &mut self,
        seats: &[LaneSeat],
        source: &FitSource<'_>,
        columns: &SmallColumns<'_>,
    ) {
        let settings = &source.problem.settings;
        // Only f32 comes before f64, and takes at most `max_rounds`, so a budget of twice that is never spent.
        let may_be_spent = source.problem.budget < settings.max_rounds.saturating_mul(2);
        for &LaneSeat { lane: l, fit: k } in seats {
            let l = l % LANES;
            let reduction_before = columns.predicted_reductions[k];
            let is_continued = reduction_before > 0.0;
            self.mu.0[l] = R::of(if is_continued {
                CONTINUED_DAMPING
            } else {
                settings.initial_damping
            });
            self.nu.0[l] = R::of(2.0);
            self.diagonal_floor.0[l] = R::of(if is_continued {
                0.0
            } else {
                settings.diagonal_floor
            });
            self.predicted_reduction.0[l] = R::of(reduction_before);
            self.rounds.0[l] = R::ZERO;
            self.rejections.0[l] = R::ZERO;
            if may_be_spent {
                let remaining = source
                    .problem
                    .budget
                    .saturating_sub(columns.rounds[k].into());
                self.max_rounds.0[l] = R::of(settings.max_rounds.min(remaining).into());
            }
            self.status.0[l] = R::of(RUNNING_LANE_STATUS);
        }
    }
}

/// Copies the correlations in lane `l` to the lower triangle of a fit's matrix (P, P): NaN where a variance (P) is NaN.
fn copy_correlations<R: Real>(lanes: &[Lanes<R>], l: usize, variances: &[f64], matrix: &mut [f64]) {
    let count = variances.len();
    for p in 1..count {
        for q in 0..p {
            let is_undefined = variances[p].is_nan() | variances[q].is_nan();
            matrix[p * count + q] = pick(
                is_undefined,
                f64::NAN,
                lanes[pair_index(p, q)].0[l % LANES].to_f64(),
            );
        }
    }
}

/// Writes the results in the seats' lanes to their fits' columns; variances and correlations from blocks in which fits
/// end.
pub fn unload_fits<R: Real>(
    block: &FitBlock<R>,
    seats: &[LaneSeat],
    problem: &SmallProblem,
    columns: &mut SmallColumns<'_>,
) {
    let count = block.parameters;
    for &LaneSeat { lane: l, fit: k } in seats {
        let l = l % LANES;
        // 1. The parameters.
        let parameters = &mut columns.parameters[k * count..][..count];
        parameters
            .iter_mut()
            .zip(&block.accepted)
            .for_each(|(target, x)| *target = x.0[l].to_f64());
        if !block.may_end {
            continue;
        }
        // 2. The variances: 0 of held parameters, NaN of those at a bound.
        for (p, variance) in columns.variances[k * count..][..count]
            .iter_mut()
            .enumerate()
        {
            let is_held = !block.lower.is_empty() && block.lower[p].0[l] == block.upper[p].0[l];
            let is_at_bound = block.is_free[p].0[l] == R::ZERO;
            let variance_inside = pick(is_at_bound, f64::NAN, block.delta[p].0[l].to_f64());
            *variance = pick(is_held, 0.0, variance_inside);
        }
        let SmallColumns {
            variances,
            correlations,
            ..
        } = &mut *columns;
        // 3. The correlations, if they are asked for.
        if let Some(matrices) = correlations {
            let variances = &variances[k * count..][..count];
            copy_correlations(
                &block.correlations,
                l,
                variances,
                &mut matrices[k * count * count..][..count * count],
            );
        }
    }
    // 4. χ² without the priors' penalties, and the state of the solver.
    for &LaneSeat { lane: l, fit: k } in seats {
        let residual = |prior: &GaussianPrior| {
            (prior.mean - block.accepted[prior.parameter].0[l].to_f64()) * prior.weight
        };
        let penalty = |prior: &GaussianPrior| residual(prior).powi(2);
        columns.chi2[k] =
            block.sums[0].0[l].to_f64() - problem.priors.iter().map(penalty).sum::<f64>();
        columns.predicted_reductions[k] = block.predicted_reduction.0[l].to_f64();
        columns.status[k] = block.status.0[l].to_f64() as i8;
        columns.rounds[k] = columns.rounds[k].saturating_add(block.rounds.0[l].to_f64() as u16);
    }
}
