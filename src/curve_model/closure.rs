//! Closures as models.

use std::sync::Arc;

use super::model::{Context, Failure, Model};
use super::{CurveModel, check_names, own_names};
use crate::error::Result;

/// Function of context, x (predictors, n), parameters (P), and the output, which it fills.
type ClosureFunction =
    Arc<dyn Fn(&Context, &[f64], &[f64], &mut [f64]) -> Result<(), Failure> + Send + Sync>;

/// A model given by closures, for the CPU.
///
/// A model writes NaN at points where it has no value: a step to there is rejected. A closure may also fail
/// ([`new`](Self::new)), and it may panic. Either ends only the fit that it was evaluated for, with
/// [`Status::NotFinite`](crate::Status::NotFinite), and the fit's message has the error's text. (Rust's panic hook
/// still prints the panic, and a program that aborts on panics is aborted.)
///
/// ```
/// use popfit::{Closure, CurveFitter, Curves, Device};
///
/// let decay = Closure::new(&["x"], &["a", "k"], |x, p, y| {
///     y.iter_mut().zip(x).for_each(|(y, x)| *y = p[0] * (-p[1] * x).exp());
/// })?;
/// let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
/// let y: Vec<f64> = x.iter().map(|x| 3.0 * (-0.5 * x).exp()).collect();
/// let fits = CurveFitter::new(decay, Device::cpu()).fit(&Curves::on_common_grid(x, y, vec![1.0, 1.0]))?;
/// assert!((fits[0].parameters[1] - 0.5).abs() < 1e-9);
/// # Ok::<(), popfit::Error>(())
/// ```
#[derive(Clone)]
pub struct Closure {
    predictors: Vec<String>,
    parameters: Vec<String>,
    values: ClosureFunction,
    derivatives: Option<ClosureFunction>,
    is_cost: bool,
}

impl std::fmt::Debug for Closure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Closure {
            predictors,
            parameters,
            derivatives,
            is_cost,
            ..
        } = self;
        let debug = &mut f.debug_struct("Closure");
        debug
            .field("predictors", predictors)
            .field("parameters", parameters);
        debug
            .field("has_derivatives", &derivatives.is_some())
            .field("is_cost", is_cost)
            .finish_non_exhaustive()
    }
}

