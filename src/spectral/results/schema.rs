//! The columns of one table: what is declared in `columns.rs`, for its parameters, arms and options.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::setters::setters;
use crate::spectral::results::columns::{BadCell, Declared, FIELDS, Pattern, Presence, Store};
use crate::spectral::results::quantity;
use crate::spectral::results::row::{FitRow, Id};
use crate::spectral::results::values::{FitValues, Kind};

/// Facts that decide the columns, known before the first fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Schema {
    /// Names of the free parameters.
    pub parameters: Vec<String>,
    /// True if the column `id` is text (int64 otherwise). Integer ids are then written as text.
    pub text_ids: bool,
    /// True if there are the columns of the velocity's posterior.
    pub posterior: bool,
    /// True if there is a column `NAME_err_released` for each parameter: its standard error with all bounds released.
    pub released_errors: bool,
    /// True if there is the column `downweighted`, because the model has a robust loss.
    pub downweighted: bool,
    /// Name and unit of each label whose unit is known; the usual ones (K, dex, km/s) need not be given.
    pub units: Vec<(String, String)>,
    /// Names of the model's arms, for the columns `continuum_terms_ARM`; empty for one that stands alone.
    pub arms: Vec<String>,
}

setters!(Schema {
    parameters: Vec<String>;
    text_ids: bool;
    posterior: bool;
    released_errors: bool;
    downweighted: bool;
    units: Vec<(String, String)>;
    arms: Vec<String>;
});

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    /// Unit, empty without one. `km/s` has another spelling in FITS.
    pub unit: String,
    pub meaning: String,
    /// Index in [`FIELDS`].
    field: usize,
    /// Index among the columns of the field.
    place: usize,
}

/// Maximum number of free parameters of a model.
const MOST_PARAMETERS: usize = 32;

impl Schema {
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
    pub(crate) fn distinct_columns(&self) -> Result<Vec<Column>> {
        let all = self.columns();
        let mut seen = HashSet::new();
        match all.iter().find(|column| !seen.insert(&column.name)) {
            Some(twice) => Err(Error::model(format!(
                "two columns of the result table would be called {:?}",
                twice.name
            ))),
            None => Ok(all),
        }
    }

    /// Returns all columns in the order of the file.
    pub(crate) fn columns(&self) -> Vec<Column> {
        // 1. Find the fields that have columns in this table.
        let mut flags = self.clone();
        let mut fields: Vec<(usize, &Declared)> = FIELDS.iter().enumerate().collect();
        fields.retain(|(_, declared)| match declared.presence {
            Presence::Always | Presence::Later => true,
            Presence::Optional(flag) => *flag(&mut flags),
        });
        // 2. List their columns. Fields of parameters that stand together take turns.
        let mut all = Vec::new();
        for together in
            fields.chunk_by(|(_, a), (_, b)| a.is_of_parameters() && b.is_of_parameters())
        {
            let columns: Vec<Vec<Column>> = together
                .iter()
                .map(|(f, declared)| self.expand(*f, declared))
                .collect();
            let count = columns.iter().map(Vec::len).max().unwrap_or(0);
            all.extend((0..count).flat_map(|k| {
                columns
                    .iter()
                    .filter_map(move |of_field| of_field.get(k).cloned())
            }));
        }
        all
    }

    /// Returns the columns of one field.
    fn expand(&self, field: usize, declared: &Declared) -> Vec<Column> {
        let mut all: Vec<Column> = declared
            .patterns
            .iter()
            .flat_map(|pattern| self.substitute(pattern))
            .collect();
        for (place, column) in all.iter_mut().enumerate() {
            let is_text = self.text_ids && column.name == "id";
            (column.field, column.place, column.kind) = (
                field,
                place,
                if is_text { Kind::Text } else { declared.kind },
            );
        }
        all
    }

