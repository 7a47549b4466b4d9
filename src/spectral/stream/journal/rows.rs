//! The rows of a batch as a record of the journal holds them: as columns with their names, so that a journal of a
//! version with fewer columns can be read.

use serde::{Deserialize, Serialize};

use super::Hash;
use crate::solver::Status;
use crate::spectral::results::columns::Store;
use crate::spectral::results::row::FitRow;
use crate::spectral::results::schema::Schema;
use crate::spectral::results::values::{ColumnKind, FitValues};

/// The rows of one batch.
#[derive(Debug, Serialize, Deserialize)]
pub struct BatchRecord {
    /// Index of the batch in the input.
    pub number: usize,
    /// Hash of the spectra.
    pub spectra: Hash,
    /// Rows of the spectra.
    pub rows: KeptRows,
    /// Name of the device that made the rows.
    pub device: String,
}

/// The rows of a batch, without their files.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptRows {
    /// True for each spectrum that has a row, because its fit was not interrupted.
    is_finished: Vec<bool>,
    /// Messages of the finished rows. The columns have values of the finished rows, too.
    messages: Vec<String>,
    /// Names and values of the columns. The index of a parameter or an arm takes the place of its name.
    columns: Vec<(String, FitValues)>,
}

impl KeptRows {
    /// Keeps the rows of a batch, except those of interrupted fits.
    pub fn new(rows: &[FitRow]) -> KeptRows {
        let is_finished: Vec<bool> = rows
            .iter()
            .map(|row| row.status != Status::Interrupted)
            .collect();
        let finished: Vec<FitRow> = rows
            .iter()
            .filter(|row| row.status != Status::Interrupted)
            .map(|row| FitRow {
                file: "".into(),
                ..row.clone()
            })
            .collect();
        let store = Store::from_rows(&finished);
        let parameters = index_names(store.parameters.0.len());
        let arms = index_names(store.continuum_terms.0.len());
        let columns = store.schema(parameters, arms).columns();
        let messages = store.message.single().to_vec();
        let values = store.into_values(&columns);
        let columns = columns
            .into_iter()
            .zip(values)
            .map(|(column, values)| (column.name, values))
            .collect();
        KeptRows {
            is_finished,
            messages,
            columns,
        }
    }

    /// Returns the number of spectra.
    pub fn len(&self) -> usize {
        self.is_finished.len()
    }

    /// Returns the number of spectra that have a row.
    pub fn count_finished(&self) -> usize {
        self.is_finished
            .iter()
            .filter(|finished| **finished)
            .count()
    }

    /// Returns the row of each spectrum; `None` if its fit was interrupted.
    ///
    /// # Errors
    /// Returns a message if a column is unknown or damaged.
    pub fn into_rows(self) -> Result<Vec<Option<FitRow>>, String> {
        // 1. Find the columns.
        let text_ids = self
            .columns
            .iter()
            .any(|(name, values)| name == "id" && values.kind() == ColumnKind::Text);
        let names: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let columns = Schema::from_names(&names, text_ids, Vec::new())?.columns();
        for name in &names {
            if columns.iter().all(|column| column.name != *name) {
                return Err(format!(
                    "this version of popfit does not know its column `{name}`"
                ));
            }
        }
        // 2. Store their values.
        let finished = self.count_finished();
        let mut kept_columns = self.columns;
        let mut values = Vec::with_capacity(columns.len());
        for column in &columns {
            let kept = kept_columns
                .iter_mut()
                .find(|(name, _)| *name == column.name);
            values.push(
                kept.map(|(_, values)| std::mem::replace(values, FitValues::Text(Vec::new()))),
            );
        }
        let store = Store::from_values(&columns, values, 0)?;
        if self.messages.len() != store.len() || finished != store.len() {
            return Err("a batch is damaged: its columns differ in length".into());
        }
        // 3. Return the rows of the finished spectra at their places.
        let mut rows = self.messages.into_iter().enumerate();
        Ok(self
            .is_finished
            .into_iter()
            .map(|is_finished| {
                let (index, message) = is_finished.then(|| rows.next()).flatten()?;
                Some(FitRow {
                    message,
                    ..store.row(index)
                })
            })
            .collect())
    }
}

/// Returns names for `count` parameters or arms: their indices.
fn index_names(count: usize) -> Vec<String> {
    (0..count).map(|index| index.to_string()).collect()
}
#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::spectral::results::exposures::ExposureVelocities;

    /// Returns a row of two parameters and one arm.
    fn row() -> FitRow {
        FitRow {
            status: Status::Ftol,
            continuum_terms: vec![3],
            unreached: vec![4],
            exposures: Some(2),
            exposure_velocities: Some(ExposureVelocities {
                velocities: vec![5.0, 6.0],
                errors: vec![0.5, 0.25],
            }),
            shared_members: Some(1),
            ..FitRow::new("a", 2)
        }
    }

    #[test]
    fn missing_columns_are_filled_and_unknown_ones_named() {
        let rows_after = |change: fn(&mut KeptRows)| {
            let mut kept = KeptRows::new(&[FitRow::new("b", 2), row(), row()]);
            change(&mut kept);
            kept.into_rows()
        };
        let rows = rows_after(|_| ()).unwrap();
        let [None, Some(first), Some(second)] = rows.as_slice() else {
            panic!("{rows:?}")
        };
        assert_eq!(
            (&first.id, &first.continuum_terms, &second.unreached),
            (&row().id, &vec![3], &vec![4])
        );
        assert_eq!(
            (first.exposures, &first.exposure_velocities),
            (Some(2), &row().exposure_velocities)
        );
        assert_eq!((first.shared_members, first.shared_p), (Some(1), None));
        let rows =
            rows_after(|kept| kept.columns.retain(|(name, _)| name != "unreached_0")).unwrap();
        assert_eq!(rows[1].as_ref().unwrap().unreached, [0]);
        let message = rows_after(|kept| {
            kept.columns
                .push(("color".into(), FitValues::Float64(vec![0.0; 2])))
        })
        .unwrap_err();
        assert!(
            message.contains("does not know its column `color`"),
            "{message}"
        );
        for damage in [
            |kept: &mut KeptRows| kept.messages.truncate(1),
            |kept: &mut KeptRows| kept.is_finished.truncate(1),
            |kept: &mut KeptRows| kept.columns[3].1 = FitValues::Int32(vec![1]),
        ] {
            assert!(rows_after(damage).is_err());
        }
    }
}
