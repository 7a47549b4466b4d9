//! Many similar small problems of one model: the general optimiser.

mod begin;
mod check;
mod columns;
mod data;
mod factors;
mod interval;
mod objective;
mod passage;
mod passes;
mod polish;
mod redo;
mod report;
mod result;
mod search;
mod sizes;
mod sums;
mod task;
mod tie;
mod twin;
mod witness;

use rayon::prelude::*;

use self::data::{Curve, Grid, Settings};
use self::passes::Passes;
use self::polish::Problem;
use super::{Device, Solver};
use crate::curve_model::CurveModel;
use crate::error::{Error, Result};
use crate::solver::{Estimator, LevenbergMarquardt, NelderMead};
use crate::suggest::hint;

pub use columns::CurveColumns;
pub use data::Curves;
pub use interval::Interval;
pub use result::CurveFit;

/// Most parameters that a step solves for.
const MOST_PARAMETERS: usize = 32;

/// A Gaussian prior.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Prior {
    mean: f64,
    sigma: f64,
}

/// Solver of curves: [`Solver`] without the simplex after Levenberg–Marquardt, which is for spectra.
#[derive(Clone, Copy, Debug)]
enum CurveSolver {
    Lm(LevenbergMarquardt),
    NelderMead(NelderMead),
}

/// Fits a model to many curves at once, by least squares or another [`Estimator`].
///
/// ```
/// use popfit::{CurveFitter, Curves, Device, Formula};
///
/// let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
/// let y = [0.5, 1.0_f64].iter().flat_map(|k| x.iter().map(move |x| 3.0 * (-k * x).exp())).collect();
/// let curves = Curves::shared(x.clone(), y, [1.0, 0.7].repeat(2));
/// let fits = CurveFitter::new(Formula::parse("a*exp(-k*x)")?, Device::cpu())?.fit(&curves)?;
/// assert!(fits.iter().all(|fit| fit.status.is_success()));
/// assert!((fits[1].parameters[1] - 1.0).abs() < 1e-9);
/// # Ok::<(), popfit::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CurveFitter {
    model: CurveModel,
    device: Device,
    solver: CurveSolver,
    lower: Vec<f64>,
    upper: Vec<f64>,
    held: Vec<bool>,
    priors: Vec<Option<Prior>>,
    /// Parameters by number, and their expressions.
    ties: Vec<(usize, String)>,
    estimator: Estimator,
    absolute_sigma: bool,
    polish: bool,
    memory: Option<u64>,
    cpu_fallback: Option<bool>,
}

impl CurveFitter {
    /// The tolerances of rows in f64, at most 500 rounds, and limits on steps (all of the 54 NIST StRD fits instead of 50).
    pub const LEVENBERG_MARQUARDT: LevenbergMarquardt = LevenbergMarquardt {
        max_rounds: 500,
        ftol: 1e-14,
        xtol: 1e-12,
        gtol: 1e-12,
        initial_damping: 1e-3,
        max_rejections: 30,
        diagonal_floor: 0.3,
        largest_step: 0.7,
    };

    /// A simplex that goes on until rounding stops it, spread again up to 20 times: 51 of the 54 NIST StRD fits (44 to 51 with other
    /// sizes).
    pub const NELDER_MEAD: NelderMead = NelderMead { max_rounds: 20_000, fatol: 0.0, size: 0.5, max_restarts: 20 };

    /// A fitter of a [`Formula`](crate::Formula) or another [`CurveModel`], with
    /// [`LEVENBERG_MARQUARDT`](Self::LEVENBERG_MARQUARDT). [`Error::Model`] when the model has more than 32 parameters, or cannot run on
    /// the device.
    pub fn new(model: impl Into<CurveModel>, device: Device) -> Result<CurveFitter> {
        let model = model.into();
        let count = model.parameters().len();
        if count > MOST_PARAMETERS {
            return Err(Error::Model(format!("the model has {count} parameters, more than {MOST_PARAMETERS}")));
        }
        model.check_device(device.inner.runs_wgsl())?;
        Ok(CurveFitter {
            model,
            device,
            solver: CurveSolver::Lm(Self::LEVENBERG_MARQUARDT),
            lower: vec![f64::NEG_INFINITY; count],
            upper: vec![f64::INFINITY; count],
            held: vec![false; count],
            priors: vec![None; count],
            ties: Vec::new(),
            estimator: Estimator::LeastSquares,
            absolute_sigma: false,
            polish: true,
            memory: None,
            cpu_fallback: None,
        })
    }

    /// Replaces the solver. A simplex starts with an edge of `size` × |start|, to a factor of √2, or `size` where the start is 0.
    ///
    /// # Errors
    /// [`Error::Usage`] for a setting out of its range, and for [`Solver::LmNelderMead`], which fits spectra only.
    pub fn solver(mut self, solver: impl Into<Solver>) -> Result<CurveFitter> {
        self.solver = match solver.into() {
            Solver::Lm(lm) => CurveSolver::Lm(lm),
            Solver::NelderMead(simplex) => CurveSolver::NelderMead(simplex),
            Solver::LmNelderMead(..) => {
                let message = "lm+nelder-mead fits spectra only; for curves choose lm or nelder-mead";
                return Err(Error::Usage(message.into()));
            }
        };
        match &self.solver {
            CurveSolver::Lm(lm) => lm.validate()?,
            CurveSolver::NelderMead(simplex) => simplex.validate()?,
        }
        Ok(self)
    }

