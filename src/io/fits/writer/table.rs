//! FITS extensions whose length and widths are known only at the end.
//!
//! The number of rows of a table and the widths of its texts are in its header, so the data of each extension wait in a
//! temporary file beside the output. Rows are moved when a text is wider than its column. The file is put together at
//! the end. The DATASUM of a unit is computed while its rows are written to the temporary file.
//!
//! A cell of a list of numbers has the length of the list and its place in the heap, which follows the rows (FITS
//! standard 4.0, §7.3.5). The heap waits in a temporary file of its own.

use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::cards::{BLOCK_BYTES, Cards, escape_non_ascii};
use crate::error::{Error, Result};
use crate::io::column::ColumnValues;
use crate::io::files::File;
use crate::io::fits::sum::OnesSum;
use crate::io::output::Staged;

/// Number of bytes of rows that are moved at once.
const MOVED_BYTES: usize = 1 << 20;
/// Number of characters by which text columns grow.
const TEXT_WIDTH_STEP: usize = 8;

/// A temporary file beside the target, which is removed on drop.
pub struct Spool {
    file: BufWriter<File>,
    _staged: Staged,
    pub length: u64,
    sum: OnesSum,
}

impl Spool {
    /// Creates an empty temporary file beside `target`, which collects the data of a FITS extension.
    pub fn new(target: &Path) -> Result<Spool> {
        let (staged, file) = Staged::create_beside(target)?;
        Ok(Spool {
            file: BufWriter::new(file),
            _staged: staged,
            length: 0,
            sum: OnesSum::default(),
        })
    }

    /// Appends bytes to the temporary file, and to the running FITS checksum.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.add(self.length, bytes);
        self.length += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    /// Writes the collected bytes to `out`.
    fn copy(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.file.flush()?;
        let file = self.file.get_mut();
        file.rewind()?;
        io::copy(&mut file.take(self.length), out)?;
        file.seek(SeekFrom::Start(self.length))?;
        Ok(())
    }
}

/// Writes a FITS extension to `out`: the header with its checksums, the collected data, one piece behind the other, and
/// zeros up to a whole FITS block.
pub fn write_unit<'s>(
    header: Cards,
    pieces: impl IntoIterator<Item = &'s mut Spool>,
    out: &mut impl Write,
) -> io::Result<()> {
    let pieces: Vec<&mut Spool> = pieces.into_iter().collect();
    let mut sum = OnesSum::default();
    let mut length = 0;
    for piece in &pieces {
        sum = sum.plus(piece.sum.moved(length));
        length += piece.length;
    }
    out.write_all(&header.into_header(sum))?;
    for piece in pieces {
        piece.copy(out)?;
    }
    let padding = length.next_multiple_of(BLOCK_BYTES as u64) - length;
    out.write_all(&vec![0; padding as usize])
}

/// Values of a column of a binary table, one cell per row.
#[derive(Clone, Debug)]
pub enum CellValues {
    /// One number, logical or text per cell.
    Single(ColumnValues),
    /// A list of floats per cell, of any length.
    Lists(Vec<Vec<f64>>),
}

impl From<ColumnValues> for CellValues {
    fn from(values: ColumnValues) -> CellValues {
        CellValues::Single(values)
    }
}

impl CellValues {
    /// Returns the number of rows.
    fn len(&self) -> usize {
        match self {
            CellValues::Single(values) => values.len(),
            CellValues::Lists(lists) => lists.len(),
        }
    }

    /// Returns whether both have the same type.
    fn is_like(&self, other: &CellValues) -> bool {
        match (self, other) {
            (CellValues::Single(a), CellValues::Single(b)) => {
                std::mem::discriminant(a) == std::mem::discriminant(b)
            }
            (CellValues::Lists(_), CellValues::Lists(_)) => true,
            _ => false,
        }
    }
}

/// Number of bytes of a list's cell: length and place, of 64 bits each (type Q).
const DESCRIPTOR_BYTES: usize = 16;

