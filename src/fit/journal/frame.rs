//! Records in a file: the payload's length (u64, little-endian), its SHA-256, the payload.

use std::io::{self, Read};

use sha2::{Digest, Sha256};

/// Bytes in front of the payload.
const HEAD: usize = 8 + 32;

/// What stands at a place of the journal.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    Whole(Vec<u8>),
    /// The file ends before the record does.
    Torn,
    Damaged,
}

/// The bytes of a record.
pub fn frame(payload: &[u8]) -> Vec<u8> {
    [&(payload.len() as u64).to_le_bytes()[..], &Sha256::digest(payload), payload].concat()
}

/// How many they are.
pub fn length(payload: &[u8]) -> u64 {
    (HEAD + payload.len()) as u64
}

/// Reads a record from a file with `left` more bytes; no more memory than those is taken, whatever the length says.
pub fn read(file: &mut impl Read, left: u64) -> io::Result<Frame> {
    if left < HEAD as u64 {
        return Ok(Frame::Torn);
    }
    let (mut length, mut hash) = ([0; 8], [0; 32]);
    file.read_exact(&mut length)?;
    file.read_exact(&mut hash)?;
    let length = u64::from_le_bytes(length);
    let Some(length) = usize::try_from(length).ok().filter(|_| length <= left - HEAD as u64) else {
        return Ok(Frame::Torn);
    };
    let mut payload = vec![0; length];
    file.read_exact(&mut payload)?;
    let is_whole = Sha256::digest(&payload).as_slice() == hash;
    Ok(if is_whole { Frame::Whole(payload) } else { Frame::Damaged })
}
