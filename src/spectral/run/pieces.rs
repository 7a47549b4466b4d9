//! Spectra of several files, which are prepared by file. Journal and table have the rows by file.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rayon::prelude::*;

use super::workspace::{GridKey, SharedGrid, lock};
use super::{Grids, Run, Started};
use crate::error::Result;
use crate::first_guess::FirstGuess;
use crate::flag::Flags;
use crate::model::{ArmLayout, Fault, Limits, ModelArm, Motion, Prepared, Sampling, SpectralModel};
use crate::spectra::{ArmSpectra, Spectra, Wavelength};
use crate::spectral::SpectralFitter;
use crate::spectral::input::assemble::{matched, prepare_all, prepare_one, within_reach};
use crate::spectral::input::given::given;
use crate::spectral::input::guess::GuessedSpectrum;
use crate::spectral::input::layout::{diagonals, layout};
use crate::spectral::input::limits::Tables;
use crate::spectral::input::negative_flux::has_negative_flux;
use crate::spectral::input::ready::samplings;
use crate::threads;

/// Number of samplings per arm that are kept for the next batches of all workers.
const KEPT: usize = 8;

/// The result of an operation on one spectrum.
type SpectrumResult<T> = std::result::Result<T, Fault>;

/// The spectra of a batch that come from one file.
pub(super) struct Piece<'s> {
    tables: Tables<'s>,
    arms: Vec<Cow<'s, ArmSpectra<'s>>>,
    pub grids: Vec<Grids>,
    pub layout: Vec<ArmLayout>,
    prepared: Vec<SpectrumResult<Prepared>>,
}

impl Run<'_> {
    /// Prepares the spectra of each file for the fit, with the samplings of their wavelengths and their columns of
    /// limits.
    pub(super) fn pieces<'s>(&mut self, files: &[&'s Spectra]) -> Result<Vec<Piece<'s>>>
    where
        Self: 's,
    {
        let model = &self.fitter.model;
        let arms = files
            .iter()
            .map(|spectra| matched(model, spectra))
            .collect::<Result<Vec<_>>>()?;
        let grids = self.all_grids(&arms, files)?;
        let inputs = files.par_iter().zip(arms).zip(grids);
        let make = |((spectra, arms), grids): ((&&'s Spectra, _), _)| {
            Piece::new(model, spectra, arms, grids)
        };
        let made: Vec<Result<Piece>> = threads::in_pool(|| inputs.map(make).collect());
        made.into_iter().collect()
    }

    /// Returns the sampling of each file's wavelengths in each arm; shared grids are sampled only once. Samplings of
    /// shared grids are kept from batch to batch.
    pub(super) fn all_grids(
        &mut self,
        arms: &[Vec<Cow<ArmSpectra>>],
        files: &[&Spectra],
    ) -> Result<Vec<Vec<Grids>>> {
        let model = &self.fitter.model;
        let mut all: Vec<Vec<Grids>> = files.iter().map(|_| Vec::new()).collect();
        for a in 0..model.arms.len() {
            let data: Vec<&ArmSpectra> = arms.iter().map(|arms| &*arms[a]).collect();
            let shared = {
                let mut kept = lock(&self.seat.borrowed.workspace.grids);
                let known = std::mem::take(&mut kept[a]);
                let shared = threads::in_pool(|| with_samplings(known, model, a, &data, files))?;
                // the latest samplings are at the end
                kept[a] = shared[shared.len().saturating_sub(KEPT)..].to_vec();
                shared
            };
            for (data, all) in data.iter().zip(&mut all) {
                all.push(threads::in_pool(|| {
                    samplings_of(model, &model.arms[a], data, &shared)
                }));
            }
        }
        Ok(all)
    }

    /// Returns all spectra of all files with starts (the user's, or those of the first guess) and bounds, or with their
    /// faults.
    pub(super) fn all_starts(
        &self,
        pieces: &mut [Piece],
        user: Option<&[f64]>,
    ) -> Result<Vec<SpectrumResult<Started>>> {
        let (fitter, tally) = (self.fitter, self.tally);
        if let Some(user) = user {
            let starts = |piece: &mut Piece| piece.given_starts(&fitter.model, user);
            return Ok(threads::in_pool(|| {
                pieces.par_iter_mut().flat_map_iter(starts).collect()
            }));
        }
        let is_needed = pieces
            .iter()
            .any(|piece| piece.prepared.iter().any(|p| p.is_ok()));
        // One thread makes the first guess before the others use it.
        let guess = is_needed.then(|| fitter.first_guess()).transpose()?;
        let is_cancelled = || tally.is_some_and(|tally| tally.cancel().load(Ordering::Relaxed));
        let starts = |piece: &mut Piece| piece.guessed_starts(fitter, guess, &is_cancelled);
        Ok(threads::in_pool(|| {
            pieces.par_iter_mut().flat_map_iter(starts).collect()
        }))
    }
}

