//! NPZ files of numbers, written in memory.

use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Alignment of the values in a `.npy` file, in bytes.
const VALUE_ALIGNMENT: usize = 64;

/// Returns the bytes of an NPZ file of named arrays of one dimension, as float64.
///
/// # Errors
/// Those of the zip writer: a name that occurs twice, or an archive that is too large.
pub fn archive(arrays: &[(String, &[f64])]) -> std::io::Result<Vec<u8>> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, values) in arrays {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        zip.start_file(format!("{name}.npy"), options)?;
        let dictionary = format!(
            "{{'descr': '<f8', 'fortran_order': False, 'shape': ({},), }}",
            values.len()
        );
        // magic, version and length take ten bytes, and a line feed ends the header
        let padding = VALUE_ALIGNMENT - (10 + dictionary.len() + 1) % VALUE_ALIGNMENT;
        let header = format!("{dictionary}{}\n", " ".repeat(padding));
        zip.write_all(b"\x93NUMPY\x01\x00")?;
        zip.write_all(&(header.len() as u16).to_le_bytes())?;
        zip.write_all(header.as_bytes())?;
        for value in *values {
            zip.write_all(&value.to_le_bytes())?;
        }
    }
    Ok(zip.finish()?.into_inner())
}
