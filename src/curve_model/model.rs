//! Models in Rust.

use std::error::Error;

use crate::formula::Formula;

/// The error of a model that cannot be evaluated.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Circumstances in which a model is evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Context {
    /// Index of the curve among those that are fitted, from 0. It is 0 if a model is evaluated outside a fit.
    pub index: usize,
}

/// A model of curves in Rust, y = f(x; p), evaluated at all points of a curve at once.
///
/// Where the model is not defined it returns NaN: a step to there is rejected, and a fit that starts there ends as
/// [`Status::NotFinite`](crate::Status::NotFinite). A model that panics or returns an error ends only the fit that it
/// was evaluated for.
pub trait Model: Send + Sync {
    /// Returns the names of the predictors, at least one.
    fn predictors(&self) -> Vec<String>;

    /// Returns the names of the parameters, at least one.
    fn parameters(&self) -> Vec<String>;

    /// Computes the values at n points of the curve that `context` names: `x` (predictors, n), `parameters` (P),
    /// `values` (n).
    ///
    /// # Errors
    /// Returns the model's own error if it cannot be evaluated.
    fn values(
        &self,
        context: &Context,
        x: &[f64],
        parameters: &[f64],
        values: &mut [f64],
    ) -> Result<(), Failure>;

    /// Computes values and derivatives by every parameter, `rows` (1 + P, n), and returns `true`. Returns `false`, as
    /// by default, if the model has no derivatives: then differences are taken, central ones if the bounds leave room.
    /// Steps are 6e-6 of a parameter; shorter where they change the values by a hundredth of their range or more, and
    /// longer where the values are numbers of f32.
    ///
    /// # Errors
    /// Returns the model's own error if it cannot be evaluated.
    fn linearise(
        &self,
        _context: &Context,
        _x: &[f64],
        _parameters: &[f64],
        _rows: &mut [f64],
    ) -> Result<bool, Failure> {
        Ok(false)
    }

    /// Returns whether one call of [`values_many`](Self::values_many) is quicker than many calls of
    /// [`values`](Self::values), as where each call has a price of its own. By default it is not, and fits do
    /// not call `values_many`.
    fn takes_many(&self) -> bool {
        false
    }

    /// Does `work`, in which a thread calls [`values_many`](Self::values_many) many times, as often as its fits need. A
    /// model that prepares something for each call can keep it meanwhile. By default there is nothing to keep.
    fn during_calls(&self, work: &mut (dyn FnMut() + Send)) {
        work();
    }

    /// Computes the values of m curves at the same n points: `contexts` (m), `x` (predictors, n), `parameters` (m, P),
    /// `values` (m, n). By default a loop over [`values`](Self::values).
    ///
    /// On the CPU, fits of a model that [`takes_many`](Self::takes_many) call this function with the curves of a common
    /// grid that a thread evaluates together: 64 in small fits of
    /// [`fit_columns`](crate::CurveFitter::fit_columns), else up to 1,024, and fewer where their values take more than
    /// half a MiB. If derivatives are differences, the points beside the parameters come in the same call, so that a
    /// curve has up to 2 P + 1 rows in it. A row must not depend on the others. Where the call fails or panics, its
    /// curves are evaluated again, one by one, so that only those that fail by themselves end.
    ///
    /// # Errors
    /// Returns the model's own error if it cannot be evaluated for one of the curves.
    fn values_many(
        &self,
        contexts: &[Context],
        x: &[f64],
        parameters: &[f64],
        values: &mut [f64],
    ) -> Result<(), Failure> {
        let curves = contexts.len().max(1);
        let rows = parameters.chunks_exact((parameters.len() / curves).max(1));
        let outputs = values.chunks_exact_mut((values.len() / curves).max(1));
        for ((context, parameters), values) in contexts.iter().zip(rows).zip(outputs) {
            self.values(context, x, parameters, values)?;
        }
        Ok(())
    }
}

impl Model for Formula {
    fn predictors(&self) -> Vec<String> {
        self.predictors().to_vec()
    }

    fn parameters(&self) -> Vec<String> {
        self.parameters().to_vec()
    }

    fn values(
        &self,
        _: &Context,
        x: &[f64],
        parameters: &[f64],
        values: &mut [f64],
    ) -> Result<(), Failure> {
        self.fill_rows(false, x, parameters, values);
        Ok(())
    }

    fn linearise(
        &self,
        _: &Context,
        x: &[f64],
        parameters: &[f64],
        rows: &mut [f64],
    ) -> Result<bool, Failure> {
        self.fill_rows(true, x, parameters, rows);
        Ok(true)
    }
}
