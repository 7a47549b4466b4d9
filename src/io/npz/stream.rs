//! An array read progressively.
//!
//! An uncompressed array is read by the thread that needs it ([`Stored`]). zip's decompressing reader borrows the file
//! it reads from, so the thread of a compressed array owns both and hands pieces over a short channel; dropping the
//! stream ends the thread. Arrays of one file inflate in parallel this way.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use pulp::bytemuck::{Pod, cast_slice_mut};
use zip::read::{ZipArchiveMetadata, ZipReadOptions};

use super::header::RowMajorIndices;
use super::stored::Stored;
use super::{ArrayHeader, DType, array_fault, check_end_of_entry, too_large};
use crate::error::{Error, Result};
use crate::io::files::File;
use crate::io::opened::CheckedFile;

/// Maximum number of bytes of a piece, unless one element has more.
const MAX_PIECE_BYTES: usize = 1 << 18;
/// Number of pieces that a thread inflates ahead.
const PIECES_AHEAD: usize = 2;
/// Maximum number of bytes of the pieces of all streams of a file. Each stream has a piece that is read, those ahead,
/// and one that is being inflated.
const MAX_HELD_BYTES: usize = 8 << 20;

/// The elements of one array, row by row. An array in Fortran order is held whole, others piece by piece. Before the
/// first element is taken there is neither a thread nor an open file: runs have many files.
pub(crate) struct Stream {
    path: PathBuf,
    key: String,
    header: ArrayHeader,
    /// Number of elements not yet taken.
    remaining_elements: usize,
    source: StreamSource,
    /// The bytes of the array that are not yet read; `None` before the first element is taken.
    unread: Option<UnreadBytes>,
    piece: Vec<u8>,
    /// Number of bytes of the piece that have been taken.
    taken_bytes: usize,
}

/// The bytes of an array that are not yet read.
enum UnreadBytes {
    Stored(Stored),
    /// Pieces that a thread inflates.
    Inflated(Receiver<io::Result<Vec<u8>>>),
}

/// Place of the array in its file, and the size of the pieces that are read.
struct StreamSource {
    zip: Arc<ZipArchiveMetadata>,
    index: usize,
    /// The file as it was when its arrays were checked.
    opened: CheckedFile,
    /// Number of bytes of a piece, a multiple of the size of an element.
    piece_bytes: usize,
}

impl Stream {
    /// Prepares to read the array that a header describes, entry `index` of the zip archive; all `streams` together
    /// share the memory for pieces.
    pub(super) fn new(
        path: &Path,
        key: &str,
        header: &ArrayHeader,
        zip: Arc<ZipArchiveMetadata>,
        index: usize,
        opened: CheckedFile,
        streams: usize,
    ) -> Stream {
        let element_bytes = header.dtype.bytes();
        let max_piece_bytes =
            MAX_PIECE_BYTES.min(MAX_HELD_BYTES / (PIECES_AHEAD + 2) / streams.max(1));
        let piece_bytes = (max_piece_bytes / element_bytes).max(1) * element_bytes;
        Stream {
            path: path.to_path_buf(),
            key: key.to_string(),
            header: header.clone(),
            remaining_elements: header.elements(),
            source: StreamSource {
                zip,
                index,
                opened,
                piece_bytes,
            },
            unread: None,
            piece: Vec::new(),
            taken_bytes: 0,
        }
    }

