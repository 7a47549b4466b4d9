//! Matching of spectra to the arms of a model, and the arrays that a device reads.

use std::borrow::Cow;
use std::sync::Arc;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::model::{
    ArmJitter, LineSpread, ModelArm, Motion, Prepared, PreparedArm, RawArm, RawCovariance,
    Sampling, SpectralModel, SpectralObjective, SpectrumFault, hull_weights, prepare_spectrum,
};
use crate::recording::{Scope, Values};
use crate::solver::Batch;
use crate::spectra::{ArmSpectra, Resolution, Spectra, Wavelength};
use crate::spectral::input::covariance::refuse_model_settings;
use crate::spectral::input::reading::refuse_joined_exposures;
use crate::spectral::input::ready::{
    Grids, ReadySpectra, ReadySpectrum, StartPoints, collect_samplings,
};
use crate::suggest::find_nearest;
use crate::threads;

/// Number of pixels of the arrays that replace an arm which a file lacks.
const PIXELS_OF_ABSENT_ARM: usize = 32;

/// Returns the arrays for each arm of the model, in its order: those of the file's arm of the same name, or arrays
/// without weight where the file lacks it.
///
/// # Errors
/// Returns [`Error::ShapeMismatch`] if no arm matches, if a name is probably misspelt, or if a resolution matrix is
/// missing; [`Error::Usage`] if the masks were read by another rule than the model's, or if exposures are joined that
/// the model does not fit together.
pub fn match_arms<'s>(
    model: &SpectralModel,
    spectra: &'s Spectra<'s>,
) -> Result<Vec<Cow<'s, ArmSpectra<'s>>>> {
    let arms = match_arm_grids(model, spectra)?;
    refuse_other_widening(model, spectra)?;
    Ok(arms)
}

/// Returns the same as [`match_arms`], whatever rule the masks were read by. Wavelengths do not depend on the rule.
///
/// # Errors
/// Returns the other errors of [`match_arms`].
pub fn match_arm_grids<'s>(
    model: &SpectralModel,
    spectra: &'s Spectra<'s>,
) -> Result<Vec<Cow<'s, ArmSpectra<'s>>>> {
    refuse_joined_exposures(model, spectra)?;
    let matches: Vec<Option<&ArmSpectra>> = model
        .arms
        .iter()
        .map(|arm| find_arm(model, spectra, arm))
        .collect();
    if matches.iter().all(Option::is_none) {
        return Err(no_arm_error(model, spectra));
    }
    refuse_misspelt(model, spectra)?;
    let mut arms = Vec::with_capacity(matches.len());
    for (arm, data) in model.arms.iter().zip(matches) {
        arms.push(match data {
            Some(data) => {
                refuse_model_settings(model, spectra, data)?;
                require_resolution(arm, data, spectra)?
            }
            None => make_absent_arm(arm, spectra)?,
        });
    }
    Ok(arms)
}

/// Fails if the errors of an arm that the model uses were not widened by the model's rule when its mask was read.
fn refuse_other_widening(model: &SpectralModel, spectra: &Spectra) -> Result<()> {
    let used_arms = model
        .arms
        .iter()
        .filter_map(|arm| find_arm(model, spectra, arm));
    for arm in used_arms {
        let applied = arm.widening.as_ref().map(|applied| &applied.widening);
        if applied == model.widening() {
            continue;
        }
        let file_and_arm = [&*spectra.file, &arm.name]
            .into_iter()
            .map(str::to_string)
            .filter(|part| !part.is_empty());
        let place = file_and_arm
            .chain(["`spectra.widen`".to_string()])
            .collect::<Vec<_>>()
            .join(", ");
        let message = match applied {
            None => {
                "the model widens errors by bits of masks, but these spectra were read without their bits"
            }
            Some(_) => {
                "these spectra were read with errors that are widened by another rule than the model's"
            }
        };
        return Err(Error::Usage(format!(
            "{place}: {message}; give the model's rule to the reader (`Selection::widen`) or to the arrays \
             (`ArmSpectra::with_mask_bits`)"
        )));
    }
    Ok(())
}

