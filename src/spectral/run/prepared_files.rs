//! Spectra of several files that are fitted together. They are prepared file by file, because journal and table have
//! their rows file by file.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rayon::prelude::*;

use super::workspace::{GridKey, SharedGrid, lock};
use super::{Grids, SpectralRun, StartedSpectrum};
use crate::error::Result;
use crate::first_guess::FirstGuess;
use crate::flag::Flags;
use crate::model::{
    ArmJitter, ArmLayout, ModelArm, Motion, Prepared, Sampling, SpectralModel, SpectrumFault,
};
use crate::spectra::{ArmSpectra, Spectra, Wavelength};
use crate::spectral::SpectralFitter;
use crate::spectral::input::assemble::{
    leave_out_uncounted_pixels, match_arms, prepare_spectra, prepare_spectrum_of_batch,
};
use crate::spectral::input::covariance::refuse_settings_of_fit;
use crate::spectral::input::given::convert_user_start;
use crate::spectral::input::guess::GuessedSpectrum;
use crate::spectral::input::layout::{count_diagonals, lay_out_arms};
use crate::spectral::input::limits::{LimitColumns, SpectrumResult};
use crate::spectral::input::negative_flux::has_negative_flux;
use crate::spectral::input::ready::collect_samplings;
use crate::threads;

/// Number of samplings per arm that are kept for the next batches of all workers.
const MAX_CACHED_SAMPLINGS: usize = 8;

/// The spectra of a batch that come from one file.
pub(super) struct PreparedFile<'s> {
    limit_columns: LimitColumns<'s>,
    arms: Vec<Cow<'s, ArmSpectra<'s>>>,
    pub grids: Vec<Grids>,
    pub layout: Vec<ArmLayout>,
    prepared: Vec<SpectrumResult<Prepared>>,
}

impl SpectralRun<'_> {
    /// Prepares the spectra of each file for the fit, with the samplings of their wavelengths and their columns of
    /// limits.
    pub(super) fn prepare_files<'s>(
        &mut self,
        files: &[&'s Spectra],
    ) -> Result<Vec<PreparedFile<'s>>>
    where
        Self: 's,
    {
        let model = &self.fitter.model;
        let arms_of_files = files
            .iter()
            .map(|spectra| {
                let arms = match_arms(model, spectra)?;
                let scans_velocity = self.fitter.scans_velocity();
                refuse_settings_of_fit(&self.fitter.solver, scans_velocity, spectra, &arms)?;
                Ok(arms)
            })
            .collect::<Result<Vec<_>>>()?;
        let grids_of_files = self.sample_grids_of_files(&arms_of_files, files)?;
        let inputs = files.par_iter().zip(arms_of_files).zip(grids_of_files);
        let prepared_files: Vec<Result<PreparedFile>> = threads::in_pool(|| {
            inputs
                .map(|((spectra, arms), grids)| PreparedFile::new(model, spectra, arms, grids))
                .collect()
        });
        prepared_files.into_iter().collect()
    }

    /// Returns the sampling of each file's wavelengths in each arm; shared grids are sampled only once. Samplings of
    /// shared grids are kept from batch to batch.
    pub(super) fn sample_grids_of_files(
        &mut self,
        arms_of_files: &[Vec<Cow<ArmSpectra>>],
        files: &[&Spectra],
    ) -> Result<Vec<Vec<Grids>>> {
        let model = &self.fitter.model;
        let mut grids_of_files: Vec<Vec<Grids>> = files.iter().map(|_| Vec::new()).collect();
        for a in 0..model.arms.len() {
            let data_of_files: Vec<&ArmSpectra> =
                arms_of_files.iter().map(|arms| &*arms[a]).collect();
            // 1. Sample the shared grids that no earlier batch had. The latest samplings, at the end, are cached.
            let shared_grids = {
                let mut cached_grids = lock(&self.worker.borrowed.workspace.grids);
                let earlier_grids = std::mem::take(&mut cached_grids[a]);
                let shared_grids = threads::in_pool(|| {
                    add_shared_grids(earlier_grids, model, a, &data_of_files, files)
                })?;
                let first_cached = shared_grids.len().saturating_sub(MAX_CACHED_SAMPLINGS);
                cached_grids[a] = shared_grids[first_cached..].to_vec();
                shared_grids
            };
            // 2. Look up the sampling of each file, or sample the grids of its spectra.
            for (data, grids) in data_of_files.iter().zip(&mut grids_of_files) {
                grids.push(threads::in_pool(|| {
                    find_or_sample_grids(model, &model.arms[a], data, &shared_grids)
                }));
            }
        }
        Ok(grids_of_files)
    }

    /// Returns all spectra of all files with starts (the user's, or those of the first guess) and bounds, or with their
    /// faults.
    pub(super) fn find_starts(
        &self,
        prepared_files: &mut [PreparedFile],
        user_starts: Option<&[f64]>,
    ) -> Result<Vec<SpectrumResult<StartedSpectrum>>> {
        let fitter = self.fitter;
        let tally = self.tally;
        if let Some(user_starts) = user_starts {
            return Ok(threads::in_pool(|| {
                prepared_files
                    .par_iter_mut()
                    .flat_map_iter(|file| file.take_with_user_starts(&fitter.model, user_starts))
                    .collect()
            }));
        }
        // One thread makes the first guess before the others use it.
        let is_guess_needed = prepared_files
            .iter()
            .any(|file| file.prepared.iter().any(|prepared| prepared.is_ok()));
        let guess = is_guess_needed.then(|| fitter.first_guess()).transpose()?;
        let is_cancelled = || tally.is_some_and(|tally| tally.cancel().load(Ordering::Relaxed));
        Ok(threads::in_pool(|| {
            prepared_files
                .par_iter_mut()
                .flat_map_iter(|file| file.take_with_guessed_starts(fitter, guess, &is_cancelled))
                .collect()
        }))
    }
}

