//! CSV: a header, then a line a row. Floats read back exactly; not-a-number is `nan`, infinities `inf` and `-inf`.

use csv::{Error, IntoInnerError, Writer};

use super::columns::{Column, Value};
use crate::files::File;
use crate::fit::FitRow;

pub(super) struct CsvTable {
    writer: Writer<File>,
}

impl CsvTable {
    pub fn new(file: File, columns: &[Column]) -> Result<CsvTable, Error> {
        let mut writer = Writer::from_writer(file);
        writer.write_record(columns.iter().map(|column| &column.name))?;
        Ok(CsvTable { writer })
    }

    pub fn append(&mut self, columns: &[Column], rows: &[FitRow]) -> Result<(), Error> {
        for row in rows {
            for column in columns {
                match column.value(row) {
                    Value::Integer(n) => self.writer.write_field(n.to_string())?,
                    Value::Float(x) => self.writer.write_field(float(x))?,
                    Value::Text(text) => self.writer.write_field(text.as_bytes())?,
                }
            }
            self.writer.write_record(None::<&[u8]>)?;
        }
        Ok(())
    }

    pub fn finish(self) -> Result<File, Error> {
        self.writer.into_inner().map_err(|error: IntoInnerError<_>| error.into_error().into())
    }
}

/// The shortest text that reads back as the same number.
fn float(x: f64) -> String {
    if x.is_nan() { "nan".into() } else { format!("{x:?}") }
}
