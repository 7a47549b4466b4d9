//! Fits of curves.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use numpy::PyReadonlyArray1;
use popfit::{
    CurveFitter, CurveModel, Curves, Device, Error, Estimator, LevenbergMarquardt, NelderMead,
    Status, Values,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{LentArray, give, give_shaped, hold_all};
use crate::curve_model::{STOPPED, SharedCurveModel};
use crate::wait::{GivenWatch, Outcome, Watch, run, run_or_raise};

/// Settings of fits of curves, with the names that Python's functions have.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct CurveSettings {
    /// Bounds of parameters in all curves.
    bounds: Vec<(String, f64, f64)>,
    fixed: Vec<String>,
    /// Parameters and their expressions.
    ties: Vec<(String, String)>,
    /// Number of starts of each curve.
    starts: usize,
    /// Parameters, means and sigmas.
    priors: Vec<(String, f64, f64)>,
    /// Name of the estimator, and its scale.
    estimator: (String, Option<f64>),
    solver: String,
    max_rounds: Option<u32>,
    ftol: Option<f64>,
    xtol: Option<f64>,
    gtol: Option<f64>,
    absolute_sigma: bool,
    sandwich_errors: bool,
    covariance: bool,
    device: String,
    max_memory: Option<u64>,
    cpu_fallback: Option<bool>,
}

impl CurveSettings {
    /// Returns the fitter of a model with these settings, and opens the device.
    ///
    /// # Errors
    /// Returns the errors of names that the crate does not know, and of devices.
    fn fitter(&self, model: &CurveModel) -> Result<CurveFitter, Error> {
        let device: Device = self.device.parse()?;
        let mut fitter = CurveFitter::new(model.clone(), device)
            .estimator(estimator(&self.estimator.0, self.estimator.1)?)
            .absolute_sigma(self.absolute_sigma)
            .sandwich_errors(self.sandwich_errors)
            .starts(self.starts)
            .covariance(self.covariance);
        fitter = match self.solver.as_str() {
            "nelder-mead" => {
                let simplex = CurveFitter::NELDER_MEAD;
                fitter.solver(
                    self.max_rounds
                        .map_or(simplex, |rounds| NelderMead::max_rounds(simplex, rounds)),
                )
            }
            _ => fitter.solver(self.levenberg_marquardt()),
        };
        for (parameter, lower, upper) in &self.bounds {
            fitter = fitter.bounds(parameter, *lower, *upper);
        }
        for parameter in &self.fixed {
            fitter = fitter.fix(parameter);
        }
        for (parameter, expression) in &self.ties {
            fitter = fitter.tie(parameter, expression);
        }
        for (parameter, mean, sigma) in &self.priors {
            fitter = fitter.prior(parameter, *mean, *sigma);
        }
        if let Some(bytes) = self.max_memory {
            fitter = fitter.max_memory(bytes);
        }
        Ok(match self.cpu_fallback {
            Some(cpu_fallback) => fitter.cpu_fallback(cpu_fallback),
            None => fitter,
        })
    }

    /// Returns the settings of Levenberg–Marquardt, with the crate's defaults where nothing is set.
    fn levenberg_marquardt(&self) -> LevenbergMarquardt {
        let mut solver = CurveFitter::LEVENBERG_MARQUARDT;
        if let Some(rounds) = self.max_rounds {
            solver = solver.max_rounds(rounds);
        }
        if let Some(tolerance) = self.ftol {
            solver = solver.ftol(tolerance);
        }
        if let Some(tolerance) = self.xtol {
            solver = solver.xtol(tolerance);
        }
        if let Some(tolerance) = self.gtol {
            solver = solver.gtol(tolerance);
        }
        solver
    }
}

