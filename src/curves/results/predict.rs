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
        self.at_parameters(curves, parameters, |_, x, at, row| {
            row.copy_from_slice(&self.model.values(x, at)?);
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
            let wanted = format!("{} × {count} × {count}", parameters.len() / count);
            let message = format!(
                "{} numbers, not curves × parameters² = {wanted}",
                covariance.len()
            );
            return Err(Error::mismatch("covariance", message).naming("covariance"));
        }
        self.at_parameters(curves, parameters, |k, x, at, row| {
            let rows = self.model.linearise(x, at)?;
            let matrix = &covariance[k * count * count..(k + 1) * count * count];
            let points = row.len();
            for (j, error) in row.iter_mut().enumerate() {
                let slope = |p: usize| rows[(1 + p) * points + j];
                let product = |p: usize| {
                    (0..count)
                        .map(|q| matrix[p * count + q] * slope(q))
                        .sum::<f64>()
                };
                *error = (0..count)
                    .map(|p| slope(p) * product(p))
                    .sum::<f64>()
                    .sqrt();
            }
            Ok(())
        })
    }

    /// Fills a row of numbers for each curve, (curves, points), by its index, x and parameters. Rows of parameters that
    /// are not finite stay NaN.
    fn at_parameters(
        &self,
        curves: &Curves,
        parameters: &[f64],
        fill: impl Fn(usize, &[f64], &[f64], &mut [f64]) -> Result<()> + Sync,
    ) -> Result<Vec<f64>> {
        let (predictors, names) = (self.model.predictors(), self.model.parameters());
        let (count, points) = curves.shape(predictors, names)?;
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
        let common = (curves.grid == GridKind::Shared).then(|| curves.x.to_double());
        let length = predictors.len() * points;
        let rows = values
            .par_chunks_mut(points)
            .zip(parameters.par_chunks(names.len()))
            .enumerate();
        rows.filter(|(_, (_, at))| at.iter().all(|value| value.is_finite()))
            .try_for_each(|(k, (row, at))| match &common {
                Some(x) => fill(k, x, at, row),
                None => fill(k, &curves.x.to_vec(k * length..(k + 1) * length), at, row),
            })?;
        Ok(values)
    }
}
