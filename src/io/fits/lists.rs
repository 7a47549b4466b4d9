//! Columns of lists of floats, whose cells have the length of each list and its place in the table's heap (FITS
//! standard 4.0, §7.3.5).

#![deny(clippy::indexing_slicing)] // a file must not cause a panic

use std::ops::Range;

use super::hdu::Fits;
use super::table::TableColumn;
use super::tiles::from_big_endian;
use crate::error::Result;

/// A column of lists.
#[derive(Clone, Debug)]
pub struct ListColumn {
    pub name: String,
    pub unit: String,
    /// One list per row.
    pub lists: Vec<Vec<f64>>,
}

impl Fits {
    /// Reads all columns of lists of floats in these rows of a table HDU.
    ///
    /// # Errors
    /// `Format` for a list that does not lie in the heap, and for an HDU that is no table.
    pub fn read_list_columns(
        &mut self,
        index: usize,
        rows: Range<usize>,
    ) -> Result<Vec<ListColumn>> {
        let table = self.table(index)?;
        let row_bytes = table.row_bytes;
        let columns: Vec<TableColumn> = table
            .columns
            .iter()
            .filter(|column| column.is_float_list())
            .cloned()
            .collect();
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let heap = table
            .heap(self.header(index)?)
            .map_err(|message| self.fault(index, message))?;
        let bytes = self.read_rows(index, &rows.collect::<Vec<_>>())?;
        let mut list_columns = Vec::with_capacity(columns.len());
        for column in columns {
            let mut lists = Vec::new();
            for row in bytes.chunks_exact(row_bytes) {
                lists.push(self.read_list(index, &column, row, &heap)?);
            }
            list_columns.push(ListColumn {
                name: column.name,
                unit: column.unit,
                lists,
            });
        }
        Ok(list_columns)
    }

    /// Reads the list of a row, which is given by its bytes.
    fn read_list(
        &mut self,
        index: usize,
        column: &TableColumn,
        row: &[u8],
        heap: &Range<u64>,
    ) -> Result<Vec<f64>> {
        // 1. Read the descriptor.
        let element_bytes = column.list_element_bytes();
        let place = column.descriptor().and_then(|(offset, is_long)| {
            let number_bytes = if is_long { 8 } else { 4 };
            let mut numbers = row.get(offset..)?.chunks_exact(number_bytes);
            Some((
                from_big_endian(numbers.next()?),
                from_big_endian(numbers.next()?),
            ))
        });
        let (length, start) = place.unwrap_or_default();
        if length == 0 {
            return Ok(Vec::new());
        }
        // 2. Check that the list lies inside the heap, and fits memory.
        let start = heap.start.checked_add(start);
        let byte_count = length.checked_mul(element_bytes as u64).filter(|bytes| {
            let end = start.and_then(|start| start.checked_add(*bytes));
            end.is_some_and(|end| end <= heap.end)
        });
        let (Some(start), Some(byte_count)) = (start, byte_count) else {
            let message = format!("a list of column {} lies outside of its heap", column.name);
            return Err(self.fault(index, message));
        };
        self.charge_memory(length as usize, size_of::<f64>())?;
        self.check_memory(byte_count as usize)?;
        // 3. Read and decode it.
        let mut bytes = vec![0; byte_count as usize];
        self.read_bytes(index, start, &mut bytes)?;
        Ok(match element_bytes {
            4 => {
                let (floats, _) = bytes.as_chunks::<4>();
                floats
                    .iter()
                    .map(|float| f64::from(f32::from_be_bytes(*float)))
                    .collect()
            }
            _ => {
                let (floats, _) = bytes.as_chunks::<8>();
                floats
                    .iter()
                    .map(|float| f64::from_be_bytes(*float))
                    .collect()
            }
        })
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::error::Error;
    use crate::io::fits::sum::OnesSum;
    use crate::io::fits::writer::cards::Cards;
    use crate::io::fits::writer::table::{CellValues, FitsColumn, TableUnit};

    /// Writes a table of one column of lists, and returns the place of its rows in the file.
    fn write_lists(path: &Path, lists: Vec<Vec<f64>>) -> usize {
        let values = CellValues::Lists(lists);
        let columns = vec![FitsColumn::of_cells("LISTS", "km s-1", &values)];
        let mut table = TableUnit::new(path, "TABLE", columns).unwrap();
        table.append(&[values]).unwrap();
        let mut bytes = Cards::primary().into_header(OnesSum::default());
        table.write(&mut bytes).unwrap();
        std::fs::write(path, &bytes).unwrap();
        2 * 2880
    }

    #[test]
    fn lists_are_read_row_by_row() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lists.fits");
        let lists = vec![vec![1.0, 2.0], Vec::new(), vec![-0.5; 5]];
        write_lists(&path, lists.clone());
        let mut fits = Fits::open(&path).unwrap();
        assert_eq!(
            fits.header(1).unwrap().text("TFORM1").map(str::trim),
            Some("1QD(5)")
        );
        let columns = fits.read_list_columns(1, 1..3).unwrap();
        assert_eq!((&*columns[0].name, &*columns[0].unit), ("LISTS", "km s-1"));
        assert_eq!(columns[0].lists, lists[1..]);
        assert!(fits.read_list_columns(1, 0..0).unwrap()[0].lists.is_empty());
    }

    /// Lengths and places are numbers of a file: none of them is believed.
    #[test]
    fn a_list_outside_of_the_heap_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lists.fits");
        let rows = write_lists(&path, vec![vec![1.0, 2.0]]);
        let whole = std::fs::read(&path).unwrap();
        for (length, place) in [
            (3u64, 0u64),
            (2, 8),
            (1, 16),
            (u64::MAX, 0),
            (1 << 61, 0),
            (1, u64::MAX),
        ] {
            let mut bytes = whole.clone();
            bytes[rows..rows + 8].copy_from_slice(&length.to_be_bytes());
            bytes[rows + 8..rows + 16].copy_from_slice(&place.to_be_bytes());
            std::fs::write(&path, bytes).unwrap();
            let error = Fits::open(&path)
                .and_then(|mut fits| fits.read_list_columns(1, 0..1))
                .unwrap_err();
            assert!(
                matches!(&error, Error::Format { message, .. } if message.contains("outside of its heap")),
                "{length} numbers at {place}: {error}"
            );
        }
    }
}
