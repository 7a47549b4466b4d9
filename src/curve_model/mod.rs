//! Models that a [`CurveFitter`](crate::CurveFitter) fits: a formula, a function in Rust, or WGSL; for the CPU, the GPU
//! or both.

mod check;
mod closure;
mod differences;
mod failures;
mod many;
mod model;
mod spline;
mod transformed;
#[cfg(feature = "gpu")]
mod wgsl;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::{Error, Result};
use crate::formula::Formula;
use crate::recording::{CustomFunction, CustomInput, ManyFunction, Member};

pub use check::DerivativeCheck;
pub(crate) use check::{compare, compare_row, is_worse};
pub use closure::{Closure, ClosureOutput};
use differences::FiniteDifferences;
pub(crate) use differences::Sides;
pub(crate) use failures::Failures;
use failures::catch_failure;
use many::context_of;
pub use model::{Context, Failure, Model};
pub use spline::SplineAxis;

/// A model of curves, y = f(x; p). Cheap to clone.
#[derive(Clone)]
pub struct CurveModel {
    name: Arc<str>,
    predictors: Arc<[String]>,
    parameters: Arc<[String]>,
    rust: Option<Arc<dyn Model>>,
    wgsl: Option<Arc<Wgsl>>,
    /// Formula from which it was made, if any.
    formula: Option<Arc<Formula>>,
    /// True if derivatives are differences, whether the model has its own or not. Formulas and splines in WGSL keep
    /// theirs.
    differences: bool,
    /// Result of comparing a user's two versions of the model, in WGSL and in Rust: true once a GPU has found both
    /// alike. `None` unless both were given.
    twin_agreement: Option<Arc<AtomicBool>>,
    /// True if the model's one value is a cost, which is minimised as it is.
    is_cost: bool,
}

/// Source from which a GPU makes a model's rows.
#[derive(Clone, Debug, Default)]
struct Wgsl {
    /// Function `fill` of a [`Custom`](crate::recording::Custom) stage, for the value alone.
    value: String,
    /// The same function with derivatives.
    linearisation: String,
    /// The same function with differences for derivatives; empty if they are never needed.
    differences: String,
    /// Numbers that the sources may read as `table`.
    table: Arc<[f32]>,
}

/// The code of a [`Custom`](crate::recording::Custom) stage.
pub(crate) struct Code {
    pub name: String,
    pub wgsl: String,
    pub table: Arc<[f32]>,
    pub rust: CustomFunction,
    /// For many curves at once, where the model is quicker so.
    pub many: Option<ManyFunction>,
}

impl CurveModel {
    /// Makes a curve model, for the CPU, of a type that implements [`Model`].
    ///
    /// # Errors
    /// Returns [`Error::Usage`] if it has no predictor or no parameter, or if a name is empty or given twice.
    pub fn new(model: impl Model + 'static) -> Result<CurveModel> {
        let predictors = model.predictors();
        let parameters = model.parameters();
        check_names(&predictors, &parameters)?;
        Ok(CurveModel::of_rust(
            "function",
            predictors,
            parameters,
            Arc::new(model),
        ))
    }

    /// Makes a curve model of Rust code, whose names have been checked; `name` is its kind, for messages.
    fn of_rust(
        name: &str,
        predictors: Vec<String>,
        parameters: Vec<String>,
        model: Arc<dyn Model>,
    ) -> CurveModel {
        CurveModel {
            name: name.into(),
            predictors: predictors.into(),
            parameters: parameters.into(),
            rust: Some(model),
            wgsl: None,
            formula: None,
            differences: false,
            twin_agreement: None,
            is_cost: false,
        }
    }

    /// Returns the names of the parameters, in the order of every vector of parameters.
    pub fn parameters(&self) -> &[String] {
        &self.parameters
    }

    /// Returns the names of the parameters as a shared pointer, without copying them.
    pub(crate) fn names(&self) -> Arc<[String]> {
        self.parameters.clone()
    }

    /// Returns the names of the predictors, in the order of the rows of `x`.
    pub fn predictors(&self) -> &[String] {
        &self.predictors
    }

