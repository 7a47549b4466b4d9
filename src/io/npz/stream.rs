//! An array read progressively.
//!
//! zip's decompressing reader borrows the file it reads from, so each stream's thread owns both and hands pieces over a
//! short channel; dropping the stream ends the thread. Arrays of one file inflate in parallel this way.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use zip::read::{ZipArchiveMetadata, ZipReadOptions};

use super::header::RowMajor;
use super::{DType, Header, array_fault, finish, too_large};
use crate::error::{Error, Result};
use crate::io::files::File;

const PIECE: usize = 1 << 18;
const AHEAD: usize = 2;
/// Bytes that all streams of a file hold: each a piece that is taken, those ahead, and one that is being made.
const HELD: usize = 8 << 20;

/// The elements of one array, row by row. An array in Fortran order is held whole, others piece by piece. Before the
/// first element is taken there is neither a thread nor an open file: runs have many files.
pub(crate) struct Stream {
    path: PathBuf,
    key: String,
    header: Header,
    /// Elements not yet taken.
    left: usize,
    source: Source,
    pieces: Option<Pieces>,
    /// A piece and how much of it has been taken.
    piece: (Vec<u8>, usize),
}

type Pieces = Receiver<io::Result<Vec<u8>>>;

/// Place of the array in its file, and the size of the pieces that are read.
struct Source {
    zip: Arc<ZipArchiveMetadata>,
    index: usize,
    /// Bytes of a piece.
    most: usize,
}

impl Stream {
    /// Prepares to read the array that a header describes, entry `index` of the zip archive; all `streams` together
    /// share the memory for pieces.
    pub(super) fn new(
        path: &Path,
        key: &str,
        header: &Header,
        zip: Arc<ZipArchiveMetadata>,
        index: usize,
        streams: usize,
    ) -> Stream {
        let most = PIECE.min(HELD / (AHEAD + 2) / streams.max(1));
        Stream {
            path: path.to_path_buf(),
            key: key.to_string(),
            header: header.clone(),
            left: header.elements(),
            source: Source { zip, index, most },
            pieces: None,
            piece: (Vec::new(), 0),
        }
    }

    /// Starts the thread that decompresses the array, and returns its channel of pieces; fails if the array's header
    /// has changed.
    fn start(&self) -> Result<Pieces> {
        let Source { zip, index, most } = &self.source;
        let file = File::open(&self.path).map_err(Error::io(&self.path))?;
        let (sender, pieces) = sync_channel(AHEAD);
        let (header_sender, header) = sync_channel(1);
        let (zip, index, most) = (Arc::clone(zip), *index, *most);
        let thread = std::thread::Builder::new().name(format!("npz {}", self.key));
        let spawned = thread.spawn(move || {
            if let Err(e) = inflate(file, &zip, index, most, &header_sender, &sender) {
                drop(header_sender);
                // where nobody listens any more, nobody needs the error
                let _ = sender.send(Err(e));
            }
        });
        spawned.map_err(Error::io(&self.path))?;
        match header.recv() {
            Ok(found) if found == self.header => Ok(pieces),
            Ok(_) => Err(Error::format(&self.path, format!("`{}` has changed since the file was opened", self.key))),
            Err(_) => Err(array_fault(&self.path, &self.key)(stopped(pieces.recv()))),
        }
    }

