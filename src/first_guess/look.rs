//! Search of one spectrum's velocity: the velocities at which templates may lie, and the minima of χ² over them.

use std::cmp::Ordering;
use std::ops::Range;

use super::bins::Signals;
use super::unit::TemplateSegment;
use crate::model::ParameterLimits;

/// Number of velocities to either side of the nearest one to which exact scores may move a template.
const REFINED_NEIGHBOURS: usize = 1;

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

/// The velocities of bins of one width, of which a spectrum's bounds allow a range.
pub struct VelocitySearch<'a> {
    /// km/s
    velocities: &'a [f64],
    /// Range of the velocities inside the spectrum's bounds.
    allowed: Range<usize>,
}

impl<'a> VelocitySearch<'a> {
    /// Finds which of `velocities` (km/s) lie within the velocity's `limits` or nearest its start; `None` for a fixed
    /// velocity.
    pub fn new(velocities: &'a [f64], limits: Option<&ParameterLimits>) -> VelocitySearch<'a> {
        VelocitySearch {
            velocities,
            allowed: allowed_velocities(velocities, limits),
        }
    }

    /// Returns a template at its lowest χ², `row` being χ² at all velocities.
    pub fn find_lowest(&self, template: usize, row: &[f32]) -> Candidate {
        let allowed_row = &row[self.allowed.clone()];
        let lowest = minimum(allowed_row);
        let index = allowed_row
            .iter()
            .position(|value| *value == lowest)
            .unwrap_or(0);
        self.candidate_at(template, row, self.allowed.start + index)
    }

    /// Returns the indices of the velocities at which χ² is needed for minima inside the bounds: one more than allowed
    /// at each end. The range is empty if only one velocity is allowed, because there is no minimum to find.
    pub fn scanned_range(&self) -> Range<usize> {
        if self.allowed.len() == 1 {
            return 0..0;
        }
        self.allowed.start.saturating_sub(1)..(self.allowed.end + 1).min(self.velocities.len())
    }

    /// Returns a template at all local minima of its χ².
    pub fn find_minima(&self, template: usize, row: &[f32]) -> Vec<Candidate> {
        let allowed_row = &row[self.allowed.clone()];
        (0..allowed_row.len())
            .filter(|&index| is_local_minimum(allowed_row, index))
            .map(|index| self.candidate_at(template, row, self.allowed.start + index))
            .collect()
    }

    /// Returns a template with its χ² at a velocity's index, and the velocity at the vertex of the parabola through
    /// this and the two neighbouring values.
    fn candidate_at(&self, template: usize, row: &[f32], index: usize) -> Candidate {
        Candidate {
            template,
            velocity: self.parabola_vertex(row, 0, index),
            score: row[index],
        }
    }

    /// Computes exact χ² at the velocity nearest to a candidate and its neighbours, and sets its score and velocity to
    /// the minimum.
    pub fn refine_by_exact_scores(
        &self,
        candidate: &mut Candidate,
        segments: &[TemplateSegment],
        signals: &[Signals],
    ) {
        // 1. Score the nearest allowed velocity (a parabola may have led beyond the bounds) and its neighbours. The
        //    parabola needs one velocity more to either side.
        let nearest = nearest_velocity(self.velocities, candidate.velocity)
            .clamp(self.allowed.start, self.allowed.end - 1);
        let first = nearest.saturating_sub(REFINED_NEIGHBOURS + 1);
        let end = (nearest + REFINED_NEIGHBOURS + 2).min(self.velocities.len());
        let mut scores = vec![0.0; end - first];
        for (segment, signals) in segments.iter().zip(signals) {
            segment.add_exact_scores(candidate.template, signals, first..end, &mut scores);
            for (score, velocity) in scores.iter_mut().zip(&self.velocities[first..end]) {
                *score -= segment.uncovered_misfit(signals, *velocity);
            }
        }
        // 2. Move to the lowest score among the allowed neighbours.
        let allowed_scores = (first..end).zip(&scores).filter(|(index, _)| {
            index.abs_diff(nearest) <= REFINED_NEIGHBOURS && self.allowed.contains(index)
        });
        if let Some((index, score)) = allowed_scores.min_by(|a, b| a.1.total_cmp(b.1)) {
            candidate.velocity = self.parabola_vertex(&scores, first, index);
            candidate.score = *score;
        }
    }

    /// Returns the velocity (km/s) at the vertex of the parabola through the values at `index` and its two neighbours;
    /// `row` begins at index `first`. At an end of `row`, or without curvature, this is the velocity at `index`.
    fn parabola_vertex(&self, row: &[f32], first: usize, index: usize) -> f64 {
        let velocity = self.velocities[index];
        if index == first || index + 1 >= first + row.len() {
            return velocity;
        }
        let [before, middle, after] =
            [index - 1, index, index + 1].map(|k| f64::from(row[k - first]));
        let curvature = before - 2.0 * middle + after;
        let offset = if curvature > 0.0 {
            (0.5 * (before - after) / curvature).clamp(-0.5, 0.5)
        } else {
            0.0
        };
        velocity + offset * 0.5 * (self.velocities[index + 1] - self.velocities[index - 1])
    }
}

/// Returns whether the value at an index is below the one before it and not above the one after it.
fn is_local_minimum(row: &[f32], index: usize) -> bool {
    let is_below_previous = index == 0 || row[index] < row[index - 1];
    is_below_previous && (index + 1 == row.len() || row[index] <= row[index + 1])
}

/// Returns the least of the values, ignoring NaN; infinity if there is none.
fn minimum(row: &[f32]) -> f32 {
    let lower = |a: f32, b: f32| if b < a { b } else { a };
    let (chunks, rest) = row.as_chunks::<8>();
    let mut lowest = [f32::INFINITY; 8];
    for chunk in chunks {
        lowest
            .iter_mut()
            .zip(chunk)
            .for_each(|(low, value)| *low = lower(*low, *value));
    }
    lowest
        .iter()
        .chain(rest)
        .fold(f32::INFINITY, |low, value| lower(low, *value))
}

/// Returns the index range of the velocities (km/s) within a spectrum's bounds; the nearest one alone if it has a start
/// or none lies within them; the first one alone without limits, as for a model without velocity.
fn allowed_velocities(velocities: &[f64], limits: Option<&ParameterLimits>) -> Range<usize> {
    let Some(limits) = limits else {
        return 0..1;
    };
    let lowest = limits.start.unwrap_or(limits.lower);
    let highest = limits.start.unwrap_or(limits.upper);
    let begin = velocities.partition_point(|v| *v < lowest);
    let end = velocities.partition_point(|v| *v <= highest);
    if begin < end {
        return begin..end;
    }
    let nearest = nearest_velocity(velocities, lowest);
    nearest..nearest + 1
}

/// Returns the index of the velocity nearest to `velocity` in an ascending list (km/s).
fn nearest_velocity(velocities: &[f64], velocity: f64) -> usize {
    let above = velocities.partition_point(|v| *v < velocity);
    let before = above.saturating_sub(1);
    let after = above.min(velocities.len() - 1);
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

    fn within(lower: f64, upper: f64, start: Option<f64>) -> ParameterLimits {
        ParameterLimits {
            lower,
            upper,
            start,
            prior: None,
        }
    }

    #[test]
    fn allowed_velocities_lie_inside_the_bounds_or_nearest_to_them() {
        let allowed = |lower, upper, start| {
            allowed_velocities(&VELOCITIES, Some(&within(lower, upper, start)))
        };
        assert_eq!(allowed(-1000.0, 1000.0, None), 0..5);
        assert_eq!(allowed(-50.0, 60.0, None), 1..4);
        assert_eq!(allowed(10.0, 20.0, None), 2..3);
        assert_eq!(allowed(60.0, 70.0, None), 3..4);
        assert_eq!(allowed(300.0, 400.0, None), 4..5);
        assert_eq!(allowed(-400.0, -300.0, None), 0..1);
        // With a start, the nearest velocity alone is allowed.
        assert_eq!(allowed(-1000.0, 1000.0, Some(80.0)), 4..5);
        assert_eq!(allowed_velocities(&VELOCITIES, None), 0..1);
    }

    #[test]
    fn the_lowest_velocity_is_refined_inside_and_stays_at_an_end() {
        let parabola = |vertex: f64| VELOCITIES.map(|v| ((v - vertex) / 50.0).powi(2) as f32);
        let find_lowest = |search: &VelocitySearch, row: &[f32]| {
            let lowest = search.find_lowest(7, row);
            assert_eq!(lowest.template, 7);
            (lowest.velocity, lowest.score)
        };
        let wide = VelocitySearch::new(&VELOCITIES, Some(&within(-1000.0, 1000.0, None)));
        let (velocity, score) = find_lowest(&wide, &parabola(12.0));
        assert!(
            (velocity - 12.0).abs() < 1e-3 && score == parabola(12.0)[2],
            "{velocity}"
        );
        assert_eq!(find_lowest(&wide, &parabola(-120.0)).0, -100.0);
        let bounded = VelocitySearch::new(&VELOCITIES, Some(&within(40.0, 1000.0, None)));
        assert!((find_lowest(&bounded, &parabola(12.0)).0 - 50.0).abs() <= 25.0);
        let fixed = VelocitySearch::new(&VELOCITIES[..1], None);
        assert_eq!(fixed.find_lowest(0, &[3.0]).velocity, -100.0);
    }

    #[test]
    fn all_minima_inside_the_bounds_are_found() {
        let row: Vec<f32> = (0..VELOCITIES.len())
            .map(|k| if k % 2 == 0 { k as f32 } else { 10.0 })
            .collect();
        let scores = |lower, upper| -> Vec<f32> {
            let search = VelocitySearch::new(&VELOCITIES, Some(&within(lower, upper, None)));
            let minima = search.find_minima(7, &row);
            minima.iter().map(|candidate| candidate.score).collect()
        };
        assert_eq!(scores(-1000.0, 1000.0), [0.0, 2.0, 4.0]);
        // A neighbour outside of a bound does not count.
        assert_eq!(scores(-50.0, 50.0), [2.0]);
        assert_eq!(scores(-50.0, -50.0), [10.0]);
        let scanned_range = |lower, upper| {
            VelocitySearch::new(&VELOCITIES, Some(&within(lower, upper, None))).scanned_range()
        };
        assert_eq!(
            (
                scanned_range(-1000.0, 1000.0),
                scanned_range(-50.0, 0.0),
                scanned_range(0.0, 0.0)
            ),
            (0..5, 0..4, 0..0)
        );
    }
}
