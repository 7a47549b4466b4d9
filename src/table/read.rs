//! Reader of result tables, batch by batch. Columns that it does not know are ignored.

#![deny(clippy::indexing_slicing)] // a file must not cause a panic

use std::path::Path;
use std::sync::Arc;

use super::columns::{
    CONTINUUM_TERMS, DOWNWEIGHTED, LAYOUT, UNREACHED, arm_of, correlation, pairs, posterior, released_error,
};
use super::read_fits::FitsSource;
#[cfg(feature = "parquet")]
use super::read_parquet::ParquetSource;
use super::{Entry, Extension, Schema, extension};
use crate::error::{Error, Result};
use crate::flag::Flags;
use crate::io::output::Metadata;
use crate::solver::Status;
use crate::spectral::{FitRow, FitTable, Id, VelocityPosterior};

/// A batch of cells, in column `c` of the file and row `r` of the batch.
pub(super) trait Cells {
    /// Returns the number of rows.
    fn rows(&self) -> usize;
    /// Returns an integer; `None` where the cell is empty or not an integer.
    fn integer(&self, c: usize, r: usize) -> Option<i64>;
    /// Returns a number; NaN where the cell is empty or not a number.
    fn float(&self, c: usize, r: usize) -> f64;
    /// Returns the cell as text.
    fn text(&self, c: usize, r: usize) -> String;
}

/// A file of one format.
pub(super) trait Source {
    /// Returns the names of the columns.
    fn names(&self) -> &[String];
    /// Returns whether the ids, in column `id`, are text.
    fn text_ids(&self, id: usize) -> bool;
    /// Returns the entries of the metadata, if the table has any.
    fn metadata(&self) -> Vec<Entry>;
    /// Returns name and unit of each column that has a unit.
    fn units(&self) -> Vec<(String, String)>;
    /// Returns notes for the user.
    fn notes(&self) -> Vec<String>;
    /// Reads the next batch; `None` at the end.
    fn next_batch(&mut self) -> Result<Option<Box<dyn Cells>>, String>;
}

/// Places of the columns from which a row is read. Every table has those that are not optional.
struct Places {
    id: usize,
    file: usize,
    row: usize,
    status: usize,
    status_text: usize,
    rounds: usize,
    evaluations: usize,
    chi2: usize,
    dof: usize,
    objective: usize,
    at_bound: usize,
    flags: usize,
    start: usize,
    n_starts_agree: usize,
    /// (P): value and error.
    parameters: Vec<(usize, usize)>,
    /// (P (P − 1) / 2), as in [`FitRow::correlations`]; `None` where the file has no such column.
    correlations: Vec<Option<usize>>,
    /// Places of the posterior's columns, if the table has them all.
    posterior: Option<[usize; 4]>,
    /// (P), or empty unless the table has them all.
    released_errors: Vec<usize>,
    /// The share of downweighted pixels, if the table has it.
    downweighted: Option<usize>,
    /// (arms): numbers of continuum terms.
    continuum_terms: Vec<usize>,
    /// (arms): numbers of pixels that are not reached; empty for tables of versions that did not count them.
    unreached: Vec<usize>,
}

/// Maximum number of columns of parameters and their errors: a model has at most 32 free parameters.
const MOST_COLUMNS: usize = 64;

/// A result table in Parquet or FITS that is read in batches. CSV tables are written, but not read back.
///
/// The checksums of Parquet and FITS are verified. Those of FITS are compared when the file is opened; those of Parquet
/// with each row group's last row, so that rows which have been returned are verified once the table has been read to
/// its end.
pub struct TableReader {
    /// Schema of the table's columns.
    pub schema: Schema,
    /// Metadata of the table, empty where another program wrote it without them.
    pub metadata: Metadata,
    /// Version of popfit that wrote the table, if the table has it.
    pub version: Option<String>,
    /// Version of the table's layout, if the table has it.
    pub layout: Option<u32>,
    /// Notes for the user, one line each, such as that the table has no checksums.
    pub notes: Vec<String>,
    path: Arc<Path>,
    source: Box<dyn Source>,
    places: Places,
}

