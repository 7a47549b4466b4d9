//! The results of a run as columns.

mod row_view;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::flag::Flags;
use crate::solver::Status;
use crate::spectra::Spectra;
use crate::spectral::results::moments::VelocityPosterior;
use crate::spectral::results::row::{FitRow, Id};

pub use row_view::RowView;

/// Receives the rows of a run in the order of the input.
pub trait Sink {
    /// Appends the rows of one batch of spectra.
    ///
    /// # Errors
    /// Returns any error of the sink, such as that of a full disk. It ends the run.
    fn append(&mut self, spectra: &Spectra, rows: &[FitRow]) -> Result<()>;
}

/// The results of a run as columns of one value per spectrum, in the order of the input.
///
/// ```no_run
/// # let table = popfit::FitTable::default();
/// if let (Some(teff), Some(errors)) = (table.column("teff"), table.errors("teff")) {
///     for ((status, teff), error) in table.status().iter().zip(teff).zip(errors) {
///         println!("{status}: {teff:.0} ± {error:.0} K");
///     }
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FitTable {
    parameters: Vec<String>,
    units: Vec<(String, String)>,
    arms: Vec<String>,
    ids: Vec<Id>,
    files: Vec<Arc<str>>,
    file_rows: Vec<u64>,
    status: Vec<Status>,
    status_texts: Vec<String>,
    messages: Vec<String>,
    rounds: Vec<u32>,
    evaluations: Vec<u32>,
    chi2: Vec<f64>,
    dof: Vec<i64>,
    objective: Vec<f64>,
    /// A column for each parameter; so have the two fields that follow.
    values: Vec<Vec<f64>>,
    errors: Vec<Vec<f64>>,
    /// Empty if no row has released errors.
    released_errors: Vec<Vec<f64>>,
    at_bound: Vec<u32>,
    flags: Vec<Flags>,
    starts: Vec<Option<u32>>,
    continuum_terms: Vec<Vec<u32>>,
    unreached: Vec<Vec<u32>>,
    n_starts_agree: Vec<u32>,
    downweighted: Vec<Option<f64>>,
    posteriors: Vec<Option<VelocityPosterior>>,
    /// A column for each pair of parameters.
    correlations: Vec<Vec<f64>>,
}

impl FitTable {
    /// Returns a table without rows for these free parameters.
    pub fn new(parameters: Vec<String>) -> FitTable {
        let count = parameters.len();
        FitTable {
            values: vec![Vec::new(); count],
            errors: vec![Vec::new(); count],
            correlations: vec![Vec::new(); count * count.saturating_sub(1) / 2],
            parameters,
            ..FitTable::default()
        }
    }

    /// Returns a table of these rows.
    ///
    /// # Errors
    /// Returns the errors of [`append`](FitTable::append).
    pub fn from_rows(parameters: Vec<String>, rows: &[FitRow]) -> Result<FitTable> {
        let mut table = FitTable::new(parameters);
        table.append(rows)?;
        Ok(table)
    }

    /// Replaces name and unit of the labels whose unit is known. The usual units (K, dex, km/s) need not be given.
    #[must_use]
    pub fn with_units(mut self, units: Vec<(String, String)>) -> FitTable {
        self.units = units;
        self
    }

    /// Replaces the names of the model's arms. A single arm needs none.
    #[must_use]
    pub fn with_arms(mut self, arms: Vec<String>) -> FitTable {
        self.arms = arms;
        self
    }

    /// Appends rows of results, or returns an error if one has another number of parameters than the table.
    ///
    /// # Errors
    /// Returns [`Error::Usage`] for a row with another number of parameters, after the rows before it were appended.
    pub fn append(&mut self, rows: &[FitRow]) -> Result<()> {
        rows.iter().try_for_each(|row| self.push(row))
    }

    /// Appends one row of results, or returns an error if it has another number of parameters than the table.
    fn push(&mut self, row: &FitRow) -> Result<()> {
        let (count, found) = (self.parameters.len(), row.parameters.len());
        if [found, row.errors.len(), row.correlations.len()] != [count, count, self.correlations.len()] {
            let message =
                format!("a row of {found} parameters in a table of {count}: SpectralFitter::table makes one that fits");
            return Err(Error::Usage(message));
        }
        if !row.released_errors.is_empty() && self.released_errors.is_empty() {
            self.released_errors = vec![vec![f64::NAN; self.len()]; count];
        }
        extend(&mut self.values, &row.parameters);
        extend(&mut self.errors, &row.errors);
        extend(&mut self.released_errors, &row.released_errors);
        extend(&mut self.correlations, &row.correlations);
        self.ids.push(row.id.clone());
        self.files.push(row.file.clone());
        self.file_rows.push(row.row);
        self.status.push(row.status);
        self.status_texts.push(row.status_text.clone());
        self.messages.push(row.message.clone());
        self.rounds.push(row.rounds);
        self.evaluations.push(row.evaluations);
        self.chi2.push(row.chi2);
        self.dof.push(row.dof);
        self.objective.push(row.objective);
        self.at_bound.push(row.at_bound);
        self.flags.push(row.flags);
        self.starts.push(row.start);
        self.continuum_terms.push(row.continuum_terms.clone());
        self.unreached.push(row.unreached.clone());
        self.n_starts_agree.push(row.n_starts_agree);
        self.downweighted.push(row.downweighted);
        self.posteriors.push(row.posterior);
        Ok(())
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.status.len()
    }

