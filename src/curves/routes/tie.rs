//! Tied parameters: the fit runs without them, and they are put back into its result.

use crate::curves::input::data::Curves;
use crate::curves::results::result::open_undetermined;
use crate::curves::results::sound;
use crate::curves::watch::Watch;
use crate::curves::{CurveColumns, CurveFit, CurveRun};
use crate::error::{Error, Result};
use crate::formula::Ties;
use crate::solver::Status;
use crate::threads;
use crate::values::Values;

impl CurveRun {
    /// Returns the index of the parameter of this name, or a usage error if there is none or it is tied.
    pub(crate) fn untied(&self, parameter: &str) -> Result<usize> {
        let p = self.index(parameter)?;
        match self.ties.iter().any(|tie| tie.parameter == p) {
            true => Err(Error::Usage(format!(
                "`{parameter}` is tied: it follows other parameters"
            ))),
            false => Ok(p),
        }
    }

    /// Fits curves by a formula in which expressions replace the tied parameters, and returns results with all
    /// parameters.
    pub(crate) fn fit_tied(&self, curves: &Curves, watch: &Watch) -> Result<Vec<CurveFit>> {
        let Untied {
            ties,
            run,
            curves: kept,
        } = self.untie(curves)?;
        let count = self.model.parameters().len();
        let fits = run.fit_here(&kept, watch)?.into_iter();
        let mut fits: Vec<CurveFit> = fits
            .map(|fit| sound::curve(expand(fit, &ties, count)))
            .collect();
        for (k, fit) in fits.iter_mut().enumerate() {
            if let Some(refused) = self.refuse_bounds(curves, &ties, k) {
                *fit = refused;
            }
        }
        Ok(fits)
    }

    /// Fits curves as [`fit_tied`](Self::fit_tied) does, and writes the results into columns.
    pub(crate) fn fit_tied_columns(
        &self,
        curves: &Curves,
        columns: &mut CurveColumns,
        watch: &Watch,
    ) -> Result<()> {
        let Untied {
            ties,
            mut run,
            curves: kept,
        } = self.untie(curves)?;
        // the errors of tied parameters come from it
        run.covariance = true;
        let mut free = CurveColumns::default();
        run.fit_columns_here(&kept, &mut free, watch)?;
        threads::in_pool(|| columns.put_tied(free, &ties));
        let tied_bounds = curves.lower.is_some() || curves.upper.is_some();
        for k in 0..if tied_bounds { columns.len() } else { 0 } {
            if let Some(refused) = self.refuse_bounds(curves, &ties, k) {
                columns.put(k, &refused);
            }
        }
        Ok(())
    }

    /// Returns the run and the curves without the tied parameters.
    fn untie<'a>(&self, curves: &'a Curves) -> Result<Untied<'a>> {
        let ties = self.substitute(&self.ties)?;
        let count = self.model.parameters().len();
        curves.shape(self.model.predictors(), self.model.parameters())?;
        let pick = |values: &[f64]| ties.kept.iter().map(|&p| values[p]).collect::<Vec<f64>>();
        let run = CurveRun {
            lower: pick(&self.lower),
            upper: pick(&self.upper),
            held: ties.kept.iter().map(|&p| self.held[p]).collect(),
            priors: ties.kept.iter().map(|&p| self.priors[p]).collect(),
            ties: Vec::new(),
            model: ties.formula.clone().into(),
            ..self.clone()
        };
        let rows = |values: &Values| {
            values
                .to_double()
                .chunks_exact(count)
                .flat_map(pick)
                .collect::<Vec<f64>>()
        };
        let curves = Curves {
            starts: rows(&curves.starts).into(),
            lower: curves.lower.as_ref().map(|lower| rows(lower).into()),
            upper: curves.upper.as_ref().map(|upper| rows(upper).into()),
            ..curves.view()
        };
        Ok(Untied { ties, run, curves })
    }

    /// Returns the result of curve `k` as a bad input if its own bounds limit a tied parameter.
    fn refuse_bounds(&self, curves: &Curves, ties: &Ties, k: usize) -> Option<CurveFit> {
        let names = self.model.parameters();
        let finite = |values: &Option<Values>, p: usize| {
            values
                .as_ref()
                .is_some_and(|values| values.at(k * names.len() + p).is_finite())
        };
        let p = ties
            .tied
            .iter()
            .find(|&&p| finite(&curves.lower, p) || finite(&curves.upper, p))?;
        let message = format!("bad_bounds: `{}` is tied", names[*p]);
        Some(CurveFit {
            status: Status::BadInput,
            message,
            ..CurveFit::blank(names.len())
        })
    }
}

/// A run without tied parameters, and its curves.
struct Untied<'a> {
    ties: Ties,
    run: CurveRun,
    curves: Curves<'a>,
}

