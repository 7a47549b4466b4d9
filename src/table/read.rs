//! Reads result tables back, batch by batch: what the writers wrote, and more columns do not disturb.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::path::Path;
use std::sync::Arc;

use super::read_csv::CsvSource;
use super::read_fits::FitsSource;
use super::read_parquet::ParquetSource;
use super::{Extension, Metadata, Schema, extension};
use crate::error::{Error, Result};
use crate::fit::{FitRow, FitTable, Id, VelocityPosterior};
use crate::solver::Status;

/// A batch of cells: column `c` as named by the file, row `r` of the batch.
pub(super) trait Cells {
    fn rows(&self) -> usize;
    /// `None` where the cell is empty or no integer.
    fn integer(&self, c: usize, r: usize) -> Option<i64>;
    /// NaN where the cell is empty or no number.
    fn float(&self, c: usize, r: usize) -> f64;
    fn text(&self, c: usize, r: usize) -> String;
}

/// A file of one format.
pub(super) trait Source {
    /// Names of the columns.
    fn names(&self) -> &[String];
    /// Whether the ids are text.
    fn text_ids(&self, id: usize) -> bool;
    /// The key-value metadata, if the format has any.
    fn pairs(&self) -> Vec<(String, String)>;
    fn next_batch(&mut self) -> Result<Option<Box<dyn Cells>>, String>;
}

/// Where the columns are that every table has.
struct Places {
    fixed: [usize; FIXED.len()],
    /// (P): value and error.
    parameters: Vec<(usize, usize)>,
    /// (P (P − 1) / 2), as in [`FitRow::correlations`]; `None` where the file has no such column.
    correlations: Vec<Option<usize>>,
    /// Where the table has them all.
    posterior: Option<[usize; 4]>,
    /// (P) Where the table has them all; else empty.
    released_errors: Vec<usize>,
}

/// Most columns of parameters and their errors: a model has at most 32 free ones.
const MOST_COLUMNS: usize = 64;

const FIXED: [&str; 14] = [
    "id",
    "file",
    "row",
    "status",
    "status_text",
    "rounds",
    "evaluations",
    "chi2",
    "dof",
    "objective",
    "at_bound",
    "flags",
    "start",
    "n_starts_agree",
];

/// A result table that is read in batches.
pub struct TableReader {
    /// Its columns.
    pub schema: Schema,
    /// Empty where the format has none (CSV).
    pub metadata: Metadata,
    /// The version of popfit that wrote the table, if it says so.
    pub version: Option<String>,
    path: Arc<Path>,
    source: Box<dyn Source>,
    places: Places,
}

impl TableReader {
    /// # Errors
    /// `Io`; `Usage` for an extension that is not read; `Format` for a file that is no result table.
    pub fn open(path: impl AsRef<Path>) -> Result<TableReader> {
        let path = path.as_ref();
        let source: Box<dyn Source> = match extension(path)? {
            Extension::Parquet => Box::new(ParquetSource::open(path)?),
            Extension::Csv => Box::new(CsvSource::open(path)?),
            Extension::Fits => Box::new(FitsSource::open(path)?),
        };
        let (places, parameters) = places(source.names()).map_err(|message| Error::format(path, message))?;
        let schema = Schema {
            text_ids: source.text_ids(places.fixed[0]),
            posterior: places.posterior.is_some(),
            released_errors: !places.released_errors.is_empty(),
            parameters,
        };
        let (metadata, version) = Metadata::from_pairs(source.pairs());
        Ok(TableReader { schema, metadata, version, path: path.into(), source, places })
    }

    /// The next rows; `None` at the end.
    ///
    /// # Errors
    /// `Format` for a status that is none, and for what the format's reader refuses.
    pub fn next_batch(&mut self) -> Result<Option<Vec<FitRow>>> {
        let format = |message: String| Error::format(&self.path, message);
        let Some(cells) = self.source.next_batch().map_err(format)? else { return Ok(None) };
        let mut file: Arc<str> = "".into();
        let mut rows = Vec::with_capacity(cells.rows());
        for r in 0..cells.rows() {
            rows.push(row(&self.places, self.schema.text_ids, cells.as_ref(), r, &mut file).map_err(format)?);
        }
        Ok(Some(rows))
    }
}

