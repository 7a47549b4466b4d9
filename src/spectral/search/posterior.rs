//! The velocity's posterior: the objective along a grid of velocities around the best one, and the moments of
//! exp(−objective / 2).
//!
//! The scan is one more pass through a population. The starts of a spectrum are then a grid of velocities, evaluated
//! once. The grid is widened or refined until it resolves the posterior.

use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::first_guess::Start;
use crate::model::{Limits, SpectralModel, VelocityScan};
use crate::solver::{Outcome, Status};
use crate::spectral::SpectralFitter;
use crate::spectral::input::ready::{Monitor, ReadySpectra, ReadySpectrum};
use crate::spectral::results::moments::{VelocityPosterior, velocity_moments};
use crate::spectral::results::row::FitRow;
use crate::spectral::search::solve::Passes;

/// Points of a grid on either side of its centre.
const HALF: i32 = 12;
/// Step of the first grid, in standard errors of the fit.
const STEP: f64 = 0.5;
/// Numbers of steps per standard error that resolve a posterior.
const STEPS_PER_ERROR: std::ops::RangeInclusive<f64> = 1.2..=3.0;
/// Largest relative probability at an end of a grid that is wide enough.
const EDGE: f64 = 1e-4;
/// Maximum number of grids per spectrum.
const ATTEMPTS: usize = 12;

/// The velocity grid of one spectrum, in km/s.
struct Grid {
    /// Index of the spectrum among those that are scanned.
    ready: usize,
    centre: f64,
    step: f64,
    /// Bounds of the velocity.
    range: (f64, f64),
    found: Option<VelocityPosterior>,
    /// No other grid is needed.
    ended: bool,
}

impl Grid {
    /// Returns a spectrum's first grid of velocities around the fitted one, parameter `p`; `None` if its fit failed or
    /// it is held.
    fn new(ready: usize, one: &ReadySpectrum, row: &FitRow, p: usize) -> Option<Grid> {
        let (error, limits) = (row.errors[p], &one.limits[p]);
        let usable = row.status.is_success() && !limits.is_held();
        let step = if error.is_finite() && error > 0.0 {
            STEP * error
        } else {
            1.0
        };
        let (range, centre) = ((limits.lower, limits.upper), row.parameters[p]);
        usable.then_some(Grid {
            ready,
            centre,
            step,
            range,
            found: None,
            ended: false,
        })
    }

    /// Returns the velocities of the grid that lie inside the bounds.
    fn velocities(&self) -> Vec<f64> {
        let all = (-HALF..=HALF).map(|k| self.centre + f64::from(k) * self.step);
        all.filter(|v| (self.range.0..=self.range.1).contains(v))
            .collect()
    }

    /// Computes the posterior from the objectives at the grid's velocities, and changes the grid for another attempt if
    /// it does not suit. If they do not resolve it, sets another grid.
    fn judge(&mut self, velocities: &[f64], objectives: &[f64]) {
        self.ended = true;
        self.found = velocity_moments(velocities, objectives);
        let Some(found) = self.found else { return };
        let lowest = objectives.iter().copied().fold(f64::INFINITY, f64::min);
        let edge = |i: usize, bound: f64| {
            let inside = (velocities[i] - bound).abs() > self.step;
            inside && (-0.5 * (objectives[i] - lowest)).exp() > EDGE
        };
        let wide = edge(0, self.range.0) || edge(velocities.len() - 1, self.range.1);
        let steps = found.error / self.step;
        if !wide && STEPS_PER_ERROR.contains(&steps) {
            return;
        }
        // The error from a grid with large steps is only an upper limit.
        self.step = if wide {
            2.0 * self.step
        } else {
            (found.error * STEP).max(0.2 * self.step)
        };
        self.centre = found.velocity;
        self.ended = false;
    }
}

/// Inputs and populations of a velocity scan.
pub struct Scan<'a> {
    pub fitter: &'a SpectralFitter,
    /// The passes that have fitted the spectra.
    pub passes: &'a mut Passes,
    pub spectra: ReadySpectra<'a>,
    /// Called after every submission.
    pub monitor: Monitor<'a>,
}

