//! A row of a table of results, without a copy.

use std::fmt;

use serde::{Serialize, Serializer};

use super::FitTable;
use crate::flag::Flags;
use crate::solver::Status;
use crate::spectral::results::moments::VelocityPosterior;
use crate::spectral::results::row::{FitRow, Id};

/// One row of a [`FitTable`]. It borrows the table and copies nothing; [`to_row`](RowView::to_row) makes a copy that
/// stands alone, and is what is compared, serialised and shown by `Debug`. What the values mean is said at the fields
/// of [`FitRow`] that have their names.
///
/// ```no_run
/// # let table = popfit::FitTable::default();
/// for row in table.rows().filter(|row| !row.status().is_success()) {
///     println!("{}: {} {}", row.id(), row.status_text(), row.message());
/// }
/// ```
#[derive(Clone, Copy)]
pub struct RowView<'a> {
    pub(super) table: &'a FitTable,
    pub(super) index: usize,
}

impl<'a> RowView<'a> {
    /// Returns the identifier of the spectrum.
    pub fn id(&self) -> &'a Id {
        &self.table.ids[self.index]
    }

    /// Returns the file of the spectrum.
    pub fn file(&self) -> &'a str {
        &self.table.files[self.index]
    }

    /// Returns the spectrum's row in its file, from 0.
    pub fn file_row(&self) -> u64 {
        self.table.file_rows[self.index]
    }

    /// Returns the status with which the fit ended.
    pub fn status(&self) -> Status {
        self.table.status[self.index]
    }

    /// Returns the name of the status, or the cause of a bad input.
    pub fn status_text(&self) -> &'a str {
        &self.table.status_texts[self.index]
    }

    /// Returns the details of a bad input or of an interrupted fit.
    pub fn message(&self) -> &'a str {
        &self.table.messages[self.index]
    }

    /// Returns the number of rounds of the winning start.
    pub fn rounds(&self) -> u32 {
        self.table.rounds[self.index]
    }

    /// Returns the number of linearisations of all starts.
    pub fn evaluations(&self) -> u32 {
        self.table.evaluations[self.index]
    }

    /// Returns χ².
    pub fn chi2(&self) -> f64 {
        self.table.chi2[self.index]
    }

    /// Returns the degrees of freedom.
    pub fn dof(&self) -> i64 {
        self.table.dof[self.index]
    }

    /// Returns the objective: χ² plus priors, penalties and what marginalising adds.
    pub fn objective(&self) -> f64 {
        self.table.objective[self.index]
    }

    /// Returns the value of a free parameter in its physical unit; `None` if there is none of this name.
    pub fn value(&self, parameter: &str) -> Option<f64> {
        let place = self.table.place(parameter)?;
        Some(self.table.values[place][self.index])
    }

    /// Returns the standard error of a free parameter; `None` if there is none of this name.
    pub fn error(&self, parameter: &str) -> Option<f64> {
        self.table.errors(parameter).map(|column| column[self.index])
    }

    /// Returns the standard error of a free parameter with all bounds released; `None` if there is none of this name,
    /// or if no row of the table has one.
    pub fn released_error(&self, parameter: &str) -> Option<f64> {
        self.table.released_errors(parameter).map(|column| column[self.index])
    }

    /// Returns the values of the free parameters, in the order of [`FitTable::names`].
    pub fn parameters(&self) -> impl ExactSizeIterator<Item = f64> + use<'a> {
        across(&self.table.values, self.index)
    }

    /// Returns the standard errors of the free parameters, in the order of [`FitTable::names`].
    pub fn errors(&self) -> impl ExactSizeIterator<Item = f64> + use<'a> {
        across(&self.table.errors, self.index)
    }

    /// Returns the standard errors with all bounds released: NaN if this row has none, and no value at all if no row of
    /// the table has one.
    pub fn released_errors(&self) -> impl ExactSizeIterator<Item = f64> + use<'a> {
        across(&self.table.released_errors, self.index)
    }

    /// Returns the correlation coefficients of the pairs of parameters, in the order of [`FitRow::correlations`].
    pub fn correlations(&self) -> impl ExactSizeIterator<Item = f64> + use<'a> {
        across(&self.table.correlations, self.index)
    }

    /// Returns the bits of the parameters that ended at a bound.
    pub fn at_bound(&self) -> u32 {
        self.table.at_bound[self.index]
    }

    /// Returns the flags of the fit.
    pub fn flags(&self) -> Flags {
        self.table.flags[self.index]
    }

    /// Returns the index of the winning start, from 0; `None` without a winner.
    pub fn start(&self) -> Option<u32> {
        self.table.starts[self.index]
    }

    /// Returns the number of continuum terms that the data of each arm determine.
    pub fn continuum_terms(&self) -> &'a [u32] {
        &self.table.continuum_terms[self.index]
    }

    /// Returns the number of good pixels of each arm that are left out because the template does not cover them.
    pub fn unreached(&self) -> &'a [u32] {
        &self.table.unreached[self.index]
    }

    /// Returns the number of basins of the first guess from which the minimum was found.
    pub fn n_starts_agree(&self) -> u32 {
        self.table.n_starts_agree[self.index]
    }

    /// Returns the share of pixels to which the model's robust loss gives little weight; `None` without a loss.
    pub fn downweighted(&self) -> Option<f64> {
        self.table.downweighted[self.index]
    }

    /// Returns the posterior of the velocity; `None` without a scan, or where it gave none.
    pub fn posterior(&self) -> Option<VelocityPosterior> {
        self.table.posteriors[self.index]
    }

    /// Returns a copy of the row that stands alone. If other rows have released errors and this one has none, they are
    /// NaN.
    pub fn to_row(self) -> FitRow {
        FitRow {
            id: self.id().clone(),
            file: self.table.files[self.index].clone(),
            row: self.file_row(),
            status: self.status(),
            status_text: self.status_text().into(),
            message: self.message().into(),
            rounds: self.rounds(),
            evaluations: self.evaluations(),
            chi2: self.chi2(),
            dof: self.dof(),
            objective: self.objective(),
            parameters: self.parameters().collect(),
            errors: self.errors().collect(),
            released_errors: self.released_errors().collect(),
            downweighted: self.downweighted(),
            at_bound: self.at_bound(),
            flags: self.flags(),
            start: self.start(),
            continuum_terms: self.continuum_terms().into(),
            unreached: self.unreached().into(),
            n_starts_agree: self.n_starts_agree(),
            posterior: self.posterior(),
            correlations: self.correlations().collect(),
        }
    }
}