    /// Returns whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.status.is_empty()
    }

    /// Returns the names of the free parameters.
    pub fn names(&self) -> &[String] {
        &self.parameters
    }

    /// Returns name and unit of each label whose unit is known. The usual units (K, dex, km/s) may be missing.
    pub fn units(&self) -> &[(String, String)] {
        &self.units
    }

    /// Returns the names of the model's arms. A single arm may have none.
    pub fn arms(&self) -> &[String] {
        &self.arms
    }

    /// Returns the values of a free parameter in its physical unit, or the column `chi2` or `objective`; `None` if
    /// there is none of this name. For standard errors see [`errors`](FitTable::errors).
    pub fn column(&self, name: &str) -> Option<&[f64]> {
        match name {
            "chi2" => Some(&self.chi2),
            "objective" => Some(&self.objective),
            _ => self.values.get(self.place(name)?).map(Vec::as_slice),
        }
    }

    /// Returns the standard errors of a free parameter, as [`FitRow::errors`] has them; `None` if there is none of this
    /// name.
    pub fn errors(&self, parameter: &str) -> Option<&[f64]> {
        self.errors.get(self.place(parameter)?).map(Vec::as_slice)
    }

    /// Returns the standard errors of a free parameter with all bounds released, if the run was asked for them.
    pub fn released_errors(&self, parameter: &str) -> Option<&[f64]> {
        self.released_errors.get(self.place(parameter)?).map(Vec::as_slice)
    }

    /// Returns the correlations of two free parameters, one per row; `None` if a name is unknown or both are the same.
    pub fn correlations(&self, first: &str, second: &str) -> Option<&[f64]> {
        let (a, b) = (self.place(first)?, self.place(second)?);
        let (a, b, count) = (a.min(b), a.max(b), self.parameters.len());
        let pair = (a < b).then(|| a * count - a * (a + 1) / 2 + b - a - 1)?;
        self.correlations.get(pair).map(Vec::as_slice)
    }

    /// Returns whether any row has a posterior of the velocity.
    #[cfg(feature = "files")]
    pub(crate) fn has_posteriors(&self) -> bool {
        self.posteriors.iter().any(Option::is_some)
    }

    /// Returns whether any row has a share of downweighted pixels.
    #[cfg(feature = "files")]
    pub(crate) fn has_downweighted(&self) -> bool {
        self.downweighted.iter().any(Option::is_some)
    }

    /// Returns whether any row has standard errors with all bounds released.
    #[cfg(feature = "files")]
    pub(crate) fn has_released_errors(&self) -> bool {
        !self.released_errors.is_empty()
    }

    /// Returns the index of the free parameter of this name.
    fn place(&self, parameter: &str) -> Option<usize> {
        self.parameters.iter().position(|name| name == parameter)
    }

    /// Returns the identifiers of the spectra.
    pub fn ids(&self) -> &[Id] {
        &self.ids
    }

    /// Returns the status with which each fit ended.
    pub fn status(&self) -> &[Status] {
        &self.status
    }

    /// Returns the codes of [`status`](FitTable::status), as tables write them.
    pub fn status_codes(&self) -> Vec<i32> {
        self.status.iter().map(|status| status.code()).collect()
    }

    /// Returns the name of each status, or the cause of a bad input.
    pub fn status_texts(&self) -> &[String] {
        &self.status_texts
    }

    /// Returns the messages about bad inputs and interrupted fits, as [`FitRow::message`] has them.
    pub fn messages(&self) -> &[String] {
        &self.messages
    }

    /// Returns the bits of the parameters that ended at a bound, as [`FitRow::at_bound`] has them.
    pub fn at_bound(&self) -> &[u32] {
        &self.at_bound
    }

    /// Returns the number of basins from which each minimum was found, as [`FitRow::n_starts_agree`] has it.
    pub fn n_starts_agree(&self) -> &[u32] {
        &self.n_starts_agree
    }

    /// Returns each row's posterior of the velocity; `None` without a scan, or where it gave none (a bad input, a
    /// failed or cancelled fit).
    pub fn posteriors(&self) -> &[Option<VelocityPosterior>] {
        &self.posteriors
    }

    /// Returns the flags of each fit.
    pub fn flags(&self) -> &[Flags] {
        &self.flags
    }

    /// Returns the degrees of freedom, as [`FitRow::dof`] has them.
    pub fn dof(&self) -> &[i64] {
        &self.dof
    }

    /// Returns the number of rounds of each winning start.
    pub fn rounds(&self) -> &[u32] {
        &self.rounds
    }

    /// Returns the number of linearisations of all starts of each fit.
    pub fn evaluations(&self) -> &[u32] {
        &self.evaluations
    }

    /// Returns the row of results of the spectrum with this index, as a view.
    ///
    /// # Panics
    /// If `index` is not below `len()`.
    pub fn row(&self, index: usize) -> RowView<'_> {
        assert!(index < self.len(), "row {index} of a table of {} rows", self.len());
        RowView { table: self, index }
    }

    /// Returns the rows one after another, as [`row`](FitTable::row) does.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = RowView<'_>> {
        (0..self.len()).map(|index| RowView { table: self, index })
    }

    /// Returns a copy of all rows. If some rows have released errors, those of the others are NaN.
    pub fn to_rows(&self) -> Vec<FitRow> {
        self.rows().map(RowView::to_row).collect()
    }
}

impl Sink for FitTable {
    fn append(&mut self, _: &Spectra, rows: &[FitRow]) -> Result<()> {
        FitTable::append(self, rows)
    }
}

/// Appends one value to each column: NaN where there are too few values.
fn extend(columns: &mut [Vec<f64>], values: &[f64]) {
    let values = values.iter().copied().chain(std::iter::repeat(f64::NAN));
    columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
}