/// Returns the estimator of a name and a scale, which is 1 unless given.
///
/// # Errors
/// Returns an `InvalidArgument` for a name that is not known.
fn estimator(name: &str, scale: Option<f64>) -> Result<Estimator, Error> {
    let scale = scale.unwrap_or(1.0);
    Ok(match name {
        "least_squares" => Estimator::LeastSquares,
        "poisson" => Estimator::Poisson,
        "soft_l1" => Estimator::SoftL1(scale),
        "huber" => Estimator::Huber(scale),
        "cauchy" => Estimator::Cauchy(scale),
        "arctan" => Estimator::Arctan(scale),
        "student" => Estimator::Student(scale),
        _ => {
            let message = format!("estimator: {name:?} is not known");
            return Err(Error::InvalidArgument {
                argument: "estimator".into(),
                message,
            });
        }
    })
}

/// Curves as Python gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct GivenCurves<'py> {
    /// `x`, `y` and `starts`, and perhaps `sigma`, `covariance`, `mask`, `lower` and `upper`.
    arrays: Bound<'py, PyDict>,
    /// True if each curve has its own points, x (curves, predictors, points).
    x_per_curve: bool,
    /// Number of points of each curve.
    points: usize,
}

/// Arrays of curves that Python lends, held for reading.
struct HeldCurves<'py> {
    arrays: HashMap<String, LentArray<'py>>,
    x_per_curve: bool,
    points: usize,
}

