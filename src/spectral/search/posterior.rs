//! The velocity's posterior: the objective along a grid of velocities around the best one, and the moments of
//! exp(−objective / 2).
//!
//! The scan is one more pass through a population. The starts of a spectrum are then a grid of velocities, evaluated
//! once. The grid is widened or refined until it resolves the posterior.

use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::first_guess::Start;
use crate::model::{ParameterLimits, SpectralModel, VelocityScan};
use crate::solver::{Outcome, Status};
use crate::spectral::SpectralFitter;
use crate::spectral::input::ready::{Monitor, ReadySpectra, ReadySpectrum};
use crate::spectral::results::moments::{VelocityPosterior, velocity_moments};
use crate::spectral::results::row::FitRow;
use crate::spectral::search::solve::SpectralPasses;

/// Number of points of a grid on either side of its centre.
const POINTS_PER_SIDE: i32 = 12;
/// Step of the first grid, in standard errors of the fit.
const FIRST_STEP_IN_ERRORS: f64 = 0.5;
/// Numbers of steps per standard error that resolve a posterior.
const STEPS_PER_ERROR: std::ops::RangeInclusive<f64> = 1.2..=3.0;
/// Largest relative probability at an end of a grid that is wide enough.
const MAX_EDGE_PROBABILITY: f64 = 1e-4;
/// Maximum number of grids per spectrum.
const MAX_GRIDS: usize = 12;

/// The velocity grid of one spectrum, in km/s.
struct VelocityGrid {
    /// Index of the spectrum among those that are scanned.
    spectrum: usize,
    centre: f64,
    step: f64,
    /// Bounds of the velocity.
    bounds: (f64, f64),
    posterior: Option<VelocityPosterior>,
    /// No other grid is needed.
    is_final: bool,
}

impl VelocityGrid {
    /// Returns a spectrum's first grid of velocities around the fitted one; `None` if its fit failed or its velocity is
    /// held. `velocity` is the index of the parameter.
    fn new(
        spectrum: usize,
        ready: &ReadySpectrum,
        row: &FitRow,
        velocity: usize,
    ) -> Option<VelocityGrid> {
        let limits = &ready.limits[velocity];
        if !row.status.is_success() || limits.is_held() {
            return None;
        }
        let error = row.errors[velocity];
        let step = if error.is_finite() && error > 0.0 {
            FIRST_STEP_IN_ERRORS * error
        } else {
            1.0
        };
        Some(VelocityGrid {
            spectrum,
            centre: row.parameters[velocity],
            step,
            bounds: (limits.lower, limits.upper),
            posterior: None,
            is_final: false,
        })
    }

    /// Returns the velocities of the grid that lie inside the bounds.
    fn velocities(&self) -> Vec<f64> {
        (-POINTS_PER_SIDE..=POINTS_PER_SIDE)
            .map(|k| self.centre + f64::from(k) * self.step)
            .filter(|velocity| (self.bounds.0..=self.bounds.1).contains(velocity))
            .collect()
    }

    /// Computes the posterior from the objectives at the grid's velocities. If the grid is too narrow or too coarse,
    /// sets another grid.
    fn update(&mut self, velocities: &[f64], objectives: &[f64]) {
        self.is_final = true;
        self.posterior = velocity_moments(velocities, objectives);
        let Some(posterior) = self.posterior else {
            return;
        };
        // 1. The grid is too narrow if the probability at an end is not small, unless a bound is there.
        let lowest = objectives.iter().copied().fold(f64::INFINITY, f64::min);
        let is_cut_off = |end: usize, bound: f64| {
            let is_inside_bound = (velocities[end] - bound).abs() > self.step;
            let relative_probability = (-0.5 * (objectives[end] - lowest)).exp();
            is_inside_bound && relative_probability > MAX_EDGE_PROBABILITY
        };
        let is_too_narrow =
            is_cut_off(0, self.bounds.0) || is_cut_off(velocities.len() - 1, self.bounds.1);
        let steps_per_error = posterior.error / self.step;
        if !is_too_narrow && STEPS_PER_ERROR.contains(&steps_per_error) {
            return;
        }
        // 2. Widen or refine it. The error from a grid with large steps is only an upper limit.
        self.step = if is_too_narrow {
            2.0 * self.step
        } else {
            (posterior.error * FIRST_STEP_IN_ERRORS).max(0.2 * self.step)
        };
        self.centre = posterior.velocity;
        self.is_final = false;
    }
}

