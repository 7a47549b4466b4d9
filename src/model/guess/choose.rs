//! Which templates become starts.

use super::look::Candidate;
use crate::model::Limits;

/// Starts are at least this distant from each other.
const DISTINCT: f64 = 0.17;
/// Velocities, km/s, that differ by more are as distant as labels that differ by so much.
const DISTINCT_VELOCITY: f64 = 60.0;
const VELOCITY_DISTANCE: f64 = 0.5;
/// A template competes with the best one if χ² − χ²_best ≤ d (RISE + SHARE E). d is its distance from the nearest start, and E is how far
/// the lines of the best template lower χ². The library is coarse: the template nearest to a minimum may lie that much above it. Both
/// numbers were chosen on 15,000 spectra (`tests/reference/check_minima.py`).
const RISE: f64 = 60.0;
const SHARE: f64 = 0.002;
/// A template lies in the basin of the nearest one that is better, if that is not further away.
const CONNECTED: f64 = 0.25;
/// Starts of one spectrum, at most, where those are wanted that compete.
pub const MOST_COMPETING: usize = 4;

/// How far apart templates are: the largest difference of their labels, as a share of the library's range.
#[derive(Debug)]
pub struct Distances {
    /// (templates) scaled labels of the first arm.
    scaled: Vec<Vec<f64>>,
    /// Of each label over the library.
    ranges: Vec<f64>,
    /// The parameter of each label, where it is one.
    parameters: Vec<Option<usize>>,
}

impl Distances {
    pub fn new(scaled: Vec<Vec<f64>>, parameters: Vec<Option<usize>>) -> Distances {
        let range = |k: usize| {
            let all = scaled.iter().map(|labels| labels[k]);
            all.clone().fold(f64::NEG_INFINITY, f64::max) - all.fold(f64::INFINITY, f64::min)
        };
        let ranges = (0..parameters.len()).map(range).collect();
        Distances { scaled, ranges, parameters }
    }

    /// Of labels that the spectrum does not start elsewhere.
    fn between(&self, a: &Candidate, b: &Candidate, limits: &[Limits]) -> f64 {
        let share = |k: usize| (self.scaled[a.template][k] - self.scaled[b.template][k]).abs() / self.ranges[k];
        let is_open =
            |k: &usize| self.ranges[*k] > 0.0 && self.parameters[*k].is_none_or(|p| limits[p].start.is_none());
        let labels = (0..self.ranges.len()).filter(is_open).map(share).fold(0.0, f64::max);
        if (a.velocity - b.velocity).abs() > DISTINCT_VELOCITY { labels.max(VELOCITY_DISTANCE) } else { labels }
    }

    /// To the nearest of those that are chosen.
    fn nearest(&self, one: &Candidate, chosen: &[Candidate], limits: &[Limits]) -> f64 {
        chosen.iter().map(|other| self.between(one, other, limits)).fold(f64::INFINITY, f64::min)
    }

    /// Adds the first candidates, which are in the order of their scores, that are distinct from all that are chosen, until there are
    /// `count`.
    pub fn choose(&self, candidates: &[Candidate], chosen: &mut Vec<Candidate>, count: usize, limits: &[Limits]) {
        for one in candidates {
            if chosen.len() >= count {
                return;
            }
            if self.nearest(one, chosen, limits) >= DISTINCT {
                chosen.push(one.clone());
            }
        }
    }

    /// The best candidate and those that compete with it: the further apart, the more may χ² rise. `candidates` are in the order of
    /// their scores.
    pub fn competing(&self, candidates: &[Candidate], limits: &[Limits]) -> Vec<Candidate> {
        let Some((best, others)) = candidates.split_first() else { return Vec::new() };
        let least = f64::from(best.score);
        let allowed = RISE - SHARE * least.min(0.0);
        let mut chosen = vec![best.clone()];
        for one in others {
            let (rise, distance) = (f64::from(one.score) - least, self.nearest(one, &chosen, limits));
            if chosen.len() == MOST_COMPETING || rise > allowed {
                break;
            }
            if distance >= DISTINCT && rise <= distance * allowed {
                chosen.push(one.clone());
            }
        }
        chosen
    }

