//! A row of a table of results, without a copy.

use std::fmt;

use serde::{Serialize, Serializer};

use super::FitTable;
use crate::spectral::results::row::FitRow;

/// One row of a [`FitTable`]. It borrows the table and copies nothing; [`to_row`](RowView::to_row) makes a copy that
/// stands alone. Comparison, serialisation and `Debug` use that copy. The accessors have the names of the fields of
/// [`FitRow`].
///
/// ```no_run
/// # let table = popfit::FitTable::default();
/// for row in table.rows().filter(|row| !row.status().is_success()) {
///     println!("{}: {} {}", row.id(), row.status_text(), row.message());
/// }
/// ```
#[derive(Clone, Copy)]
pub struct RowView<'a> {
    pub(in crate::spectral::results) table: &'a FitTable,
    pub(in crate::spectral::results) index: usize,
}

impl RowView<'_> {
    /// Returns the value of a free parameter in its physical unit; `None` if there is none of this name.
    pub fn value(&self, parameter: &str) -> Option<f64> {
        let index = self.table.parameter_index(parameter)?;
        Some(self.table.store.parameters.0[index][self.index])
    }

    /// Returns the standard error of a free parameter; `None` if there is none of this name.
    pub fn error(&self, parameter: &str) -> Option<f64> {
        self.table
            .errors(parameter)
            .map(|column| column[self.index])
    }

    /// Returns the standard error of a free parameter with all bounds released; `None` if there is none of this name,
    /// or if no row of the table has one.
    pub fn released_error(&self, parameter: &str) -> Option<f64> {
        self.table
            .released_errors(parameter)
            .map(|column| column[self.index])
    }

    /// Returns a copy of the row that stands alone. If other rows have released errors and this one has none, they are
    /// NaN.
    pub fn to_row(self) -> FitRow {
        self.table.store.row(self.index)
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

impl fmt::Debug for RowView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_row().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flag::Flags;
    use crate::solver::Status;
    use crate::spectral::results::exposures::ExposureVelocities;

    /// Returns a row each field of which differs from those of the other rows.
    fn distinct_row(k: u32) -> FitRow {
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
            exposures: Some(u64::from(k) + 1),
            exposure_velocities: Some(ExposureVelocities {
                velocities: vec![x; k as usize + 1],
                errors: vec![x + 1.0; k as usize + 1],
            }),
            p_constant_velocity: Some(x + 7.0),
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
        let rows: Vec<FitRow> = (0..3).map(distinct_row).collect();
        let table = FitTable::from_rows(vec!["velocity".into(), "teff".into()], &rows).unwrap();
        assert_eq!(table.to_rows(), rows);
        let view = table.row(2);
        assert_eq!(view.to_row(), rows[2]);
        assert!(view == table.row(2) && view != table.row(1));
        assert_eq!(
            serde_json::to_string(&view).unwrap(),
            serde_json::to_string(&rows[2]).unwrap()
        );
        assert_eq!(
            (view.value("teff"), view.error("teff"), view.value("logg")),
            (Some(3.0), Some(5.0), None)
        );
        assert_eq!(
            (view.exposures(), view.exposure_velocities()),
            (rows[2].exposures, rows[2].exposure_velocities.clone())
        );
        assert!(
            std::ptr::eq(view.message(), table.messages()[2].as_str())
                && std::ptr::eq(view.id(), &table.ids()[2])
        );
        // The strings live as long as the table, not only as long as the view.
        let texts: Vec<&str> = table.rows().map(|row| row.status_text()).collect();
        assert_eq!(texts, ["text 0", "text 1", "text 2"]);
    }

    #[test]
    fn rows_without_released_errors_beside_others_have_nan() {
        let rows = [
            FitRow {
                released_errors: Vec::new(),
                ..distinct_row(0)
            },
            distinct_row(1),
        ];
        let table = FitTable::from_rows(vec!["velocity".into(), "teff".into()], &rows).unwrap();
        assert!(table.row(0).released_error("teff").unwrap().is_nan());
        assert_eq!(
            (
                table.row(1).released_error("teff"),
                table.row(1).released_error("logg")
            ),
            (Some(6.0), None)
        );
    }

    #[test]
    #[should_panic(expected = "row 3 of a table of 3 rows")]
    fn a_row_beyond_the_table_panics() {
        let rows: Vec<FitRow> = (0..3).map(distinct_row).collect();
        FitTable::from_rows(vec!["velocity".into(), "teff".into()], &rows)
            .unwrap()
            .row(3);
    }
}
