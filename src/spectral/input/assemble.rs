//! Matching of spectra to the arms of a model, and the arrays that a device reads.

use std::borrow::Cow;
use std::sync::Arc;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::model::{
    Fault, LineSpread, ModelArm, Motion, Prepared, PreparedArm, RawArm, Sampling, SpectralModel,
    SpectralObjective, hull_weights, prepare,
};
use crate::recording::{Scope, Values};
use crate::solver::Batch;
use crate::spectra::{ArmSpectra, Resolution, Spectra, Wavelength};
use crate::spectral::input::ready::{Grids, ReadySpectra, ReadySpectrum, StartPoints, samplings};
use crate::suggest::nearest;
use crate::threads;

/// Number of pixels that stand in for an arm which a file lacks.
const ABSENT: usize = 32;

/// Returns the arrays for each arm of the model, in its order: those of the file's arm of the same name, or arrays
/// without weight where the file lacks it.
///
/// # Errors
/// Returns [`Error::ShapeMismatch`] if no arm matches, if a name is probably misspelt, or if a resolution matrix is
/// missing; [`Error::Usage`] if the masks were read by another rule than the model's.
pub fn matched<'s>(
    model: &SpectralModel,
    spectra: &'s Spectra<'s>,
) -> Result<Vec<Cow<'s, ArmSpectra<'s>>>> {
    let arms = matched_grids(model, spectra)?;
    refuse_other_widening(model, spectra)?;
    Ok(arms)
}

/// Returns what [`matched`] does, whatever rule the masks were read by: wavelengths are the same for all.
///
/// # Errors
/// Returns [`Error::ShapeMismatch`] as [`matched`] does.
pub fn matched_grids<'s>(
    model: &SpectralModel,
    spectra: &'s Spectra<'s>,
) -> Result<Vec<Cow<'s, ArmSpectra<'s>>>> {
    let found: Vec<_> = model
        .arms
        .iter()
        .map(|arm| find(model, spectra, arm))
        .collect();
    if found.iter().all(Option::is_none) {
        return Err(none_matches(model, spectra));
    }
    refuse_misspelt(model, spectra)?;
    let pairs = model.arms.iter().zip(found);
    pairs
        .map(|(arm, data)| {
            data.map_or_else(
                || absent(arm, spectra),
                |data| with_resolution(arm, data, spectra),
            )
        })
        .collect()
}

/// Fails if the errors of an arm that the model uses were not widened by the model's rule when its mask was read.
fn refuse_other_widening(model: &SpectralModel, spectra: &Spectra) -> Result<()> {
    for arm in model
        .arms
        .iter()
        .filter_map(|arm| find(model, spectra, arm))
    {
        let applied = arm.widening.as_ref().map(|applied| &applied.widening);
        if applied == model.widening() {
            continue;
        }
        let place = [&*spectra.file, &arm.name]
            .map(str::to_string)
            .into_iter()
            .filter(|part| !part.is_empty());
        let place = place
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
pub fn without_bits<'m>(model: &'m SpectralModel, spectra: &Spectra) -> Vec<&'m str> {
    let lacks_bits = |arm: &ArmSpectra| {
        arm.widening
            .as_ref()
            .is_some_and(|applied| !applied.has_bits)
    };
    let is_such = |arm: &&ModelArm| find(model, spectra, arm).is_some_and(lacks_bits);
    model
        .arms
        .iter()
        .filter(is_such)
        .map(|arm| arm.name.as_str())
        .collect()
}

/// Returns the names of the model's arms that a file lacks.
pub fn missing<'m>(model: &'m SpectralModel, spectra: &Spectra) -> Vec<&'m str> {
    let lacks = |arm: &&ModelArm| find(model, spectra, arm).is_none();
    model
        .arms
        .iter()
        .filter(lacks)
        .map(|arm| arm.name.as_str())
        .collect()
}

/// Returns the file's arrays for an arm of the model, matched by name (or alone, if a name is empty); `None` if it has
/// none.
fn find<'s>(
    model: &SpectralModel,
    spectra: &'s Spectra<'s>,
    arm: &ModelArm,
) -> Option<&'s ArmSpectra<'s>> {
    match (model.arms.as_slice(), spectra.arms.as_slice()) {
        // If there is one arm only, its name may be missing.
        ([_], [only]) if only.name.is_empty() || arm.name.is_empty() => Some(only),
        (_, all) => all.iter().find(|data| data.name == arm.name),
    }
}

