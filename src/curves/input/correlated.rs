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
const ASYMMETRY: f64 = 1e-6;

/// The Cholesky factor of a curve's covariance matrix, or why it has none.
type FoundFactor = Result<Factor, String>;

/// Cholesky factor L of the covariance matrix of a curve's points that are not masked.
#[derive(Debug)]
pub(crate) struct Factor {
    /// Indices of these points.
    points: Vec<usize>,
    /// Columns of L from the diagonal on, one after the other.
    columns: Vec<f64>,
}

impl Factor {
    /// Factorises a covariance matrix, (points, points), without the masked points.
    fn new(matrix: &[f64], masked: Option<&[bool]>) -> FoundFactor {
        let count = matrix.len().isqrt();
        let points: Vec<usize> = (0..count)
            .filter(|&j| masked.is_none_or(|masked| !masked[j]))
            .collect();
        let at = |i: usize, j: usize| matrix[i * count + j];
        for (&i, &j) in points
            .iter()
            .flat_map(|i| points.iter().map(move |j| (i, j)))
        {
            if !at(i, j).is_finite() {
                let message = format!(
                    "the covariance of the points {i} and {j} is {}: mask what must not count",
                    at(i, j)
                );
                return Err(format!("bad_weight: {message}"));
            }
            if (at(i, j) - at(j, i)).abs() > ASYMMETRY * (at(i, i) * at(j, j)).abs().sqrt() {
                let (one, other) = (at(i, j), at(j, i));
                let message = format!(
                    "the covariance of the points {i} and {j} is {one}, that of {j} and {i} {other}"
                );
                return Err(format!("bad_weight: {message}: give a symmetric matrix"));
            }
        }
        let kept = DMatrix::from_fn(points.len(), points.len(), |i, j| at(points[i], points[j]));
        let Some(factor) = Cholesky::new(kept) else {
            return Err(
                "bad_weight: the covariance matrix of the points is not positive definite".into(),
            );
        };
        let columns = factor
            .l_dirty()
            .column_iter()
            .enumerate()
            .flat_map(|(j, column)| column.iter().skip(j).copied().collect::<Vec<_>>());
        Ok(Factor {
            columns: columns.collect(),
            points,
        })
    }

    /// Replaces the values v at a curve's points by L⁻¹ v, and those at masked points by 0.
    pub fn whiten(&self, values: &mut [f64]) {
        let mut white: Vec<f64> = self.points.iter().map(|&point| values[point]).collect();
        let mut columns = &self.columns[..];
        for j in 0..white.len() {
            let (column, others) = columns.split_at(white.len() - j);
            let value = white[j] / column[0];
            white[j..]
                .iter_mut()
                .zip(column)
                .for_each(|(rest, l)| *rest -= l * value);
            white[j] = value;
            columns = others;
        }
        values.fill(0.0);
        self.points
            .iter()
            .zip(white)
            .for_each(|(&point, value)| values[point] = value);
    }
}

/// Curves with uncorrelated errors, and the run that fits them.
pub(crate) struct Whitened<'a> {
    pub run: CurveRun,
    pub curves: Curves<'a>,
    /// Indices of the curves whose matrices have no Cholesky factor, and why.
    refused: Vec<(usize, String)>,
}

impl Whitened<'_> {
    /// Returns index and result of each curve that cannot be fitted, because its matrix has no Cholesky factor.
    pub fn refusals(&self) -> impl Iterator<Item = (usize, CurveFit)> + '_ {
        let blank = || CurveFit::blank(self.run.held.len());
        self.refused.iter().map(move |(k, cause)| {
            (
                *k,
                CurveFit {
                    message: cause.clone(),
                    ..blank()
                },
            )
        })
    }
}

impl Curves<'_> {
    /// Returns the Cholesky factor of each curve's covariance matrix; `None` without covariances. Curves that share
    /// matrix and mask share the factor.
    pub(crate) fn factors(&self, curves: usize, points: usize) -> Option<Vec<Arc<FoundFactor>>> {
        let covariance = self.covariance.as_ref()?;
        let size = points * points;
        if covariance.len() != size || curves == 1 {
            let factorise = |k: usize| {
                let masked = self.masked(k..k + 1, points);
                Arc::new(Factor::new(
                    &covariance.to_vec(k * size..(k + 1) * size),
                    masked.as_deref(),
                ))
            };
            return Some(threads::in_pool(|| {
                (0..curves).into_par_iter().map(factorise).collect()
            }));
        }
        let matrix = covariance.to_double();
        let mut known: HashMap<Option<Vec<bool>>, Arc<FoundFactor>> = HashMap::new();
        let of_curve = |k: usize| {
            let masked = self.masked(k..k + 1, points).map(|masked| masked.to_vec());
            let found = known
                .entry(masked)
                .or_insert_with_key(|masked| Arc::new(Factor::new(&matrix, masked.as_deref())));
            found.clone()
        };
        Some((0..curves).map(of_curve).collect())
    }
}

impl CurveRun {
    /// Returns curves with covariance matrices as curves without, and the run that fits them; `None` if there are no
    /// covariances.
    ///
    /// # Errors
    /// Returns [`Error::ShapeMismatch`] if the lengths of the arrays do not fit together, and
    /// [`Error::InvalidArgument`] if the model or the device takes no covariances.
    pub(crate) fn whiten<'a>(&self, curves: &'a Curves) -> Result<Option<Whitened<'a>>> {
        let (count, points) = curves.shape(self.model.predictors(), self.model.parameters())?;
        let Some(factors) = curves.factors(count, points) else {
            return Ok(None);
        };
        let (mut y, mut refused) = (curves.y.to_double().into_owned(), Vec::new());
        for (k, (row, factor)) in y.chunks_exact_mut(points.max(1)).zip(&factors).enumerate() {
            match &**factor {
                Ok(factor) => factor.whiten(row),
                Err(cause) => {
                    // nothing is fitted
                    row.fill(f64::NAN);
                    refused.push((k, cause.clone()));
                }
            }
        }
        let numbers = curves
            .numbers
            .iter()
            .flatten()
            .copied()
            .zip(0..)
            .collect::<HashMap<usize, usize>>();
        let transformation = move |number: usize, values: &mut [f64]| {
            let index = numbers.get(&number).copied().unwrap_or(number);
            match factors.get(index).map(|factor| &**factor) {
                Some(Ok(factor)) => factor.whiten(values),
                _ => values.fill(f64::NAN),
            }
        };
        let device = if self.device.is_chosen() {
            Device::cpu()
        } else {
            self.device.clone()
        };
        let model = self.model.transformed(Arc::new(transformation));
        let (Some(model), false) = (model, device.inner.runs_wgsl()) else {
            let message = "covariance: curves with correlated errors are fitted on the CPU alone: take Device::cpu()";
            return Err(Error::invalid("covariance", message));
        };
        let curves = Curves {
            y: y.into(),
            covariance: None,
            ..curves.view()
        };
        Ok(Some(Whitened {
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
