//! The end of a zip archive: its directory and the end records behind it, which must fill the rest of the file.
//!
//! The zip library accepts bytes behind the end, and a directory of another size than the end record states: other
//! programs read other entries of such a file, or none.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::io::{self, Read, Seek, SeekFrom};

use zip::ZipArchive;

use crate::io::files::File;

/// Sizes in bytes, without names and comments: an entry of the directory, the end record, and, of archives beyond 2 or
/// 4 GB, the zip64 end record and the locator that leads to it.
const ENTRY: u64 = 46;
const END: usize = 22;
const END_64: usize = 56;
const LOCATOR_64: usize = 20;

/// Fails unless the end record is the last of the file, and the directory fills the bytes from its start to the end
/// records, as these state.
pub fn check(file: &File, length: u64, zip: &ZipArchive<impl Read + Seek>) -> io::Result<()> {
    // 1. Nothing follows the end record and its comment.
    let comment = zip.comment().len() as u64;
    let at = length.checked_sub(END as u64 + comment);
    let found = at
        .map(|at| Ok::<_, io::Error>((at, read::<END>(file, at)?)))
        .transpose()?;
    let ends_file =
        |record: &[u8]| record.starts_with(b"PK\x05\x06") && number(record, 20, 2) == comment;
    let Some((at, record)) = found.filter(|(_, record)| ends_file(record)) else {
        return Err(invalid(
            "bytes follow its end: it was damaged or changed after it was written",
        ));
    };
    // 2. The directory ends where the end records begin, and has the stated size.
    let stated = number(&record, 12, 4);
    let (size, end) = match zip64_end(file, at, zip.offset())? {
        Some(zip64) if [u64::from(u32::MAX), zip64.0].contains(&stated) => zip64,
        Some(_) => {
            return Err(invalid(
                "its two end records state different sizes of its directory",
            ));
        }
        None => (stated, at),
    };
    let start = zip.central_directory_start();
    let found = directory_bytes(file, start, zip.len())?;
    if found != size || start.checked_add(size) != Some(end) {
        let between = end.saturating_sub(start);
        return Err(invalid(&format!(
            "its end record states a directory of {size} bytes; the entries take {found}, of {between} bytes before it"
        )));
    }
    Ok(())
}

/// Reads the zip64 end record of an archive whose end record begins at `at`, and returns the size of the directory that
/// it states, and the offset at which it begins; `None` if there is none.
fn zip64_end(file: &File, at: u64, archive_offset: u64) -> io::Result<Option<(u64, u64)>> {
    let Some(locator_at) = at.checked_sub(LOCATOR_64 as u64) else {
        return Ok(None);
    };
    let locator: [u8; LOCATOR_64] = read(file, locator_at)?;
    if !locator.starts_with(b"PK\x06\x07") {
        return Ok(None);
    }
    let from = number(&locator, 8, 8).saturating_add(archive_offset);
    if from
        .checked_add(END_64 as u64)
        .is_none_or(|end| end > locator_at)
    {
        return Err(invalid(
            "its zip64 end record is not where its locator says",
        ));
    }
    let record: [u8; END_64] = read(file, from)?;
    // the size that the record states is without its first twelve bytes
    let is_before_locator = number(&record, 4, 8).checked_add(12) == Some(locator_at - from);
    match record.starts_with(b"PK\x06\x06") && is_before_locator {
        true => Ok(Some((number(&record, 40, 8), from))),
        false => Err(invalid(
            "its zip64 end record is not where its locator says",
        )),
    }
}

/// Returns the number of bytes that `entries` entries of the directory take from `start` on.
fn directory_bytes(file: &File, start: u64, entries: usize) -> io::Result<u64> {
    let mut at = start;
    for _ in 0..entries {
        let entry: [u8; ENTRY as usize] = read(file, at)?;
        let texts: u64 = [28, 30, 32]
            .into_iter()
            .map(|place| number(&entry, place, 2))
            .sum();
        at = at.saturating_add(ENTRY + texts);
    }
    Ok(at - start)
}

/// Reads the N bytes at an offset of the file.
fn read<const N: usize>(file: &File, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at).map(|()| bytes)
}

/// Returns the little-endian integer of `bytes` bytes at a place of a record.
fn number(record: &[u8], place: usize, bytes: usize) -> u64 {
    record
        .iter()
        .skip(place)
        .take(bytes)
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Makes an I/O error of kind `InvalidData` with this message.
fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Returns the largest number of entries that any end record (zip or zip64) near the end of the file claims: the zip
/// library would allocate for them all.
pub fn claimed_entries(file: &mut File, length: u64) -> io::Result<u64> {
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(0x1_0000 + 256)))?;
    file.take(0x1_0000 + 256).read_to_end(&mut tail)?;
    file.rewind()?;
    Ok((0..tail.len())
        .filter_map(|at| tail.get(at..))
        .map(entries_of_record)
        .max()
        .unwrap_or(0))
}

/// Returns the number of entries that an end record at the front of `bytes` claims; 0 without one.
fn entries_of_record(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk::<40>(), bytes.first_chunk::<12>()) {
        (Some(&[b'P', b'K', 6, 6, .., a, b, c, d, e, f, g, h]), _) => {
            u64::from_le_bytes([a, b, c, d, e, f, g, h])
        }
        (_, Some(&[b'P', b'K', 5, 6, .., a, b])) => u64::from(u16::from_le_bytes([a, b])),
        _ => 0,
    }
}
