//! The model's values at fitted parameters.

use rayon::prelude::*;

use crate::curves::input::data::Grid;
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
        let (predictors, names) = (self.model.predictors(), self.model.parameters());
        let (count, points) = curves.shape(predictors, names)?;
        if parameters.len() != count * names.len() {
            let message = format!("{} numbers, not curves × parameters = {count} × {}", parameters.len(), names.len());
            return Err(Error::mismatch("parameters", message).naming("parameters"));
        }
        let mut values = vec![f64::NAN; count * points];
        if points == 0 {
            return Ok(values);
        }
        let common = (curves.grid == Grid::Shared).then(|| curves.x.to_double());
        let own_length = predictors.len() * points;
        let rows = values.par_chunks_mut(points).zip(parameters.par_chunks(names.len())).enumerate();
        rows.filter(|(_, (_, at))| at.iter().all(|value| value.is_finite())).try_for_each(|(k, (row, at))| {
            let predicted = match &common {
                Some(x) => self.model.values(x, at)?,
                None => self.model.values(&curves.x.to_vec(k * own_length..(k + 1) * own_length), at)?,
            };
            row.copy_from_slice(&predicted);
            Ok(())
        })?;
        Ok(values)
    }
}
