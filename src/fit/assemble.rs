//! From a batch of spectra to what a device reads.

use std::borrow::Cow;

use rayon::prelude::*;

use super::ready::{Grids, Ready, Starts};
use crate::error::{Error, Result};
use crate::model::{
    Fault, LineSpread, ModelArm, Prepared, RawArm, Sampling, SpectralModel, SpectralObjective, hull_weights, prepare,
};
use crate::recording::{Scope, Values};
use crate::solver::Batch;
use crate::spectra::{ArmSpectra, Resolution, Spectra, Wavelength};
use crate::suggest::nearest;

/// Pixels of an arm that is not there.
const ABSENT: usize = 32;

/// The spectra's arrays for each arm of the model; of an arm that the file lacks, pixels without weight.
pub fn matched<'s>(model: &SpectralModel, spectra: &'s Spectra<'s>) -> Result<Vec<Cow<'s, ArmSpectra<'s>>>> {
    let found: Vec<_> = model.arms.iter().map(|arm| find(model, spectra, arm)).collect();
    if found.iter().all(Option::is_none) {
        return Err(none_matches(model, spectra));
    }
    refuse_misspelt(model, spectra)?;
    let pairs = model.arms.iter().zip(found);
    pairs
        .map(|(arm, data)| data.map_or_else(|| absent(arm, spectra), |data| with_resolution(arm, data, spectra)))
        .collect()
}

/// Names of the model's arms that a file lacks.
pub fn missing<'m>(model: &'m SpectralModel, spectra: &Spectra) -> Vec<&'m str> {
    let lacks = |arm: &&ModelArm| find(model, spectra, arm).is_none();
    model.arms.iter().filter(lacks).map(|arm| arm.name.as_str()).collect()
}

fn find<'s>(model: &SpectralModel, spectra: &'s Spectra<'s>, arm: &ModelArm) -> Option<&'s ArmSpectra<'s>> {
    match (model.arms.as_slice(), spectra.arms.as_slice()) {
        // a single arm needs no name
        ([_], [only]) if only.name.is_empty() || arm.name.is_empty() => Some(only),
        (_, all) => all.iter().find(|data| data.name == arm.name),
    }
}

/// Refuses an arm of the file that the model does not use if its name is like that of an arm of the model that the file
/// lacks: the spectra would be fitted without that arm because of a typing error.
fn refuse_misspelt(model: &SpectralModel, spectra: &Spectra) -> Result<()> {
    let is_used = |data: &&ArmSpectra| model.arms.iter().any(|arm| arm.name == data.name);
    let unused = spectra.arms.iter().filter(|data| !is_used(data)).map(|data| data.name.as_str());
    for name in missing(model, spectra) {
        if let Some(near) = nearest(name, unused.clone()) {
            let message = format!(
                "it has no arm \"{name}\", but an arm \"{near}\" that the model does not use; rename one of them, or \
                 leave arm \"{name}\" out of the model"
            );
            return Err(Error::ShapeMismatch { what: spectra.file.to_string(), message });
        }
    }
    Ok(())
}

fn none_matches(model: &SpectralModel, spectra: &Spectra) -> Error {
    let named = spectra.arms.iter().map(|arm| arm.name.as_str()).filter(|name| !name.is_empty());
    let there = match named.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "the arrays carry no arm's name".to_string(),
        names => format!("there are arms: {names}"),
    };
    let name = model.arms.first().map_or("", |arm| &arm.name);
    let message = format!("no arrays for arm \"{name}\" ({name}_flux, ...); {there}");
    Error::ShapeMismatch { what: spectra.file.to_string(), message }
}

fn with_resolution<'s>(arm: &ModelArm, data: &'s ArmSpectra<'s>, spectra: &Spectra) -> Result<Cow<'s, ArmSpectra<'s>>> {
    if arm.line_spread == LineSpread::File && data.resolution.is_none() {
        let name = if data.name.is_empty() { &arm.name } else { &data.name };
        let message = format!("arm \"{name}\": line_spread = \"file\", but its spectra carry no resolution matrix");
        return Err(Error::ShapeMismatch { what: spectra.file.to_string(), message });
    }
    Ok(Cow::Borrowed(data))
}

