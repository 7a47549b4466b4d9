//! Binary tables: columns of one value per row, and arrays of numbers in a cell. Lists in a heap are read by
//! `lists.rs`. Bits and complex numbers are left out.

use std::ops::Range;

use super::cards::Header;
use super::hdu::Fits;
use crate::error::{Error, Result};
use crate::io::column::ColumnValues;

/// Maximum number of columns, by the standard.
const MAX_COLUMNS: i64 = 999;

/// A table's shape and columns.
#[derive(Clone, Debug)]
pub struct Table {
    pub rows: usize,
    pub row_bytes: usize,
    pub columns: Vec<TableColumn>,
}

/// Description of a column.
#[derive(Clone, Debug)]
pub struct TableColumn {
    pub name: String,
    pub unit: String,
    /// Letter of the type in TFORM.
    code: u8,
    /// Letter of the type of the numbers in the heap, for a column of descriptors.
    heap_code: Option<u8>,
    repeat: usize,
    /// Offset in a row (bytes).
    offset: usize,
    /// Number of bytes of a cell.
    width: usize,
    scale: f64,
    zero: f64,
}

impl Table {
    /// Reads the description of a binary table from its header; fails if its columns do not fill a row.
    pub fn new(header: &Header, shape: &[u64]) -> Result<Table, String> {
        let &[row_bytes, rows] = shape else {
            return Err("a table that is not of two axes".into());
        };
        if header.integer("BITPIX") != Some(8) || header.integer("GCOUNT").unwrap_or(1) != 1 {
            return Err("a table whose BITPIX is not 8, or GCOUNT not 1".into());
        }
        // 1. Read the columns one after another, each behind the one before.
        let fields = header
            .integer("TFIELDS")
            .filter(|n| (0..=MAX_COLUMNS).contains(n))
            .ok_or("no valid TFIELDS")?;
        let mut columns = Vec::new();
        let mut offset = 0usize;
        for k in 1..=fields {
            let column = TableColumn::new(header, k, offset)?;
            offset = offset
                .checked_add(column.width)
                .ok_or("its row is too wide")?;
            columns.push(column);
        }
        // 2. Together they fill a row.
        if offset as u64 != row_bytes || (rows > 0 && row_bytes == 0) {
            return Err(format!(
                "its columns take {offset} bytes, its {rows} rows have {row_bytes}"
            ));
        }
        let rows = usize::try_from(rows).map_err(|_| "too many rows")?;
        Ok(Table {
            rows,
            row_bytes: offset,
            columns,
        })
    }

    /// Returns the offsets in the unit's data at which the heap behind the rows begins and ends.
    ///
    /// # Errors
    /// Returns a message if the header's THEAP or PCOUNT is not valid.
    pub fn heap(&self, header: &Header) -> Result<Range<u64>, String> {
        let table_bytes = self.rows as u64 * self.row_bytes as u64; // does not overflow: the rows lie in the file
        let start = match header.integer("THEAP") {
            Some(offset) => u64::try_from(offset).ok(),
            None => Some(table_bytes),
        };
        let start = start.filter(|offset| *offset >= table_bytes);
        let end = header
            .integer("PCOUNT")
            .and_then(|heap_bytes| table_bytes.checked_add(u64::try_from(heap_bytes).ok()?));
        match (start, end) {
            (Some(start), Some(end)) => Ok(start..end),
            _ => Err("no valid THEAP or PCOUNT".into()),
        }
    }

    /// Returns the column of this name, whatever its case; `None` if there is none.
    pub fn column(&self, name: &str) -> Option<&TableColumn> {
        self.columns
            .iter()
            .find(|column| column.name.eq_ignore_ascii_case(name))
    }
}