/// Returns the number of bytes of a cell; 1 for text, whose columns grow.
fn width_of(values: &ColumnValues) -> usize {
    match values {
        ColumnValues::Bool(_) | ColumnValues::U8(_) | ColumnValues::Text(_) => 1,
        ColumnValues::I16(_) | ColumnValues::U16(_) => 2,
        ColumnValues::I32(_) | ColumnValues::U32(_) | ColumnValues::F32(_) => 4,
        ColumnValues::I64(_) | ColumnValues::U64(_) | ColumnValues::F64(_) => 8,
    }
}

/// A column of a binary table.
#[derive(Clone, Debug)]
pub struct FitsColumn {
    pub name: String,
    /// Unit, empty without one.
    pub unit: String,
    /// Value of TCOMM, if there is such a card.
    pub comment: Option<String>,
    /// Type of the values, without values.
    empty_values: CellValues,
    /// Number of bytes of a cell.
    width: usize,
    /// Length of the longest list.
    longest: usize,
}

impl FitsColumn {
    /// Returns the description of a FITS table column, whose values have the type of `values`.
    pub fn new(name: &str, unit: &str, values: &ColumnValues) -> FitsColumn {
        FitsColumn::of_cells(name, unit, &CellValues::Single(values.empty()))
    }

    /// Returns the description of a FITS table column, whose cells have the type of `values`.
    pub fn of_cells(name: &str, unit: &str, values: &CellValues) -> FitsColumn {
        let (width, empty_values) = match values {
            CellValues::Single(values) => (width_of(values), CellValues::Single(values.empty())),
            CellValues::Lists(_) => (DESCRIPTOR_BYTES, CellValues::Lists(Vec::new())),
        };
        FitsColumn {
            name: escape_non_ascii(name),
            unit: escape_non_ascii(unit),
            comment: None,
            empty_values,
            width,
            longest: 0,
        }
    }

    /// Sets the comment that the table's header (TCOMM) has for this column.
    #[must_use]
    pub fn comment(mut self, comment: &str) -> FitsColumn {
        self.comment = Some(comment.into());
        self
    }

    /// Returns the FITS code of the column's type (keyword TFORM), such as `D` for f64, `8A` for text of 8 bytes or
    /// `1QD(5)` for lists of at most 5 f64.
    fn type_code(&self) -> String {
        let values = match &self.empty_values {
            CellValues::Single(values) => values,
            CellValues::Lists(_) => return format!("1QD({})", self.longest),
        };
        match values {
            ColumnValues::Text(_) => format!("{}A", self.width),
            ColumnValues::Bool(_) => "L".into(),
            ColumnValues::U8(_) => "B".into(),
            ColumnValues::I16(_) | ColumnValues::U16(_) => "I".into(),
            ColumnValues::I32(_) | ColumnValues::U32(_) => "J".into(),
            ColumnValues::I64(_) | ColumnValues::U64(_) => "K".into(),
            ColumnValues::F32(_) => "E".into(),
            ColumnValues::F64(_) => "D".into(),
        }
    }

    /// Returns the offset (TZERO) with which FITS stores unsigned integers of 2 to 8 bytes; `None` for other types.
    fn unsigned_offset(&self) -> Option<&'static str> {
        match self.empty_values {
            CellValues::Single(ColumnValues::U16(_)) => Some("32768"),
            CellValues::Single(ColumnValues::U32(_)) => Some("2147483648"),
            CellValues::Single(ColumnValues::U64(_)) => Some("9223372036854775808"),
            _ => None,
        }
    }

    /// Appends the cell in this row to `out`, as the bytes that FITS stores: big-endian, text padded with zeros.
    fn push_cell(&self, values: &ColumnValues, row: usize, out: &mut Vec<u8>) {
        match values {
            ColumnValues::Bool(v) => out.push(if v[row] { b'T' } else { b'F' }),
            ColumnValues::U8(v) => out.push(v[row]),
            ColumnValues::I16(v) => out.extend(v[row].to_be_bytes()),
            ColumnValues::U16(v) => out.extend((v[row] ^ 1 << 15).to_be_bytes()),
            ColumnValues::I32(v) => out.extend(v[row].to_be_bytes()),
            ColumnValues::U32(v) => out.extend((v[row] ^ 1 << 31).to_be_bytes()),
            ColumnValues::I64(v) => out.extend(v[row].to_be_bytes()),
            ColumnValues::U64(v) => out.extend((v[row] ^ 1 << 63).to_be_bytes()),
            ColumnValues::F32(v) => out.extend(v[row].to_be_bytes()),
            ColumnValues::F64(v) => out.extend(v[row].to_be_bytes()),
            ColumnValues::Text(v) => {
                let text = escape_non_ascii(&v[row]);
                out.extend(text.bytes().chain(std::iter::repeat(0)).take(self.width));
            }
        }
    }
}

