//! An array that its zip archive holds uncompressed, as `numpy.savez` writes it.
//!
//! The bytes are read at their place in the file, by several threads if they are many. Each thread computes the CRC of
//! its part, block by block, while a block is in its cache; the CRC of the array follows from those of the parts.

use std::io::{self, Read};
use std::ops::Range;

use crc32fast::Hasher;
use zip::CompressionMethod;
use zip::read::{ZipArchiveMetadata, ZipReadOptions};

use super::ArrayHeader;
use crate::io::files::File;
use crate::threads::map_on_own_threads;

/// Maximum number of threads that read one array.
const MAX_THREADS: usize = 4;
/// Minimum number of bytes that are worth a thread of their own.
const MIN_BYTES_PER_THREAD: usize = 1 << 20;
/// Bytes that are read before their CRC is computed.
const CRC_BLOCK_BYTES: usize = 1 << 16;

/// The bytes of an uncompressed array, read from the first to the last.
pub(super) struct Stored {
    file: File,
    /// Offset of the next byte in the file.
    next_offset: u64,
    /// Offset in the file of the first byte behind the array.
    end: u64,
    /// CRC of the bytes before `next_offset`, those of the array's header included.
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
    ) -> io::Result<Option<(Stored, ArrayHeader)>> {
        let entry = zip
            .entry(index)?
            .with_reader(&mut file, ZipReadOptions::new())?;
        let size = entry.size();
        let stated_crc = entry.crc32();
        let Some(start) = entry
            .data_start()
            .filter(|_| entry.compression() == CompressionMethod::Stored)
        else {
            return Ok(None);
        };
        drop(entry);
        let mut stored = Stored {
            file,
            next_offset: start,
            end: start.saturating_add(size),
            crc: Hasher::new(),
            stated_crc,
        };
        let header = ArrayHeader::read(&mut stored, size)?;
        Ok(Some((stored, header)))
    }

    /// Reads the next bytes. With the last ones of the array, fails unless its CRC is the stated one.
    pub fn read_next(&mut self, into: &mut [u8]) -> io::Result<()> {
        let length = into.len();
        if length > self.remaining() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let part_bytes = bytes_per_thread(length);
        let parts = into
            .chunks_mut(part_bytes)
            .zip((self.next_offset..).step_by(part_bytes));
        let crcs = map_on_own_threads("npz reader", parts, |(part, offset)| {
            read_with_crc(&self.file, offset, part)
        });
        self.add_crcs(length as u64, crcs)
    }

    /// Adds the CRCs of the parts of the next bytes. With the last ones of the array, fails unless its CRC is the
    /// stated one.
    fn add_crcs(&mut self, length: u64, crcs: Vec<io::Result<Hasher>>) -> io::Result<()> {
        for crc in crcs {
            self.crc.combine(&crc?);
        }
        self.next_offset += length;
        if self.next_offset == self.end && self.crc.clone().finalize() != self.stated_crc {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "Invalid checksum",
            ));
        }
        Ok(())
    }

    /// Reads and returns the next bytes, at most `max_bytes`; fails at the end of the array.
    pub fn next_piece(&mut self, max_bytes: usize) -> io::Result<Vec<u8>> {
        let mut piece = vec![0; self.remaining().min(max_bytes)];
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_next(&mut piece)?;
        Ok(piece)
    }

    /// Reads all bytes that are left, and keeps none; fails unless the CRC of the array is the stated one.
    pub fn check(mut self) -> io::Result<()> {
        let start = self.next_offset;
        let end = self.end;
        let part_bytes = bytes_per_thread(self.remaining());
        let parts = (start..end)
            .step_by(part_bytes)
            .map(|offset| offset..end.min(offset.saturating_add(part_bytes as u64)));
        let crcs = map_on_own_threads("npz reader", parts, |part| compute_crc(&self.file, part));
        self.add_crcs(end - start, crcs)
    }

    /// Returns the number of bytes that are left.
    fn remaining(&self) -> usize {
        usize::try_from(self.end - self.next_offset).unwrap_or(usize::MAX)
    }
}

/// The array's header is read through this implementation.
impl Read for Stored {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_next(into).map(|()| into.len())
    }
}

/// Returns the number of bytes that each thread reads of `length` ones.
fn bytes_per_thread(length: usize) -> usize {
    length.div_ceil(MAX_THREADS).max(MIN_BYTES_PER_THREAD)
}

/// Returns the CRC of a range of a file's bytes.
fn compute_crc(file: &File, bytes: Range<u64>) -> io::Result<Hasher> {
    let mut crc = Hasher::new();
    let mut block = vec![0; CRC_BLOCK_BYTES];
    let mut offset = bytes.start;
    while offset < bytes.end {
        block.truncate(usize::try_from(bytes.end - offset).unwrap_or(CRC_BLOCK_BYTES));
        file.read_exact_at(&mut block, offset)?;
        crc.update(&block);
        offset += block.len() as u64;
    }
    Ok(crc)
}

/// Reads the bytes at an offset of a file, and returns their CRC.
fn read_with_crc(file: &File, offset: u64, into: &mut [u8]) -> io::Result<Hasher> {
    let mut crc = Hasher::new();
    for (block, offset) in into
        .chunks_mut(CRC_BLOCK_BYTES)
        .zip((offset..).step_by(CRC_BLOCK_BYTES))
    {
        file.read_exact_at(block, offset)?;
        crc.update(block);
    }
    Ok(crc)
}