/// Refuses an arm of the file that the model does not use if its name is like that of an arm of the model that the file
/// lacks: the spectra would be fitted without that arm because of a typing error.
fn refuse_misspelt(model: &SpectralModel, spectra: &Spectra) -> Result<()> {
    let is_used = |data: &&ArmSpectra| model.arms.iter().any(|arm| arm.name == data.name);
    let unused = spectra
        .arms
        .iter()
        .filter(|data| !is_used(data))
        .map(|data| data.name.as_str());
    for name in missing(model, spectra) {
        if let Some(near) = nearest(name, unused.clone()) {
            let message = format!(
                "it has no arm \"{name}\", but an arm \"{near}\" that the model does not use; rename one of them, or \
                 leave arm \"{name}\" out of the model"
            );
            return Err(Error::mismatch(spectra.name(), message).naming("arms"));
        }
    }
    Ok(())
}

/// Returns the error for a file without any arm of the model.
fn none_matches(model: &SpectralModel, spectra: &Spectra) -> Error {
    let named = spectra
        .arms
        .iter()
        .map(|arm| arm.name.as_str())
        .filter(|name| !name.is_empty());
    let there = match named.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "the arrays carry no arm's name".to_string(),
        names => format!("there are arms: {names}"),
    };
    let name = model.arms.first().map_or("", |arm| &arm.name);
    let message = format!("no arrays for arm \"{name}\" ({name}_flux, ...); {there}");
    Error::mismatch(spectra.name(), message).naming("arms")
}

/// Returns an arm's arrays as they are, or an error if the model asks for the file's resolution matrices and there are
/// none.
fn with_resolution<'s>(
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
fn absent<'s>(arm: &ModelArm, spectra: &Spectra) -> Result<Cow<'s, ArmSpectra<'s>>> {
    let template = arm.emulator.wavelength();
    let (low, high) = (template[0], template[template.len() - 1]);
    let (low, high) = arm
        .range
        .map_or((low, high), |(from, to)| (low.max(from), high.min(to)));
    let at = |k: usize| low + (high - low) * (k as f64 + 1.0) / (ABSENT as f64 + 1.0);
    let grid = Wavelength::Shared((0..ABSENT).map(at).collect());
    let values = vec![0.0; ABSENT * spectra.len()];
    let data = ArmSpectra::new(arm.name.clone(), ABSENT, grid, values.clone(), values, None)?;
    Ok(Cow::Owned(match arm.line_spread {
        LineSpread::File => data.with_resolution(Resolution {
            diagonals: 1,
            values: vec![1.0; ABSENT * spectra.len()].into(),
        })?,
        _ => data,
    }))
}

/// Returns one spectrum's wavelengths, flux, ivar, mask and (if the model takes it from the file) resolution matrix in
/// one arm.
pub fn raw<'s>(model: &ModelArm, arm: &'s ArmSpectra, spectrum: usize) -> RawArm<'s> {
    let resolution = arm
        .resolution
        .as_ref()
        .filter(|_| model.line_spread == LineSpread::File);
    let resolution = resolution.map(|r| {
        let length = r.diagonals * arm.pixels;
        &r.values[spectrum * length..(spectrum + 1) * length]
    });
    let range = spectrum * arm.pixels..(spectrum + 1) * arm.pixels;
    let mask = if arm.mask.is_empty() {
        &[]
    } else {
        &arm.mask[range.clone()]
    };
    let wavelength = arm.grid(spectrum);
    RawArm {
        wavelength,
        flux: arm.flux.double(range.clone()),
        ivar: arm.ivar.double(range),
        mask,
        resolution,
    }
}

/// Makes the arrays that the fit of spectrum `place` of a batch reads from its data in all arms, or returns the fault
/// that excludes it. At a `motion`, pixels that the templates do not cover, and those in masks of the star's frame, do
/// not count.
pub fn prepare_one(
    model: &SpectralModel,
    arms: &[Cow<ArmSpectra>],
    grids: &[Grids],
    place: usize,
    motion: Option<Motion>,
) -> std::result::Result<Prepared, Fault> {
    let mut samplings = Vec::with_capacity(arms.len());
    for grid in grids {
        samplings.push(&**grid.of(place).map_err(Fault::clone)?);
    }
    let raw: Vec<RawArm> = model
        .arms
        .iter()
        .zip(arms)
        .map(|(model, arm)| raw(model, arm, place))
        .collect();
    prepare(model, &raw, &samplings, motion)
}

/// Leaves out the pixels of a prepared spectrum that do not count at a motion, or returns the fault of a spectrum with
/// too few pixels left. Without a motion all are kept.
pub fn within_reach(
    model: &SpectralModel,
    arms: &[Cow<ArmSpectra>],
    grids: &[Grids],
    place: usize,
    prepared: Prepared,
    motion: Option<Motion>,
) -> std::result::Result<Prepared, Fault> {
    let mut samplings = model.arms.iter().zip(samplings(grids, place));
    if samplings.all(|(arm, sampling)| motion.is_none_or(|motion| sampling.counts_all(arm, motion)))
    {
        return Ok(Prepared { motion, ..prepared });
    }
    prepare_one(model, arms, grids, place, motion)
}

