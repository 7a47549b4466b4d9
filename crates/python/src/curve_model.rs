//! Models of curves: formulas, and functions of Python.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use popfit::{Context, CurveModel, Failure, Formula, Model, SplineAxis};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::arrays::{give, give_shaped};
use crate::errors::{exception, input_error};
use crate::turns::Turns;
use crate::wait::{Watch, call_user, run_or_raise};

/// Points of all curves of a run up to which it stays on the caller's thread. The slowest fits of so many take a tenth
/// of a second.
const SHORT_POINTS: usize = 1_000;
/// Failure of a function of Python that is called no more.
pub const STOPPED: &str = "the run was stopped";

/// A model of curves, and the function of Python that it calls, if it is no formula.
#[pyclass(frozen, module = "popfit._popfit", name = "CurveModel")]
pub struct SharedCurveModel {
    pub model: CurveModel,
    formula: Option<Formula>,
    /// Calls of the function of Python, if the model is one.
    pub calls: Option<Calls>,
}

/// What the calls of a function of Python share with the run that makes them.
#[derive(Clone, Default)]
pub struct Calls {
    /// True once the run is to end: the function is called no more.
    pub cancel: Arc<AtomicBool>,
    /// The first exception of the function.
    failure: Arc<Mutex<Option<PyErr>>>,
}

impl Calls {
    /// Returns the first exception of the function since the last call, if there was one.
    fn take_failure(&self) -> Option<PyErr> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Keeps the first exception of the function, and returns its text as a model's error. What is no `Exception`, such
    /// as a `KeyboardInterrupt`, cancels the run.
    fn fail(&self, py: Python<'_>, error: PyErr) -> Failure {
        let text = error.to_string();
        if !error.is_instance_of::<PyException>(py) {
            self.cancel.store(true, Ordering::Relaxed);
        }
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert_with(|| error.clone_ref(py));
        text.into()
    }
}

