//! The columns of the result table.
//!
//! [`columns`] is the only place that defines a column's name, type, unit, meaning and cells. Parquet, FITS and CSV are
//! written from it, units and meanings included, and a test compares the table in `docs/src/results.md` with it. A new
//! column is a new line there (and, where a reader needs it, one in `read.rs`).

use std::borrow::Cow;
use std::collections::HashSet;

use super::Schema;
use crate::error::{Error, Result};
use crate::spectral::quantity;
use crate::spectral::{FitRow, Id, VelocityPosterior};

/// Version of the table's layout, the key `popfit.layout`. It grows when a column is removed, or changes its name,
/// type, unit or meaning. New columns do not change it.
pub(super) const LAYOUT: u32 = 1;
/// Key of a unit in the metadata of a Parquet field.
#[cfg(feature = "parquet")]
pub(super) const UNIT: &str = "unit";
/// Key of a meaning in the metadata of a Parquet field.
#[cfg(feature = "parquet")]
pub(super) const MEANING: &str = "description";

/// Type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int32,
    Int64,
    Float64,
    Text,
}

impl Kind {
    /// Returns the name that numpy and ECSV give this type of column, such as `float64`.
    #[cfg(any(test, feature = "parquet"))]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Int32 => "int32",
            Kind::Int64 => "int64",
            Kind::Float64 => "float64",
            Kind::Text => "string",
        }
    }
}

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Integer(i64),
    Float(f64),
    Text(Cow<'a, str>),
}

impl Value<'_> {
    /// Returns the integer in a cell of an integer column; panics for any other cell, which would be a bug.
    pub fn integer(self) -> i64 {
        match self {
            Value::Integer(n) => n,
            other => unreachable!("an integer column gave {other:?}"),
        }
    }
}

/// Function that returns the cell of a row, in the column of a parameter or pair with some index.
type Get = for<'a> fn(&'a FitRow, usize) -> Value<'a>;

/// A column: its name, type and meaning, and the function that returns its cells.
pub(super) struct Column {
    pub name: String,
    pub kind: Kind,
    /// Unit, empty without one. `km/s` has another spelling in FITS.
    pub unit: String,
    /// ASCII, short enough for one card of a FITS header.
    pub meaning: String,
    index: usize,
    get: Get,
}

impl Column {
    /// Returns the description of a column that is the same for every parameter and arm: name, type, unit, meaning,
    /// cell getter.
    fn new(name: impl Into<String>, kind: Kind, unit: &str, meaning: impl Into<String>, get: Get) -> Column {
        Column { name: name.into(), kind, unit: unit.into(), meaning: meaning.into(), index: 0, get }
    }

    /// Returns this column with `index` set: which parameter, arm or pair of parameters of a row its cells show.
    fn of(self, index: usize) -> Column {
        Column { index, ..self }
    }

    /// Returns what this column shows of a fit's row, which must have passed [`check_row`].
    pub fn value<'a>(&self, row: &'a FitRow) -> Value<'a> {
        (self.get)(row, self.index)
    }
}

/// Returns all columns of the result table in the order of the file; fails if two of them would have the same name.
///
/// # Errors
/// Returns `Model` if a parameter's name is already that of a column.
pub(super) fn columns(schema: &Schema) -> Result<Vec<Column>> {
    let mut all = before(schema.text_ids);
    all.extend(schema.parameters.iter().enumerate().flat_map(|(p, name)| of_parameter(schema, p, name)));
    all.extend(after());
    all.extend(schema.arms.iter().enumerate().map(|(a, arm)| continuum_terms(arm).of(a)));
    all.extend(schema.arms.iter().enumerate().map(|(a, arm)| unreached(arm).of(a)));
    if schema.downweighted {
        all.push(downweighted());
    }
    if schema.posterior {
        all.extend(posterior());
    }
    if schema.released_errors {
        let of = |(p, name): (usize, &String)| released_error(name, quantity::unit(&schema.units, name)).of(p);
        all.extend(schema.parameters.iter().enumerate().map(of));
    }
    all.extend(pairs(&schema.parameters).enumerate().map(|(k, (a, b))| correlation(a, b).of(k)));
    check_names(&all)?;
    Ok(all)
}

/// Returns the columns left of the parameters, the same in every table: id, file, status, χ² and so on.
fn before(text_ids: bool) -> Vec<Column> {
    use Kind::{Float64, Int32, Int64, Text};
    let (id_kind, id_get): (Kind, Get) = if text_ids { (Text, text_id) } else { (Int64, id) };
    let column = Column::new;
    vec![
        column("id", id_kind, "", "Identifier of the spectrum, an integer or a text", id_get),
        column("file", Text, "", "File of the spectrum", |row, _| Value::Text(Cow::Borrowed(&row.file))),
        column("row", Int64, "", "Row in that file, from 0", |row, _| Value::Integer(row.row as i64)),
        column("status", Int32, "", "How the fit ended: 1 to 4 converged", |row, _| integer(row.status.code())),
        column("status_text", Text, "", "Name of the status, or the cause of a failure", |row, _| {
            Value::Text(Cow::Borrowed(&row.status_text))
        }),
        column("rounds", Int64, "", "Rounds of the winning start", |row, _| integer(row.rounds)),
        column("evaluations", Int64, "", "Evaluations of the model, of all starts", |row, _| integer(row.evaluations)),
        column("chi2", Float64, "", "chi-square of the pixels", |row, _| Value::Float(row.chi2)),
        column("dof", Int64, "", "Pixels - free parameters - continuum terms", |row, _| Value::Integer(row.dof)),
        column("objective", Float64, "", "chi2, priors and marginalisation", |row, _| Value::Float(row.objective)),
    ]
}

