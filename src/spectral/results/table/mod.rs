//! The results of a run as columns.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::flag::Flags;
use crate::solver::Status;
use crate::spectra::Spectra;
use crate::spectral::results::columns::Store;
use crate::spectral::results::row::{FitRow, Id};
use crate::spectral::results::schema::{ResultColumn, Schema};
use crate::spectral::results::values::{ColumnKind, FitColumn, FitValues};

/// Receives the rows of a run in the order of the input.
pub trait Sink {
    /// Appends the rows of one batch of spectra.
    ///
    /// # Errors
    /// Returns any error of the sink, such as that of a full disk. It ends the run.
    fn append(&mut self, spectra: &Spectra, rows: &[FitRow]) -> Result<()>;

    /// Appends the rows of one batch, and learns which device made them, by the name in
    /// [`Summary::by_rows`](crate::Summary::by_rows). A run calls this function, which only
    /// [`append`](Sink::append)s unless the sink needs the name.
    ///
    /// # Errors
    /// The errors of [`append`](Sink::append).
    fn append_made_by(&mut self, spectra: &Spectra, rows: &[FitRow], _device: &str) -> Result<()> {
        self.append(spectra, rows)
    }
}

/// The results of a run as columns of one value per spectrum, in the order of the input.
///
/// ```no_run
/// # let table = popfit::FitTable::default();
/// if let (Some(teff), Some(errors)) = (table.floats("teff"), table.errors("teff")) {
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
    /// True if the ids of a table without rows are texts.
    has_text_ids: bool,
    pub(super) store: Store,
}

