//! Curves whose errors are correlated, turned into curves whose errors are not.
//!
//! If C = L Lᵀ is the covariance matrix of a curve's errors with its Cholesky factor L, and r its residuals, then
//! χ² = rᵀ C⁻¹ r is the sum of the squares of L⁻¹ r. So the fit is an ordinary one of the data L⁻¹ y by the model
//! L⁻¹ f(x; p), with every sigma 1 (Aitken 1936). Rows and columns of masked points are left out of C.

use std::collections::HashMap;
use std::sync::Arc;

use nalgebra::{Cholesky, DMatrix};
use rayon::prelude::*;

use crate::curves::input::data::Curves;
use crate::curves::{CurveFit, CurveRun};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::threads;

/// Largest difference between the covariances of points i, j and j, i, relative to √(C_ii C_jj).
const MAX_RELATIVE_ASYMMETRY: f64 = 1e-6;

/// The Cholesky factor of a curve's covariance matrix, or the cause why it has none.
type FactorOrCause = Result<CovarianceFactor, String>;

/// Cholesky factor L of the covariance matrix of a curve's points that are not masked.
#[derive(Debug)]
pub(crate) struct CovarianceFactor {
    /// Indices of these points.
    points: Vec<usize>,
    /// Columns of L from the diagonal on, one after the other.
    columns: Vec<f64>,
}

impl CovarianceFactor {
    /// Factorises a covariance matrix, (points, points), without the masked points.
    fn new(matrix: &[f64], masked: Option<&[bool]>) -> FactorOrCause {
        let count = matrix.len().isqrt();
        let points: Vec<usize> = (0..count)
            .filter(|&j| masked.is_none_or(|masked| !masked[j]))
            .collect();
        let element = |i: usize, j: usize| matrix[i * count + j];
        // 1. The matrix must be finite and symmetric.
        for &i in &points {
            for &j in &points {
                let covariance = element(i, j);
                let transposed = element(j, i);
                if !covariance.is_finite() {
                    let message = format!(
                        "the covariance of the points {i} and {j} is {covariance}: mask what must not count"
                    );
                    return Err(format!("bad_weight: {message}"));
                }
                let size = (element(i, i) * element(j, j)).abs().sqrt();
                if (covariance - transposed).abs() > MAX_RELATIVE_ASYMMETRY * size {
                    let message = format!(
                        "the covariance of the points {i} and {j} is {covariance}, that of {j} and {i} {transposed}"
                    );
                    return Err(format!("bad_weight: {message}: give a symmetric matrix"));
                }
            }
        }
        // 2. Factorise it without the masked points.
        let unmasked = DMatrix::from_fn(points.len(), points.len(), |i, j| {
            element(points[i], points[j])
        });
        let Some(factor) = Cholesky::new(unmasked) else {
            return Err(
                "bad_weight: the covariance matrix of the points is not positive definite".into(),
            );
        };
        // 3. Store the columns below the diagonal.
        let mut columns = Vec::new();
        for (j, column) in factor.l_dirty().column_iter().enumerate() {
            columns.extend(column.iter().skip(j));
        }
        Ok(CovarianceFactor { points, columns })
    }

    /// Replaces the values v at a curve's points by L⁻¹ v, and those at masked points by 0.
    pub fn whiten(&self, values: &mut [f64]) {
        // 1. Solve for the unmasked values by forward substitution, column by column.
        let mut whitened: Vec<f64> = self.points.iter().map(|&point| values[point]).collect();
        let mut remaining_columns = &self.columns[..];
        for j in 0..whitened.len() {
            let (column, next_columns) = remaining_columns.split_at(whitened.len() - j);
            let value = whitened[j] / column[0];
            for (element, factor) in whitened[j..].iter_mut().zip(column) {
                *element -= factor * value;
            }
            whitened[j] = value;
            remaining_columns = next_columns;
        }
        // 2. Put them back in their places.
        values.fill(0.0);
        for (&point, value) in self.points.iter().zip(whitened) {
            values[point] = value;
        }
    }
}

/// Curves with uncorrelated errors, and the run that fits them.
pub(crate) struct WhitenedCurves<'a> {
    pub run: CurveRun,
    pub curves: Curves<'a>,
    /// Indices of the curves whose matrices have no Cholesky factor, and the causes.
    refused: Vec<(usize, String)>,
}