/// Returns the key by which a shared grid's sampling is found again: its wavelengths, and the diagonals of resolution.
fn make_grid_key(arm: &ModelArm, data: &ArmSpectra, wavelength: &Arc<[f64]>) -> GridKey {
    GridKey {
        wavelength: wavelength.clone(),
        diagonals: count_diagonals(arm, data),
    }
}

/// Returns the samplings of a file's wavelengths in one arm: the one in `shared_grids`, or a new one per spectrum if
/// each has its own grid.
fn find_or_sample_grids(
    model: &SpectralModel,
    arm: &ModelArm,
    data: &ArmSpectra,
    shared_grids: &[SharedGrid],
) -> Grids {
    match &data.wavelength {
        Wavelength::Shared(wavelength) => {
            let key = make_grid_key(arm, data, wavelength);
            match shared_grids.iter().find(|grid| grid.key == key) {
                Some(grid) => Grids::Shared(grid.sampling.clone()),
                None => Grids::Own(Vec::new()),
            }
        }
        Wavelength::Own(wavelengths) => {
            let diagonals = count_diagonals(arm, data);
            Grids::Own(
                wavelengths
                    .to_double()
                    .par_chunks_exact(data.pixels.max(1))
                    .map(|wavelength| {
                        Sampling::new(arm, wavelength, &model.spectra.mask, diagonals)
                            .map(Arc::new)
                            .map_err(|fault| SpectrumFault::from_grid(arm, &fault))
                    })
                    .collect(),
            )
        }
    }
}

/// Samples each shared wavelength grid of arm `a` that is not in `shared_grids` yet, and returns `shared_grids` with
/// these added.
fn add_shared_grids(
    mut shared_grids: Vec<SharedGrid>,
    model: &SpectralModel,
    a: usize,
    data_of_files: &[&ArmSpectra],
    files: &[&Spectra],
) -> Result<Vec<SharedGrid>> {
    let arm = &model.arms[a];
    // 1. Collect the new grids, each with one of the files that have it.
    let mut new_keys: Vec<GridKey> = Vec::new();
    let mut files_of_keys: Vec<&Spectra> = Vec::new();
    for (data, spectra) in data_of_files.iter().zip(files) {
        let Wavelength::Shared(wavelength) = &data.wavelength else {
            continue;
        };
        let key = make_grid_key(arm, data, wavelength);
        if !shared_grids.iter().any(|grid| grid.key == key) && !new_keys.contains(&key) {
            new_keys.push(key);
            files_of_keys.push(spectra);
        }
    }
    // 2. Sample them in parallel. An error names the file.
    let samplings: Vec<Result<Sampling>> = new_keys
        .par_iter()
        .zip(&files_of_keys)
        .map(|(key, spectra)| {
            let mask = &model.spectra.mask;
            Sampling::from_file(arm, &key.wavelength, mask, key.diagonals, spectra.name())
        })
        .collect();
    for (key, sampling) in new_keys.into_iter().zip(samplings) {
        shared_grids.push(SharedGrid {
            key,
            sampling: Arc::new(sampling?),
        });
    }
    Ok(shared_grids)
}

