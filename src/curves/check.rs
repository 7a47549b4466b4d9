//! Comparison of the derivatives that a device computes with differences.

use std::sync::Arc;

use crate::curve_model::{CurveModel, DerivativeCheck, compare};
use crate::curves::input::data::{Curve, GridKind};
use crate::curves::routes::objective::{
    CurveObjective, Design, INFINITE_BOUND_IN_F32, MODEL_BUFFER,
};
use crate::curves::{CurveFitter, CurveRun};
use crate::error::Result;
use crate::solver::{Estimator, Objective};

impl CurveRun {
    /// Compares the derivatives that the device computes at one point with differences, one result per parameter, as
    /// [`CurveFitter::check_jacobian`] says.
    pub(crate) fn check_jacobian(
        &self,
        x: &[f64],
        parameters: &[f64],
    ) -> Result<Vec<DerivativeCheck>> {
        let names = self.model.parameters();
        let model_of_differences = self.model.clone().differences(true);
        // 1. On the CPU the model's Rust is compared.
        if !self.device.inner.runs_wgsl() {
            let derivatives = self.model.own_rows(x, parameters)?;
            let differences = model_of_differences.linearise(x, parameters)?;
            return Ok(compare(names, &derivatives, &differences));
        }
        // 2. On a GPU its WGSL, with differences of the Rust in f64 if there is any.
        let points = self.model.count_points(x, parameters)?;
        if self.model.needs_gpu() && !self.model.has_wgsl_slopes() {
            return self.model.missing_derivatives_error();
        }
        let curve = Curve::bare(x, points, parameters);
        let curves = std::slice::from_ref(&curve);
        let derivatives = self.device_rows(&self.model, curves)?;
        let differences = if model_of_differences.needs_gpu() {
            self.device_rows(&model_of_differences, curves)?
        } else {
            model_of_differences.linearise(x, parameters)?
        };
        Ok(compare(names, &derivatives, &differences))
    }

    /// Evaluates curves on one grid on the device where their fits begin: values and derivatives by physical
    /// parameters, (curves, 1 + P, points).
    pub(crate) fn device_rows(&self, model: &CurveModel, curves: &[Curve]) -> Result<Vec<f64>> {
        // 1. Load the curves into a population, and read the rows of the model back.
        let points = curves.first().map_or(0, |curve| curve.y.len());
        let design = Design {
            model: model.clone(),
            estimator: Estimator::LeastSquares,
            is_scaled: false,
            is_tagged: false,
            ..self.design()
        };
        let objective = CurveObjective::new(design, points, GridKind::Shared, false);
        let settings = CurveFitter::LEVENBERG_MARQUARDT;
        let mut population =
            self.device
                .inner
                .population(Arc::new(objective.record()), &settings, curves.len())?;
        let batch = objective.batch(curves, &self.priors, INFINITE_BOUND_IN_F32);
        let mut rows = pollster::block_on(async {
            population.load(&batch).await?;
            population.inspect(MODEL_BUFFER).await
        })?;
        // 2. Convert derivatives by the solver's parameters to physical ones.
        let numbers_per_curve = (1 + self.held.len()) * points;
        for (rows, curve) in rows.chunks_exact_mut(numbers_per_curve.max(1)).zip(curves) {
            let derivatives = rows[points..].chunks_exact_mut(points);
            for (derivative, scale) in derivatives.zip(&curve.scale) {
                for slope in derivative {
                    *slope /= scale;
                }
            }
        }
        Ok(rows)
    }
}
