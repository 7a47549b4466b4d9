//! The result table as FITS: HDU 1 `RESULTS`, and HDU 2 `METADATA` with the metadata, of which the last entry is the
//! checksum of HDU 1 (`fits_checksum.rs`).
//!
//! Text in FITS is printable ASCII, and trailing spaces are not significant. [`escape`] writes any text so that
//! [`unescape`] restores it.

use std::io::{BufWriter, Write};
use std::path::Path;

use super::MetadataEntry;
use super::fits_checksum::{self, HashingWriter, RESULTS};
use super::metadata_hash::CHECKSUM_KEY;
use crate::error::Result;
use crate::io::files::File;
use crate::io::fits::sum::OnesSum;
use crate::io::fits::writer::cards::Cards;
use crate::io::fits::writer::table::{CellValues, FitsColumn, TableUnit, refused};
use crate::io::output::Metadata;
use crate::spectra;
use crate::spectral::{ColumnKind, FitRow, FitValues, ResultColumn, Store};

/// A result table that is being written as FITS.
pub(super) struct FitsTable {
    file: File,
    pub(super) table: TableUnit,
    pub(super) metadata: Vec<MetadataEntry>,
}

impl FitsTable {
    /// Begins a FITS result table with these columns; `file` stays empty until `finish`.
    pub fn new(
        path: &Path,
        file: File,
        columns: &[ResultColumn],
        metadata: &Metadata,
    ) -> Result<FitsTable> {
        let table = begin_fits_table(path, RESULTS, columns)?
            .card(fits_checksum::CHECKSUM_KEYWORD, CHECKSUM_KEY);
        Ok(FitsTable {
            file,
            table,
            metadata: metadata.table_entries(),
        })
    }

    /// Appends rows, which are given by columns, to the table's temporary file.
    pub fn append(&mut self, columns: Vec<FitValues>) -> std::io::Result<()> {
        self.table
            .append(&columns.into_iter().map(to_fits_values).collect::<Vec<_>>())
    }

    /// Adds a key and value to the metadata, which `finish` writes as a table of its own.
    pub fn add_metadata(&mut self, entry: MetadataEntry) {
        self.metadata.push(entry);
    }

    /// Writes the FITS file: header, result table, then metadata table; returns the flushed file.
    pub fn finish(mut self, path: &Path) -> Result<File> {
        let mut out = BufWriter::new(self.file);
        out.write_all(&Cards::primary().into_header(OnesSum::default()))
            .map_err(refused(path))?;
        let mut hashing_writer = HashingWriter::new(&mut out);
        self.table
            .write(&mut hashing_writer)
            .map_err(refused(path))?;
        let checksum_entry = fits_checksum::checksum_entry(hashing_writer.hash(), &self.metadata);
        self.metadata.push(checksum_entry);
        build_metadata_table(path, &self.metadata)?
            .write(&mut out)
            .map_err(refused(path))?;
        out.into_inner()
            .map_err(|error| refused(path)(error.into_error()))
    }
}

/// Begins a FITS table of columns of the result table, without rows.
pub(super) fn begin_fits_table(
    path: &Path,
    name: &str,
    columns: &[ResultColumn],
) -> Result<TableUnit> {
    let mut fits_columns = Vec::new();
    for column in columns {
        let name = escape(&column.name);
        let unit = escape(fits_unit_name(&column.unit));
        let values = empty_values(column.kind);
        fits_columns.push(FitsColumn::of_cells(&name, &unit, &values).comment(&column.meaning));
    }
    TableUnit::new(path, name, fits_columns)
}

/// Returns the values of columns of the result table in these rows, as a FITS table has them.
pub(super) fn fits_values_of_rows(rows: &[FitRow], columns: &[ResultColumn]) -> Vec<CellValues> {
    Store::from_rows(rows)
        .into_values(columns)
        .into_iter()
        .map(to_fits_values)
        .collect()
}

/// Returns a FITS table of metadata: text columns `key` and `value`, one row per line of a value, as the model file has
/// many. The value is read back as the lines of a key, joined by line feeds.
pub(super) fn build_metadata_table(path: &Path, entries: &[MetadataEntry]) -> Result<TableUnit> {
    let no_texts = spectra::ColumnValues::Text(Vec::new());
    let columns = ["key", "value"].map(|name| FitsColumn::new(name, "", &no_texts));
    let mut table = TableUnit::new(path, "METADATA", columns.to_vec())?;
    let mut keys = Vec::new();
    let mut lines = Vec::new();
    for MetadataEntry { key, value } in entries {
        for line in value.split('\n') {
            keys.push(escape(key));
            lines.push(escape(line));
        }
    }
    table
        .append(&[keys, lines].map(|texts| spectra::ColumnValues::Text(texts).into()))
        .map_err(refused(path))?;
    Ok(table)
}

