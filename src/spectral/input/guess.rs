//! Starts of a spectrum's fit from the first guess, and the pixels that count at their velocities.

use std::borrow::Cow;

use crate::first_guess::{FirstGuess, Start};
use crate::model::{Motion, ParameterLimits, Prepared, Sampling, SpectralModel, SpectrumFault};
use crate::spectra::ArmSpectra;
use crate::spectral::input::assemble::leave_out_uncounted_pixels;
use crate::spectral::input::ready::{Grids, collect_samplings};

/// Maximum number of guesses near the best velocity, if it keeps moving.
const MAX_GUESSES_NEAR_BEST: usize = 3;
/// Smallest change of the best velocity after which the guess is repeated, in units of the velocity's uncertainty.
const MIN_MOVE: f64 = 0.5;

/// A spectrum of a file, and the limits of its parameters.
pub struct GuessedSpectrum<'a, 's> {
    pub model: &'a SpectralModel,
    pub arms: &'a [Cow<'s, ArmSpectra<'s>>],
    pub grids: &'a [Grids],
    /// Index of the spectrum in the file.
    pub place: usize,
    pub limits: &'a [ParameterLimits],
    pub guess: &'a FirstGuess,
    /// Number of starts; `None` for the templates that compete.
    pub count: Option<usize>,
}

impl GuessedSpectrum<'_, '_> {
    /// Returns the prepared spectrum, without the pixels that do not count around its starts, and the starts that the
    /// first guess finds for it; or the fault of a spectrum with too few pixels left.
    ///
    /// If pixels are left out, the starts are guessed again from the remaining ones. There are two reasons. Masks of
    /// the star's frame hide features that the first guess took for lines of the star. Where a network ends inside the
    /// data, the first guess could not use the pixels that it covers at some velocities only. The next guess uses them,
    /// too, at velocities near the best one, and is repeated if that moves. Starts at other velocities are kept after
    /// these.
    pub fn guess_starts(
        &self,
        prepared: Prepared,
    ) -> Result<(Prepared, Vec<Start>), SpectrumFault> {
        // 1. Guess from the pixels that are covered at all velocities.
        let mut starts = self.guess_within(&prepared, self.limits);
        let mut prepared = self.keep_pixels_around_first(prepared, &starts)?;
        // 2. Guess again without the pixels in masks of the star's frame.
        if !self.model.spectra.mask_rest.is_empty() {
            starts = self.guess_within(&prepared, self.limits);
            prepared = self.keep_pixels_around_first(prepared, &starts)?;
        }
        // 3. Guess again near the best velocity from the pixels that are covered there.
        for _ in 0..MAX_GUESSES_NEAR_BEST {
            let has_unreached_pixels = prepared.arms.iter().any(|arm| arm.unreached > 0);
            if !has_unreached_pixels {
                break;
            }
            let velocities = self.first_velocities(&starts);
            if velocities.is_empty() {
                break;
            }
            starts = self.guess_near(&prepared, &velocities, starts);
            let change = velocities
                .iter()
                .zip(self.first_velocities(&starts))
                .map(|(velocity, new_velocity)| (new_velocity - velocity).abs())
                .fold(0.0, f64::max);
            if change <= MIN_MOVE * self.guess.velocity_uncertainty() {
                break;
            }
            prepared = self.keep_pixels_around_first(prepared, &starts)?;
        }
        // 4. Leave out the pixels that do not count around every start.
        let motion =
            Motion::around_starts(self.model, starts.iter().map(|start| &start.u), self.limits);
        if motion != prepared.motion {
            prepared = self.keep_pixels_at(prepared, motion)?;
        }
        Ok((prepared, starts))
    }

    /// Returns the starts that the first guess finds for a prepared spectrum within limits of its parameters.
    fn guess_within(&self, prepared: &Prepared, limits: &[ParameterLimits]) -> Vec<Start> {
        let samplings: Vec<&Sampling> = collect_samplings(self.grids, self.place);
        self.guess.starts(prepared, &samplings, limits, self.count)
    }

    /// Returns the starts that the first guess finds near these velocities (km/s), one per free velocity, then the
    /// `earlier` ones elsewhere. Their number is the larger of the two guesses' numbers.
    fn guess_near(
        &self,
        prepared: &Prepared,
        velocities: &[f64],
        earlier: Vec<Start>,
    ) -> Vec<Start> {
        // 1. Guess within the uncertainty of each velocity.
        let uncertainty = self.guess.velocity_uncertainty();
        let mut near_limits = self.limits.to_vec();
        let parameters = self.model.free_velocities();
        for (&p, velocity) in parameters.iter().zip(velocities) {
            near_limits[p].lower = near_limits[p].lower.max(velocity - uncertainty);
            near_limits[p].upper = near_limits[p].upper.min(velocity + uncertainty);
        }
        let starts = self.guess_within(prepared, &near_limits);
        // 2. Append the earlier starts at other velocities. Their basins must differ from those of the new starts.
        let is_elsewhere = |start: &Start| {
            parameters.iter().any(|&p| {
                let parameter = &self.model.parameters[p];
                let [lower, upper] =
                    [near_limits[p].lower, near_limits[p].upper].map(|v| parameter.to_u(v));
                start.u[p] < lower || start.u[p] > upper
            })
        };
        let count = starts.len().max(earlier.len());
        let elsewhere = earlier.into_iter().filter(is_elsewhere).map(|start| Start {
            basin: usize::MAX - start.basin,
            ..start
        });
        starts.into_iter().chain(elsewhere).take(count).collect()
    }

    /// Returns the free velocities of the first start in km/s; none if the velocity is fixed.
    fn first_velocities(&self, starts: &[Start]) -> Vec<f64> {
        let Some(start) = starts.first() else {
            return Vec::new();
        };
        let parameters = self.model.free_velocities().into_iter();
        parameters
            .map(|p| self.model.parameters[p].to_physical(start.u[p]))
            .collect()
    }

    /// Leaves out the pixels of a prepared spectrum that do not count around the first start.
    fn keep_pixels_around_first(
        &self,
        prepared: Prepared,
        starts: &[Start],
    ) -> Result<Prepared, SpectrumFault> {
        let motion = starts
            .first()
            .map(|start| Motion::around(self.model, &start.u, self.limits));
        self.keep_pixels_at(prepared, motion)
    }

    /// Leaves out the pixels of a prepared spectrum that do not count at a motion.
    fn keep_pixels_at(
        &self,
        prepared: Prepared,
        motion: Option<Motion>,
    ) -> Result<Prepared, SpectrumFault> {
        leave_out_uncounted_pixels(
            self.model, self.arms, self.grids, self.place, prepared, motion,
        )
    }
}
