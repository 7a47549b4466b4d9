//! Curves on their way through small fits, in flat memory: f32 on the device, then f64 on the host, for columns; f64
//! alone for `fit`, whose polish begins where they end. `cpu/lanes/doubt.rs`, and on a GPU the end of
//! `shaders/small.wgsl`, say which fits may end in f32, by a bound on the rounding of the formula
//! (`formula/rounding.rs`).

mod bounds;
mod ends;
mod starts;

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use self::bounds::{bounds, bounds_of, free};
use self::ends::{put_ends, resume};
use crate::cpu::CpuDevice;
use crate::curves::input::data::{Curve, Curves, Grid, Prior, has_squares};
use crate::curves::input::sizes::sizes;
use crate::curves::routes::route::SmallFits;
use crate::curves::watch::Watch;
use crate::curves::{CurveColumns, CurveRun};
use crate::device::verify::sample_successes;
use crate::error::Result;
use crate::flag::Flags;
use crate::formula::{Elementary, Formula};
use crate::solver::small::{
    AddUp, GaussianPrior, SmallBatch, SmallColumns, SmallFitter, SmallModel, SmallProblem, WAITING,
};
use crate::solver::{Device as _, LevenbergMarquardt, Status};
use crate::threads;

/// Number of fits that go to a GPU together, and of those that it makes at a time: the next ones are sent meanwhile.
const CHUNK: usize = 1 << 17;
const AT_A_TIME: usize = 1 << 15;
/// Number of fits that one thread takes through both precisions, so that their data stay in its cache.
const TASK: usize = 2048;
/// Length of the next step, as a share of the errors, at which a fit ends.
const ACCURACY: f64 = 3e-4;
/// Share of the solver's `ftol` to which fits are brought that are to be polished. Where f64 does not hold such steps,
/// rounding ends the fits.
const FINEST: f64 = 1e-10;

/// Curves on their way through small fits in f32 and f64.
pub(crate) struct Passage<'a> {
    fitter: &'a CurveRun,
    curves: &'a Curves<'a>,
    points: usize,
    /// (predictors, points), if all curves share them; else empty.
    x: Cow<'a, [f64]>,
    parameters: usize,
    predictors: usize,
    formula: &'a Formula,
    settings: LevenbergMarquardt,
    /// True if fits run in f64 alone, to the solver's own tolerances; otherwise they end at a share of their errors.
    exact: bool,
}

/// Some rows of the results.
struct Rows<'a> {
    /// (rows, P)
    parameters: &'a mut [f64],
    /// (rows, P): variances until the end.
    errors: &'a mut [f64],
    chi2: &'a mut [f64],
    status: &'a mut [Status],
    rounds: &'a mut [u32],
    evaluations: &'a mut [u32],
    flags: &'a mut [Flags],
}

/// Small fits in f32, where the device has them, and in f64, on the host.
struct Precisions {
    single: Option<Box<dyn SmallFitter>>,
    double: Option<Box<dyn SmallFitter>>,
    widened: Widened,
}

/// Memory for inputs of some curves: f32 widened to f64, and rows that hold for all.
#[derive(Default)]
struct Widened {
    x: Vec<f64>,
    sigma: Vec<f64>,
    starts: Vec<f64>,
}

