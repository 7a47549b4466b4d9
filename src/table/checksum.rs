//! Checksums of a Parquet table, which reveal changed bytes: the key `popfit.checksum` of the footer's metadata. The
//! parquet crate writes no page checksums, so each row group has one over the values of its columns, and the reader
//! compares it after the last row of the group.
//!
//! All are XXH3 of 128 bits with seed 0 (Python: `xxhash.xxh3_128`). The value is text:
//!
//! ```text
//! xxh3_128
//! 0-8191 0123456789abcdef0123456789abcdef
//! 8192-9999 …
//! metadata …
//! ```
//!
//! A line per row group gives its first and last row and its checksum: the hash of the columns' digests (16 bytes each,
//! big-endian, as `digest()` returns them) one after the other, in the order of the file. The digest of a column is the
//! hash of its name, unit and meaning (the field's metadata `unit` and `description`; empty without), each in UTF-8 and
//! followed by the byte FF, and of the row group's values: integers and floats as little-endian bytes of their type,
//! NaN with the bits that it has; texts in UTF-8, each followed by the byte FF. There are no nulls: a table that has
//! some differs from what popfit wrote. The last line is the hash of the other keys, without `ARROW:schema`, in the
//! order of their bytes: key, FF, value, FF.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use twox_hash::XxHash3_128;

use super::Entry;
pub(super) use super::metadata_hash::KEY;
use super::metadata_hash::{ALGORITHM, END, of_metadata};
use super::parquet::{MEANING, UNIT};
use crate::error::damage_message;

/// Hash of consecutive rows, which come in batches.
struct RowsHash {
    /// Hashes of the columns; empty before the first batch.
    columns: Vec<XxHash3_128>,
    rows: u64,
}

impl RowsHash {
    /// Returns a hasher that has seen no rows of a table yet.
    fn new() -> RowsHash {
        RowsHash {
            columns: Vec::new(),
            rows: 0,
        }
    }