/// Makes, in parallel, the arrays that the fits of the first `count` spectra of a batch read; those that cannot be
/// fitted give faults.
pub fn prepare_all(
    model: &SpectralModel,
    arms: &[Cow<ArmSpectra>],
    grids: &[Grids],
    count: usize,
) -> Vec<std::result::Result<Prepared, Fault>> {
    let prepare = |place| prepare_one(model, arms, grids, place, None);
    threads::in_pool(|| (0..count).into_par_iter().map(prepare).collect())
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
    for a in 0..objective.arms.len().min(grids.len()) {
        threads::in_pool(|| add_arm(&mut batch, objective, spectra, a));
    }
    if let Some(weights) = objective.hull_weights {
        let mut all = Vec::new();
        for one in ready {
            let pixels: Vec<usize> = grids
                .iter()
                .map(|grid| grid.of(one.place).map_or(0, |s| s.pixels))
                .collect();
            all.extend(hull_weights(model, &pixels));
        }
        batch.blocks.push((weights, Values::F64(all.into())));
    }
    add_members(&mut batch, spectra, starts);
    batch
}

/// Appends the blocks of arm `a` (data, weights, wavelength sampling and continuum basis) of all spectra to a batch.
fn add_arm(batch: &mut Batch, objective: &SpectralObjective, spectra: ReadySpectra, a: usize) {
    let (ready, grid, buffers) = (spectra.spectra, &spectra.grids[a], &objective.arms[a]);
    let width = objective.pixels(buffers);
    // 1. Arrays of each spectrum.
    let of_arms = |rows, array: fn(&PreparedArm) -> &Arc<Vec<f32>>| {
        Values::Blocks(
            ready
                .par_iter()
                .map(|r| padded_rows(array(&r.prepared.arms[a]), rows, width))
                .collect(),
        )
    };
    let has_cleaned = objective.recording().block(buffers.data).length > width;
    let with_cleaned = || {
        ready
            .par_iter()
            .map(|r| data_with_cleaned(&r.prepared.arms[a], width))
            .collect()
    };
    let data = if has_cleaned {
        Values::Blocks(with_cleaned())
    } else {
        of_arms(1, |arm| &arm.data)
    };
    batch.blocks.push((buffers.data, data));
    batch
        .blocks
        .push((buffers.weight, of_arms(1, |arm| &arm.weight)));
    if let Some((diagonals, resolution)) = buffers.resolution {
        batch
            .blocks
            .push((resolution, of_arms(diagonals, |arm| &arm.resolution)));
    }
    if let Some(basis) = buffers.basis {
        let transforms = ready
            .iter()
            .flat_map(|r| r.prepared.arms[a].transform.iter().copied());
        batch.blocks.push((
            basis.transform,
            Values::F32(transforms.collect::<Vec<_>>().into()),
        ));
    }
    // 2. Arrays of each wavelength grid.
    let samplings: Vec<&Sampling> = match grid {
        Grids::Shared(sampling) => vec![sampling],
        Grids::Own(_) => ready
            .iter()
            .filter_map(|r| grid.of(r.place).ok())
            .map(|s| &**s)
            .collect(),
    };
    let mut index = vec![-1; width * samplings.len()]; // −1 is the index of pixels beyond the end of a spectrum
    for (own, sampling) in index.chunks_mut(width.max(1)).zip(&samplings) {
        pad_rows(&sampling.index, own, 1, width);
    }
    batch
        .blocks
        .push((buffers.index, Values::I32(index.into())));
    let of_samplings = |rows, array: fn(&Sampling) -> &Arc<Vec<f32>>| {
        Values::Blocks(
            samplings
                .par_iter()
                .map(|sampling| padded_rows(array(sampling), rows, width))
                .collect(),
        )
    };
    batch.blocks.push((
        buffers.fraction,
        of_samplings(1, |sampling| &sampling.fraction),
    ));
    if let Some(edges) = buffers.edges {
        batch
            .blocks
            .push((edges, of_samplings(2, |sampling| &sampling.edges)));
    }
    // 3. The continuum basis, which is that of each spectrum or that of each grid.
    if let Some(basis) = buffers.basis {
        let bases = match objective.recording().block(basis.basis).scope {
            Scope::Spectrum => Values::Blocks(
                ready
                    .par_iter()
                    .map(|r| basis_of(r, grid, a, basis.terms, width))
                    .collect(),
            ),
            _ => of_samplings(basis.terms, |sampling| &sampling.basis),
        };
        batch.blocks.push((basis.basis, bases));
    }
}