/// Returns the key by which a shared grid's sampling is found again: its wavelengths, and the diagonals of resolution.
fn grid_key(arm: &ModelArm, data: &ArmSpectra, wavelength: &Arc<[f64]>) -> GridKey {
    GridKey {
        wavelength: wavelength.clone(),
        diagonals: diagonals(arm, data),
    }
}

/// Returns the sampling of a file's wavelengths in one arm: that in `shared`, or new ones where each spectrum has its
/// own grid.
fn samplings_of(
    model: &SpectralModel,
    arm: &ModelArm,
    data: &ArmSpectra,
    shared: &[SharedGrid],
) -> Grids {
    match &data.wavelength {
        Wavelength::Shared(wavelength) => {
            let key = grid_key(arm, data, wavelength);
            let known = shared.iter().find(|grid| grid.key == key);
            known.map_or_else(
                || Grids::Own(Vec::new()),
                |grid| Grids::Shared(grid.sampling.clone()),
            )
        }
        Wavelength::Own(wavelengths) => {
            let make = |wavelength: &[f64]| {
                let sampling =
                    Sampling::new(arm, wavelength, &model.spectra.mask, diagonals(arm, data));
                sampling
                    .map(Arc::new)
                    .map_err(|fault| Fault::from_grid(arm, &fault))
            };
            Grids::Own(
                wavelengths
                    .to_double()
                    .par_chunks_exact(data.pixels.max(1))
                    .map(make)
                    .collect(),
            )
        }
    }
}

/// Samples each shared wavelength grid of arm `a` that is not in `known` yet, and returns `known` with these added.
fn with_samplings(
    mut known: Vec<SharedGrid>,
    model: &SpectralModel,
    a: usize,
    arms: &[&ArmSpectra],
    files: &[&Spectra],
) -> Result<Vec<SharedGrid>> {
    let arm = &model.arms[a];
    let (mut keys, mut sources): (Vec<GridKey>, Vec<&Spectra>) = (Vec::new(), Vec::new());
    for (data, spectra) in arms.iter().zip(files) {
        let Wavelength::Shared(wavelength) = &data.wavelength else {
            continue;
        };
        let key = grid_key(arm, data, wavelength);
        if !known.iter().any(|grid| grid.key == key) && !keys.contains(&key) {
            keys.push(key);
            sources.push(spectra);
        }
    }
    let make = |key: &GridKey, spectra: &Spectra| {
        Sampling::from_file(
            arm,
            &key.wavelength,
            &model.spectra.mask,
            key.diagonals,
            spectra.name(),
        )
    };
    let made: Vec<Result<Sampling>> = keys
        .par_iter()
        .zip(&sources)
        .map(|(key, spectra)| make(key, spectra))
        .collect();
    for (key, sampling) in keys.into_iter().zip(made) {
        known.push(SharedGrid {
            key,
            sampling: Arc::new(sampling?),
        });
    }
    Ok(known)
}