/// Returns the two columns of free parameter `p`: its fitted value `NAME`, and its standard error `NAME_err`.
fn of_parameter(schema: &Schema, p: usize, name: &str) -> [Column; 2] {
    let (unit, meaning) = (quantity::unit(&schema.units, name), quantity::meaning(name));
    let error = format!("Standard error of {name}");
    [
        Column::new(name, Kind::Float64, unit, meaning, |row, p| Value::Float(row.parameters[p])).of(p),
        Column::new(format!("{name}_err"), Kind::Float64, unit, error, |row, p| Value::Float(row.errors[p])).of(p),
    ]
}

/// Returns the columns right of the parameters, the same in every table: bounds, flags, winning start, agreement of
/// starts.
fn after() -> Vec<Column> {
    use Kind::{Int32, Int64};
    let column = Column::new;
    vec![
        column("at_bound", Int64, "", "Bit p: free parameter p ended at a bound", |row, _| integer(row.at_bound)),
        column("flags", Int64, "", "Bits: what to know of the fit", |row, _| integer(row.flags.bits())),
        column("start", Int32, "", "Index of the winning start, -1 without one", |row, _| {
            integer(row.start.map_or(-1, i64::from))
        }),
        column(
            "n_starts_agree",
            Int64,
            "",
            "Basins of the first guess from which starts found the minimum",
            |row, _| integer(row.n_starts_agree),
        ),
    ]
}

/// Returns the column that counts an arm's determined continuum terms.
fn continuum_terms(arm: &str) -> Column {
    let meaning = "Continuum terms that the data determine";
    let get: Get = |row, a| integer(row.continuum_terms.get(a).copied().unwrap_or(0));
    Column::new(of_arm(CONTINUUM_TERMS, arm), Kind::Int64, "", meaning, get)
}

/// Returns the column that counts an arm's good pixels that its template does not cover.
fn unreached(arm: &str) -> Column {
    let meaning = "Good pixels left out: the template does not cover them";
    let get: Get = |row, a| integer(row.unreached.get(a).copied().unwrap_or(0));
    Column::new(of_arm(UNREACHED, arm), Kind::Int64, "", meaning, get)
}

/// Returns the name `COLUMN_ARM` of a column that each arm has, without `_ARM` if the arm is unnamed.
fn of_arm(column: &str, arm: &str) -> String {
    if arm.is_empty() { column.into() } else { format!("{column}_{arm}") }
}

/// Returns the arm's name (empty without `_ARM`) if `name` is that of a column `COLUMN_ARM`; `None` otherwise.
pub(super) fn arm_of<'n>(column: &str, name: &'n str) -> Option<&'n str> {
    let rest = name.strip_prefix(column)?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('_') }
}

/// Names of columns that each arm has, without the arm's name.
pub(super) const CONTINUUM_TERMS: &str = "continuum_terms";
pub(super) const UNREACHED: &str = "unreached";

/// Name of the column with the share of downweighted pixels.
pub(super) const DOWNWEIGHTED: &str = "downweighted";

/// Returns the column with the share of pixels to which the model's robust loss gives little weight.
fn downweighted() -> Column {
    let meaning = "Share of pixels with less than half of the weight under the loss";
    Column::new(DOWNWEIGHTED, Kind::Float64, "", meaning, |row, _| Value::Float(row.downweighted.unwrap_or(f64::NAN)))
}

/// Returns the columns of the velocity's posterior: velocity at its peak, RMS deviation, skewness and kurtosis.
pub(super) fn posterior() -> [Column; 4] {
    let column = |name, unit, meaning, get| Column::new(name, Kind::Float64, unit, meaning, get);
    [
        column("velocity_posterior", "km/s", "Velocity at the minimum of the scanned objective", |row, _| {
            moment(row, |p| p.velocity)
        }),
        column("velocity_posterior_err", "km/s", "RMS deviation of the posterior from velocity_posterior", |row, _| {
            moment(row, |p| p.error)
        }),
        column("velocity_skewness", "", "Skewness of the posterior about velocity_posterior", |row, _| {
            moment(row, |p| p.skewness)
        }),
        column("velocity_kurtosis", "", "Kurtosis of the posterior about velocity_posterior", |row, _| {
            moment(row, |p| p.kurtosis)
        }),
    ]
}

