//! The file of models beside rvspecfit's table: {ARM}_WAVELENGTH and {ARM}_MODEL, with one row per spectrum.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::rvtab_columns::arm_name;
use crate::error::{Error, Result};
use crate::io::fits::writer::image::{ImageUnit, write_line};
use crate::io::fits::writer::table::refused;
use crate::spectra::{ArmSpectra, Spectra, Wavelength};
use crate::spectral::{ArmFit, SpectralFitter};

/// The models of one arm.
struct Arm {
    /// Index of the arm in the model.
    index: usize,
    name: String,
    grid: Arc<[f64]>,
    models: ImageUnit,
}

/// The models of all spectra so far.
pub(super) struct RvMod {
    arms: Vec<Arm>,
}

impl RvMod {
    /// Begins the file of model spectra, an image per arm; fails if `files`, the inputs without their spectra, differ
    /// in an arm's wavelengths.
    pub fn new(path: &Path, fitter: &SpectralFitter, files: &[Spectra]) -> Result<RvMod> {
        let mut arms = Vec::new();
        for (index, (name, _)) in fitter.model().arms().enumerate() {
            let mut grids = Vec::new();
            for (file, arm) in files.iter().filter_map(|file| Some((file, find(file, name)?))) {
                grids.push((shared_grid(arm, &file.file)?, &file.file));
            }
            let Some((grid, first)) = grids.first() else { continue };
            if let Some((_, other)) = grids.iter().find(|(other, _)| other != grid) {
                let message = format!("{first} and {other} differ in the wavelengths of arm {name:?}");
                return Err(Error::Usage(format!(
                    "{message}: write one of rvspecfit's tables for each, or popfit's own table for both"
                )));
            }
            let name = arm_name(name);
            let models = ImageUnit::new(path, &format!("{name}_MODEL"), grid.len())?;
            arms.push(Arm { index, name, grid: grid.clone(), models });
        }
        Ok(RvMod { arms })
    }

    /// Appends each spectrum's model to the image of every arm, or a row of NaN without a fit or such an arm.
    pub fn append(&mut self, fits: &[Option<Vec<ArmFit>>]) -> std::io::Result<()> {
        for fit in fits {
            for arm in &mut self.arms {
                let pixels = arm.grid.len();
                let own = fit.as_ref().and_then(|arms| arms.get(arm.index));
                match own.filter(|fit| !fit.model.is_empty()) {
                    Some(fit) => arm.models.append(fit.model.iter().map(|x| *x as f32))?,
                    None => arm.models.append(std::iter::repeat_n(f32::NAN, pixels))?,
                }
            }
        }
        Ok(())
    }

    /// Writes two FITS extensions per arm to `out`: the wavelengths (Å), and the image of the models.
    pub fn write(&mut self, path: &Path, out: &mut impl Write) -> Result<()> {
        for arm in &mut self.arms {
            let name = format!("{}_WAVELENGTH", arm.name);
            write_line(&name, "Angstrom", &arm.grid, out).map_err(refused(path))?;
            arm.models.write(out).map_err(refused(path))?;
        }
        Ok(())
    }
}

/// Returns a file's arm of this name, or its only arm if either that arm or `name` has no name; `None` if there is
/// none.
fn find<'a>(file: &'a Spectra<'a>, name: &str) -> Option<&'a ArmSpectra<'a>> {
    let named = file.arms.iter().find(|arm| arm.name == name);
    // as in the fit: a single arm needs no name
    let only = file.arms.first().filter(|arm| file.arms.len() == 1 && (name.is_empty() || arm.name.is_empty()));
    named.or(only)
}

/// Returns the wavelengths (Å) that all spectra of an arm share; fails if each spectrum has its own.
fn shared_grid(arm: &ArmSpectra, file: &str) -> Result<Arc<[f64]>> {
    match &arm.wavelength {
        Wavelength::Shared(grid) => Ok(grid.clone()),
        Wavelength::Own(_) => Err(Error::Usage(format!(
            "{file}: rvspecfit's table needs spectra on one wavelength grid; write popfit's own table instead"
        ))),
    }
}

/// Returns the path of a table's models: `rvtab_X.fits` has them in `rvmod_X.fits`, any other `X.fits` in
/// `X_rvmod.fits`.
pub(super) fn beside(table: &Path) -> PathBuf {
    let name = table.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    match name.strip_prefix("rvtab") {
        Some(rest) => table.with_file_name(format!("rvmod{rest}")),
        None => {
            let stem = table.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
            table.with_file_name(format!("{stem}_rvmod.fits"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_lie_beside_their_table() {
        assert_eq!(beside(Path::new("out/rvtab_505.fits")), Path::new("out/rvmod_505.fits"));
        assert_eq!(beside(Path::new("stars.fits")), Path::new("stars_rvmod.fits"));
    }
}
