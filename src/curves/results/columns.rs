//! Results of millions of small fits, column by column.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use crate::curve_model::CurveModel;
use crate::curves::CurveFit;
use crate::curves::results::sound;
use crate::curves::routes::tie::{Expansion, UntiedResults};
use crate::flag::Flags;
use crate::formula::Ties;
use crate::solver::{Outcome, Status};

/// Number of fits whose ends one thread examines together.
const FITS_PER_SEARCH_TASK: usize = 16_384;
/// Number of fits to which one thread adds tied parameters together.
const FITS_PER_TIE_TASK: usize = 1024;

/// Results of many curves, row by row. P is the number of parameters.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CurveColumns {
    /// (curves, P); NaN where a curve could not be fitted. An interrupted fit has the best point that it had found, or
    /// its start.
    pub parameters: Vec<f64>,
    /// (curves, P): as [`CurveFit::errors`](crate::CurveFit::errors).
    pub errors: Vec<f64>,
    /// (curves): Σ ((y − model) / sigma)² over the points that are not masked.
    pub chi2: Vec<f64>,
    /// (curves): how each fit ended.
    pub status: Vec<Status>,
    /// (curves): linearisations.
    pub rounds: Vec<u32>,
    /// (curves): evaluations of the model, with or without derivatives, as
    /// [`CurveFit::evaluations`](crate::CurveFit::evaluations).
    pub evaluations: Vec<u32>,
    /// (curves): [`Flags::UNDETERMINED`] and [`Flags::AT_BOUND`].
    pub flags: Vec<Flags>,
    /// (curves, P, P): as [`CurveFit::covariance`](crate::CurveFit::covariance), where
    /// [`CurveFitter::covariance`](crate::CurveFitter::covariance) asks for it; NaN of fits without errors. The
    /// diagonal has the squares of the errors.
    pub covariance: Option<Vec<f64>>,
    names: Arc<[String]>,
    /// Messages of the curves that are not a plain success, by index.
    pub(crate) messages: BTreeMap<usize, String>,
}

/// A status takes a byte per curve.
const _: () = assert!(size_of::<Status>() == 1);

impl CurveColumns {
    /// Returns the number of curves.
    pub fn len(&self) -> usize {
        self.status.len()
    }

    /// Returns whether there is no curve.
    pub fn is_empty(&self) -> bool {
        self.status.is_empty()
    }

