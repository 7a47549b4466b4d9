//! Closures as models.

use std::sync::Arc;

use super::model::Model;
use super::{CurveModel, check_names};
use crate::error::Result;

/// x (predictors, n), parameters (P), what to fill.
type Function = Arc<dyn Fn(&[f64], &[f64], &mut [f64]) + Send + Sync>;

/// Closures as a model, for the CPU.
///
/// Where the model has no value it writes NaN: a panic is no status, and passes through the fit.
///
/// ```
/// use popfit::{Closure, CurveFitter, Curves, Device};
///
/// let decay = Closure::new(&["x"], &["a", "k"], |x, p, y| {
///     y.iter_mut().zip(x).for_each(|(y, x)| *y = p[0] * (-p[1] * x).exp());
/// })?;
/// let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
/// let y = x.iter().map(|x| 3.0 * (-0.5 * x).exp()).collect();
/// let fits = CurveFitter::new(decay, Device::cpu()).fit(&Curves::on_common_grid(x, y, vec![1.0, 1.0]))?;
/// assert!((fits[0].parameters[1] - 0.5).abs() < 1e-9);
/// # Ok::<(), popfit::Error>(())
/// ```
#[derive(Clone)]
pub struct Closure {
    predictors: Vec<String>,
    parameters: Vec<String>,
    values: Function,
    derivatives: Option<Function>,
}

impl Closure {
    /// A model by its values at all n points of a curve: x (predictors, n), parameters, values (n). NaN where it is not defined.
    /// [`Error::Usage`](crate::Error::Usage) when there is no name or one is there twice.
    pub fn new(
        predictors: &[&str],
        parameters: &[&str],
        values: impl Fn(&[f64], &[f64], &mut [f64]) + Send + Sync + 'static,
    ) -> Result<Closure> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (predictors, parameters) = (owned(predictors), owned(parameters));
        check_names(&predictors, &parameters)?;
        Ok(Closure { predictors, parameters, values: Arc::new(values), derivatives: None })
    }

    /// Residuals r(θ) of which Σ r² is to be least, as scipy's `least_squares` has them: parameters, residuals (m). For
    /// [`Curves::residuals`](crate::Curves::residuals).
    pub fn residuals(
        parameters: &[&str],
        residuals: impl Fn(&[f64], &mut [f64]) + Send + Sync + 'static,
    ) -> Result<Closure> {
        Closure::new(&["row"], parameters, move |_, p, r| residuals(p, r))
    }

    /// Derivatives by every parameter at all points: x (predictors, n), parameters, derivatives (P, n). Without, differences are
    /// taken.
    #[must_use]
    pub fn derivatives(self, derivatives: impl Fn(&[f64], &[f64], &mut [f64]) + Send + Sync + 'static) -> Closure {
        Closure { derivatives: Some(Arc::new(derivatives)), ..self }
    }
}

impl Model for Closure {
    fn predictors(&self) -> Vec<String> {
        self.predictors.clone()
    }

    fn parameters(&self) -> Vec<String> {
        self.parameters.clone()
    }

    fn values(&self, x: &[f64], parameters: &[f64], values: &mut [f64]) {
        (self.values)(x, parameters, values);
    }

    fn linearise(&self, x: &[f64], parameters: &[f64], rows: &mut [f64]) -> bool {
        let Some(derivatives) = &self.derivatives else { return false };
        let (value, slopes) = rows.split_at_mut(rows.len() / (1 + parameters.len()));
        (self.values)(x, parameters, value);
        derivatives(x, parameters, slopes);
        true
    }
}

impl From<Closure> for CurveModel {
    fn from(closure: Closure) -> CurveModel {
        let (predictors, parameters) = (closure.predictors.clone(), closure.parameters.clone());
        CurveModel::of_rust("closure", predictors, parameters, Arc::new(closure))
    }
}
