//! The result table as CSV: a header, then one line per row. Floats are read back exactly; not-a-number is `nan`,
//! infinities are `inf` and `-inf`. The numbers of a list are in one field, with a space between two of them.

use std::borrow::Cow;
use std::io;

use csv::{Error, ErrorKind, IntoInnerError, Writer};

use crate::io::files::File;
use crate::spectral::{FitValues, ResultColumn};

/// A result table that is being written as CSV.
pub(super) struct CsvTable {
    writer: Writer<File>,
}

impl CsvTable {
    /// Begins a CSV table in an empty file, and writes the line of column names.
    pub fn new(file: File, columns: &[ResultColumn]) -> io::Result<CsvTable> {
        let mut writer = Writer::from_writer(file);
        writer
            .write_record(columns.iter().map(|column| &column.name))
            .map_err(to_io_error)?;
        Ok(CsvTable { writer })
    }

    /// Writes one CSV line per row, with a field for each column.
    pub fn append(&mut self, columns: &[FitValues]) -> io::Result<()> {
        for row in 0..columns.first().map_or(0, FitValues::len) {
            for column in columns {
                let field: Cow<str> = match column {
                    FitValues::Int32(values) => values[row].to_string().into(),
                    FitValues::Int64(values) => values[row].to_string().into(),
                    FitValues::Float64(values) => format_float(values[row]).into(),
                    FitValues::Text(texts) => texts[row].as_str().into(),
                    FitValues::FloatLists(lists) => {
                        let floats: Vec<String> =
                            lists[row].iter().copied().map(format_float).collect();
                        floats.join(" ").into()
                    }
                };
                self.writer
                    .write_field(field.as_bytes())
                    .map_err(to_io_error)?;
            }
            self.writer
                .write_record(None::<&[u8]>)
                .map_err(to_io_error)?;
        }
        Ok(())
    }

    /// Flushes the buffered text to the file, and returns the file.
    pub fn finish(self) -> io::Result<File> {
        self.writer.into_inner().map_err(IntoInnerError::into_error)
    }
}

/// Converts an error of the CSV writer to an I/O error: the system's own error if that was the cause.
fn to_io_error(error: Error) -> io::Error {
    let text = error.to_string();
    match error.into_kind() {
        ErrorKind::Io(source) => source,
        _ => io::Error::other(text),
    }
}

/// Formats a number as the shortest text that parses to the same f64; NaN is `nan`.
fn format_float(x: f64) -> String {
    if x.is_nan() {
        "nan".into()
    } else {
        format!("{x:?}")
    }
}
