//! The demo's truths: an NPZ file of `parameters` (spectra, P), `names` (P) and `sn` (spectra).

use std::path::Path;

use popfit::low_level::npz;
use popfit::{Error, Result};

/// Parameters from which the demo's spectra were made, and the spectra's signal-to-noise ratios.
pub struct Truth {
    pub names: Vec<String>,
    /// (spectra, P) physical units.
    pub parameters: Vec<f64>,
    /// Signal-to-noise ratio a pixel.
    pub sn: Vec<f64>,
}

impl Truth {
    /// Reads the demo's true parameters and signal-to-noise ratios from an NPZ file; fails if their lengths disagree.
    pub fn open(path: &Path) -> Result<Truth> {
        let (names, parameters) = (
            npz::texts(path, "names")?,
            npz::numbers(path, "parameters")?,
        );
        let sn = npz::numbers(path, "sn")?;
        if parameters.len() != names.len() * sn.len() {
            let message = format!(
                "{} parameters, {} names, {} spectra",
                parameters.len(),
                names.len(),
                sn.len()
            );
            return Err(Error::Format {
                path: path.to_path_buf(),
                offset: None,
                message,
            });
        }
        Ok(Truth {
            names,
            parameters,
            sn,
        })
    }

    /// Returns the true value of a parameter of the spectrum with this index; `None` if the file has none.
    pub fn value(&self, spectrum: usize, parameter: &str) -> Option<f64> {
        let p = self.names.iter().position(|name| name == parameter)?;
        self.parameters
            .get(spectrum * self.names.len() + p)
            .copied()
    }
}
