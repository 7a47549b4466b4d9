//! One spectrum's look at templates over velocities, in bins of one width.

use std::ops::Range;

use super::bins::{Bins, Signals};
use crate::model::Limits;

/// Velocities to either side of the best at which a template is looked at again.
const AROUND: usize = 2;

/// A template at its best velocity.
pub struct Candidate {
    pub template: usize,
    /// km/s
    pub velocity: f64,
    /// χ² up to a constant.
    pub score: f32,
}

pub struct Look<'a> {
    /// Of each unit.
    bins: Vec<&'a Bins>,
    pub signals: Vec<Signals>,
    /// km/s
    velocities: &'a [f64],
    /// Those inside the spectrum's bounds.
    allowed: Range<usize>,
}

impl<'a> Look<'a> {
    /// `limits` are the velocity's, where that is free.
    pub fn new(bins: Vec<&'a Bins>, signals: Vec<Signals>, velocities: &'a [f64], limits: Option<&Limits>) -> Look<'a> {
        Look { bins, signals, velocities, allowed: allowed(velocities, limits) }
    }

    /// A template where its row of scores is lowest.
    pub fn lowest(&self, template: usize, row: &[f32]) -> Candidate {
        let all = row.iter().enumerate().take(self.allowed.end).skip(self.allowed.start);
        let (at, score) = all.min_by(|a, b| a.1.total_cmp(b.1)).unwrap_or((0, &0.0));
        Candidate { template, velocity: self.refined(row, 0, at), score: *score }
    }

    /// Scores a template with its own lines, at the velocities around its best.
    pub fn look_again(&self, candidate: &mut Candidate) {
        let best = nearest(self.velocities, candidate.velocity);
        // one more to either side, whose scores the parabola through the best may ask for
        let near = best.saturating_sub(AROUND + 1)..(best + AROUND + 2).min(self.velocities.len());
        let mut row = vec![0.0; near.len()];
        for (bins, signals) in self.bins.iter().zip(&self.signals) {
            bins.add_exact_scores(candidate.template, signals, near.clone(), &mut row);
        }
        let is_near = |at: &usize| at.abs_diff(best) <= AROUND && self.allowed.contains(at);
        let inside = near.clone().zip(&row).filter(|(at, _)| is_near(at));
        if let Some((at, score)) = inside.min_by(|a, b| a.1.total_cmp(b.1)) {
            (candidate.velocity, candidate.score) = (self.refined(&row, near.start, at), *score);
        }
    }

    /// The minimum of the parabola through the velocity `at` and its neighbours, km/s, from scores from the velocity `first` on.
    fn refined(&self, row: &[f32], first: usize, at: usize) -> f64 {
        let v = self.velocities[at];
        if at == first || at + 1 >= first + row.len() {
            return v;
        }
        let [a, b, c] = [at - 1, at, at + 1].map(|at| f64::from(row[at - first]));
        let curvature = a - 2.0 * b + c;
        let offset = if curvature > 0.0 { (0.5 * (a - c) / curvature).clamp(-0.5, 0.5) } else { 0.0 };
        v + offset * 0.5 * (self.velocities[at + 1] - self.velocities[at - 1])
    }
}

/// The velocities inside a spectrum's bounds, or the one nearest to its start.
fn allowed(velocities: &[f64], limits: Option<&Limits>) -> Range<usize> {
    let Some(Limits { lower, upper, start, .. }) = limits else { return 0..1 };
    let range = (start.unwrap_or(*lower), start.unwrap_or(*upper));
    let below = velocities.partition_point(|v| *v < range.0);
    let end = velocities.partition_point(|v| *v <= range.1);
    if below < end {
        return below..end;
    }
    let one = nearest(velocities, range.0);
    one..one + 1
}

fn nearest(velocities: &[f64], velocity: f64) -> usize {
    let above = velocities.partition_point(|v| *v < velocity);
    let (before, after) = (above.saturating_sub(1), above.min(velocities.len() - 1));
    let distance = |k: usize| (velocities[k] - velocity).abs();
    if distance(before) <= distance(after) { before } else { after }
}
