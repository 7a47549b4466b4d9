//! The end of a zip archive: its directory and the end records behind it, which must fill the rest of the file.
//!
//! The zip library accepts bytes behind the end, and a directory of another size than the end record states: other
//! programs read other entries of such a file, or none.

#![deny(clippy::indexing_slicing)] // a file must not cause a panic

use std::io::{self, Read, Seek, SeekFrom};

use zip::ZipArchive;

use crate::io::files::File;

/// Size of an entry of the directory, without names and comments.
const ENTRY_BYTES: u64 = 46;
/// Size of the end record, without its comment.
const END_BYTES: usize = 22;
/// Size of the zip64 end record, which archives beyond 2 or 4 GB have.
const ZIP64_END_BYTES: usize = 56;
/// Size of the locator that leads to the zip64 end record.
const ZIP64_LOCATOR_BYTES: usize = 20;
/// Number of bytes at the end of a file that may hold an end record: its comment has at most 2¹⁶.
const TAIL_BYTES: u64 = 0x1_0000 + 256;

/// Fails unless the end record is the last of the file, and the directory fills the bytes from its start to the end
/// records, as these state.
pub fn check_end(file: &File, length: u64, zip: &ZipArchive<impl Read + Seek>) -> io::Result<()> {
    // 1. Nothing follows the end record and its comment.
    let comment_bytes = zip.comment().len() as u64;
    let trailing_bytes =
        || invalid_data("bytes follow its end: it was damaged or changed after it was written");
    let end_offset = length
        .checked_sub(END_BYTES as u64 + comment_bytes)
        .ok_or_else(trailing_bytes)?;
    let end_record = read_record::<END_BYTES>(file, end_offset)?;
    let has_signature = end_record.starts_with(b"PK\x05\x06");
    if !has_signature || read_number(&end_record, 20, 2) != comment_bytes {
        return Err(trailing_bytes());
    }
    // 2. The directory ends where the end records begin, and has the stated size.
    let stated_size = read_number(&end_record, 12, 4);
    let (size, end) = match read_zip64_end(file, end_offset, zip.offset())? {
        Some((zip64_size, zip64_offset))
            if [u64::from(u32::MAX), zip64_size].contains(&stated_size) =>
        {
            (zip64_size, zip64_offset)
        }
        Some(_) => {
            return Err(invalid_data(
                "its two end records state different sizes of its directory",
            ));
        }
        None => (stated_size, end_offset),
    };
    let start = zip.central_directory_start();
    let entry_bytes = directory_bytes(file, start, zip.len())?;
    if entry_bytes != size || start.checked_add(size) != Some(end) {
        let between = end.saturating_sub(start);
        return Err(invalid_data(&format!(
            "its end record states a directory of {size} bytes; the entries take {entry_bytes}, of {between} bytes before it"
        )));
    }
    Ok(())
}

/// Reads the zip64 end record of an archive whose end record begins at `end_offset`, and returns the size of the
/// directory that it states, and the offset at which it begins; `None` if there is none.
fn read_zip64_end(
    file: &File,
    end_offset: u64,
    archive_offset: u64,
) -> io::Result<Option<(u64, u64)>> {
    // 1. Read the locator, if there is one.
    let Some(locator_offset) = end_offset.checked_sub(ZIP64_LOCATOR_BYTES as u64) else {
        return Ok(None);
    };
    let locator: [u8; ZIP64_LOCATOR_BYTES] = read_record(file, locator_offset)?;
    if !locator.starts_with(b"PK\x06\x07") {
        return Ok(None);
    }
    // 2. It leads to the record, which ends where the locator begins.
    let record_offset = read_number(&locator, 8, 8).saturating_add(archive_offset);
    if record_offset
        .checked_add(ZIP64_END_BYTES as u64)
        .is_none_or(|end| end > locator_offset)
    {
        return Err(invalid_data(
            "its zip64 end record is not where its locator says",
        ));
    }
    let record: [u8; ZIP64_END_BYTES] = read_record(file, record_offset)?;
    // the size that the record states is without its first twelve bytes
    let is_before_locator =
        read_number(&record, 4, 8).checked_add(12) == Some(locator_offset - record_offset);
    match record.starts_with(b"PK\x06\x06") && is_before_locator {
        true => Ok(Some((read_number(&record, 40, 8), record_offset))),
        false => Err(invalid_data(
            "its zip64 end record is not where its locator says",
        )),
    }
}

/// Returns the number of bytes that `entries` entries of the directory take from `start` on.
fn directory_bytes(file: &File, start: u64, entries: usize) -> io::Result<u64> {
    let mut offset = start;
    for _ in 0..entries {
        let entry: [u8; ENTRY_BYTES as usize] = read_record(file, offset)?;
        let name_bytes = read_number(&entry, 28, 2);
        let extra_bytes = read_number(&entry, 30, 2);
        let comment_bytes = read_number(&entry, 32, 2);
        offset = offset.saturating_add(ENTRY_BYTES + name_bytes + extra_bytes + comment_bytes);
    }
    Ok(offset - start)
}

/// Reads the N bytes at an offset of the file.
fn read_record<const N: usize>(file: &File, offset: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, offset).map(|()| bytes)
}

/// Returns the little-endian integer of `bytes` bytes at an offset of a record.
fn read_number(record: &[u8], offset: usize, bytes: usize) -> u64 {
    record
        .iter()
        .skip(offset)
        .take(bytes)
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Makes an I/O error of kind `InvalidData` with this message.
fn invalid_data(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Returns the largest number of entries that any end record (zip or zip64) near the end of the file claims: the zip
/// library would allocate for them all.
pub fn claimed_entries(file: &mut File, length: u64) -> io::Result<u64> {
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    file.rewind()?;
    Ok((0..tail.len())
        .filter_map(|start| tail.get(start..))
        .map(entries_claimed_by)
        .max()
        .unwrap_or(0))
}

/// Returns the number of entries that an end record at the front of `bytes` claims; 0 without one.
fn entries_claimed_by(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk::<40>(), bytes.first_chunk::<12>()) {
        (Some(&[b'P', b'K', 6, 6, .., a, b, c, d, e, f, g, h]), _) => {
            u64::from_le_bytes([a, b, c, d, e, f, g, h])
        }
        (_, Some(&[b'P', b'K', 5, 6, .., a, b])) => u64::from(u16::from_le_bytes([a, b])),
        _ => 0,
    }
}
