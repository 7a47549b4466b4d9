//! The head of a journal: a line that names the format and its version, and a record with the key. The file begins with
//! two copies of it, of which either is enough, so that damage of the first bytes does not cost the rows after them.

#![deny(clippy::indexing_slicing)] // numbers in a file may be anything

use std::io::{self, Read, Seek, SeekFrom};

use super::frame::{self, ReadRecord, frame_payload};

/// First line of a journal.
pub const JOURNAL_MAGIC: &[u8] = b"popfit journal 14\n";
/// Maximum number of bytes in which the second copy is searched.
const MAX_SEARCHED_BYTES: u64 = 64 << 20;

/// The head of a journal that was read.
#[derive(Debug, PartialEq, Eq)]
pub struct JournalHead {
    pub key: String,
    /// Offset at which the records begin.
    pub end: u64,
    /// One of the two copies is damaged.
    pub is_damaged: bool,
}

impl JournalHead {
    /// Returns the head with this key.
    fn new(key: &[u8], end: u64, is_damaged: bool) -> JournalHead {
        JournalHead {
            key: String::from_utf8_lossy(key).into_owned(),
            end,
            is_damaged,
        }
    }
}

/// A copy of the head as it was read.
enum HeadCopy {
    /// A head with this key.
    Whole(Vec<u8>),
    /// The file ends before the head does.
    Torn,
    Damaged,
    /// No journal of this version.
    Unknown,
}

/// Returns both copies of the head of a journal with this key.
pub fn two_copies(key: &str) -> Vec<u8> {
    [JOURNAL_MAGIC, &frame_payload(key.as_bytes())]
        .concat()
        .repeat(2)
}

/// Reads the head of a journal of `length` bytes; `None` if a killed run has written only a part of it. Returns a
/// message if the file is no journal, or if both copies are damaged.
pub fn read_head(
    file: &mut (impl Read + Seek),
    length: u64,
) -> io::Result<Result<Option<JournalHead>, &'static str>> {
    let first_copy = read_copy(file, 0, length)?;
    // 1. The first copy is whole, and the file is long enough for the second one.
    if let HeadCopy::Whole(key) = &first_copy {
        let expected = two_copies(&String::from_utf8_lossy(key));
        if length < expected.len() as u64 {
            return Ok(Ok(None));
        }
        let mut bytes = vec![0; expected.len()];
        file.seek(SeekFrom::Start(0))?;
        file.read_exact(&mut bytes)?;
        let is_damaged = bytes != expected;
        return Ok(Ok(Some(JournalHead::new(
            key,
            expected.len() as u64,
            is_damaged,
        ))));
    }
    // 2. Otherwise the second copy decides, even if the first line is damaged.
    if let Some(head) = read_second_copy(file, length)? {
        return Ok(Ok(Some(head)));
    }
    // 3. Without a second copy the head is torn or damaged, or this is no journal.
    Ok(match first_copy {
        HeadCopy::Torn => Ok(None),
        HeadCopy::Whole(_) | HeadCopy::Damaged => {
            Err("its head is damaged: remove it to begin anew")
        }
        HeadCopy::Unknown => {
            Err("it is no journal of this version of popfit: remove it if nobody needs it")
        }
    })
}

/// Reads the copy of the head that begins at an offset of a file of `length` bytes.
fn read_copy(file: &mut (impl Read + Seek), offset: u64, length: u64) -> io::Result<HeadCopy> {
    file.seek(SeekFrom::Start(offset))?;
    let bytes_left = length.saturating_sub(offset);
    let line_length = JOURNAL_MAGIC
        .len()
        .min(usize::try_from(bytes_left).unwrap_or(usize::MAX));
    let mut line = vec![0; line_length];
    file.read_exact(&mut line)?;
    if !JOURNAL_MAGIC.starts_with(&line) {
        return Ok(HeadCopy::Unknown);
    }
    Ok(
        match frame::read_record(file, bytes_left - line.len() as u64)? {
            ReadRecord::Whole(key) => HeadCopy::Whole(key),
            ReadRecord::Torn => HeadCopy::Torn,
            ReadRecord::Damaged(_) => HeadCopy::Damaged,
        },
    )
}

/// Finds the second copy of the head, which begins as many bytes from the file's start as it is long.
fn read_second_copy(file: &mut (impl Read + Seek), length: u64) -> io::Result<Option<JournalHead>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.by_ref()
        .take(MAX_SEARCHED_BYTES)
        .read_to_end(&mut bytes)?;
    let Some(offset) = find_second_copy(&bytes) else {
        return Ok(None);
    };
    Ok(match read_copy(file, offset, length)? {
        HeadCopy::Whole(key) => Some(JournalHead::new(&key, 2 * offset, true)),
        _ => None,
    })
}

/// Returns the offset of the second copy of the head in the first bytes of a file.
fn find_second_copy(bytes: &[u8]) -> Option<u64> {
    let magic_length = JOURNAL_MAGIC.len();
    let windows = bytes.windows(magic_length).enumerate().skip(1);
    windows
        .filter(|(_, line)| *line == JOURNAL_MAGIC)
        .find_map(|(offset, _)| {
            let payload_length = bytes.get(offset + magic_length..)?.first_chunk::<8>()?;
            let copy_length = frame::record_length_of(u64::from_le_bytes(*payload_length))
                .checked_add(magic_length as u64)?;
            (copy_length == offset as u64).then_some(copy_length)
        })
}
