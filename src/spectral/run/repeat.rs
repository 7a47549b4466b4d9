//! Fits that are repeated with other pixels, because at their end the templates cover other pixels, or the masks of the
//! star's frame hide other pixels; and fits that are repeated with another fitted jitter.
//!
//! The pixels that count are chosen before a fit, around its first start, so that the objective is smooth. If other
//! pixels count at the velocity and vsini at which the fit ends, it is repeated with those. The jitter is that of the
//! residuals of the fit before, in the first fit none.

use std::sync::Arc;

use super::{Grids, ReadySpectrum};
use crate::first_guess::Start;
use crate::model::{ArmJitter, Motion, SpectralModel};
use crate::solver::{Outcome, Status};
use crate::spectral::input::ready::collect_samplings;
use crate::spectral::search::solve::find_winner;

/// Maximum number of fits of one spectrum.
pub(super) const MAX_FITS_PER_SPECTRUM: usize = 4;
/// Mean relative change of the variances of an arm's pixels up to which its jitter counts as found. It is a tenth of
/// the standard error of a variance that 5,000 pixels determine.
const MAX_JITTER_CHANGE: f64 = 2e-3;

/// A spectrum whose fit is to be repeated with other pixels or another jitter.
pub(super) struct RepeatedFit {
    pub spectrum: ReadySpectrum,
    /// Velocities and vsini that choose the pixels.
    pub motion: Motion,
    /// (arms) Fitted jitter; empty where it is not fitted.
    pub jitters: Vec<Arc<ArmJitter>>,
    /// Number of evaluations of the fit that has ended.
    pub evaluations: u32,
}

impl RepeatedFit {
    /// Returns the repetition of a spectrum's `fit_number`th fit, with the end of that fit as one of its starts; `None`
    /// if the same pixels count there and the `jitters` of its residuals (arms; or empty) are those of the fit, if the
    /// fit failed, or if it is the last one.
    ///
    /// The second fit has the pixels of the end of the first. Each later fit leaves out all pixels that the one before
    /// left out, and those that do not count at its end. The number of pixels falls, so the repetitions end.
    pub fn new(
        model: &SpectralModel,
        grids: &[Grids],
        ready: &ReadySpectrum,
        outcomes: &[Outcome],
        jitters: Vec<Arc<ArmJitter>>,
        fit_number: usize,
    ) -> Option<RepeatedFit> {
        // 1. Only a fit that ended elsewhere than its pixels were chosen for, or with another jitter, may need a
        //    repetition.
        let winner = find_winner(outcomes, model.marginalise)?;
        let end = &outcomes[winner];
        let motion_of_fit = ready.prepared.motion.as_ref()?;
        let motion_at_end = Motion::around(model, &end.parameters, &ready.limits);
        let has_valid_end = end
            .status
            .is_some_and(|status| status.is_success() || status == Status::MaxRounds);
        let has_other_jitter = jitters
            .iter()
            .any(|jitter| jitter.change > MAX_JITTER_CHANGE);
        let may_need_repetition = has_other_jitter || motion_at_end != *motion_of_fit;
        if fit_number == MAX_FITS_PER_SPECTRUM || !has_valid_end || !may_need_repetition {
            return None;
        }
        // 2. Compare the pixels that count at its end with those of the fit.
        let motion = if fit_number == 1 {
            motion_at_end
        } else {
            motion_of_fit.union(&motion_at_end)
        };
        let arms = model.arms.iter().zip(collect_samplings(grids, ready.place));
        let has_same_pixels = arms.enumerate().all(|(a, (arm, sampling))| {
            let motions = [motion_of_fit, &motion].map(|motion| motion.of_arm(a));
            let [earlier, later] = motions;
            motions
                .iter()
                .all(|motion| sampling.counts_all(arm, *motion))
                || sampling.find_counted(arm, earlier) == sampling.find_counted(arm, later)
        });
        if has_same_pixels && !has_other_jitter {
            return None;
        }
        // 3. Let the next fit begin at the end of this one, too.
        let mut spectrum = ready.clone();
        match spectrum.starts.get_mut(winner) {
            Some(start) => start.u.clone_from(&end.parameters),
            // The winner is a start that was added during the search. All of these count as one basin.
            None => spectrum.starts.push(Start {
                u: end.parameters.clone(),
                basin: usize::MAX,
            }),
        }
        let evaluations = outcomes.iter().map(|outcome| outcome.evaluations).sum();
        Some(RepeatedFit {
            spectrum,
            motion,
            jitters,
            evaluations,
        })
    }
}