    /// The basins of the first guess in which those that are chosen lie, by the template at the lowest point of each. `candidates` are in
    /// the order of their scores.
    pub fn basins(&self, candidates: &[Candidate], chosen: &[Candidate], limits: &[Limits]) -> Vec<usize> {
        let place = |one: &Candidate| candidates.iter().position(|other| other.template == one.template);
        let places: Vec<usize> = chosen.iter().filter_map(place).collect();
        let mut lowest: Vec<usize> = Vec::new();
        for (k, one) in candidates.iter().enumerate().take(places.iter().max().map_or(0, |last| last + 1)) {
            let better = candidates[..k].iter().map(|other| self.between(one, other, limits)).enumerate();
            let nearest = better.min_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, distance)| *distance <= CONNECTED);
            lowest.push(nearest.map_or(one.template, |(other, _)| lowest[other]));
        }
        places.into_iter().map(|k| lowest[k]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(template: usize, score: f32) -> Candidate {
        Candidate { template, velocity: 0.0, score }
    }

    fn open() -> [Limits; 2] {
        [(); 2].map(|()| Limits { lower: 0.0, upper: 1.0, start: None, prior: None })
    }

    /// Templates 0 to 10 along a label, from 0 to its range's end; the second label is theirs alike.
    fn along() -> Distances {
        Distances::new((0..=10).map(|k| vec![f64::from(k) * 0.3, 7.0]).collect(), vec![Some(0), None])
    }

    #[test]
    fn the_further_apart_the_more_may_a_template_rise() {
        let distances = along();
        let chosen = |scores: &[(usize, f32)], limits: &[Limits]| -> Vec<usize> {
            let candidates: Vec<Candidate> = scores.iter().map(|(k, score)| candidate(*k, *score)).collect();
            distances.competing(&candidates, limits).iter().map(|one| one.template).collect()
        };
        // 60 + 0.002 · 20,000 = 100 over the whole range
        let best = (0, -20_000.0);
        assert_eq!(chosen(&[best, (1, -20_000.0), (2, -19_981.0), (9, -19_931.0)], &open()), [0, 2, 9]);
        assert_eq!(chosen(&[best, (2, -19_979.0), (9, -19_909.0), (10, -19_899.0)], &open()), [0]);
        // where two starts are as far as the third from each other, its distance from the nearer counts
        assert_eq!(chosen(&[best, (8, -19_990.0), (10, -19_950.0)], &open()), [0, 8]);
        assert_eq!(
            chosen(&[best, (10, -20_000.0), (2, -20_000.0), (4, -20_000.0), (6, -20_000.0)], &open()).len(),
            MOST_COMPETING
        );
        // what begins elsewhere does not tell templates apart
        let started = [Limits { start: Some(0.2), ..open()[0] }, open()[1]];
        assert_eq!(chosen(&[best, (10, -20_000.0)], &started), [0]);
    }

    /// Better templates on the way make one basin of two starts; a gap between them leaves two.
    #[test]
    fn basins_are_connected_by_better_templates() {
        let (distances, limits) = (along(), open());
        let basins = |order: &[usize]| -> Vec<usize> {
            let candidates: Vec<Candidate> = order.iter().enumerate().map(|(k, t)| candidate(*t, k as f32)).collect();
            distances.basins(&candidates, &[candidate(0, 0.0), candidate(6, 0.0)], &limits)
        };
        assert_eq!(basins(&[0, 2, 4, 6]), [0, 0]);
        assert_eq!(basins(&[0, 1, 6, 4, 3]), [0, 6]);
        assert_eq!(basins(&[6, 5, 0, 3]), [0, 6]);
    }

    #[test]
    fn so_many_distinct_ones_are_chosen() {
        let (distances, candidates): (_, Vec<Candidate>) =
            (along(), (0..=10).map(|k| candidate(k, k as f32)).collect());
        let mut chosen = Vec::new();
        distances.choose(&candidates, &mut chosen, 4, &open());
        assert_eq!(chosen.iter().map(|one| one.template).collect::<Vec<_>>(), [0, 2, 4, 6]);
        // another velocity is distinct
        let moved = Candidate { velocity: 61.0, ..candidate(0, 0.0) };
        distances.choose(&[moved], &mut chosen, 5, &open());
        assert_eq!(chosen.len(), 5);
    }
}
