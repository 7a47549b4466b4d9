//! The demo's truths: an NPZ file of `parameters` (spectra, P), `names` (P) and `sn` (spectra).

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use npyz::{Deserialize, NpyFile};
use popfit::{Error, Result};
use zip::ZipArchive;

/// What the demo's spectra were drawn from.
pub struct Truth {
    pub names: Vec<String>,
    /// (spectra, P) physical units.
    pub parameters: Vec<f64>,
    /// Signal-to-noise ratio a pixel.
    pub sn: Vec<f64>,
}

impl Truth {
    pub fn open(path: &Path) -> Result<Truth> {
        let file = File::open(path).map_err(|source| Error::Io { path: path.to_path_buf(), source })?;
        let format = |message: String| Error::Format { path: path.to_path_buf(), offset: None, message };
        let mut archive = ZipArchive::new(BufReader::new(file)).map_err(|e| format(e.to_string()))?;
        let names: Vec<String> = array(&mut archive, "names").map_err(format)?;
        let parameters: Vec<f64> = array(&mut archive, "parameters").map_err(format)?;
        let sn: Vec<f64> = array(&mut archive, "sn").map_err(format)?;
        if parameters.len() != names.len() * sn.len() {
            return Err(format(format!(
                "{} parameters, {} names, {} spectra",
                parameters.len(),
                names.len(),
                sn.len()
            )));
        }
        Ok(Truth { names, parameters, sn })
    }

    /// The true value of a parameter of a spectrum.
    pub fn value(&self, spectrum: usize, parameter: &str) -> Option<f64> {
        let p = self.names.iter().position(|name| name == parameter)?;
        self.parameters.get(spectrum * self.names.len() + p).copied()
    }
}

fn array<T: Deserialize>(archive: &mut ZipArchive<BufReader<File>>, name: &str) -> std::result::Result<Vec<T>, String> {
    let mut bytes = Vec::new();
    let mut entry = archive.by_name(&format!("{name}.npy")).map_err(|e| format!("{name}: {e}"))?;
    entry.read_to_end(&mut bytes).map_err(|e| format!("{name}: {e}"))?;
    NpyFile::new(&bytes[..]).and_then(|npy| npy.into_vec()).map_err(|e| format!("{name}: {e}"))
}
