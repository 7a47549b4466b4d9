//! Comparison of the derivatives that a device computes with differences.

use std::sync::Arc;

use crate::curve_model::{CurveModel, DerivativeCheck, compare};
use crate::curves::input::data::{Curve, GridKind};
use crate::curves::routes::objective::{
    CurveObjective, Design, INFINITE_BOUND_IN_F32, MODEL_BUFFER,
};
use crate::curves::{CurveFitter, CurveRun};
use crate::error::Result;
use crate::solver::{Estimator, Method, Objective};

impl CurveRun {
    /// Compares the derivatives that the device computes at one point with differences, one result per parameter, as
    /// [`CurveFitter::check_jacobian`] says.
    pub(crate) fn check_jacobian(
        &self,
        x: &[f64],
        parameters: &[f64],
    ) -> Result<Vec<DerivativeCheck>> {
        if !self.device.inner.runs_wgsl() {
            let own = self.model.own_rows(x, parameters)?;
            let differences = self
                .model
                .clone()
                .differences(true)
                .linearise(x, parameters)?;
            return Ok(compare(self.model.parameters(), &own, &differences));
        }
        let points = self.model.points(x, parameters)?;
        if self.model.needs_gpu() && !self.model.has_wgsl_slopes() {
            return self.model.no_slopes();
        }
        let curve = Curve::bare(x, points, parameters);
        let curves = std::slice::from_ref(&curve);
        let own = self.device_rows(&self.model, curves)?;
        let slow = self.model.clone().differences(true);
        let differences = if slow.needs_gpu() {
            self.device_rows(&slow, curves)?
        } else {
            slow.linearise(x, parameters)?
        };
        Ok(compare(self.model.parameters(), &own, &differences))
    }

    /// Evaluates curves on one grid on the device where their fits begin: values and derivatives by physical
    /// parameters, (curves, 1 + P, points).
    pub(crate) fn device_rows(&self, model: &CurveModel, curves: &[Curve]) -> Result<Vec<f64>> {
        let points = curves.first().map_or(0, |curve| curve.y.len());
        let (model, estimator) = (model.clone(), Estimator::LeastSquares);
        let design = Design {
            model,
            estimator,
            is_scaled: false,
            is_tagged: false,
            ..self.design()
        };
        let objective = CurveObjective::new(design, points, GridKind::Shared, false);
        let method = Method::LevenbergMarquardt(CurveFitter::LEVENBERG_MARQUARDT);
        let mut population =
            self.device
                .inner
                .population(Arc::new(objective.record()), &method, curves.len())?;
        let batch = objective.batch(curves, &self.priors, INFINITE_BOUND_IN_F32);
        let mut rows = pollster::block_on(async {
            population.load(&batch).await?;
            population.inspect(MODEL_BUFFER).await
        })?;
        let of_curve = (1 + self.held.len()) * points;
        for (rows, curve) in rows.chunks_exact_mut(of_curve.max(1)).zip(curves) {
            let slopes = rows[points..].chunks_exact_mut(points).zip(&curve.scale);
            slopes.for_each(|(row, scale)| row.iter_mut().for_each(|slope| *slope /= scale));
        }
        Ok(rows)
    }
}
