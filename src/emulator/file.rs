//! Emulators and template grids in files.

use std::io::{BufReader, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{Emulator, check, hex, native, payne, write};
use crate::error::{Error, Result};
use crate::io::files;
use crate::io::npz;
use crate::io::output::{OutputFile, WriteOptions};
use crate::math::air::{is_air, to_vacuum};

impl Emulator {
    /// Reads and checks a network from a file: popfit's safetensors, or an NPZ of The Payne or binspec, told apart by
    /// content.
    ///
    /// # Errors
    /// `Io`; `Format`, `TooLarge` or `BadWavelength` when the file is not a sound network.
    pub fn open(path: impl AsRef<Path>) -> Result<Emulator> {
        let path = path.as_ref();
        let (start, hash) = fingerprint(path)?;
        let mut emulator = if start == npz::MAGIC {
            payne::open(path)?
        } else {
            open_native(path)?
        };
        emulator.check(|message| Error::format(path, message))?;
        // a file cannot say what its own hash is; a copy in memory may
        emulator.hash = hash;
        Ok(emulator)
    }

    /// Writes the network to `path` in popfit's own format (safetensors). [`open`](Emulator::open) reads an equal one,
    /// whose activation is [assumed](Emulator::assumes_activation) if this one's is.
    ///
    /// The file appears under its name only when it is whole. The format has no room for the options' metadata.
    ///
    /// # Errors
    /// `OutputExists` when there is such a file and the options do not allow replacing it; `Write` for the name of a
    /// folder, a device or a pipe; `OutputLocked` while another process writes it; `Io`; `Unsettled` when the file is
    /// whole but its folder could not be flushed.
    pub fn write(&self, path: impl AsRef<Path>, options: WriteOptions) -> Result<()> {
        let path = path.as_ref();
        let unwritable = |message| {
            let message = format!(
                "the network of {} cannot be written: {message}",
                self.source
            );
            Error::Write {
                path: path.to_path_buf(),
                message,
            }
        };
        let bytes = write::bytes(self, None).map_err(unwritable)?;
        OutputFile::create(path, options.overwrite)?.write(bytes)
    }
}

/// Reads a network from a safetensors file.
fn open_native(path: &Path) -> Result<Emulator> {
    let file = files::open(path).map_err(Error::io(path))?;
    let size = file.metadata().map_err(Error::io(path))?.len();
    native::read(path, BufReader::new(file), size)
}

/// Reads a template grid, key `wavelength` of an NPZ file: Å, strictly increasing and uniform in ln λ, in one or
/// several pieces. If the file's text `medium` is "air", the grid is converted to vacuum, like that of spectra.
///
/// # Errors
/// `Io`, `Format`, `TooLarge`; `BadWavelength`.
pub fn read_wavelength(path: impl AsRef<Path>) -> Result<Vec<f64>> {
    let path = path.as_ref();
    let mut archive = npz::Archive::open(path)?;
    let mut budget = payne::budget(&archive);
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
    let in_air = match archive.header("medium")? {
        Some(_) => is_air("medium", archive.text("medium")?.as_deref())
            .map_err(|m| Error::format(path, m))?,
        None => false,
    };
    let array = archive.read("wavelength", &mut budget, |x| {
        if in_air { to_vacuum(x) } else { x }
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
    let converted = if in_air {
        " (in air, converted to vacuum)"
    } else {
        ""
    };
    check::wavelength(&array.values, &format!("{}{converted}", path.display()))?;
    Ok(array.values)
}

/// Returns the first four bytes of a file and the SHA-256 of all its bytes in hexadecimal.
fn fingerprint(path: &Path) -> Result<(Vec<u8>, String)> {
    let mut file = files::open(path).map_err(Error::io(path))?;
    let mut hasher = Sha256::new();
    let (mut start, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let length = file.read(&mut buffer).map_err(Error::io(path))?;
        if length == 0 {
            break;
        }
        let read = buffer.get(..length).unwrap_or_default();
        start.extend(read.iter().take(4 - start.len()));
        hasher.update(read);
    }
    Ok((start, hex(&hasher.finalize())))
}