/// Inputs and populations of a velocity scan.
pub struct PosteriorScan<'a> {
    pub fitter: &'a SpectralFitter,
    /// The passes that have fitted the spectra.
    pub passes: &'a mut SpectralPasses,
    pub spectra: ReadySpectra<'a>,
    /// Called after every submission.
    pub monitor: Monitor<'a>,
}

impl PosteriorScan<'_> {
    /// Scans the objective around each row's fitted velocity and writes the posterior into the row. `rows` are those of
    /// the whole batch. If the run is cancelled, rows whose scan has not ended become interrupted.
    pub fn write_posteriors(mut self, rows: &mut [FitRow]) -> Result<()> {
        let Some(velocity) = self.fitter.model.free_velocity() else {
            return Ok(());
        };
        let ready = self.spectra.spectra;
        // 1. Make a grid for each spectrum that can be scanned.
        let mut grids: Vec<VelocityGrid> = Vec::with_capacity(ready.len());
        for (k, spectrum) in ready.iter().enumerate() {
            grids.extend(VelocityGrid::new(
                k,
                spectrum,
                &rows[spectrum.place],
                velocity,
            ));
        }
        // 2. Evaluate and change the grids until they resolve the posteriors.
        let cancel = self.monitor.cancel;
        let points_per_grid = 2 * POINTS_PER_SIDE as usize + 1;
        let grids_together = (self.passes.capacity / points_per_grid).max(1);
        for _ in 0..MAX_GRIDS {
            let mut open_grids: Vec<&mut VelocityGrid> =
                grids.iter_mut().filter(|grid| !grid.is_final).collect();
            for chunk in open_grids.chunks_mut(grids_together) {
                if cancel.load(Ordering::Relaxed) {
                    break;
                }
                self.evaluate_grids(chunk, rows, velocity)?;
            }
        }
        // 3. Write the posteriors into the rows.
        for grid in grids {
            let row = &mut rows[ready[grid.spectrum].place];
            row.posterior = grid.posterior;
            if !grid.is_final && self.is_cancelled() {
                row.posterior = None;
                row.mark_failed(Status::Interrupted, Status::Interrupted.name());
            }
        }
        Ok(())
    }

    /// Returns whether the run is cancelled.
    fn is_cancelled(&self) -> bool {
        self.monitor.cancel.load(Ordering::Relaxed)
    }

    /// Evaluates the objective on some grids of velocities and updates each grid; does nothing once the run is
    /// cancelled. `velocity` is the index of the parameter.
    fn evaluate_grids(
        &mut self,
        grids: &mut [&mut VelocityGrid],
        rows: &[FitRow],
        velocity: usize,
    ) -> Result<()> {
        let model = &self.fitter.model;
        let ready = self.spectra.spectra;
        let refits = self.fitter.velocity_scan == VelocityScan::Refitted;
        // 1. For a refit, each velocity is a spectrum whose velocity is held. Else it is a start of one spectrum.
        let velocities: Vec<Vec<f64>> = grids.iter().map(|grid| grid.velocities()).collect();
        let mut entering_spectra = Vec::new();
        for (grid, velocities) in grids.iter().zip(&velocities) {
            let spectrum = &ready[grid.spectrum];
            let row = &rows[spectrum.place];
            if refits {
                for value in velocities {
                    entering_spectra.push(hold_velocity(model, spectrum, row, velocity, *value));
                }
            } else {
                entering_spectra.push(start_at_velocities(
                    model, spectrum, row, velocity, velocities,
                ));
            }
        }
        let Some(outcomes) = self.compute_outcomes(entering_spectra, refits)? else {
            return Ok(());
        };
        // 2. Update each grid by its objectives. A grid outside of the bounds has none.
        let row_builder = self.fitter.row_builder();
        let mut remaining_outcomes = outcomes.iter();
        for (grid, velocities) in grids.iter_mut().zip(velocities) {
            let prepared = &ready[grid.spectrum].prepared;
            let objectives: Vec<f64> = remaining_outcomes
                .by_ref()
                .take(velocities.len())
                .map(|outcome| row_builder.objective(outcome, prepared))
                .collect();
            if velocities.is_empty() {
                grid.is_final = true;
            } else {
                grid.update(&velocities, &objectives);
            }
        }
        Ok(())
    }

    /// Evaluates or, with `refits`, fits spectra from their starts; returns one outcome per start, `None` if cancelled.
    fn compute_outcomes(
        &mut self,
        entering_spectra: Vec<ReadySpectrum>,
        refits: bool,
    ) -> Result<Option<Vec<Outcome>>> {
        if self.is_cancelled() {
            return Ok(None);
        }
        let entering_spectra = self.spectra.with_spectra(&entering_spectra);
        let monitor = Monitor {
            cancel: self.monitor.cancel,
            progress: &mut *self.monitor.progress,
        };
        let outcomes = if refits {
            self.passes.refit(entering_spectra, monitor)?
        } else {
            self.passes.evaluate(entering_spectra)?
        };
        // After a cancellation refits may not have ended.
        if self.is_cancelled() {
            return Ok(None);
        }
        (self.monitor.progress)(0.0);
        Ok(Some(outcomes))
    }
}

