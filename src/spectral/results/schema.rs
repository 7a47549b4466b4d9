//! The columns of one table: those that `columns/mod.rs` declares, for the table's parameters, arms and options.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::spectral::results::columns::{
    DeclaredField, InvalidCell, Pattern, Presence, ROW_FIELDS, Store,
};
use crate::spectral::results::quantity;
use crate::spectral::results::row::{FitRow, Id};
use crate::spectral::results::values::{ColumnKind, FitValues};

/// Facts that decide the columns, known before the first fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Schema {
    /// Names of the free parameters.
    pub parameters: Vec<String>,
    /// True if the column `id` is text (int64 otherwise). Integer ids are then written as text.
    pub(crate) text_ids: bool,
    /// True if there are the columns of the velocity's posterior.
    pub(crate) posterior: bool,
    /// True if there is a column `NAME_err_released` for each parameter: its standard error with all bounds released.
    pub(crate) released_errors: bool,
    /// True if there is the column `downweighted`, because the model has a robust loss.
    pub(crate) downweighted: bool,
    /// True if there are the columns `jitter_ARM` and `jitter_err_ARM`, because the model fits the jitter.
    pub(crate) jitter: bool,
    /// True if there is the column `exposures`, because the model fits exposures together.
    pub(crate) exposures: bool,
    /// True if there are the columns of the exposures' velocities, because each exposure has its own.
    pub(crate) exposure_velocities: bool,
    /// True if there are the columns of clusters, because their spectra share labels.
    pub(crate) shared: bool,
    /// Name and unit of each label whose unit is known; the usual ones (K, dex, km/s) need not be given.
    pub units: Vec<(String, String)>,
    /// Names of the model's arms, for the columns `continuum_terms_ARM`; empty for one that stands alone.
    pub(crate) arms: Vec<String>,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct ResultColumn {
    pub name: String,
    pub kind: ColumnKind,
    /// Unit, empty without one. `km/s` has another spelling in FITS.
    pub unit: String,
    pub meaning: String,
    /// Index in [`ROW_FIELDS`].
    field: usize,
    /// Index among the columns of the field.
    index_in_field: usize,
}

/// Maximum number of free parameters of a table that is read.
const MAX_TABLE_PARAMETERS: usize = 32;
/// Placeholder of a parameter in the name of a column.
const NAME: &str = "NAME";

impl ResultColumn {
    /// Returns a column of floats, whose place among the fields is not set.
    fn of_floats(name: String, unit: &str, meaning: String) -> ResultColumn {
        ResultColumn {
            name,
            kind: ColumnKind::Float64,
            unit: unit.into(),
            meaning,
            field: 0,
            index_in_field: 0,
        }
    }
}

impl Schema {
    /// Makes the schema of a table of these free parameters without optional columns.
    pub fn new(parameters: Vec<String>) -> Schema {
        Schema {
            parameters,
            ..Schema::default()
        }
    }

    /// Returns the names of the table's columns, in the order in which they are written.
    ///
    /// # Errors
    /// [`Error::Model`] when two columns would have the same name.
    pub fn column_names(&self) -> Result<Vec<String>> {
        Ok(self
            .distinct_columns()?
            .into_iter()
            .map(|column| column.name)
            .collect())
    }

    /// Returns all columns in the order of the file; fails if two of them would have the same name.
    ///
    /// # Errors
    /// [`Error::Model`] if a parameter's name is already that of a column.
    pub(crate) fn distinct_columns(&self) -> Result<Vec<ResultColumn>> {
        let columns = self.columns();
        let mut names = HashSet::new();
        match columns.iter().find(|column| !names.insert(&column.name)) {
            Some(duplicate) => Err(Error::model(format!(
                "two columns of the result table would be called {:?}",
                duplicate.name
            ))),
            None => Ok(columns),
        }
    }

    /// Returns all columns in the order of the file.
    pub(crate) fn columns(&self) -> Vec<ResultColumn> {
        // 1. Find the fields that have columns in this table.
        let mut flags = self.clone();
        let mut fields: Vec<(usize, &DeclaredField)> = ROW_FIELDS.iter().enumerate().collect();
        fields.retain(|(_, field)| match field.presence {
            Presence::Always | Presence::Later => true,
            Presence::Optional(flag) => *flag(&mut flags),
        });
        // 2. List their columns. Adjacent fields of parameters are interleaved, parameter by parameter.
        let mut columns = Vec::new();
        let are_interleaved = |a: &DeclaredField, b: &DeclaredField| {
            a.has_column_per_parameter() && b.has_column_per_parameter()
        };
        for adjacent in fields.chunk_by(|(_, a), (_, b)| are_interleaved(a, b)) {
            let by_field: Vec<Vec<ResultColumn>> = adjacent
                .iter()
                .map(|(index, field)| self.columns_of_field(*index, field))
                .collect();
            let count = by_field.iter().map(Vec::len).max().unwrap_or(0);
            for k in 0..count {
                columns.extend(
                    by_field
                        .iter()
                        .filter_map(|columns| columns.get(k).cloned()),
                );
            }
        }
        columns
    }

