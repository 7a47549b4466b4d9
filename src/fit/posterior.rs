//! The velocity's posterior: the objective along a grid of velocities around the best one, and the moments of
//! exp(−objective / 2).
//!
//! The scan is one more pass through a population. The group of a spectrum is then a grid of velocities, evaluated
//! once, and the grid is widened or refined until it resolves the posterior.

use std::sync::atomic::Ordering;

use super::SpectralFitter;
use super::canary::Canary;
use super::pass::Watched;
use super::ready::{Grids, Ready};
use super::row::FitRow;
use super::solve::Passes;
use crate::error::Result;
use crate::model::{Limits, Start, VelocityScan};
use crate::solver::{Outcome, Status};

/// Moments of the scan; km/s.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct VelocityPosterior {
    /// The lowest point, through a parabola.
    pub velocity: f64,
    /// √⟨(v − velocity)²⟩.
    pub error: f64,
    /// ⟨(v − velocity)³⟩ / error³.
    pub skewness: f64,
    /// ⟨(v − velocity)⁴⟩ / error⁴: 3 for a Gaussian.
    pub kurtosis: f64,
}

/// Points on either side of the middle.
const HALF: i32 = 12;
/// First step, in errors of the fit.
const STEP: f64 = 0.5;
/// A grid is good when an error is between so many of its steps, and its ends are improbable.
const STEPS_AN_ERROR: std::ops::RangeInclusive<f64> = 1.2..=3.0;
const EDGE: f64 = 1e-4;
/// Grids that are tried.
const ATTEMPTS: usize = 12;

/// Moments of exp(−objective / 2) on an ascending grid of equal steps, as rvspecfit's `find_best` takes them. `None`
/// when no objective is finite.
pub fn moments(velocities: &[f64], objectives: &[f64]) -> Option<VelocityPosterior> {
    let finite = (0..velocities.len()).filter(|&i| objectives[i].is_finite());
    let lowest = finite.min_by(|&a, &b| objectives[a].total_cmp(&objectives[b]))?;
    let probability = |i: usize| {
        let excess = objectives[i] - objectives[lowest];
        if excess.is_finite() { (-0.5 * excess).exp() } else { 0.0 }
    };
    let total: f64 = (0..velocities.len()).map(probability).sum();
    let velocity = vertex(velocities, objectives, lowest);
    let moment = |power: i32| -> f64 {
        let terms = (0..velocities.len()).map(|i| probability(i) * (velocities[i] - velocity).powi(power));
        terms.sum::<f64>() / total
    };
    let error = moment(2).sqrt();
    let (skewness, kurtosis) =
        if error < 1e-10 { (0.0, 0.0) } else { (moment(3) / error.powi(3), moment(4) / error.powi(4)) };
    Some(VelocityPosterior { velocity, error, skewness, kurtosis })
}

/// The lowest point of the parabola through point i and its neighbours; the point itself at an end.
fn vertex(x: &[f64], y: &[f64], i: usize) -> f64 {
    if i == 0 || i + 1 >= x.len() || !y[i - 1].is_finite() || !y[i + 1].is_finite() {
        return x[i];
    }
    let (left, right) = (y[i - 1] - y[i], y[i + 1] - y[i]);
    if left + right <= 0.0 {
        return x[i];
    }
    x[i] + 0.25 * (x[i + 1] - x[i - 1]) * (left - right) / (left + right)
}

/// One spectrum's grid.
struct Grid {
    /// Index into the spectra that entered together.
    ready: usize,
    centre: f64,
    step: f64,
    range: (f64, f64),
    found: Option<VelocityPosterior>,
    /// No other grid is needed.
    ended: bool,
}

impl Grid {
    fn velocities(&self) -> Vec<f64> {
        let all = (-HALF..=HALF).map(|k| self.centre + f64::from(k) * self.step);
        all.filter(|v| (self.range.0..=self.range.1).contains(v)).collect()
    }

    /// Takes what a grid gave; unless it is good, another one is set.
    fn judge(&mut self, velocities: &[f64], objectives: &[f64]) {
        self.ended = true;
        self.found = moments(velocities, objectives);
        let Some(found) = self.found else { return };
        let lowest = objectives.iter().copied().fold(f64::INFINITY, f64::min);
        let edge = |i: usize, bound: f64| {
            let inside = (velocities[i] - bound).abs() > self.step;
            inside && (-0.5 * (objectives[i] - lowest)).exp() > EDGE
        };
        let wide = edge(0, self.range.0) || edge(velocities.len() - 1, self.range.1);
        let steps = found.error / self.step;
        if !wide && STEPS_AN_ERROR.contains(&steps) {
            return;
        }
        // too coarse a grid tells little of the error but that it is small
        self.step = if wide { 2.0 * self.step } else { (found.error * STEP).max(0.2 * self.step) };
        self.centre = found.velocity;
        self.ended = false;
    }
}