impl FitTable {
    /// Reads a table (Parquet, FITS or CSV) and how it came about; [`TableReader`] reads batches.
    ///
    /// # Errors
    /// Those of [`TableReader`].
    pub fn read(path: impl AsRef<Path>) -> Result<(FitTable, Metadata)> {
        let mut reader = TableReader::open(path)?;
        let mut rows = Vec::new();
        while let Some(batch) = reader.next_batch()? {
            rows.extend(batch);
        }
        Ok((FitTable { parameters: reader.schema.parameters, rows }, reader.metadata))
    }
}

/// Finds the columns. Parameters are the pairs `NAME`, `NAME_err` between `objective` and `at_bound`.
fn places(names: &[String]) -> Result<(Places, Vec<String>), String> {
    let find = |name: &str| names.iter().position(|n| n == name);
    let mut fixed = [0; FIXED.len()];
    for (place, name) in fixed.iter_mut().zip(FIXED) {
        *place = find(name).ok_or_else(|| format!("not a result table of popfit: no column `{name}`"))?;
    }
    let (from, to) = (fixed[9] + 1, fixed[10]);
    if to > from + MOST_COLUMNS {
        return Err(format!("{} columns of parameters, more than {MOST_COLUMNS}", to - from));
    }
    let mut all = Places {
        fixed,
        parameters: Vec::new(),
        correlations: Vec::new(),
        posterior: None,
        released_errors: Vec::new(),
    };
    let mut parameters = Vec::new();
    for (c, pair) in (from..to.saturating_sub(1)).zip(names.get(from..).unwrap_or_default().windows(2)) {
        if let [name, error] = pair
            && error.strip_suffix("_err") == Some(name)
        {
            all.parameters.push((c, c + 1));
            parameters.push(name.clone());
        }
    }
    all.correlations = super::columns::pairs(&parameters).map(|(a, b)| find(&format!("correlation_{a}_{b}"))).collect();
    if let [Some(a), Some(b), Some(c), Some(d)] = super::columns::POSTERIOR.map(find) {
        all.posterior = Some([a, b, c, d]);
    }
    let released: Option<Vec<usize>> = parameters.iter().map(|name| find(&super::columns::released(name))).collect();
    all.released_errors = released.unwrap_or_default();
    Ok((all, parameters))
}

fn row(places: &Places, text_ids: bool, cells: &dyn Cells, r: usize, file: &mut Arc<str>) -> Result<FitRow, String> {
    let [id, path, row, status, text, rounds, evaluations, chi2, dof, objective, bound, flags, start, agree] =
        places.fixed;
    let integer = |c: usize| cells.integer(c, r).unwrap_or(0);
    let count = |c: usize| u32::try_from(integer(c)).unwrap_or(0);
    let name = cells.text(path, r);
    if **file != *name {
        *file = name.into(); // rows of one file share its name
    }
    let code = cells.integer(status, r).and_then(|n| i32::try_from(n).ok());
    let id = match cells.integer(id, r).filter(|_| !text_ids) {
        Some(n) => Id::Integer(n),
        None => Id::Text(cells.text(id, r)),
    };
    Ok(FitRow {
        detail: String::new(),
        file: file.clone(),
        row: u64::try_from(integer(row)).unwrap_or(0),
        status: code.and_then(Status::from_code).ok_or_else(|| {
            format!("id {id}: `{}` is no status", code.map_or_else(|| cells.text(status, r), |n| n.to_string()))
        })?,
        id,
        status_text: cells.text(text, r),
        rounds: count(rounds),
        evaluations: count(evaluations),
        chi2: cells.float(chi2, r),
        dof: integer(dof),
        objective: cells.float(objective, r),
        parameters: places.parameters.iter().map(|(value, _)| cells.float(*value, r)).collect(),
        errors: places.parameters.iter().map(|(_, error)| cells.float(*error, r)).collect(),
        released_errors: places.released_errors.iter().map(|c| cells.float(*c, r)).collect(),
        at_bound: count(bound),
        flags: count(flags),
        start: i32::try_from(integer(start)).unwrap_or(-1),
        n_starts_agree: count(agree),
        posterior: places.posterior.map(|[velocity, error, skewness, kurtosis]| VelocityPosterior {
            velocity: cells.float(velocity, r),
            error: cells.float(error, r),
            skewness: cells.float(skewness, r),
            kurtosis: cells.float(kurtosis, r),
        }),
        correlations: places.correlations.iter().map(|c| c.map_or(f64::NAN, |c| cells.float(c, r))).collect(),
    })
}
