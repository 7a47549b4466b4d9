//! Curves on their way through small fits, in flat memory and in parts: f32 on the device, then f64 on the host, for
//! columns; f64 alone for `fit`, whose polish begins where they end. `cpu/lanes/rounding_check.rs`, and on a GPU the end of
//! `shaders/small.wgsl`, say which fits may end in f32, by a bound on the rounding of the formula
//! (`formula/rounding.rs`).

mod bounds;
mod covariances;
mod ends;
mod parts;
mod starts;

use std::borrow::Cow;

use self::bounds::{bounds_of, free};
use self::parts::Parts;
use crate::cpu::small::CpuSmallFitter;
use crate::curves::input::data::{Curve, Curves, Grid, Prior};
use crate::curves::input::dominance::is_beyond_floats;
use crate::curves::input::no_counts::may_all_be_zero;
use crate::curves::input::sizes::has_squares;
use crate::curves::routes::route::{FittedModel, SmallFits};
use crate::curves::watch::Watch;
use crate::curves::{CurveColumns, CurveRun};
use crate::error::Result;
use crate::formula::{Elementary, Formula};
use crate::math::Real;
use crate::solver::small::{
    AddUp, GaussianPrior, SmallBatch, SmallColumns, SmallFitter, SmallModel, SmallProblem,
    UploadedFits, WAITING,
};
use crate::solver::{LevenbergMarquardt, Status, Tolerances};

/// Number of fits that a GPU makes at a time. Meanwhile the next ones are sent.
const AT_A_TIME: usize = 1 << 15;
/// Length of the next step, as a share of the errors, at which a fit ends.
const ACCURACY: f64 = 3e-4;
/// The same where differences on one side are followed by those on both.
const ONE_SIDED_ACCURACY: f64 = 0.01;
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
    model: FittedModel<'a>,
    settings: LevenbergMarquardt,
    /// Maximum number of rounds in one precision.
    max_rounds: u32,
    /// True if fits run in f64 alone, to the solver's own tolerances; otherwise they end at a share of their errors.
    exact: bool,
}