#[allow(
    clippy::indexing_slicing,
    reason = "Table::new has checked that every cell lies in its row, and has the width of its type"
)]
impl TableColumn {
    /// Reads the description of column `k`, counted from 1, which begins at byte `offset` of a row.
    fn new(header: &Header, k: i64, offset: usize) -> Result<TableColumn, String> {
        // 1. Split the form, such as 3E, into a count and the letter of a type.
        let form = header
            .text(&format!("TFORM{k}"))
            .ok_or_else(|| format!("no TFORM{k}"))?
            .trim();
        let invalid = || format!("TFORM{k} is {form:?}");
        let digits = form.bytes().take_while(u8::is_ascii_digit).count();
        let repeat = match digits {
            0 => 1,
            _ => form
                .split_at(digits)
                .0
                .parse::<usize>()
                .map_err(|_| invalid())?,
        };
        let code = *form.as_bytes().get(digits).ok_or_else(invalid)?;
        // 2. They give the width of a cell.
        let width = match code {
            b'X' => Some(repeat.div_ceil(8)),
            _ => element_bytes(code).ok_or_else(invalid)?.checked_mul(repeat),
        };
        Ok(TableColumn {
            name: header
                .text(&format!("TTYPE{k}"))
                .unwrap_or("")
                .trim()
                .to_string(),
            unit: header
                .text(&format!("TUNIT{k}"))
                .unwrap_or("")
                .trim()
                .to_string(),
            code,
            heap_code: form
                .as_bytes()
                .get(digits + 1)
                .copied()
                .filter(|_| matches!(code, b'P' | b'Q')),
            repeat,
            offset,
            width: width.ok_or_else(invalid)?,
            scale: header.float(&format!("TSCAL{k}")).unwrap_or(1.0),
            zero: header.float(&format!("TZERO{k}")).unwrap_or(0.0),
        })
    }

    /// Returns the memory that one decoded cell takes (bytes).
    pub fn memory(&self) -> usize {
        if self.code == b'A' {
            self.width.saturating_add(size_of::<String>())
        } else {
            size_of::<f64>()
        }
    }

    /// Returns whether each cell is one number, logical or text that popfit reads, not an array.
    pub fn is_single(&self) -> bool {
        match self.code {
            b'A' => self.repeat > 0,
            b'L' | b'B' | b'I' | b'J' | b'K' | b'E' | b'D' => self.repeat == 1,
            _ => false,
        }
    }

    /// Returns whether each cell holds one or more numbers.
    pub fn is_numeric(&self) -> bool {
        matches!(self.code, b'B' | b'I' | b'J' | b'K' | b'E' | b'D') && self.repeat > 0
    }

    /// Returns whether each cell holds one or more integers.
    pub fn is_integer(&self) -> bool {
        self.is_numeric() && !matches!(self.code, b'E' | b'D')
    }

    /// Returns the number of elements of a cell.
    pub fn repeat(&self) -> usize {
        self.repeat
    }

    /// Returns the size (bytes) of the integers that a cell's elements are; 8 for floats, which may hold any of these.
    pub fn integer_bytes(&self) -> usize {
        if self.is_integer() {
            self.width / self.repeat
        } else {
            size_of::<i64>()
        }
    }

    /// Returns the offset in a row (bytes) of the descriptor of an array in the heap, and whether it has 64 bits;
    /// `None` for a column of another type.
    pub fn descriptor(&self) -> Option<(usize, bool)> {
        (matches!(self.code, b'P' | b'Q') && self.repeat == 1)
            .then_some((self.offset, self.code == b'Q'))
    }

    /// Returns whether each cell is the descriptor of a list of floats in the heap.
    pub fn is_float_list(&self) -> bool {
        self.descriptor().is_some()
            && matches!(self.heap_code, Some(b'D' | b'E'))
            && (self.scale, self.zero) == (1.0, 0.0)
    }

    /// Returns the number of bytes of one float of a [list](Self::is_float_list): 4 or 8.
    pub fn list_element_bytes(&self) -> usize {
        if self.heap_code == Some(b'E') { 4 } else { 8 }
    }