impl<'s> Piece<'s> {
    /// Prepares the spectra of one file for the fit, and finds the columns of their limits.
    fn new(
        model: &'s SpectralModel,
        spectra: &'s Spectra,
        arms: Vec<Cow<'s, ArmSpectra<'s>>>,
        grids: Vec<Grids>,
    ) -> Result<Piece<'s>> {
        let tables = Tables::new(model, spectra)?;
        let prepared = prepare_all(model, &arms, &grids, spectra.len());
        let layout = layout(model, &arms, &grids);
        Ok(Piece {
            tables,
            arms,
            layout,
            grids,
            prepared,
        })
    }

    /// Prepares spectrum `k` again, with the pixels that count at a motion.
    pub(super) fn prepared_at(
        &self,
        model: &SpectralModel,
        k: usize,
        motion: Motion,
    ) -> SpectrumResult<Prepared> {
        prepare_one(model, &self.arms, &self.grids, k, Some(motion))
    }

    /// Moves the prepared spectra out of the piece, and returns them with the user's starts (spectra, parameters).
    fn given_starts(
        &mut self,
        model: &SpectralModel,
        user: &[f64],
    ) -> Vec<SpectrumResult<Started>> {
        let prepared = std::mem::take(&mut self.prepared);
        let mut all = Vec::with_capacity(prepared.len());
        for (k, (prepared, x)) in prepared
            .into_iter()
            .zip(user.chunks_exact(model.parameters.len().max(1)))
            .enumerate()
        {
            all.push(prepared.and_then(|prepared| self.given_start(model, k, prepared, x)));
        }
        all
    }

    /// Returns prepared spectrum `k` with the user's start, which is in physical units, and its bounds and flags, or
    /// its fault.
    fn given_start(
        &self,
        model: &SpectralModel,
        k: usize,
        prepared: Prepared,
        physical: &[f64],
    ) -> SpectrumResult<Started> {
        let limits = self.tables.of(k)?;
        let (start, clipped) = given(model, &limits, physical)?;
        let flags = flags(&prepared, &samplings(&self.grids, k), clipped);
        let motion = Some(Motion::around(model, &start.u, &limits));
        let prepared = within_reach(model, &self.arms, &self.grids, k, prepared, motion)?;
        Ok(Started {
            prepared,
            limits,
            starts: vec![start],
            flags,
        })
    }

    /// Moves the prepared spectra out of the piece, and returns them with the starts of the first guess; with none if
    /// there is no guess or the run is cancelled.
    fn guessed_starts(
        &mut self,
        fitter: &SpectralFitter,
        guess: Option<&FirstGuess>,
        is_cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Vec<SpectrumResult<Started>> {
        let prepared = std::mem::take(&mut self.prepared)
            .into_par_iter()
            .enumerate();
        let piece = &*self;
        let one = |(k, prepared): (usize, SpectrumResult<Prepared>)| {
            let guess = guess.filter(|_| !is_cancelled()); // a spectrum without a start is not fitted
            piece.guessed_start(fitter, guess, k, prepared?)
        };
        prepared.map(one).collect()
    }

    /// Returns prepared spectrum `k` with the starts of the first guess (none without a guess), its bounds and flags,
    /// or its fault.
    fn guessed_start(
        &self,
        fitter: &SpectralFitter,
        guess: Option<&FirstGuess>,
        k: usize,
        prepared: Prepared,
    ) -> SpectrumResult<Started> {
        let limits = self.tables.of(k)?;
        let samplings = samplings(&self.grids, k);
        let is_outside = |l: &Limits| l.start.is_some_and(|x| x < l.lower || x > l.upper);
        let flags = flags(&prepared, &samplings, limits.iter().any(is_outside));
        let Some(guess) = guess else {
            return Ok(Started {
                prepared,
                limits,
                starts: Vec::new(),
                flags,
            });
        };
        let (model, arms, grids) = (&fitter.model, &self.arms[..], &self.grids[..]);
        let spectrum = GuessedSpectrum {
            model,
            arms,
            grids,
            place: k,
            limits: &limits,
            guess,
            count: fitter.starts,
        };
        let (prepared, starts) = spectrum.starts(prepared)?;
        Ok(Started {
            prepared,
            limits,
            starts,
            flags,
        })
    }
}

/// Returns the flags that are known before the fit: for clipped starts and for negative flux.
fn flags(prepared: &Prepared, samplings: &[&Sampling], clipped: bool) -> Flags {
    let all = [
        (Flags::START_CLIPPED, clipped),
        (
            Flags::NEGATIVE_FLUX,
            has_negative_flux(&prepared.arms, samplings),
        ),
    ];
    all.into_iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(flag, _)| flag)
        .collect()
}