impl Closure {
    /// Makes a model of a closure that computes the values at all n points of a curve: x (predictors, n), parameters,
    /// values (n). NaN where it is not defined.
    ///
    /// A closure that returns an error ends that curve's fit alone, by its first error. Where a model is only not
    /// defined it writes NaN instead, and the fit continues from its last point.
    ///
    /// ```
    /// use popfit::{Closure, CurveFitter, Curves, Device, Status};
    ///
    /// let root = Closure::new(&["x"], &["a", "k"], |x, p, y| {
    ///     if p[1] < 0.0 {
    ///         return Err(format!("k is {}", p[1]));
    ///     }
    ///     y.iter_mut().zip(x).for_each(|(y, x)| *y = p[0] * (p[1] * x).sqrt());
    ///     Ok(())
    /// })?;
    /// let curves = Curves::on_common_grid(vec![1.0, 2.0, 3.0], vec![1.0, 2.0, 3.0], vec![1.0, -1.0]);
    /// let fits = CurveFitter::new(root, Device::cpu()).fit(&curves)?;
    /// assert_eq!((fits[0].status, &*fits[0].message), (Status::NotFinite, "the model failed: k is -1"));
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Usage`](crate::Error::Usage) if there is no predictor or no parameter, or if a name is empty or
    /// given twice.
    pub fn new<R: ClosureOutput>(
        predictors: &[&str],
        parameters: &[&str],
        values: impl Fn(&[f64], &[f64], &mut [f64]) -> R + Send + Sync + 'static,
    ) -> Result<Closure> {
        Closure::indexed(predictors, parameters, move |_, x, p, y| values(x, p, y))
    }

    /// Makes a model of a closure that also receives the index of the curve ([`Context`]), for models with data per
    /// curve.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn indexed<R: ClosureOutput>(
        predictors: &[&str],
        parameters: &[&str],
        values: impl Fn(&Context, &[f64], &[f64], &mut [f64]) -> R + Send + Sync + 'static,
    ) -> Result<Closure> {
        let predictors = own_names(predictors);
        let parameters = own_names(parameters);
        check_names(&predictors, &parameters)?;
        Ok(Closure {
            predictors,
            parameters,
            values: wrap(values),
            derivatives: None,
            is_cost: false,
        })
    }

    /// Makes a model whose sum of squared residuals Σ r(θ)² is minimised, as by scipy's `least_squares`: parameters,
    /// residuals (m). For [`Curves::residuals`](crate::Curves::residuals). Residuals with data of their own are an
    /// [`indexed`](Self::indexed) model of one predictor, whose x is not needed.
    ///
    /// # Errors
    /// Returns [`Error::Usage`](crate::Error::Usage) if there is no parameter, or if a name is empty, given twice, or
    /// `row`, which is the name of the predictor.
    pub fn residuals<R: ClosureOutput>(
        parameters: &[&str],
        residuals: impl Fn(&[f64], &mut [f64]) -> R + Send + Sync + 'static,
    ) -> Result<Closure> {
        Closure::new(&["row"], parameters, move |_, p, r| residuals(p, r))
    }

    /// Makes a model whose scalar cost f(θ) is minimised as it is: it is not squared, and may be negative. It needs
    /// [`NelderMead`](crate::NelderMead), such as [`CurveFitter::NELDER_MEAD`](crate::CurveFitter::NELDER_MEAD), or an
    /// optimiser of argmin's (feature `argmin`); Levenberg–Marquardt has no residuals to work with.
    /// [`Curves::residuals`](crate::Curves::residuals) of one row has the starts.
    /// [`CurveFit::chi2`](crate::CurveFit::chi2) is the lowest cost, and errors are NaN.
    ///
    /// ```
    /// use popfit::{Closure, CurveFitter, Curves, Device};
    ///
    /// let valley = Closure::cost(&["a", "b"], |p| (p[0] - 1.0).powi(2) + (p[1] + 2.0).powi(4) - 7.0)?;
    /// let fitter = CurveFitter::new(valley, Device::cpu()).solver(CurveFitter::NELDER_MEAD);
    /// let fit = &fitter.fit(&Curves::residuals(1, 2, vec![5.0, 5.0]))?[0];
    /// assert!(fit.status.is_success() && (fit.chi2 + 7.0).abs() < 1e-9 && (fit.parameters[0] - 1.0).abs() < 1e-3);
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`residuals`](Self::residuals).
    pub fn cost(
        parameters: &[&str],
        cost: impl Fn(&[f64]) -> f64 + Send + Sync + 'static,
    ) -> Result<Closure> {
        Closure::indexed_cost(parameters, move |_, p| cost(p))
    }

    /// Makes a [`cost`](Self::cost) of a closure that also receives the index of the problem it is evaluated for.
    ///
    /// # Errors
    /// The errors of [`residuals`](Self::residuals).
    pub fn indexed_cost(
        parameters: &[&str],
        cost: impl Fn(&Context, &[f64]) -> f64 + Send + Sync + 'static,
    ) -> Result<Closure> {
        let values = move |context: &Context, _: &[f64], p: &[f64], y: &mut [f64]| {
            y.fill(0.0);
            if let Some(first) = y.first_mut() {
                *first = cost(context, p);
            }
        };
        Ok(Closure {
            is_cost: true,
            ..Closure::indexed(&["row"], parameters, values)?
        })
    }

    /// Sets a closure for the derivatives by every parameter at all points: x (predictors, n), parameters, derivatives
    /// (P, n). Without them differences are taken.
    #[must_use]
    pub fn derivatives<R: ClosureOutput>(
        self,
        derivatives: impl Fn(&[f64], &[f64], &mut [f64]) -> R + Send + Sync + 'static,
    ) -> Closure {
        self.indexed_derivatives(move |_, x, p, rows| derivatives(x, p, rows))
    }

    /// Sets a closure for the derivatives that also receives the index of the curve ([`Context`]).
    #[must_use]
    pub fn indexed_derivatives<R: ClosureOutput>(
        self,
        derivatives: impl Fn(&Context, &[f64], &[f64], &mut [f64]) -> R + Send + Sync + 'static,
    ) -> Closure {
        Closure {
            derivatives: Some(wrap(derivatives)),
            ..self
        }
    }
}

/// What a closure may return: nothing, or a `Result`, whose error ends the fit of its curve.
pub trait ClosureOutput {
    /// Returns the output as a `Result` with an error of any type.
    fn into_result(self) -> Result<(), Failure>;
}

impl ClosureOutput for () {
    fn into_result(self) -> Result<(), Failure> {
        Ok(())
    }
}

impl<E: Into<Failure>> ClosureOutput for Result<(), E> {
    fn into_result(self) -> Result<(), Failure> {
        self.map_err(Into::into)
    }
}

/// Wraps a closure so that it returns a `Result` with an error of any type.
fn wrap<R: ClosureOutput>(
    function: impl Fn(&Context, &[f64], &[f64], &mut [f64]) -> R + Send + Sync + 'static,
) -> ClosureFunction {
    Arc::new(move |context, x, parameters, output| {
        function(context, x, parameters, output).into_result()
    })
}

impl Model for Closure {
    fn predictors(&self) -> Vec<String> {
        self.predictors.clone()
    }

    fn parameters(&self) -> Vec<String> {
        self.parameters.clone()
    }

    fn values(
        &self,
        context: &Context,
        x: &[f64],
        parameters: &[f64],
        values: &mut [f64],
    ) -> Result<(), Failure> {
        (self.values)(context, x, parameters, values)
    }

    fn linearise(
        &self,
        context: &Context,
        x: &[f64],
        parameters: &[f64],
        rows: &mut [f64],
    ) -> Result<bool, Failure> {
        let Some(derivatives) = &self.derivatives else {
            return Ok(false);
        };
        let (value, slopes) = rows.split_at_mut(rows.len() / (1 + parameters.len()));
        (self.values)(context, x, parameters, value)?;
        derivatives(context, x, parameters, slopes)?;
        Ok(true)
    }
}

impl From<Closure> for CurveModel {
    fn from(closure: Closure) -> CurveModel {
        let predictors = closure.predictors.clone();
        let parameters = closure.parameters.clone();
        let is_cost = closure.is_cost;
        CurveModel {
            is_cost,
            ..CurveModel::of_rust("closure", predictors, parameters, Arc::new(closure))
        }
    }
}
