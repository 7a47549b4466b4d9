//! The result table as FITS: HDU 1 `RESULTS`, and HDU 2 `METADATA` with the metadata, of which the last entry is the
//! checksum of HDU 1 (`fits_checksum.rs`).
//!
//! Text in FITS is printable ASCII, and trailing spaces are not significant. [`escape`] writes any text so that
//! [`unescape`] restores it.

use std::io::{BufWriter, Write};
use std::path::Path;

use super::Entry;
use super::fits_checksum::{self, HashingWriter, RESULTS};
use super::metadata_hash::KEY;
use crate::error::Result;
use crate::io::files::File;
use crate::io::fits::sum::OnesSum;
use crate::io::fits::writer::cards::Cards;
use crate::io::fits::writer::table::{FitsColumn, TableUnit, refused};
use crate::io::output::Metadata;
use crate::spectra;
use crate::spectral::{ColumnKind, FitRow, FitValues, ResultColumn, Store};

/// A result table that is being written as FITS.
pub(super) struct FitsTable {
    file: File,
    pub(super) table: TableUnit,
    pub(super) metadata: Vec<Entry>,
}

impl FitsTable {
    /// Begins a FITS result table with these columns; `file` stays empty until `finish`.
    pub fn new(
        path: &Path,
        file: File,
        columns: &[ResultColumn],
        metadata: &Metadata,
    ) -> Result<FitsTable> {
        let table = columns_unit(path, RESULTS, columns)?.card(fits_checksum::CARD, KEY);
        Ok(FitsTable {
            file,
            table,
            metadata: metadata.table_entries(),
        })
    }

    /// Appends rows, which are given by columns, to the table's temporary file.
    pub fn append(&mut self, columns: Vec<FitValues>) -> std::io::Result<()> {
        self.table
            .append(&columns.into_iter().map(as_in_fits).collect::<Vec<_>>())
    }

    /// Adds a key and value to the metadata, which `finish` writes as a table of its own.
    pub fn describe(&mut self, entry: Entry) {
        self.metadata.push(entry);
    }

    /// Writes the FITS file: header, result table, then metadata table; returns the flushed file.
    pub fn finish(mut self, path: &Path) -> Result<File> {
        let mut out = BufWriter::new(self.file);
        out.write_all(&Cards::primary().finish(OnesSum::default()))
            .map_err(refused(path))?;
        let mut results = HashingWriter::new(&mut out);
        self.table.write(&mut results).map_err(refused(path))?;
        let checksums = fits_checksum::entry(results.hash(), &self.metadata);
        self.metadata.push(checksums);
        metadata_unit(path, &self.metadata)?
            .write(&mut out)
            .map_err(refused(path))?;
        out.into_inner().map_err(|e| refused(path)(e.into_error()))
    }
}

/// Begins a FITS table of columns of the result table, without rows.
pub(super) fn columns_unit(path: &Path, name: &str, columns: &[ResultColumn]) -> Result<TableUnit> {
    let column = |c: &ResultColumn| {
        FitsColumn::new(&escape(&c.name), &escape(spelled(&c.unit)), &like(c.kind))
            .comment(&c.meaning)
    };
    TableUnit::new(path, name, columns.iter().map(column).collect())
}

/// Returns the values of columns of the result table in these rows, as a FITS table has them.
pub(super) fn of_rows(rows: &[FitRow], columns: &[ResultColumn]) -> Vec<spectra::ColumnValues> {
    Store::from_rows(rows)
        .into_values(columns)
        .into_iter()
        .map(as_in_fits)
        .collect()
}