impl<'s> PreparedFile<'s> {
    /// Prepares the spectra of one file for the fit, and finds the columns of their limits.
    fn new(
        model: &'s SpectralModel,
        spectra: &'s Spectra,
        arms: Vec<Cow<'s, ArmSpectra<'s>>>,
        grids: Vec<Grids>,
    ) -> Result<PreparedFile<'s>> {
        let limit_columns = LimitColumns::new(model, spectra)?;
        let prepared = prepare_spectra(model, &arms, &grids, spectra.len());
        let layout = lay_out_arms(model, &arms, &grids);
        Ok(PreparedFile {
            limit_columns,
            arms,
            layout,
            grids,
            prepared,
        })
    }

    /// Prepares spectrum `k` again, with the pixels that count at a motion, and with a fitted jitter (arms; or empty).
    pub(super) fn prepare_again(
        &self,
        model: &SpectralModel,
        k: usize,
        motion: &Motion,
        jitters: &[Arc<ArmJitter>],
    ) -> SpectrumResult<Prepared> {
        prepare_spectrum_of_batch(model, &self.arms, &self.grids, k, Some(motion), jitters)
    }

    /// Moves the prepared spectra out of the file, and returns them with the user's starts (spectra, parameters).
    fn take_with_user_starts(
        &mut self,
        model: &SpectralModel,
        user_starts: &[f64],
    ) -> Vec<SpectrumResult<StartedSpectrum>> {
        let prepared_spectra = std::mem::take(&mut self.prepared);
        let starts = user_starts.chunks_exact(model.parameters.len().max(1));
        let mut started = Vec::with_capacity(prepared_spectra.len());
        for (k, (prepared, start)) in prepared_spectra.into_iter().zip(starts).enumerate() {
            let spectrum =
                prepared.and_then(|prepared| self.start_at_user_start(model, k, prepared, start));
            started.push(spectrum);
        }
        started
    }

    /// Returns prepared spectrum `k` with the user's start, which is in physical units, and its bounds and flags, or
    /// its fault.
    fn start_at_user_start(
        &self,
        model: &SpectralModel,
        k: usize,
        prepared: Prepared,
        physical: &[f64],
    ) -> SpectrumResult<StartedSpectrum> {
        let limits = self.limit_columns.read_limits(k)?;
        let (start, is_clipped) = convert_user_start(model, &limits, physical)?;
        let flags = set_early_flags(&prepared, &collect_samplings(&self.grids, k), is_clipped);
        let motion = Some(Motion::around(model, &start.u, &limits));
        let prepared =
            leave_out_uncounted_pixels(model, &self.arms, &self.grids, k, prepared, motion)?;
        Ok(StartedSpectrum {
            prepared,
            limits,
            starts: vec![start],
            flags,
        })
    }

    /// Moves the prepared spectra out of the file, and returns them with the starts of the first guess; with none if
    /// there is no guess or the run is cancelled.
    fn take_with_guessed_starts(
        &mut self,
        fitter: &SpectralFitter,
        guess: Option<&FirstGuess>,
        is_cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Vec<SpectrumResult<StartedSpectrum>> {
        let prepared_spectra = std::mem::take(&mut self.prepared);
        let file = &*self;
        prepared_spectra
            .into_par_iter()
            .enumerate()
            .map(|(k, prepared)| {
                // A spectrum without a start is not fitted.
                let guess = guess.filter(|_| !is_cancelled());
                file.start_at_guess(fitter, guess, k, prepared?)
            })
            .collect()
    }

    /// Returns prepared spectrum `k` with the starts of the first guess (none without a guess), its bounds and flags,
    /// or its fault.
    fn start_at_guess(
        &self,
        fitter: &SpectralFitter,
        guess: Option<&FirstGuess>,
        k: usize,
        prepared: Prepared,
    ) -> SpectrumResult<StartedSpectrum> {
        let limits = self.limit_columns.read_limits(k)?;
        let samplings = collect_samplings(&self.grids, k);
        let is_clipped = limits.iter().any(|limits| {
            limits
                .start
                .is_some_and(|start| start < limits.lower || start > limits.upper)
        });
        let flags = set_early_flags(&prepared, &samplings, is_clipped);
        let Some(guess) = guess else {
            return Ok(StartedSpectrum {
                prepared,
                limits,
                starts: Vec::new(),
                flags,
            });
        };
        let spectrum = GuessedSpectrum {
            model: &fitter.model,
            arms: &self.arms,
            grids: &self.grids,
            place: k,
            limits: &limits,
            guess,
            count: fitter.starts,
        };
        let (prepared, starts) = spectrum.guess_starts(prepared)?;
        Ok(StartedSpectrum {
            prepared,
            limits,
            starts,
            flags,
        })
    }
}

/// Returns the flags that are known before the fit: for clipped starts and for negative flux.
fn set_early_flags(prepared: &Prepared, samplings: &[&Sampling], is_clipped: bool) -> Flags {
    let has_negative_flux = has_negative_flux(&prepared.arms, samplings);
    let mut flags = Flags::empty();
    flags.set(Flags::START_CLIPPED, is_clipped);
    flags.set(Flags::NEGATIVE_FLUX, has_negative_flux);
    flags
}