/// One fit's results of all P parameters, without the tied ones, which are added in place.
pub(crate) struct Expansion<'a> {
    /// (P)
    pub parameters: &'a mut [f64],
    /// (P)
    pub errors: &'a mut [f64],
    /// (P, P)
    pub covariance: &'a mut [f64],
}

/// One fit's results of the K parameters that are not tied.
pub(crate) struct Kept<'a> {
    /// (K)
    pub parameters: &'a [f64],
    /// (K)
    pub errors: &'a [f64],
    /// (K, K)
    pub covariance: &'a [f64],
}

impl Expansion<'_> {
    /// Fills in all parameters: the tied ones by their expressions, their errors by the covariance J C Jᵀ.
    pub fn fill(&mut self, ties: &Ties, fit: Kept<'_>) {
        let (count, kept) = (self.parameters.len(), ties.kept.len());
        // (tied, 1 + kept): values and slopes
        let tied = ties.evaluate(fit.parameters);
        let slopes = |t: usize| &tied[t * (1 + kept) + 1..(t + 1) * (1 + kept)];
        for (k, &p) in ties.kept.iter().enumerate() {
            (self.parameters[p], self.errors[p]) = (fit.parameters[k], fit.errors[k]);
            for (l, &q) in ties.kept.iter().enumerate() {
                self.covariance[p * count + q] = fit.covariance[k * kept + l];
            }
        }
        let mut unit = vec![0.0; kept];
        for (t, &p) in ties.tied.iter().enumerate() {
            self.parameters[p] = tied[t * (1 + kept)];
            for (k, &q) in ties.kept.iter().enumerate() {
                unit[k] = 1.0;
                self.covariance[p * count + q] = propagated(slopes(t), &unit, fit.covariance);
                self.covariance[q * count + p] = self.covariance[p * count + q];
                unit[k] = 0.0;
            }
            for (u, &q) in ties.tied.iter().enumerate() {
                self.covariance[p * count + q] = propagated(slopes(t), slopes(u), fit.covariance);
            }
            self.errors[p] = self.covariance[p * count + p].sqrt();
        }
        // a tie that depends on an undetermined parameter counts as undetermined
        if !fit.errors.iter().any(|error| error.is_infinite()) {
            return;
        }
        let is_open = |t: usize| {
            slopes(t)
                .iter()
                .zip(fit.errors)
                .any(|(s, error)| *s != 0.0 && error.is_infinite())
        };
        let tied = ties
            .tied
            .iter()
            .enumerate()
            .filter(|(t, _)| is_open(*t))
            .map(|(_, &p)| p);
        let kept = ties
            .kept
            .iter()
            .zip(fit.errors)
            .filter(|(_, error)| error.is_infinite())
            .map(|(&p, _)| p);
        let open: Vec<usize> = kept.chain(tied).collect();
        open_undetermined(self.covariance, open.iter().copied());
        open.iter().for_each(|&p| self.errors[p] = f64::INFINITY);
    }
}

/// Adds the tied parameters to a fit of the others.
fn expand(fit: CurveFit, ties: &Ties, count: usize) -> CurveFit {
    let CurveFit {
        mut parameters,
        mut errors,
        mut covariance,
        ..
    } = CurveFit::blank(count);
    let kept = Kept {
        parameters: &fit.parameters,
        errors: &fit.errors,
        covariance: &fit.covariance,
    };
    let mut all = Expansion {
        parameters: &mut parameters,
        errors: &mut errors,
        covariance: &mut covariance,
    };
    all.fill(ties, kept);
    CurveFit {
        start: with_tied(ties, &fit.start, count),
        parameters,
        errors,
        covariance,
        ..fit
    }
}

/// Returns the values of all `count` parameters from those of the ones that are not tied, the tied ones by their
/// expressions.
fn with_tied(ties: &Ties, values: &[f64], count: usize) -> Vec<f64> {
    let tied = ties.evaluate(values);
    let mut all = vec![f64::NAN; count];
    ties.kept
        .iter()
        .zip(values)
        .for_each(|(&p, value)| all[p] = *value);
    ties.tied
        .iter()
        .enumerate()
        .for_each(|(t, &p)| all[p] = tied[t * (1 + ties.kept.len())]);
    all
}

/// Returns left · C · rightᵀ for two rows of a Jacobian and a covariance C, where a slope of 0 cancels NaN. Parameters
/// with the slope 0 do not count: their covariance may be NaN.
fn propagated(left: &[f64], right: &[f64], covariance: &[f64]) -> f64 {
    let times = |slope: f64, value: f64| if slope == 0.0 { 0.0 } else { slope * value };
    let kept = left.len();
    let row = |k: usize| {
        (0..kept)
            .map(|l| times(right[l], covariance[k * kept + l]))
            .sum::<f64>()
    };
    // a sum of nothing is -0
    0.0 + (0..kept)
        .filter(|&k| left[k] != 0.0)
        .map(|k| times(left[k], row(k)))
        .sum::<f64>()
}