/// Writes a text in printable ASCII. A backslash becomes `\\`, any other character that is not printable ASCII, and a
/// space at the end, its Rust escape, such as `\t` or `\u{3b2}`.
pub(super) fn escape(text: &str) -> String {
    let (body, last_space) = match text.strip_suffix(' ') {
        Some(body) => (body, r"\u{20}"),
        None => (text, ""),
    };
    let mut escaped = String::with_capacity(text.len());
    for character in body.chars() {
        match character {
            '\'' | '"' => escaped.push(character),
            _ => escaped.extend(character.escape_default()),
        }
    }
    escaped + last_space
}

/// Reads a text that [`escape`] wrote. A backslash that begins no escape is kept.
pub(super) fn unescape(text: &str) -> String {
    let mut unescaped = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        unescaped.push_str(before);
        let (character, length) = parse_escape(after).unwrap_or(('\\', 0));
        unescaped.push(character);
        rest = after.get(length..).unwrap_or_default();
    }
    unescaped + rest
}

/// Reads an escape after its backslash. Returns the character and the number of bytes read; `None` if it is not an
/// escape.
fn parse_escape(text: &str) -> Option<(char, usize)> {
    match text.bytes().next()? {
        b'\\' => Some(('\\', 1)),
        b't' => Some(('\t', 1)),
        b'r' => Some(('\r', 1)),
        b'n' => Some(('\n', 1)),
        _ => {
            let (digits, _) = text.strip_prefix("u{")?.split_once('}')?;
            let code = u32::from_str_radix(digits, 16).ok()?;
            Some((char::from_u32(code)?, digits.len() + 3))
        }
    }
}

/// Converts a unit's name from FITS to popfit's: `km s-1` to `km/s`, others as they are.
pub(super) fn parse_fits_unit(unit: &str) -> &str {
    if unit == "km s-1" { "km/s" } else { unit }
}

/// Converts a unit's name from popfit's to that in FITS: `km/s` to `km s-1`, others as they are.
pub(super) fn fits_unit_name(unit: &str) -> &str {
    if unit == "km/s" { "km s-1" } else { unit }
}

/// Returns an empty array of the element type that a column of this kind has.
fn empty_values(kind: ColumnKind) -> CellValues {
    to_fits_values(match kind {
        ColumnKind::Int32 => FitValues::Int32(Vec::new()),
        ColumnKind::Int64 => FitValues::Int64(Vec::new()),
        ColumnKind::Float64 => FitValues::Float64(Vec::new()),
        ColumnKind::Text => FitValues::Text(Vec::new()),
        ColumnKind::FloatLists => FitValues::FloatLists(Vec::new()),
    })
}

/// Converts the values of a column to those of a FITS table, whose texts have escapes.
fn to_fits_values(values: FitValues) -> CellValues {
    CellValues::Single(match values {
        FitValues::Int32(values) => spectra::ColumnValues::I32(values),
        FitValues::Int64(values) => spectra::ColumnValues::I64(values),
        FitValues::Float64(values) => spectra::ColumnValues::F64(values),
        FitValues::Text(texts) => {
            spectra::ColumnValues::Text(texts.iter().map(|text| escape(text)).collect())
        }
        FitValues::FloatLists(lists) => return CellValues::Lists(lists),
    })
}

#[cfg(test)]
mod tests {
    use super::{escape, unescape};

    #[test]
    fn escaped_texts_are_unescaped_to_the_same_text() {
        let texts = [
            "",
            "β Cen",
            r"\u{3b2} Cen",
            r"C:\new\table",
            "a",
            "a ",
            "a  ",
            " ",
            "tab\there\r\n",
            "\0",
            "π'\"",
            "\\",
        ];
        for text in texts {
            let escaped = escape(text);
            assert!(
                escaped.bytes().all(|byte| (b' '..=b'~').contains(&byte))
                    && !escaped.ends_with(' '),
                "{escaped}"
            );
            assert_eq!(unescape(&escaped), text);
        }
        assert_eq!(escape("β' \\ "), r"\u{3b2}' \\\u{20}");
        for foreign in [r"\q", r"\u{zz}", r"\u{110000}", r"\u", r"\u{"] {
            assert_eq!(unescape(foreign), foreign);
        }
    }
}
