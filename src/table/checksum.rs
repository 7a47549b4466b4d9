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
//! NaN with the bits that it has; texts in UTF-8, each followed by the byte FF; lists of floats as their length, in
//! eight little-endian bytes, followed by their floats. There are no nulls: a table that has some differs from what
//! popfit wrote. The last line is the hash of the other keys, without `ARROW:schema`, in the
//! order of their bytes: key, FF, value, FF.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use twox_hash::XxHash3_128;

use super::MetadataEntry;
pub(super) use super::metadata_hash::CHECKSUM_KEY;
use super::metadata_hash::{HASH_NAME, TEXT_END, hash_metadata};
use super::parquet::{MEANING_KEY, UNIT_KEY};
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
            self.columns = batch
                .schema_ref()
                .fields()
                .iter()
                .map(start_column_hash)
                .collect();
        }
        let schema = batch.schema_ref();
        let columns = schema.fields().iter().zip(batch.columns());
        for (hash, (field, array)) in self.columns.iter_mut().zip(columns) {
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
fn start_column_hash(field: &arrow_schema::FieldRef) -> XxHash3_128 {
    let unit = field.metadata().get(UNIT_KEY);
    let meaning = field.metadata().get(MEANING_KEY);
    let mut hash = XxHash3_128::new();
    for text in [Some(field.name()), unit, meaning] {
        hash.write(text.map_or("", String::as_str).as_bytes());
        hash.write(&[TEXT_END]);
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
                bytes.push(TEXT_END);
            }
            hash.write(&bytes);
        }
        DataType::List(_) => {
            for list in array.as_list::<i32>().iter().flatten() {
                hash.write(&(list.len() as u64).to_le_bytes());
                hash_values(hash, &list)?;
            }
        }
        data_type => return Err(format!("its type {data_type} is none that popfit writes")),
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
pub(super) struct RowGroupChecksums {
    rows_per_group: u64,
    /// First row of the row group that is being written.
    group_start: u64,
    /// Hash of the row group that is being written.
    group_hash: RowsHash,
    lines: Vec<String>,
}

impl RowGroupChecksums {
    /// Returns the checksums of a table without rows, which will have one checksum for every `rows_per_group` rows.
    pub fn new(rows_per_group: usize) -> RowGroupChecksums {
        RowGroupChecksums {
            rows_per_group: rows_per_group as u64,
            group_start: 0,
            group_hash: RowsHash::new(),
            lines: vec![HASH_NAME.into()],
        }
    }

    /// Hashes the next rows of the table, and notes the checksum of every row group that they complete.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), String> {
        let rows = batch.num_rows();
        let mut hashed = 0;
        while hashed < rows {
            let missing = self.rows_per_group - self.group_hash.rows;
            let count = (rows - hashed).min(missing as usize);
            self.group_hash.add(&batch.slice(hashed, count))?;
            hashed += count;
            if self.group_hash.rows == self.rows_per_group {
                self.end_group();
            }
        }
        Ok(())
    }

    /// Notes the row range and checksum of the present row group as a line of text, and begins the next group.
    fn end_group(&mut self) {
        let first_row = self.group_start;
        let group_end = first_row + self.group_hash.rows;
        let last_row = group_end - 1;
        let digest = self.group_hash.digest();
        self.lines
            .push(format!("{first_row}-{last_row} {digest:032x}"));
        self.group_start = group_end;
        self.group_hash = RowsHash::new();
    }

    /// Returns the text with all checksums for the metadata key [`CHECKSUM_KEY`]: one line per row group, then that of
    /// `entries`.
    pub fn finish(mut self, entries: &[MetadataEntry]) -> String {
        if self.group_hash.rows > 0 {
            self.end_group();
        }
        self.lines
            .push(format!("metadata {:032x}", hash_metadata(entries)));
        self.lines.join("\n")
    }
}

/// Comparison of the rows that are read with a table's checksums.
pub(super) struct RowGroupVerifier {
    /// Last row and checksum of each row group that is still to be read, the next one last.
    expected: Vec<(u64, u128)>,
    /// First row of the row group that is being read.
    group_start: u64,
    /// Hash of the row group that is being read.
    group_hash: RowsHash,
}

impl RowGroupVerifier {
    /// Parses a table's checksums from `text`; fails if they are not for `rows` rows, or do not match its metadata
    /// `entries`.
    ///
    /// # Errors
    /// Returns a message if the text is not one of [`RowGroupChecksums::finish`], or if the number of rows or the
    /// metadata differ.
    pub fn new(
        text: &str,
        rows: u64,
        entries: &[MetadataEntry],
    ) -> Result<RowGroupVerifier, String> {
        // 1. Parse the lines: row groups that follow one another, then the metadata.
        let unreadable =
            || format!("damaged: its checksums, metadata key {CHECKSUM_KEY}, cannot be read");
        let mut lines = text.lines();
        if lines.next() != Some(HASH_NAME) {
            return Err(unreadable());
        }
        let mut expected = Vec::new();
        let mut next_row = 0;
        let mut metadata_hash = None;
        for line in lines {
            let (label, hex) = line.split_once(' ').ok_or_else(unreadable)?;
            let hash = u128::from_str_radix(hex, 16).map_err(|_| unreadable())?;
            match label.split_once('-') {
                Some((first, last)) if first.parse() == Ok(next_row) && metadata_hash.is_none() => {
                    let last_row: u64 = last
                        .parse()
                        .ok()
                        .filter(|last_row| *last_row >= next_row)
                        .ok_or_else(unreadable)?;
                    expected.push((last_row, hash));
                    next_row = last_row.checked_add(1).ok_or_else(unreadable)?;
                }
                None if label == "metadata" && metadata_hash.is_none() => {
                    metadata_hash = Some(hash)
                }
                _ => return Err(unreadable()),
            }
        }
        // 2. Compare the metadata and the number of rows at once.
        if metadata_hash != Some(hash_metadata(entries)) {
            return Err(damage_message("its metadata's texts"));
        }
        if next_row != rows {
            return Err(format!(
                "damaged: it has {rows} rows, its checksums are those of {next_row}"
            ));
        }
        expected.reverse();
        Ok(RowGroupVerifier {
            expected,
            group_start: 0,
            group_hash: RowsHash::new(),
        })
    }

    /// Hashes the next rows, and fails if a row group that they complete does not match the checksum noted for it.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), String> {
        let rows = batch.num_rows();
        let mut hashed = 0;
        while hashed < rows {
            // 1. Hash the rows of the batch that belong to the present row group.
            let Some(&(last_row, expected)) = self.expected.last() else {
                return Err("damaged: too many rows".into());
            };
            let group_rows = last_row - self.group_start + 1;
            let missing = usize::try_from(group_rows - self.group_hash.rows).unwrap_or(usize::MAX);
            let count = (rows - hashed).min(missing);
            let group_changed = damage_message(&format!("rows {} to {last_row}", self.group_start));
            self.group_hash
                .add(&batch.slice(hashed, count))
                .map_err(|message| format!("{group_changed}: {message}"))?;
            hashed += count;
            // 2. Compare the group once it is complete, and begin the next one.
            if self.group_hash.rows == group_rows {
                if self.group_hash.digest() != expected {
                    return Err(group_changed);
                }
                self.expected.pop();
                self.group_start = last_row + 1;
                self.group_hash = RowsHash::new();
            }
        }
        Ok(())
    }

    /// Fails if fewer rows were added than the checksums are for, as in a truncated file.
    pub fn finish(&self) -> Result<(), String> {
        if self.expected.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "damaged: rows from {} on are missing",
                self.group_start
            ))
        }
    }
}
