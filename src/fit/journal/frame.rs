//! Records in a file: the payload's length (u64, little-endian) and its complement, the payload's SHA-256, the payload.
//!
//! A killed run leaves a beginning of what it wrote, so that a record whose two lengths agree and which is too short is
//! torn. Any other fault is damage.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::io::{self, Read};

use sha2::{Digest, Sha256};

/// Bytes in front of the payload.
const HEAD: usize = 8 + 8 + 32;

/// Content of one place of the journal.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    Whole(Vec<u8>),
    /// The file ends before the record does.
    Torn,
    /// So many bytes, behind which the next record may be whole; all the rest where that is not known.
    Damaged(u64),
}

/// The bytes of a record.
pub fn frame(payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u64;
    [&length.to_le_bytes()[..], &(!length).to_le_bytes(), &Sha256::digest(payload), payload].concat()
}

/// Returns how many they are.
pub fn length(payload: &[u8]) -> u64 {
    (HEAD + payload.len()) as u64
}

/// Reads a record from a file with `left` more bytes; no more memory than those is taken, whatever the length says.
pub fn read(file: &mut impl Read, left: u64) -> io::Result<Frame> {
    if left < HEAD as u64 {
        return Ok(Frame::Torn);
    }
    let (mut length, mut complement, mut hash) = ([0; 8], [0; 8], [0; 32]);
    file.read_exact(&mut length)?;
    file.read_exact(&mut complement)?;
    file.read_exact(&mut hash)?;
    let length = u64::from_le_bytes(length);
    if length != !u64::from_le_bytes(complement) {
        return Ok(Frame::Damaged(left));
    }
    let Some(size) = usize::try_from(length).ok().filter(|_| length <= left - HEAD as u64) else {
        return Ok(Frame::Torn);
    };
    let mut payload = vec![0; size];
    file.read_exact(&mut payload)?;
    let is_whole = Sha256::digest(&payload).as_slice() == hash;
    Ok(if is_whole { Frame::Whole(payload) } else { Frame::Damaged(HEAD as u64 + length) })
}