impl<'py> HeldCurves<'py> {
    /// Holds arrays for reading.
    ///
    /// # Errors
    /// Those of an array of another type or order.
    fn hold(given: &GivenCurves<'py>) -> PyResult<HeldCurves<'py>> {
        let arrays = hold_all(&given.arrays)?
            .into_iter()
            .map(|array| (array.name().to_owned(), array))
            .collect();
        Ok(HeldCurves {
            arrays,
            x_per_curve: given.x_per_curve,
            points: given.points,
        })
    }

    /// Lends the numbers of an array; none if it is missing.
    ///
    /// # Errors
    /// Returns an `InputError` for an array of another type.
    fn numbers(&self, py: Python<'_>, name: &str) -> PyResult<Option<Values<'_>>> {
        self.arrays
            .get(name)
            .map(|array| array.numbers(py))
            .transpose()
    }

    /// Lends the arrays to the crate as curves.
    ///
    /// # Errors
    /// Returns an `InputError` for an array of another type.
    fn lend(&self, py: Python<'_>) -> PyResult<Curves<'_>> {
        let wanted = |name: &str| Ok::<_, PyErr>(self.numbers(py, name)?.unwrap_or_default());
        let (x, y, starts) = (wanted("x")?, wanted("y")?, wanted("starts")?);
        let make = if self.x_per_curve {
            Curves::on_own_grids
        } else {
            Curves::on_common_grid
        };
        let mut curves = make(x, y, starts);
        if self.x_per_curve {
            curves = curves.points(self.points);
        }
        if let Some(sigma) = self.numbers(py, "sigma")? {
            curves = curves.sigma(sigma);
        }
        if let Some(covariance) = self.numbers(py, "covariance")? {
            curves = curves.covariance(covariance);
        }
        if let Some(mask) = self.arrays.get("mask") {
            curves = curves.mask(mask.truths(py)?);
        }
        if let (Some(lower), Some(upper)) = (self.numbers(py, "lower")?, self.numbers(py, "upper")?)
        {
            curves = curves.bounds(lower, upper);
        }
        Ok(curves)
    }
}

/// Results of curves, as vectors that are handed to numpy.
struct Results {
    parameters: Vec<f64>,
    errors: Vec<f64>,
    covariance: Option<Vec<f64>>,
    chi2: Vec<f64>,
    status: Vec<i8>,
    flags: Vec<u32>,
    evaluations: Vec<u32>,
    rounds: Vec<u32>,
    /// Messages of the curves that are no plain success, by index.
    messages: Vec<(usize, String)>,
}

impl Results {
    /// Fits curves.
    fn fit(fitter: &CurveFitter, curves: &Curves<'_>) -> Result<Results, Error> {
        let mut columns = fitter.fit_columns(curves)?;
        let messages = (0..columns.len())
            .filter_map(|k| Some((k, columns.message(k)?.to_owned())))
            .collect();
        let status = columns.status.iter().map(|status| status.code() as i8);
        let status = status.collect();
        let flags = columns.flags.iter().map(|flags| flags.bits()).collect();
        Ok(Results {
            parameters: std::mem::take(&mut columns.parameters),
            errors: std::mem::take(&mut columns.errors),
            covariance: columns.covariance.take(),
            chi2: std::mem::take(&mut columns.chi2),
            status,
            flags,
            evaluations: std::mem::take(&mut columns.evaluations),
            rounds: std::mem::take(&mut columns.rounds),
            messages,
        })
    }

    /// Marks the fits that a cancellation has cut short as interrupted.
    fn mark_stopped(mut self) -> Results {
        for (k, message) in self
            .messages
            .iter_mut()
            .filter(|(_, message)| message.ends_with(STOPPED))
        {
            self.status[*k] = Status::Interrupted.code() as i8;
            *message = STOPPED.into();
        }
        self
    }

    /// Hands the results to Python.
    fn give(self, py: Python<'_>, parameters: usize) -> PyResult<Bound<'_, PyDict>> {
        let count = self.status.len();
        let answer = PyDict::new(py);
        answer.set_item(
            "parameters",
            give_shaped(py, self.parameters, &[count, parameters])?,
        )?;
        answer.set_item(
            "errors",
            give_shaped(py, self.errors, &[count, parameters])?,
        )?;
        if let Some(covariance) = self.covariance {
            answer.set_item(
                "covariance",
                give_shaped(py, covariance, &[count, parameters, parameters])?,
            )?;
        }
        answer.set_item("chi2", give(py, self.chi2))?;
        answer.set_item("status", give(py, self.status))?;
        answer.set_item("flags", give(py, self.flags))?;
        answer.set_item("evaluations", give(py, self.evaluations))?;
        answer.set_item("rounds", give(py, self.rounds))?;
        answer.set_item("messages", self.messages)?;
        Ok(answer)
    }
}

/// Returns the names of all statuses by their codes.
#[pyfunction]
pub fn status_names() -> HashMap<i32, &'static str> {
    let all = (i8::MIN..=i8::MAX).filter_map(|code| Status::from_code(code.into()));
    all.map(|status| (status.code(), status.name())).collect()
}

/// Returns a watch whose run, once it is cancelled, ends the calls of a function of Python, too. Formulas are shared by
/// the runs of several threads, and have no flag.
fn share_cancel(watch: Watch, model: &SharedCurveModel) -> Watch {
    let Some(calls) = &model.calls else {
        return watch;
    };
    calls.cancel.store(false, Ordering::Relaxed);
    Watch {
        cancel: Some(calls.cancel.clone()),
        ..watch
    }
}

/// Fits curves, to the solver's tolerances if they are to be `exact`, else to a thousandth of their errors. The answer
/// has the results and the exception that ended the run early.
#[pyfunction]
pub fn fit_curves<'py>(
    py: Python<'py>,
    model: &SharedCurveModel,
    curves: GivenCurves<'py>,
    settings: CurveSettings,
    exact: bool,
    watch: GivenWatch,
) -> PyResult<Bound<'py, PyDict>> {
    let mut watch = share_cancel(watch.check(py)?, model);
    let held = HeldCurves::hold(&curves)?;
    let lent = held.lend(py)?;
    watch.is_short =
        settings.device == "cpu" && model.is_quick(held.numbers(py, "y")?.map_or(0, |y| y.len()));
    let Outcome { result, stopped } = run(py, watch, |control| {
        let fitter = settings.fitter(&model.model)?.exact(exact);
        Results::fit(&fitter.control(control.clone()), &lent)
    })?;
    let answer = result
        .mark_stopped()
        .give(py, model.model.parameters().len())?;
    answer.set_item("stopped", stopped)?;
    Ok(answer)
}

/// Computes the model's values of all curves, (curves, points), at the parameters in `starts`; with a `covariance`
/// (curves·P·P) their standard errors.
#[pyfunction]
pub fn predict_curves<'py>(
    py: Python<'py>,
    model: &SharedCurveModel,
    curves: GivenCurves<'py>,
    covariance: Option<PyReadonlyArray1<'py, f64>>,
    threads: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let covariance = covariance
        .as_ref()
        .map(|matrices| matrices.as_slice())
        .transpose()?;
    compute_at_points(
        py,
        model,
        &curves,
        threads,
        |fitter, curves, parameters| match covariance {
            Some(covariance) => fitter.prediction_errors(curves, parameters, covariance),
            None => fitter.predict(curves, parameters),
        },
    )
}

