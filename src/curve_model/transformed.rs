//! Models whose values at the points of a curve are mixed by a linear transformation of that curve.

use std::sync::Arc;

use super::CurveModel;
use super::model::{Context, Failure, Model};

/// Transforms the values at the points of the curve of this index, in place.
pub(crate) type Transformation = dyn Fn(usize, &mut [f64]) + Send + Sync;

/// The model T f(x; p) of a model f and a linear transformation T of the values of each curve.
struct Transformed {
    model: Arc<dyn Model>,
    /// True if it is a formula, whose derivatives may overflow where its values do not.
    is_formula: bool,
    transformation: Arc<Transformation>,
}

impl CurveModel {
    /// Returns the model with the values of each curve transformed; `None` if it has no Rust. It runs on the CPU alone.
    pub(crate) fn transformed(&self, transformation: Arc<Transformation>) -> Option<CurveModel> {
        let transformed = Transformed {
            model: self.rust.clone()?,
            is_formula: self.formula.is_some(),
            transformation,
        };
        let predictors = self.predictors.to_vec();
        let parameters = self.parameters.to_vec();
        let model = CurveModel::of_rust(&self.name, predictors, parameters, Arc::new(transformed));
        Some(CurveModel {
            differences: self.differences,
            ..model
        })
    }
}

impl Model for Transformed {
    fn predictors(&self) -> Vec<String> {
        self.model.predictors()
    }

    fn parameters(&self) -> Vec<String> {
        self.model.parameters()
    }

    fn values(
        &self,
        context: &Context,
        x: &[f64],
        parameters: &[f64],
        values: &mut [f64],
    ) -> Result<(), Failure> {
        self.model.values(context, x, parameters, values)?;
        (self.transformation)(context.index, values);
        Ok(())
    }

    fn linearise(
        &self,
        context: &Context,
        x: &[f64],
        parameters: &[f64],
        rows: &mut [f64],
    ) -> Result<bool, Failure> {
        if !self.model.linearise(context, x, parameters, rows)? {
            return Ok(false);
        }
        let points = rows.len() / (1 + parameters.len());
        let is_finite = !self.is_formula || rows.iter().all(|value| value.is_finite());
        for row in rows.chunks_exact_mut(points.max(1)) {
            (self.transformation)(context.index, row);
        }
        // Where derivatives overflow, differences replace them.
        Ok(is_finite)
    }

    fn takes_many(&self) -> bool {
        self.model.takes_many()
    }

    fn during_calls(&self, work: &mut (dyn FnMut() + Send)) {
        self.model.during_calls(work);
    }

    fn values_many(
        &self,
        contexts: &[Context],
        x: &[f64],
        parameters: &[f64],
        values: &mut [f64],
    ) -> Result<(), Failure> {
        self.model.values_many(contexts, x, parameters, values)?;
        let points = values.len() / contexts.len().max(1);
        let rows = values.chunks_exact_mut(points.max(1));
        for (context, row) in contexts.iter().zip(rows) {
            (self.transformation)(context.index, row);
        }
        Ok(())
    }
}
