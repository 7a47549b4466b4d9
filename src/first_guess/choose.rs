//! Choice of the templates that become starts.

use super::effects::effects;
use super::look::Candidate;
use crate::model::Limits;

/// Starts are at least this distant from each other.
const DISTINCT: f64 = 0.17;
/// Velocities, km/s, that differ by more are as distant as labels that differ by so much.
const DISTINCT_VELOCITY: f64 = 60.0;
const VELOCITY_DISTANCE: f64 = 0.5;
/// Rule by which templates compete with the best one: if χ² − χ²_best ≤ d (rise + share E). d is a template's distance
/// from the nearest start, and E is how far the lines of the best template lower χ². The library is coarse: the
/// template nearest to a minimum may lie that much above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Competition {
    /// Starts of one spectrum, at most.
    pub most: usize,
    pub rise: f64,
    pub share: f64,
}

impl Competition {
    /// Both numbers were chosen on 15,000 spectra (`tests/reference/check_minima.py`).
    pub const USUAL: Competition = Competition {
        most: MOST_COMPETING,
        rise: 50.0,
        share: 0.003,
    };
}

/// A label that over its range changes the lines by this share of what the most telling one does counts in full; one
/// that changes them less counts less, in proportion. Starts that differ in little that the lines show end at one
/// minimum.
const TELLING: f64 = 0.2;
/// A template lies in the basin of the nearest one that is better, if that is not further away.
const CONNECTED: f64 = 0.25;
/// Maximum number of competing starts of a usual spectrum.
pub const MOST_COMPETING: usize = 4;

/// Distances between templates: the largest difference of their labels, as a share of the library's range. A label that
/// changes the lines little counts less.
#[derive(Debug)]
pub struct Distances {
    /// (templates, labels) Labels of the first arm as shares of their ranges over the library; 0 where they have none.
    labels: Vec<Vec<f64>>,
    /// (labels) How much a difference of each counts, 0 to 1.
    weights: Vec<f64>,
    /// The parameter of each label, where it is one.
    parameters: Vec<Option<usize>>,
}

impl Distances {
    /// Scales each label by its range over the templates, and weights it by how much it changes their spectral lines.
    pub fn new(
        mut labels: Vec<Vec<f64>>,
        parameters: Vec<Option<usize>>,
        lines: &[&[f32]],
    ) -> Distances {
        for k in 0..parameters.len() {
            let all = labels.iter().map(|labels| labels[k]);
            let range =
                all.clone().fold(f64::NEG_INFINITY, f64::max) - all.fold(f64::INFINITY, f64::min);
            labels
                .iter_mut()
                .for_each(|labels| labels[k] = if range > 0.0 { labels[k] / range } else { 0.0 });
        }
        let weights = effects(&labels, lines)
            .into_iter()
            .map(|effect| (effect / TELLING).min(1.0))
            .collect();
        Distances {
            labels,
            weights,
            parameters,
        }
    }

    /// Returns the distance of two candidates: the largest weighted label difference, at least 0.5 if velocities differ
    /// by 60 km/s.
    fn between(&self, a: &Candidate, b: &Candidate, limits: &[Limits]) -> f64 {
        let [of_a, of_b] = [a, b].map(|one| &self.labels[one.template]);
        let share = |k: usize| self.weights[k] * (of_a[k] - of_b[k]).abs();
        let is_open = |k: &usize| self.parameters[*k].is_none_or(|p| limits[p].start.is_none());
        let labels = (0..self.weights.len())
            .filter(is_open)
            .map(share)
            .fold(0.0, f64::max);
        if (a.velocity - b.velocity).abs() > DISTINCT_VELOCITY {
            labels.max(VELOCITY_DISTANCE)
        } else {
            labels
        }
    }

    /// Returns the distance of a candidate to the nearest one in `chosen`; infinite if `chosen` is empty.
    fn nearest(&self, one: &Candidate, chosen: &[Candidate], limits: &[Limits]) -> f64 {
        chosen
            .iter()
            .map(|other| self.between(one, other, limits))
            .fold(f64::INFINITY, f64::min)
    }