/// Returns the column `NAME_err_released`: the parameter's standard error if no parameter were held at a bound.
pub(super) fn released_error(parameter: &str, unit: &str) -> Column {
    let name = format!("{parameter}_err_released");
    let meaning = format!("Standard error of {parameter}, bounds released");
    Column::new(name, Kind::Float64, unit, meaning, |row, p| {
        Value::Float(row.released_errors.get(p).copied().unwrap_or(f64::NAN))
    })
}

/// Returns the column `correlation_A_B` with the correlation coefficient of two free parameters' errors.
pub(super) fn correlation(a: &str, b: &str) -> Column {
    let name = format!("correlation_{a}_{b}");
    let meaning = format!("Correlation of {a} and {b}");
    Column::new(name, Kind::Float64, "", meaning, |row, k| Value::Float(row.correlations[k]))
}

/// Wraps a number as the cell of an integer column.
fn integer(value: impl Into<i64>) -> Value<'static> {
    Value::Integer(value.into())
}

/// Returns the cell with the spectrum's id, as an integer or text as it is.
fn id(row: &FitRow, _: usize) -> Value<'_> {
    match &row.id {
        Id::Integer(n) => Value::Integer(*n),
        Id::Text(s) => Value::Text(Cow::Borrowed(s)),
    }
}

/// Returns the cell with the spectrum's id as text, even if it is an integer.
fn text_id(row: &FitRow, _: usize) -> Value<'_> {
    Value::Text(match &row.id {
        Id::Integer(n) => Cow::Owned(n.to_string()),
        Id::Text(s) => Cow::Borrowed(s),
    })
}

/// Returns the cell with one number of the velocity's posterior (such as its skewness), NaN if it was not computed.
fn moment(row: &FitRow, get: fn(VelocityPosterior) -> f64) -> Value<'static> {
    Value::Float(row.posterior.map_or(f64::NAN, get))
}

/// Returns all pairs of names in the order of [`FitRow::correlations`]: (0,1), (0,2), … (1,2), ….
pub(super) fn pairs(names: &[String]) -> impl Iterator<Item = (&String, &String)> {
    names.iter().enumerate().flat_map(|(a, first)| names[a + 1..].iter().map(move |second| (first, second)))
}

/// Fails if two columns of the table have the same name.
fn check_names(columns: &[Column]) -> Result<()> {
    let mut seen = HashSet::new();
    match columns.iter().find(|column| !seen.insert(&column.name)) {
        Some(twice) => Err(Error::Model(format!("two columns of the result table would be called {:?}", twice.name))),
        None => Ok(()),
    }
}

/// Checks that a row has as many parameters as the table, and no text id among integer ids; the error is a message.
pub(super) fn check_row(schema: &Schema, row: &FitRow) -> Result<(), String> {
    let n = schema.parameters.len();
    let lengths = [row.parameters.len(), row.errors.len(), row.correlations.len()];
    if lengths != [n, n, n * n.saturating_sub(1) / 2] {
        return Err(format!("id {}: a row of {} parameters in a table of {n}", row.id, row.parameters.len()));
    }
    match &row.id {
        Id::Text(text) if !schema.text_ids => Err(format!("id {text:?} is text in a table of integer ids")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;
    use crate::flag::Flags;

    const RESULTS: &str = include_str!("../../docs/src/results.md");

    /// The page on results has a table of these lines, and of no others.
    fn assert_listed(lines: &[String]) {
        let table = lines.join("\n");
        assert!(RESULTS.contains(&format!("---|\n{table}\n\n")), "the page's table is not this one:\n{table}");
    }

    #[test]
    fn the_page_on_results_lists_columns_statuses_and_flags_as_they_are() {
        let one = Schema {
            parameters: vec!["NAME".into()],
            posterior: true,
            released_errors: true,
            downweighted: true,
            arms: vec!["ARM".into()],
            ..Schema::default()
        };
        let mut all = columns(&one).unwrap();
        all.push(correlation("A", "B"));
        let unit = |column: &Column| match column.name.starts_with("NAME") {
            true => "its own".into(),
            false => column.unit.clone(),
        };
        let line = |c: &Column| format!("| `{}` | {} | {} | {} |", c.name, c.kind.name(), unit(c), c.meaning);
        assert_listed(&all.iter().map(line).collect::<Vec<_>>());
        let line = |s: &Status| format!("| {} | `{}` | {} |", s.code(), s.name(), s.meaning());
        assert_listed(&Status::ALL.iter().map(line).collect::<Vec<_>>());
        let line = |f: &crate::FlagDescription| format!("| {} | `{}` | {} |", f.bit, f.name, f.meaning);
        assert_listed(&Flags::DESCRIPTIONS.iter().map(line).collect::<Vec<_>>());
    }

    #[test]
    fn meanings_fit_a_card_of_fits() {
        let parameters = ["velocity", "vsini", "teff", "logg", "feh", "alpha"].map(String::from).to_vec();
        let schema = Schema { parameters, posterior: true, released_errors: true, ..Schema::default() };
        let all = columns(&schema).unwrap();
        for column in all {
            let length = column.meaning.len();
            assert!(column.meaning.is_ascii() && (1..=66).contains(&length), "{}: {length}", column.name);
        }
    }
}
