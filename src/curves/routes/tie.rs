//! Tied parameters: the fit runs without them, and they are added to its result.

use crate::curves::input::data::Curves;
use crate::curves::results::result::mark_undetermined_covariances;
use crate::curves::results::sound;
use crate::curves::watch::Watch;
use crate::curves::{CurveColumns, CurveFit, CurveRun};
use crate::error::{Error, Result};
use crate::formula::Ties;
use crate::threads;
use crate::values::Values;

impl CurveRun {
    /// Returns the index of the parameter of this name, or a usage error if there is none or it is tied.
    pub(crate) fn untied_index(&self, parameter: &str) -> Result<usize> {
        let p = self.parameter_index(parameter)?;
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
            curves: untied_curves,
        } = self.untie(curves)?;
        let count = self.model.parameters().len();
        let mut fits: Vec<CurveFit> = run
            .fit_from_one_start(&untied_curves, watch)?
            .into_iter()
            .map(|fit| sound::require_finite(add_tied_parameters(fit, &ties, count)))
            .collect();
        for (k, fit) in fits.iter_mut().enumerate() {
            if let Some(refused) = self.refuse_tied_bounds(curves, &ties, k) {
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
            curves: untied_curves,
        } = self.untie(curves)?;
        // The errors of tied parameters need the covariance of the others.
        run.covariance = true;
        let mut untied_columns = CurveColumns::default();
        run.fit_columns_once(&untied_curves, &mut untied_columns, watch)?;
        threads::in_pool(|| columns.put_tied(untied_columns, &ties));
        if curves.lower.is_some() || curves.upper.is_some() {
            for k in 0..columns.len() {
                if let Some(refused) = self.refuse_tied_bounds(curves, &ties, k) {
                    columns.write_fit(k, &refused);
                }
            }
        }
        Ok(())
    }

    /// Returns the run and the curves without the tied parameters.
    fn untie<'a>(&self, curves: &'a Curves) -> Result<Untied<'a>> {
        let ties = self.substitute(&self.ties)?;
        let count = self.model.parameters().len();
        curves.shape(&self.model)?;
        let select_untied =
            |values: &[f64]| ties.kept.iter().map(|&p| values[p]).collect::<Vec<f64>>();
        let run = CurveRun {
            lower: select_untied(&self.lower),
            upper: select_untied(&self.upper),
            held: ties.kept.iter().map(|&p| self.held[p]).collect(),
            priors: ties.kept.iter().map(|&p| self.priors[p]).collect(),
            ties: Vec::new(),
            model: ties.formula.clone().into(),
            ..self.clone()
        };
        let select_untied_of_rows = |rows: &Values| {
            rows.to_double()
                .chunks_exact(count)
                .flat_map(select_untied)
                .collect::<Vec<f64>>()
        };
        let curves = Curves {
            starts: select_untied_of_rows(&curves.starts.values).into(),
            lower: curves
                .lower
                .as_ref()
                .map(|lower| select_untied_of_rows(lower).into()),
            upper: curves
                .upper
                .as_ref()
                .map(|upper| select_untied_of_rows(upper).into()),
            ..curves.view()
        };
        Ok(Untied { ties, run, curves })
    }

    /// Returns the result of curve `k` as a bad input if its own bounds limit a tied parameter.
    fn refuse_tied_bounds(&self, curves: &Curves, ties: &Ties, k: usize) -> Option<CurveFit> {
        let names = self.model.parameters();
        let is_finite = |bounds: &Option<Values>, p: usize| {
            bounds
                .as_ref()
                .is_some_and(|bounds| bounds.at(k * names.len() + p).is_finite())
        };
        let bounded = ties
            .tied
            .iter()
            .find(|&&p| is_finite(&curves.lower, p) || is_finite(&curves.upper, p))?;
        let message = format!("bad_bounds: `{}` is tied", names[*bounded]);
        Some(CurveFit::refused(message, names.len()))
    }
}

/// A run without tied parameters, and its curves.
struct Untied<'a> {
    ties: Ties,
    run: CurveRun,
    curves: Curves<'a>,
}

/// One fit's results of all P parameters, to be filled in.
pub(crate) struct Expansion<'a> {
    /// (P)
    pub parameters: &'a mut [f64],
    /// (P)
    pub errors: &'a mut [f64],
    /// (P, P)
    pub covariance: &'a mut [f64],
}

/// One fit's results of the K parameters that are not tied.
pub(crate) struct UntiedResults<'a> {
    /// (K)
    pub parameters: &'a [f64],
    /// (K)
    pub errors: &'a [f64],
    /// (K, K)
    pub covariance: &'a [f64],
}