    /// Receives the next piece from the decompressing thread, which is started if need be; `None` if the thread has
    /// ended.
    fn receive(&mut self) -> Result<Option<io::Result<Vec<u8>>>> {
        let pieces = match self.pieces.take() {
            Some(pieces) => pieces,
            None => self.start()?,
        };
        Ok(self.pieces.insert(pieces).recv().ok())
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the type of the elements in the file.
    pub(crate) fn dtype(&self) -> DType {
        self.header.dtype
    }

    /// Reads the next `elements` elements of the array and hands their bytes to `decode`, one piece after another.
    pub(crate) fn take(
        &mut self,
        elements: usize,
        mut decode: impl FnMut(&DType, &[u8]) -> Result<(), String>,
    ) -> Result<()> {
        let item = self.header.dtype.bytes();
        if elements > self.left {
            return Err(Error::format(&self.path, format!("{}: {} elements left", self.key, self.left)));
        }
        let mut wanted = elements * item;
        while wanted > 0 {
            if self.piece.1 == self.piece.0.len() {
                self.piece = (self.next_piece()?, 0);
            }
            let (piece, taken) = (&self.piece.0, self.piece.1);
            let length = wanted.min(piece.len() - taken);
            let some = piece.get(taken..taken + length).ok_or_else(|| "the array ended early".to_string());
            some.and_then(|some| decode(&self.header.dtype, some))
                .map_err(|m| Error::format(&self.path, format!("{}: {m}", self.key)))?;
            self.piece.1 += length;
            wanted -= length;
        }
        let ended = elements > 0 && elements == self.left;
        self.left -= elements;
        if ended { self.end() } else { Ok(()) }
    }

    /// Returns the bytes of the next elements in row-major order, in a piece of any length.
    fn next_piece(&mut self) -> Result<Vec<u8>> {
        if self.header.is_transposed() { self.all_rows() } else { self.next_of_file() }
    }

    /// Reads the whole array, which the file has in Fortran order, and returns its bytes in row-major order.
    fn all_rows(&mut self) -> Result<Vec<u8>> {
        let (item, length) = (self.header.dtype.bytes(), self.header.elements() * self.header.dtype.bytes());
        let mut rows = Vec::new();
        if rows.try_reserve_exact(length).is_err() {
            let message = format!("`{}` is in Fortran order, and its {length} bytes do not fit memory", self.key);
            return Err(too_large(&self.path, message));
        }
        rows.resize(length, 0);
        let shape = self.header.shape.clone();
        let (mut places, mut left) = (RowMajor::new(&shape), length);
        while left > 0 {
            let piece = self.next_of_file()?;
            for element in piece.chunks_exact(item) {
                let at = places.next_place() * item;
                if let Some(place) = rows.get_mut(at..at + item) {
                    place.copy_from_slice(element);
                }
            }
            left = left.saturating_sub(piece.len());
        }
        Ok(rows)
    }

    /// Receives the next piece of decompressed bytes, in the file's order; fails if the array ended early.
    fn next_of_file(&mut self) -> Result<Vec<u8>> {
        match self.receive()? {
            Some(Ok(piece)) if !piece.is_empty() => Ok(piece),
            other => Err(array_fault(&self.path, &self.key)(stopped(other.ok_or(())))),
        }
    }

    /// Waits until the thread has read the array to its end; fails if bytes are left or the CRC is wrong.
    fn end(&mut self) -> Result<()> {
        match self.receive()? {
            Some(Ok(piece)) if piece.is_empty() => Ok(()),
            other => Err(array_fault(&self.path, &self.key)(stopped(other.ok_or(())))),
        }
    }
}

/// Returns the error with which decompression stopped, or one that says that the array ended early.
fn stopped<E>(received: Result<io::Result<Vec<u8>>, E>) -> io::Error {
    match received {
        Ok(Err(e)) => e,
        _ => io::Error::new(io::ErrorKind::InvalidData, "the array ended early"),
    }
}

/// Decompresses a zip entry and sends its header, then pieces of at most `most` bytes but whole elements, then an empty
/// one. An empty piece at the end says that the CRC is right.
fn inflate(
    file: File,
    zip: &ZipArchiveMetadata,
    index: usize,
    most: usize,
    header: &SyncSender<Header>,
    pieces: &SyncSender<io::Result<Vec<u8>>>,
) -> io::Result<()> {
    let mut file = BufReader::new(file);
    let mut entry = zip.entry(index)?.with_reader(&mut file, ZipReadOptions::new())?;
    let size = entry.size();
    let found = Header::read(&mut entry, size)?;
    let item = found.dtype.bytes();
    let mut left = found.elements() * item;
    if header.send(found).is_err() {
        return Ok(());
    }
    while left > 0 {
        let mut piece = vec![0; left.min((most / item).max(1) * item)];
        entry.read_exact(&mut piece)?;
        left -= piece.len();
        if pieces.send(Ok(piece)).is_err() {
            return Ok(());
        }
    }
    finish(&mut entry)?;
    let _ = pieces.send(Ok(Vec::new()));
    Ok(())
}
