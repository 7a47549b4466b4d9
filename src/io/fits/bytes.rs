//! Bytes of a FITS file: from the disk, or from memory if the file is compressed.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::error::{Error, Result};
use crate::io::files::File;
use crate::io::memory::most_inflated_bytes;
use crate::io::opened::CheckedFile;

/// First bytes of a gzip file.
pub const GZIP: &[u8] = &[0x1f, 0x8b];
/// Inflated bytes are kept in pieces of this size, so that nothing is copied while they grow.
const INFLATED_PIECE_BYTES: usize = 1 << 20;

/// Source of bytes at given offsets, from which the reader of FITS reads.
pub trait Bytes: Send {
    /// Returns the number of bytes.
    fn length(&self) -> u64;

    /// Returns the memory that a batch may take (bytes).
    fn spare(&self) -> u64 {
        most_inflated_bytes(self.length())
    }

    /// Fills `into` with the bytes from `offset` on.
    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Closes the file, if there is one, until [`reopen`](Bytes::reopen).
    fn close(&mut self) {}

    /// Opens a file that was closed.
    ///
    /// # Errors
    /// `Io`; [`Error::InputChanged`] if another file has its name now, or if it was written to.
    fn reopen(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Opens a file for reading at any position; one that begins as gzip does is inflated into memory.
///
/// # Errors
/// `TooLarge` for a gzip file that expands beyond what spectra do; `Format` when it is corrupt or truncated.
pub fn open(path: &Path) -> Result<Box<dyn Bytes>> {
    let mut file = File::open(path).map_err(Error::io(path))?;
    let opened = CheckedFile::new(&file).map_err(Error::io(path))?;
    let mut first_bytes = Vec::new();
    file.by_ref()
        .take(2)
        .read_to_end(&mut first_bytes)
        .map_err(Error::io(path))?;
    file.rewind().map_err(Error::io(path))?;
    if first_bytes != GZIP {
        return Ok(Box::new(OnDisk {
            path: path.to_path_buf(),
            opened,
            file: Some(file),
        }));
    }
    Ok(Box::new(inflate(
        path,
        file,
        most_inflated_bytes(opened.length()),
    )?))
}

struct OnDisk {
    path: PathBuf,
    opened: CheckedFile,
    /// `None` while it is closed.
    file: Option<File>,
}

impl Bytes for OnDisk {
    fn length(&self) -> u64 {
        self.opened.length()
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let file = self
            .file
            .as_mut()
            .ok_or_else(|| io::Error::other("the file is closed"))?;
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(into)
    }

    fn close(&mut self) {
        self.file = None;
    }

    fn reopen(&mut self) -> Result<()> {
        if self.file.is_none() {
            self.file = Some(self.opened.open_unwritten(&self.path)?);
        }
        Ok(())
    }
}

struct InMemory {
    /// Inflated bytes. All pieces but the last are full.
    pieces: Vec<Vec<u8>>,
    length: u64,
    /// Memory that a batch may take beside the inflated file (bytes).
    spare: u64,
}

impl Bytes for InMemory {
    fn length(&self) -> u64 {
        self.length
    }

    fn spare(&self) -> u64 {
        self.spare
    }

    fn read_at(&mut self, offset: u64, mut into: &mut [u8]) -> io::Result<()> {
        let mut offset = usize::try_from(offset).map_err(|_| ErrorKind::UnexpectedEof)?;
        while !into.is_empty() {
            let rest_of_piece = self
                .pieces
                .get(offset / INFLATED_PIECE_BYTES)
                .and_then(|piece| piece.get(offset % INFLATED_PIECE_BYTES..))
                .unwrap_or(&[]);
            let count = rest_of_piece.len().min(into.len());
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let (filled, unfilled) = into.split_at_mut(count);
            filled.copy_from_slice(rest_of_piece.split_at(count).0);
            into = unfilled;
            offset += count;
        }
        Ok(())
    }
}

/// Inflates all members of a gzip file into memory, checking their CRCs; fails if they hold more than `max_bytes`
/// bytes.
fn inflate(path: &Path, file: File, max_bytes: u64) -> Result<InMemory> {
    let mut decoder = MultiGzDecoder::new(io::BufReader::new(file));
    let mut pieces = Vec::new();
    let mut length = 0u64;
    // 1. Inflate piece by piece, and stop a bomb at the limit.
    loop {
        let mut piece = Vec::new();
        if piece.try_reserve_exact(INFLATED_PIECE_BYTES).is_err() {
            return Err(Error::TooLarge {
                path: path.into(),
                message: "inflated, it does not fit memory".into(),
            });
        }
        let count = decoder
            .by_ref()
            .take(INFLATED_PIECE_BYTES as u64)
            .read_to_end(&mut piece)
            .map_err(gzip_fault(path))?;
        length += count as u64;
        if length > max_bytes {
            let message =
                format!("it inflates to more than {max_bytes} bytes (is it a gzip bomb?)");
            return Err(Error::TooLarge {
                path: path.into(),
                message,
            });
        }
        pieces.push(piece);
        // 2. A piece that is not full is the last one.
        if count < INFLATED_PIECE_BYTES {
            let spare = max_bytes.saturating_sub(pieces.len() as u64 * INFLATED_PIECE_BYTES as u64);
            return Ok(InMemory {
                pieces,
                length,
                spare,
            });
        }
    }
}

/// Returns a function that turns an error of gunzipping into a format error, and any other into an I/O error.
fn gzip_fault(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
    use ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    move |error| match error.kind() {
        InvalidData | InvalidInput | Other | UnexpectedEof => {
            Error::format(path, format!("gzip: {error}"))
        }
        _ => Error::Io {
            path: path.to_path_buf(),
            source: error,
        },
    }
}