/// Returns a FITS table of metadata: text columns `key` and `value`, one row per line of a value, as the model file has
/// many. The value is read back as the lines of a key, joined by line feeds.
pub(super) fn metadata_unit(path: &Path, entries: &[Entry]) -> Result<TableUnit> {
    let text = spectra::ColumnValues::Text(Vec::new());
    let columns = ["key", "value"].map(|name| FitsColumn::new(name, "", &text));
    let mut table = TableUnit::new(path, "METADATA", columns.to_vec())?;
    let lines = || {
        entries
            .iter()
            .flat_map(|Entry { key, value }| value.split('\n').map(move |line| (key, line)))
    };
    let keys = lines().map(|(key, _)| escape(key)).collect();
    let values = lines().map(|(_, line)| escape(line)).collect();
    table
        .append(&[keys, values].map(spectra::ColumnValues::Text))
        .map_err(refused(path))?;
    Ok(table)
}

/// Writes a text in printable ASCII. A backslash becomes `\\`, any other character that is not printable ASCII, and a
/// space at the end, its Rust escape, such as `\t` or `\u{3b2}`.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (body, last) = text
        .strip_suffix(' ')
        .map_or((text, ""), |body| (body, r"\u{20}"));
    for c in body.chars() {
        match c {
            '\'' | '"' => out.push(c),
            other => out.extend(other.escape_default()),
        }
    }
    out + last
}

/// Reads a text that [`escape`] wrote. A backslash that begins no escape is kept.
pub(super) fn unescape(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let (c, length) = unescape_one(after).unwrap_or(('\\', 0));
        out.push(c);
        rest = after.get(length..).unwrap_or_default();
    }
    out + rest
}

/// Reads an escape after its backslash. Returns the character and the number of bytes read; `None` if it is not an
/// escape.
fn unescape_one(text: &str) -> Option<(char, usize)> {
    let hex = || {
        let (digits, _) = text.strip_prefix("u{")?.split_once('}')?;
        Some((
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)?,
            digits.len() + 3,
        ))
    };
    match text.bytes().next()? {
        b'\\' => Some(('\\', 1)),
        b't' => Some(('\t', 1)),
        b'r' => Some(('\r', 1)),
        b'n' => Some(('\n', 1)),
        _ => hex(),
    }
}

/// Converts a unit's name from FITS to popfit's: `km s-1` to `km/s`, others as they are.
pub(super) fn read_unit(unit: &str) -> &str {
    if unit == "km s-1" { "km/s" } else { unit }
}

/// Converts a unit's name from popfit's to that in FITS: `km/s` to `km s-1`, others as they are.
pub(super) fn spelled(unit: &str) -> &str {
    if unit == "km/s" { "km s-1" } else { unit }
}

/// Returns an empty array of the element type that a column of this kind has.
fn like(kind: ColumnKind) -> spectra::ColumnValues {
    as_in_fits(match kind {
        ColumnKind::Int32 => FitValues::Int32(Vec::new()),
        ColumnKind::Int64 => FitValues::Int64(Vec::new()),
        ColumnKind::Float64 => FitValues::Float64(Vec::new()),
        ColumnKind::Text => FitValues::Text(Vec::new()),
    })
}

/// Converts the values of a column to those of a FITS table, whose texts have escapes.
fn as_in_fits(values: FitValues) -> spectra::ColumnValues {
    match values {
        FitValues::Int32(values) => spectra::ColumnValues::I32(values),
        FitValues::Int64(values) => spectra::ColumnValues::I64(values),
        FitValues::Float64(values) => spectra::ColumnValues::F64(values),
        FitValues::Text(texts) => {
            spectra::ColumnValues::Text(texts.iter().map(|text| escape(text)).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{escape, unescape};

    #[test]
    fn any_text_is_read_as_it_was() {
        let all = [
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
        for text in all {
            let written = escape(text);
            assert!(
                written.bytes().all(|b| (b' '..=b'~').contains(&b)) && !written.ends_with(' '),
                "{written}"
            );
            assert_eq!(unescape(&written), text);
        }
        assert_eq!(escape("β' \\ "), r"\u{3b2}' \\\u{20}");
        for foreign in [r"\q", r"\u{zz}", r"\u{110000}", r"\u", r"\u{"] {
            assert_eq!(unescape(foreign), foreign);
        }
    }
}