    /// Returns the names of the parameters, in the order of each row.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the values of a parameter, one per curve; `None` where there is no parameter of this name.
    pub fn column(&self, parameter: &str) -> Option<impl ExactSizeIterator<Item = f64> + '_> {
        self.strided(&self.parameters, parameter)
    }

    /// Returns the standard errors of a parameter, one per curve; `None` where there is no parameter of this name.
    pub fn errors(&self, parameter: &str) -> Option<impl ExactSizeIterator<Item = f64> + '_> {
        self.strided(&self.errors, parameter)
    }

    /// Returns the message of a curve's fit: the cause of a bad input, how a fit failed, or which parameters the data
    /// do not determine. `None` of a plain success, and of many fits that an interrupted run did not begin.
    pub fn message(&self, k: usize) -> Option<&str> {
        self.messages.get(&k).map(String::as_str)
    }

    /// Returns a named parameter's column of numbers of shape (curves, P); `None` where there is no such parameter.
    fn strided<'s>(
        &'s self,
        rows: &'s [f64],
        name: &str,
    ) -> Option<impl ExactSizeIterator<Item = f64> + 's> {
        let p = self.names.iter().position(|parameter| parameter == name)?;
        Some(rows.chunks_exact(self.names.len()).map(move |row| row[p]))
    }

    /// Returns the status, parameters, χ² and rounds of curve `k` as an outcome.
    pub(crate) fn outcome(&self, k: usize) -> Outcome {
        let count = self.parameters.len() / self.status.len();
        let rounds = self.rounds[k];
        let parameters = self.parameters[k * count..(k + 1) * count].to_vec();
        Outcome {
            status: Some(self.status[k]),
            rounds,
            evaluations: rounds,
            parameters,
            chi2: self.chi2[k],
            ..Outcome::default()
        }
    }

    /// Returns the indices of the parameters of curve `k` with infinite errors, if it has the flag
    /// [`Flags::UNDETERMINED`]; else `None`.
    pub(crate) fn undetermined(&self, k: usize) -> Option<Vec<usize>> {
        let count = self.names.len();
        self.flags[k].contains(Flags::UNDETERMINED).then(|| {
            (0..count)
                .filter(|p| self.errors[k * count + p].is_infinite())
                .collect()
        })
    }

    /// Returns the indices of the curves that are no plain success, in order: they have failed, or have flags.
    pub(crate) fn unusual_fits(&self) -> Vec<usize> {
        let is_plain = |(status, flags): (&Status, &Flags)| status.is_success() & flags.is_empty();
        self.status
            .par_chunks(FITS_PER_SEARCH_TASK)
            .zip(self.flags.par_chunks(FITS_PER_SEARCH_TASK))
            .enumerate()
            .flat_map_iter(|(task, (status, flags))| {
                // As a rule all are plain, and a loop without an early exit is vectorised.
                let all_plain = status
                    .iter()
                    .zip(flags)
                    .fold(true, |all, end| all & is_plain(end));
                let searched = if all_plain { 0 } else { status.len() };
                let ends = status.iter().zip(flags).take(searched).enumerate();
                ends.filter(|(_, end)| !is_plain(*end))
                    .map(move |(k, _)| task * FITS_PER_SEARCH_TASK + k)
            })
            .collect()
    }

    /// Marks curve `k` as interrupted, without errors and flags, because the run was stopped before its fit had ended.
    pub(crate) fn mark_interrupted(&mut self, k: usize) {
        let count = self.parameters.len() / self.status.len();
        self.status[k] = Status::Interrupted;
        self.flags[k] = Flags::empty();
        self.errors[k * count..(k + 1) * count].fill(f64::NAN);
    }

    /// Copies a curve's fit into row `k` of all columns, with its message only where it has failed or has flags. The
    /// row of an earlier attempt is replaced.
    pub(crate) fn write_fit(&mut self, k: usize, fit: &CurveFit) {
        let row = k * fit.parameters.len()..(k + 1) * fit.parameters.len();
        self.parameters[row.clone()].copy_from_slice(&fit.parameters);
        self.errors[row].copy_from_slice(&fit.errors);
        if let Some(matrices) = &mut self.covariance {
            let size = fit.covariance.len();
            matrices[k * size..(k + 1) * size].copy_from_slice(&fit.covariance);
        }
        self.chi2[k] = fit.chi2;
        self.status[k] = fit.status;
        self.rounds[k] = fit.rounds;
        self.evaluations[k] = fit.evaluations;
        self.flags[k] = fit.flags;
        if fit.status.is_success() && fit.flags.is_empty() {
            self.messages.remove(&k);
        } else {
            self.messages.insert(k, fit.message.clone());
        }
    }

    /// Copies row `k` of all columns, with its message, from those of other fits of the same curves.
    pub(crate) fn copy_row(&mut self, k: usize, source: &CurveColumns) {
        let count = self.names.len();
        let row = k * count..(k + 1) * count;
        self.parameters[row.clone()].copy_from_slice(&source.parameters[row.clone()]);
        self.errors[row.clone()].copy_from_slice(&source.errors[row]);
        if let (Some(matrices), Some(source_matrices)) = (&mut self.covariance, &source.covariance)
        {
            let matrix = k * count * count..(k + 1) * count * count;
            matrices[matrix.clone()].copy_from_slice(&source_matrices[matrix]);
        }
        self.chi2[k] = source.chi2[k];
        self.status[k] = source.status[k];
        self.flags[k] = source.flags[k];
        self.rounds[k] = source.rounds[k];
        self.evaluations[k] = source.evaluations[k];
        match source.messages.get(&k) {
            Some(message) => self.messages.insert(k, message.clone()),
            None => self.messages.remove(&k),
        };
    }

    /// Takes over the columns of fits without tied parameters, which have covariances, and adds the tied ones. A
    /// success with a number that is not finite becomes a failure, as in single fits.
    pub(crate) fn put_tied(&mut self, mut untied: CurveColumns, ties: &Ties) {
        let count = self.names.len();
        let untied_count = ties.kept.len();
        // 1. Divide the columns of all parameters into tasks.
        if let Some(matrices) = &mut self.covariance {
            matrices.resize(untied.len() * count * count, f64::NAN);
        }
        let mut matrices = self
            .covariance
            .iter_mut()
            .flat_map(|all| all.chunks_mut(FITS_PER_TIE_TASK * count * count));
        let tasks: Vec<TiedRows> = self
            .parameters
            .chunks_mut(FITS_PER_TIE_TASK * count)
            .zip(self.errors.chunks_mut(FITS_PER_TIE_TASK * count))
            .enumerate()
            .map(|(task, (parameters, errors))| TiedRows {
                first: task * FITS_PER_TIE_TASK,
                count,
                parameters,
                errors,
                covariance: matrices.next(),
            })
            .collect();
        // 2. Fill in all parameters, and collect the fits of which a number is not finite.
        let untied_covariances = untied.covariance.take().unwrap_or_default();
        let fill_row = |k: usize, row: &mut Expansion| {
            let untied_row = k * untied_count..(k + 1) * untied_count;
            let untied_matrix = &untied_covariances[k * untied_count * untied_count..];
            row.fill_in(
                ties,
                UntiedResults {
                    parameters: &untied.parameters[untied_row.clone()],
                    errors: &untied.errors[untied_row],
                    covariance: &untied_matrix[..untied_count * untied_count],
                },
            );
            let is_sound = untied.chi2[k].is_finite()
                && sound::is_sound(row.parameters, row.errors, row.covariance, untied.flags[k]);
            !untied.status[k].is_success() || is_sound
        };
        let unsound: Vec<usize> = tasks
            .into_par_iter()
            .flat_map_iter(|rows| rows.fill_rows(fill_row))
            .collect();
        for k in unsound {
            untied.status[k] = Status::NotFinite;
            untied.messages.insert(k, sound::NOT_FINITE.into());
        }
        // 3. Take over the other columns.
        self.chi2 = untied.chi2;
        self.status = untied.status;
        self.messages = untied.messages;
        self.rounds = untied.rounds;
        self.evaluations = untied.evaluations;
        self.flags = untied.flags;
    }

    /// Resizes all columns for so many curves of the model, and clears messages; a fit overwrites the rest.
    pub(crate) fn reset(&mut self, curves: usize, model: &CurveModel, covariance: bool) {
        self.names = model.names();
        let parameters = self.names.len();
        let previous_matrices = self.covariance.take();
        self.covariance = covariance.then(|| {
            let mut matrices = previous_matrices.unwrap_or_default();
            matrices.resize(curves * parameters * parameters, f64::NAN);
            matrices
        });
        self.parameters.resize(curves * parameters, f64::NAN);
        self.errors.resize(curves * parameters, f64::NAN);
        self.chi2.resize(curves, f64::NAN);
        self.status.resize(curves, Status::BadInput);
        self.rounds.resize(curves, 0);
        self.evaluations.resize(curves, 0);
        self.messages.clear();
        self.flags.resize(curves, Flags::empty());
    }
}