impl std::fmt::Debug for TableReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableReader")
            .field("schema", &self.schema)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl TableReader {
    /// Opens a Parquet or FITS result table and reads its metadata; fails if it is no result table, or found to be
    /// damaged.
    ///
    /// # Errors
    /// `Io`; `Usage` for a CSV table or another extension; `Format` for a file that is no result table, whose layout is
    /// newer than this popfit's, or whose bytes differ from their checksums.
    pub fn open(path: impl AsRef<Path>) -> Result<TableReader> {
        let path = path.as_ref();
        let source: Box<dyn Source> = match extension(path)? {
            #[cfg(feature = "parquet")]
            Extension::Parquet => Box::new(ParquetSource::open(path)?),
            Extension::Csv => {
                let message = "a CSV table is written but not read back; use a Parquet or FITS table instead, which \
                               `popfit fit` writes with -o NAME.parquet or -o NAME.fits";
                return Err(Error::Usage(format!("{}: {message}", path.display())));
            }
            Extension::Fits => Box::new(FitsSource::open(path)?),
        };
        let (places, parameters) = places(source.names()).map_err(|message| Error::format(path, message))?;
        let entries = source.metadata();
        let layout = layout(&entries).map_err(|message| Error::format(path, message))?;
        let mut units = source.units();
        units.retain(|(column, _)| parameters.contains(column));
        let schema = Schema {
            parameters,
            text_ids: source.text_ids(places.id),
            posterior: places.posterior.is_some(),
            released_errors: !places.released_errors.is_empty(),
            downweighted: places.downweighted.is_some(),
            units,
            arms: places
                .continuum_terms
                .iter()
                .filter_map(|c| arm_of(CONTINUUM_TERMS, source.names().get(*c)?))
                .map(Into::into)
                .collect(),
        };
        let notes = source.notes().iter().map(|note| format!("{}: {note}", path.display())).collect();
        let (metadata, version) = Metadata::from_entries(entries);
        Ok(TableReader { schema, metadata, version, layout, notes, path: path.into(), source, places })
    }

    /// Reads all rows that `next_batch` has not returned yet into one table.
    ///
    /// # Errors
    /// The errors of [`next_batch`](TableReader::next_batch).
    pub fn read_all(&mut self) -> Result<FitTable> {
        let Schema { parameters, units, arms, .. } = self.schema.clone();
        let mut table = FitTable::new(parameters).with_units(units).with_arms(arms);
        while let Some(batch) = self.next_batch()? {
            table.append(&batch)?;
        }
        Ok(table)
    }

    /// Reads the next batch of rows; `None` once all rows have been returned.
    ///
    /// # Errors
    /// Returns `Format` for an unknown status, for rows that differ from their checksum, and for a damaged file.
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
    /// Reads all rows of a result table (Parquet or FITS), and the metadata of the run that wrote it. [`TableReader`]
    /// reads batches.
    ///
    /// # Errors
    /// The errors of [`TableReader`].
    pub fn read(path: impl AsRef<Path>) -> Result<(FitTable, Metadata)> {
        let mut reader = TableReader::open(path)?;
        Ok((reader.read_all()?, reader.metadata))
    }
}

/// Returns the version of the table's column layout, `None` if it names none; fails if this popfit is too old for it.
fn layout(entries: &[Entry]) -> Result<Option<u32>, String> {
    let Some(Entry { value: text, .. }) = entries.iter().find(|entry| entry.key == "popfit.layout") else {
        return Ok(None);
    };
    match text.parse() {
        Ok(version) if version <= LAYOUT => Ok(Some(version)),
        Ok(version) => Err(format!(
            "the table's layout is version {version}, and this popfit reads up to {LAYOUT}: take a newer popfit"
        )),
        Err(_) => Err(format!("damaged: popfit.layout is {text:?}, which is no version")),
    }
}

