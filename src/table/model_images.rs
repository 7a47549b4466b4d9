//! Images of model spectra with one row per spectrum, {ARM}_WAVELENGTH and {ARM}_MODEL, and where they lie beside
//! rvspecfit's table.

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
struct ArmImages {
    /// Index of the arm in the model.
    index: usize,
    name: String,
    wavelength: WavelengthUnit,
    models: ImageUnit<f32>,
}

/// Wavelengths (Å) of an arm's models.
enum WavelengthUnit {
    /// Those of all spectra.
    Shared(Arc<[f64]>),
    /// A row for each spectrum.
    Own(ImageUnit<f64>),
}

/// The models of all spectra so far.
pub(super) struct ModelImages {
    arms: Vec<ArmImages>,
}

impl ModelImages {
    /// Begins the images, whose data wait beside `path`. `files` are the inputs without their spectra. An arm whose
    /// spectra are all on one grid has one line of wavelengths, any other a row for each spectrum, as long as the
    /// longest.
    pub fn new(path: &Path, fitter: &SpectralFitter, files: &[Spectra]) -> Result<ModelImages> {
        refuse_exposures(path, fitter)?;
        let mut arms = Vec::new();
        for (index, (name, _)) in fitter.model().arms().enumerate() {
            let inputs: Vec<&ArmSpectra> = files
                .iter()
                .filter_map(|file| find_arm(file, name))
                .collect();
            let Some(pixels) = inputs.iter().map(|arm| arm.pixels).max() else {
                continue;
            };
            let name = arm_name(name);
            let wavelength = match shared_grid(&inputs) {
                Some(grid) => WavelengthUnit::Shared(grid),
                None => {
                    let rows = ImageUnit::new(path, &format!("{name}_WAVELENGTH"), pixels)?;
                    WavelengthUnit::Own(rows.unit("Angstrom"))
                }
            };
            let models = ImageUnit::new(path, &format!("{name}_MODEL"), pixels)?;
            arms.push(ArmImages {
                index,
                name,
                wavelength,
                models,
            });
        }
        Ok(ModelImages { arms })
    }

    /// Appends each spectrum's model to the image of every arm, or a row of NaN without a fit or such an arm.
    pub fn append(&mut self, fits: &[Option<Vec<ArmFit>>]) -> std::io::Result<()> {
        for fit in fits {
            for arm in &mut self.arms {
                let arm_fit = fit.as_ref().and_then(|arms| arms.get(arm.index));
                let (wavelength, model): (&[f64], &[f64]) = match arm_fit {
                    Some(fit) => (&fit.wavelength, &fit.model),
                    None => (&[], &[]),
                };
                if let WavelengthUnit::Own(rows) = &mut arm.wavelength {
                    rows.append(wavelength.iter().copied())?;
                }
                arm.models.append(model.iter().map(|flux| *flux as f32))?;
            }
        }
        Ok(())
    }

    /// Writes two FITS extensions per arm to `out`: the wavelengths (Å), and the image of the models.
    pub fn write(&mut self, path: &Path, out: &mut impl Write) -> Result<()> {
        for arm in &mut self.arms {
            match &mut arm.wavelength {
                WavelengthUnit::Shared(grid) => {
                    write_line(&format!("{}_WAVELENGTH", arm.name), "Angstrom", grid, out)
                        .map_err(refused(path))?;
                }
                WavelengthUnit::Own(rows) => rows.write(out).map_err(refused(path))?,
            }
            arm.models.write(out).map_err(refused(path))?;
        }
        Ok(())
    }
}

/// Fails if the files differ in an arm's wavelengths, or have a grid for each spectrum: rvspecfit's table has no place
/// for them.
pub(super) fn check_shared_grids(fitter: &SpectralFitter, files: &[Spectra]) -> Result<()> {
    for (name, _) in fitter.model().arms() {
        let mut first = None;
        for spectra in files {
            let Some(arm) = find_arm(spectra, name) else {
                continue;
            };
            let file = &spectra.file;
            let Wavelength::Shared(grid) = &arm.wavelength else {
                return Err(Error::Usage(format!(
                    "{file}: rvspecfit's table needs spectra on one wavelength grid; write popfit's own table instead"
                )));
            };
            let (first_grid, first_file) = *first.get_or_insert((grid, file));
            if grid != first_grid {
                let message =
                    format!("{first_file} and {file} differ in the wavelengths of arm {name:?}");
                return Err(Error::Usage(format!(
                    "{message}: write one of rvspecfit's tables for each, or popfit's own table for both"
                )));
            }
        }
    }
    Ok(())
}

/// Returns a file's arm of this name, or its only arm if either that arm or `name` has no name; `None` if there is
/// none.
fn find_arm<'a>(file: &'a Spectra<'a>, name: &str) -> Option<&'a ArmSpectra<'a>> {
    if let Some(arm) = file.arms.iter().find(|arm| arm.name == name) {
        return Some(arm);
    }
    // as in the fit: a single arm needs no name
    match &file.arms[..] {
        [arm] if name.is_empty() || arm.name.is_empty() => Some(arm),
        _ => None,
    }
}

/// Returns the wavelengths (Å) that the spectra of an arm share in all files; `None` if they differ.
fn shared_grid(arms: &[&ArmSpectra]) -> Option<Arc<[f64]>> {
    let mut shared = None;
    for arm in arms {
        let Wavelength::Shared(grid) = &arm.wavelength else {
            return None;
        };
        if *shared.get_or_insert(grid) != grid {
            return None;
        }
    }
    shared.cloned()
}

/// Returns the path of a table's models: `rvtab_X.fits` has them in `rvmod_X.fits`, any other `X.fits` in
/// `X_rvmod.fits`.
pub fn models_path(table: &Path) -> PathBuf {
    let name = table
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    match name.strip_prefix("rvtab") {
        Some(rest) => table.with_file_name(format!("rvmod{rest}")),
        None => {
            let stem = table
                .file_stem()
                .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
            table.with_file_name(format!("{stem}_rvmod.fits"))
        }
    }
}

/// Fails if the model fits exposures together: an image has one row per spectrum.
pub fn refuse_exposures(path: &Path, fitter: &SpectralFitter) -> Result<()> {
    if fitter.model().exposures().is_none() {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{}: best-fit spectra and rvspecfit's layout are for spectra that are fitted one by one: write popfit's own \
         table without best-fit spectra, or fit each exposure by itself (`--exposures separate`)",
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_lie_beside_their_table() {
        assert_eq!(
            models_path(Path::new("out/rvtab_505.fits")),
            Path::new("out/rvmod_505.fits")
        );
        assert_eq!(
            models_path(Path::new("stars.fits")),
            Path::new("stars_rvmod.fits")
        );
    }
}