#[pymethods]
impl SharedCurveModel {
    /// Parses a formula; its parameters are those of its text in their order, unless others are given.
    #[staticmethod]
    fn formula(
        py: Python<'_>,
        text: &str,
        predictors: Vec<String>,
        parameters: Option<Vec<String>>,
    ) -> PyResult<SharedCurveModel> {
        let predictors: Vec<&str> = predictors.iter().map(String::as_str).collect();
        let formula = match &parameters {
            Some(names) => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                Formula::parse_exactly(text, &predictors, &names)
            }
            None => Formula::parse_with(text, &predictors),
        };
        Ok(SharedCurveModel::of_formula(
            formula.map_err(|error| exception(py, &error))?,
        ))
    }

    /// Returns a formula that popfit knows by its name.
    #[staticmethod]
    fn builtin(py: Python<'_>, name: &str) -> PyResult<SharedCurveModel> {
        Ok(SharedCurveModel::of_formula(
            Formula::builtin(name).map_err(|error| exception(py, &error))?,
        ))
    }

    /// Returns the names of the formulas that popfit knows.
    #[staticmethod]
    fn builtins() -> Vec<&'static str> {
        Formula::builtins().collect()
    }

    /// Makes a tabulated template with Gpufit's parameters: amplitude, a shift along each axis, offset. An axis is its
    /// first point, the distance of its points and their number.
    #[staticmethod]
    fn spline(
        py: Python<'_>,
        axes: Vec<(f64, f64, usize)>,
        values: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<SharedCurveModel> {
        let axes: Vec<SplineAxis> = axes
            .into_iter()
            .map(|(first, step, count)| SplineAxis { first, step, count })
            .collect();
        let model =
            CurveModel::spline(&axes, values.as_slice()?).map_err(|error| exception(py, &error))?;
        Ok(SharedCurveModel {
            model,
            formula: None,
            calls: None,
        })
    }

    /// Returns the formula with a prefix in front of its parameters' names.
    fn with_prefix(&self, py: Python<'_>, prefix: &str) -> PyResult<SharedCurveModel> {
        let formula = self.known_formula(py)?.with_prefix(prefix);
        Ok(SharedCurveModel::of_formula(
            formula.map_err(|error| exception(py, &error))?,
        ))
    }

    /// Returns two formulas joined by one of `+ - * /`.
    fn combine(
        &self,
        py: Python<'_>,
        operator: &str,
        other: &SharedCurveModel,
    ) -> PyResult<SharedCurveModel> {
        let (one, other) = (self.known_formula(py)?, other.known_formula(py)?);
        let joined = match operator {
            "+" => one.plus(other),
            "-" => one.minus(other),
            "*" => one.times(other),
            _ => one.over(other),
        };
        Ok(SharedCurveModel::of_formula(
            joined.map_err(|error| exception(py, &error))?,
        ))
    }

    /// Guesses the starts of curves, (curves, P), from x (predictors·points), or one after another for each curve, and
    /// y (curves·points). Of several curves one without a number has NaN.
    fn guess<'py>(
        &self,
        py: Python<'py>,
        x: PyReadonlyArray1<'py, f64>,
        y: PyReadonlyArray1<'py, f64>,
        points: usize,
        threads: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (formula, x, y) = (self.known_formula(py)?, x.as_slice()?, y.as_slice()?);
        let (count, size) = (y.len() / points.max(1), points * formula.predictors().len());
        let one = |k: usize| {
            let y = &y[k * points..][..points];
            if count > 1 && !y.iter().any(|value| value.is_finite()) {
                return Ok(vec![f64::NAN; formula.parameters().len()]);
            }
            formula.guess(
                if x.len() > size {
                    &x[k * size..][..size]
                } else {
                    x
                },
                y,
            )
        };
        let watch = Watch {
            is_short: y.len() <= SHORT_POINTS,
            ..Watch::of_threads(threads)
        };
        let found: Vec<Vec<f64>> = run_or_raise(py, watch, |control| {
            let is_wanted = |_: &usize| !control.cancel.load(Ordering::Relaxed);
            control.scope(|| {
                (0..count)
                    .into_par_iter()
                    .take_any_while(is_wanted)
                    .map(one)
                    .collect()
            })?
        })?;
        give_shaped(py, found.concat(), &[count, formula.parameters().len()])
    }

    /// Makes a model of functions of Python: `values(x, parameters)` and perhaps `derivatives(x, parameters)` get x as
    /// (predictors·n), and return n and P·n numbers; `many(x, parameters)` gets parameters (m, P) and returns m·n.
    #[staticmethod]
    fn function(
        py: Python<'_>,
        predictors: Vec<String>,
        parameters: Vec<String>,
        values: Py<PyAny>,
        derivatives: Option<Py<PyAny>>,
        many: Option<Py<PyAny>>,
    ) -> PyResult<SharedCurveModel> {
        let calls = Calls::default();
        let turns = Turns::default();
        let function = PythonFunction {
            predictors,
            parameters,
            values,
            derivatives,
            many,
            calls: calls.clone(),
            turns,
        };
        let model = CurveModel::new(function).map_err(|error| exception(py, &error))?;
        Ok(SharedCurveModel {
            model,
            formula: None,
            calls: Some(calls),
        })
    }

    /// Returns the formula's text, or None for a function.
    #[getter]
    fn text(&self) -> Option<&str> {
        self.formula.as_ref().map(Formula::text)
    }

    /// Returns the names of the predictors.
    #[getter]
    fn predictors(&self) -> Vec<String> {
        self.model.predictors().to_vec()
    }

    /// Returns the names of the parameters.
    #[getter]
    fn parameters(&self) -> Vec<String> {
        self.model.parameters().to_vec()
    }

    /// Returns what is likely to be a mistake in the formula.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.formula.as_ref().map_or(Vec::new(), Formula::warnings)
    }

    /// Returns the first exception of the function since the last call.
    fn take_failure(&self) -> Option<PyErr> {
        self.calls.as_ref().and_then(Calls::take_failure)
    }

    /// Computes the values at n points, x (predictors·n).
    fn values<'py>(
        &self,
        py: Python<'py>,
        x: PyReadonlyArray1<'py, f64>,
        parameters: PyReadonlyArray1<'py, f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (x, parameters) = (x.as_slice()?, parameters.as_slice()?);
        let values = py.detach(|| self.model.values(x, parameters));
        Ok(give(py, values.map_err(|error| exception(py, &error))?))
    }

    /// Computes values and derivatives at n points, (1 + P, n).
    fn linearise<'py>(
        &self,
        py: Python<'py>,
        x: PyReadonlyArray1<'py, f64>,
        parameters: PyReadonlyArray1<'py, f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (x, parameters) = (x.as_slice()?, parameters.as_slice()?);
        let rows = py
            .detach(|| self.model.linearise(x, parameters))
            .map_err(|error| exception(py, &error))?;
        let count = 1 + parameters.len();
        let points = rows.len() / count;
        give_shaped(py, rows, &[count, points])
    }
}

impl SharedCurveModel {
    /// Returns whether fits of the model at so many points take milliseconds: no function of Python is called.
    pub fn is_quick(&self, points: usize) -> bool {
        self.formula.is_some() && points <= SHORT_POINTS
    }

    /// Returns the formula.
    fn known_formula(&self, py: Python<'_>) -> PyResult<&Formula> {
        self.formula
            .as_ref()
            .ok_or_else(|| input_error(py, "model", "model: a function, and no formula"))
    }