impl<'a> Passage<'a> {
    /// Makes the fitter of small curves of a formula, which fits them many at once, in f32 (unless `exact`) and then in
    /// f64.
    pub fn new(
        fitter: &'a CurveRun,
        curves: &'a Curves<'a>,
        points: usize,
        small: SmallFits<'a>,
        exact: bool,
    ) -> Passage<'a> {
        let SmallFits { formula, settings } = small;
        let (parameters, predictors) = (formula.parameters().len(), formula.predictors().len());
        let x = if curves.grid == Grid::Shared { curves.x.to_double() } else { Cow::default() };
        Passage { fitter, curves, points, x, parameters, predictors, formula, settings, exact }
    }

    /// Builds the solvers for up to `capacity` curves at once, without running them: in f64, and in f32 unless the fits
    /// are exact.
    fn precisions(&self, capacity: usize) -> Result<Precisions> {
        let single =
            || self.problem(capacity.min(AT_A_TIME), SmallModel::Single(self.formula.lanes(), self.lane_sums()));
        let double = self.problem(capacity, SmallModel::Double(self.formula.lanes(), self.lane_sums()));
        let single = match self.exact {
            true => None,
            false => match self.fitter.device.inner.small_fitter(single())? {
                Some(fits) => Some(fits),
                None => CpuDevice.small_fitter(single())?,
            },
        };
        Ok(Precisions { single, double: CpuDevice.small_fitter(double)?, widened: Widened::default() })
    }

    /// Describes fits of a model to the device that makes them: sizes, settings, tolerances and priors.
    fn problem(&self, capacity: usize, model: SmallModel) -> SmallProblem {
        // a squared step in units of the errors is its predicted reduction over χ² / dof, or over 1
        let (tolerance, largest_cost) = match (self.exact, self.fitter.is_scaled()) {
            (true, _) => (self.settings.ftol * self.finest(), f64::INFINITY),
            (false, true) => (ACCURACY * ACCURACY / self.points as f64, f64::INFINITY),
            (false, false) => (ACCURACY * ACCURACY / self.points as f64, self.points as f64),
        };
        let gaussian = |(parameter, prior): (usize, &Option<Prior>)| {
            prior.map(|prior| GaussianPrior { parameter, mean: prior.mean, weight: 1.0 / prior.sigma })
        };
        let is_shared = self.curves.grid == Grid::Shared;
        let is_held_by_f32 = is_shared && self.x.iter().all(|x| f64::from(*x as f32) == *x);
        SmallProblem {
            capacity,
            parameters: self.parameters,
            predictors: self.predictors,
            points: self.points,
            model,
            wgsl: self.formula.wgsl(true).to_owned(),
            ends_in_ones: self.formula.ends_in_ones(),
            settings: self.settings,
            tolerance,
            largest_cost,
            estimator: self.fitter.estimator,
            priors: self.fitter.priors.iter().enumerate().filter_map(gaussian).collect(),
            rounding: self.formula.rounding(is_held_by_f32),
        }
    }

    /// Returns the function that adds up the normal equations without storing residuals and derivatives; `None` where
    /// the formula has none for a shared grid.
    fn lane_sums<R: Elementary>(&self) -> Option<AddUp<R>> {
        if self.curves.grid == Grid::Own {
            return None;
        }
        self.formula.lane_sums(&self.x.iter().map(|x| R::of(*x)).collect::<Vec<R>>())
    }

    /// Returns the factor, at most 1, on `ftol` in exact fits: a few rounds more cost less here than in the polish.
    fn finest(&self) -> f64 {
        let quick = self.fitter.estimator.is_least_squares();
        if self.fitter.polish && quick { FINEST } else { 1.0 }
    }

    /// Fits all curves, in parts, and writes their results into the columns. On the CPU each thread takes some from
    /// start to end; a GPU takes many together.
    pub fn run(&self, columns: &mut CurveColumns, watch: &Watch) -> Result<()> {
        let here = !self.fitter.device.inner.runs_wgsl();
        let (p, most) = (self.parameters, if here { TASK } else { CHUNK });
        let total = columns.chi2.len();
        let wide = columns.parameters.chunks_mut(most * p).zip(columns.errors.chunks_mut(most * p));
        let narrow = columns.chi2.chunks_mut(most).zip(columns.status.chunks_mut(most));
        let ends = columns.rounds.chunks_mut(most).zip(columns.evaluations.chunks_mut(most));
        let ends = ends.zip(columns.flags.chunks_mut(most));
        let parts = wide.zip(narrow).zip(ends).enumerate();
        let parts = parts.map(|(k, (((parameters, errors), (chi2, status)), ((rounds, evaluations), flags)))| {
            (k * most, Rows { parameters, errors, chi2, status, rounds, evaluations, flags })
        });
        let capacity = most.min(total);
        if here {
            let (parts, pool) = (parts.collect::<Vec<_>>(), Mutex::new(Vec::new()));
            let known = || pool.lock().unwrap_or_else(PoisonError::into_inner);
            let fit = |(first, some)| {
                if watch.is_stopped() {
                    self.leave_at_starts(first, some);
                    return Ok(());
                }
                let last = known().pop();
                let mut precisions = last.map_or_else(|| self.precisions(capacity), Ok)?;
                self.fit_part(first, &mut precisions, some, watch)?;
                known().push(precisions);
                Ok(())
            };
            return threads::in_pool(|| parts.into_par_iter().try_for_each(fit));
        }
        let mut precisions = self.precisions(capacity)?;
        for (first, some) in parts {
            match watch.is_stopped() {
                true => self.leave_at_starts(first, some),
                false => self.fit_part(first, &mut precisions, some, watch)?,
            }
        }
        Ok(())
    }

    /// Writes the rows of curves that stay at their starts because the run has been stopped.
    fn leave_at_starts(&self, first: usize, rows: Rows<'_>) {
        let (p, count) = (self.parameters, rows.chi2.len());
        rows.parameters.copy_from_slice(self.curves.starts_of(first..first + count, p, &mut Vec::new()));
        rows.errors.fill(f64::NAN);
        rows.chi2.fill(f64::NAN);
        rows.status.fill(Status::Interrupted);
        rows.rounds.fill(0);
        rows.evaluations.fill(0);
        rows.flags.fill(Flags::empty());
    }

    /// Fits the curves from number `first` on that have places in `rows`, and writes their results there.
    fn fit_part(&self, first: usize, precisions: &mut Precisions, mut rows: Rows<'_>, watch: &Watch) -> Result<()> {
        // 1. Gather the data of these curves, and the memory of their results.
        let (p, points, count) = (self.parameters, self.points, rows.chi2.len());
        let (mut promises, mut codes, mut rounds) = (vec![f64::NAN; count], vec![WAITING; count], vec![0; count]);
        let columns = &mut SmallColumns {
            parameters: rows.parameters,
            variances: rows.errors,
            chi2: rows.chi2,
            promises: &mut promises,
            status: &mut codes,
            rounds: &mut rounds,
        };
        let last = first + count;
        let of_fit = self.predictors * points;
        let Precisions { single, double, widened } = precisions;
        let curves = self.curves;
        let masked = curves.masked(first..last, points);
        let y = curves.y.slice(first * points..last * points);
        let starts = curves.starts_of(first..last, p, &mut widened.starts);
        let sizes = sizes(y, points);
        let prepared = threads::in_pool(|| self.prepare(first..last, &sizes, starts));
        let bounds = bounds(self.fitter, curves, first..last, starts);
        let batch = SmallBatch {
            x: match curves.grid {
                Grid::Shared => &self.x,
                Grid::Own => curves.x.part(first * of_fit..last * of_fit, &mut widened.x),
            },
            own_grid: curves.grid == Grid::Own,
            y,
            sigma: curves.sigmas_of(first..last, points, &mut widened.sigma),
            mask: masked.as_deref(),
            starts: prepared.as_ref().map_or(starts, |(starts, _)| starts),
            units: prepared.as_ref().map(|(_, units)| &units[..]),
            bounds: bounds.as_ref().map(|(lower, upper)| (&lower[..], &upper[..])),
        };
        // 2. Fit in f32, if there is such a precision, and then in f64.
        threads::in_pool(|| self.begin(&batch, &sizes, columns));
        if let Some(single) = single {
            single.fit(&batch, columns)?;
            self.spot_check(first, single.together(), columns)?;
            threads::in_pool(|| resume(&batch, p, columns));
        }
        if let Some(double) = double {
            double.fit(&batch, columns)?;
        }
        // 3. Compute errors, statuses and flags.
        threads::in_pool(|| self.finish(first, &batch, &sizes, columns));
        put_ends(&mut rows, &codes, &rounds);
        self.set_flags(&batch, &mut rows);
        // the others are fitted again, one by one
        if !self.exact {
            watch.add(rows.status.iter().filter(|s| s.is_success() || **s == Status::BadInput).count());
        }
        Ok(())
    }

    /// Returns curve `index` with its data as [`fit`](crate::CurveFitter::fit) fits it; `None` where it cannot be
    /// fitted.
    fn curve(&self, index: usize) -> Option<Curve> {
        self.curves.curve(index, self.points, &self.fitter.settings()).ok()
    }

    /// Sets all fits of a batch to their starts, without variances, and marks those that cannot be fitted as bad
    /// inputs. Bad inputs get NaN.
    fn begin(&self, batch: &SmallBatch<'_>, sizes: &[f64], columns: &mut SmallColumns<'_>) {
        let (p, points) = (self.parameters, self.points);
        let bad_x: Vec<usize> = match batch.own_grid {
            true => Vec::new(),
            false => (0..batch.x.len()).filter(|&i| !batch.x[i].is_finite()).map(|i| i % points).collect(),
        };
        let own = batch.mask.is_some() || batch.sigma.is_some() || batch.own_grid || batch.bounds.is_some();
        let alike = !own && !self.fitter.estimator.takes_counts() && bad_x.is_empty() && p <= points;
        columns.rounds.fill(0);
        columns.parameters.copy_from_slice(batch.starts);
        // what was here before may be another fit's; a number would say that f32 has left it
        columns.variances.fill(f64::NAN);
        columns.status.fill(WAITING);
        // loops without an early exit are vector code: as a rule all are good
        if alike
            && sizes.iter().fold(true, |all, size| all & has_squares(*size))
            && batch.starts.iter().fold(true, |all, x| all & x.is_finite())
        {
            return;
        }
        let fits = columns.status.par_iter_mut().zip(columns.chi2.par_iter_mut());
        let fits = fits.zip(columns.parameters.par_chunks_mut(p)).enumerate();
        fits.with_min_len(TASK).for_each(|(k, ((status, chi2), parameters))| {
            // where nothing else is a fit's own, most need no longer look
            let finite = has_squares(sizes[k]) && parameters.iter().all(|x| x.is_finite());
            let is_good = alike && finite || self.is_good(batch, k, sizes[k].is_finite(), &bad_x);
            if !is_good {
                *status = Status::BadInput.code() as i8;
                *chi2 = f64::NAN;
                parameters.fill(f64::NAN);
            }
        });
    }

    /// Returns whether curve `k` of the batch can be fitted; false for the bad inputs of
    /// [`fit`](crate::CurveFitter::fit). `all_finite`: all of its y are finite. `bad_x`: points of the shared grid that
    /// are not finite.
    fn is_good(&self, batch: &SmallBatch<'_>, k: usize, all_finite: bool, bad_x: &[usize]) -> bool {
        let (p, points) = (self.parameters, self.points);
        let counts = |j: usize| batch.mask.is_none_or(|mask| !mask[k * points + j]);
        let y = |j: usize| batch.y.get(k * points + j);
        let starts = &batch.starts[k * p..(k + 1) * p];
        let counted = self.fitter.estimator.takes_counts();
        let mut good = all_finite || (0..points).all(|j| y(j).is_finite() || !counts(j));
        good &= !counted || (0..points).all(|j| y(j) >= 0.0 || !counts(j));
        // of nothing at all there is no optimum
        good &= !counted || (0..points).any(|j| y(j) > 0.0 && counts(j));
        good &= bad_x.iter().all(|j| !counts(*j));
        if let Some(sigma) = batch.sigma {
            let of_fit = &sigma[k * points..(k + 1) * points];
            good &= of_fit.iter().enumerate().all(|(j, s)| (*s > 0.0 && s.is_finite()) || !counts(j));
        }
        if batch.own_grid {
            let length = self.predictors * points;
            let x = &batch.x[k * length..(k + 1) * length];
            good &= x.iter().enumerate().all(|(i, x)| x.is_finite() || !counts(i % points));
        }
        let (lower, upper) = bounds_of(batch, k, p);
        let inside = |q: usize| lower.is_empty() || (lower[q] <= starts[q] && starts[q] <= upper[q]);
        good &= (0..p).all(|q| starts[q].is_finite() && inside(q));
        let sigma = |j: usize| batch.sigma.map_or(1.0, |sigma| sigma[k * points + j]);
        let sizes = (0..points).filter(|j| counts(*j)).map(|j| (y(j) / sigma(j)).abs());
        good &= has_squares(sizes.fold(0.0, f64::max));
        let used = self.used(batch, k);
        let is_free = |q: &usize| lower.is_empty() || lower[*q] < upper[*q];
        let priors = (0..p).filter(is_free).filter(|q| self.fitter.priors[*q].is_some()).count();
        good && used > 0 && free(lower, upper, p) <= used + priors
    }

    /// Returns the number of points of fit `k` that are not masked.
    fn used(&self, batch: &SmallBatch<'_>, k: usize) -> usize {
        let masked = |mask: &[bool]| mask[k * self.points..(k + 1) * self.points].iter().filter(|m| **m).count();
        self.points - batch.mask.map_or(0, masked)
    }

    /// Compares χ² of a sample of each `together` fits of a GPU with the host's; returns an error if one differs.
    fn spot_check(&self, first: usize, together: Option<usize>, columns: &SmallColumns<'_>) -> Result<()> {
        let Some(together) = together else { return Ok(()) };
        let (p, status) = (self.parameters, |k: usize| Status::from_code(columns.status[k].into()));
        let fitted: Vec<usize> = (0..columns.status.len()).filter(|&k| status(k) != Some(Status::BadInput)).collect();
        for some in fitted.chunks(together) {
            for k in sample_successes(some.iter().copied(), status) {
                if let Some(curve) = self.curve(first + k) {
                    self.fitter.check_cost(&curve, &columns.parameters[k * p..(k + 1) * p], columns.chi2[k])?;
                }
            }
        }
        Ok(())
    }
}