    /// Returns the formula from which the model was made, if any.
    pub(crate) fn formula(&self) -> Option<&Formula> {
        self.formula.as_deref()
    }

    /// Sets whether differences are taken as derivatives even if a model in Rust or a user's WGSL has its own (by
    /// default not). A formula or a spline keeps its own on a GPU, whose f32 leaves three digits of a difference.
    #[must_use]
    pub fn differences(self, differences: bool) -> CurveModel {
        CurveModel {
            differences,
            ..self
        }
    }

    /// Computes the values at n points, in f64 on the CPU; `x` is (predictors, n).
    ///
    /// # Errors
    /// Returns [`Error::ShapeMismatch`] if `x` or `parameters` has the wrong length, and [`Error::Model`] if the model
    /// runs on GPUs alone, returns an error or panics.
    pub fn values(&self, x: &[f64], parameters: &[f64]) -> Result<Vec<f64>> {
        self.evaluate(false, x, parameters)
    }

    /// Computes values and derivatives by every parameter at n points, (1 + parameters, n); `x` is (predictors, n).
    ///
    /// # Errors
    /// The errors of [`values`](Self::values).
    pub fn linearise(&self, x: &[f64], parameters: &[f64]) -> Result<Vec<f64>> {
        self.evaluate(true, x, parameters)
    }

    /// Checks the lengths and computes values at n points, with `derivatives` also those by each parameter: (1 + P, n).
    fn evaluate(&self, derivatives: bool, x: &[f64], parameters: &[f64]) -> Result<Vec<f64>> {
        self.count_points(x, parameters)?;
        let failures = Failures::default();
        let input = CustomInput {
            x,
            parameters,
            limits: None,
            member: Member::default(),
        };
        let Some(rows) = self.rows(derivatives, &input, &failures) else {
            return Err(Error::model(self.missing_rust_message()));
        };
        match failures.text(0) {
            Some(failure) => Err(Error::model(failure)),
            None => Ok(rows),
        }
    }

    /// Computes values and derivatives by the model's own code, (1 + parameters, n); fails if it has none.
    pub(crate) fn own_rows(&self, x: &[f64], parameters: &[f64]) -> Result<Vec<f64>> {
        let points = self.count_points(x, parameters)?;
        let Some(rust) = &self.rust else {
            return self.missing_derivatives_error();
        };
        let mut rows = vec![f64::NAN; (1 + parameters.len()) * points];
        let has_derivatives =
            catch_failure(|| rust.linearise(&Context::default(), x, parameters, &mut rows))
                .map_err(Error::model)?;
        if has_derivatives {
            Ok(rows)
        } else {
            self.missing_derivatives_error()
        }
    }

    /// Returns the number of points of `x`, or [`Error::ShapeMismatch`] if `x` or `parameters` has the wrong length.
    pub(crate) fn count_points(&self, x: &[f64], parameters: &[f64]) -> Result<usize> {
        let mismatch = |array: &str, length: usize, names: &[String]| {
            let message = format!("{length} numbers for {}", names.join(", "));
            Err(Error::mismatch(array, message).naming(array))
        };
        if !x.len().is_multiple_of(self.predictors.len()) {
            return mismatch("x", x.len(), &self.predictors);
        }
        if parameters.len() != self.parameters.len() {
            return mismatch("parameters", parameters.len(), &self.parameters);
        }
        Ok(x.len() / self.predictors.len())
    }

    /// Evaluates one curve: a row of values and, with `derivatives`, a row for each parameter; `None` if the model does
    /// not run on the CPU.
    pub(crate) fn rows(
        &self,
        derivatives: bool,
        input: &CustomInput,
        failures: &Failures,
    ) -> Option<Vec<f64>> {
        let model = self.rust.as_deref()?;
        let rows = if derivatives {
            1 + self.parameters.len()
        } else {
            1
        };
        let mut output = vec![f64::NAN; rows * (input.x.len() / self.predictors.len())];
        let evaluation = ModelEvaluation {
            model,
            differences: self.differences,
            is_formula: self.formula.is_some(),
            derivatives,
            failures,
        };
        evaluation.evaluate_curve(input, &mut output);
        Some(output)
    }