/// Computes the residuals of all curves, (curves, points), at the parameters in `starts`.
#[pyfunction]
pub fn curve_residuals<'py>(
    py: Python<'py>,
    model: &SharedCurveModel,
    curves: GivenCurves<'py>,
    threads: usize,
) -> PyResult<Bound<'py, PyAny>> {
    compute_at_points(py, model, &curves, threads, CurveFitter::residuals)
}

/// Computes a number for each point of each curve, (curves, points), from the parameters in `starts`.
fn compute_at_points<'py>(
    py: Python<'py>,
    model: &SharedCurveModel,
    curves: &GivenCurves<'py>,
    threads: usize,
    compute: impl Fn(&CurveFitter, &Curves, &[f64]) -> Result<Vec<f64>, Error> + Send + Sync,
) -> PyResult<Bound<'py, PyAny>> {
    let watch = share_cancel(Watch::of_threads(threads), model);
    let held = HeldCurves::hold(curves)?;
    let lent = held.lend(py)?;
    let parameters = held.numbers(py, "starts")?.unwrap_or_default();
    let fitter = CurveFitter::new(model.model.clone(), Device::cpu());
    let numbers = run_or_raise(py, watch, |control| {
        control.scope(|| compute(&fitter, &lent, &parameters.to_double()))?
    })?;
    let count = numbers.len() / curves.points.max(1);
    give_shaped(py, numbers, &[count, curves.points])
}

/// Computes statistics of fits that ended at the parameters in `starts`: the columns `aic`, `bic` and `r_squared`.
#[pyfunction]
pub fn curve_statistics<'py>(
    py: Python<'py>,
    model: &SharedCurveModel,
    curves: GivenCurves<'py>,
    settings: CurveSettings,
    chi2: PyReadonlyArray1<'py, f64>,
    threads: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let watch = share_cancel(Watch::of_threads(threads), model);
    let held = HeldCurves::hold(&curves)?;
    let lent = held.lend(py)?;
    let parameters = held.numbers(py, "starts")?.unwrap_or_default();
    let chi2 = chi2.as_slice()?;
    let statistics = run_or_raise(py, watch, |control| {
        control.scope(|| {
            settings
                .fitter(&model.model)?
                .statistics(&lent, &parameters.to_double(), chi2)
        })?
    })?;
    let answer = PyDict::new(py);
    answer.set_item("aic", give(py, statistics.aic))?;
    answer.set_item("bic", give(py, statistics.bic))?;
    answer.set_item("r_squared", give(py, statistics.r_squared))?;
    Ok(answer)
}

/// Computes confidence intervals of fits that are taken up at `starts`, (curves, parameters, sigmas, 2).
#[pyfunction]
pub fn curve_intervals<'py>(
    py: Python<'py>,
    model: &SharedCurveModel,
    curves: GivenCurves<'py>,
    settings: CurveSettings,
    wanted: (Vec<String>, Vec<f64>),
    watch: GivenWatch,
) -> PyResult<Bound<'py, PyAny>> {
    let watch = share_cancel(watch.check(py)?, model);
    let held = HeldCurves::hold(&curves)?;
    let lent = held.lend(py)?;
    let (names, sigmas) = wanted;
    let parameters: Vec<&str> = names.iter().map(String::as_str).collect();
    let intervals = run_or_raise(py, watch, |control| {
        let fitter = settings.fitter(&model.model)?.control(control.clone());
        // The starts are the ends of earlier fits, so that these fits end at once.
        let resumed_fits = fitter.fit(&lent)?;
        fitter.confidence_intervals(&lent, &resumed_fits, &parameters, &sigmas)
    })?;
    let count = intervals.len();
    let limits = intervals
        .iter()
        .flatten()
        .flat_map(|interval| [interval.lower, interval.upper])
        .collect();
    give_shaped(py, limits, &[count, names.len(), sigmas.len(), 2])
}
