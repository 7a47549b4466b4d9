//! The head of a journal: a line that names the format and its version, and a record with the key. It is there twice,
//! one copy after the other, and either is enough: damage of the first bytes must not cost the rows behind them.

#![deny(clippy::indexing_slicing)] // numbers in a file may be anything

use std::io::{self, Read, Seek, SeekFrom};

use super::frame::{self, Frame, frame};

/// First line of a journal.
pub const MAGIC: &[u8] = b"popfit journal 13\n";
/// First lines of the journals of versions 11 and 12, which are read and continued. They have one head, whose key does
/// not name the instruction set.
pub const OLD_MAGIC: [&[u8]; 2] = [b"popfit journal 11\n", b"popfit journal 12\n"];
/// Maximum number of bytes in which the second copy is looked for.
const MOST: u64 = 64 << 20;

/// The head of a journal that was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    pub key: String,
    /// Offset at which the records begin.
    pub end: u64,
    /// One of the two copies is damaged.
    pub is_damaged: bool,
}

/// What begins at a place of the file.
enum Copy {
    /// A head with this key.
    Whole {
        key: Vec<u8>,
        is_old: bool,
    },
    /// The file ends before the head does.
    Torn,
    Damaged,
    /// No journal of a known version.
    Unknown,
}

/// Returns both copies of the head of a journal with this key.
pub fn twice(key: &str) -> Vec<u8> {
    [MAGIC, &frame(key.as_bytes())].concat().repeat(2)
}

/// Reads the head of a journal of `length` bytes; `None` if a killed run has written only a part of it. Returns a
/// message if the file is no journal, or if both copies are damaged.
pub fn read(
    file: &mut (impl Read + Seek),
    length: u64,
) -> io::Result<Result<Option<Head>, &'static str>> {
    let first = read_copy(file, 0, length)?;
    // 1. The first copy is whole, and the file is long enough for the second one.
    if let Copy::Whole { key, is_old: false } = &first {
        let both = twice(&String::from_utf8_lossy(key));
        if length < both.len() as u64 {
            return Ok(Ok(None));
        }
        let mut found = vec![0; both.len()];
        file.seek(SeekFrom::Start(0))?;
        file.read_exact(&mut found)?;
        return Ok(Ok(Some(head(key, both.len() as u64, found != both))));
    }
    // 2. Otherwise the second copy decides, whatever a damaged first line says.
    if let Some(head) = second(file, length)? {
        return Ok(Ok(Some(head)));
    }
    Ok(match first {
        Copy::Whole { key, .. } => Ok(Some(head(&key, copy_bytes(&key), false))),
        Copy::Torn => Ok(None),
        Copy::Damaged => Err("its head is damaged: remove it to begin anew"),
        Copy::Unknown => {
            Err("it is no journal of this version of popfit: remove it if nobody needs it")
        }
    })
}

/// Reads what begins at offset `at` of a file of `length` bytes.
fn read_copy(file: &mut (impl Read + Seek), at: u64, length: u64) -> io::Result<Copy> {
    file.seek(SeekFrom::Start(at))?;
    let left = length.saturating_sub(at);
    let mut line = vec![0; MAGIC.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
    file.read_exact(&mut line)?;
    let is_old = OLD_MAGIC.iter().any(|old| old.starts_with(&line));
    if !is_old && !MAGIC.starts_with(&line) {
        return Ok(Copy::Unknown);
    }
    Ok(match frame::read(file, left - line.len() as u64)? {
        Frame::Whole(key) => Copy::Whole { key, is_old },
        Frame::Torn => Copy::Torn,
        Frame::Damaged(_) => Copy::Damaged,
    })
}

/// Finds the second copy of the head, which begins as many bytes from the file's start as it is long.
fn second(file: &mut (impl Read + Seek), length: u64) -> io::Result<Option<Head>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.by_ref().take(MOST).read_to_end(&mut bytes)?;
    let is_second = |place: usize| {
        let stated = bytes.get(place + MAGIC.len()..)?.first_chunk::<8>()?;
        let copy = frame::length_of(u64::from_le_bytes(*stated)).checked_add(MAGIC.len() as u64)?;
        (copy == place as u64).then_some(copy)
    };
    let mut places = bytes
        .windows(MAGIC.len())
        .enumerate()
        .skip(1)
        .filter(|(_, line)| *line == MAGIC);
    let Some(place) = places.find_map(|(place, _)| is_second(place)) else {
        return Ok(None);
    };
    Ok(match read_copy(file, place, length)? {
        Copy::Whole { key, is_old: false } => Some(head(&key, 2 * place, true)),
        _ => None,
    })
}

/// Returns the head with this key.
fn head(key: &[u8], end: u64, is_damaged: bool) -> Head {
    Head {
        key: String::from_utf8_lossy(key).into_owned(),
        end,
        is_damaged,
    }
}

/// Returns the number of bytes of one copy of the head with this key.
fn copy_bytes(key: &[u8]) -> u64 {
    MAGIC.len() as u64 + frame::length(key)
}