/// Inputs and populations of a velocity scan: the populations that have fitted the spectra, and on GPUs a spectrum of
/// known answer that joins them.
pub struct Scan<'a> {
    pub fitter: &'a SpectralFitter,
    pub passes: &'a mut Passes,
    pub grids: &'a [Grids],
    /// And the device's name.
    pub canary: Option<(&'a Canary, &'a str)>,
    /// Told after every submission.
    pub watched: Watched<'a>,
}

impl Scan<'_> {
    /// Scans the velocity of each spectrum of `ready` whose row has a fit; `rows` are those of the batch. When the run
    /// is cancelled, rows whose scan has not ended become interrupted ones.
    pub fn run(mut self, (ready, rows): (&[Ready], &mut [FitRow])) -> Result<()> {
        let Some(p) = self.fitter.model.free_velocity() else { return Ok(()) };
        let begin = |(k, one): (usize, &Ready)| {
            let row = &rows[one.place];
            let error = row.errors[p];
            let limits = &one.limits[p];
            let usable = row.status.is_success() && !limits.is_held();
            let step = if error.is_finite() && error > 0.0 { STEP * error } else { 1.0 };
            let (range, centre) = ((limits.lower, limits.upper), row.parameters[p]);
            usable.then_some(Grid { ready: k, centre, step, range, found: None, ended: false })
        };
        let mut all: Vec<Grid> = ready.iter().enumerate().filter_map(begin).collect();
        let cancel = self.watched.0;
        let together = (self.room() / (2 * HALF as usize + 1)).max(1);
        for _ in 0..ATTEMPTS {
            let mut open: Vec<&mut Grid> = all.iter_mut().filter(|grid| !grid.ended).collect();
            for some in open.chunks_mut(together).take_while(|_| !cancel.load(Ordering::Relaxed)) {
                self.attempt(some, (ready, rows), p)?;
            }
        }
        for grid in all {
            let row = &mut rows[ready[grid.ready].place];
            row.posterior = grid.found;
            if !grid.ended && self.is_cancelled() {
                row.posterior = None;
                row.fail(Status::Interrupted, Status::Interrupted.name());
            }
        }
        Ok(())
    }

    fn is_cancelled(&self) -> bool {
        self.watched.0.load(Ordering::Relaxed)
    }

    /// Places beside the canary's.
    fn room(&self) -> usize {
        (self.passes.capacity - usize::from(self.canary.is_some())).max(1)
    }

    /// Evaluates some grids of velocities, which are parameter `p`; none once the run is cancelled.
    fn attempt(&mut self, some: &mut [&mut Grid], (ready, rows): (&[Ready], &[FitRow]), p: usize) -> Result<()> {
        let refit = self.fitter.velocity_scan == VelocityScan::Refitted;
        let velocities: Vec<Vec<f64>> = some.iter().map(|grid| grid.velocities()).collect();
        let enter = |(grid, velocities): (&&mut Grid, &Vec<f64>)| {
            entering(self.fitter, (p, refit), (&ready[grid.ready], rows), velocities)
        };
        let entering = some.iter().zip(&velocities).flat_map(enter).collect();
        let Some(outcomes) = self.outcomes(entering, refit)? else { return Ok(()) };
        let finish = self.fitter.finish();
        let mut rest = outcomes.iter();
        for (grid, velocities) in some.iter_mut().zip(velocities) {
            let prepared = &ready[grid.ready].prepared;
            let own = rest.by_ref().take(velocities.len());
            let objectives: Vec<f64> = own.map(|outcome| finish.objective(outcome, prepared)).collect();
            if velocities.is_empty() {
                grid.ended = true;
            } else {
                grid.judge(&velocities, &objectives);
            }
        }
        Ok(())
    }

    /// One outcome a start; `None` when the run was cancelled on the way, and an error where the canary among them is
    /// not well.
    fn outcomes(&mut self, entering: Vec<Ready>, refit: bool) -> Result<Option<Vec<Outcome>>> {
        let mut all = Vec::new();
        for mut some in loads(entering, self.room()) {
            some.extend(self.canary.map(|(canary, _)| canary.in_scan()));
            let mut found = Vec::new();
            // where there is room for one, the canary comes after it
            for part in loads(some, self.passes.capacity) {
                if self.is_cancelled() {
                    return Ok(None);
                }
                let (cancel, watch) = &mut self.watched;
                let watched: Watched = (cancel, &mut **watch);
                found.extend(self.passes.evaluate(&self.fitter.model, self.grids, &part, (refit, watched))?);
            }
            // what was refitted need not have come to its end
            if self.is_cancelled() {
                return Ok(None);
            }
            if let Some((canary, device)) = self.canary
                && let Some(own) = found.pop()
            {
                canary.judge_in_scan(self.fitter, device, (&own, refit))?;
            }
            all.extend(found);
            (self.watched.1)(0.0);
        }
        Ok(Some(all))
    }
}