/// Appends the cell of a list to `out`: its length, and the place in the heap (bytes) at which it begins. An empty list
/// has no place.
fn push_descriptor(length: u64, place: u64, out: &mut Vec<u8>) {
    let place = if length == 0 { 0 } else { place };
    out.extend(length.to_be_bytes());
    out.extend(place.to_be_bytes());
}

/// A binary table under construction.
pub struct TableUnit {
    name: String,
    columns: Vec<FitsColumn>,
    /// A card behind those of the columns: keyword and text.
    card: Option<(&'static str, &'static str)>,
    rows: u64,
    spool: Spool,
    /// Numbers of the lists, if a column has lists.
    heap: Option<Spool>,
}

impl TableUnit {
    /// Begins a FITS binary table without rows, kept in a temporary file beside `target` until it is written.
    pub fn new(target: &Path, name: &str, columns: Vec<FitsColumn>) -> Result<TableUnit> {
        let has_lists = columns
            .iter()
            .any(|column| matches!(column.empty_values, CellValues::Lists(_)));
        let heap = match has_lists {
            true => Some(Spool::new(target)?),
            false => None,
        };
        Ok(TableUnit {
            name: name.into(),
            columns,
            card: None,
            rows: 0,
            spool: Spool::new(target)?,
            heap,
        })
    }

    /// Adds a card with a keyword and a text to the header.
    #[must_use]
    pub fn card(mut self, key: &'static str, text: &'static str) -> TableUnit {
        self.card = Some((key, text));
        self
    }

    /// Appends rows, given as one array per column; fails if their number, lengths or types do not fit the table.
    pub fn append(&mut self, values: &[CellValues]) -> io::Result<()> {
        let invalid_input = |message: String| io::Error::new(io::ErrorKind::InvalidInput, message);
        // 1. Check the columns.
        let rows = values.first().map_or(0, CellValues::len);
        if values.len() != self.columns.len() {
            return Err(invalid_input(format!(
                "{}: {} columns, not {}",
                self.name,
                values.len(),
                self.columns.len()
            )));
        }
        for (column, values) in self.columns.iter().zip(values) {
            if values.len() != rows || !values.is_like(&column.empty_values) {
                return Err(invalid_input(format!(
                    "{}: column {} has changed its type",
                    self.name, column.name
                )));
            }
        }
        // 2. Append the cells, row by row.
        self.widen_text_columns(values)?;
        let heap_start = self.heap.as_ref().map_or(0, |heap| heap.length);
        let mut bytes = Vec::with_capacity(rows * self.row_bytes());
        let mut heap_bytes = Vec::new();
        for row in 0..rows {
            for (column, values) in self.columns.iter_mut().zip(values) {
                match values {
                    CellValues::Single(values) => column.push_cell(values, row, &mut bytes),
                    CellValues::Lists(lists) => {
                        let list = &lists[row];
                        column.longest = column.longest.max(list.len());
                        let place = heap_start + heap_bytes.len() as u64;
                        push_descriptor(list.len() as u64, place, &mut bytes);
                        heap_bytes.extend(list.iter().flat_map(|x| x.to_be_bytes()));
                    }
                }
            }
        }
        self.rows += rows as u64;
        if let Some(heap) = &mut self.heap {
            heap.append(&heap_bytes)?;
        }
        self.spool.append(&bytes)
    }

    /// Returns the length of one row of the table (bytes).
    fn row_bytes(&self) -> usize {
        self.columns.iter().map(|column| column.width).sum()
    }

