//! The demo's data, which are inside the program.

use std::path::Path;

use popfit::{OutputFile, Result};

/// Names and contents. A model file finds its emulator beside it.
pub const FILES: [(&str, &[u8]); 4] = [
    ("model.toml", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/model.toml"))),
    ("emulator.safetensors", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/emulator.safetensors"))),
    ("spectra.npz", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/spectra.npz"))),
    ("truth.npz", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/truth.npz"))),
];

/// Writes the files into a folder, over those that may be replaced: one answer per file.
pub fn write(folder: &Path, replaces: [bool; FILES.len()]) -> Result<()> {
    for ((name, contents), replaces) in FILES.into_iter().zip(replaces) {
        OutputFile::create(folder.join(name), replaces)?.write(contents)?;
    }
    Ok(())
}
