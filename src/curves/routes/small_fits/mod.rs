//! Small fits of curves, in flat memory and in parts: for columns f32 on the device and then f64 on the host, for `fit`
//! f64 alone, whose ends are polished. Only a GPU ends fits in f32, by a bound on their rounding (the end of
//! `shaders/small.wgsl`).

mod bounds;
mod covariances;
mod ends;
mod parts;
mod starts;

use std::borrow::Cow;

use self::bounds::bounds_of;
use self::parts::Parts;
use crate::cpu::small::CpuSmallFitter;
use crate::curves::input::data::{Curve, Curves, GridKind};
use crate::curves::input::sizes::has_squares;
use crate::curves::input::validity::CurveInput;
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

/// Number of fits that a GPU makes at a time. Meanwhile the next ones are uploaded.
const FITS_PER_GPU_BATCH: usize = 1 << 15;
/// Length of the next step, as a share of the errors, at which a fit ends.
const MAX_FINAL_STEP_PER_ERROR: f64 = 3e-4;
/// The same for one-sided differences, which are followed by two-sided ones.
const MAX_ONE_SIDED_FINAL_STEP_PER_ERROR: f64 = 0.01;
/// Factor on the solver's `ftol` of fits that are to be polished. Where f64 cannot represent such steps, rounding ends
/// the fits.
const FTOL_FACTOR_BEFORE_POLISH: f64 = 1e-10;

/// Where small fits end.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Ending {
    /// At the solver's own tolerances, in f64 alone.
    AtTolerance,
    /// Where the next step is a small share of the errors.
    AtShareOfErrors,
}

/// Small fits of curves, many at once, in f32 and f64.
pub(crate) struct SmallFitRun<'a> {
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
    ending: Ending,
}