    fn of_formula(formula: Formula) -> SharedCurveModel {
        SharedCurveModel {
            model: formula.clone().into(),
            formula: Some(formula),
            calls: None,
        }
    }
}

/// A model that calls functions of Python.
struct PythonFunction {
    predictors: Vec<String>,
    parameters: Vec<String>,
    values: Py<PyAny>,
    derivatives: Option<Py<PyAny>>,
    many: Option<Py<PyAny>>,
    calls: Calls,
    turns: Turns,
}

impl PythonFunction {
    /// Calls a function of Python with copies of x and the parameters, and copies the numbers that it returns. The
    /// first exception is kept.
    fn call(
        &self,
        function: &Py<PyAny>,
        x: &[f64],
        parameters: &[f64],
        into: &mut [f64],
    ) -> Result<(), Failure> {
        self.attached(|py| {
            let arguments = (
                PyArray1::from_slice(py, x).into_any(),
                PyArray1::from_slice(py, parameters).into_any(),
            );
            call_with(py, function, arguments, into).map_err(|error| self.calls.fail(py, error))
        })
    }

    /// Calls a function of Python as [`call`](Self::call) does, with the parameters (rows, P) of a curve or of many. No
    /// exception of many curves is kept, but for one that ends the run: they are evaluated again, one by one.
    fn call_many(
        &self,
        function: &Py<PyAny>,
        contexts: &[Context],
        x: &[f64],
        parameters: &[f64],
        into: &mut [f64],
    ) -> Result<(), Failure> {
        let rows = contexts.len();
        let call = |py: Python<'_>, into: &mut [f64]| {
            let parameters = PyArray1::from_slice(py, parameters)
                .reshape([rows, parameters.len() / rows.max(1)])?;
            call_with(
                py,
                function,
                (
                    PyArray1::from_slice(py, x).into_any(),
                    parameters.into_any(),
                ),
                into,
            )
        };
        let is_of_one = contexts
            .iter()
            .all(|context| contexts.first() == Some(context));
        let fail = |py: Python<'_>, error: PyErr| match is_of_one
            || !error.is_instance_of::<PyException>(py)
        {
            true => self.calls.fail(py, error),
            false => error.to_string().into(),
        };
        self.turns.take(into.len(), || {
            self.attached(|py| call(py, into).map_err(|error| fail(py, error)))
        })
    }

    /// Does `work` with Python's lock, unless the run is to end: it does not wait for the lock then.
    fn attached(
        &self,
        work: impl FnOnce(Python<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.calls.cancel.load(Ordering::Relaxed) {
            return Err(STOPPED.into());
        }
        call_user(|| Python::attach(work))
    }
}

/// Calls a function of Python, and copies the numbers that it returns.
fn call_with<'py>(
    py: Python<'py>,
    function: &Py<PyAny>,
    arguments: (Bound<'py, PyAny>, Bound<'py, PyAny>),
    into: &mut [f64],
) -> PyResult<()> {
    let numbers: PyReadonlyArray1<'_, f64> = function.call1(py, arguments)?.extract(py)?;
    into.copy_from_slice(numbers.as_slice()?);
    Ok(())
}

impl Model for PythonFunction {
    fn predictors(&self) -> Vec<String> {
        self.predictors.clone()
    }

    fn parameters(&self) -> Vec<String> {
        self.parameters.clone()
    }

    fn values(
        &self,
        _: &Context,
        x: &[f64],
        parameters: &[f64],
        values: &mut [f64],
    ) -> Result<(), Failure> {
        self.call(&self.values, x, parameters, values)
    }

    fn linearise(
        &self,
        _: &Context,
        x: &[f64],
        parameters: &[f64],
        rows: &mut [f64],
    ) -> Result<bool, Failure> {
        let Some(derivatives) = &self.derivatives else {
            return Ok(false);
        };
        let (values, slopes) = rows.split_at_mut(rows.len() / (1 + parameters.len()));
        self.call(&self.values, x, parameters, values)?;
        self.call(derivatives, x, parameters, slopes)?;
        Ok(true)
    }

    fn takes_many(&self) -> bool {
        self.many.is_some()
    }

    /// Keeps what Python knows of a thread: it would be made anew for each call.
    fn during_calls(&self, work: &mut (dyn FnMut() + Send)) {
        // without calls nobody waits for Python's lock
        if self.calls.cancel.load(Ordering::Relaxed) {
            return work();
        }
        Python::attach(|py| py.detach(work));
    }

    fn values_many(
        &self,
        contexts: &[Context],
        x: &[f64],
        parameters: &[f64],
        values: &mut [f64],
    ) -> Result<(), Failure> {
        match &self.many {
            Some(many) => self.call_many(many, contexts, x, parameters, values),
            None => Err("no function of many curves".into()),
        }
    }
}