    /// Returns the columns that a pattern stands for, without their field and type.
    fn substitute(&self, pattern: &Pattern) -> Vec<Column> {
        let Pattern {
            name,
            unit,
            meaning,
        } = *pattern;
        let column = |name: String, unit: &str, meaning: String| Column {
            name,
            unit: unit.into(),
            meaning,
            kind: Kind::Float64,
            field: 0,
            place: 0,
        };
        if name.contains(NAME) {
            let of_parameter = |parameter: &String| {
                let known = quantity::meaning(parameter).filter(|_| name == NAME);
                let meaning = known.unwrap_or(meaning).replace(NAME, parameter);
                column(
                    name.replace(NAME, parameter),
                    quantity::unit(&self.units, parameter),
                    meaning,
                )
            };
            return self.parameters.iter().map(of_parameter).collect();
        }
        if let Some(stem) = name.strip_suffix("_ARM") {
            let of_arm = |arm: &String| {
                if arm.is_empty() {
                    stem.into()
                } else {
                    format!("{stem}_{arm}")
                }
            };
            return self
                .arms
                .iter()
                .map(|arm| column(of_arm(arm), unit, meaning.into()))
                .collect();
        }
        if let Some(stem) = name.strip_suffix("A_B") {
            let of_pair = |(a, b)| {
                column(
                    format!("{stem}{a}_{b}"),
                    unit,
                    meaning.replace("A and B", &format!("{a} and {b}")),
                )
            };
            return pairs(&self.parameters).map(of_pair).collect();
        }
        vec![column(name.into(), unit, meaning.into())]
    }