/// Returns the names of the model's arms whose errors were to be widened, but whose masks in the file have no bits.
pub fn list_arms_without_bits<'m>(model: &'m SpectralModel, spectra: &Spectra) -> Vec<&'m str> {
    let mut names = Vec::new();
    for arm in &model.arms {
        let widening = find_arm(model, spectra, arm).and_then(|data| data.widening.as_ref());
        if widening.is_some_and(|applied| !applied.has_bits) {
            names.push(arm.name.as_str());
        }
    }
    names
}

/// Returns the names of the model's arms that a file lacks.
pub fn list_missing_arms<'m>(model: &'m SpectralModel, spectra: &Spectra) -> Vec<&'m str> {
    model
        .arms
        .iter()
        .filter(|arm| find_arm(model, spectra, arm).is_none())
        .map(|arm| arm.name.as_str())
        .collect()
}

/// Returns the file's arrays for an arm of the model, matched by name (or alone, if a name is empty); `None` if it has
/// none.
fn find_arm<'s>(
    model: &SpectralModel,
    spectra: &'s Spectra<'s>,
    arm: &ModelArm,
) -> Option<&'s ArmSpectra<'s>> {
    match (model.arms.as_slice(), spectra.arms.as_slice()) {
        // If there is one arm only, its name may be missing.
        ([_], [only]) if only.name.is_empty() || arm.name.is_empty() => Some(only),
        (_, data_of_arms) => data_of_arms.iter().find(|data| data.name == arm.name),
    }
}

/// Refuses an arm of the file that the model does not use if its name is like that of an arm of the model that the file
/// lacks: the spectra would be fitted without that arm because of a typing error.
fn refuse_misspelt(model: &SpectralModel, spectra: &Spectra) -> Result<()> {
    let unused_names = spectra
        .arms
        .iter()
        .map(|data| data.name.as_str())
        .filter(|name| model.arms.iter().all(|arm| arm.name != *name));
    for name in list_missing_arms(model, spectra) {
        if let Some(similar) = find_nearest(name, unused_names.clone()) {
            let message = format!(
                "it has no arm \"{name}\", but an arm \"{similar}\" that the model does not use; rename one of them, \
                 or leave arm \"{name}\" out of the model"
            );
            return Err(Error::mismatch(spectra.name(), message).naming("arms"));
        }
    }
    Ok(())
}

/// Returns the error for a file without any arm of the model.
fn no_arm_error(model: &SpectralModel, spectra: &Spectra) -> Error {
    let names: Vec<&str> = spectra
        .arms
        .iter()
        .map(|arm| arm.name.as_str())
        .filter(|name| !name.is_empty())
        .collect();
    let arms_of_file = if names.is_empty() {
        "the arrays carry no arm's name".to_string()
    } else {
        format!("there are arms: {}", names.join(", "))
    };
    let name = model.arms.first().map_or("", |arm| &arm.name);
    let message = format!("no arrays for arm \"{name}\" ({name}_flux, ...); {arms_of_file}");
    Error::mismatch(spectra.name(), message).naming("arms")
}

/// Returns an arm's arrays as they are, or an error if the model asks for the file's resolution matrices and there are
/// none.
fn require_resolution<'s>(
    arm: &ModelArm,
    data: &'s ArmSpectra<'s>,
    spectra: &Spectra,
) -> Result<Cow<'s, ArmSpectra<'s>>> {
    if arm.line_spread == LineSpread::File && data.resolution.is_none() {
        let name = if data.name.is_empty() {
            &arm.name
        } else {
            &data.name
        };
        let message = format!(
            "arm \"{name}\": line_spread = \"file\", but its spectra carry no resolution matrix"
        );
        return Err(Error::mismatch(spectra.name(), message).naming("resolution"));
    }
    Ok(Cow::Borrowed(data))
}

