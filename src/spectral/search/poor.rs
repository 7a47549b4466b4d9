//! More starts for spectra whose best fit has a large χ²/dof.
//!
//! The model cannot describe such a spectrum: the continuum is too stiff, two stars share the fibre, or its errors are
//! much too small. The fit of a template then hardly shows where the lowest minimum lies, and the few starts that
//! compete may all miss it. Such spectra are therefore fitted again from more starts. This depends on one spectrum
//! alone.

use std::sync::atomic::Ordering;

use rayon::prelude::*;

use crate::error::Result;
use crate::first_guess::{FirstGuess, MOST_COMPETING};
use crate::solver::{Outcome, Status};
use crate::spectral::input::ready::{
    Monitor, ReadySpectra, ReadySpectrum, StartPoints, collect_samplings,
};
use crate::spectral::misfit::Misfit;
use crate::spectral::search::again::MoreStarts;
use crate::spectral::search::solve::{SpectralPasses, find_winner};
use crate::threads;

/// χ²/dof above which a spectrum gets more starts. Surveys whose errors are two or three times too small stay below.
const LARGE_REDUCED_CHI2: f64 = 20.0;
/// The same where more than half of the pixels that the model uses are masked, because few pixels show little of a
/// misfit.
const LARGE_REDUCED_CHI2_IF_MASKED: f64 = 5.0;
/// Maximum number of further starts. Spectra that had as many get no more.
const MAX_FURTHER_STARTS: usize = 16;
/// Number of further starts that enter together, and are pruned together: as many as usually compete in a first guess,
/// so that a device that has room for those has room for these.
pub const STARTS_TOGETHER: usize = MOST_COMPETING;

impl SpectralPasses {
    /// Fits spectra whose lowest outcome has a large χ²/dof from more starts, and adds the new outcomes to `outcomes`.
    pub fn try_more_starts(
        &mut self,
        spectra: ReadySpectra,
        outcomes: &mut [Vec<Outcome>],
        monitor: Monitor,
    ) -> Result<()> {
        let Some(guess) = spectra.guess else {
            return Ok(());
        };
        // 1. Select the spectra that are fitted poorly.
        let misfit = Misfit::new(spectra.model.loss());
        let fitted_spectra = spectra.spectra.par_iter().zip(&*outcomes).enumerate();
        let poor_spectra = fitted_spectra.filter(|(_, (ready, group))| {
            is_fitted_poorly(ready, group, &misfit, spectra.model.marginalise)
        });
        // 2. Choose their starts.
        let more_starts = poor_spectra.map(|(spectrum, (ready, _))| {
            // Once the run is cancelled nothing is fitted any more, and every spectrum with further starts counts as
            // interrupted. Which starts these are does not matter then.
            let is_cancelled = monitor.cancel.load(Ordering::Relaxed);
            let starts = if is_cancelled {
                ready.starts()
            } else {
                choose_further_starts(guess, spectra, ready)
            };
            starts
                .chunks(STARTS_TOGETHER)
                .map(|chunk| MoreStarts {
                    spectrum,
                    starts: chunk.to_vec(),
                })
                .collect::<Vec<_>>()
        });
        let more_starts: Vec<MoreStarts> =
            threads::in_pool(|| more_starts.flatten_iter().collect());
        // 3. Fit from them.
        self.fit_again(spectra, outcomes, more_starts, monitor)
    }
}

/// Returns whether a spectrum's lowest outcome is a success with a large χ²/dof, and the spectrum may have more starts.
fn is_fitted_poorly(
    ready: &ReadySpectrum,
    outcomes: &[Outcome],
    misfit: &Misfit,
    marginalise: bool,
) -> bool {
    let Some(lowest) = find_winner(outcomes, marginalise).map(|lowest| &outcomes[lowest]) else {
        return false;
    };
    let free_parameters = ready
        .limits
        .iter()
        .filter(|limits| !limits.is_held())
        .count();
    let unmasked = ready.prepared.unmasked;
    let is_mostly_masked = 2 * unmasked < ready.prepared.in_range;
    let dof = unmasked.saturating_sub(ready.prepared.rank + free_parameters) as f64;
    let large_reduced_chi2 = if is_mostly_masked {
        LARGE_REDUCED_CHI2_IF_MASKED
    } else {
        LARGE_REDUCED_CHI2
    };
    let is_success = lowest.status.is_some_and(Status::is_success);
    let chi2 = misfit.chi_square(lowest, unmasked, dof);
    ready.may_add_starts
        && ready.starts.len() < MAX_FURTHER_STARTS
        && is_success
        && chi2.value > large_reduced_chi2 * chi2.dof
}

/// Returns the starts of a longer first guess that the spectrum has not had.
fn choose_further_starts(
    guess: &FirstGuess,
    spectra: ReadySpectra,
    ready: &ReadySpectrum,
) -> StartPoints {
    let samplings = collect_samplings(spectra.grids, ready.place);
    let count = Some(MAX_FURTHER_STARTS);
    let candidates = guess.starts(&ready.prepared, &samplings, &ready.limits, count);
    candidates
        .into_iter()
        .map(|candidate| candidate.u)
        .filter(|u| ready.starts.iter().all(|start| start.u != *u))
        .collect()
}
