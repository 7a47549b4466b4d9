//! Choice of the templates that become starts.

use super::effects::measure_label_effects;
use super::look::Candidate;
use crate::model::ParameterLimits;

/// Smallest distance between starts.
const MIN_START_DISTANCE: f64 = 0.17;
/// Difference of velocities, in km/s, above which two templates are at least [`VELOCITY_DISTANCE`] apart.
const DISTINCT_VELOCITY: f64 = 60.0;
/// Smallest distance between templates at distinct velocities.
const VELOCITY_DISTANCE: f64 = 0.5;

/// Rule by which templates compete with the best one: if χ² − χ²_best ≤ d (rise + share E). d is a template's distance
/// from the nearest start, and E is the reduction of χ² by the lines of the best template. The library is coarse: the
/// template nearest to a minimum may lie that much above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Competition {
    /// Maximum number of starts of one spectrum.
    pub max_starts: usize,
    pub rise: f64,
    pub share: f64,
}

impl Competition {
    /// Both numbers were chosen on 15,000 spectra (`tests/reference/check_minima.py`).
    pub const USUAL: Competition = Competition {
        max_starts: MOST_COMPETING,
        rise: 50.0,
        share: 0.003,
    };
}

/// Share of the largest effect on the lines from which on a label counts in full. A label with a smaller effect counts
/// in proportion, because starts whose lines hardly differ end at one minimum.
const FULL_WEIGHT_EFFECT: f64 = 0.2;
/// Largest distance at which a template lies in the basin of the nearest better one.
const MAX_BASIN_STEP: f64 = 0.25;
/// Maximum number of competing starts of a usual spectrum.
pub const MOST_COMPETING: usize = 4;

