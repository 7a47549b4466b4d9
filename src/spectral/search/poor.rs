//! More starts for spectra whose best fit has a large χ²/dof.
//!
//! The model cannot describe such a spectrum: the continuum is too stiff, two stars share the fibre, or its errors are
//! much too small. How well templates fit then says little of where the lowest minimum lies, and the few starts that
//! compete may all miss it. Such spectra are therefore fitted again from more starts. This depends on one spectrum
//! alone.

use std::sync::atomic::Ordering;

use rayon::prelude::*;

use crate::error::Result;
use crate::first_guess::{FirstGuess, MOST_COMPETING};
use crate::solver::{Outcome, Status};
use crate::spectral::input::ready::{Monitor, ReadySpectra, ReadySpectrum, Starts, samplings};
use crate::spectral::misfit::Misfit;
use crate::spectral::search::again::MoreStarts;
use crate::spectral::search::solve::{Passes, winner};
use crate::threads;

/// χ²/dof above which a spectrum has more starts. Surveys whose errors are two or three times too small stay below.
const LARGE: f64 = 20.0;
/// The same where more than half of the pixels that the model uses are masked: few pixels show little of a misfit.
const LARGE_OF_FEW: f64 = 5.0;
/// Maximum number of further starts. Spectra that had as many have no more.
const MORE: usize = 16;
/// Number of further starts that enter together, and are pruned together: as many as usually compete in a first guess,
/// so that a device that has room for those has room for these.
pub const TOGETHER: usize = MOST_COMPETING;

impl Passes {
    /// Fits spectra whose lowest outcome has a large χ²/dof from more starts, and adds the outcomes to `found`.
    pub fn try_more_starts(
        &mut self,
        spectra: ReadySpectra,
        found: &mut [Vec<Outcome>],
        monitor: Monitor,
    ) -> Result<()> {
        let Some(guess) = spectra.guess else {
            return Ok(());
        };
        let fitted = spectra.spectra.par_iter().zip(&*found).enumerate();
        let misfit = Misfit::new(spectra.model.loss());
        let poor = fitted.filter(|(_, (ready, outcomes))| {
            is_poor(ready, outcomes, &misfit, spectra.model.marginalise)
        });
        let more = poor.map(|(spectrum, (ready, _))| {
            // a cancelled run fits nothing any more, and every spectrum that was to have more starts is interrupted
            let is_cancelled = monitor.cancel.load(Ordering::Relaxed);
            let all = if is_cancelled {
                ready.starts()
            } else {
                more_starts(guess, spectra, ready)
            };
            all.chunks(TOGETHER)
                .map(|starts| MoreStarts {
                    spectrum,
                    starts: starts.to_vec(),
                })
                .collect::<Vec<_>>()
        });
        let more: Vec<MoreStarts> = threads::in_pool(|| more.flatten_iter().collect());
        self.fit_again(spectra, found, more, monitor)
    }
}

/// Returns whether a spectrum's lowest outcome is a success with a large χ²/dof, and the spectrum may have more starts.
fn is_poor(
    ready: &ReadySpectrum,
    outcomes: &[Outcome],
    misfit: &Misfit,
    marginalise: bool,
) -> bool {
    let Some(lowest) = winner(outcomes, marginalise).map(|lowest| &outcomes[lowest]) else {
        return false;
    };
    let free = ready
        .limits
        .iter()
        .filter(|limits| !limits.is_held())
        .count();
    let (unmasked, in_range) = (ready.prepared.unmasked, ready.prepared.in_range);
    let dof = unmasked.saturating_sub(ready.prepared.rank + free) as f64;
    let large = if 2 * unmasked < in_range {
        LARGE_OF_FEW
    } else {
        LARGE
    };
    let is_success = lowest.status.is_some_and(Status::is_success);
    let chi2 = misfit.chi_square(lowest, unmasked, dof);
    ready.may_add_starts && ready.starts.len() < MORE && is_success && chi2.value > large * chi2.dof
}

/// Returns the starts of a longer first guess that the spectrum has not had.
fn more_starts(guess: &FirstGuess, spectra: ReadySpectra, ready: &ReadySpectrum) -> Starts {
    let samplings = samplings(spectra.grids, ready.place);
    let all = guess.starts(&ready.prepared, &samplings, &ready.limits, Some(MORE));
    let is_new = |u: &Vec<f64>| ready.starts.iter().all(|start| start.u != *u);
    all.into_iter()
        .map(|start| start.u)
        .filter(is_new)
        .collect()
}