impl WhitenedCurves<'_> {
    /// Returns index and result of each curve that cannot be fitted, because its matrix has no Cholesky factor.
    pub fn refusals(&self) -> impl Iterator<Item = (usize, CurveFit)> + '_ {
        let parameters = self.run.held.len();
        self.refused
            .iter()
            .map(move |(k, cause)| (*k, CurveFit::refused(cause, parameters)))
    }
}

impl Curves<'_> {
    /// Returns the Cholesky factor of each curve's covariance matrix; `None` without covariances. Curves that share
    /// matrix and mask share the factor.
    pub(crate) fn covariance_factors(
        &self,
        curves: usize,
        points: usize,
    ) -> Option<Vec<Arc<FactorOrCause>>> {
        let covariance = self.covariance.as_ref()?;
        let size = points * points;
        // 1. Matrices of single curves are factorised side by side.
        if covariance.len() != size || curves == 1 {
            let factorise = |k: usize| {
                let matrix = covariance.to_vec(k * size..(k + 1) * size);
                let masked = self.masked(k..k + 1, points);
                Arc::new(CovarianceFactor::new(&matrix, masked.as_deref()))
            };
            return Some(threads::in_pool(|| {
                (0..curves).into_par_iter().map(factorise).collect()
            }));
        }
        // 2. One matrix of all curves is factorised once per mask.
        let matrix = covariance.to_double();
        let mut factors_by_mask: HashMap<Option<Vec<bool>>, Arc<FactorOrCause>> = HashMap::new();
        let factors = (0..curves).map(|k| {
            let masked = self.masked(k..k + 1, points).map(|masked| masked.to_vec());
            factors_by_mask
                .entry(masked)
                .or_insert_with_key(|masked| {
                    Arc::new(CovarianceFactor::new(&matrix, masked.as_deref()))
                })
                .clone()
        });
        Some(factors.collect())
    }
}

impl CurveRun {
    /// Returns curves with covariance matrices as curves without, and the run that fits them; `None` if there are no
    /// covariances.
    ///
    /// # Errors
    /// Returns [`Error::ShapeMismatch`] if the lengths of the arrays do not fit together, and
    /// [`Error::InvalidArgument`] if the model or the device takes no covariances.
    pub(crate) fn whiten_curves<'a>(
        &self,
        curves: &'a Curves,
    ) -> Result<Option<WhitenedCurves<'a>>> {
        let (count, points) = curves.shape(&self.model)?;
        let Some(factors) = curves.covariance_factors(count, points) else {
            return Ok(None);
        };
        // 1. Whiten the data. Curves without a factor become NaN, so that they are not fitted.
        let mut y = curves.y.to_double().into_owned();
        let mut refused = Vec::new();
        for (k, (row, factor)) in y.chunks_exact_mut(points.max(1)).zip(&factors).enumerate() {
            match &**factor {
                Ok(factor) => factor.whiten(row),
                Err(cause) => {
                    row.fill(f64::NAN);
                    refused.push((k, cause.clone()));
                }
            }
        }
        // 2. Whiten the model, by the number that the curve has in the user's input.
        let indices_by_number: HashMap<usize, usize> =
            curves.numbers.iter().flatten().copied().zip(0..).collect();
        let whiten_model = move |number: usize, values: &mut [f64]| {
            let index = indices_by_number.get(&number).copied().unwrap_or(number);
            match factors.get(index).map(|factor| &**factor) {
                Some(Ok(factor)) => factor.whiten(values),
                _ => values.fill(f64::NAN),
            }
        };
        // 3. The transformed model runs on the CPU alone.
        let device = if self.device.is_chosen() {
            Device::cpu()
        } else {
            self.device.clone()
        };
        let model = self.model.transformed(Arc::new(whiten_model));
        let (Some(model), false) = (model, device.inner.runs_wgsl()) else {
            let message = "covariance: curves with correlated errors are fitted on the CPU alone: take Device::cpu()";
            return Err(Error::invalid("covariance", message));
        };
        let curves = Curves {
            y: y.into(),
            covariance: None,
            ..curves.view()
        };
        Ok(Some(WhitenedCurves {
            run: CurveRun {
                model,
                device,
                ..self.clone()
            },
            curves,
            refused,
        }))
    }
}