/// Makes arrays for an arm that the file lacks: a few pixels inside its template with zero flux and ivar, so that it
/// adds nothing to a fit.
fn make_absent_arm<'s>(arm: &ModelArm, spectra: &Spectra) -> Result<Cow<'s, ArmSpectra<'s>>> {
    // 1. Spread the pixels over the wavelengths of the template that the arm uses.
    let template = arm.emulator.wavelength();
    let mut first = template[0];
    let mut last = template[template.len() - 1];
    if let Some((lower, upper)) = arm.range {
        first = first.max(lower);
        last = last.min(upper);
    }
    let wavelengths = (1..=PIXELS_OF_ABSENT_ARM)
        .map(|k| first + (last - first) * k as f64 / (PIXELS_OF_ABSENT_ARM as f64 + 1.0))
        .collect();
    // 2. Flux and ivar are zero. A resolution matrix, if the model asks for one, is the identity.
    let zeros = vec![0.0; PIXELS_OF_ABSENT_ARM * spectra.len()];
    let data = ArmSpectra::new(
        arm.name.clone(),
        PIXELS_OF_ABSENT_ARM,
        Wavelength::Shared(wavelengths),
        zeros.clone(),
        zeros,
        None,
    )?;
    Ok(Cow::Owned(match arm.line_spread {
        LineSpread::File => data.with_resolution(Resolution {
            diagonals: 1,
            values: vec![1.0; PIXELS_OF_ABSENT_ARM * spectra.len()].into(),
        })?,
        _ => data,
    }))
}

/// Returns one spectrum's wavelengths, flux, ivar, mask, (if the model takes it from the file) resolution matrix and
/// (if it has one) covariance in one arm.
pub fn slice_raw_arm<'s>(model: &ModelArm, arm: &'s ArmSpectra, spectrum: usize) -> RawArm<'s> {
    let pixels = spectrum * arm.pixels..(spectrum + 1) * arm.pixels;
    let mask = if arm.mask.is_empty() {
        &[]
    } else {
        &arm.mask[pixels.clone()]
    };
    let resolution = arm
        .resolution
        .as_ref()
        .filter(|_| model.line_spread == LineSpread::File)
        .map(|matrices| {
            let length = matrices.diagonals * arm.pixels;
            &matrices.values[spectrum * length..(spectrum + 1) * length]
        });
    let covariance = arm.covariance.as_ref().map(|matrices| {
        let length = matrices.diagonals * arm.pixels;
        RawCovariance {
            values: matrices
                .values
                .double(spectrum * length..(spectrum + 1) * length),
            pixels: arm.pixels,
        }
    });
    RawArm {
        wavelength: arm.grid(spectrum),
        flux: arm.flux.double(pixels.clone()),
        ivar: arm.ivar.double(pixels),
        mask,
        resolution,
        covariance,
    }
}

/// Makes the arrays that the fit of spectrum `place` of a batch reads from its data in all arms, or returns the fault
/// that excludes it. At a `motion`, pixels that the templates do not cover, and those in masks of the star's frame, do
/// not count. A fitted jitter (arms; or empty) is added to the errors.
pub fn prepare_spectrum_of_batch(
    model: &SpectralModel,
    arms: &[Cow<ArmSpectra>],
    grids: &[Grids],
    place: usize,
    motion: Option<&Motion>,
    jitters: &[Arc<ArmJitter>],
) -> std::result::Result<Prepared, SpectrumFault> {
    let mut samplings = Vec::with_capacity(arms.len());
    for grid in grids {
        samplings.push(&**grid.get(place).map_err(SpectrumFault::clone)?);
    }
    let raw_arms: Vec<RawArm> = model
        .arms
        .iter()
        .zip(arms)
        .map(|(arm, data)| slice_raw_arm(arm, data, place))
        .collect();
    prepare_spectrum(model, &raw_arms, &samplings, motion, jitters)
}