    /// Decodes all numbers of a [numeric](Self::is_numeric) column from the bytes of whole rows, row by row.
    fn decode_numbers<'a>(
        &'a self,
        rows: &'a [u8],
        row_bytes: usize,
    ) -> impl Iterator<Item = f64> + 'a {
        let cells = rows
            .chunks_exact(row_bytes)
            .map(|row| &row[self.offset..][..self.width]);
        let stored = cells
            .flat_map(|cell| cell.chunks_exact(self.width / self.repeat))
            .map(|element| self.decode_stored(element));
        stored.map(|value| {
            if self.scale == 1.0 {
                value + self.zero
            } else {
                self.scale * value + self.zero
            }
        })
    }

    /// Decodes the column from the bytes of whole rows of `row_bytes` bytes, with TSCAL and TZERO applied.
    ///
    /// # Errors
    /// A column that is not [`is_single`](Self::is_single); a logical that is neither true, false nor undefined.
    pub fn decode_values(&self, rows: &[u8], row_bytes: usize) -> Result<ColumnValues, String> {
        if !self.is_single() {
            return Err(format!(
                "column {} has arrays or a type that popfit does not read",
                self.name
            ));
        }
        let cells = rows
            .chunks_exact(row_bytes)
            .map(|row| &row[self.offset..][..self.width]);
        let is_unscaled = self.scale == 1.0;
        // with these values of TZERO, FITS stores unsigned integers, or signed bytes
        let values = match (self.code, self.zero) {
            (b'A', _) => ColumnValues::Text(cells.map(decode_text).collect()),
            (b'L', _) => ColumnValues::Bool(self.decode_logicals(cells)?),
            (b'B', 0.0) if is_unscaled => ColumnValues::U8(cells.map(|cell| cell[0]).collect()),
            (b'B', -128.0) if is_unscaled => {
                ColumnValues::I16(cells.map(|cell| i16::from(cell[0]) - 128).collect())
            }
            (b'I', 0.0) if is_unscaled => ColumnValues::I16(
                cells
                    .map(|cell| i16::from_be_bytes(cell_bytes(cell)))
                    .collect(),
            ),
            (b'I', 32_768.0) if is_unscaled => ColumnValues::U16(
                cells
                    .map(|cell| u16::from_be_bytes(cell_bytes(cell)) ^ (1 << 15))
                    .collect(),
            ),
            (b'J', 0.0) if is_unscaled => ColumnValues::I32(
                cells
                    .map(|cell| i32::from_be_bytes(cell_bytes(cell)))
                    .collect(),
            ),
            (b'J', 2_147_483_648.0) if is_unscaled => ColumnValues::U32(
                cells
                    .map(|cell| u32::from_be_bytes(cell_bytes(cell)) ^ (1 << 31))
                    .collect(),
            ),
            (b'K', 0.0) if is_unscaled => ColumnValues::I64(
                cells
                    .map(|cell| i64::from_be_bytes(cell_bytes(cell)))
                    .collect(),
            ),
            (b'K', 9_223_372_036_854_775_808.0) if is_unscaled => ColumnValues::U64(
                cells
                    .map(|cell| u64::from_be_bytes(cell_bytes(cell)) ^ (1 << 63))
                    .collect(),
            ),
            (b'E', 0.0) if is_unscaled => ColumnValues::F32(
                cells
                    .map(|cell| f32::from_be_bytes(cell_bytes(cell)))
                    .collect(),
            ),
            (b'D', 0.0) if is_unscaled => ColumnValues::F64(
                cells
                    .map(|cell| f64::from_be_bytes(cell_bytes(cell)))
                    .collect(),
            ),
            _ => ColumnValues::F64(
                cells
                    .map(|cell| self.scale * self.decode_stored(cell) + self.zero)
                    .collect(),
            ),
        };
        Ok(values)
    }

    /// Decodes a cell's big-endian number as it is stored, before TSCAL and TZERO.
    fn decode_stored(&self, cell: &[u8]) -> f64 {
        match self.code {
            b'B' => f64::from(cell[0]),
            b'I' => f64::from(i16::from_be_bytes(cell_bytes(cell))),
            b'J' => f64::from(i32::from_be_bytes(cell_bytes(cell))),
            b'K' => i64::from_be_bytes(cell_bytes(cell)) as f64,
            b'E' => f64::from(f32::from_be_bytes(cell_bytes(cell))),
            _ => f64::from_be_bytes(cell_bytes(cell)),
        }
    }

    /// Reads the first logical of each cell; fails on bytes other than `T`, `F` and NUL.
    fn decode_logicals<'a>(
        &self,
        cells: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Vec<bool>, String> {
        let mut logicals = Vec::new();
        for (row, cell) in cells.enumerate() {
            logicals.push(match cell[0] {
                b'T' => true,
                b'F' | 0 => false,
                byte => {
                    return Err(format!(
                        "column {}, row {row}: {byte} is not a logical",
                        self.name
                    ));
                }
            });
        }
        Ok(logicals)
    }
}