impl Scan<'_> {
    /// Scans the objective around each row's fitted velocity and writes the posterior into the row. `rows` are those of
    /// the whole batch. If the run is cancelled, rows whose scan has not ended become interrupted.
    pub fn run(mut self, rows: &mut [FitRow]) -> Result<()> {
        let Some(p) = self.fitter.model.free_velocity() else {
            return Ok(());
        };
        let ready = self.spectra.spectra;
        let begin = |(k, one): (usize, &ReadySpectrum)| Grid::new(k, one, &rows[one.place], p);
        let mut all: Vec<Grid> = ready.iter().enumerate().filter_map(begin).collect();
        let cancel = self.monitor.cancel;
        let together = (self.passes.capacity / (2 * HALF as usize + 1)).max(1);
        for _ in 0..ATTEMPTS {
            let mut open: Vec<&mut Grid> = all.iter_mut().filter(|grid| !grid.ended).collect();
            for some in open
                .chunks_mut(together)
                .take_while(|_| !cancel.load(Ordering::Relaxed))
            {
                self.attempt(some, rows, p)?;
            }
        }
        for grid in all {
            let row = &mut rows[ready[grid.ready].place];
            row.posterior = grid.found;
            if !grid.ended && self.is_cancelled() {
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

    /// Evaluates the objective on some grids of velocities (parameter `p`) and judges each grid; does nothing once the
    /// run is cancelled.
    fn attempt(&mut self, some: &mut [&mut Grid], rows: &[FitRow], p: usize) -> Result<()> {
        let (model, ready) = (&self.fitter.model, self.spectra.spectra);
        let refit = self.fitter.velocity_scan == VelocityScan::Refitted;
        let velocities: Vec<Vec<f64>> = some.iter().map(|grid| grid.velocities()).collect();
        let mut entering = Vec::new();
        for (grid, velocities) in some.iter().zip(&velocities) {
            let one = &ready[grid.ready];
            let row = &rows[one.place];
            if refit {
                entering.extend(
                    velocities
                        .iter()
                        .map(|v| held_at_velocity(model, one, row, p, *v)),
                );
            } else {
                entering.push(at_velocities(model, one, row, p, velocities));
            }
        }
        let Some(outcomes) = self.outcomes(entering, refit)? else {
            return Ok(());
        };
        let finish = self.fitter.finish();
        let mut rest = outcomes.iter();
        for (grid, velocities) in some.iter_mut().zip(velocities) {
            let prepared = &ready[grid.ready].prepared;
            let own = rest.by_ref().take(velocities.len());
            let objectives: Vec<f64> = own
                .map(|outcome| finish.objective(outcome, prepared))
                .collect();
            if velocities.is_empty() {
                grid.ended = true;
            } else {
                grid.judge(&velocities, &objectives);
            }
        }
        Ok(())
    }

    /// Evaluates or, with `refit`, fits spectra from their starts; returns one outcome per start, `None` if cancelled.
    fn outcomes(
        &mut self,
        entering: Vec<ReadySpectrum>,
        refit: bool,
    ) -> Result<Option<Vec<Outcome>>> {
        if self.is_cancelled() {
            return Ok(None);
        }
        let entering = self.spectra.with_spectra(&entering);
        let monitor = Monitor {
            cancel: self.monitor.cancel,
            progress: &mut *self.monitor.progress,
        };
        let all = if refit {
            self.passes.refit(entering, monitor)?
        } else {
            self.passes.evaluate(entering)?
        };
        // After a cancellation refits may not have ended.
        if self.is_cancelled() {
            return Ok(None);
        }
        (self.monitor.progress)(0.0);
        Ok(Some(all))
    }
}

/// Returns a copy of a spectrum with one start per velocity: its fitted parameters, of which `p` is set to that
/// velocity.
fn at_velocities(
    model: &SpectralModel,
    one: &ReadySpectrum,
    row: &FitRow,
    p: usize,
    velocities: &[f64],
) -> ReadySpectrum {
    let fitted: Vec<f64> = model
        .parameters
        .iter()
        .zip(&row.parameters)
        .map(|(q, x)| q.to_u(*x))
        .collect();
    let mut starts = Vec::with_capacity(velocities.len());
    for velocity in velocities {
        let mut u = fitted.clone();
        u[p] = model.parameters[p].to_u(*velocity);
        starts.push(Start { u, basin: 0 });
    }
    ReadySpectrum {
        starts,
        may_add_starts: false,
        ..one.clone()
    }
}

/// Returns a copy of a spectrum that starts at its fit, with its velocity, parameter `p`, held at `v`.
fn held_at_velocity(
    model: &SpectralModel,
    one: &ReadySpectrum,
    row: &FitRow,
    p: usize,
    v: f64,
) -> ReadySpectrum {
    let mut held = at_velocities(model, one, row, p, &[v]);
    held.limits[p] = Limits {
        lower: v,
        upper: v,
        prior: None,
        ..held.limits[p]
    };
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_follows_the_posterior() {
        for (sigma, guess) in [(0.01, 1.0), (50.0, 1.0), (1.0, 1.0)] {
            let (step, range) = (STEP * guess, (-1e3, 1e3));
            let mut grid = Grid {
                ready: 0,
                centre: 10.3,
                step,
                range,
                found: None,
                ended: false,
            };
            for _ in 0..ATTEMPTS {
                let velocities = grid.velocities();
                let y: Vec<f64> = velocities
                    .iter()
                    .map(|v| ((v - 10.0) / sigma).powi(2))
                    .collect();
                grid.judge(&velocities, &y);
                if grid.ended {
                    break;
                }
            }
            let found = grid.found.unwrap();
            assert!(
                (found.error / sigma - 1.0).abs() < 1e-3,
                "{} for {sigma}",
                found.error
            );
        }
    }
}