    /// Appends candidates, in their order, to `chosen` if they are at least 0.17 distant from all in it, until it has
    /// `count`.
    pub fn choose(
        &self,
        candidates: &[Candidate],
        chosen: &mut Vec<Candidate>,
        count: usize,
        limits: &[Limits],
    ) {
        for one in candidates {
            if chosen.len() >= count {
                return;
            }
            if self.nearest(one, chosen, limits) >= DISTINCT {
                chosen.push(one.clone());
            }
        }
    }

    /// Returns the best candidate and those that compete with it: the more distant, the more its χ² may be higher.
    /// `candidates` are in the order of their scores. The one that rises least for its distance comes first.
    pub fn competing(
        &self,
        candidates: &[Candidate],
        rule: Competition,
        limits: &[Limits],
    ) -> Vec<Candidate> {
        let Some((best, others)) = candidates.split_first() else {
            return Vec::new();
        };
        let least = f64::from(best.score);
        let rise = |one: &Candidate| f64::from(one.score) - least;
        let allowed = rule.rise - rule.share * least.min(0.0);
        let others = &others[..others.partition_point(|one| rise(one) <= allowed)];
        let mut chosen = vec![best.clone()];
        let mut distances = vec![f64::INFINITY; others.len()];
        while chosen.len() < rule.most {
            // only the last start may be nearer than those before it
            let last = &chosen[chosen.len() - 1];
            for (distance, one) in distances.iter_mut().zip(others) {
                *distance = distance.min(self.between(one, last, limits));
            }
            let distant = distances
                .iter()
                .zip(others)
                .filter(|(distance, _)| **distance >= DISTINCT);
            let slopes = distant.map(|(distance, one)| (rise(one) / distance, one));
            let Some((slope, next)) = slopes.min_by(|a, b| a.0.total_cmp(&b.0)) else {
                break;
            };
            if slope > allowed {
                break;
            }
            chosen.push(next.clone());
        }
        chosen
    }