/// Returns the size of one element of a TFORM type code (bytes); `None` for an unknown code.
fn element_bytes(code: u8) -> Option<usize> {
    match code {
        b'L' | b'B' | b'A' => Some(1),
        b'I' => Some(2),
        b'J' | b'E' => Some(4),
        b'K' | b'D' | b'C' | b'P' => Some(8),
        b'M' | b'Q' => Some(16),
        _ => None,
    }
}

/// Copies the bytes of a cell, whose width N follows from its type.
fn cell_bytes<const N: usize>(cell: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(cell);
    bytes
}

/// Decodes a cell as text up to its first NUL, without spaces at the end.
fn decode_text(cell: &[u8]) -> String {
    let text: String = cell
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|&byte| char::from(byte))
        .collect();
    text.trim_end().to_string()
}

impl Fits {
    /// Reads the bytes of these rows of a table HDU, in the order given.
    pub fn read_rows(&mut self, index: usize, rows: &[usize]) -> Result<Vec<u8>> {
        let table = self.table(index)?;
        let row_bytes = table.row_bytes;
        let row_count = table.rows;
        self.charge_memory(rows.len(), row_bytes)?;
        // 1. Reserve the memory.
        let mut bytes = Vec::new();
        let length = rows
            .len()
            .checked_mul(row_bytes)
            .filter(|length| bytes.try_reserve_exact(*length).is_ok());
        let Some(length) = length else {
            let message = format!(
                "{}: {} rows do not fit memory",
                self.label(index),
                rows.len()
            );
            return Err(Error::TooLarge {
                path: self.path.clone(),
                message,
            });
        };
        // 2. Read the rows, runs of successive ones at once.
        if let Some(row) = rows.iter().find(|row| **row >= row_count) {
            return Err(self.fault(index, format!("has {row_count} rows, not row {row}")));
        }
        bytes.resize(length, 0);
        let mut unfilled = bytes.as_mut_slice();
        for run in rows.chunk_by(|a, b| a + 1 == *b) {
            let (run_bytes, rest) = unfilled.split_at_mut(run.len() * row_bytes);
            let first_row = run.first().map_or(0, |row| *row as u64);
            self.read_bytes(index, first_row * row_bytes as u64, run_bytes)?;
            unfilled = rest;
        }
        Ok(bytes)
    }

    /// Reads and decodes one column of these rows of a table HDU; `None` if the table has none of this name.
    pub fn read_column(
        &mut self,
        index: usize,
        name: &str,
        rows: &[usize],
    ) -> Result<Option<ColumnValues>> {
        let Some(column) = self.table(index)?.column(name).cloned() else {
            return Ok(None);
        };
        let row_bytes = self.table(index)?.row_bytes;
        self.charge_memory(rows.len(), column.memory())?;
        let bytes = self.read_rows(index, rows)?;
        column
            .decode_values(&bytes, row_bytes)
            .map(Some)
            .map_err(|message| self.fault(index, message))
    }

    /// Decodes and converts all numbers of a column from the bytes of whole rows; a cell may hold several. Fails if
    /// there is no numeric column of this name.
    pub fn decode_numbers_of_rows<T>(
        &mut self,
        index: usize,
        name: &str,
        bytes: &[u8],
        convert: impl Fn(f64) -> T,
    ) -> Result<Vec<T>> {
        let table = self.table(index)?;
        let column = table
            .column(name)
            .ok_or_else(|| self.fault(index, format!("no column {name}")))?
            .clone();
        if !column.is_numeric() {
            return Err(self.fault(index, format!("column {name} is not of numbers")));
        }
        let row_bytes = table.row_bytes;
        self.charge_memory(
            bytes.len() / row_bytes,
            column.repeat.saturating_mul(size_of::<T>()),
        )?;
        Ok(column
            .decode_numbers(bytes, row_bytes)
            .map(convert)
            .collect())
    }
}
