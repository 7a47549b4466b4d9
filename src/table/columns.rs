//! The columns of the result table: one list, from which every format is written.

use std::borrow::Cow;
use std::collections::HashSet;

use super::Schema;
use crate::error::{Error, Result};
use crate::fit::{FitRow, Id};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int32,
    Int64,
    Float64,
    Text,
}

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Integer(i64),
    Float(f64),
    Text(Cow<'a, str>),
}

type Get = for<'a> fn(&'a FitRow, usize) -> Value<'a>;

/// A column: its name, its type and where its cells are.
pub(super) struct Column {
    pub name: String,
    pub kind: Kind,
    index: usize,
    get: Get,
}

impl Column {
    /// The cell of a row that passed [`check_row`].
    pub fn value<'a>(&self, row: &'a FitRow) -> Value<'a> {
        (self.get)(row, self.index)
    }
}

fn integer(value: impl Into<i64>) -> Value<'static> {
    Value::Integer(value.into())
}

fn id(row: &FitRow, _: usize) -> Value<'_> {
    match &row.id {
        Id::Integer(n) => Value::Integer(*n),
        Id::Text(s) => Value::Text(Cow::Borrowed(s)),
    }
}

fn text_id(row: &FitRow, _: usize) -> Value<'_> {
    Value::Text(match &row.id {
        Id::Integer(n) => Cow::Owned(n.to_string()),
        Id::Text(s) => Cow::Borrowed(s),
    })
}

/// Columns of the velocity's posterior.
pub(super) const POSTERIOR: [&str; 4] =
    ["velocity_posterior", "velocity_posterior_err", "velocity_skewness", "velocity_kurtosis"];

/// The column of a parameter's standard errors with all bounds released.
pub(super) fn released(parameter: &str) -> String {
    format!("{parameter}_err_released")
}

/// All columns, in the order of design §5. Fails when a parameter's name is already a column's.
pub(super) fn columns(schema: &Schema) -> Result<Vec<Column>> {
    let mut all = Vec::new();
    let mut add = |name: String, kind, index, get: Get| all.push(Column { name, kind, index, get });
    let (id_kind, id_get): (Kind, Get) = if schema.text_ids { (Kind::Text, text_id) } else { (Kind::Int64, id) };
    add("id".into(), id_kind, 0, id_get);
    add("file".into(), Kind::Text, 0, |row, _| Value::Text(Cow::Borrowed(&row.file)));
    add("row".into(), Kind::Int64, 0, |row, _| Value::Integer(row.row as i64));
    add("status".into(), Kind::Int32, 0, |row, _| integer(row.status.code()));
    add("status_text".into(), Kind::Text, 0, |row, _| Value::Text(Cow::Borrowed(&row.status_text)));
    add("rounds".into(), Kind::Int64, 0, |row, _| integer(row.rounds));
    add("evaluations".into(), Kind::Int64, 0, |row, _| integer(row.evaluations));
    add("chi2".into(), Kind::Float64, 0, |row, _| Value::Float(row.chi2));
    add("dof".into(), Kind::Int64, 0, |row, _| Value::Integer(row.dof));
    add("objective".into(), Kind::Float64, 0, |row, _| Value::Float(row.objective));
    for (p, name) in schema.parameters.iter().enumerate() {
        add(name.clone(), Kind::Float64, p, |row, p| Value::Float(row.parameters[p]));
        add(format!("{name}_err"), Kind::Float64, p, |row, p| Value::Float(row.errors[p]));
    }
    add("at_bound".into(), Kind::Int64, 0, |row, _| integer(row.at_bound));
    add("flags".into(), Kind::Int64, 0, |row, _| integer(row.flags));
    add("start".into(), Kind::Int32, 0, |row, _| integer(row.start));
    add("n_starts_agree".into(), Kind::Int64, 0, |row, _| integer(row.n_starts_agree));
    if schema.posterior {
        let get: [Get; 4] = [
            |row, _| Value::Float(row.posterior.map_or(f64::NAN, |p| p.velocity)),
            |row, _| Value::Float(row.posterior.map_or(f64::NAN, |p| p.error)),
            |row, _| Value::Float(row.posterior.map_or(f64::NAN, |p| p.skewness)),
            |row, _| Value::Float(row.posterior.map_or(f64::NAN, |p| p.kurtosis)),
        ];
        POSTERIOR.iter().zip(get).for_each(|(name, get)| add((*name).into(), Kind::Float64, 0, get));
    }
    if schema.released_errors {
        for (p, name) in schema.parameters.iter().enumerate() {
            let get: Get = |row, p| Value::Float(row.released_errors.get(p).copied().unwrap_or(f64::NAN));
            add(released(name), Kind::Float64, p, get);
        }
    }
    for (k, (a, b)) in pairs(&schema.parameters).enumerate() {
        add(format!("correlation_{a}_{b}"), Kind::Float64, k, |row, k| Value::Float(row.correlations[k]));
    }
    check_names(&all)?;
    Ok(all)
}

/// (0,1), (0,2), … (1,2), …: the order of [`FitRow::correlations`].
pub(super) fn pairs(names: &[String]) -> impl Iterator<Item = (&String, &String)> {
    names.iter().enumerate().flat_map(|(a, first)| names[a + 1..].iter().map(move |second| (first, second)))
}

fn check_names(columns: &[Column]) -> Result<()> {
    let mut seen = HashSet::new();
    match columns.iter().find(|column| !seen.insert(&column.name)) {
        Some(twice) => Err(Error::Model(format!("two columns of the result table would be called {:?}", twice.name))),
        None => Ok(()),
    }
}

/// Whether a row fits the schema; the message names what does not.
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
