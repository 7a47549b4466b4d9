//! Tied parameters: the fit runs without them, and they are put back into its result.

use crate::curves::input::data::Curves;
use crate::curves::results::result::open_undetermined;
use crate::curves::results::sound;
use crate::curves::watch::Watch;
use crate::curves::{CurveFit, CurveRun};
use crate::error::{Error, Result};
use crate::formula::Ties;
use crate::solver::Status;
use crate::values::Values;

impl CurveRun {
    /// Returns the index of the parameter of this name, or a usage error if there is none or it is tied.
    pub(crate) fn untied(&self, parameter: &str) -> Result<usize> {
        let p = self.index(parameter)?;
        match self.ties.iter().any(|tie| tie.parameter == p) {
            true => Err(Error::Usage(format!("`{parameter}` is tied: it follows other parameters"))),
            false => Ok(p),
        }
    }

    /// Fits curves by a formula in which expressions replace the tied parameters, and returns results with all
    /// parameters.
    pub(crate) fn fit_tied(&self, curves: &Curves, watch: &Watch) -> Result<Vec<CurveFit>> {
        let ties = self.substitute(&self.ties)?;
        let count = self.model.parameters().len();
        let (total, _) = curves.shape(self.model.predictors(), self.model.parameters())?;
        let pick = |values: &[f64]| ties.kept.iter().map(|&p| values[p]).collect::<Vec<f64>>();
        let fitter = CurveRun {
            lower: pick(&self.lower),
            upper: pick(&self.upper),
            held: ties.kept.iter().map(|&p| self.held[p]).collect(),
            priors: ties.kept.iter().map(|&p| self.priors[p]).collect(),
            ties: Vec::new(),
            model: ties.formula.clone().into(),
            ..self.clone()
        };
        let rows = |values: &Values| values.to_double().chunks_exact(count).flat_map(pick).collect::<Vec<f64>>();
        let kept = Curves {
            starts: rows(&curves.starts).into(),
            lower: curves.lower.as_ref().map(|lower| rows(lower).into()),
            upper: curves.upper.as_ref().map(|upper| rows(upper).into()),
            ..curves.view()
        };
        let mut fits: Vec<CurveFit> =
            fitter.fit_here(&kept, watch)?.into_iter().map(|fit| sound::curve(expand(fit, &ties, count))).collect();
        for (index, fit) in fits.iter_mut().enumerate().take(total) {
            let finite = |values: &Option<Values>, p: usize| {
                values.as_ref().is_some_and(|values| values.at(index * count + p).is_finite())
            };
            if let Some(&p) = ties.tied.iter().find(|&&p| finite(&curves.lower, p) || finite(&curves.upper, p)) {
                *fit = CurveFit::blank(count);
                (fit.status, fit.message) =
                    (Status::BadInput, format!("bad_bounds: `{}` is tied", self.model.parameters()[p]));
            }
        }
        Ok(fits)
    }
}

/// Adds the tied parameters to a fit of the others: values and starts by their expressions, errors by the covariance J
/// C Jᵀ.
fn expand(fit: CurveFit, ties: &Ties, count: usize) -> CurveFit {
    let kept = ties.kept.len();
    let jacobian = jacobian(ties, &fit.parameters, count);
    let row = |p: usize| &jacobian[p * kept..][..kept];
    let entries = (0..count * count).map(|i| propagated(row(i / count), row(i % count), &fit.covariance));
    let mut covariance: Vec<f64> = entries.collect();
    // a tie that depends on an undetermined parameter counts as undetermined
    let is_open = |p: usize| row(p).iter().zip(&fit.errors).any(|(slope, error)| *slope != 0.0 && error.is_infinite());
    open_undetermined(&mut covariance, (0..count).filter(|&p| is_open(p)));
    CurveFit {
        parameters: with_tied(ties, &fit.parameters, count),
        start: with_tied(ties, &fit.start, count),
        errors: (0..count).map(|p| covariance[p * count + p].sqrt()).collect(),
        covariance,
        ..fit
    }
}

/// Returns the values of all `count` parameters from those of the ones that are not tied, the tied ones by their
/// expressions.
fn with_tied(ties: &Ties, values: &[f64], count: usize) -> Vec<f64> {
    let tied = ties.evaluate(values);
    let mut all = vec![f64::NAN; count];
    ties.kept.iter().zip(values).for_each(|(&p, value)| all[p] = *value);
    ties.tied.iter().enumerate().for_each(|(t, &p)| all[p] = tied[t * (1 + ties.kept.len())]);
    all
}

/// Returns the derivatives of all parameters by those that are not tied, (count, kept).
fn jacobian(ties: &Ties, values: &[f64], count: usize) -> Vec<f64> {
    let kept = ties.kept.len();
    let mut jacobian = vec![0.0; count * kept];
    ties.kept.iter().enumerate().for_each(|(k, &p)| jacobian[p * kept + k] = 1.0);
    let slopes = ties.evaluate(values);
    for (t, &p) in ties.tied.iter().enumerate() {
        jacobian[p * kept..(p + 1) * kept].copy_from_slice(&slopes[t * (1 + kept) + 1..(t + 1) * (1 + kept)]);
    }
    jacobian
}

/// Returns left · C · rightᵀ for two rows of a Jacobian and a covariance C, where a slope of 0 cancels NaN. Parameters
/// with the slope 0 do not count: their covariance may be NaN.
fn propagated(left: &[f64], right: &[f64], covariance: &[f64]) -> f64 {
    let times = |slope: f64, value: f64| if slope == 0.0 { 0.0 } else { slope * value };
    let kept = left.len();
    let row = |k: usize| (0..kept).map(|l| times(right[l], covariance[k * kept + l])).sum::<f64>();
    // a sum of nothing is -0
    0.0 + (0..kept).filter(|&k| left[k] != 0.0).map(|k| times(left[k], row(k))).sum::<f64>()
}