/// Returns an arm's data, followed by the cleaned data, each padded with zeros to `width`.
fn data_with_cleaned(arm: &PreparedArm, width: usize) -> Arc<Vec<f32>> {
    let mut both = vec![0.0; 2 * width];
    for (row, array) in both
        .chunks_exact_mut(width.max(1))
        .zip([&arm.data, &arm.cleaned])
    {
        row[..array.len()].copy_from_slice(array);
    }
    both.into()
}

/// Returns the continuum basis of a spectrum in one arm; zeros if its wavelength grid cannot be used.
fn basis_of(
    ready: &ReadySpectrum,
    grid: &Grids,
    a: usize,
    terms: usize,
    width: usize,
) -> Arc<Vec<f32>> {
    match grid.of(ready.place) {
        Ok(sampling) => padded_rows(ready.prepared.arms[a].basis(sampling), terms, width),
        Err(_) => vec![0.0; terms * width].into(),
    }
}

/// Returns an array of `rows` rows of equal length, each padded with zeros to `width`: the array itself, if they are
/// that long. An empty array gives zeros.
fn padded_rows(array: &Arc<Vec<f32>>, rows: usize, width: usize) -> Arc<Vec<f32>> {
    if array.len() == rows * width {
        return array.clone();
    }
    let mut wide = vec![0.0; rows * width];
    pad_rows(array, &mut wide, rows, width);
    wide.into()
}

/// Copies `rows` rows of equal length from one array to the beginnings of rows of length `width` in another. Values
/// beyond the end of a row stay as they are.
fn pad_rows<T: Copy>(from: &[T], into: &mut [T], rows: usize, width: usize) {
    let own = from.len() / rows.max(1);
    for (from, into) in from
        .chunks_exact(own.max(1))
        .zip(into.chunks_exact_mut(width.max(1)))
    {
        into[..own].copy_from_slice(from);
    }
}

/// Appends to a batch one member per start of each spectrum, and the spectra's bounds and priors, in the solver's
/// units.
fn add_members(batch: &mut Batch, spectra: ReadySpectra, starts: &[StartPoints]) {
    let parameters = &spectra.model.parameters;
    for (s, one) in spectra.spectra.iter().enumerate() {
        for (p, limits) in parameters.iter().zip(&one.limits) {
            batch.lower.push(p.to_u(limits.lower));
            batch.upper.push(p.to_u(limits.upper));
            batch
                .prior_mean
                .push(limits.prior.map_or(0.0, |(mean, _)| p.to_u(mean)));
            batch.prior_weight.push(
                limits
                    .prior
                    .map_or(0.0, |(_, sigma)| p.solver.scale / sigma),
            );
        }
        for start in &starts[s] {
            batch.group.push(s as u32);
            let pairs = parameters.iter().zip(&one.limits);
            let bounds = pairs.map(|(p, limits)| (p.to_u(limits.lower), p.to_u(limits.upper)));
            batch.starts.extend(
                start
                    .iter()
                    .zip(bounds)
                    .map(|(u, (low, high))| u.clamp(low, high)),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::recording::Precision;
    use crate::spectral::SpectralFitter;
    use crate::spectral::input::layout::layout;
    use crate::spectral::input::limits::Tables;
    use crate::{Continuum, Emulator};

    /// A device reads prepared arrays themselves, unless the rows of its buffers are longer.
    #[test]
    fn prepared_arrays_are_copied_only_to_be_padded() {
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
        let arms = matched(&model, &spectra).unwrap();
        let grids = fitter.run().unwrap().grids(&arms, &spectra).unwrap();
        let tables = Tables::new(&model, &spectra).unwrap();
        let ready = |place: usize| ReadySpectrum {
            place,
            prepared: Arc::new(prepare_one(&model, &arms, &grids, place, None).unwrap()),
            limits: tables.of(place).unwrap(),
            starts: Vec::new(),
            may_add_starts: false,
        };
        let ready = [ready(0), ready(1)];
        let input = ReadySpectra {
            model: &model,
            grids: &grids,
            spectra: &ready,
            guess: None,
        };
        let mut shape = layout(&model, &arms, &grids);
        for is_wide in [false, true] {
            shape[0].pixels += if is_wide { 512 } else { 0 };
            let objective = SpectralObjective::new(&model, &shape, Precision::F32);
            let batch = assemble(&objective, input, &[Vec::new(), Vec::new()]);
            let weight = batch
                .blocks
                .iter()
                .find(|(id, _)| *id == objective.arms[0].weight);
            let Some((_, Values::Blocks(rows))) = weight else {
                panic!("no rows of their own")
            };
            for (row, one) in rows.iter().zip(&ready) {
                let own = &one.prepared.arms[0].weight;
                assert_eq!(Arc::ptr_eq(row, own), !is_wide);
                assert!(row.starts_with(own) && row[own.len()..].iter().all(|w| *w == 0.0));
                assert_eq!(row.len(), objective.pixels(&objective.arms[0]));
            }
        }
    }
}