    /// Returns the columns of one field.
    fn columns_of_field(&self, field: usize, declared: &DeclaredField) -> Vec<ResultColumn> {
        let mut columns: Vec<ResultColumn> = declared
            .patterns
            .iter()
            .flat_map(|pattern| self.expand_pattern(pattern))
            .collect();
        for (index, column) in columns.iter_mut().enumerate() {
            let is_text = self.text_ids && column.name == "id";
            column.field = field;
            column.index_in_field = index;
            column.kind = if is_text {
                ColumnKind::Text
            } else {
                declared.kind
            };
        }
        columns
    }

    /// Returns the columns that a pattern stands for, without their field and type.
    fn expand_pattern(&self, pattern: &Pattern) -> Vec<ResultColumn> {
        let Pattern {
            name,
            unit,
            meaning,
        } = *pattern;
        // 1. One column per parameter.
        if name.contains(NAME) {
            let mut columns = Vec::with_capacity(self.parameters.len());
            for parameter in &self.parameters {
                let usual_meaning = quantity::meaning(parameter).filter(|_| name == NAME);
                columns.push(ResultColumn::of_floats(
                    name.replace(NAME, parameter),
                    quantity::unit(&self.units, parameter),
                    usual_meaning.unwrap_or(meaning).replace(NAME, parameter),
                ));
            }
            return columns;
        }
        // 2. One column per arm. A single arm may have no name.
        if let Some(stem) = name.strip_suffix("_ARM") {
            let mut columns = Vec::with_capacity(self.arms.len());
            for arm in &self.arms {
                let name = if arm.is_empty() {
                    stem.into()
                } else {
                    format!("{stem}_{arm}")
                };
                columns.push(ResultColumn::of_floats(name, unit, meaning.into()));
            }
            return columns;
        }
        // 3. One column per pair of parameters.
        if let Some(stem) = name.strip_suffix("A_B") {
            let mut columns = Vec::new();
            for (a, b) in pairs(&self.parameters) {
                let meaning = meaning.replace("A and B", &format!("{a} and {b}"));
                columns.push(ResultColumn::of_floats(
                    format!("{stem}{a}_{b}"),
                    unit,
                    meaning,
                ));
            }
            return columns;
        }
        // 4. A single column.
        vec![ResultColumn::of_floats(name.into(), unit, meaning.into())]
    }

    /// Fails if a row has another number of parameters than the table, or a text id among integer ids. The error is a
    /// message.
    #[cfg(feature = "files")]
    pub(crate) fn check_row(&self, row: &FitRow) -> Result<(), String> {
        let count = self.parameters.len();
        let lengths = [
            row.parameters.len(),
            row.errors.len(),
            row.correlations.len(),
        ];
        if lengths != [count, count, count * count.saturating_sub(1) / 2] {
            return Err(format!(
                "id {}: a row of {} parameters in a table of {count}",
                row.id,
                row.parameters.len()
            ));
        }
        match &row.id {
            Id::Text(text) if !self.text_ids => {
                Err(format!("id {text:?} is text in a table of integer ids"))
            }
            _ => Ok(()),
        }
    }

    /// Infers the schema of a table from the names of its columns: parameters are pairs `X`, `X_err` between
    /// `objective` and `at_bound`. Unknown columns are ignored. `units` has name and unit of columns that have one.
    ///
    /// # Errors
    /// Returns a message if a column that every table has is missing, or if there are too many parameters.
    pub(crate) fn from_names(
        names: &[String],
        text_ids: bool,
        units: Vec<(String, String)>,
    ) -> Result<Schema, String> {
        // 1. Check that the columns of every table are there.
        let find = |name: &str| names.iter().position(|other| other == name);
        for field in ROW_FIELDS {
            let is_required = matches!(field.presence, Presence::Always);
            for Pattern { name, .. } in field.patterns.iter().filter(|_| is_required) {
                if !name.contains(NAME) && find(name).is_none() {
                    return Err(format!("not a result table of popfit: no column `{name}`"));
                }
            }
        }
        // 2. Find the parameters and the arms.
        let begin = find("objective").map_or(0, |index| index + 1);
        let end = find("at_bound").unwrap_or(0);
        if end > begin + 2 * MAX_TABLE_PARAMETERS {
            return Err(format!(
                "{} columns of parameters, more than {}",
                end - begin,
                2 * MAX_TABLE_PARAMETERS
            ));
        }
        let mut parameters = Vec::new();
        for pair in names.get(begin..end).unwrap_or_default().windows(2) {
            if pair[1].strip_suffix("_err") == Some(&pair[0]) {
                parameters.push(pair[0].clone());
            }
        }
        let arms = names
            .iter()
            .filter_map(|name| arm_of_column(name))
            .collect();
        let units = units
            .into_iter()
            .filter(|(column, _)| parameters.contains(column))
            .collect();
        let mut schema = Schema {
            parameters,
            text_ids,
            units,
            arms,
            ..Schema::default()
        };
        // 3. Find the optional columns: all of those with the same flag, or none.
        let optional_fields = || {
            let fields = ROW_FIELDS.iter().enumerate();
            fields.filter_map(|(index, field)| match field.presence {
                Presence::Optional(flag) => Some((index, field, flag)),
                Presence::Always | Presence::Later => None,
            })
        };
        for (_, _, flag) in optional_fields() {
            *flag(&mut schema) = true;
        }
        for (index, field, flag) in optional_fields() {
            let columns = schema.columns_of_field(index, field);
            *flag(&mut schema) &=
                !columns.is_empty() && columns.iter().all(|column| find(&column.name).is_some());
        }
        Ok(schema)
    }
}