    /// Returns the model's Rust and WGSL for a [`Custom`](crate::recording::Custom) stage; failures of the Rust are
    /// added to `failures`.
    pub(crate) fn stage_code(&self, derivatives: bool, failures: Arc<Failures>) -> Code {
        // 1. Rust, of one curve and of many.
        let many = self.many_function(derivatives, Sides::Both, failures.clone());
        let rust: CustomFunction = match self.rust.clone() {
            Some(model) => {
                let differences = self.differences;
                let is_formula = self.formula.is_some();
                Arc::new(move |input, output| {
                    let evaluation = ModelEvaluation {
                        model: &*model,
                        differences,
                        is_formula,
                        derivatives,
                        failures: &failures,
                    };
                    evaluation.evaluate_curve(input, output);
                })
            }
            // This function is never called, because `device_fault` has refused the CPU.
            None => Arc::new(|_, output| output.fill(f64::NAN)),
        };
        // 2. WGSL, with the derivatives that were asked for.
        let (wgsl, table) = match self.wgsl.as_deref() {
            Some(wgsl) => {
                let takes_differences = self.differences && !wgsl.differences.is_empty();
                let source = match derivatives {
                    true if takes_differences => &wgsl.differences,
                    true => &wgsl.linearisation,
                    false => &wgsl.value,
                };
                (source.clone(), wgsl.table.clone())
            }
            None => Default::default(),
        };
        Code {
            name: self.name.to_string(),
            wgsl,
            table,
            rust,
            many,
        }
    }

    /// Returns whether the model is a user's, and quicker for many curves at once.
    pub(crate) fn takes_many(&self) -> bool {
        self.is_users_rust() && self.rust.as_ref().is_some_and(|model| model.takes_many())
    }

    /// Returns the function that evaluates many curves at once, with differences on so many sides; `None` unless the
    /// model is a user's that is quicker so. Its failures are added to `failures`.
    pub(crate) fn many_function(
        &self,
        derivatives: bool,
        sides: Sides,
        failures: Arc<Failures>,
    ) -> Option<ManyFunction> {
        if !self.takes_many() {
            return None;
        }
        let model = self.rust.clone()?;
        let caller = model.clone();
        let differences = self.differences;
        Some(ManyFunction {
            fill: Arc::new(move |inputs, output| {
                let evaluation = ModelEvaluation {
                    model: &*model,
                    differences,
                    is_formula: false,
                    derivatives,
                    failures: &failures,
                };
                evaluation.evaluate_many(sides, inputs, output);
            }),
            during: Arc::new(move |work| caller.during_calls(work)),
        })
    }

    /// Returns whether the model's single value is itself minimised, instead of a sum of squared residuals.
    pub(crate) fn is_cost(&self) -> bool {
        self.is_cost
    }

    /// Returns whether the model is a user's or a spline's Rust code, not a formula.
    pub(crate) fn is_users_rust(&self) -> bool {
        self.rust.is_some() && self.formula.is_none()
    }

    /// Returns whether the model has no Rust code, so that only a GPU can evaluate it.
    pub(crate) fn needs_gpu(&self) -> bool {
        self.rust.is_none()
    }

    /// Returns the flag that a GPU has found the model's WGSL and its twin in Rust to agree; `None` unless both were
    /// given. Clones share the flag.
    pub(crate) fn twin_agreement(&self) -> Option<&AtomicBool> {
        self.twin_agreement.as_deref()
    }

    /// Returns whether the model's WGSL has derivatives of its own, instead of differences.
    pub(crate) fn has_wgsl_slopes(&self) -> bool {
        self.wgsl
            .as_ref()
            .is_some_and(|wgsl| wgsl.linearisation != wgsl.differences)
    }

    /// Returns the error that the model has no derivatives of its own to compare with differences.
    pub(crate) fn missing_derivatives_error<T>(&self) -> Result<T> {
        Err(Error::model(format!(
            "the {} has no derivatives of its own to check",
            self.name
        )))
    }

