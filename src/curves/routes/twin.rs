//! Comparison of a user's WGSL with its twin in Rust. Fits begin with one and end with the other: if these are two
//! models, no fit is right.

use std::sync::atomic::Ordering;

use crate::curve_model::Failures;
use crate::curves::CurveRun;
use crate::curves::input::data::Curve;
use crate::curves::routes::verify::{POINT_ROUNDING_OF_WGSL, PREDICTOR_ROUNDING};
use crate::error::{Error, Result};
use crate::recording::{CustomInput, Member};

/// Distance of the second comparison from the first, in units of the parameters.
const SECOND_POINT_SHIFT: f64 = 0.125;

impl CurveRun {
    /// Returns [`Error::Model`] if the model's WGSL on the GPU and its Rust differ where a curve's fit begins, or a
    /// little beside it. Each model is checked once.
    pub(crate) fn check_twin(&self, curve: &Curve) -> Result<()> {
        let Some(twin_agreement) = self
            .model
            .twin_agreement()
            .filter(|_| self.device.inner.runs_wgsl())
        else {
            return Ok(());
        };
        if twin_agreement.load(Ordering::Relaxed) {
            return Ok(());
        }
        // 1. Evaluate the WGSL at two points, without bounds.
        let points = [0.0, SECOND_POINT_SHIFT].map(|shift| Curve {
            first_point: curve
                .first_point
                .iter()
                .zip(&curve.scale)
                .map(|(x, scale)| x + shift * scale)
                .collect(),
            lower: vec![f64::NEG_INFINITY; curve.first_point.len()],
            upper: vec![f64::INFINITY; curve.first_point.len()],
            ..curve.clone()
        });
        let rows = self.device_rows(&self.model, &points)?;
        // 2. Compare its values with those of the Rust.
        let rows_per_point = rows.len() / points.len();
        for (point, rows) in points.iter().zip(rows.chunks_exact(rows_per_point.max(1))) {
            self.compare_twin(point, &rows[..curve.y.len()])?;
        }
        twin_agreement.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns an error if the WGSL's values at the first point of a curve differ from the Rust's by more than the
    /// rounding of f32 and of a driver's functions. Values that are not finite do not count.
    fn compare_twin(&self, curve: &Curve, wgsl: &[f64]) -> Result<()> {
        let Curve {
            x,
            first_point,
            weight,
            ..
        } = curve;
        // 1. Evaluate the Rust, also where all predictors are changed by their rounding.
        let evaluate_rust = |derivatives, x: &[f64]| {
            let input = CustomInput {
                x,
                parameters: first_point,
                limits: None,
                member: Member::default(),
            };
            self.model
                .rows(derivatives, &input, &Failures::default())
                .unwrap_or_default()
        };
        let shifted_x: Vec<f64> = x.iter().map(|x| x * (1.0 + PREDICTOR_ROUNDING)).collect();
        let rust = evaluate_rust(true, x);
        let shifted = evaluate_rust(false, &shifted_x);
        // 2. Compare the unmasked points. The terms of the model, parameters times derivatives, may be larger than it.
        let points = wgsl.len();
        let compared = || (0..points).filter(|&j| weight[j] > 0.0 && wgsl[j].is_finite());
        let size = compared().map(|j| rust[j].abs()).fold(0.0, f64::max);
        for j in compared() {
            let terms = first_point
                .iter()
                .enumerate()
                .map(|(p, x)| (x * rust[(1 + p) * points + j]).abs());
            let allowed = POINT_ROUNDING_OF_WGSL * (size + terms.sum::<f64>())
                + 2.0 * (shifted[j] - rust[j]).abs();
            // A difference of NaN is never larger.
            if (wgsl[j] - rust[j]).abs() > allowed + f64::from(f32::MIN_POSITIVE) {
                return Err(self.twin_error(curve, j, wgsl[j], rust[j]));
            }
        }
        Ok(())
    }

    /// Returns the error that the model's WGSL and its Rust have these different values at point `j`.
    fn twin_error(&self, curve: &Curve, j: usize, wgsl: f64, rust: f64) -> Error {
        let points = curve.y.len();
        let predictors = self
            .model
            .predictors()
            .iter()
            .zip(curve.x.iter().skip(j).step_by(points));
        let parameters = self.model.parameters().iter().zip(&curve.first_point);
        let values: Vec<String> = predictors
            .chain(parameters)
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        Error::model(format!(
            "the WGSL gives {wgsl} on {}, its twin in Rust {rust}, at {}",
            self.device.inner.name(),
            values.join(", ")
        ))
    }
}
