//! Checks of a model against files of spectra before a fit: arms, columns, and common wavelengths.

use std::borrow::Cow;

use crate::error::Result;
use crate::model::pixels::difference_of_means;
use crate::model::{ArmMotion, LineSpread, ModelArm, Sampling, SpectralModel};
use crate::spectra::{ArmSpectra, Spectra, Wavelength};
use crate::spectral::SpectralFitter;
use crate::spectral::input::assemble::{
    list_arms_without_bits, list_missing_arms, match_arm_grids, match_arms,
};
use crate::spectral::input::clusters::find_cluster_column;
use crate::spectral::input::covariance::refuse_settings_of_fit;
use crate::spectral::input::limits::LimitColumns;

/// Wavelengths of one arm: those of the spectra, those of the model, and those that a fit uses. Ranges are in Å.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ArmCoverage {
    /// Name of the model's arm.
    pub name: String,
    /// First and last wavelength of the spectra.
    pub data: (f64, f64),
    /// First and last wavelength of the emulator.
    pub model: (f64, f64),
    /// First and last wavelength that a fit uses; `None` if the masked intervals cover all of them, or if the first
    /// spectrum's own grid cannot be used or does not overlap the model.
    pub used: Option<(f64, f64)>,
    /// Pixels of each spectrum.
    pub pixels: usize,
    /// Pixels that a fit uses: those inside the model's wavelengths and the arm's `range`, and outside the masked
    /// intervals. The masks and weights of a spectrum may leave out more of them.
    pub used_pixels: usize,
    /// Largest number of used pixels that a fit leaves out at the bounds of velocity and vsini, because the template
    /// does not cover them; 0 if the model is wide enough. The column `unreached` counts them.
    pub most_unreached: usize,
}

/// Checks before the first fit for errors that would end the run at one of its files: a missing arm or column, a
/// shared grid that does not overlap the model, or a model without a point to start from. `heads` are files without
/// their rows ([`SpectraReader::empty`](crate::spectra::SpectraReader::empty)).
///
/// # Errors
/// Returns the errors that [`SpectralFitter::fit`] would return for its settings or for one of the files.
pub fn check_spectra<'s>(
    fitter: &SpectralFitter,
    heads: impl IntoIterator<Item = &'s Spectra<'s>>,
) -> Result<()> {
    let mut run = fitter.make_run()?;
    for head in heads {
        let arms = match_arms(&fitter.model, head)?;
        refuse_settings_of_fit(&fitter.solver, fitter.scans_velocity(), head, &arms)?;
        run.sample_grids(&arms, head)?;
        LimitColumns::new(&fitter.model, head)?;
        find_cluster_column(&fitter.model, head)?;
    }
    fitter.first_guess().map(drop)
}

/// Returns notes on arms that a file lacks and is fitted without, and on those whose masks have no bits by which
/// errors could be widened, one line per arm.
pub fn list_notes(fitter: &SpectralFitter, head: &Spectra) -> Vec<String> {
    let mut notes = Vec::new();
    for arm in list_missing_arms(&fitter.model, head) {
        notes.push(format!(
            "{}: no arrays for arm \"{arm}\", fitted without it",
            head.name()
        ));
    }
    for arm in list_arms_without_bits(&fitter.model, head) {
        notes.push(format!(
            "{}, arm {arm}: the mask has no bits (it is of booleans, or there is none): `spectra.widen` widens no \
             error there",
            head.name()
        ));
    }
    notes
}

