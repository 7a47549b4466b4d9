//! Models in Rust.

use std::error::Error;

use crate::formula::Formula;

/// The error of a model that cannot be evaluated.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Circumstances in which a model is evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Context {
    /// Number of the curve among those that are fitted, from 0; 0 where a model is evaluated by itself.
    pub index: usize,
}

/// A model of curves in Rust, y = f(x; p), evaluated at all points of a curve at once.
///
/// Where the model is not defined it gives NaN: a step to there is rejected, and a fit that starts there ends as
/// [`Status::NotFinite`](crate::Status::NotFinite). A model that panics, or returns an error from `try_values` or
/// `try_linearise`, ends the fit that asked, and no other one.
pub trait Model: Send + Sync {
    /// Names of the predictors; at least one.
    fn predictors(&self) -> Vec<String>;

    /// Names of the parameters; at least one.
    fn parameters(&self) -> Vec<String>;

    /// Values at n points: `x` (predictors, n), `parameters` (P), `values` (n).
    fn values(&self, x: &[f64], parameters: &[f64], values: &mut [f64]);

    /// Values and derivatives by every parameter, `rows` (1 + P, n), if the model has derivatives. Else `false`, as it
    /// is by default: differences are taken, central ones wherever the bounds leave room for them.
    fn linearise(&self, _x: &[f64], _parameters: &[f64], _rows: &mut [f64]) -> bool {
        false
    }

    /// [`values`](Self::values) of a model that may fail, or that asks which curve it is evaluated for. Fits call this
    /// one.
    ///
    /// # Errors
    /// The model's own error, if it cannot be evaluated. By default there is none.
    fn try_values(&self, _context: &Context, x: &[f64], parameters: &[f64], values: &mut [f64]) -> Result<(), Failure> {
        self.values(x, parameters, values);
        Ok(())
    }

    /// [`linearise`](Self::linearise) of such a model.
    ///
    /// # Errors
    /// The model's own error, if it cannot be evaluated. By default there is none.
    fn try_linearise(
        &self,
        _context: &Context,
        x: &[f64],
        parameters: &[f64],
        rows: &mut [f64],
    ) -> Result<bool, Failure> {
        Ok(self.linearise(x, parameters, rows))
    }
}

impl Model for Formula {
    fn predictors(&self) -> Vec<String> {
        self.predictors().to_vec()
    }

    fn parameters(&self) -> Vec<String> {
        self.parameters().to_vec()
    }

    fn values(&self, x: &[f64], parameters: &[f64], values: &mut [f64]) {
        self.fill(false, x, parameters, values);
    }

    fn linearise(&self, x: &[f64], parameters: &[f64], rows: &mut [f64]) -> bool {
        self.fill(true, x, parameters, rows);
        true
    }
}