    /// Opens the file, and starts the thread that decompresses the array if it is compressed; fails if the array's
    /// header has changed.
    fn start(&self) -> Result<UnreadBytes> {
        let StreamSource {
            zip,
            index,
            piece_bytes,
            ..
        } = &self.source;
        let open_file = || self.source.opened.open_again(&self.path);
        let fault = array_fault(&self.path, &self.key);
        let (unread, header) = match Stored::open(open_file()?, zip, *index).map_err(&fault)? {
            Some((stored, header)) => (UnreadBytes::Stored(stored), header),
            None => {
                let (pieces, header) =
                    inflate_in_thread(&self.key, open_file()?, zip, *index, *piece_bytes)
                        .map_err(fault)?;
                (UnreadBytes::Inflated(pieces), header)
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
    fn unread(&mut self) -> Result<&mut UnreadBytes> {
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
        let mut missing = self.bytes_of(elements)?;
        while missing > 0 {
            if self.rest_of_piece().is_empty() {
                self.piece = self.next_piece()?;
                self.taken_bytes = 0;
            }
            let rest = self.rest_of_piece();
            let bytes = rest.get(..missing).unwrap_or(rest);
            let length = bytes.len();
            decode(&self.header.dtype, bytes)
                .map_err(|message| Error::format(&self.path, format!("{}: {message}", self.key)))?;
            self.taken_bytes += length;
            missing -= length;
        }
        self.count_taken(elements)
    }

    /// Returns whether the elements have in the file the bytes that `T`, f32 or f64, has in memory.
    pub(crate) fn is_as_in_memory<T: Pod>(&self) -> bool {
        self.header.dtype.is_float_in_memory(size_of::<T>())
    }

    /// Fills `into` with the next elements, which are as in memory.
    pub(crate) fn take_as_in_memory<T: Pod>(&mut self, into: &mut [T]) -> Result<()> {
        let elements = into.len();
        self.bytes_of(elements)?;
        let mut unfilled: &mut [u8] = cast_slice_mut(into);
        while !unfilled.is_empty() {
            let rest = self.rest_of_piece();
            if rest.is_empty() {
                if !self.header.is_transposed()
                    && let UnreadBytes::Stored(stored) = self.unread()?
                {
                    // an uncompressed array is read straight from the file
                    stored
                        .read_next(unfilled)
                        .map_err(array_fault(&self.path, &self.key))?;
                    break;
                }
                self.piece = self.next_piece()?;
                self.taken_bytes = 0;
                continue;
            }
            let length = rest.len().min(unfilled.len());
            let (filled, later) = unfilled.split_at_mut(length);
            for (target, byte) in filled.iter_mut().zip(rest) {
                *target = *byte;
            }
            self.taken_bytes += length;
            unfilled = later;
        }
        self.count_taken(elements)
    }

    /// Returns the number of bytes of the next `elements` elements; fails if there are not so many.
    fn bytes_of(&self, elements: usize) -> Result<usize> {
        match elements > self.remaining_elements {
            true => Err(Error::format(
                &self.path,
                format!("{}: {} elements left", self.key, self.remaining_elements),
            )),
            false => Ok(elements * self.header.dtype.bytes()),
        }
    }

    /// Returns the bytes of the current piece that have not been taken.
    fn rest_of_piece(&self) -> &[u8] {
        self.piece.get(self.taken_bytes..).unwrap_or_default()
    }

    /// Counts elements that were taken; with the last ones, fails if bytes are left or the CRC is wrong.
    fn count_taken(&mut self, elements: usize) -> Result<()> {
        self.remaining_elements -= elements;
        if elements == 0 || self.remaining_elements > 0 {
            return Ok(());
        }
        match &self.unread {
            // The thread sends an empty piece when it has compared the CRC.
            Some(UnreadBytes::Inflated(pieces)) => match pieces.recv() {
                Ok(Ok(piece)) if piece.is_empty() => Ok(()),
                received => {
                    let error = error_of_stopped_thread(received);
                    Err(array_fault(&self.path, &self.key)(error))
                }
            },
            // Stored bytes were compared as they were read.
            _ => Ok(()),
        }
    }

    /// Returns the bytes of the next elements in row-major order, in a piece of any length.
    fn next_piece(&mut self) -> Result<Vec<u8>> {
        if self.header.is_transposed() {
            self.read_all_in_row_major_order()
        } else {
            self.next_piece_of_file()
        }
    }

    /// Reads the whole array, which the file has in Fortran order, and returns its bytes in row-major order.
    fn read_all_in_row_major_order(&mut self) -> Result<Vec<u8>> {
        let element_bytes = self.header.dtype.bytes();
        let length = self.header.elements() * element_bytes;
        let mut row_major = Vec::new();
        if row_major.try_reserve_exact(length).is_err() {
            let message = format!(
                "`{}` is in Fortran order, and its {length} bytes do not fit memory",
                self.key
            );
            return Err(too_large(&self.path, message));
        }
        row_major.resize(length, 0);
        let shape = self.header.shape.clone();
        let mut indices = RowMajorIndices::new(&shape);
        let mut remaining = length;
        while remaining > 0 {
            let piece = self.next_piece_of_file()?;
            for element in piece.chunks_exact(element_bytes) {
                let start = indices.next_row_major_index() * element_bytes;
                if let Some(slot) = row_major.get_mut(start..start + element_bytes) {
                    slot.copy_from_slice(element);
                }
            }
            remaining = remaining.saturating_sub(piece.len());
        }
        Ok(row_major)
    }

    /// Returns the next piece of uncompressed bytes, in the file's order; fails if the array ended early.
    fn next_piece_of_file(&mut self) -> Result<Vec<u8>> {
        let piece_bytes = self.source.piece_bytes;
        let piece = match self.unread()? {
            UnreadBytes::Stored(stored) => stored.next_piece(piece_bytes),
            UnreadBytes::Inflated(pieces) => match pieces.recv() {
                Ok(Ok(piece)) if !piece.is_empty() => Ok(piece),
                received => Err(error_of_stopped_thread(received)),
            },
        };
        piece.map_err(array_fault(&self.path, &self.key))
    }
}

/// Returns the error with which decompression stopped, or one that says that the array ended early.
fn error_of_stopped_thread<E>(received: Result<io::Result<Vec<u8>>, E>) -> io::Error {
    match received {
        Ok(Err(error)) => error,
        _ => io::Error::new(io::ErrorKind::InvalidData, "the array ended early"),
    }
}

/// Starts the thread that decompresses a zip entry; returns its channel of pieces, and the header of the entry's array.
fn inflate_in_thread(
    key: &str,
    file: File,
    zip: &Arc<ZipArchiveMetadata>,
    index: usize,
    max_piece_bytes: usize,
) -> io::Result<(Receiver<io::Result<Vec<u8>>>, ArrayHeader)> {
    let (sender, pieces) = sync_channel(PIECES_AHEAD);
    let (header_sender, header) = sync_channel(1);
    let zip = Arc::clone(zip);
    let thread = std::thread::Builder::new().name(format!("npz {key}"));
    thread.spawn(move || {
        if let Err(error) =
            send_inflated_pieces(file, &zip, index, max_piece_bytes, &header_sender, &sender)
        {
            drop(header_sender);
            // if the stream has been dropped, nobody needs the error
            let _ = sender.send(Err(error));
        }
    })?;
    match header.recv() {
        Ok(header) => Ok((pieces, header)),
        Err(_) => Err(error_of_stopped_thread(pieces.recv())),
    }
}

/// Decompresses a zip entry and sends its header, then pieces of at most `max_piece_bytes` bytes, then an empty one. An
/// empty piece at the end says that the CRC is right.
fn send_inflated_pieces(
    file: File,
    zip: &ZipArchiveMetadata,
    index: usize,
    max_piece_bytes: usize,
    header: &SyncSender<ArrayHeader>,
    pieces: &SyncSender<io::Result<Vec<u8>>>,
) -> io::Result<()> {
    // 1. Send the header, with which the reader compares the one that it knows.
    let mut file = BufReader::new(file);
    let mut entry = zip
        .entry(index)?
        .with_reader(&mut file, ZipReadOptions::new())?;
    let size = entry.size();
    let array_header = ArrayHeader::read(&mut entry, size)?;
    let mut remaining = array_header.elements() * array_header.dtype.bytes();
    if header.send(array_header).is_err() {
        return Ok(());
    }
    // 2. Send the elements. A send fails once the stream has been dropped.
    while remaining > 0 {
        let mut piece = vec![0; remaining.min(max_piece_bytes)];
        entry.read_exact(&mut piece)?;
        remaining -= piece.len();
        if pieces.send(Ok(piece)).is_err() {
            return Ok(());
        }
    }
    // 3. The CRC is compared at the end of the entry.
    check_end_of_entry(&mut entry)?;
    let _ = pieces.send(Ok(Vec::new()));
    Ok(())
}