/// Returns a note for each arm whose pixels are so wide that a template's means over them differ from its values at
/// their centres. There is none if the model sets `pixels`, or if the spectra have resolution matrices. The
/// wavelengths are those of the first file with a grid for the arm. If each spectrum has a grid of its own, they
/// are those of the first spectrum, which the head of a file lacks.
pub fn list_pixel_notes<'s>(
    fitter: &SpectralFitter,
    heads: impl IntoIterator<Item = &'s Spectra<'s>> + Clone,
) -> Vec<String> {
    let mut notes = Vec::new();
    for arm in &fitter.model.arms {
        // 1. The user has decided, or the resolution matrices contain the pixels.
        if arm.pixels.is_some() || arm.line_spread == LineSpread::File {
            continue;
        }
        // 2. Find the first grid of the arm.
        let mut data_of_arm = heads
            .clone()
            .into_iter()
            .flat_map(|head| &head.arms)
            .filter(|data| data.name == arm.name || data.name.is_empty());
        let has_grid = |data: &ArmSpectra| {
            matches!(data.wavelength, Wavelength::Shared(_)) || !data.is_empty()
        };
        let Some(data) =
            data_of_arm.find(|data| data.resolution.is_none() && data.pixels > 0 && has_grid(data))
        else {
            continue;
        };
        // 3. Compare the template's means with its values there.
        let Some((width, difference)) = difference_of_means(arm, &data.grid(0)) else {
            continue;
        };
        let name = if arm.name.is_empty() {
            String::new()
        } else {
            format!("arm {}: ", arm.name)
        };
        notes.push(format!(
            "{name}pixels are {width:.1} times as wide as the template's. Its means over them differ from its \
             values at their centres by {:.2} %. Set `pixels = \"integrate\"` in the arm, or `pixels = \
             \"sample\"` if the data are values at the centres",
            100.0 * difference
        ));
    }
    notes
}

/// Returns for each arm that the spectra have the wavelength ranges of data and model, and the used pixels, by the
/// first spectrum's grid. If each spectrum has a wavelength grid of its own, it is that of the first one; an arm
/// without any grid, as in a file's [`empty`](crate::spectra::SpectraReader::empty), is left out.
///
/// # Errors
/// Returns [`Error::NoOverlap`](crate::Error::NoOverlap), [`Error::ShapeMismatch`](crate::Error::ShapeMismatch) and
/// [`Error::BadWavelength`](crate::Error::BadWavelength) as a fit would.
pub fn measure_coverage(fitter: &SpectralFitter, spectra: &Spectra) -> Result<Vec<ArmCoverage>> {
    let first = spectra.slice(0..spectra.len().min(1));
    let arms = match_arm_grids(&fitter.model, &first)?;
    let grids = fitter.make_run()?.sample_grids(&arms, &first)?;
    let mut coverages = Vec::new();
    for ((arm, data), grid) in fitter.model.arms.iter().zip(&arms).zip(&grids) {
        // An arm that the spectra lack has made-up arrays.
        let Cow::Borrowed(data) = data else { continue };
        let has_grid = matches!(data.wavelength, Wavelength::Shared(_)) || !first.is_empty();
        if has_grid {
            let sampling = grid.get(0).ok().map(|sampling| &**sampling);
            coverages.extend(measure_arm_coverage(&fitter.model, arm, data, sampling));
        }
    }
    Ok(coverages)
}

/// Returns the wavelength ranges of an arm's data, model and used pixels, with the pixels' numbers; `None` for a grid
/// without pixels.
fn measure_arm_coverage(
    model: &SpectralModel,
    arm: &ModelArm,
    data: &ArmSpectra,
    sampling: Option<&Sampling>,
) -> Option<ArmCoverage> {
    let wavelength = data.grid(0);
    let is_used = |j: &usize| sampling.is_some_and(|sampling| sampling.on[*j]);
    let first_used = (0..wavelength.len()).find(is_used);
    let last_used = (0..wavelength.len()).rfind(is_used);
    Some(ArmCoverage {
        name: arm.name.clone(),
        data: wavelength_range(&wavelength)?,
        model: wavelength_range(arm.emulator.wavelength())?,
        used: first_used
            .zip(last_used)
            .map(|(first, last)| (wavelength[first], wavelength[last])),
        pixels: data.pixels,
        used_pixels: sampling.map_or(0, |sampling| sampling.used),
        most_unreached: sampling.map_or(0, |sampling| max_unreached(model, arm, sampling)),
    })
}

/// Returns the largest number of pixels of a grid that the arm's template does not cover at the bounds of velocity and
/// vsini.
fn max_unreached(model: &SpectralModel, arm: &ModelArm, sampling: &Sampling) -> usize {
    let mut max_unreached = 0;
    for motion in ArmMotion::extremes(model) {
        let is_reached = sampling.find_reached(arm, motion);
        let reached = is_reached.iter().filter(|is_reached| **is_reached).count();
        max_unreached = max_unreached.max(sampling.used - reached);
    }
    max_unreached
}

/// Returns the first and the last wavelength; `None` if there are none.
fn wavelength_range(wavelength: &[f64]) -> Option<(f64, f64)> {
    wavelength.first().copied().zip(wavelength.last().copied())
}
