//! An array read progressively.
//!
//! What is not compressed is read where it is wanted ([`Stored`]). zip's decompressing reader borrows the file it reads
//! from, so the thread of a compressed array owns both and hands pieces over a short channel; dropping the stream ends
//! the thread. Arrays of one file inflate in parallel this way.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use pulp::bytemuck::{Pod, cast_slice_mut};
use zip::read::{ZipArchiveMetadata, ZipReadOptions};

use super::header::RowMajor;
use super::stored::Stored;
use super::{DType, Header, array_fault, finish, too_large};
use crate::error::{Error, Result};
use crate::io::files::File;
use crate::io::opened::Opened;

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
    /// What of the file's bytes is not yet read; `None` before the first element is taken.
    unread: Option<Unread>,
    /// A piece and how much of it has been taken.
    piece: (Vec<u8>, usize),
}

/// The bytes of an array that are not yet read.
enum Unread {
    Stored(Stored),
    /// Those that a thread inflates, in pieces.
    Inflated(Receiver<io::Result<Vec<u8>>>),
}

/// Place of the array in its file, and the size of the pieces that are read.
struct Source {
    zip: Arc<ZipArchiveMetadata>,
    index: usize,
    /// The file as it was when its arrays were checked.
    opened: Opened,
    /// Bytes of a piece, those of whole elements.
    piece_bytes: usize,
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
        opened: Opened,
        streams: usize,
    ) -> Stream {
        let item = header.dtype.bytes();
        let piece_bytes = (PIECE.min(HELD / (AHEAD + 2) / streams.max(1)) / item).max(1) * item;
        Stream {
            path: path.to_path_buf(),
            key: key.to_string(),
            header: header.clone(),
            left: header.elements(),
            source: Source {
                zip,
                index,
                opened,
                piece_bytes,
            },
            unread: None,
            piece: (Vec::new(), 0),
        }
    }

    /// Opens the file, and starts the thread that decompresses the array if it is compressed; fails if the array's
    /// header has changed.
    fn start(&self) -> Result<Unread> {
        let Source {
            zip,
            index,
            piece_bytes,
            ..
        } = &self.source;
        let open = || self.source.opened.open_again(&self.path);
        let fault = array_fault(&self.path, &self.key);
        let (unread, header) = match Stored::open(open()?, zip, *index).map_err(&fault)? {
            Some((stored, header)) => (Unread::Stored(stored), header),
            None => {
                let (pieces, header) =
                    inflate_in_thread(&self.key, open()?, zip, *index, *piece_bytes)
                        .map_err(fault)?;
                (Unread::Inflated(pieces), header)
            }
        };
        match header == self.header {
            true => Ok(unread),
            false => Err(Error::format(
                &self.path,
                format!("`{}` has changed since the file was opened", self.key),
            )),
        }
    }

    /// Returns the bytes that are not yet read, of a file that is opened if need be.
    fn unread(&mut self) -> Result<&mut Unread> {
        let unread = match self.unread.take() {
            Some(unread) => unread,
            None => self.start()?,
        };
        Ok(self.unread.insert(unread))
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
        let mut wanted = self.bytes_of(elements)?;
        while wanted > 0 {
            if self.untaken().is_empty() {
                self.piece = (self.next_piece()?, 0);
            }
            let untaken = self.untaken();
            let bytes = untaken.get(..wanted).unwrap_or(untaken);
            let length = bytes.len();
            decode(&self.header.dtype, bytes)
                .map_err(|m| Error::format(&self.path, format!("{}: {m}", self.key)))?;
            self.piece.1 += length;
            wanted -= length;
        }
        self.taken(elements)
    }

    /// Returns whether the elements have in the file the bytes that `T`, f32 or f64, has in memory.
    pub(crate) fn is_as_in_memory<T: Pod>(&self) -> bool {
        self.header.dtype.is_float_in_memory(size_of::<T>())
    }

    /// Fills `into` with the next elements, which are as in memory.
    pub(crate) fn take_as_in_memory<T: Pod>(&mut self, into: &mut [T]) -> Result<()> {
        let elements = into.len();
        self.bytes_of(elements)?;
        let mut wanted: &mut [u8] = cast_slice_mut(into);
        while !wanted.is_empty() {
            let untaken = self.untaken();
            if untaken.is_empty() {
                if !self.header.is_transposed()
                    && let Unread::Stored(stored) = self.unread()?
                {
                    // straight from the file
                    stored
                        .read_next(wanted)
                        .map_err(array_fault(&self.path, &self.key))?;
                    break;
                }
                self.piece = (self.next_piece()?, 0);
                continue;
            }
            let length = untaken.len().min(wanted.len());
            let (now, later) = wanted.split_at_mut(length);
            now.iter_mut()
                .zip(untaken)
                .for_each(|(to, from)| *to = *from);
            self.piece.1 += length;
            wanted = later;
        }
        self.taken(elements)
    }

    /// Returns the number of bytes of the next `elements` elements; fails if there are not so many.
    fn bytes_of(&self, elements: usize) -> Result<usize> {
        match elements > self.left {
            true => Err(Error::format(
                &self.path,
                format!("{}: {} elements left", self.key, self.left),
            )),
            false => Ok(elements * self.header.dtype.bytes()),
        }
    }

    /// Returns the bytes of the current piece that have not been taken.
    fn untaken(&self) -> &[u8] {
        self.piece.0.get(self.piece.1..).unwrap_or_default()
    }

    /// Counts elements that were taken; with the last ones, fails if bytes are left or the CRC is wrong.
    fn taken(&mut self, elements: usize) -> Result<()> {
        self.left -= elements;
        match self
            .unread
            .as_mut()
            .filter(|_| elements > 0 && self.left == 0)
        {
            // the thread sends an empty piece when it has compared the CRC; stored bytes were compared as they were
            // read
            Some(Unread::Inflated(pieces)) => match pieces.recv() {
                Ok(Ok(piece)) if piece.is_empty() => Ok(()),
                other => Err(array_fault(&self.path, &self.key)(stopped(other))),
            },
            _ => Ok(()),
        }
    }

    /// Returns the bytes of the next elements in row-major order, in a piece of any length.
    fn next_piece(&mut self) -> Result<Vec<u8>> {
        if self.header.is_transposed() {
            self.all_rows()
        } else {
            self.next_of_file()
        }
    }

    /// Reads the whole array, which the file has in Fortran order, and returns its bytes in row-major order.
    fn all_rows(&mut self) -> Result<Vec<u8>> {
        let (item, length) = (
            self.header.dtype.bytes(),
            self.header.elements() * self.header.dtype.bytes(),
        );
        let mut rows = Vec::new();
        if rows.try_reserve_exact(length).is_err() {
            let message = format!(
                "`{}` is in Fortran order, and its {length} bytes do not fit memory",
                self.key
            );
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

    /// Returns the next piece of uncompressed bytes, in the file's order; fails if the array ended early.
    fn next_of_file(&mut self) -> Result<Vec<u8>> {
        let piece_bytes = self.source.piece_bytes;
        let piece = match self.unread()? {
            Unread::Stored(stored) => stored.next_piece(piece_bytes),
            Unread::Inflated(pieces) => match pieces.recv() {
                Ok(Ok(piece)) if !piece.is_empty() => Ok(piece),
                other => Err(stopped(other)),
            },
        };
        piece.map_err(array_fault(&self.path, &self.key))
    }
}

/// Returns the error with which decompression stopped, or one that says that the array ended early.
fn stopped<E>(received: Result<io::Result<Vec<u8>>, E>) -> io::Error {
    match received {
        Ok(Err(e)) => e,
        _ => io::Error::new(io::ErrorKind::InvalidData, "the array ended early"),
    }
}

/// Starts the thread that decompresses a zip entry; returns its channel of pieces, and the header of the entry's array.
fn inflate_in_thread(
    key: &str,
    file: File,
    zip: &Arc<ZipArchiveMetadata>,
    index: usize,
    most: usize,
) -> io::Result<(Receiver<io::Result<Vec<u8>>>, Header)> {
    let (sender, pieces) = sync_channel(AHEAD);
    let (header_sender, header) = sync_channel(1);
    let zip = Arc::clone(zip);
    let thread = std::thread::Builder::new().name(format!("npz {key}"));
    thread.spawn(move || {
        if let Err(e) = inflate(file, &zip, index, most, &header_sender, &sender) {
            drop(header_sender);
            // where nobody listens any more, nobody needs the error
            let _ = sender.send(Err(e));
        }
    })?;
    match header.recv() {
        Ok(header) => Ok((pieces, header)),
        Err(_) => Err(stopped(pieces.recv())),
    }
}

/// Decompresses a zip entry and sends its header, then pieces of at most `most` bytes, then an empty one. An empty
/// piece at the end says that the CRC is right.
fn inflate(
    file: File,
    zip: &ZipArchiveMetadata,
    index: usize,
    most: usize,
    header: &SyncSender<Header>,
    pieces: &SyncSender<io::Result<Vec<u8>>>,
) -> io::Result<()> {
    let mut file = BufReader::new(file);
    let mut entry = zip
        .entry(index)?
        .with_reader(&mut file, ZipReadOptions::new())?;
    let size = entry.size();
    let found = Header::read(&mut entry, size)?;
    let mut left = found.elements() * found.dtype.bytes();
    if header.send(found).is_err() {
        return Ok(());
    }
    while left > 0 {
        let mut piece = vec![0; left.min(most)];
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