/// Distances between templates: the largest difference of their labels, as a share of the library's range. A label that
/// changes the lines little counts less.
#[derive(Debug)]
pub struct Distances {
    /// (templates, labels) Labels of the first arm as shares of their ranges over the library; 0 where they have none.
    labels: Vec<Vec<f64>>,
    /// (labels) Weights of the differences, 0 to 1.
    weights: Vec<f64>,
    /// The parameter of each label; none for a fixed or a tied one.
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
            let values = labels.iter().map(|labels| labels[k]);
            let lowest = values.clone().fold(f64::INFINITY, f64::min);
            let highest = values.fold(f64::NEG_INFINITY, f64::max);
            let range = highest - lowest;
            for labels in &mut labels {
                labels[k] = if range > 0.0 { labels[k] / range } else { 0.0 };
            }
        }
        let weights = measure_label_effects(&labels, lines)
            .into_iter()
            .map(|effect| (effect / FULL_WEIGHT_EFFECT).min(1.0))
            .collect();
        Distances {
            labels,
            weights,
            parameters,
        }
    }

    /// Returns the distance of two candidates: the largest weighted difference of labels without a given start, at
    /// least 0.5 if velocities differ by more than 60 km/s.
    fn measure(&self, a: &Candidate, b: &Candidate, limits: &[ParameterLimits]) -> f64 {
        let a_labels = &self.labels[a.template];
        let b_labels = &self.labels[b.template];
        let mut distance = 0.0f64;
        for (k, weight) in self.weights.iter().enumerate() {
            let has_start = self.parameters[k].is_some_and(|p| limits[p].start.is_some());
            if !has_start {
                distance = distance.max(weight * (a_labels[k] - b_labels[k]).abs());
            }
        }
        if (a.velocity - b.velocity).abs() > DISTINCT_VELOCITY {
            distance.max(VELOCITY_DISTANCE)
        } else {
            distance
        }
    }

    /// Returns the distance of a candidate to the nearest one in `chosen`; infinite if `chosen` is empty.
    fn distance_to_nearest(
        &self,
        candidate: &Candidate,
        chosen: &[Candidate],
        limits: &[ParameterLimits],
    ) -> f64 {
        chosen
            .iter()
            .map(|start| self.measure(candidate, start, limits))
            .fold(f64::INFINITY, f64::min)
    }

    /// Appends candidates, in their order, to `chosen` if they are at least 0.17 distant from all in it, until it has
    /// `count`.
    pub fn choose_distinct(
        &self,
        candidates: &[Candidate],
        chosen: &mut Vec<Candidate>,
        count: usize,
        limits: &[ParameterLimits],
    ) {
        for candidate in candidates {
            if chosen.len() >= count {
                return;
            }
            if self.distance_to_nearest(candidate, chosen, limits) >= MIN_START_DISTANCE {
                chosen.push(candidate.clone());
            }
        }
    }

    /// Returns the best candidate and those that compete with it: the χ² of a more distant one may be higher.
    /// `candidates` are in the order of their scores. The one with the least rise per distance comes first.
    pub fn choose_competing(
        &self,
        candidates: &[Candidate],
        rule: Competition,
        limits: &[ParameterLimits],
    ) -> Vec<Candidate> {
        let Some((best, others)) = candidates.split_first() else {
            return Vec::new();
        };
        // 1. No distance exceeds 1, so a candidate that rises by more than the rule allows there cannot compete.
        let lowest = f64::from(best.score);
        let rise = |candidate: &Candidate| f64::from(candidate.score) - lowest;
        let max_slope = rule.rise - rule.share * lowest.min(0.0);
        let others = &others[..others.partition_point(|candidate| rise(candidate) <= max_slope)];
        // 2. Add the candidate with the least rise per distance from the nearest start, until none competes.
        let mut chosen = vec![best.clone()];
        let mut distances = vec![f64::INFINITY; others.len()];
        while chosen.len() < rule.max_starts {
            // Only the start that was chosen last may be nearer than those before it.
            let newest = &chosen[chosen.len() - 1];
            for (distance, candidate) in distances.iter_mut().zip(others) {
                *distance = distance.min(self.measure(candidate, newest, limits));
            }
            let slopes = distances
                .iter()
                .zip(others)
                .filter(|(distance, _)| **distance >= MIN_START_DISTANCE)
                .map(|(distance, candidate)| (rise(candidate) / distance, candidate));
            match slopes.min_by(|a, b| a.0.total_cmp(&b.0)) {
                Some((slope, next)) if slope <= max_slope => chosen.push(next.clone()),
                _ => break,
            }
        }
        chosen
    }

    /// Follows a chain of near, ever better candidates from each chosen one, and returns the indices in `candidates`
    /// where the chains end: the local minima of χ². `candidates` are in the order of their scores.
    pub fn find_basins(
        &self,
        candidates: &[Candidate],
        chosen: &[Candidate],
        limits: &[ParameterLimits],
    ) -> Vec<usize> {
        let mut basins = Vec::with_capacity(chosen.len());
        for start in chosen {
            let index = candidates.iter().position(|candidate| {
                candidate.template == start.template && candidate.velocity == start.velocity
            });
            let Some(mut lowest) = index else {
                continue;
            };
            while let Some(better) = self.nearest_better(candidates, lowest, limits) {
                lowest = better;
            }
            basins.push(lowest);
        }
        basins
    }

    /// Returns the index of the candidate nearest to the one at `index` among those before it, which are better, if it
    /// is not further away than [`MAX_BASIN_STEP`].
    fn nearest_better(
        &self,
        candidates: &[Candidate],
        index: usize,
        limits: &[ParameterLimits],
    ) -> Option<usize> {
        let (nearest, distance) = candidates[..index]
            .iter()
            .map(|better| self.measure(&candidates[index], better, limits))
            .enumerate()
            .min_by(|a, b| a.1.total_cmp(&b.1))?;
        (distance <= MAX_BASIN_STEP).then_some(nearest)
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

    fn limits_without_starts() -> [ParameterLimits; 2] {
        [(); 2].map(|()| ParameterLimits {
            lower: 0.0,
            upper: 1.0,
            start: None,
            prior: None,
        })
    }

    /// Templates 0 to 10, evenly spaced over the range of the first label. The second label is the same for all.
    fn templates_along_a_label() -> Distances {
        let lines: Vec<f32> = (0..=10).flat_map(|k| [k as f32, 2.0 * k as f32]).collect();
        Distances::new(
            (0..=10).map(|k| vec![f64::from(k) * 0.3, 7.0]).collect(),
            vec![Some(0), None],
            &[&lines],
        )
    }

    /// A label that changes the lines a twentieth as much as another has a quarter of the weight.
    #[test]
    fn labels_with_little_effect_make_little_distance() {
        let labels: Vec<Vec<f64>> = (0..20)
            .map(|k| vec![f64::from(k), f64::from(7 * k % 20)])
            .collect();
        let lines: Vec<f32> = labels
            .iter()
            .flat_map(|x| [x[0] as f32, (x[1] / 20.0) as f32])
            .collect();
        let distances = Distances::new(labels, vec![Some(0), Some(1)], &[&lines]);
        // Templates 0 and 17 have the labels (0, 0) and (17, 19)
        let distance = |a, b, limits: &[ParameterLimits]| {
            distances.measure(&candidate(a, 0.0), &candidate(b, 0.0), limits)
        };
        assert!((distance(0, 17, &limits_without_starts()) - 17.0 / 19.0).abs() < 1e-6);
        let first_has_start = [
            ParameterLimits {
                start: Some(0.2),
                ..limits_without_starts()[0]
            },
            limits_without_starts()[1],
        ];
        assert!(
            (distance(0, 17, &first_has_start) - 0.25).abs() < 1e-3,
            "{}",
            distance(0, 17, &first_has_start)
        );
    }

    #[test]
    fn the_allowed_rise_grows_with_the_distance() {
        let distances = templates_along_a_label();
        let chosen = |scores: &[(usize, f32)], limits: &[ParameterLimits]| -> Vec<usize> {
            let candidates: Vec<Candidate> = scores
                .iter()
                .map(|(k, score)| candidate(*k, *score))
                .collect();
            distances
                .choose_competing(&candidates, Competition::USUAL, limits)
                .iter()
                .map(|start| start.template)
                .collect()
        };
        // The rise may be 50 + 0.003 · 20,000 = 110 over the whole range.
        let best = (0, -20_000.0);
        assert_eq!(
            chosen(
                &[best, (1, -20_000.0), (2, -19_981.0), (9, -19_931.0)],
                &limits_without_starts()
            ),
            [0, 9, 2]
        );
        assert_eq!(
            chosen(
                &[best, (2, -19_975.0), (9, -19_891.0), (10, -19_879.0)],
                &limits_without_starts()
            ),
            [0]
        );
        // The distance from the nearer start counts.
        assert_eq!(
            chosen(
                &[best, (8, -19_990.0), (10, -19_950.0)],
                &limits_without_starts()
            ),
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
                &limits_without_starts()
            )
            .len(),
            MOST_COMPETING
        );
        // A label with a given start does not count.
        let started = [
            ParameterLimits {
                start: Some(0.2),
                ..limits_without_starts()[0]
            },
            limits_without_starts()[1],
        ];
        assert_eq!(chosen(&[best, (10, -20_000.0)], &started), [0]);
    }

    /// Two starts share a basin if better templates connect them; a gap between them leaves two basins.
    #[test]
    fn basins_are_connected_by_better_templates() {
        let distances = templates_along_a_label();
        let limits = limits_without_starts();
        let basins = |order: &[usize]| -> Vec<usize> {
            let candidates: Vec<Candidate> = order
                .iter()
                .enumerate()
                .map(|(k, template)| candidate(*template, k as f32))
                .collect();
            distances.find_basins(
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
    fn distinct_candidates_are_chosen_up_to_the_count() {
        let distances = templates_along_a_label();
        let candidates: Vec<Candidate> = (0..=10).map(|k| candidate(k, k as f32)).collect();
        let mut chosen = Vec::new();
        distances.choose_distinct(&candidates, &mut chosen, 4, &limits_without_starts());
        assert_eq!(
            chosen
                .iter()
                .map(|start| start.template)
                .collect::<Vec<_>>(),
            [0, 2, 4, 6]
        );
        // A candidate at another velocity is distinct.
        let moved = Candidate {
            velocity: 61.0,
            ..candidate(0, 0.0)
        };
        distances.choose_distinct(&[moved], &mut chosen, 5, &limits_without_starts());
        assert_eq!(chosen.len(), 5);
    }
}