/// One spectrum at all velocities, which are parameter `p`: one group, or, to be fitted again, a spectrum a velocity,
/// which is held there.
fn entering(
    fitter: &SpectralFitter,
    (p, refit): (usize, bool),
    (one, rows): (&Ready, &[FitRow]),
    velocities: &[f64],
) -> Vec<Ready> {
    let parameters = &fitter.model.parameters;
    let start = |v: f64| {
        let mut u: Vec<f64> = parameters.iter().zip(&rows[one.place].parameters).map(|(q, x)| q.to_u(*x)).collect();
        u[p] = parameters[p].to_u(v);
        Start { u, basin: 0 }
    };
    let at = |velocities: &[f64], limits: Vec<Limits>| Ready {
        place: one.place,
        prepared: one.prepared.clone(),
        limits,
        starts: velocities.iter().map(|v| start(*v)).collect(),
        may_look: false,
    };
    if !refit {
        return vec![at(velocities, one.limits.clone())];
    }
    let held = |&v: &f64| {
        let mut limits = one.limits.clone();
        limits[p] = Limits { lower: v, upper: v, prior: None, ..limits[p] };
        at(&[v], limits)
    };
    velocities.iter().map(held).collect()
}

/// Groups the spectra that enter together. A grid that has more points than the population has room is split.
fn loads(entering: Vec<Ready>, capacity: usize) -> Vec<Vec<Ready>> {
    let total: usize = entering.iter().map(|one| one.starts.len()).sum();
    if total <= capacity {
        return vec![entering];
    }
    let mut all = Vec::new();
    for one in entering {
        for starts in one.starts.chunks(capacity) {
            let Ready { place, prepared, limits, .. } = &one;
            let (prepared, limits) = (prepared.clone(), limits.clone());
            all.push(vec![Ready { place: *place, prepared, limits, starts: starts.to_vec(), may_look: false }]);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_a_gaussian() {
        let v: Vec<f64> = (-12..=12).map(|k| 3.0 + 0.5 * f64::from(k)).collect();
        let y: Vec<f64> = v.iter().map(|v| 100.0 + (v - 3.1).powi(2)).collect();
        let found = moments(&v, &y).unwrap();
        assert!((found.velocity - 3.1).abs() < 1e-12 && (found.error - 1.0).abs() < 1e-4);
        assert!(found.skewness.abs() < 1e-4 && (found.kurtosis - 3.0).abs() < 1e-3);
        assert!(moments(&v, &vec![f64::NAN; v.len()]).is_none());
    }

    /// rvspecfit's `find_best` on three points, worked by hand: the parabola's vertex, moments about it.
    #[test]
    fn moments_are_about_the_vertex() {
        let found = moments(&[0.0, 1.0, 2.0], &[1.0, 0.0, 3.0]).unwrap();
        let (p, v) = ([(-0.5f64).exp(), 1.0, (-1.5f64).exp()], 0.75);
        let moment = |k: i32| (0..3).map(|i| p[i] * (i as f64 - v).powi(k)).sum::<f64>() / p.iter().sum::<f64>();
        assert!((found.velocity - v).abs() < 1e-15 && (found.error - moment(2).sqrt()).abs() < 1e-15);
        assert!((found.skewness - moment(3) / found.error.powi(3)).abs() < 1e-12);
        assert!((found.kurtosis - moment(4) / found.error.powi(4)).abs() < 1e-12);
    }

    #[test]
    fn a_grid_follows_the_posterior() {
        for (sigma, guess) in [(0.01, 1.0), (50.0, 1.0), (1.0, 1.0)] {
            let (step, range) = (STEP * guess, (-1e3, 1e3));
            let mut grid = Grid { ready: 0, centre: 10.3, step, range, found: None, ended: false };
            for _ in 0..ATTEMPTS {
                let velocities = grid.velocities();
                let y: Vec<f64> = velocities.iter().map(|v| ((v - 10.0) / sigma).powi(2)).collect();
                grid.judge(&velocities, &y);
                if grid.ended {
                    break;
                }
            }
            let found = grid.found.unwrap();
            assert!((found.error / sigma - 1.0).abs() < 1e-3, "{} for {sigma}", found.error);
        }
    }
}