    /// Bounds of a parameter, in all curves that bring none; infinite ones are none.
    pub fn bounds(mut self, parameter: &str, lower: f64, upper: f64) -> Result<CurveFitter> {
        let p = self.untied(parameter)?;
        if lower.is_nan() || upper.is_nan() || lower > upper {
            return Err(Error::BadBounds { parameter: parameter.into(), lower, upper });
        }
        (self.lower[p], self.upper[p]) = (lower, upper);
        Ok(self)
    }

    /// Holds a parameter at each curve's start.
    pub fn hold(mut self, parameter: &str) -> Result<CurveFitter> {
        let p = self.untied(parameter)?;
        self.held[p] = true;
        Ok(self)
    }

    /// A Gaussian prior of a parameter: the row (mean − parameter) / sigma. Without [`absolute_sigma`](Self::absolute_sigma) the errors are
    /// multiplied by the root of χ²/dof, the prior's share in them, too.
    pub fn prior(mut self, parameter: &str, mean: f64, sigma: f64) -> Result<CurveFitter> {
        let p = self.untied(parameter)?;
        if !(mean.is_finite() && sigma.is_finite() && sigma > 0.0) {
            return Err(Error::Usage(format!(
                "prior of `{parameter}`: mean {mean} and sigma {sigma} must be finite, sigma positive"
            )));
        }
        self.priors[p] = Some(Prior { mean, sigma });
        Ok(self)
    }

    /// How residuals count; least squares without. [`Error::Usage`] when a loss's scale is not positive.
    pub fn estimator(self, estimator: Estimator) -> Result<CurveFitter> {
        estimator.validate()?;
        Ok(CurveFitter { estimator, ..self })
    }

    /// Whether sigma is known. If not (the default, as scipy's `curve_fit`), covariances are multiplied by χ²/dof.
    #[must_use]
    pub fn absolute_sigma(self, absolute_sigma: bool) -> CurveFitter {
        CurveFitter { absolute_sigma, ..self }
    }

    /// Whether what Levenberg–Marquardt finds is refined by Gauss–Newton steps in f64 on the host (the default), through a QR
    /// decomposition of the Jacobian, which keeps the digits that normal equations lose. What f32 on a GPU brings to no good end is fitted
    /// again by the host.
    #[must_use]
    pub fn polish(self, polish: bool) -> CurveFitter {
        CurveFitter { polish, ..self }
    }

    /// Bytes that a population may take.
    #[must_use]
    pub fn memory(self, bytes: u64) -> CurveFitter {
        CurveFitter { memory: Some(bytes), ..self }
    }

    /// One result a curve, in their order. Where the data and a formula at its start differ ten thousandfold, the parameters in which it is
    /// linear begin at their least squares with the others at their starts.
    ///
    /// On the CPU what [`fit_columns`](Self::fit_columns) fits whole goes the same way, in f64 and to the solver's tolerances; curves that
    /// do not arrive so are taken up from their starts by a population.
    ///
    /// A curve that cannot be fitted has a status; [`Error`] means that the run failed.
    pub fn fit(&self, curves: &Curves) -> Result<Vec<CurveFit>> {
        self.redoing(|fitter| fitter.fit_here(curves))
    }

    /// On this device alone.
    fn fit_here(&self, curves: &Curves) -> Result<Vec<CurveFit>> {
        if !self.ties.is_empty() {
            return self.fit_tied(curves);
        }
        let settings = self.settings();
        let (total, points) = curves.shape(settings.predictors, settings.names)?;
        curves.check_estimator(self.estimator)?;
        let whole = self.fit_whole(curves, (total, points))?;
        let blank = || CurveFit::blank(settings.names.len());
        let one = |index| match curves.curve(index, points, &settings) {
            Ok(curve) => match whole.as_ref().and_then(|columns| columns.outcome(index)) {
                Some(outcome) => match self.finish(&curve, &outcome) {
                    fit if fit.status.is_success() => (fit, None),
                    _ => (blank(), Some(curve)),
                },
                None => (blank(), Some(curve)),
            },
            Err(cause) => (CurveFit { message: cause, ..blank() }, None),
        };
        let (mut fits, left): (Vec<CurveFit>, Vec<Option<Curve>>) = (0..total).into_par_iter().map(one).unzip();
        let ready: Vec<Curve> = left.into_iter().flatten().collect();
        self.fit_each((&curves.grid, points), ready, &mut |index, fit| fits[index] = fit)?;
        Ok(fits)
    }

