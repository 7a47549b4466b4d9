//! Columns of an NPZ file: every one-dimensional array with a value for each spectrum that is not part of an arm or
//! ids.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::path::Path;
use std::sync::Arc;

use super::npz_arm::reserve;
use super::{Column, ColumnValues};
use crate::error::Result;
use crate::io::npz::{Archive, DType, Stream};

/// The streams of all columns.
pub(super) struct Columns(Vec<(Arc<str>, Kind, Stream)>);

#[derive(Clone, Copy)]
enum Kind {
    Bool,
    Integer,
    Natural,
    Single,
    Double,
    Text,
}

impl Kind {
    /// Returns the kind of column (bool, i64, u64, f32, f64 or text) that holds an array of this type.
    fn of(dtype: &DType) -> Kind {
        match dtype {
            dtype if dtype.is_text() => Kind::Text,
            dtype if dtype.is_natural() => Kind::Natural,
            dtype if dtype.is_integer() => Kind::Integer,
            dtype if dtype.is_flag() => Kind::Bool,
            dtype if dtype.bytes() == 4 => Kind::Single,
            _ => Kind::Double,
        }
    }
}

impl Columns {
    /// Opens all arrays of one value per spectrum that are not `known` as part of an arm or ids, and reads each through
    /// to find damage. An array whose header or type popfit does not read is none of its business.
    pub(super) fn open(archive: &mut Archive, length: usize, known: &[String]) -> Result<Columns> {
        let mut columns = Vec::new();
        for key in archive.keys().into_iter().filter(|key| !known.contains(key)) {
            let Ok(Some(header)) = archive.header(&key) else { continue };
            if header.shape != [length] {
                continue;
            }
            let kind = Kind::of(&header.dtype);
            archive.scan(&key, |dtype, bytes| values(kind, dtype, bytes, &mut empty(kind)))?;
            let stream = archive.stream(&key)?;
            columns.push((Arc::from(key.as_str()), kind, stream));
        }
        Ok(Columns(columns))
    }

    /// Returns the memory that one spectrum's cells take (bytes), texts at their longest.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, _, stream)| (stream.item() + size_of::<String>()) as u64).sum()
    }

    /// Reads the values of the next `rows` spectra in every column.
    pub(super) fn batch(&mut self, rows: usize, path: &Path) -> Result<Vec<Column>> {
        let one = |(name, kind, stream): &mut (Arc<str>, Kind, Stream)| {
            // as much memory as the widest value takes
            drop(reserve::<u64>(rows, path)?);
            let mut found = empty(*kind);
            stream.take(rows, |dtype, bytes| values(*kind, dtype, bytes, &mut found))?;
            Ok(column(name, found))
        };
        self.0.iter_mut().map(one).collect()
    }

    /// Returns the columns with names and types but without values.
    pub(super) fn empty(&self) -> Vec<Column> {
        self.0.iter().map(|(name, kind, _)| column(name, empty(*kind))).collect()
    }
}

/// Makes a column of this name and these values, without a unit or the name of a table.
fn column(name: &Arc<str>, values: ColumnValues) -> Column {
    Column { table: Arc::from(""), name: name.clone(), unit: Arc::from(""), values }
}

/// Returns an empty vector of values of this kind.
fn empty(kind: Kind) -> ColumnValues {
    match kind {
        Kind::Bool => ColumnValues::Bool(Vec::new()),
        Kind::Integer => ColumnValues::I64(Vec::new()),
        Kind::Natural => ColumnValues::U64(Vec::new()),
        Kind::Single => ColumnValues::F32(Vec::new()),
        Kind::Double => ColumnValues::F64(Vec::new()),
        Kind::Text => ColumnValues::Text(Vec::new()),
    }
}

/// Decodes elements from `bytes` and appends them to `out`, which must be of this kind.
fn values(kind: Kind, dtype: &DType, bytes: &[u8], out: &mut ColumnValues) -> std::result::Result<(), String> {
    match (kind, out) {
        (Kind::Bool, ColumnValues::Bool(out)) => dtype.flags(bytes, out),
        (Kind::Integer, ColumnValues::I64(out)) => dtype.integers(bytes, out),
        (Kind::Natural, ColumnValues::U64(out)) => dtype.naturals(bytes, out),
        (Kind::Double, ColumnValues::F64(out)) => dtype.numbers(bytes, out),
        (Kind::Single, ColumnValues::F32(out)) => {
            let mut wide = Vec::with_capacity(bytes.len() / 4);
            dtype.numbers(bytes, &mut wide)?;
            out.extend(wide.into_iter().map(|x| x as f32));
            Ok(())
        }
        (Kind::Text, ColumnValues::Text(out)) => dtype.texts(bytes, out),
        _ => Err("not of its column's type".to_string()),
    }
}