/// Leaves out the pixels of a prepared spectrum that do not count at a motion, or returns the fault of a spectrum with
/// too few pixels left. Without a motion all are kept.
pub fn leave_out_uncounted_pixels(
    model: &SpectralModel,
    arms: &[Cow<ArmSpectra>],
    grids: &[Grids],
    place: usize,
    prepared: Prepared,
    motion: Option<Motion>,
) -> std::result::Result<Prepared, SpectrumFault> {
    let samplings = model.arms.iter().zip(collect_samplings(grids, place));
    let all_pixels_count = motion.as_ref().is_none_or(|motion| {
        samplings
            .enumerate()
            .all(|(a, (arm, sampling))| sampling.counts_all(arm, motion.of_arm(a)))
    });
    if all_pixels_count {
        return Ok(Prepared { motion, ..prepared });
    }
    prepare_spectrum_of_batch(model, arms, grids, place, motion.as_ref(), &[])
}

/// Makes, in parallel, the arrays that the fits of the first `count` spectra of a batch read; those that cannot be
/// fitted give faults.
pub fn prepare_spectra(
    model: &SpectralModel,
    arms: &[Cow<ArmSpectra>],
    grids: &[Grids],
    count: usize,
) -> Vec<std::result::Result<Prepared, SpectrumFault>> {
    threads::in_pool(|| {
        (0..count)
            .into_par_iter()
            .map(|place| prepare_spectrum_of_batch(model, arms, grids, place, None, &[]))
            .collect()
    })
}

/// Returns the solver's input for prepared spectra: the arrays of all spectra, with their starts, bounds and priors.
pub fn assemble(
    objective: &SpectralObjective,
    spectra: ReadySpectra,
    starts: &[StartPoints],
) -> Batch {
    let ReadySpectra {
        model,
        grids,
        spectra: ready,
        ..
    } = spectra;
    let mut batch = Batch {
        spectra: ready.len(),
        ..Batch::default()
    };
    // 1. Arrays of each arm.
    for a in 0..objective.arms.len().min(grids.len()) {
        threads::in_pool(|| add_arm(&mut batch, objective, spectra, a));
    }
    // 2. Weights of the penalties for leaving the training hulls, which depend on the number of pixels.
    if let Some(buffer) = objective.hull_weights {
        let mut weights = Vec::new();
        for spectrum in ready {
            let pixels: Vec<usize> = grids
                .iter()
                .map(|grid| {
                    let sampling = grid.get(spectrum.place);
                    sampling.map_or(0, |sampling| sampling.pixels)
                })
                .collect();
            weights.extend(hull_weights(model, &pixels));
        }
        batch.blocks.push((buffer, Values::F64(weights.into())));
    }
    // 3. Starts, bounds and priors.
    add_members(&mut batch, spectra, starts);
    batch
}