    /// Curves on their way through populations; `done` is told each one's number and fit.
    fn fit_each(&self, at: (&Grid, usize), mut ready: Vec<Curve>, done: &mut dyn FnMut(usize, CurveFit)) -> Result<()> {
        if ready.is_empty() {
            return Ok(());
        }
        ready.par_iter_mut().for_each(|curve| self.measure(curve));
        let in_range = |curve: &Curve| !self.device.inner.runs_wgsl() || begin::suits_f32(curve);
        let (ready, mut left): (Vec<Curve>, Vec<Curve>) = ready.into_iter().partition(in_range);
        // what f32 brings to no good end is for the host, which refines the others, too
        let is_refined = self.polish && self.device.inner.runs_wgsl() && !self.model.needs_gpu();
        if !is_refined {
            let message = "bad_scale: f32 does not hold y, y over sigma or x: other units, less an offset, or polish";
            let refused = || CurveFit { message: message.into(), ..CurveFit::blank(self.held.len()) };
            left.drain(..).for_each(|curve| done(curve.index, refused()));
        }
        ready.first().map_or(Ok(()), |first| self.check_twin(first))?;
        left.extend(self.pass(at, ready, is_refined, done)?);
        left.iter_mut().for_each(|curve| curve.restart(data::wide_scale));
        CurveFitter { device: Device::cpu(), ..self.clone() }.fit_each(at, left, done)
    }

    /// Curves through this device's populations; those without success come back where the host `refines`.
    fn pass(
        &self,
        (grid, points): (&Grid, usize),
        ready: Vec<Curve>,
        refines: bool,
        done: &mut dyn FnMut(usize, CurveFit),
    ) -> Result<Vec<Curve>> {
        if ready.is_empty() {
            return Ok(ready);
        }
        let mut failed = vec![false; ready.len()];
        let mut passes = Passes::new(self, grid, points, ready.len())?;
        for (some, failed) in ready.chunks(passes.capacity).zip(failed.chunks_mut(passes.capacity)) {
            let outcomes = passes.solve(some)?;
            let fits: Vec<CurveFit> =
                some.par_iter().zip(&outcomes).map(|(curve, outcome)| self.finish(curve, outcome)).collect();
            for ((curve, fit), failed) in some.iter().zip(fits).zip(failed) {
                // what f32 does not see may be a minimum to f64
                *failed = refines && (!fit.status.is_success() || self.is_vague(curve, &fit));
                if !*failed {
                    done(curve.index, fit);
                }
            }
        }
        Ok(ready.into_iter().zip(failed).filter_map(|(curve, failed)| failed.then_some(curve)).collect())
    }

    /// Sets where a curve begins, and its units.
    fn measure(&self, curve: &mut Curve) {
        if let Some((begin, scale)) = begin::prepare(&self.problem(curve), self.round()) {
            (curve.begin, curve.scale) = (begin, scale);
        }
        if self.may_gain() {
            curve.gain = begin::gain(&self.problem(curve), self.device.inner.runs_wgsl());
        }
    }

    /// Whether the data leave a parameter open: f32 may have lost what f64 sees.
    fn is_vague(&self, curve: &Curve, fit: &CurveFit) -> bool {
        let tells = !self.is_scaled() || fit.dof > 0;
        tells && !result::vague(fit, curve, &self.problem(curve).inside(&fit.parameters)).is_empty()
    }

    /// What stands for no bounds, in units of the parameters.
    fn far(&self) -> f64 {
        if self.device.inner.runs_wgsl() { objective::FAR } else { objective::FARTHEST }
    }

    fn problem<'a>(&'a self, curve: &'a Curve) -> Problem<'a> {
        Problem { model: &self.model, curve, priors: &self.priors, estimator: self.estimator }
    }

    /// Whether covariances are multiplied by χ²/dof: a count's scatter is known.
    fn is_scaled(&self) -> bool {
        !self.absolute_sigma && self.estimator != Estimator::Poisson
    }

    /// What makes a parameter's unit of its start.
    fn round(&self) -> fn(f64) -> f64 {
        if self.device.inner.runs_wgsl() { data::scale } else { data::wide_scale }
    }

    /// Whether rows may be multiplied by a factor: costs mean nothing by themselves, and nothing else is added to them.
    fn may_gain(&self) -> bool {
        let relative = matches!(self.solver, CurveSolver::Lm(_)) || self.is_scaled();
        relative && self.estimator == Estimator::LeastSquares && self.priors.iter().all(Option::is_none)
    }

    fn settings(&self) -> Settings<'_> {
        Settings {
            names: self.model.parameters(),
            lower: &self.lower,
            upper: &self.upper,
            held: &self.held,
            predictors: self.model.predictors(),
            estimator: self.estimator,
            round: self.round(),
        }
    }

    fn index(&self, parameter: &str) -> Result<usize> {
        let names = self.model.parameters();
        names.iter().position(|name| name == parameter).ok_or_else(|| {
            let hint = hint(parameter, names.iter().map(String::as_str));
            Error::Usage(format!("no parameter `{parameter}`{hint}"))
        })
    }
}