    /// Returns why the model cannot run on a device, given whether that runs WGSL (a GPU) or Rust (the CPU); `None` if
    /// it can.
    pub(crate) fn device_fault(&self, runs_wgsl: bool) -> Option<String> {
        match (runs_wgsl, &self.wgsl, &self.rust) {
            (true, None, _) => Some(format!(
                "a {} in Rust runs on the CPU alone: take Device::cpu(), or give the model as a formula or as WGSL",
                self.name
            )),
            (false, _, None) => Some(self.missing_rust_message()),
            _ => None,
        }
    }

    /// Returns the message that the model has no Rust code and so cannot run on the CPU.
    fn missing_rust_message(&self) -> String {
        format!(
            "a {} runs on a GPU alone: take one, or give its twin in Rust (with_rust)",
            self.name
        )
    }
}

/// An evaluation of a model in Rust.
struct ModelEvaluation<'a> {
    model: &'a dyn Model,
    differences: bool,
    is_formula: bool,
    derivatives: bool,
    failures: &'a Failures,
}

impl ModelEvaluation<'_> {
    /// Computes values, with `derivatives` also those by each parameter, of one curve into `output`; NaN if the model
    /// has failed.
    fn evaluate_curve(&self, input: &CustomInput, output: &mut [f64]) {
        let fit = input.member.index;
        if self.failures.text(fit).is_some() {
            output.fill(f64::NAN);
        } else if let Err(failure) = catch_failure(|| self.try_curve(input, output)) {
            output.fill(f64::NAN);
            self.failures.add(fit, failure);
        }
    }

    /// Computes values, with `derivatives` also the model's own or differences, of one curve into `output`, or returns
    /// the model's error.
    fn try_curve(&self, input: &CustomInput, output: &mut [f64]) -> Result<(), Failure> {
        let CustomInput { x, parameters, .. } = *input;
        let context = context_of(input);
        // 1. Values alone.
        if !self.derivatives {
            return self.model.values_many(&[context], x, parameters, output);
        }
        // 2. Derivatives, by differences if the model has none.
        if self.differences || !self.model.linearise(&context, x, parameters, output)? {
            return self.take_differences(Sides::Both, &mut [(input, output)]);
        }
        // 3. A factor of a derivative may be beyond f64's range where the value is not.
        if self.is_formula && !output.iter().all(|x| x.is_finite()) {
            let differences = FiniteDifferences {
                model: self.model,
                context: &context,
                input,
            };
            differences.replace_overflows(output)?;
        }
        Ok(())
    }
}

impl From<Formula> for CurveModel {
    fn from(formula: Formula) -> CurveModel {
        let predictors = formula.predictors().to_vec();
        let parameters = formula.parameters().to_vec();
        let wgsl = Wgsl {
            value: formula.wgsl(false).into(),
            linearisation: formula.wgsl(true).into(),
            ..Wgsl::default()
        };
        let formula = Arc::new(formula);
        let model = CurveModel::of_rust("formula", predictors, parameters, formula.clone());
        CurveModel {
            wgsl: Some(Arc::new(wgsl)),
            formula: Some(formula),
            ..model
        }
    }
}

impl fmt::Debug for CurveModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CurveModel")
            .field("name", &self.name)
            .field("predictors", &self.predictors)
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}

/// Fails if there is no predictor or no parameter, or if a name is empty or used twice.
fn check_names(predictors: &[String], parameters: &[String]) -> Result<()> {
    if predictors.is_empty() {
        return Err(Error::invalid("predictors", "a model needs a predictor"));
    }
    if parameters.is_empty() {
        return Err(Error::invalid(
            "parameters",
            "a model needs a parameter to fit",
        ));
    }
    let names: Vec<&String> = predictors.iter().chain(parameters).collect();
    for (k, name) in names.iter().enumerate() {
        let argument = if k < predictors.len() {
            "predictors"
        } else {
            "parameters"
        };
        if name.trim().is_empty() {
            return Err(Error::invalid(
                argument,
                "a predictor or parameter has no name",
            ));
        }
        if names[..k].contains(name) {
            let message = format!("two of the predictors and parameters are called `{name}`");
            return Err(Error::invalid(argument, message));
        }
    }
    Ok(())
}

/// Copies names into strings of their own.
fn own_names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
