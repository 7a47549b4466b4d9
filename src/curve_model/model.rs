//! What a model in Rust can do.

use crate::formula::Formula;

/// A model of curves in Rust, y = f(x; p), evaluated at all points of a curve at once.
///
/// Where the model is not defined it gives NaN: a step to there is rejected, and a fit that starts there ends as
/// [`Status::NotFinite`](crate::Status::NotFinite).
pub trait Model: Send + Sync {
    /// Names of the predictors; at least one.
    fn predictors(&self) -> Vec<String>;

    /// Names of the parameters; at least one.
    fn parameters(&self) -> Vec<String>;

    /// Values at n points: `x` (predictors, n), `parameters` (P), `values` (n).
    fn values(&self, x: &[f64], parameters: &[f64], values: &mut [f64]);

    /// Values and derivatives by every parameter, `rows` (1 + P, n), if the model has derivatives. Else `false`, as it is by default:
    /// differences are taken, central ones wherever the bounds leave room for them.
    fn linearise(&self, _x: &[f64], _parameters: &[f64], _rows: &mut [f64]) -> bool {
        false
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