impl FitTable {
    /// Returns a table without rows for these free parameters.
    pub fn new(parameters: Vec<String>) -> FitTable {
        FitTable {
            parameters,
            ..FitTable::default()
        }
        .complete_columns()
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
    #[doc(hidden)]
    pub fn with_units(mut self, units: Vec<(String, String)>) -> FitTable {
        self.units = units;
        self
    }

    /// Replaces the names of the model's arms. A single arm needs none.
    #[must_use]
    #[doc(hidden)]
    pub fn with_arms(mut self, arms: Vec<String>) -> FitTable {
        self.arms = arms;
        self.complete_columns()
    }

    /// Adds the columns of a schema that the table lacks.
    pub(crate) fn with_columns_of(mut self, schema: &Schema) -> FitTable {
        self.store.complete(&schema.columns());
        self
    }

    /// Adds the columns that every table has to one that lacks some of them.
    fn complete_columns(mut self) -> FitTable {
        self.store.complete(&self.schema().columns());
        self
    }

    /// Returns the facts that decide which columns the table has.
    pub(crate) fn schema(&self) -> Schema {
        let mut schema = self
            .store
            .schema(self.parameters.clone(), self.arms.clone());
        schema.units.clone_from(&self.units);
        schema.text_ids |= self.is_empty() && self.has_text_ids;
        schema
    }

    /// Returns every column that a written table has, in the order of the file. Columns of floats are moved, and not
    /// copied. [`messages`](FitTable::messages) are no column.
    pub fn into_columns(self) -> Vec<FitColumn> {
        let columns = self.schema().columns();
        let values = self.store.into_values(&columns);
        columns
            .into_iter()
            .zip(values)
            .map(|(column, values)| {
                FitColumn::new(column.name, column.unit, column.meaning, values)
            })
            .collect()
    }

    /// Returns the table with these columns: the inverse of [`into_columns`](FitTable::into_columns). Their names give
    /// the parameters, which stand between `objective` and `at_bound`, and the arms, in their order. Units and meanings
    /// may be empty.
    ///
    /// # Errors
    /// Returns [`Error::Usage`] with the name of a column that is missing, unknown or given twice, that has
    /// another type, length or unit, or a value that does not belong there, such as an unknown status.
    pub fn from_columns(columns: Vec<FitColumn>) -> Result<FitTable> {
        // 1. Find out which columns the table should have.
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let has_text_ids = columns
            .iter()
            .any(|column| column.name == "id" && column.values.kind() == ColumnKind::Text);
        let units = columns
            .iter()
            .filter(|column| !column.unit.is_empty())
            .map(|column| (column.name.clone(), column.unit.clone()))
            .collect();
        let schema = Schema::from_names(&names, has_text_ids, units).map_err(Error::Usage)?;
        let expected = schema.distinct_columns()?;
        // 2. Check the given columns.
        let mut values_by_name = HashMap::new();
        for column in columns {
            let name = column.name;
            let values = check_column(&name, &column.unit, column.values, &expected)
                .map_err(|message| Error::Usage(format!("column `{name}`: {message}")))?;
            if values_by_name.insert(name.clone(), values).is_some() {
                return Err(Error::Usage(format!("column `{name}`: it is given twice")));
            }
        }
        // 3. Put them in the order of the table.
        let mut values = Vec::with_capacity(expected.len());
        for column in &expected {
            let Some(given) = values_by_name.remove(&column.name) else {
                return Err(Error::Usage(format!(
                    "column `{}`: it is missing",
                    column.name
                )));
            };
            values.push(Some(given));
        }
        // 4. Store them.
        let store = Store::from_values(&expected, values, 0).map_err(Error::Usage)?;
        Ok(FitTable {
            parameters: schema.parameters,
            units: schema.units,
            arms: schema.arms,
            has_text_ids: has_text_ids && store.len() == 0,
            store,
        })
    }

    /// Appends rows of results, or returns an error if one has another number of parameters than the table.
    ///
    /// # Errors
    /// Returns [`Error::Usage`] for a row with another number of parameters, after the rows before it were appended.
    pub fn append(&mut self, rows: &[FitRow]) -> Result<()> {
        let appended = rows.iter().try_for_each(|row| self.push(row));
        // A row may have one of several columns that are there together.
        self.store.complete(&self.schema().columns());
        appended
    }

    /// Appends one row of results, or returns an error if it has another number of parameters than the table.
    fn push(&mut self, row: &FitRow) -> Result<()> {
        let count = self.parameters.len();
        let row_count = row.parameters.len();
        if [row_count, row.errors.len(), row.correlations.len()]
            != [count, count, count * count.saturating_sub(1) / 2]
        {
            let message = format!(
                "a row of {row_count} parameters in a table of {count}: SpectralFitter::table makes one that fits"
            );
            return Err(Error::Usage(message));
        }
        self.store.push(row);
        Ok(())
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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

    /// Returns a copy of the column of this name, which a written table has, too; `None` if there is none. Columns of
    /// floats are lent by [`floats`](FitTable::floats).
    pub fn column(&self, name: &str) -> Option<FitValues> {
        match self.floats(name) {
            Some(floats) => Some(FitValues::Float64(floats.to_vec())),
            None => self.store.values(&self.find_column(name)?),
        }
    }

    /// Returns the values of a free parameter in its physical unit, or of any other column of floats, such as `chi2`,
    /// `objective` or `teff_err`; `None` if there is none of this name.
    pub fn floats(&self, column: &str) -> Option<&[f64]> {
        match self.parameter_index(column) {
            Some(index) => self.store.parameters.0.get(index).map(Vec::as_slice),
            None => self.store.floats(&self.find_column(column)?),
        }
    }

    /// Returns the standard errors of a free parameter, as [`FitRow::errors`] has them; `None` if there is none of this
    /// name.
    pub fn errors(&self, parameter: &str) -> Option<&[f64]> {
        self.store
            .errors
            .0
            .get(self.parameter_index(parameter)?)
            .map(Vec::as_slice)
    }

    /// Returns the standard errors of a free parameter with all bounds released, if the run was asked for them.
    pub fn released_errors(&self, parameter: &str) -> Option<&[f64]> {
        self.store
            .released_errors
            .0
            .get(self.parameter_index(parameter)?)
            .map(Vec::as_slice)
    }

    /// Returns the correlations of two free parameters, one per row; `None` if a name is unknown or both are the same.
    pub fn correlations(&self, first: &str, second: &str) -> Option<&[f64]> {
        let first = self.parameter_index(first)?;
        let second = self.parameter_index(second)?;
        if first == second {
            return None;
        }
        let low = first.min(second);
        let high = first.max(second);
        // Pairs are ordered (0,1), (0,2), … (1,2), ….
        let pairs_before = low * self.parameters.len() - low * (low + 1) / 2;
        let pair = pairs_before + high - low - 1;
        self.store.correlations.0.get(pair).map(Vec::as_slice)
    }

    /// Returns the column of this name.
    fn find_column(&self, name: &str) -> Option<ResultColumn> {
        let mut columns = self.schema().columns().into_iter();
        columns.find(|column| column.name == name)
    }

    /// Returns the index of the free parameter of this name.
    fn parameter_index(&self, parameter: &str) -> Option<usize> {
        self.parameters.iter().position(|name| name == parameter)
    }

    /// Returns the identifiers of the spectra.
    pub fn ids(&self) -> &[Id] {
        self.store.id.single()
    }

    /// Returns the status with which each fit ended.
    pub fn status(&self) -> &[Status] {
        self.store.status.single()
    }

    /// Returns the messages about bad inputs and interrupted fits, as [`FitRow::message`] has them.
    pub fn messages(&self) -> &[String] {
        self.store.message.single()
    }

    /// Returns the bits of the parameters that ended at a bound, as [`FitRow::at_bound`] has them.
    pub fn at_bound(&self) -> &[u32] {
        self.store.at_bound.single()
    }

    /// Returns the number of basins from which each minimum was found, as [`FitRow::n_starts_agree`] has it.
    pub fn n_starts_agree(&self) -> &[u32] {
        self.store.n_starts_agree.single()
    }

    /// Returns the flags of each fit.
    pub fn flags(&self) -> &[Flags] {
        self.store.flags.single()
    }

    /// Returns the degrees of freedom, as [`FitRow::dof`] has them.
    pub fn dof(&self) -> &[i64] {
        self.store.dof.single()
    }

    /// Returns the number of rounds of each winning start.
    pub fn rounds(&self) -> &[u32] {
        self.store.rounds.single()
    }

    /// Returns the number of linearisations of all starts of each fit.
    pub fn evaluations(&self) -> &[u32] {
        self.store.evaluations.single()
    }

    /// Returns a copy of the row of the spectrum with this index. If other rows have released errors and this one has
    /// none, they are NaN.
    ///
    /// # Panics
    /// If `index` is not below `len()`.
    pub fn row(&self, index: usize) -> FitRow {
        assert!(
            index < self.len(),
            "row {index} of a table of {} rows",
            self.len()
        );
        self.store.row(index)
    }

    /// Returns copies of all rows, each as [`row`](FitTable::row) does.
    pub fn to_rows(&self) -> Vec<FitRow> {
        (0..self.len()).map(|index| self.store.row(index)).collect()
    }
}

/// Checks that a column belongs to the expected ones, and has their type and unit, and returns its values. No texts at
/// all are no lists at all, because an empty list of Python has no type. The error is a message.
fn check_column(
    name: &str,
    unit: &str,
    values: FitValues,
    expected: &[ResultColumn],
) -> Result<FitValues, String> {
    let Some(column) = expected.iter().find(|column| column.name == name) else {
        return Err("it is none of a table of results; a parameter X has X_err behind it".into());
    };
    let values = match values {
        FitValues::Text(texts) if texts.is_empty() && column.kind == ColumnKind::FloatLists => {
            FitValues::FloatLists(Vec::new())
        }
        values => values,
    };
    let kind = values.kind().name();
    let expected_kind = column.kind.name();
    if kind != expected_kind {
        return Err(format!("it is {kind}, and has to be {expected_kind}"));
    }
    if !unit.is_empty() && unit != column.unit {
        return Err(format!(
            "its unit is {unit:?}, and has to be {:?}",
            column.unit
        ));
    }
    Ok(values)
}

impl Sink for FitTable {
    fn append(&mut self, _: &Spectra, rows: &[FitRow]) -> Result<()> {
        FitTable::append(self, rows)
    }
}