impl<'a> Passage<'a> {
    /// Makes the fitter of small curves, which fits them many at once: those of a formula in f32 (unless `exact`) and
    /// then in f64, those of a function in f64.
    pub fn new(
        fitter: &'a CurveRun,
        curves: &'a Curves<'a>,
        points: usize,
        small: SmallFits<'a>,
        exact: bool,
    ) -> Passage<'a> {
        let SmallFits {
            model,
            settings,
            max_rounds,
        } = small;
        let (parameters, predictors) = (
            fitter.model.parameters().len(),
            fitter.model.predictors().len(),
        );
        let x = if curves.grid == Grid::Shared {
            curves.x.to_double()
        } else {
            Cow::default()
        };
        Passage {
            fitter,
            curves,
            points,
            x,
            parameters,
            predictors,
            model,
            settings,
            max_rounds,
            exact,
        }
    }

    /// Describes fits of a model to the device that makes them: sizes, settings, tolerances and priors.
    fn problem(&self, model: SmallModel, correlations: bool) -> SmallProblem {
        let is_precise = !matches!(
            model,
            SmallModel::Function {
                is_precise: false,
                ..
            }
        );
        let gaussian = |(parameter, prior): (usize, &Option<Prior>)| {
            prior.map(|prior| GaussianPrior {
                parameter,
                mean: prior.mean,
                weight: 1.0 / prior.sigma,
            })
        };
        let is_shared = self.curves.grid == Grid::Shared;
        let is_held_by_f32 = is_shared && self.x.iter().all(|x| f64::from(*x as f32) == *x);
        let formula = self.model.formula();
        SmallProblem {
            capacity: AT_A_TIME,
            parameters: self.parameters,
            predictors: self.predictors,
            points: self.points,
            model,
            is_pointwise: formula.is_some_and(Formula::is_pointwise),
            wgsl: formula.map_or_else(String::new, |formula| formula.wgsl(true).to_owned()),
            ends_in_ones: formula.is_some_and(Formula::ends_in_ones),
            settings: LevenbergMarquardt {
                max_rounds: self.max_rounds,
                ..self.settings
            },
            budget: self.settings.max_rounds,
            tolerances: self.tolerances(if is_precise {
                ACCURACY
            } else {
                ONE_SIDED_ACCURACY
            }),
            estimator: self.fitter.estimator,
            is_sandwich: self.fitter.is_sandwich(),
            priors: self
                .fitter
                .priors
                .iter()
                .enumerate()
                .filter_map(gaussian)
                .collect(),
            rounding: formula.map(|formula| formula.rounding(is_held_by_f32)),
            correlations,
        }
    }

    /// Returns the tolerances at which fits end: by the user's `ftol`, by the default one, or by the errors, of which
    /// the next step is no more than the share `accuracy`.
    fn tolerances(&self, accuracy: f64) -> Tolerances {
        let share_of_errors = self.share_of_errors(accuracy);
        let (reduction, largest_cost) = match self.settings.given_ftol() {
            Some(ftol) if accuracy > ACCURACY => (ftol.max(share_of_errors), f64::INFINITY),
            Some(ftol) => (ftol, f64::INFINITY),
            None if self.exact => (self.settings.ftol * self.finest(), f64::INFINITY),
            None if self.fitter.is_scaled() => (share_of_errors, f64::INFINITY),
            None => (share_of_errors, self.points as f64),
        };
        Tolerances::with_reduction(&self.settings, reduction, largest_cost, f32::COST_NOISE)
    }

    /// Returns the predicted reduction of a step of `accuracy` errors: a squared step in units of the errors is its
    /// predicted reduction over χ² / dof, or over 1.
    fn share_of_errors(&self, accuracy: f64) -> f64 {
        accuracy * accuracy / self.points as f64
    }

    /// Returns whether fits run in f64 alone: those that are to be polished, and those for which the user's `ftol` asks
    /// more than f32 is known to hold.
    fn is_double(&self) -> bool {
        self.exact
            || self
                .settings
                .given_ftol()
                .is_some_and(|ftol| ftol < self.share_of_errors(ACCURACY))
    }

    /// Returns the function that adds up the normal equations without storing residuals and derivatives; `None` where
    /// the formula has none for a shared grid.
    fn lane_sums<R: Elementary>(&self, formula: &Formula) -> Option<AddUp<R>> {
        if self.curves.grid == Grid::Own {
            return None;
        }
        formula.lane_sums(&self.x.iter().map(|x| R::of(*x)).collect::<Vec<R>>())
    }

    /// Returns the factor, at most 1, on `ftol` in exact fits: a few rounds more cost less here than in the polish.
    fn finest(&self) -> f64 {
        let quick = self.fitter.estimator.is_least_squares();
        if self.fitter.polish && quick {
            FINEST
        } else {
            1.0
        }
    }

    /// Fits all curves, and writes their results into the columns.
    pub fn run(&self, columns: &mut CurveColumns, watch: &Watch) -> Result<()> {
        let device = &*self.fitter.device.inner;
        let correlations = columns.covariance.is_some();
        let (first, second) = self.models();
        let mut second = CpuSmallFitter::new(self.problem(second, correlations));
        let Some(first) = first.map(|model| self.problem(model, correlations)) else {
            return second.fit(&Parts::new(self, columns, None, false, watch));
        };
        let parts = |is_checked| Parts::new(self, columns, Some(second), is_checked, watch);
        match device.small_fitter(first.clone())? {
            Some(mut fitter) => fitter.fit(&parts(device.is_verified())),
            None => CpuSmallFitter::new(first).fit(&parts(false)),
        }
    }

    /// Sends all curves to the device, where they stay; `None` if it does not make their fits.
    pub fn upload(&self, count: usize) -> Result<Option<Box<dyn UploadedFits>>> {
        let (Some(model), _) = self.models() else {
            return Ok(None);
        };
        let problem = self.problem(model, self.fitter.covariance);
        let Some(fitter) = self.fitter.device.inner.small_fitter(problem)? else {
            return Ok(None);
        };
        self.with_blank_parts(count, |parts| fitter.upload(parts))
    }

    /// Sends the starts of curves that lie on the device; false if they must be uploaded anew.
    pub fn restart(&self, count: usize, uploaded: &mut dyn UploadedFits) -> Result<bool> {
        self.with_blank_parts(count, |parts| uploaded.restart(parts))
    }

    /// Calls `work` with all curves and columns for their results that nobody reads.
    fn with_blank_parts<T>(&self, count: usize, work: impl FnOnce(&Parts) -> T) -> T {
        let (mut columns, watch) = (CurveColumns::default(), Watch::new(None, 0));
        columns.reset(count, &self.fitter.model, false);
        work(&Parts::new(self, &mut columns, None, false, &watch))
    }

    /// Reads the results of curves that the device has fitted, brings them to their ends, and writes them into the
    /// columns.
    pub fn read(
        &self,
        fitted: &mut dyn UploadedFits,
        columns: &mut CurveColumns,
        watch: &Watch,
    ) -> Result<()> {
        let (_, second) = self.models();
        let second = CpuSmallFitter::new(self.problem(second, columns.covariance.is_some()));
        let is_checked = self.fitter.device.inner.is_verified();
        fitted.read(&Parts::new(self, columns, Some(second), is_checked, watch))
    }

    /// Returns the model with which fits begin, if it is another one than that with which they end, and the latter: of
    /// a formula f32 and f64, of a function differences on one side of each parameter and on both.
    fn models(&self) -> (Option<SmallModel>, SmallModel) {
        match &self.model {
            FittedModel::Formula(formula) => {
                let single = || SmallModel::Single(formula.lanes(), self.lane_sums(formula));
                let double = SmallModel::Double(formula.lanes(), self.lane_sums(formula));
                ((!self.is_double()).then(single), double)
            }
            FittedModel::Function {
                one_sided,
                two_sided,
            } => {
                let one_sided = SmallModel::Function {
                    rows: one_sided.clone(),
                    is_precise: false,
                };
                (
                    Some(one_sided),
                    SmallModel::Function {
                        rows: two_sided.clone(),
                        is_precise: true,
                    },
                )
            }
        }
    }

    /// Returns curve `index` with its data as [`fit`](crate::CurveFitter::fit) fits it; `None` where it cannot be
    /// fitted.
    fn curve(&self, index: usize) -> Option<Curve> {
        self.curves
            .curve(index, self.points, &self.fitter.settings())
            .ok()
    }

    /// Sets all fits of a batch to their starts, without variances, and marks those that cannot be fitted as bad
    /// inputs. Bad inputs get NaN.
    fn begin(&self, batch: &SmallBatch<'_>, sizes: &[f64], columns: &mut SmallColumns<'_>) {
        let (p, points) = (self.parameters, self.points);
        let bad_x: Vec<usize> = match batch.own_grid {
            true => Vec::new(),
            false => (0..batch.x.len())
                .filter(|&i| !batch.x[i].is_finite())
                .map(|i| i % points)
                .collect(),
        };
        let own = batch.mask.is_some()
            || batch.sigma.is_some()
            || batch.own_grid
            || batch.bounds.is_some();
        let alike =
            !own && !self.fitter.estimator.takes_counts() && bad_x.is_empty() && p <= points;
        columns.rounds.fill(0);
        columns.parameters.copy_from_slice(batch.starts);
        // what was here before may be another fit's; a number would say that f32 has left it
        columns.variances.fill(f64::NAN);
        columns.promises.fill(f64::NAN);
        columns.status.fill(WAITING);
        // loops without an early exit are vector code: as a rule all are good
        if alike
            && sizes
                .iter()
                .fold(true, |all, size| all & has_squares(*size))
            && batch.starts.iter().fold(true, |all, x| all & x.is_finite())
        {
            return;
        }
        let fits = columns
            .status
            .iter_mut()
            .zip(&mut *columns.chi2)
            .zip(columns.parameters.chunks_mut(p));
        for (k, ((status, chi2), parameters)) in fits.enumerate() {
            // where nothing else is a fit's own, most need no longer look
            let finite = has_squares(sizes[k]) && parameters.iter().all(|x| x.is_finite());
            let is_good = alike && finite || self.is_good(batch, k, sizes[k].is_finite(), &bad_x);
            if !is_good {
                *status = Status::BadInput.code() as i8;
                *chi2 = f64::NAN;
                parameters.fill(f64::NAN);
            }
        }
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
        let (lower, upper) = bounds_of(batch.bounds, k, p);
        let needs_counts =
            counted && !may_all_be_zero(lower, upper, &self.fitter.held, &self.fitter.priors);
        good &= !needs_counts || (0..points).any(|j| y(j) > 0.0 && counts(j));
        good &= bad_x.iter().all(|j| !counts(*j));
        if let Some(sigma) = batch.sigma {
            let of_fit = &sigma[k * points..(k + 1) * points];
            good &= of_fit
                .iter()
                .enumerate()
                .all(|(j, s)| (*s > 0.0 && s.is_finite()) || !counts(j));
        }
        if batch.own_grid {
            let length = self.predictors * points;
            let x = &batch.x[k * length..(k + 1) * length];
            good &= x
                .iter()
                .enumerate()
                .all(|(i, x)| x.is_finite() || !counts(i % points));
        }
        let inside =
            |q: usize| lower.is_empty() || (lower[q] <= starts[q] && starts[q] <= upper[q]);
        good &= (0..p).all(|q| starts[q].is_finite() && inside(q));
        let sigma = |j: usize| batch.sigma.map_or(1.0, |sigma| sigma[k * points + j]);
        let sizes = (0..points)
            .filter(|j| counts(*j))
            .map(|j| (y(j) / sigma(j)).abs());
        good &= has_squares(sizes.fold(0.0, f64::max));
        let used = self.used(batch, k);
        let is_free = |q: &usize| lower.is_empty() || lower[*q] < upper[*q];
        let priors = (0..p)
            .filter(is_free)
            .filter(|q| self.fitter.priors[*q].is_some())
            .count();
        let free = free(lower, upper, p);
        if batch.sigma.is_some() {
            let used = (0..points)
                .filter(|j| counts(*j))
                .map(|j| (sigma(j).recip(), y(j)));
            good &= !is_beyond_floats(used, free.saturating_sub(priors));
        }
        good && used > 0 && free <= used + priors
    }

    /// Returns the number of points of fit `k` that are not masked.
    fn used(&self, batch: &SmallBatch<'_>, k: usize) -> usize {
        let masked = |mask: &[bool]| {
            mask[k * self.points..(k + 1) * self.points]
                .iter()
                .filter(|m| **m)
                .count()
        };
        self.points - batch.mask.map_or(0, masked)
    }
}