/// Returns a copy of a spectrum with one start per velocity: its fitted parameters with that velocity. `velocity` is
/// the index of the parameter.
fn start_at_velocities(
    model: &SpectralModel,
    spectrum: &ReadySpectrum,
    row: &FitRow,
    velocity: usize,
    values: &[f64],
) -> ReadySpectrum {
    let fitted: Vec<f64> = model
        .parameters
        .iter()
        .zip(&row.parameters)
        .map(|(parameter, value)| parameter.to_u(*value))
        .collect();
    let mut starts = Vec::with_capacity(values.len());
    for value in values {
        let mut u = fitted.clone();
        u[velocity] = model.parameters[velocity].to_u(*value);
        starts.push(Start { u, basin: 0 });
    }
    ReadySpectrum {
        starts,
        may_add_starts: false,
        ..spectrum.clone()
    }
}

/// Returns a copy of a spectrum that starts at its fit, with its velocity held at `value`. `velocity` is the index of
/// the parameter.
fn hold_velocity(
    model: &SpectralModel,
    spectrum: &ReadySpectrum,
    row: &FitRow,
    velocity: usize,
    value: f64,
) -> ReadySpectrum {
    let mut held = start_at_velocities(model, spectrum, row, velocity, &[value]);
    held.limits[velocity] = ParameterLimits {
        lower: value,
        upper: value,
        prior: None,
        ..held.limits[velocity]
    };
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_adapts_until_it_resolves_the_posterior() {
        for (sigma, error_of_fit) in [(0.01, 1.0), (50.0, 1.0), (1.0, 1.0)] {
            let mut grid = VelocityGrid {
                spectrum: 0,
                centre: 10.3,
                step: FIRST_STEP_IN_ERRORS * error_of_fit,
                bounds: (-1e3, 1e3),
                posterior: None,
                is_final: false,
            };
            for _ in 0..MAX_GRIDS {
                let velocities = grid.velocities();
                let objectives: Vec<f64> = velocities
                    .iter()
                    .map(|velocity| ((velocity - 10.0) / sigma).powi(2))
                    .collect();
                grid.update(&velocities, &objectives);
                if grid.is_final {
                    break;
                }
            }
            let posterior = grid.posterior.unwrap();
            assert!(
                (posterior.error / sigma - 1.0).abs() < 1e-3,
                "{} for {sigma}",
                posterior.error
            );
        }
    }
}