/// An arm without weight, in the middle of its template: it drops out of its spectra.
fn absent<'s>(arm: &ModelArm, spectra: &Spectra) -> Result<Cow<'s, ArmSpectra<'s>>> {
    let template = arm.emulator.wavelength();
    let (low, high) = (template[0], template[template.len() - 1]);
    let (low, high) = arm.range.map_or((low, high), |(from, to)| (low.max(from), high.min(to)));
    let at = |k: usize| low + (high - low) * (k as f64 + 1.0) / (ABSENT as f64 + 1.0);
    let grid = Wavelength::Shared((0..ABSENT).map(at).collect());
    let values = vec![0.0; ABSENT * spectra.len()];
    let data = ArmSpectra::new(arm.name.clone(), ABSENT, grid, values.clone(), values, None)?;
    Ok(Cow::Owned(match arm.line_spread {
        LineSpread::File => {
            data.with_resolution(Resolution { diagonals: 1, values: vec![1.0; ABSENT * spectra.len()] })?
        }
        _ => data,
    }))
}

/// One spectrum's arrays.
pub fn raw<'s>(model: &ModelArm, arm: &'s ArmSpectra, spectrum: usize) -> RawArm<'s> {
    let resolution = arm.resolution.as_ref().filter(|_| model.line_spread == LineSpread::File);
    let resolution = resolution.map(|r| {
        let length = r.diagonals * arm.pixels;
        &r.values[spectrum * length..(spectrum + 1) * length]
    });
    let range = spectrum * arm.pixels..(spectrum + 1) * arm.pixels;
    let mask = if arm.mask.is_empty() { &[] } else { &arm.mask[range.clone()] };
    let wavelength = arm.grid(spectrum);
    RawArm { wavelength, flux: arm.flux.double(range.clone()), ivar: arm.ivar.double(range), mask, resolution }
}

/// Prepares one spectrum of a batch.
pub fn prepare_one(
    model: &SpectralModel,
    arms: &[Cow<ArmSpectra>],
    grids: &[Grids],
    place: usize,
) -> std::result::Result<Prepared, Fault> {
    let mut samplings = Vec::with_capacity(arms.len());
    for grid in grids {
        samplings.push(&**grid.of(place).map_err(Fault::clone)?);
    }
    let raw: Vec<RawArm> = model.arms.iter().zip(arms).map(|(model, arm)| raw(model, arm, place)).collect();
    prepare(model, &raw, &samplings)
}

pub fn prepare_all(
    model: &SpectralModel,
    arms: &[Cow<ArmSpectra>],
    grids: &[Grids],
    count: usize,
) -> Vec<std::result::Result<Prepared, Fault>> {
    (0..count).into_par_iter().map(|place| prepare_one(model, arms, grids, place)).collect()
}

