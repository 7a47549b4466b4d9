//! One spectrum's look at templates over velocities.

use std::cmp::Ordering;
use std::ops::Range;

use super::bins::Signals;
use super::unit::Unit;
use crate::model::Limits;

/// Velocities to either side of the nearest to which a look may move a template.
const AROUND: usize = 1;

/// A template at a velocity.
#[derive(Clone)]
pub struct Candidate {
    pub template: usize,
    /// km/s
    pub velocity: f64,
    /// χ² up to a constant.
    pub score: f32,
}

impl Candidate {
    /// Compares two candidates by χ², and equal ones by their templates.
    pub fn order(a: &Candidate, b: &Candidate) -> Ordering {
        a.score
            .total_cmp(&b.score)
            .then(a.template.cmp(&b.template))
    }
}

/// The velocities of bins of one width.
pub struct Look<'a> {
    /// km/s
    velocities: &'a [f64],
    /// Range of the velocities inside the spectrum's bounds.
    allowed: Range<usize>,
}

impl<'a> Look<'a> {
    /// Finds which of `velocities` (km/s) lie within the velocity's `limits` or nearest its start; `None` for a fixed
    /// velocity.
    pub fn new(velocities: &'a [f64], limits: Option<&Limits>) -> Look<'a> {
        Look {
            velocities,
            allowed: allowed(velocities, limits),
        }
    }

    /// Returns a template at its lowest χ², `row` being χ² at all velocities.
    pub fn lowest(&self, template: usize, row: &[f32]) -> Candidate {
        let inside = &row[self.allowed.clone()];
        let lowest = minimum(inside);
        let at = inside
            .iter()
            .position(|value| *value == lowest)
            .unwrap_or(0);
        self.candidate(template, row, self.allowed.start + at)
    }

    /// Returns the indices of the velocities at which χ² is needed for minima inside the bounds: one more than allowed
    /// at each end. It is empty if only one velocity is allowed, where there is nothing to look for.
    pub fn reach(&self) -> Range<usize> {
        if self.allowed.len() == 1 {
            return 0..0;
        }
        self.allowed.start.saturating_sub(1)..(self.allowed.end + 1).min(self.velocities.len())
    }

    /// Returns a template at all local minima of its χ².
    pub fn minima(&self, template: usize, row: &[f32]) -> Vec<Candidate> {
        let inside = &row[self.allowed.clone()];
        let minima = (0..inside.len()).filter(|at| is_minimum(inside, *at));
        minima
            .map(|at| self.candidate(template, row, self.allowed.start + at))
            .collect()
    }

    /// Returns a template with its χ² at index `at`, and the velocity where the parabola through this and the two
    /// beside it is least.
    fn candidate(&self, template: usize, row: &[f32], at: usize) -> Candidate {
        Candidate {
            template,
            velocity: self.refined(row, 0, at),
            score: row[at],
        }
    }

    /// Computes exact χ² at the velocity nearest to a candidate and its neighbours, and sets its score and velocity to
    /// the minimum.
    pub fn look_closer(&self, candidate: &mut Candidate, units: &[Unit], signals: &[Signals]) {
        // a parabola may lead beyond the bounds
        let best = nearest(self.velocities, candidate.velocity)
            .clamp(self.allowed.start, self.allowed.end - 1);
        // one more to either side, whose score the parabola may ask for
        let near = best.saturating_sub(AROUND + 1)..(best + AROUND + 2).min(self.velocities.len());
        let mut row = vec![0.0; near.len()];
        for (unit, signals) in units.iter().zip(signals) {
            unit.add_exact_scores(candidate.template, signals, near.clone(), &mut row);
            let velocities = &self.velocities[near.clone()];
            row.iter_mut()
                .zip(velocities)
                .for_each(|(score, v)| *score -= unit.unreached(signals, *v));
        }
        let is_near = |at: &usize| at.abs_diff(best) <= AROUND && self.allowed.contains(at);
        let inside = near.clone().zip(&row).filter(|(at, _)| is_near(at));
        if let Some((at, score)) = inside.min_by(|a, b| a.1.total_cmp(b.1)) {
            (candidate.velocity, candidate.score) = (self.refined(&row, near.start, at), *score);
        }
    }

    /// Returns the velocity (km/s) where a parabola through index `at` and its two neighbours is least; `row` begins at
    /// index `first`.
    fn refined(&self, row: &[f32], first: usize, at: usize) -> f64 {
        let v = self.velocities[at];
        if at == first || at + 1 >= first + row.len() {
            return v;
        }
        let [a, b, c] = [at - 1, at, at + 1].map(|at| f64::from(row[at - first]));
        let curvature = a - 2.0 * b + c;
        let offset = if curvature > 0.0 {
            (0.5 * (a - c) / curvature).clamp(-0.5, 0.5)
        } else {
            0.0
        };
        v + offset * 0.5 * (self.velocities[at + 1] - self.velocities[at - 1])
    }
}

/// Returns whether the value at index `at` is below the one before it and not above the one after it.
fn is_minimum(row: &[f32], at: usize) -> bool {
    (at == 0 || row[at] < row[at - 1]) && (at + 1 == row.len() || row[at] <= row[at + 1])
}

/// Returns the least of the values, ignoring NaN; infinity if there is none.
fn minimum(row: &[f32]) -> f32 {
    let lower = |a: f32, b: f32| if b < a { b } else { a };
    let (chunks, rest) = row.as_chunks::<8>();
    let mut lowest = [f32::INFINITY; 8];
    for eight in chunks {
        lowest
            .iter_mut()
            .zip(eight)
            .for_each(|(low, value)| *low = lower(*low, *value));
    }
    lowest
        .iter()
        .chain(rest)
        .fold(f32::INFINITY, |low, value| lower(low, *value))
}

/// Returns the index range of the velocities (km/s) within a spectrum's bounds; the nearest one alone if it has a start
/// or none lies within them; the first one alone without limits, as of a model without velocity.
fn allowed(velocities: &[f64], limits: Option<&Limits>) -> Range<usize> {
    let Some(Limits {
        lower,
        upper,
        start,
        ..
    }) = limits
    else {
        return 0..1;
    };
    let range = (start.unwrap_or(*lower), start.unwrap_or(*upper));
    let below = velocities.partition_point(|v| *v < range.0);
    let end = velocities.partition_point(|v| *v <= range.1);
    if below < end {
        return below..end;
    }
    let one = nearest(velocities, range.0);
    one..one + 1
}

/// Returns the index of the velocity nearest to `velocity` in an ascending list (km/s).
fn nearest(velocities: &[f64], velocity: f64) -> usize {
    let above = velocities.partition_point(|v| *v < velocity);
    let (before, after) = (above.saturating_sub(1), above.min(velocities.len() - 1));
    let distance = |k: usize| (velocities[k] - velocity).abs();
    if distance(before) <= distance(after) {
        before
    } else {
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VELOCITIES: [f64; 5] = [-100.0, -50.0, 0.0, 50.0, 100.0];

    fn within(lower: f64, upper: f64, start: Option<f64>) -> Limits {
        Limits {
            lower,
            upper,
            start,
            prior: None,
        }
    }

    #[test]
    fn bounds_leave_their_velocities_or_the_nearest() {
        let of = |lower, upper, start| allowed(&VELOCITIES, Some(&within(lower, upper, start)));
        assert_eq!(of(-1000.0, 1000.0, None), 0..5);
        assert_eq!(of(-50.0, 60.0, None), 1..4);
        assert_eq!(of(10.0, 20.0, None), 2..3);
        assert_eq!(of(60.0, 70.0, None), 3..4);
        assert_eq!(of(300.0, 400.0, None), 4..5);
        assert_eq!(of(-400.0, -300.0, None), 0..1);
        // a start is the one velocity that counts
        assert_eq!(of(-1000.0, 1000.0, Some(80.0)), 4..5);
        assert_eq!(allowed(&VELOCITIES, None), 0..1);
    }

    #[test]
    fn the_lowest_is_refined_inside_and_stays_at_an_end() {
        let parabola = |least: f64| VELOCITIES.map(|v| ((v - least) / 50.0).powi(2) as f32);
        let all = Look::new(&VELOCITIES, Some(&within(-1000.0, 1000.0, None)));
        let at = |look: &Look, row: &[f32]| {
            let found = look.lowest(7, row);
            assert_eq!(found.template, 7);
            (found.velocity, found.score)
        };
        let (velocity, score) = at(&all, &parabola(12.0));
        assert!(
            (velocity - 12.0).abs() < 1e-3 && score == parabola(12.0)[2],
            "{velocity}"
        );
        assert_eq!(at(&all, &parabola(-120.0)).0, -100.0);
        let few = Look::new(&VELOCITIES, Some(&within(40.0, 1000.0, None)));
        assert!((at(&few, &parabola(12.0)).0 - 50.0).abs() <= 25.0);
        let one = Look::new(&VELOCITIES[..1], None);
        assert_eq!(one.lowest(0, &[3.0]).velocity, -100.0);
    }

    #[test]
    fn all_minima_inside_the_bounds_are_found() {
        let row: Vec<f32> = (0..VELOCITIES.len())
            .map(|at| if at % 2 == 0 { at as f32 } else { 10.0 })
            .collect();
        let scores = |lower, upper| -> Vec<f32> {
            let look = Look::new(&VELOCITIES, Some(&within(lower, upper, None)));
            look.minima(7, &row).iter().map(|one| one.score).collect()
        };
        assert_eq!(scores(-1000.0, 1000.0), [0.0, 2.0, 4.0]);
        // at a bound a neighbour outside does not count
        assert_eq!(scores(-50.0, 50.0), [2.0]);
        assert_eq!(scores(-50.0, -50.0), [10.0]);
        let reach =
            |lower, upper| Look::new(&VELOCITIES, Some(&within(lower, upper, None))).reach();
        assert_eq!(
            (reach(-1000.0, 1000.0), reach(-50.0, 0.0), reach(0.0, 0.0)),
            (0..5, 0..4, 0..0)
        );
    }
}
