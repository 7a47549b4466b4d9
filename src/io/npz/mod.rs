//! NPZ files: zip archives of `.npy` arrays, whose claims are all checked.
//!
//! Every claim of a header is checked against the file's real size before anything is allocated; entries are read
//! through to their CRC; an array is whole or an error. `Archive` reads small arrays at once, `Stream` large ones
//! progressively.

#![deny(clippy::indexing_slicing)] // a file must not cause a panic

mod element;
mod end;
mod header;
mod stored;
mod stream;
mod write;

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use zip::{CompressionMethod, ZipArchive};

use crate::error::{Error, Result};
use crate::io::files::File;
use crate::io::opened::CheckedFile;
use crate::suggest::missing_name_message;
pub(crate) use element::DType;
pub(crate) use header::ArrayHeader;
use stored::Stored;
pub(crate) use stream::Stream;
pub use write::archive;

/// First bytes of every non-empty zip archive.
pub(crate) const ZIP_MAGIC: &[u8] = b"PK\x03\x04";
/// Maximum ratio by which deflate can expand.
const MAX_DEFLATE_RATIO: u64 = 1032;
/// Maximum number of arrays of a file.
const MAX_ENTRIES: u64 = 10_000;
/// Number of bytes that are decoded at once.
const DECODED_BYTES: usize = 1 << 16;

/// An open NPZ file whose zip structure has been validated.
pub(crate) struct Archive {
    path: PathBuf,
    opened: CheckedFile,
    zip: ZipArchive<BufReader<File>>,
}

/// A whole array, row-major.
pub(crate) struct Array<T> {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<T>,
}

impl Archive {
    /// Opens an NPZ file and checks its zip structure: no duplicate or overlapping entries, consistent headers, no
    /// impossible compression.
    pub(crate) fn open(path: &Path) -> Result<Archive> {
        let mut file = File::open(path).map_err(Error::io(path))?;
        let opened = CheckedFile::new(&file).map_err(Error::io(path))?;
        let file_length = opened.length();
        let claimed = end::claimed_entries(&mut file, file_length).map_err(Error::io(path))?;
        if claimed > MAX_ENTRIES {
            return Err(too_large(
                path,
                format!("it has {claimed} entries, more than the {MAX_ENTRIES} that popfit reads"),
            ));
        }
        let second_handle = file.again().map_err(Error::io(path))?;
        let mut zip = ZipArchive::new(BufReader::new(file)).map_err(zip_fault(path))?;
        end::check_end(&second_handle, file_length, &zip).map_err(array_fault(path, "zip"))?;
        zip.validate_header_consistency().map_err(zip_fault(path))?;
        let archive = Archive {
            path: path.to_path_buf(),
            opened,
            zip,
        };
        for index in 0..archive.zip.len() {
            archive.check_entry(index)?;
        }
        Ok(archive)
    }