/// Returns the batch that the device reads: the blocks of all spectra, one after another, and their starts.
pub fn assemble<'r>(
    model: &SpectralModel,
    objective: &SpectralObjective,
    grids: &'r [Grids],
    (ready, starts): (&'r [Ready], &[Starts]),
) -> Batch {
    let mut batch = Batch { spectra: ready.len(), ..Batch::default() };
    for (a, (buffers, grid)) in objective.arms.iter().zip(grids).enumerate() {
        let width = objective.pixels(buffers);
        // most of a batch's bytes: all cores take part
        let of_spectra = |rows: usize, pick: &(dyn Fn(&'r Ready) -> &'r [f32] + Sync)| {
            let mut all = vec![0.0; rows * width * ready.len()];
            let one = |(own, r): (&mut [f32], &'r Ready)| spread(pick(r), own, (rows, width));
            all.par_chunks_mut((rows * width).max(1)).zip(ready).for_each(one);
            Values::F32(all.into())
        };
        batch.blocks.push((buffers.data, of_spectra(1, &|r| &r.prepared.arms[a].data)));
        batch.blocks.push((buffers.weight, of_spectra(1, &|r| &r.prepared.arms[a].weight)));
        if let Some((diagonals, resolution)) = buffers.resolution {
            batch.blocks.push((resolution, of_spectra(diagonals, &|r| &r.prepared.arms[a].resolution)));
        }
        if let Some(basis) = buffers.basis {
            let transforms = ready.iter().flat_map(|r| r.prepared.arms[a].transform.iter().copied());
            batch.blocks.push((basis.transform, Values::F32(transforms.collect::<Vec<_>>().into())));
        }
        let samplings: Vec<&Sampling> = match grid {
            Grids::Shared(sampling) => vec![sampling],
            Grids::Own(_) => ready.iter().filter_map(|r| grid.of(r.place).ok()).map(|s| &**s).collect(),
        };
        let of_grids = |rows: usize, pick: &dyn Fn(&Sampling) -> &[f32]| {
            let mut all = vec![0.0; rows * width * samplings.len()];
            let each = all.chunks_mut((rows * width).max(1)).zip(&samplings);
            each.for_each(|(own, sampling)| spread(pick(sampling), own, (rows, width)));
            Values::F32(all.into())
        };
        // as beyond the end of any spectrum
        let mut index = vec![-1; width * samplings.len()];
        let each = index.chunks_mut(width.max(1)).zip(&samplings);
        each.for_each(|(own, sampling)| spread(&sampling.index, own, (1, width)));
        batch.blocks.push((buffers.index, Values::I32(index.into())));
        batch.blocks.push((buffers.fraction, of_grids(1, &|s| &s.fraction)));
        if let Some(basis) = buffers.basis {
            let own = |r: &'r Ready| grid.of(r.place).map_or(&[][..], |sampling| r.prepared.arms[a].basis(sampling));
            let is_each = objective.recording().block(basis.basis).scope == Scope::Spectrum;
            let values = if is_each { of_spectra(basis.terms, &own) } else { of_grids(basis.terms, &|s| &s.basis) };
            batch.blocks.push((basis.basis, values));
        }
    }
    if let Some(weights) = objective.hull_weights {
        let pixels = |r: &Ready| -> Vec<usize> {
            grids.iter().map(|grid| grid.of(r.place).map_or(0, |sampling| sampling.pixels)).collect()
        };
        let all: Vec<f64> = ready.iter().flat_map(|r| hull_weights(model, &pixels(r))).collect();
        batch.blocks.push((weights, Values::F64(all.into())));
    }
    enter(model, &mut batch, (ready, starts));
    batch
}

/// Rows of a spectrum into rows `width` long; what is beyond them stays as it is.
fn spread<T: Copy>(from: &[T], into: &mut [T], (rows, width): (usize, usize)) {
    let own = from.len() / rows.max(1);
    for (from, into) in from.chunks_exact(own.max(1)).zip(into.chunks_exact_mut(width.max(1))) {
        into[..own].copy_from_slice(from);
    }
}

/// The members, and what bounds them.
fn enter(model: &SpectralModel, batch: &mut Batch, (ready, starts): (&[Ready], &[Starts])) {
    for (s, one) in ready.iter().enumerate() {
        for (p, limits) in model.parameters.iter().zip(&one.limits) {
            batch.lower.push(p.to_u(limits.lower));
            batch.upper.push(p.to_u(limits.upper));
            batch.prior_mean.push(limits.prior.map_or(0.0, |(mean, _)| p.to_u(mean)));
            batch.prior_weight.push(limits.prior.map_or(0.0, |(_, sigma)| p.solver.scale / sigma));
        }
        for start in &starts[s] {
            batch.group.push(s as u32);
            let pairs = model.parameters.iter().zip(&one.limits);
            let bounds = pairs.map(|(p, limits)| (p.to_u(limits.lower), p.to_u(limits.upper)));
            batch.starts.extend(start.iter().zip(bounds).map(|(u, (low, high))| u.clamp(low, high)));
        }
    }
}
