//! Emulators and template grids in files.

use std::io::{BufReader, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{Emulator, check, native, payne, to_hexadecimal, write};
use crate::error::{Error, Result};
use crate::io::files;
use crate::io::npz;
use crate::io::output::{OutputFile, WriteOptions};
use crate::math::air::{is_air, to_vacuum};

/// Bytes that are read and hashed at once.
const READ_BUFFER_BYTES: usize = 1 << 16;

impl Emulator {
    /// Reads and checks a network from a file: popfit's safetensors, or an NPZ of The Payne or binspec, recognised by
    /// its content.
    ///
    /// # Errors
    /// `Io`; `Format`, `TooLarge` or `BadWavelength` when the file is not a sound network.
    pub fn open(path: impl AsRef<Path>) -> Result<Emulator> {
        let path = path.as_ref();
        let (first_bytes, hash) = read_start_and_hash(path)?;
        let mut emulator = if first_bytes == npz::ZIP_MAGIC {
            payne::read_network(path)?
        } else {
            open_native(path)?
        };
        emulator.check(|message| Error::format(path, message))?;
        // A description may hold the hash of another file. That of this file replaces it.
        emulator.hash = hash;
        Ok(emulator)
    }

    /// Writes the network to `path` in popfit's own format (safetensors). [`open`](Emulator::open) reads an equal one,
    /// whose activation is [assumed](Emulator::assumes_activation) if this one's is.
    ///
    /// The file appears under its name only when it is complete. The format has no room for the options' metadata.
    ///
    /// # Errors
    /// `OutputExists` when there is such a file and the options do not allow replacing it; `Write` for the name of a
    /// folder, a device or a pipe; `OutputLocked` while another process writes it; `Io`; `Unsettled` when the file is
    /// whole but its folder could not be flushed.
    pub fn write(&self, path: impl AsRef<Path>, options: WriteOptions) -> Result<()> {
        let path = path.as_ref();
        let write_error = |message| {
            let message = format!(
                "the network of {} cannot be written: {message}",
                self.source
            );
            Error::Write {
                path: path.to_path_buf(),
                message,
            }
        };
        let bytes = write::serialise(self, None).map_err(write_error)?;
        OutputFile::create(path, options.overwrite)?.write(bytes)
    }
}

/// Reads a network from a safetensors file.
fn open_native(path: &Path) -> Result<Emulator> {
    let file = files::open(path).map_err(Error::io(path))?;
    let size = file.metadata().map_err(Error::io(path))?.len();
    native::read_network(path, BufReader::new(file), size)
}

/// Reads a template grid, key `wavelength` of an NPZ file: Å, strictly increasing and uniform in ln λ, in one or
/// several pieces. If the file's text `medium` is "air", the grid is converted to vacuum, like that of spectra.
///
/// # Errors
/// `Io`, `Format`, `TooLarge`; `BadWavelength`.
pub fn read_wavelength(path: impl AsRef<Path>) -> Result<Vec<f64>> {
    let path = path.as_ref();
    let mut archive = npz::Archive::open(path)?;
    let mut budget = payne::byte_budget(&archive);
    // 1. Find out whether the wavelengths are in air.
    if let Some(key) = archive
        .keys()
        .into_iter()
        .find(|key| key != "medium" && key.eq_ignore_ascii_case("medium"))
    {
        return Err(Error::format(
            path,
            format!("`{key}` is no array that popfit reads; did you mean `medium`?"),
        ));
    }
    let is_in_air = match archive.header("medium")? {
        Some(_) => is_air("medium", archive.text("medium")?.as_deref())
            .map_err(|message| Error::format(path, message))?,
        None => false,
    };
    // 2. Read and check them.
    let array = archive.read("wavelength", &mut budget, |x| {
        if is_in_air { to_vacuum(x) } else { x }
    })?;
    if array.shape.len() != 1 || array.values.is_empty() {
        return Err(Error::format(
            path,
            format!(
                "`wavelength` has the shape {:?}, not (pixels,)",
                array.shape
            ),
        ));
    }
    let conversion = if is_in_air {
        " (in air, converted to vacuum)"
    } else {
        ""
    };
    check::check_wavelength(&array.values, &format!("{}{conversion}", path.display()))?;
    Ok(array.values)
}

/// Returns the first four bytes of a file and the SHA-256 of all its bytes in hexadecimal.
fn read_start_and_hash(path: &Path) -> Result<(Vec<u8>, String)> {
    let mut file = files::open(path).map_err(Error::io(path))?;
    let mut hasher = Sha256::new();
    let mut first_bytes = Vec::new();
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    loop {
        let length = file.read(&mut buffer).map_err(Error::io(path))?;
        if length == 0 {
            break;
        }
        let bytes = buffer.get(..length).unwrap_or_default();
        first_bytes.extend(bytes.iter().take(4 - first_bytes.len()));
        hasher.update(bytes);
    }
    Ok((first_bytes, to_hexadecimal(&hasher.finalize())))
}