impl<'a> SmallFitRun<'a> {
    /// Makes the run of small fits: of a formula in f32 (unless they end at the tolerance) and then in f64, of a
    /// function in f64.
    pub fn new(
        fitter: &'a CurveRun,
        curves: &'a Curves<'a>,
        points: usize,
        small: SmallFits<'a>,
        ending: Ending,
    ) -> SmallFitRun<'a> {
        let x = if curves.grid == GridKind::Shared {
            curves.x.to_double()
        } else {
            Cow::default()
        };
        SmallFitRun {
            fitter,
            curves,
            points,
            x,
            parameters: fitter.model.parameters().len(),
            predictors: fitter.model.predictors().len(),
            model: small.model,
            settings: small.settings,
            max_rounds: small.max_rounds,
            ending,
        }
    }

    /// Describes fits of a model to the device that makes them: sizes, settings, tolerances and priors.
    fn describe_fits(&self, model: SmallModel, correlations: bool) -> SmallProblem {
        let is_precise = !matches!(
            model,
            SmallModel::Function {
                is_precise: false,
                ..
            }
        );
        let max_final_step = if is_precise {
            MAX_FINAL_STEP_PER_ERROR
        } else {
            MAX_ONE_SIDED_FINAL_STEP_PER_ERROR
        };
        let priors = self
            .fitter
            .priors
            .iter()
            .enumerate()
            .filter_map(|(parameter, prior)| {
                prior.map(|prior| GaussianPrior {
                    parameter,
                    mean: prior.mean,
                    weight: 1.0 / prior.sigma,
                })
            })
            .collect();
        let is_shared = self.curves.grid == GridKind::Shared;
        let f32_holds_x = is_shared && self.x.iter().all(|x| f64::from(*x as f32) == *x);
        let formula = self.model.formula();
        SmallProblem {
            capacity: FITS_PER_GPU_BATCH,
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
            tolerances: self.tolerances(max_final_step),
            estimator: self.fitter.estimator,
            is_sandwich: self.fitter.is_sandwich(),
            priors,
            rounding: formula.and_then(Formula::rounding).filter(|_| f32_holds_x),
            correlations,
        }
    }

    /// Returns the tolerances at which fits end: by the user's `ftol`, by the default one, or by the errors, of which
    /// the next step is no more than the share `max_final_step`.
    fn tolerances(&self, max_final_step: f64) -> Tolerances {
        let negligible_reduction = self.reduction_of_step(max_final_step);
        let (reduction, largest_cost) = match self.settings.given_ftol() {
            Some(ftol) if max_final_step > MAX_FINAL_STEP_PER_ERROR => {
                (ftol.max(negligible_reduction), f64::INFINITY)
            }
            Some(ftol) => (ftol, f64::INFINITY),
            None if (self.ending == Ending::AtTolerance) => {
                (self.settings.ftol * self.ftol_factor(), f64::INFINITY)
            }
            None if self.fitter.is_scaled() => (negligible_reduction, f64::INFINITY),
            None => (negligible_reduction, self.points as f64),
        };
        Tolerances::with_reduction(&self.settings, reduction, largest_cost, f32::COST_NOISE)
    }

    /// Returns the predicted relative reduction of the cost by a step of so many errors: a squared step in units of the
    /// errors is its predicted reduction over χ² / dof, or over 1.
    fn reduction_of_step(&self, step_per_error: f64) -> f64 {
        step_per_error * step_per_error / self.points as f64
    }

    /// Returns whether fits run in f64 alone: those that are to be polished, and those for which the user's `ftol` is
    /// finer than f32 is known to reach.
    fn is_double(&self) -> bool {
        (self.ending == Ending::AtTolerance)
            || self
                .settings
                .given_ftol()
                .is_some_and(|ftol| ftol < self.reduction_of_step(MAX_FINAL_STEP_PER_ERROR))
    }

    /// Returns the function that adds up the normal equations without storing residuals and derivatives; `None` where
    /// the formula has none for a shared grid.
    fn lane_sums<R: Elementary>(&self, formula: &Formula) -> Option<AddUp<R>> {
        if self.curves.grid == GridKind::Own {
            return None;
        }
        formula.lane_sums(&self.x.iter().map(|x| R::of(*x)).collect::<Vec<R>>())
    }

    /// Returns the factor, at most 1, on `ftol` of fits that end at it: a few more rounds cost less here than in the
    /// polish.
    fn ftol_factor(&self) -> f64 {
        let converges_fast = self.fitter.estimator.is_least_squares();
        if self.fitter.polish && converges_fast {
            FTOL_FACTOR_BEFORE_POLISH
        } else {
            1.0
        }
    }

    /// Fits all curves, and writes their results into the columns.
    pub fn fit_columns(&self, columns: &mut CurveColumns, watch: &Watch) -> Result<()> {
        let device = &*self.fitter.device.inner;
        let correlations = columns.covariance.is_some();
        // 1. Fits with one model run on the CPU.
        let (first_model, second_model) = self.models();
        let mut second = CpuSmallFitter::new(self.describe_fits(second_model, correlations));
        let Some(first_model) = first_model else {
            return second.fit(&Parts::new(self, columns, None, false, watch));
        };
        // 2. The others begin on the device, if it makes small fits, and end on the CPU.
        let first = self.describe_fits(first_model, correlations);
        let parts = |is_checked| Parts::new(self, columns, Some(second), is_checked, watch);
        match device.small_fitter(first.clone())? {
            Some(mut fitter) => fitter.fit(&parts(device.is_verified())),
            None => CpuSmallFitter::new(first).fit(&parts(false)),
        }
    }

    /// Uploads all curves to the device, where they stay; `None` if it does not make small fits.
    pub fn upload(&self, count: usize) -> Result<Option<Box<dyn UploadedFits>>> {
        let (Some(first_model), _) = self.models() else {
            return Ok(None);
        };
        let problem = self.describe_fits(first_model, self.fitter.covariance);
        let Some(fitter) = self.fitter.device.inner.small_fitter(problem)? else {
            return Ok(None);
        };
        self.with_blank_parts(count, |parts| fitter.upload(parts))
    }

    /// Uploads the starts of curves that lie on the device; false if the curves must be uploaded again.
    pub fn restart(&self, count: usize, uploaded: &mut dyn UploadedFits) -> Result<bool> {
        self.with_blank_parts(count, |parts| uploaded.restart(parts))
    }

    /// Calls `work` with all curves and columns for their results that nobody reads.
    fn with_blank_parts<T>(&self, count: usize, work: impl FnOnce(&Parts) -> T) -> T {
        let mut columns = CurveColumns::default();
        let watch = Watch::new(None, 0);
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
        let (_, second_model) = self.models();
        let problem = self.describe_fits(second_model, columns.covariance.is_some());
        let second = CpuSmallFitter::new(problem);
        let is_checked = self.fitter.device.inner.is_verified();
        fitted.read(&Parts::new(self, columns, Some(second), is_checked, watch))
    }

    /// Returns the model with which fits begin, if it differs from that with which they end, and the latter: of a
    /// formula f32 and f64, of a function one-sided and two-sided differences.
    fn models(&self) -> (Option<SmallModel>, SmallModel) {
        match &self.model {
            FittedModel::Formula(formula) => {
                let single = (!self.is_double())
                    .then(|| SmallModel::Single(formula.lanes(), self.lane_sums(formula)));
                let double = SmallModel::Double(formula.lanes(), self.lane_sums(formula));
                (single, double)
            }
            FittedModel::Function {
                one_sided,
                two_sided,
            } => {
                let first = SmallModel::Function {
                    rows: one_sided.clone(),
                    is_precise: false,
                };
                let second = SmallModel::Function {
                    rows: two_sided.clone(),
                    is_precise: true,
                };
                (Some(first), second)
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
    fn begin_fits(&self, batch: &SmallBatch<'_>, sizes: &[f64], columns: &mut SmallColumns<'_>) {
        let count = self.parameters;
        let points = self.points;
        // 1. Clear the columns. Their memory may hold another fit's results, and a number would mean that f32 has left
        //    it.
        columns.rounds.fill(0);
        columns.parameters.copy_from_slice(batch.starts);
        columns.variances.fill(f64::NAN);
        columns.predicted_reductions.fill(f64::NAN);
        columns.status.fill(WAITING);
        // 2. Where fits differ in data and starts alone, and as a rule all are good, one look at these is enough. Loops
        //    without an early exit are vectorised.
        let x_is_finite = !batch.own_grid && batch.x.iter().all(|x| x.is_finite());
        let have_own_inputs = batch.mask.is_some()
            || batch.sigma.is_some()
            || batch.own_grid
            || batch.bounds.is_some();
        let differ_in_data_alone = !have_own_inputs
            && !self.fitter.estimator.takes_counts()
            && x_is_finite
            && count <= points;
        if differ_in_data_alone
            && sizes
                .iter()
                .fold(true, |all, size| all & has_squares(*size))
            && batch.starts.iter().fold(true, |all, x| all & x.is_finite())
        {
            return;
        }
        // 3. Check the fits one by one.
        let fits = columns
            .status
            .iter_mut()
            .zip(&mut *columns.chi2)
            .zip(columns.parameters.chunks_mut(count));
        for (k, ((status, chi2), parameters)) in fits.enumerate() {
            let is_finite = has_squares(sizes[k]) && parameters.iter().all(|x| x.is_finite());
            let is_valid =
                differ_in_data_alone && is_finite || self.is_valid_input(batch, k, x_is_finite);
            if !is_valid {
                *status = Status::BadInput.code() as i8;
                *chi2 = f64::NAN;
                parameters.fill(f64::NAN);
            }
        }
    }

    /// Returns whether curve `k` of the batch can be fitted; false for the bad inputs of
    /// [`fit`](crate::CurveFitter::fit). `x_is_finite`: the shared grid is known to be finite.
    fn is_valid_input(&self, batch: &SmallBatch<'_>, k: usize, x_is_finite: bool) -> bool {
        let points = self.points;
        let of_fit = k * points..(k + 1) * points;
        let grid_length = self.predictors * points;
        let x = match batch.own_grid {
            true => &batch.x[k * grid_length..(k + 1) * grid_length],
            false if x_is_finite => &[],
            false => batch.x,
        };
        let (lower, upper) = bounds_of(batch.bounds, k, self.parameters);
        let input = CurveInput {
            x,
            y: |j: usize| batch.y.get(k * points + j),
            sigma: batch.sigma.map(|sigma| &sigma[of_fit.clone()]),
            mask: batch.mask.map(|mask| &mask[of_fit.clone()]),
            start: &batch.starts[k * self.parameters..(k + 1) * self.parameters],
            lower,
            upper,
        };
        input
            .count_unmasked(points, &self.fitter.settings())
            .is_ok()
    }

    /// Returns the number of points of fit `k` that are not masked.
    fn count_unmasked(&self, batch: &SmallBatch<'_>, k: usize) -> usize {
        let masked = batch.mask.map_or(0, |mask| {
            mask[k * self.points..(k + 1) * self.points]
                .iter()
                .filter(|is_masked| **is_masked)
                .count()
        });
        self.points - masked
    }
}
