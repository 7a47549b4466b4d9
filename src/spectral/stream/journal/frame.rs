//! Records in a file. A record consists of the length of the payload (u64, little-endian), the complement of the
//! length, the SHA-256 of the payload, and the payload.
//!
//! A killed run may have written only the beginning of a record. A record is therefore torn if its two lengths agree
//! and the file ends too early. Any other fault is damage.

#![deny(clippy::indexing_slicing)] // numbers in a file may be anything

use std::io::{self, Read};

use sha2::{Digest, Sha256};

/// Number of bytes before the payload.
const RECORD_HEAD_BYTES: usize = 8 + 8 + 32;

/// The result of reading the next record.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadRecord {
    Whole(Vec<u8>),
    /// The file ends before the record does.
    Torn,
    /// Number of damaged bytes, after which the next record may be whole. It covers the rest of the file if the length
    /// of the record is not known.
    Damaged(u64),
}

/// Returns a record: a head (the payload's length, the bitwise complement of that, the payload's SHA-256), and the
/// payload.
pub fn frame_payload(payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u64;
    [
        &length.to_le_bytes()[..],
        &(!length).to_le_bytes(),
        &Sha256::digest(payload),
        payload,
    ]
    .concat()
}

/// Returns the number of bytes of a payload's record, head included.
pub fn record_length(payload: &[u8]) -> u64 {
    record_length_of(payload.len() as u64)
}

/// Returns the number of bytes of the record of a payload of this many bytes, head included.
pub fn record_length_of(payload_bytes: u64) -> u64 {
    payload_bytes.saturating_add(RECORD_HEAD_BYTES as u64)
}

/// Reads a record, which is whole, damaged or torn (cut off by the file's end), from a file with `bytes_left` more
/// bytes. It allocates no more than these, even if the record states a greater length.
pub fn read_record(file: &mut impl Read, bytes_left: u64) -> io::Result<ReadRecord> {
    // 1. Read the head.
    if bytes_left < RECORD_HEAD_BYTES as u64 {
        return Ok(ReadRecord::Torn);
    }
    let mut length = [0; 8];
    let mut complement = [0; 8];
    let mut hash = [0; 32];
    file.read_exact(&mut length)?;
    file.read_exact(&mut complement)?;
    file.read_exact(&mut hash)?;
    let length = u64::from_le_bytes(length);
    if length != !u64::from_le_bytes(complement) {
        return Ok(ReadRecord::Damaged(bytes_left));
    }
    // 2. Read the payload if the file has all of it.
    let Some(size) = usize::try_from(length)
        .ok()
        .filter(|_| length <= bytes_left - RECORD_HEAD_BYTES as u64)
    else {
        return Ok(ReadRecord::Torn);
    };
    let mut payload = vec![0; size];
    file.read_exact(&mut payload)?;
    let is_whole = Sha256::digest(&payload).as_slice() == hash;
    Ok(if is_whole {
        ReadRecord::Whole(payload)
    } else {
        ReadRecord::Damaged(RECORD_HEAD_BYTES as u64 + length)
    })
}