/// Some rows of columns to which tied parameters are added. P is the number of all parameters.
struct TiedRows<'a> {
    /// Index of the first curve.
    first: usize,
    /// P.
    count: usize,
    /// (rows, P)
    parameters: &'a mut [f64],
    /// (rows, P)
    errors: &'a mut [f64],
    /// (rows, P, P), if they are asked for.
    covariance: Option<&'a mut [f64]>,
}

impl TiedRows<'_> {
    /// Calls `fill_row` with the index and the row of each curve; where it returns `false`, errors and covariances
    /// become NaN. Returns the indices of these curves.
    fn fill_rows(self, fill_row: impl Fn(usize, &mut Expansion) -> bool) -> Vec<usize> {
        let TiedRows {
            first,
            count,
            parameters,
            errors,
            covariance: mut matrices,
        } = self;
        let size = count * count;
        let mut unsound = Vec::new();
        let mut spare_matrix = vec![f64::NAN; size];
        let rows = parameters
            .chunks_exact_mut(count)
            .zip(errors.chunks_exact_mut(count))
            .enumerate();
        for (k, (parameters, errors)) in rows {
            let covariance = matrices
                .as_deref_mut()
                .map_or(&mut spare_matrix[..], |matrices| {
                    &mut matrices[k * size..][..size]
                });
            let mut row = Expansion {
                parameters,
                errors,
                covariance,
            };
            if !fill_row(first + k, &mut row) {
                row.errors.fill(f64::NAN);
                row.covariance.fill(f64::NAN);
                unsound.push(first + k);
            }
        }
        unsound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_curves_are_found_in_every_task() {
        let count = 2 * FITS_PER_SEARCH_TASK + 5;
        let mut columns = CurveColumns {
            status: vec![Status::Ftol; count],
            flags: vec![Flags::empty(); count],
            ..Default::default()
        };
        assert!(columns.unusual_fits().is_empty());
        let expected = [
            0,
            FITS_PER_SEARCH_TASK - 1,
            FITS_PER_SEARCH_TASK,
            FITS_PER_SEARCH_TASK + 7,
            2 * FITS_PER_SEARCH_TASK,
            count - 1,
        ];
        for (k, status) in expected
            .into_iter()
            .zip([Status::BadInput, Status::Stalled, Status::MaxRounds].repeat(2))
        {
            columns.status[k] = status;
        }
        columns.status[FITS_PER_SEARCH_TASK] = Status::Gtol;
        columns.flags[FITS_PER_SEARCH_TASK] = Flags::UNDETERMINED;
        assert_eq!(columns.unusual_fits(), expected);
    }
}