    /// Follows a chain of near, ever better candidates from each chosen one, and returns the indices in `candidates`
    /// where the chains end: the local minima of χ². `candidates` are in the order of their scores.
    pub fn basins(
        &self,
        candidates: &[Candidate],
        chosen: &[Candidate],
        limits: &[Limits],
    ) -> Vec<usize> {
        let is_same =
            |a: &Candidate, b: &Candidate| a.template == b.template && a.velocity == b.velocity;
        let place = |one: &Candidate| candidates.iter().position(|other| is_same(one, other));
        let better = |k: usize| {
            let distances = candidates[..k]
                .iter()
                .map(|other| self.between(&candidates[k], other, limits))
                .enumerate();
            let nearest = distances.min_by(|a, b| a.1.total_cmp(&b.1));
            nearest
                .filter(|(_, distance)| *distance <= CONNECTED)
                .map(|(other, _)| other)
        };
        let lowest = |mut k: usize| {
            while let Some(next) = better(k) {
                k = next;
            }
            k
        };
        chosen.iter().filter_map(place).map(lowest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(template: usize, score: f32) -> Candidate {
        Candidate {
            template,
            velocity: 0.0,
            score,
        }
    }

    fn open() -> [Limits; 2] {
        [(); 2].map(|()| Limits {
            lower: 0.0,
            upper: 1.0,
            start: None,
            prior: None,
        })
    }

    /// Templates 0 to 10 along a label, from 0 to its range's end; the second label is theirs alike.
    fn along() -> Distances {
        let lines: Vec<f32> = (0..=10).flat_map(|k| [k as f32, 2.0 * k as f32]).collect();
        Distances::new(
            (0..=10).map(|k| vec![f64::from(k) * 0.3, 7.0]).collect(),
            vec![Some(0), None],
            &[&lines],
        )
    }

    /// A label that changes the lines a twentieth as much as another counts a quarter of what it would.
    #[test]
    fn labels_that_change_little_make_little_distance() {
        let labels: Vec<Vec<f64>> = (0..20)
            .map(|k| vec![f64::from(k), f64::from(7 * k % 20)])
            .collect();
        let lines: Vec<f32> = labels
            .iter()
            .flat_map(|x| [x[0] as f32, (x[1] / 20.0) as f32])
            .collect();
        let distances = Distances::new(labels, vec![Some(0), Some(1)], &[&lines]);
        // templates 0 and 17 have the labels (0, 0) and (17, 19)
        let between = |a, b, limits: &[Limits]| {
            distances.between(&candidate(a, 0.0), &candidate(b, 0.0), limits)
        };
        assert!((between(0, 17, &open()) - 17.0 / 19.0).abs() < 1e-6);
        let first_is_said = [
            Limits {
                start: Some(0.2),
                ..open()[0]
            },
            open()[1],
        ];
        assert!(
            (between(0, 17, &first_is_said) - 0.25).abs() < 1e-3,
            "{}",
            between(0, 17, &first_is_said)
        );
    }

    #[test]
    fn the_further_apart_the_more_may_a_template_rise() {
        let distances = along();
        let chosen = |scores: &[(usize, f32)], limits: &[Limits]| -> Vec<usize> {
            let candidates: Vec<Candidate> = scores
                .iter()
                .map(|(k, score)| candidate(*k, *score))
                .collect();
            distances
                .competing(&candidates, Competition::USUAL, limits)
                .iter()
                .map(|one| one.template)
                .collect()
        };
        // 50 + 0.003 · 20,000 = 110 over the whole range
        let best = (0, -20_000.0);
        assert_eq!(
            chosen(
                &[best, (1, -20_000.0), (2, -19_981.0), (9, -19_931.0)],
                &open()
            ),
            [0, 9, 2]
        );
        assert_eq!(
            chosen(
                &[best, (2, -19_975.0), (9, -19_891.0), (10, -19_879.0)],
                &open()
            ),
            [0]
        );
        // where two starts are as far as the third from each other, its distance from the nearer counts
        assert_eq!(
            chosen(&[best, (8, -19_990.0), (10, -19_950.0)], &open()),
            [0, 8]
        );
        assert_eq!(
            chosen(
                &[
                    best,
                    (10, -20_000.0),
                    (2, -20_000.0),
                    (4, -20_000.0),
                    (6, -20_000.0)
                ],
                &open()
            )
            .len(),
            MOST_COMPETING
        );
        // what begins elsewhere does not tell templates apart
        let started = [
            Limits {
                start: Some(0.2),
                ..open()[0]
            },
            open()[1],
        ];
        assert_eq!(chosen(&[best, (10, -20_000.0)], &started), [0]);
    }

    /// Better templates on the way make one basin of two starts; a gap between them leaves two.
    #[test]
    fn basins_are_connected_by_better_templates() {
        let (distances, limits) = (along(), open());
        let basins = |order: &[usize]| -> Vec<usize> {
            let candidates: Vec<Candidate> = order
                .iter()
                .enumerate()
                .map(|(k, t)| candidate(*t, k as f32))
                .collect();
            distances.basins(
                &candidates,
                &[candidate(0, 0.0), candidate(6, 0.0)],
                &limits,
            )
        };
        assert_eq!(basins(&[0, 2, 4, 6]), [0, 0]);
        assert_eq!(basins(&[0, 1, 6, 4, 3]), [0, 2]);
        assert_eq!(basins(&[6, 5, 0, 3]), [2, 0]);
    }

    #[test]
    fn so_many_distinct_ones_are_chosen() {
        let (distances, candidates): (_, Vec<Candidate>) =
            (along(), (0..=10).map(|k| candidate(k, k as f32)).collect());
        let mut chosen = Vec::new();
        distances.choose(&candidates, &mut chosen, 4, &open());
        assert_eq!(
            chosen.iter().map(|one| one.template).collect::<Vec<_>>(),
            [0, 2, 4, 6]
        );
        // another velocity is distinct
        let moved = Candidate {
            velocity: 61.0,
            ..candidate(0, 0.0)
        };
        distances.choose(&[moved], &mut chosen, 5, &open());
        assert_eq!(chosen.len(), 5);
    }
}