    /// Fails if the zip entry of this index is encrypted, neither stored nor deflated, or of impossible sizes.
    fn check_entry(&self, index: usize) -> Result<()> {
        let path = &self.path;
        let entry = self.zip.by_index_data(index).map_err(zip_fault(path))?;
        let name = entry.name().map_err(zip_fault(path))?;
        let size = entry.size();
        let packed_size = entry.compressed_size();
        if entry.encrypted() {
            return Err(Error::format(path, format!("{name} is encrypted")));
        }
        if packed_size > self.file_length() {
            return Err(Error::format(
                path,
                format!("{name} claims {packed_size} bytes, more than the file has"),
            ));
        }
        match entry.compression() {
            CompressionMethod::Stored if size == packed_size => Ok(()),
            CompressionMethod::Stored => Err(Error::format(
                path,
                format!("{name} is stored, but its sizes differ"),
            )),
            CompressionMethod::Deflated if size / MAX_DEFLATE_RATIO > packed_size => {
                Err(too_large(
                    path,
                    format!("{name} claims to expand from {packed_size} to {size} bytes"),
                ))
            }
            CompressionMethod::Deflated => Ok(()),
            method => Err(Error::format(
                path,
                format!("{name} is compressed by {method}, not deflate"),
            )),
        }
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of bytes of the file.
    pub(crate) fn file_length(&self) -> u64 {
        self.opened.length()
    }

    /// Returns the names of the arrays, without `.npy`, in the order of the file.
    pub(crate) fn keys(&self) -> Vec<String> {
        let names = self.zip.file_names().filter_map(|name| name.ok());
        names
            .filter_map(|name| name.strip_suffix(".npy").map(str::to_string))
            .collect()
    }

    /// Returns the index of the zip entry that holds an array; `None` if there is none.
    fn index_of(&self, key: &str) -> Option<usize> {
        self.zip.index_for_name(&format!("{key}.npy"))
    }

    /// Reads the type and shape of an array; `None` if the file has no array of this name. The shape agrees with the
    /// entry's declared size.
    pub(crate) fn header(&mut self, key: &str) -> Result<Option<ArrayHeader>> {
        let Some(index) = self.index_of(key) else {
            return Ok(None);
        };
        let mut entry = self.zip.by_index(index).map_err(zip_fault(&self.path))?;
        let size = entry.size();
        ArrayHeader::read(&mut entry, size)
            .map(Some)
            .map_err(array_fault(&self.path, key))
    }

    /// Reads the type and shape of an array; fails if the file has no array of this name.
    fn required_header(&mut self, key: &str) -> Result<ArrayHeader> {
        match self.header(key)? {
            Some(header) => Ok(header),
            None => Err(self.missing(key)),
        }
    }

    /// Returns the error for an array that the file does not have: it suggests a near name and lists those that are
    /// there.
    pub(crate) fn missing(&self, key: &str) -> Error {
        Error::format(&self.path, missing_name_message("array", key, &self.keys()))
    }

    /// Reads an array to its end, checking its CRC, and hands its bytes to `decode`, whole elements at a time.
    pub(crate) fn scan(
        &mut self,
        key: &str,
        mut decode: impl FnMut(&DType, &[u8]) -> Result<(), String>,
    ) -> Result<()> {
        let Some(index) = self.index_of(key) else {
            return Err(self.missing(key));
        };
        let mut entry = self.zip.by_index(index).map_err(zip_fault(&self.path))?;
        let size = entry.size();
        let header = ArrayHeader::read(&mut entry, size).map_err(array_fault(&self.path, key))?;
        let element_bytes = header.dtype.bytes();
        let mut buffer = vec![0; element_bytes * (DECODED_BYTES / element_bytes).max(1)];
        let mut remaining = header.elements() as u64 * element_bytes as u64;
        while remaining > 0 {
            let length = remaining.min(buffer.len() as u64) as usize;
            buffer.truncate(length);
            entry
                .read_exact(&mut buffer)
                .map_err(array_fault(&self.path, key))?;
            decode(&header.dtype, &buffer)
                .map_err(|message| Error::format(&self.path, format!("{key}: {message}")))?;
            remaining -= length as u64;
        }
        check_end_of_entry(&mut entry).map_err(array_fault(&self.path, key))
    }

    /// Reads an array to its end, and checks its CRC and that its texts, if it has such, are text.
    pub(crate) fn check(&mut self, key: &str) -> Result<()> {
        let Some(index) = self.index_of(key) else {
            return Err(self.missing(key));
        };
        let mut texts = Vec::new();
        let header = self.required_header(key)?;
        if !header.dtype.is_text() {
            let file = self.opened.open_again(&self.path)?;
            let fault = array_fault(&self.path, key);
            if let Some((stored, _)) =
                Stored::open(file, &self.zip.metadata(), index).map_err(&fault)?
            {
                return stored.check().map_err(fault);
            }
        }
        self.scan(key, |dtype, bytes| {
            texts.clear();
            if dtype.is_text() {
                dtype.texts(bytes, &mut texts)
            } else {
                Ok(())
            }
        })
    }

    /// Reads a whole numeric array in row-major order, converting each value, and subtracts its bytes from `budget`;
    /// fails beyond that.
    ///
    /// # Errors
    /// `TooLarge` when it would hold more than `budget` bytes, which it is then reduced by.
    pub(crate) fn read<T: Copy + Default>(
        &mut self,
        key: &str,
        budget: &mut u64,
        convert: impl Fn(f64) -> T,
    ) -> Result<Array<T>> {
        // 1. Charge the array to the budget: twice if it has to be transposed.
        let header = self.required_header(key)?;
        let copies = if header.is_transposed() { 2 } else { 1 };
        let bytes = header.elements() as u64 * size_of::<T>() as u64;
        *budget = bytes.checked_mul(copies).and_then(|bytes| budget.checked_sub(bytes)).ok_or_else(|| {
            too_large(
                &self.path,
                format!("`{key}` holds {bytes} bytes, more than this file should (is it a zip bomb?)"),
            )
        })?;
        // 2. Read and convert the values.
        let mut values = Vec::with_capacity(header.elements());
        let mut numbers = Vec::new();
        self.scan(key, |dtype, bytes| {
            numbers.clear();
            dtype.numbers(bytes, &mut numbers)?;
            values.extend(numbers.iter().map(|&number| convert(number)));
            Ok(())
        })?;
        // 3. Put an array in Fortran order into row-major order.
        if header.is_transposed() {
            let mut indices = header::RowMajorIndices::new(&header.shape);
            let mut row_major = vec![T::default(); values.len()];
            for value in values {
                // the shape has as many indices as elements
                if let Some(slot) = row_major.get_mut(indices.next_row_major_index()) {
                    *slot = value;
                }
            }
            values = row_major;
        }
        Ok(Array {
            shape: header.shape,
            values,
        })
    }

    /// Returns the text of an array that has one element, a text; `None` for any other array, and where there is none.
    pub(crate) fn text(&mut self, key: &str) -> Result<Option<String>> {
        let Some(header) = self.header(key)? else {
            return Ok(None);
        };
        let mut texts = Vec::new();
        if header.dtype.is_text() && header.elements() == 1 {
            self.scan(key, |dtype, bytes| dtype.texts(bytes, &mut texts))?;
        }
        Ok(texts.pop())
    }

    /// Opens an array for reading a few elements at a time, with a file handle of its own.
    pub(crate) fn stream(&mut self, key: &str) -> Result<Stream> {
        let header = self.required_header(key)?;
        let Some(index) = self.index_of(key) else {
            return Err(self.missing(key));
        };
        Ok(Stream::new(
            &self.path,
            key,
            &header,
            self.zip.metadata(),
            index,
            self.opened.clone(),
            self.zip.len(),
        ))
    }
}

/// Reads a numeric array of an NPZ file as f64, in row-major order; fails if it is far larger than the file.
///
/// # Errors
/// `Io`, `Format`, `TooLarge`.
pub fn numbers(path: impl AsRef<Path>, key: &str) -> Result<Vec<f64>> {
    let mut archive = Archive::open(path.as_ref())?;
    // f64 from bytes, deflated: a bomb holds far more
    let mut budget = archive.file_length().saturating_mul(64);
    Ok(archive.read(key, &mut budget, |x| x)?.values)
}

/// Reads an array of strings of an NPZ file; fails if it is far larger than the file.
///
/// # Errors
/// `Io`, `Format`, `TooLarge`.
pub fn texts(path: impl AsRef<Path>, key: &str) -> Result<Vec<String>> {
    let path = path.as_ref();
    let mut archive = Archive::open(path)?;
    let ArrayHeader { dtype, shape, .. } = archive.required_header(key)?;
    // each text takes the bytes of an element, and its place in the vector
    let memory_per_text = (dtype.bytes() + 2 * size_of::<String>()) as u64;
    let bytes = shape
        .iter()
        .fold(memory_per_text, |bytes, n| bytes.saturating_mul(*n as u64));
    let max_bytes = archive
        .file_length()
        .saturating_mul(64)
        .saturating_add(1 << 20);
    if bytes > max_bytes {
        return Err(too_large(
            path,
            format!("`{key}` takes {bytes} bytes (is it a zip bomb?)"),
        ));
    }
    let mut texts = Vec::new();
    archive.scan(key, |dtype, bytes| dtype.texts(bytes, &mut texts))?;
    Ok(texts)
}

/// Reads the end of a zip entry, where its CRC is compared; fails if bytes are left.
fn check_end_of_entry(entry: &mut impl Read) -> io::Result<()> {
    match entry.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "more bytes than its shape needs",
        )),
    }
}

/// Makes the error, with this message, for a file that needs too much memory.
pub(crate) fn too_large(path: &Path, message: String) -> Error {
    Error::TooLarge {
        path: path.to_path_buf(),
        message,
    }
}

/// Returns a function that turns an error of the zip reader into a format or I/O error of the file.
fn zip_fault(path: &Path) -> impl Fn(zip::result::ZipError) -> Error + '_ {
    move |error| match error {
        zip::result::ZipError::Io(source) => array_fault(path, "zip")(source),
        error => Error::format(path, format!("zip: {error}")),
    }
}

/// Returns a function that turns an I/O error from reading array `key` into a format error if the content is invalid,
/// else an I/O error.
fn array_fault<'a>(path: &'a Path, key: &'a str) -> impl Fn(io::Error) -> Error + 'a {
    use std::io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    move |error| match error.kind() {
        InvalidData | InvalidInput | Other | UnexpectedEof => {
            Error::format(path, format!("{key}: {error}"))
        }
        _ => Error::Io {
            path: path.to_path_buf(),
            source: error,
        },
    }
}
