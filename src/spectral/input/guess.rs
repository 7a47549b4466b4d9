//! Starts of a spectrum's fit from the first guess, and the pixels that count around them.

use std::borrow::Cow;

use crate::first_guess::{FirstGuess, Start};
use crate::model::{Fault, Limits, Motion, Prepared, Sampling, SpectralModel};
use crate::spectra::ArmSpectra;
use crate::spectral::input::assemble::within_reach;
use crate::spectral::input::ready::{Grids, samplings};

/// Maximum number of times that the templates are compared around the best velocity, while that moves on.
const MOST_LOOKS: usize = 3;
/// The best velocity has moved on if it lies further than this share of its uncertainty from the last one.
const MOVED: f64 = 0.5;

/// A spectrum of a file, and the limits of its parameters.
pub struct GuessedSpectrum<'a, 's> {
    pub model: &'a SpectralModel,
    pub arms: &'a [Cow<'s, ArmSpectra<'s>>],
    pub grids: &'a [Grids],
    /// Index of the spectrum in the file.
    pub place: usize,
    pub limits: &'a [Limits],
    pub guess: &'a FirstGuess,
    /// Number of starts; `None` for those that compete.
    pub count: Option<usize>,
}

impl GuessedSpectrum<'_, '_> {
    /// Returns the prepared spectrum with the starts that the first guess finds for it, without the pixels that do not
    /// count around these, or the fault of a spectrum of which too little is left.
    ///
    /// Where pixels are left out, the starts are guessed again with those that are left. Masks of the star's frame
    /// cover what the first guess took for lines of the star. Where a network ends inside the data, that guess could
    /// not use the pixels that are reached at some velocities only: the next one compares templates by them, too, at
    /// velocities near the best one, and looks again around a better one. Starts at other velocities stay, after those.
    pub fn starts(&self, prepared: Prepared) -> Result<(Prepared, Vec<Start>), Fault> {
        // 1. Guess by the pixels that are reached at all velocities.
        let mut starts = self.guess(&prepared, self.limits);
        let mut prepared = self.around_first(prepared, &starts)?;
        // 2. Guess again without the pixels that masks of the star's frame cover.
        if !self.model.spectra.mask_rest.is_empty() {
            starts = self.guess(&prepared, self.limits);
            prepared = self.around_first(prepared, &starts)?;
        }
        // 3. Guess again near the best velocity by the pixels that are reached there.
        for _ in 0..MOST_LOOKS {
            let is_cut = prepared.arms.iter().any(|arm| arm.unreached > 0);
            let (true, Some(before)) = (is_cut, self.first_velocity(&starts)) else { break };
            starts = self.guess_near(&prepared, before, starts);
            let moved = self.first_velocity(&starts).map_or(0.0, |after| (after - before).abs());
            if moved <= MOVED * self.guess.velocity_uncertainty() {
                break;
            }
            prepared = self.around_first(prepared, &starts)?;
        }
        // 4. Leave out the pixels that do not count around any of the starts.
        let all = Motion::around_starts(self.model, starts.iter().map(|start| &start.u), self.limits);
        if all != prepared.motion {
            prepared = self.within_reach(prepared, all)?;
        }
        Ok((prepared, starts))
    }

    /// Returns the starts that the first guess finds for a prepared spectrum within limits of its parameters.
    fn guess(&self, prepared: &Prepared, limits: &[Limits]) -> Vec<Start> {
        let samplings: Vec<&Sampling> = samplings(self.grids, self.place);
        self.guess.starts(prepared, &samplings, limits, self.count)
    }

    /// Returns the starts that the first guess finds near a velocity (km/s), and after these the `earlier` ones at
    /// other velocities, as many in all as there were or are.
    fn guess_near(&self, prepared: &Prepared, velocity: f64, earlier: Vec<Start>) -> Vec<Start> {
        let Some(p) = self.model.free_velocity() else { return earlier };
        let uncertainty = self.guess.velocity_uncertainty();
        let mut near = self.limits.to_vec();
        near[p].lower = near[p].lower.max(velocity - uncertainty);
        near[p].upper = near[p].upper.min(velocity + uncertainty);
        let [low, high] = [near[p].lower, near[p].upper].map(|v| self.model.parameters[p].to_u(v));
        let starts = self.guess(prepared, &near);
        let most = starts.len().max(earlier.len());
        let elsewhere = earlier.into_iter().filter(|start| start.u[p] < low || start.u[p] > high);
        let elsewhere = elsewhere.map(|start| Start { basin: usize::MAX - start.basin, ..start });
        starts.into_iter().chain(elsewhere).take(most).collect()
    }

    /// Returns the velocity of the first start in km/s; `None` if it is not free.
    fn first_velocity(&self, starts: &[Start]) -> Option<f64> {
        let p = self.model.free_velocity()?;
        starts.first().map(|start| self.model.parameters[p].to_physical(start.u[p]))
    }

    /// Leaves out the pixels of a prepared spectrum that do not count around the first start.
    fn around_first(&self, prepared: Prepared, starts: &[Start]) -> Result<Prepared, Fault> {
        let motion = starts.first().map(|start| Motion::around(self.model, &start.u, self.limits));
        self.within_reach(prepared, motion)
    }

    /// Leaves out the pixels of a prepared spectrum that do not count at a motion.
    fn within_reach(&self, prepared: Prepared, motion: Option<Motion>) -> Result<Prepared, Fault> {
        within_reach(self.model, self.arms, self.grids, self.place, prepared, motion)
    }
}
