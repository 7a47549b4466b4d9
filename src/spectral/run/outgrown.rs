//! Fits that ended where other pixels count than those that were fitted: the templates make others whole, or masks of
//! the star's frame cover others.
//!
//! Which pixels count is settled before a fit, around its first start, so that the objective is smooth. If the fit ends
//! at a velocity and vsini that settle it otherwise, it is made again with the pixels of its end.

use super::{Grids, ReadySpectrum};
use crate::first_guess::Start;
use crate::model::{Motion, SpectralModel};
use crate::solver::{Outcome, Status};
use crate::spectral::input::ready::samplings;
use crate::spectral::search::solve::winner;

/// Maximum number of fits of one spectrum.
pub(super) const MOST_FITS: usize = 4;

/// A spectrum that is to be fitted again, with other pixels.
pub(super) struct Outgrown {
    pub spectrum: ReadySpectrum,
    /// Velocities and vsini at which its pixels have to count.
    pub motion: Motion,
    /// Evaluations of the fit.
    pub evaluations: u32,
}

impl Outgrown {
    /// Returns a spectrum, with the end of its fit as one of its starts, if other pixels count there; `None` if they
    /// are the same, or if the fit failed.
    ///
    /// After a second fit, whose pixels are those of the end of the first, only pixels that do not count at the end
    /// matter, and the next fit leaves out what this one left out, too, so that the fits come to an end.
    pub fn new(
        model: &SpectralModel,
        grids: &[Grids],
        ready: &ReadySpectrum,
        outcomes: &[Outcome],
        fit: usize,
    ) -> Option<Outgrown> {
        let best = winner(outcomes, model.marginalise)?;
        let end = &outcomes[best];
        let before = ready.prepared.motion?;
        let around = Motion::around(model, &end.parameters, &ready.limits);
        let is_fitted = end.status.is_some_and(|status| status.is_success() || status == Status::MaxRounds);
        if fit == MOST_FITS || !is_fitted || around == before {
            return None;
        }
        let motion = if fit == 1 { around } else { before.union(around) };
        let mut samplings = model.arms.iter().zip(samplings(grids, ready.place));
        let is_same = samplings.all(|(arm, sampling)| {
            let is_wide = sampling.counts_all(arm, before) && sampling.counts_all(arm, motion);
            is_wide || sampling.counted(arm, before) == sampling.counted(arm, motion)
        });
        if is_same {
            return None;
        }
        let mut spectrum = ready.clone();
        match spectrum.starts.get_mut(best) {
            Some(start) => start.u.clone_from(&end.parameters),
            // one that was added later: all of these count as one basin
            None => spectrum.starts.push(Start { u: end.parameters.clone(), basin: usize::MAX }),
        }
        let evaluations = outcomes.iter().map(|outcome| outcome.evaluations).sum();
        Some(Outgrown { spectrum, motion, evaluations })
    }
}