/// Appends the blocks of arm `a` (data, weights, wavelength sampling and continuum basis) of all spectra to a batch.
fn add_arm(batch: &mut Batch, objective: &SpectralObjective, spectra: ReadySpectra, a: usize) {
    let ready = spectra.spectra;
    let grid = &spectra.grids[a];
    let buffers = &objective.arms[a];
    let width = objective.padded_pixels(buffers);
    // 1. Arrays of each spectrum. Some recordings read the data a second time, with outliers cleaned.
    let spectrum_rows = |rows, array: fn(&PreparedArm) -> &Arc<Vec<f32>>| {
        Values::Blocks(
            ready
                .par_iter()
                .map(|spectrum| pad_array(array(&spectrum.prepared.arms[a]), rows, width))
                .collect(),
        )
    };
    let has_cleaned_data = objective.recording().block(buffers.data).length > width;
    let data = if has_cleaned_data {
        Values::Blocks(
            ready
                .par_iter()
                .map(|spectrum| join_cleaned_data(&spectrum.prepared.arms[a], width))
                .collect(),
        )
    } else {
        spectrum_rows(1, |arm| &arm.weighted_flux)
    };
    let weight = spectrum_rows(1, |arm| &arm.weight);
    batch.blocks.push((buffers.data, data));
    batch.blocks.push((buffers.weight, weight));
    if let Some((diagonals, buffer)) = buffers.resolution {
        let resolution = spectrum_rows(diagonals, |arm| &arm.resolution);
        batch.blocks.push((buffer, resolution));
    }
    if let Some(basis) = buffers.basis {
        let transforms: Vec<f32> = ready
            .iter()
            .flat_map(|spectrum| spectrum.prepared.arms[a].transform.iter().copied())
            .collect();
        let transforms = Values::F32(transforms.into());
        batch.blocks.push((basis.transform, transforms));
    }
    // 2. Arrays of each wavelength grid. The index of pixels beyond the end of a spectrum is −1.
    let samplings: Vec<&Sampling> = match grid {
        Grids::Shared(sampling) => vec![sampling],
        Grids::Own(_) => ready
            .iter()
            .filter_map(|spectrum| grid.get(spectrum.place).ok())
            .map(|sampling| &**sampling)
            .collect(),
    };
    let mut index = vec![-1; width * samplings.len()];
    for (row, sampling) in index.chunks_mut(width.max(1)).zip(&samplings) {
        copy_rows(&sampling.index, row, 1, width);
    }
    let grid_rows = |rows, array: fn(&Sampling) -> &Arc<Vec<f32>>| {
        Values::Blocks(
            samplings
                .par_iter()
                .map(|sampling| pad_array(array(sampling), rows, width))
                .collect(),
        )
    };
    let fraction = grid_rows(1, |sampling| &sampling.fraction);
    batch
        .blocks
        .push((buffers.index, Values::I32(index.into())));
    batch.blocks.push((buffers.fraction, fraction));
    if let Some(buffer) = buffers.edges {
        let edges = grid_rows(2, |sampling| &sampling.edges);
        batch.blocks.push((buffer, edges));
    }
    // 3. The continuum basis, which is that of each spectrum or that of each grid.
    if let Some(basis) = buffers.basis {
        let bases = match objective.recording().block(basis.basis).scope {
            Scope::Spectrum => Values::Blocks(
                ready
                    .par_iter()
                    .map(|spectrum| pad_basis(spectrum, grid, a, basis.terms, width))
                    .collect(),
            ),
            _ => grid_rows(basis.terms, |sampling| &sampling.basis),
        };
        batch.blocks.push((basis.basis, bases));
    }
}

/// Returns an arm's data, followed by the cleaned data, each padded with zeros to `width`.
fn join_cleaned_data(arm: &PreparedArm, width: usize) -> Arc<Vec<f32>> {
    let mut joined = vec![0.0; 2 * width];
    let rows = joined.chunks_exact_mut(width.max(1));
    for (row, array) in rows.zip([&arm.weighted_flux, &arm.cleaned]) {
        row[..array.len()].copy_from_slice(array);
    }
    joined.into()
}

/// Returns the continuum basis of a spectrum in one arm, padded with zeros to `width`; all zeros if its wavelength grid
/// cannot be used.
fn pad_basis(
    spectrum: &ReadySpectrum,
    grid: &Grids,
    a: usize,
    terms: usize,
    width: usize,
) -> Arc<Vec<f32>> {
    match grid.get(spectrum.place) {
        Ok(sampling) => pad_array(spectrum.prepared.arms[a].basis(sampling), terms, width),
        Err(_) => vec![0.0; terms * width].into(),
    }
}

/// Returns an array of `rows` rows of equal length, each padded with zeros to `width`. An array whose rows are that
/// long is not copied. An empty array gives zeros.
fn pad_array(array: &Arc<Vec<f32>>, rows: usize, width: usize) -> Arc<Vec<f32>> {
    if array.len() == rows * width {
        return array.clone();
    }
    let mut padded = vec![0.0; rows * width];
    copy_rows(array, &mut padded, rows, width);
    padded.into()
}