    /// Fails if a row has another number of parameters than the table, or a text id among integer ids. The error is a
    /// message.
    #[cfg(feature = "files")]
    pub(crate) fn check_row(&self, row: &FitRow) -> Result<(), String> {
        let n = self.parameters.len();
        let lengths = [
            row.parameters.len(),
            row.errors.len(),
            row.correlations.len(),
        ];
        if lengths != [n, n, n * n.saturating_sub(1) / 2] {
            return Err(format!(
                "id {}: a row of {} parameters in a table of {n}",
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

    /// Finds out which table has columns of these names: parameters are pairs `X`, `X_err` between `objective` and
    /// `at_bound`. Other columns do not disturb. `units` has name and unit of columns that have one.
    ///
    /// # Errors
    /// Returns a message if a column that every table has is missing, or if there are too many parameters.
    pub(crate) fn of_names(
        names: &[String],
        text_ids: bool,
        units: Vec<(String, String)>,
    ) -> Result<Schema, String> {
        // 1. Find the columns that every table has.
        let find = |name: &str| names.iter().position(|n| n == name);
        let of_every = FIELDS
            .iter()
            .filter(|declared| matches!(declared.presence, Presence::Always));
        let mut required = of_every
            .flat_map(|declared| declared.patterns)
            .filter(|pattern| !pattern.name.contains(NAME));
        if let Some(Pattern { name, .. }) = required.find(|pattern| find(pattern.name).is_none()) {
            return Err(format!("not a result table of popfit: no column `{name}`"));
        }
        // 2. Find the parameters and the arms.
        let (from, to) = (
            find("objective").map_or(0, |c| c + 1),
            find("at_bound").unwrap_or(0),
        );
        if to > from + 2 * MOST_PARAMETERS {
            return Err(format!(
                "{} columns of parameters, more than {}",
                to - from,
                2 * MOST_PARAMETERS
            ));
        }
        let between = names.get(from..to).unwrap_or_default();
        let parameter = |pair: &[String]| match pair {
            [name, error] if error.strip_suffix("_err") == Some(name) => Some(name.clone()),
            _ => None,
        };
        let parameters: Vec<String> = between.windows(2).filter_map(parameter).collect();
        let arm = |name: &String| match name.strip_prefix("continuum_terms")? {
            "" => Some(String::new()),
            rest => rest.strip_prefix('_').map(Into::into),
        };
        let units = units
            .into_iter()
            .filter(|(column, _)| parameters.contains(column))
            .collect();
        let arms = names.iter().filter_map(arm).collect();
        let mut schema = Schema {
            parameters,
            text_ids,
            units,
            arms,
            ..Schema::default()
        };
        // 3. Find the optional columns: all of a field, or none.
        for (field, declared) in FIELDS.iter().enumerate() {
            if let Presence::Optional(flag) = declared.presence {
                let columns = schema.expand(field, declared);
                *flag(&mut schema) = !columns.is_empty()
                    && columns.iter().all(|column| find(&column.name).is_some());
            }
        }
        Ok(schema)
    }
}

/// Stands for a parameter in the name of a column.
const NAME: &str = "NAME";

impl Declared {
    /// Returns whether there is a column for each parameter.
    fn is_of_parameters(&self) -> bool {
        self.patterns
            .iter()
            .all(|pattern| pattern.name.contains(NAME))
            && !self.patterns.is_empty()
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
    pub fn of_rows<'r>(rows: impl IntoIterator<Item = &'r FitRow>) -> Store {
        let mut store = Store::default();
        rows.into_iter().for_each(|row| store.push(row));
        store
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.status.only().len()
    }

    /// Adds what these columns and fields without a column lack, with missing cells.
    pub fn complete(&mut self, columns: &[Column]) {
        let (rows, mut fields) = (self.len(), self.fields_mut());
        columns
            .iter()
            .for_each(|column| fields[column.field].widen(column.place + 1, rows));
        let without_column = fields
            .into_iter()
            .zip(FIELDS)
            .filter(|(_, declared)| declared.patterns.is_empty());
        without_column.for_each(|(field, _)| field.widen(1, rows));
    }

    /// Stores columns of values; those that are `None` have missing cells. `first` is the number of the first row, for
    /// messages.
    ///
    /// # Errors
    /// Returns a message with the column if columns differ in length, and with the row, too, for a value that
    /// is no cell of its column.
    pub fn of_values(
        columns: &[Column],
        values: Vec<Option<FitValues>>,
        first: usize,
    ) -> Result<Store, String> {
        let rows = values.iter().flatten().next().map_or(0, FitValues::len);
        let mut store = Store::default();
        let fields = store.fields_mut();
        for (
            Column {
                name, field, place, ..
            },
            values,
        ) in columns.iter().zip(values)
        {
            if let Some(values) = values {
                if values.len() != rows {
                    return Err(format!(
                        "column `{name}`: it has {} rows, and others have {rows}",
                        values.len()
                    ));
                }
                let bad = |bad: BadCell| {
                    format!("column `{name}`, row {}: {}", first + bad.row, bad.message)
                };
                fields[*field].put(*place, values).map_err(bad)?;
            }
        }
        store.complete(columns);
        Ok(store)
    }

    /// Returns the values of these columns. Those of floats are moved.
    pub fn into_values(mut self, columns: &[Column]) -> Vec<FitValues> {
        let (rows, mut fields) = (self.len(), self.fields_mut());
        columns
            .iter()
            .map(|column| fields[column.field].take(column.place, column.kind, rows))
            .collect()
    }

    /// Returns a copy of the values of a column; `None` if there is none.
    pub fn values(&self, column: &Column) -> Option<FitValues> {
        self.fields()[column.field].values(column.place, column.kind)
    }

    /// Returns the values of a column of floats; `None` if it has others.
    pub fn floats(&self, column: &Column) -> Option<&[f64]> {
        self.fields()[column.field].floats(column.place)
    }

    /// Returns the schema of these rows, whose parameters and arms have these names. It has the optional columns that
    /// some row has.
    pub fn schema(&self, parameters: Vec<String>, arms: Vec<String>) -> Schema {
        let text_ids = self.id.only().iter().any(|id| matches!(id, Id::Text(_)));
        let mut schema = Schema {
            parameters,
            arms,
            text_ids,
            ..Schema::default()
        };
        for (field, declared) in self.fields().into_iter().zip(FIELDS) {
            if let Presence::Optional(flag) = declared.presence {
                *flag(&mut schema) = !field.is_empty();
            }
        }
        schema
    }
}
