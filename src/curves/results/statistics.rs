//! Goodness of fit: residuals, information criteria and coefficients of determination.

use rayon::prelude::*;

use crate::curves::results::result::information_criteria;
use crate::curves::{CurveFitter, Curves};
use crate::error::{Error, Result};
use crate::threads;

/// Statistics of many fits, one number per curve in each column.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FitStatistics {
    /// Points that are not masked.
    pub points: Vec<usize>,
    /// Degrees of freedom: points that are not masked + priors − free parameters.
    pub dof: Vec<i64>,
    /// Akaike's information criterion, as [`CurveFit::aic`](crate::CurveFit::aic).
    pub aic: Vec<f64>,
    /// The Bayesian information criterion, as [`CurveFit::bic`](crate::CurveFit::bic).
    pub bic: Vec<f64>,
    /// Coefficient of determination R², 1 − Σ (y − f)² / Σ (y − ȳ)² over the points that are not masked, whatever their
    /// sigmas, as lmfit's `rsquared`.
    pub r_squared: Vec<f64>,
}

/// Statistics of one fit.
struct CurveStatistics {
    points: usize,
    dof: i64,
    aic: f64,
    bic: f64,
    r_squared: f64,
}

impl CurveFitter {
    /// Returns the residuals (y − f)/σ of all curves, (curves, points), at the `parameters` (curves, P) of each. With
    /// covariance matrices C = L Lᵀ they are L⁻¹ (y − f), so that the sum of their squares is χ². They are NaN where a
    /// point is masked, and where parameters or the model are not finite.
    ///
    /// # Errors
    /// The errors of [`predict`](Self::predict).
    pub fn residuals(&self, curves: &Curves, parameters: &[f64]) -> Result<Vec<f64>> {
        let mut residuals = self.deviations(curves, parameters)?;
        let (count, points) = curves.shape(&self.model)?;
        let factors = curves.covariance_factors(count, points);
        let weigh_row = |k: usize, row: &mut [f64]| {
            // 1. Divide by the Cholesky factor of the covariance, or by sigma.
            if let Some(factors) = &factors {
                match &*factors[k] {
                    Ok(factor) => factor.whiten(row),
                    Err(_) => row.fill(f64::NAN),
                }
            }
            if let Some(sigmas) = curves.sigmas_of(k..k + 1, points, &mut Vec::new()) {
                for (residual, sigma) in row.iter_mut().zip(sigmas) {
                    *residual /= sigma;
                }
            }
            // 2. Leave out masked points.
            if let Some(masked) = curves.masked(k..k + 1, points) {
                for (residual, is_masked) in row.iter_mut().zip(&*masked) {
                    if *is_masked {
                        *residual = f64::NAN;
                    }
                }
            }
        };
        threads::in_pool(|| {
            residuals
                .par_chunks_mut(points.max(1))
                .enumerate()
                .for_each(|(k, row)| weigh_row(k, row));
        });
        Ok(residuals)
    }

    /// Returns the statistics of fits of these curves that ended at the `parameters` (curves, P) with `chi2` (curves).
    /// Criteria and R² are NaN where these are not finite.
    ///
    /// ```
    /// use popfit::{CurveFitter, Curves, Device, Formula};
    ///
    /// let fitter = CurveFitter::new(Formula::parse("a + b*x")?, Device::cpu());
    /// let curves = Curves::on_common_grid(vec![0.0, 1.0, 2.0, 3.0], vec![1.1, 1.9, 3.1, 3.9], vec![1.0, 1.0]);
    /// let fits = fitter.fit_columns(&curves)?;
    /// let statistics = fitter.statistics(&curves, &fits.parameters, &fits.chi2)?;
    /// assert!((statistics.r_squared[0] - 0.993).abs() < 1e-3);
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`predict`](Self::predict) and of the fitter's settings, and [`Error::ShapeMismatch`] if `chi2`
    /// has another length.
    pub fn statistics(
        &self,
        curves: &Curves,
        parameters: &[f64],
        chi2: &[f64],
    ) -> Result<FitStatistics> {
        let run = self.make_run()?;
        let (count, points) = curves.shape(&self.model)?;
        if chi2.len() != count {
            return Err(Error::mismatch(
                "chi2",
                format!("{} numbers for {count} curves", chi2.len()),
            )
            .naming("chi2"));
        }
        let deviations = self.deviations(curves, parameters)?;
        let statistics_of = |k: usize| -> CurveStatistics {
            // 1. Count the points and the free parameters.
            let masked = curves.masked(k..k + 1, points);
            let unmasked =
                || (0..points).filter(|j| masked.as_ref().is_none_or(|masked| !masked[*j]));
            let point_count = unmasked().count();
            let (lower, upper) = run.bounds_of(curves, k);
            let free = (0..lower.len())
                .filter(|&p| !run.held[p] && run.ties.iter().all(|tie| tie.parameter != p))
                .filter(|&p| lower[p] < upper[p])
                .count();
            // 2. Compare the squares around the model with those around the mean. lmfit, too, divides by the smallest
            //    number where the data are constant.
            let y = |j: usize| curves.y.at(k * points + j);
            let mean = unmasked().map(y).sum::<f64>() / point_count as f64;
            let squares_about_mean: f64 = unmasked().map(|j| (y(j) - mean).powi(2)).sum();
            let squares_about_model: f64 =
                unmasked().map(|j| deviations[k * points + j].powi(2)).sum();
            let r_squared = if point_count > 0 {
                1.0 - squares_about_model / squares_about_mean.max(f64::MIN_POSITIVE)
            } else {
                f64::NAN
            };
            let (aic, bic) = information_criteria(chi2[k], point_count, free, self.estimator);
            CurveStatistics {
                points: point_count,
                dof: run.dof(point_count, free),
                aic,
                bic,
                r_squared,
            }
        };
        let rows: Vec<CurveStatistics> =
            threads::in_pool(|| (0..count).into_par_iter().map(statistics_of).collect());
        Ok(FitStatistics {
            points: rows.iter().map(|row| row.points).collect(),
            dof: rows.iter().map(|row| row.dof).collect(),
            aic: rows.iter().map(|row| row.aic).collect(),
            bic: rows.iter().map(|row| row.bic).collect(),
            r_squared: rows.iter().map(|row| row.r_squared).collect(),
        })
    }

    /// Returns y − f of all curves, (curves, points).
    fn deviations(&self, curves: &Curves, parameters: &[f64]) -> Result<Vec<f64>> {
        let mut deviations = self.predict(curves, parameters)?;
        for (i, value) in deviations.iter_mut().enumerate() {
            *value = curves.y.at(i) - *value;
        }
        Ok(deviations)
    }
}