/// Copies `rows` rows of equal length from one array to the beginnings of rows of length `width` in another. Values
/// beyond the end of a row stay as they are.
fn copy_rows<T: Copy>(from: &[T], into: &mut [T], rows: usize, width: usize) {
    let length = from.len() / rows.max(1);
    for (from_row, into_row) in from
        .chunks_exact(length.max(1))
        .zip(into.chunks_exact_mut(width.max(1)))
    {
        into_row[..length].copy_from_slice(from_row);
    }
}

/// Appends to a batch one member per start of each spectrum, and the spectra's bounds and priors, in the solver's
/// units.
fn add_members(batch: &mut Batch, spectra: ReadySpectra, starts: &[StartPoints]) {
    let parameters = &spectra.model.parameters;
    for (s, spectrum) in spectra.spectra.iter().enumerate() {
        for (parameter, limits) in parameters.iter().zip(&spectrum.limits) {
            batch.lower.push(parameter.to_u(limits.lower));
            batch.upper.push(parameter.to_u(limits.upper));
            let (prior_mean, prior_weight) = limits.prior_in_u(parameter);
            batch.prior_mean.push(prior_mean);
            batch.prior_weight.push(prior_weight);
        }
        for start in &starts[s] {
            batch.group.push(s as u32);
            for ((u, parameter), limits) in start.iter().zip(parameters).zip(&spectrum.limits) {
                let lower = parameter.to_u(limits.lower);
                let upper = parameter.to_u(limits.upper);
                batch.starts.push(u.clamp(lower, upper));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::recording::Precision;
    use crate::spectral::SpectralFitter;
    use crate::spectral::input::layout::lay_out_arms;
    use crate::spectral::input::limits::LimitColumns;
    use crate::{Continuum, Emulator};

    #[test]
    fn prepared_arrays_are_copied_only_if_the_rows_of_buffers_are_longer() {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
        let emulator = Emulator::open(format!("{data}/emulator.safetensors")).unwrap();
        let model = SpectralModel::builder()
            .arm("", emulator)
            .velocity(-500.0..=500.0)
            .continuum(Continuum::rbf(6));
        let model = model.build().unwrap();
        let spectra = Spectra::open(format!("{data}/spectra.npz"))
            .unwrap()
            .slice(0..2);
        let fitter = SpectralFitter::new(model.clone(), Device::cpu());
        let arms = match_arms(&model, &spectra).unwrap();
        let grids = fitter
            .make_run()
            .unwrap()
            .sample_grids(&arms, &spectra)
            .unwrap();
        let limit_columns = LimitColumns::new(&model, &spectra).unwrap();
        let prepare_ready = |place: usize| ReadySpectrum {
            place,
            prepared: Arc::new(
                prepare_spectrum_of_batch(&model, &arms, &grids, place, None, &[]).unwrap(),
            ),
            limits: limit_columns.read_limits(place).unwrap(),
            starts: Vec::new(),
            may_add_starts: false,
        };
        let ready = [prepare_ready(0), prepare_ready(1)];
        let ready_spectra = ReadySpectra {
            model: &model,
            grids: &grids,
            spectra: &ready,
            guess: None,
        };
        let mut layout = lay_out_arms(&model, &arms, &grids);
        for is_wide in [false, true] {
            layout[0].pixels += if is_wide { 512 } else { 0 };
            let objective = SpectralObjective::new(&model, &layout, Precision::F32);
            let batch = assemble(&objective, ready_spectra, &[Vec::new(), Vec::new()]);
            let weight = batch
                .blocks
                .iter()
                .find(|(id, _)| *id == objective.arms[0].weight);
            let Some((_, Values::Blocks(rows))) = weight else {
                panic!("no rows of their own")
            };
            for (row, spectrum) in rows.iter().zip(&ready) {
                let prepared_weight = &spectrum.prepared.arms[0].weight;
                assert_eq!(Arc::ptr_eq(row, prepared_weight), !is_wide);
                assert!(
                    row.starts_with(prepared_weight)
                        && row[prepared_weight.len()..].iter().all(|w| *w == 0.0)
                );
                assert_eq!(row.len(), objective.padded_pixels(&objective.arms[0]));
            }
        }
    }
}
