//! An array that its zip archive holds uncompressed, as `numpy.savez` writes it.
//!
//! The bytes are read at their place in the file, by several threads if they are many. Each thread computes the CRC of
//! its part, block by block, while a block is in its cache; the CRC of the array follows from those of the parts.

use std::io::{self, Read};
use std::ops::Range;

use crc32fast::Hasher;
use zip::CompressionMethod;
use zip::read::{ZipArchiveMetadata, ZipReadOptions};

use super::Header;
use crate::io::files::File;
use crate::threads::map_on_own_threads;

/// Maximum number of threads that read one array.
const MAX_THREADS: usize = 4;
/// Minimum number of bytes that are worth a thread of their own.
const MIN_PART: usize = 1 << 20;
/// Bytes that are read before their CRC is computed.
const BLOCK: usize = 1 << 16;

/// The bytes of an uncompressed array, read from the first to the last.
pub(super) struct Stored {
    file: File,
    /// Offset of the next byte in the file.
    next: u64,
    /// Offset in the file of the first byte behind the array.
    end: u64,
    /// CRC of the bytes before `next`, those of the array's header included.
    crc: Hasher,
    /// CRC that the archive states.
    stated_crc: u32,
}

impl Stored {
    /// Finds entry `index` of a zip archive in its file, and reads the header of the entry's array; `None` if the entry
    /// is compressed.
    pub fn open(
        mut file: File,
        zip: &ZipArchiveMetadata,
        index: usize,
    ) -> io::Result<Option<(Stored, Header)>> {
        let entry = zip
            .entry(index)?
            .with_reader(&mut file, ZipReadOptions::new())?;
        let (size, stated_crc) = (entry.size(), entry.crc32());
        let Some(next) = entry
            .data_start()
            .filter(|_| entry.compression() == CompressionMethod::Stored)
        else {
            return Ok(None);
        };
        drop(entry);
        let mut stored = Stored {
            file,
            next,
            end: next.saturating_add(size),
            crc: Hasher::new(),
            stated_crc,
        };
        let header = Header::read(&mut stored, size)?;
        Ok(Some((stored, header)))
    }

    /// Reads the next bytes. With the last ones of the array, fails unless its CRC is the stated one.
    pub fn read_next(&mut self, into: &mut [u8]) -> io::Result<()> {
        let length = into.len();
        if length > self.left() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let part = part_of(length);
        let parts = into.chunks_mut(part).zip((self.next..).step_by(part));
        let crcs = map_on_own_threads("npz reader", parts, |(part, offset)| {
            read_at(&self.file, offset, part)
        });
        self.advance(length as u64, crcs)
    }

    /// Adds the CRCs of the parts of the next bytes. With the last ones of the array, fails unless its CRC is the
    /// stated one.
    fn advance(&mut self, length: u64, crcs: Vec<io::Result<Hasher>>) -> io::Result<()> {
        for crc in crcs {
            self.crc.combine(&crc?);
        }
        self.next += length;
        if self.next == self.end && self.crc.clone().finalize() != self.stated_crc {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "Invalid checksum",
            ));
        }
        Ok(())
    }

    /// Reads and returns the next bytes, at most `most`; fails at the end of the array.
    pub fn next_piece(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut piece = vec![0; self.left().min(most)];
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_next(&mut piece)?;
        Ok(piece)
    }

    /// Reads all bytes that are left, and keeps none; fails unless the CRC of the array is the stated one.
    pub fn check(mut self) -> io::Result<()> {
        let (start, end) = (self.next, self.end);
        let part = part_of(self.left());
        let parts = (start..end)
            .step_by(part)
            .map(|start| start..end.min(start.saturating_add(part as u64)));
        let crcs = map_on_own_threads("npz reader", parts, |part| crc_of(&self.file, part));
        self.advance(end - start, crcs)
    }

    /// Returns the number of bytes that are left.
    fn left(&self) -> usize {
        usize::try_from(self.end - self.next).unwrap_or(usize::MAX)
    }
}

/// The header is read by this.
impl Read for Stored {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_next(into).map(|()| into.len())
    }
}

/// Returns the number of bytes that each thread reads of `length` ones.
fn part_of(length: usize) -> usize {
    length.div_ceil(MAX_THREADS).max(MIN_PART)
}

/// Returns the CRC of a range of a file's bytes.
fn crc_of(file: &File, bytes: Range<u64>) -> io::Result<Hasher> {
    let (mut crc, mut block) = (Hasher::new(), vec![0; BLOCK]);
    let mut offset = bytes.start;
    while offset < bytes.end {
        block.truncate(usize::try_from(bytes.end - offset).unwrap_or(BLOCK));
        file.read_exact_at(&mut block, offset)?;
        crc.update(&block);
        offset += block.len() as u64;
    }
    Ok(crc)
}

/// Reads the bytes at an offset of a file, and returns their CRC.
fn read_at(file: &File, offset: u64, into: &mut [u8]) -> io::Result<Hasher> {
    let mut crc = Hasher::new();
    for (block, offset) in into.chunks_mut(BLOCK).zip((offset..).step_by(BLOCK)) {
        file.read_exact_at(block, offset)?;
        crc.update(block);
    }
    Ok(crc)
}