impl PartialEq for RowView<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.to_row() == other.to_row()
    }
}

impl Serialize for RowView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_row().serialize(serializer)
    }
}

impl From<RowView<'_>> for FitRow {
    fn from(row: RowView<'_>) -> FitRow {
        row.to_row()
    }
}

impl fmt::Debug for RowView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_row().fmt(f)
    }
}

/// Returns the value of each column in one row.
fn across(columns: &[Vec<f64>], index: usize) -> impl ExactSizeIterator<Item = f64> {
    columns.iter().map(move |column| column[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row whose every field has another value than those of the other rows.
    fn row(k: u32) -> FitRow {
        let x = f64::from(k);
        FitRow {
            file: format!("{k}.npz").into(),
            row: u64::from(k) + 7,
            status: [Status::Ftol, Status::Xtol, Status::Stalled][k as usize],
            status_text: format!("text {k}"),
            message: format!("message {k}"),
            rounds: k + 1,
            evaluations: k + 2,
            chi2: x + 0.25,
            dof: i64::from(k) - 3,
            objective: x + 0.5,
            parameters: vec![x, x + 1.0],
            errors: vec![x + 2.0, x + 3.0],
            released_errors: vec![x + 4.0, x + 5.0],
            downweighted: Some(x + 6.0),
            at_bound: k + 3,
            flags: [Flags::AT_BOUND, Flags::LOW_SN, Flags::empty()][k as usize],
            start: Some(k),
            continuum_terms: vec![k, k + 9],
            unreached: vec![k + 1, 7 * k],
            n_starts_agree: k + 4,
            correlations: vec![-x],
            ..FitRow::new(format!("id {k}"), 2)
        }
    }

    #[test]
    fn a_view_shows_its_row_and_copies_nothing() {
        let rows: Vec<FitRow> = (0..3).map(row).collect();
        let table = FitTable::from_rows(vec!["velocity".into(), "teff".into()], &rows).unwrap();
        assert_eq!(table.to_rows(), rows);
        let view = table.row(2);
        assert_eq!(view.to_row(), rows[2]);
        assert!(view == table.row(2) && view != table.row(1) && FitRow::from(view) == rows[2]);
        assert_eq!(serde_json::to_string(&view).unwrap(), serde_json::to_string(&rows[2]).unwrap());
        assert_eq!((view.value("teff"), view.error("teff"), view.value("logg")), (Some(3.0), Some(5.0), None));
        assert!(std::ptr::eq(view.message(), table.messages()[2].as_str()) && std::ptr::eq(view.id(), &table.ids()[2]));
        // its strings live as long as the table, not only as long as the view
        let texts: Vec<&str> = table.rows().map(|row| row.status_text()).collect();
        assert_eq!(texts, ["text 0", "text 1", "text 2"]);
    }

    #[test]
    fn rows_without_released_errors_beside_others_have_nan() {
        let rows = [FitRow { released_errors: Vec::new(), ..row(0) }, row(1)];
        let table = FitTable::from_rows(vec!["velocity".into(), "teff".into()], &rows).unwrap();
        assert!(table.row(0).released_error("teff").unwrap().is_nan());
        assert_eq!((table.row(1).released_error("teff"), table.row(1).released_error("logg")), (Some(6.0), None));
    }

    #[test]
    #[should_panic(expected = "row 3 of a table of 3 rows")]
    fn a_row_beyond_the_table_panics() {
        let rows: Vec<FitRow> = (0..3).map(row).collect();
        FitTable::from_rows(vec!["velocity".into(), "teff".into()], &rows).unwrap().row(3);
    }
}
