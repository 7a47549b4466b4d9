//! A user's WGSL against its twin in Rust. Fits begin with one and end with the other: if these are two models, no fit
//! is right.

use std::sync::atomic::Ordering;

use crate::curve_model::Failures;
use crate::curves::CurveRun;
use crate::curves::input::data::Curve;
use crate::curves::routes::verify::{ROUNDING_OF_WGSL, ROUNDING_OF_X};
use crate::error::{Error, Result};
use crate::recording::{CustomInput, Member};

/// Distance of the second comparison from the first, in units of the parameters.
const ASIDE: f64 = 0.125;

impl CurveRun {
    /// Returns [`Error::Model`] if the model's WGSL on the GPU and its Rust differ where a curve's fit begins, or a
    /// little beside it. Each model is checked once.
    pub(crate) fn check_twin(&self, curve: &Curve) -> Result<()> {
        let Some(alike) = self.model.alike().filter(|_| self.device.inner.runs_wgsl()) else {
            return Ok(());
        };
        if alike.load(Ordering::Relaxed) {
            return Ok(());
        }
        let places = [0.0, ASIDE].map(|aside| {
            let begin = curve
                .begin
                .iter()
                .zip(&curve.scale)
                .map(|(x, scale)| x + aside * scale)
                .collect();
            let infinite = |sign: f64| vec![sign * f64::INFINITY; curve.begin.len()];
            Curve {
                begin,
                lower: infinite(-1.0),
                upper: infinite(1.0),
                ..curve.clone()
            }
        });
        let rows = self.device_rows(&self.model, &places)?;
        let of_place = rows.len() / places.len();
        for (place, rows) in places.iter().zip(rows.chunks_exact(of_place.max(1))) {
            self.compare_twin(place, &rows[..curve.y.len()])?;
        }
        alike.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns an error if the WGSL's values at a place differ from the Rust's by more than f32 and a driver's
    /// functions explain. Values that are not finite do not count.
    fn compare_twin(&self, place: &Curve, values: &[f64]) -> Result<()> {
        let Curve {
            x, begin, weight, ..
        } = place;
        let rows = |derivatives, x: &[f64]| {
            let input = CustomInput {
                x,
                parameters: begin,
                limits: None,
                member: Member::default(),
            };
            self.model
                .rows(derivatives, &input, &Failures::default())
                .unwrap_or_default()
        };
        let moved: Vec<f64> = x.iter().map(|x| x * (1.0 + ROUNDING_OF_X)).collect();
        let (own, moved, points) = (rows(true, x), rows(false, &moved), values.len());
        let used = || (0..points).filter(|&j| weight[j] > 0.0 && values[j].is_finite());
        let size = used().map(|j| own[j].abs()).fold(0.0, f64::max);
        for j in used() {
            let shares = begin
                .iter()
                .enumerate()
                .map(|(p, x)| (x * own[(1 + p) * points + j]).abs());
            let allowed =
                ROUNDING_OF_WGSL * (size + shares.sum::<f64>()) + 2.0 * (moved[j] - own[j]).abs();
            // NaN is never more
            if (values[j] - own[j]).abs() > allowed + f64::from(f32::MIN_POSITIVE) {
                return Err(self.two_models(place, j, values[j], own[j]));
            }
        }
        Ok(())
    }

    /// Returns the error that the model's WGSL and its Rust have these different values at point `j`.
    fn two_models(&self, place: &Curve, j: usize, wgsl: f64, rust: f64) -> Error {
        let points = place.y.len();
        let predictors = self
            .model
            .predictors()
            .iter()
            .zip(place.x.iter().skip(j).step_by(points));
        let parameters = self.model.parameters().iter().zip(&place.begin);
        let place: Vec<String> = predictors
            .chain(parameters)
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        Error::model(format!(
            "the WGSL gives {wgsl} on {}, its twin in Rust {rust}, at {}",
            self.device.inner.name(),
            place.join(", ")
        ))
    }
}