impl DeclaredField {
    /// Returns whether the field has a column for each parameter.
    fn has_column_per_parameter(&self) -> bool {
        self.patterns
            .iter()
            .all(|pattern| pattern.name.contains(NAME))
            && !self.patterns.is_empty()
    }
}

/// Returns the arm to which a column of continuum terms belongs; its name may be empty.
fn arm_of_column(name: &str) -> Option<String> {
    match name.strip_prefix("continuum_terms")? {
        "" => Some(String::new()),
        suffix => suffix.strip_prefix('_').map(Into::into),
    }
}

/// Returns all pairs of names in the order of [`FitRow::correlations`](crate::FitRow::correlations): (0,1), (0,2), …
/// (1,2), ….
fn pairs(names: &[String]) -> impl Iterator<Item = (&String, &String)> {
    names
        .iter()
        .enumerate()
        .flat_map(|(a, first)| names[a + 1..].iter().map(move |second| (first, second)))
}

impl Store {
    /// Stores rows.
    pub fn from_rows<'r>(rows: impl IntoIterator<Item = &'r FitRow>) -> Store {
        let mut store = Store::default();
        rows.into_iter().for_each(|row| store.push(row));
        store
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.status.single().len()
    }

    /// Adds missing cells for those of these columns that are not stored yet, and for fields without a column.
    pub fn complete(&mut self, columns: &[ResultColumn]) {
        let rows = self.len();
        let fields = self.fields_mut();
        for column in columns {
            fields[column.field].add_missing_columns(column.index_in_field + 1, rows);
        }
        for (field, declared) in fields.into_iter().zip(ROW_FIELDS) {
            if declared.patterns.is_empty() {
                field.add_missing_columns(1, rows);
            }
        }
    }

    /// Stores columns of values; those that are `None` have missing cells. `first_row` is the number of the first row,
    /// for messages.
    ///
    /// # Errors
    /// Returns a message with the column if columns differ in length, and with the row, too, for a value that is not
    /// valid in its column.
    pub fn from_values(
        columns: &[ResultColumn],
        values: Vec<Option<FitValues>>,
        first_row: usize,
    ) -> Result<Store, String> {
        let rows = values.iter().flatten().next().map_or(0, FitValues::len);
        let mut store = Store::default();
        let fields = store.fields_mut();
        for (column, values) in columns.iter().zip(values) {
            let Some(values) = values else {
                continue;
            };
            let name = &column.name;
            if values.len() != rows {
                return Err(format!(
                    "column `{name}`: it has {} rows, and others have {rows}",
                    values.len()
                ));
            }
            fields[column.field]
                .set_values(column.index_in_field, values)
                .map_err(|InvalidCell { row, message }| {
                    format!("column `{name}`, row {}: {message}", first_row + row)
                })?;
        }
        store.complete(columns);
        Ok(store)
    }

    /// Returns the values of these columns. Columns of floats are moved, not copied.
    pub fn into_values(mut self, columns: &[ResultColumn]) -> Vec<FitValues> {
        let rows = self.len();
        let mut fields = self.fields_mut();
        columns
            .iter()
            .map(|column| {
                fields[column.field].take_values(column.index_in_field, column.kind, rows)
            })
            .collect()
    }

    /// Returns a copy of the values of a column; `None` if there is none.
    pub fn values(&self, column: &ResultColumn) -> Option<FitValues> {
        self.fields()[column.field].values(column.index_in_field, column.kind)
    }

    /// Returns the values of a column of floats; `None` for other types.
    pub fn floats(&self, column: &ResultColumn) -> Option<&[f64]> {
        self.fields()[column.field].floats(column.index_in_field)
    }

    /// Returns the schema of these rows, whose parameters and arms have these names. It has the optional columns of
    /// which some row has a cell.
    pub fn schema(&self, parameters: Vec<String>, arms: Vec<String>) -> Schema {
        let text_ids = self.id.single().iter().any(|id| matches!(id, Id::Text(_)));
        let mut schema = Schema {
            parameters,
            arms,
            text_ids,
            ..Schema::default()
        };
        for (field, declared) in self.fields().into_iter().zip(ROW_FIELDS) {
            if let Presence::Optional(flag) = declared.presence {
                *flag(&mut schema) |= !field.is_empty();
            }
        }
        schema
    }
}
