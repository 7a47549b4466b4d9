//! The model's values at fitted parameters, and their standard errors.

use rayon::prelude::*;

use crate::curves::input::data::GridKind;
use crate::curves::{CurveFitter, Curves};
use crate::error::{Error, Result};

impl CurveFitter {
    /// Returns the model's values of all curves, (curves, points), at the `parameters` (curves, P) of each: those that
    /// a fit has found, or others. Masked points have values, too. Curves whose parameters are not finite are NaN.
    ///
    /// ```
    /// use popfit::{CurveFitter, Curves, Device, Formula};
    ///
    /// let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)")?, Device::cpu());
    /// let curves = Curves::on_common_grid(vec![0.0, 1.0, 2.0], vec![3.0, 1.5, 0.7], vec![1.0, 1.0]);
    /// let fitted = fitter.predict(&curves, &fitter.fit_columns(&curves)?.parameters)?;
    /// assert!((fitted[0] - 3.0).abs() < 0.05);
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::ShapeMismatch`] if the lengths of the arrays do not fit together, and [`Error::Model`] if the
    /// model runs on GPUs alone, returns an error or panics.
    pub fn predict(&self, curves: &Curves, parameters: &[f64]) -> Result<Vec<f64>> {
        self.evaluate_rows(curves, parameters, |_, x, parameters, row| {
            row.copy_from_slice(&self.model.values(x, parameters)?);
            Ok(())
        })
    }

    /// Returns the standard errors of the values that [`predict`](Self::predict) returns, (curves, points): √(J C Jᵀ)
    /// with the model's derivatives J by the parameters and their `covariance` C, (curves, P, P), as
    /// [`CurveColumns::covariance`](crate::CurveColumns::covariance) has it. They are NaN where C is not finite.
    ///
    /// # Errors
    /// The errors of [`predict`](Self::predict).
    pub fn prediction_errors(
        &self,
        curves: &Curves,
        parameters: &[f64],
        covariance: &[f64],
    ) -> Result<Vec<f64>> {
        let count = self.model.parameters().len();
        if covariance.len() != parameters.len() * count {
            let expected = format!("{} × {count} × {count}", parameters.len() / count);
            let message = format!(
                "{} numbers, not curves × parameters² = {expected}",
                covariance.len()
            );
            return Err(Error::mismatch("covariance", message).naming("covariance"));
        }
        self.evaluate_rows(curves, parameters, |k, x, parameters, errors| {
            let rows = self.model.linearise(x, parameters)?;
            let matrix = &covariance[k * count * count..(k + 1) * count * count];
            let points = errors.len();
            for (j, error) in errors.iter_mut().enumerate() {
                let slope = |p: usize| rows[(1 + p) * points + j];
                let covariance_with_model = |p: usize| {
                    (0..count)
                        .map(|q| matrix[p * count + q] * slope(q))
                        .sum::<f64>()
                };
                *error = (0..count)
                    .map(|p| slope(p) * covariance_with_model(p))
                    .sum::<f64>()
                    .sqrt();
            }
            Ok(())
        })
    }

    /// Evaluates a row of numbers for each curve, (curves, points): `evaluate_row` receives its index, x and
    /// parameters. Rows of parameters that are not finite stay NaN.
    fn evaluate_rows(
        &self,
        curves: &Curves,
        parameters: &[f64],
        evaluate_row: impl Fn(usize, &[f64], &[f64], &mut [f64]) -> Result<()> + Sync,
    ) -> Result<Vec<f64>> {
        let predictors = self.model.predictors();
        let names = self.model.parameters();
        let (count, points) = curves.shape(&self.model)?;
        if parameters.len() != count * names.len() {
            let message = format!(
                "{} numbers, not curves × parameters = {count} × {}",
                parameters.len(),
                names.len()
            );
            return Err(Error::mismatch("parameters", message).naming("parameters"));
        }
        let mut values = vec![f64::NAN; count * points];
        if points == 0 {
            return Ok(values);
        }
        let shared_x = (curves.grid == GridKind::Shared).then(|| curves.x.to_double());
        let length = predictors.len() * points;
        values
            .par_chunks_mut(points)
            .zip(parameters.par_chunks(names.len()))
            .enumerate()
            .filter(|(_, (_, parameters))| parameters.iter().all(|value| value.is_finite()))
            .try_for_each(|(k, (row, parameters))| match &shared_x {
                Some(x) => evaluate_row(k, x, parameters, row),
                None => {
                    let own_x = curves.x.to_vec(k * length..(k + 1) * length);
                    evaluate_row(k, &own_x, parameters, row)
                }
            })?;
        Ok(values)
    }
}