impl Expansion<'_> {
    /// Fills in all parameters: the tied ones by their expressions, their errors by the covariance J C Jᵀ.
    pub fn fill_in(&mut self, ties: &Ties, untied: UntiedResults<'_>) {
        let count = self.parameters.len();
        let untied_count = ties.kept.len();
        // (tied, 1 + untied): values and slopes.
        let tied_rows = ties.evaluate(untied.parameters);
        let value = |t: usize| tied_rows[t * (1 + untied_count)];
        let slopes =
            |t: usize| &tied_rows[t * (1 + untied_count) + 1..(t + 1) * (1 + untied_count)];
        // 1. Copy the results of the parameters that are not tied.
        for (k, &p) in ties.kept.iter().enumerate() {
            self.parameters[p] = untied.parameters[k];
            self.errors[p] = untied.errors[k];
            for (l, &q) in ties.kept.iter().enumerate() {
                self.covariance[p * count + q] = untied.covariance[k * untied_count + l];
            }
        }
        // 2. Compute the tied ones, and their covariances with all others.
        let mut unit_vector = vec![0.0; untied_count];
        for (t, &p) in ties.tied.iter().enumerate() {
            self.parameters[p] = value(t);
            for (k, &q) in ties.kept.iter().enumerate() {
                unit_vector[k] = 1.0;
                let covariance = propagate_covariance(slopes(t), &unit_vector, untied.covariance);
                self.covariance[p * count + q] = covariance;
                self.covariance[q * count + p] = covariance;
                unit_vector[k] = 0.0;
            }
            for (u, &q) in ties.tied.iter().enumerate() {
                self.covariance[p * count + q] =
                    propagate_covariance(slopes(t), slopes(u), untied.covariance);
            }
            self.errors[p] = self.covariance[p * count + p].sqrt();
        }
        // 3. A tie that depends on an undetermined parameter is undetermined, too.
        if !untied.errors.iter().any(|error| error.is_infinite()) {
            return;
        }
        let mut undetermined: Vec<usize> = Vec::new();
        for (k, &p) in ties.kept.iter().enumerate() {
            if untied.errors[k].is_infinite() {
                undetermined.push(p);
            }
        }
        for (t, &p) in ties.tied.iter().enumerate() {
            let depends_on_undetermined = slopes(t)
                .iter()
                .zip(untied.errors)
                .any(|(slope, error)| *slope != 0.0 && error.is_infinite());
            if depends_on_undetermined {
                undetermined.push(p);
            }
        }
        mark_undetermined_covariances(self.covariance, &undetermined);
        for p in undetermined {
            self.errors[p] = f64::INFINITY;
        }
    }
}

/// Adds the tied parameters to a fit of the others.
fn add_tied_parameters(fit: CurveFit, ties: &Ties, count: usize) -> CurveFit {
    let CurveFit {
        mut parameters,
        mut errors,
        mut covariance,
        ..
    } = CurveFit::blank(count);
    let untied = UntiedResults {
        parameters: &fit.parameters,
        errors: &fit.errors,
        covariance: &fit.covariance,
    };
    let mut expansion = Expansion {
        parameters: &mut parameters,
        errors: &mut errors,
        covariance: &mut covariance,
    };
    expansion.fill_in(ties, untied);
    CurveFit {
        start: evaluate_all_parameters(ties, &fit.start, count),
        parameters,
        errors,
        covariance,
        ..fit
    }
}

/// Returns the values of all `count` parameters from those of the ones that are not tied, the tied ones by their
/// expressions.
fn evaluate_all_parameters(ties: &Ties, untied: &[f64], count: usize) -> Vec<f64> {
    let tied_rows = ties.evaluate(untied);
    let mut parameters = vec![f64::NAN; count];
    for (&p, value) in ties.kept.iter().zip(untied) {
        parameters[p] = *value;
    }
    for (t, &p) in ties.tied.iter().enumerate() {
        parameters[p] = tied_rows[t * (1 + ties.kept.len())];
    }
    parameters
}

/// Returns left · C · rightᵀ for two rows of a Jacobian and a covariance C, where a slope of 0 cancels NaN. Parameters
/// with the slope 0 do not count: their covariance may be NaN.
fn propagate_covariance(left: &[f64], right: &[f64], covariance: &[f64]) -> f64 {
    let product = |slope: f64, value: f64| if slope == 0.0 { 0.0 } else { slope * value };
    let count = left.len();
    let times_right = |k: usize| {
        (0..count)
            .map(|l| product(right[l], covariance[k * count + l]))
            .sum::<f64>()
    };
    // A sum of nothing is -0.
    0.0 + (0..count)
        .filter(|&k| left[k] != 0.0)
        .map(|k| product(left[k], times_right(k)))
        .sum::<f64>()
}