    /// Widens text columns to the longest text in `values`, and rewrites the rows that the table has already.
    fn widen_text_columns(&mut self, values: &[CellValues]) -> io::Result<()> {
        let old_widths: Vec<usize> = self.columns.iter().map(|column| column.width).collect();
        for (column, values) in self.columns.iter_mut().zip(values) {
            if let CellValues::Single(ColumnValues::Text(texts)) = values {
                let longest = texts
                    .iter()
                    .map(|text| escape_non_ascii(text).len())
                    .max()
                    .unwrap_or(0);
                if longest > column.width {
                    // The first width is exact, so that a column keeps the width of its source. Later ones are wider
                    // than needed, so that rows are moved rarely.
                    column.width = if self.rows == 0 {
                        longest
                    } else {
                        longest.next_multiple_of(TEXT_WIDTH_STEP)
                    };
                }
            }
        }
        let new_widths: Vec<usize> = self.columns.iter().map(|column| column.width).collect();
        if old_widths == new_widths || self.rows == 0 {
            return Ok(());
        }
        self.move_rows(&old_widths, &new_widths)
    }

    /// Rewrites the stored rows from the old to the wider new column widths (bytes), last row first, in place.
    fn move_rows(&mut self, old_widths: &[usize], new_widths: &[usize]) -> io::Result<()> {
        let old_row_bytes = old_widths.iter().sum::<usize>();
        let new_row_bytes = new_widths.iter().sum::<usize>();
        self.spool.file.flush()?;
        let file = self.spool.file.get_mut();
        let rows_at_once = (MOVED_BYTES / new_row_bytes.max(1)).max(1) as u64;
        let mut sum = OnesSum::default();
        let mut end = self.rows;
        while end > 0 {
            // 1. Read the last rows that have not been moved.
            let start = end.saturating_sub(rows_at_once);
            let count = (end - start) as usize;
            let mut narrow = vec![0; count * old_row_bytes];
            file.seek(SeekFrom::Start(start * old_row_bytes as u64))?;
            file.read_exact(&mut narrow)?;
            // 2. Pad their cells with zeros.
            let mut wide = Vec::with_capacity(count * new_row_bytes);
            for mut row in narrow.chunks_exact(old_row_bytes) {
                for (old_width, new_width) in old_widths.iter().zip(new_widths) {
                    let (cell, rest) = row.split_at(*old_width);
                    wide.extend_from_slice(cell);
                    wide.extend(std::iter::repeat_n(0, new_width - old_width));
                    row = rest;
                }
            }
            // 3. Write them at their new place, behind all rows that are still narrow.
            let new_offset = start * new_row_bytes as u64;
            file.seek(SeekFrom::Start(new_offset))?;
            file.write_all(&wide)?;
            sum.add(new_offset, &wide);
            end = start;
        }
        self.spool.length = self.rows * new_row_bytes as u64;
        self.spool.sum = sum;
        file.seek(SeekFrom::Start(self.spool.length))?;
        Ok(())
    }

    /// Writes the table extension, header and all rows so far, to `out`.
    pub fn write(&mut self, out: &mut impl Write) -> io::Result<()> {
        let axes = [self.row_bytes() as u64, self.rows];
        let heap_bytes = self.heap.as_ref().map_or(0, |heap| heap.length);
        let mut cards = Cards::extension("BINTABLE", 8, &axes, heap_bytes);
        cards.integer("TFIELDS", self.columns.len() as i64);
        for (k, column) in (1..).zip(&self.columns) {
            cards
                .text(&format!("TTYPE{k}"), &column.name)
                .text(&format!("TFORM{k}"), &column.type_code());
            if !column.unit.is_empty() {
                cards.text(&format!("TUNIT{k}"), &column.unit);
            }
            if let Some(zero) = column.unsigned_offset() {
                cards
                    .integer(&format!("TSCAL{k}"), 1)
                    .digits(&format!("TZERO{k}"), zero);
            }
        }
        cards.text("EXTNAME", &self.name);
        for (k, column) in (1..).zip(&self.columns) {
            if let Some(comment) = &column.comment {
                cards.text(&format!("TCOMM{k}"), comment);
            }
        }
        if let Some((key, text)) = self.card {
            cards.text(key, text);
        }
        write_unit(
            cards,
            [&mut self.spool].into_iter().chain(&mut self.heap),
            out,
        )
    }
}

/// Returns a closure for `map_err`: it turns an I/O error of a write into an [`Error::Io`] that names the file.
pub fn refused(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
    Error::writing(path)
}