    /// Hashes the rows of a batch, column by column, after those added before; fails for empty cells or unknown types.
    /// Those of the first batch decide the columns.
    fn add(&mut self, batch: &RecordBatch) -> Result<(), String> {
        if self.columns.is_empty() {
            self.columns = batch.schema_ref().fields().iter().map(named_hash).collect();
        }
        for (hash, (field, array)) in self
            .columns
            .iter_mut()
            .zip(batch.schema_ref().fields().iter().zip(batch.columns()))
        {
            hash_values(hash, array)
                .map_err(|message| format!("column {}: {message}", field.name()))?;
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Returns the 128-bit hash of all rows added so far, made of the hashes of the columns.
    fn digest(&self) -> u128 {
        let digests: Vec<u8> = self
            .columns
            .iter()
            .flat_map(|column| column.finish_128().to_be_bytes())
            .collect();
        XxHash3_128::oneshot(&digests)
    }
}

/// Starts the hash of a column with its name, unit and meaning, before any value of the column is added.
fn named_hash(field: &arrow_schema::FieldRef) -> XxHash3_128 {
    let known = |key: &str| field.metadata().get(key).map_or("", |text| text.as_str());
    let mut hash = XxHash3_128::new();
    for text in [field.name().as_str(), known(UNIT), known(MEANING)] {
        hash.write(text.as_bytes());
        hash.write(&[END]);
    }
    hash
}

/// Adds the values of an array to the running hash of its column; fails for empty cells and types that popfit never
/// writes.
fn hash_values(hash: &mut XxHash3_128, array: &dyn Array) -> Result<(), String> {
    if array.null_count() > 0 {
        return Err("it has empty cells, which popfit does not write".into());
    }
    match array.data_type() {
        DataType::Int32 => hash_numbers::<Int32Type, 4>(hash, array, i32::to_le_bytes),
        DataType::Int64 => hash_numbers::<Int64Type, 8>(hash, array, i64::to_le_bytes),
        DataType::Float64 => hash_numbers::<Float64Type, 8>(hash, array, f64::to_le_bytes),
        DataType::Utf8 => {
            let mut bytes = Vec::new();
            for text in array.as_string::<i32>().iter().flatten() {
                bytes.extend_from_slice(text.as_bytes());
                bytes.push(END);
            }
            hash.write(&bytes);
        }
        other => return Err(format!("its type {other} is none that popfit writes")),
    }
    Ok(())
}

/// Adds numbers to the hash of their column.
fn hash_numbers<T: ArrowPrimitiveType, const N: usize>(
    hash: &mut XxHash3_128,
    array: &dyn Array,
    to_bytes: fn(T::Native) -> [u8; N],
) {
    let values = array.as_primitive::<T>().values();
    let mut bytes = Vec::with_capacity(values.len() * N);
    for value in values {
        bytes.extend_from_slice(&to_bytes(*value));
    }
    hash.write(&bytes);
}

/// Checksums of a table that is being written.
pub(super) struct Checksums {
    /// Number of rows of a row group.
    group: u64,
    /// First row of the row group that is being written.
    first: u64,
    /// Hash of the row group that is being written.
    hash: RowsHash,
    lines: Vec<String>,
}

impl Checksums {
    /// Returns the checksums of a table without rows, which will have one checksum for every `group` rows.
    pub fn new(group: usize) -> Checksums {
        Checksums {
            group: group as u64,
            first: 0,
            hash: RowsHash::new(),
            lines: vec![ALGORITHM.into()],
        }
    }

    /// Hashes the next rows of the table, and notes the checksum of every row group that they complete.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), String> {
        let (mut from, rows) = (0, batch.num_rows());
        while from < rows {
            let count = (rows - from).min((self.group - self.hash.rows) as usize);
            self.hash.add(&batch.slice(from, count))?;
            from += count;
            if self.hash.rows == self.group {
                self.end_group();
            }
        }
        Ok(())
    }

    /// Notes the row range and checksum of the present row group as a line of text, and begins the next group.
    fn end_group(&mut self) {
        let next = self.first + self.hash.rows;
        self.lines.push(format!(
            "{}-{} {:032x}",
            self.first,
            next - 1,
            self.hash.digest()
        ));
        (self.first, self.hash) = (next, RowsHash::new());
    }

    /// Returns the text with all checksums for the metadata key [`KEY`]: one line per row group, then that of
    /// `entries`.
    pub fn finish(mut self, entries: &[Entry]) -> String {
        if self.hash.rows > 0 {
            self.end_group();
        }
        self.lines
            .push(format!("metadata {:032x}", of_metadata(entries)));
        self.lines.join("\n")
    }
}

/// Comparison of the rows that are read with a table's checksums.
pub(super) struct Verifier {
    /// Last row and checksum of each row group that is still to be read, the next one last.
    expected: Vec<(u64, u128)>,
    /// First row of the row group that is being read.
    first: u64,
    /// Hash of the row group that is being read.
    hash: RowsHash,
}

impl Verifier {
    /// Parses a table's checksums from `text`; fails if they are not for `rows` rows, or do not match its metadata
    /// `entries`.
    ///
    /// # Errors
    /// Returns a message if the text is not one of [`Checksums::finish`], or if the number of rows or the metadata
    /// differ.
    pub fn new(text: &str, rows: u64, entries: &[Entry]) -> Result<Verifier, String> {
        let unreadable = || format!("damaged: its checksums, metadata key {KEY}, cannot be read");
        let mut lines = text.lines();
        if lines.next() != Some(ALGORITHM) {
            return Err(unreadable());
        }
        let (mut expected, mut next, mut metadata) = (Vec::new(), 0, None);
        for line in lines {
            let (what, hex) = line.split_once(' ').ok_or_else(unreadable)?;
            let sum = u128::from_str_radix(hex, 16).map_err(|_| unreadable())?;
            match what.split_once('-') {
                Some((first, last)) if first.parse() == Ok(next) && metadata.is_none() => {
                    let last: u64 = last
                        .parse()
                        .ok()
                        .filter(|last| *last >= next)
                        .ok_or_else(unreadable)?;
                    expected.push((last, sum));
                    next = last.checked_add(1).ok_or_else(unreadable)?;
                }
                None if what == "metadata" && metadata.is_none() => metadata = Some(sum),
                _ => return Err(unreadable()),
            }
        }
        if metadata != Some(of_metadata(entries)) {
            return Err(damage_message("its metadata's texts"));
        }
        if next != rows {
            return Err(format!(
                "damaged: it has {rows} rows, its checksums are those of {next}"
            ));
        }
        expected.reverse();
        Ok(Verifier {
            expected,
            first: 0,
            hash: RowsHash::new(),
        })
    }

    /// Hashes the next rows, and fails if a row group that they complete does not match the checksum noted for it.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), String> {
        let (mut from, rows) = (0, batch.num_rows());
        while from < rows {
            let Some(&(last, expected)) = self.expected.last() else {
                return Err("damaged: too many rows".into());
            };
            let group = last - self.first + 1;
            let count =
                (rows - from).min(usize::try_from(group - self.hash.rows).unwrap_or(usize::MAX));
            let what = || format!("rows {} to {last}", self.first);
            let added = self.hash.add(&batch.slice(from, count));
            added.map_err(|message| format!("{}: {message}", damage_message(&what())))?;
            from += count;
            if self.hash.rows == group {
                if self.hash.digest() != expected {
                    return Err(damage_message(&what()));
                }
                self.expected.pop();
                (self.first, self.hash) = (last + 1, RowsHash::new());
            }
        }
        Ok(())
    }

    /// Fails if fewer rows were added than the checksums are for, as in a truncated file.
    pub fn finish(&self) -> Result<(), String> {
        if self.expected.is_empty() {
            Ok(())
        } else {
            Err(format!("damaged: rows from {} on are missing", self.first))
        }
    }
}