/// Finds the index of each column by its name, and the parameters: pairs `NAME`, `NAME_err` from `objective` to
/// `at_bound`.
fn places(names: &[String]) -> Result<(Places, Vec<String>), String> {
    // 1. Find the columns that do not depend on the parameters.
    let find = |name: &str| names.iter().position(|n| n == name);
    let of_arms = |column| (0..).zip(names).filter(|(_, n)| arm_of(column, n).is_some()).map(|(c, _)| c).collect();
    let place = |name: &str| find(name).ok_or_else(|| format!("not a result table of popfit: no column `{name}`"));
    let mut all = Places {
        id: place("id")?,
        file: place("file")?,
        row: place("row")?,
        status: place("status")?,
        status_text: place("status_text")?,
        rounds: place("rounds")?,
        evaluations: place("evaluations")?,
        chi2: place("chi2")?,
        dof: place("dof")?,
        objective: place("objective")?,
        at_bound: place("at_bound")?,
        flags: place("flags")?,
        start: place("start")?,
        n_starts_agree: place("n_starts_agree")?,
        parameters: Vec::new(),
        correlations: Vec::new(),
        posterior: match posterior().map(|column| find(&column.name)) {
            [Some(a), Some(b), Some(c), Some(d)] => Some([a, b, c, d]),
            _ => None,
        },
        released_errors: Vec::new(),
        downweighted: find(DOWNWEIGHTED),
        continuum_terms: of_arms(CONTINUUM_TERMS),
        unreached: of_arms(UNREACHED),
    };
    // 2. Find the parameters.
    let (from, to) = (all.objective + 1, all.at_bound);
    if to > from + MOST_COLUMNS {
        return Err(format!("{} columns of parameters, more than {MOST_COLUMNS}", to - from));
    }
    let mut parameters = Vec::new();
    for (c, pair) in (from..to.saturating_sub(1)).zip(names.get(from..).unwrap_or_default().windows(2)) {
        if let [name, error] = pair
            && error.strip_suffix("_err") == Some(name)
        {
            all.parameters.push((c, c + 1));
            parameters.push(name.clone());
        }
    }
    // 3. Find the columns that depend on them.
    all.correlations = pairs(&parameters).map(|(a, b)| find(&correlation(a, b).name)).collect();
    let released: Option<Vec<usize>> = parameters.iter().map(|name| find(&released_error(name, "").name)).collect();
    all.released_errors = released.unwrap_or_default();
    Ok((all, parameters))
}

/// Converts row `r` of a batch of cells to a [`FitRow`]; `file` is the file's name in the row before, shared if it is
/// the same.
fn row(places: &Places, text_ids: bool, cells: &dyn Cells, r: usize, file: &mut Arc<str>) -> Result<FitRow, String> {
    // 1. Read the cells that need a check.
    let integer = |c: usize| cells.integer(c, r).unwrap_or(0);
    let count = |c: usize| u32::try_from(integer(c)).unwrap_or(0);
    let name = cells.text(places.file, r);
    if **file != *name {
        *file = name.into();
    }
    let code = cells.integer(places.status, r).and_then(|n| i32::try_from(n).ok());
    let id = match cells.integer(places.id, r).filter(|_| !text_ids) {
        Some(n) => Id::Integer(n),
        None => Id::Text(cells.text(places.id, r)),
    };
    // 2. Put the row together.
    Ok(FitRow {
        message: String::new(),
        file: file.clone(),
        row: u64::try_from(integer(places.row)).unwrap_or(0),
        status: code.and_then(Status::from_code).ok_or_else(|| {
            format!("id {id}: `{}` is no status", code.map_or_else(|| cells.text(places.status, r), |n| n.to_string()))
        })?,
        id,
        status_text: cells.text(places.status_text, r),
        rounds: count(places.rounds),
        evaluations: count(places.evaluations),
        chi2: cells.float(places.chi2, r),
        dof: integer(places.dof),
        objective: cells.float(places.objective, r),
        parameters: places.parameters.iter().map(|(value, _)| cells.float(*value, r)).collect(),
        errors: places.parameters.iter().map(|(_, error)| cells.float(*error, r)).collect(),
        downweighted: places.downweighted.map(|c| cells.float(c, r)).filter(|share| !share.is_nan()),
        released_errors: places.released_errors.iter().map(|c| cells.float(*c, r)).collect(),
        continuum_terms: places.continuum_terms.iter().map(|c| count(*c)).collect(),
        unreached: places.unreached.iter().map(|c| count(*c)).collect(),
        at_bound: count(places.at_bound),
        flags: Flags::from_bits_retain(count(places.flags)),
        start: u32::try_from(integer(places.start)).ok(),
        n_starts_agree: count(places.n_starts_agree),
        posterior: places.posterior.map(|[velocity, error, skewness, kurtosis]| VelocityPosterior {
            velocity: cells.float(velocity, r),
            error: cells.float(error, r),
            skewness: cells.float(skewness, r),
            kurtosis: cells.float(kurtosis, r),
        }),
        correlations: places.correlations.iter().map(|c| c.map_or(f64::NAN, |c| cells.float(c, r))).collect(),
    })
}
