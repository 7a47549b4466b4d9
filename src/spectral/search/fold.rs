//! Search for a second minimum beyond a fold of the cost.
//!
//! Some templates depend on a label so weakly that the spectrum turns back on itself when that label grows. The cost
//! then has a minimum on either side of this *fold*, and the normal matrix A at one minimum does not show the other
//! one. We therefore check fits that end near a fold of the templates (`first_guess/folds.rs`). A fit that ended in the
//! wrong minimum often took many rounds, because its path led through a bent valley, so we probe more points around
//! such a fit. We move each label p alone by δ, and compare the rise of the cost F with that of the quadratic model:
//!
//! ```text
//! ρ = (F(u + δ e_p) − F(u)) / (δ² A_pp − 2 δ g_p).
//! ```
//!
//! ρ is about 1 where there is no fold, and near 0 where the template has turned back. One more start then begins
//! there.
//!
//! Of `synb` fits a fifth are checked, and about 1 % get such a start. Checks and starts depend on one spectrum alone.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::error::Result;
use crate::first_guess::{Fold, Start, physical_labels};
use crate::math::triangle::packed_index;
use crate::model::{ModelArm, ParameterLimits, SpectralModel};
use crate::solver::basin::LEAST_RISE;
use crate::solver::{Outcome, Status};
use crate::spectral::input::ready::{Monitor, ReadySpectra, ReadySpectrum};
use crate::spectral::search::again::MoreStarts;
use crate::spectral::search::solve::{SpectralPasses, find_winner};

/// Level of scrutiny at which a fit is checked for folds.
struct Scrutiny {
    /// Smallest number of rounds of a fit that is checked at this level.
    min_rounds: u32,
    /// Distances by which a label is moved to either side, as shares of the distance between its bounds.
    distances: &'static [f64],
    /// Relative effects of the labels that are moved. The effect of a label is δ² A_pp for a move δ over its whole
    /// range, and its relative effect is the ratio to the largest effect of all labels. A label with a smaller effect
    /// makes no second minimum, and the label with the largest effect has no fold.
    effects: Range<f64>,
    /// Upper limit of ρ for a point that becomes a start.
    max_rho: f64,
}

/// Levels of scrutiny, that of the most rounds first.
///
/// If the fold lies in the middle between two minima at a distance Δ, then ρ = (1 − δ / Δ)². A probe at δ therefore
/// detects minima at δ/1.55 to δ/0.45 if ρ is below 0.3, and at δ/1.39 to δ/0.61 if it is below 0.15. Together, the
/// distances of each level detect minima at 0.065 to 0.88, 0.086 to 0.41, and 0.13 to 0.3 of the range.
///
/// Of `synb` fits 2.5 % take seven rounds or more, 3 % six, and 7 % five. Of 245,760 fits with six seeds of the
/// library, some fifteen ended on the wrong side of a fold of logg, at 0.13 to 0.32 of its range. As many of them
/// took three or four rounds as took more. In nearly all of them ρ was below 0.15 at one of these distances, and the
/// relative effect was mostly between 0.15 and 0.7. With the label of the largest effect there would be three times
/// as many probes.
const SCRUTINY_LEVELS: [Scrutiny; 3] = [
    Scrutiny {
        min_rounds: 7,
        distances: &[0.1, 0.2, 0.4],
        effects: 0.04..0.7,
        max_rho: 0.3,
    },
    Scrutiny {
        min_rounds: 6,
        distances: &[0.12, 0.25],
        effects: 0.15..0.7,
        max_rho: 0.15,
    },
    Scrutiny {
        min_rounds: 5,
        distances: &[0.18],
        effects: 0.15..0.7,
        max_rho: 0.15,
    },
];
/// Distances by which a label is moved towards a fold of the templates, after any number of rounds, as shares of the
/// range in which folds were sought. With the limit of ρ below they detect minima at 0.12 to 0.52 of it.
const DISTANCES_NEAR_FOLDS: [f64; 3] = [0.15, 0.25, 0.4];
/// Upper limit of ρ for a start there. A limit of 0.15 mends as many wrong minima, with four times as many starts
/// (`docs/trials.md`).
const MAX_RHO_NEAR_FOLDS: f64 = 0.05;
/// Smallest distance at which a label is probed, as a share of the distance between its bounds. Bounds may cut a probe
/// shorter.
const MIN_PROBE_DISTANCE: f64 = 0.05;

/// A point at which the cost is evaluated, far from a minimum. One label differs from that of the minimum.
#[derive(Clone, Debug, PartialEq)]
struct ProbePoint {
    u: Vec<f64>,
    /// Rise of the cost from the minimum to this point, according to the quadratic model: the denominator of ρ.
    predicted_rise: f64,
    /// Upper limit of ρ at a start.
    max_rho: f64,
}

/// The check of one minimum for folds.
struct FoldCheck {
    /// Index of the spectrum among those that were fitted together.
    spectrum: usize,
    /// Cost at the minimum.
    cost: f64,
    points: Vec<ProbePoint>,
}

impl FoldCheck {
    /// Chooses points around a spectrum's lowest outcome at which to look for a lower minimum beyond a fold; `None` if
    /// the fit failed, if the spectrum must not have more starts, or if no label is to be probed. `folds` are those of
    /// the templates near the outcome.
    fn new(
        model: &SpectralModel,
        spectrum: usize,
        ready: &ReadySpectrum,
        lowest: &Outcome,
        folds: &[Fold],
    ) -> Option<FoldCheck> {
        let is_success = lowest.status.is_some_and(Status::is_success);
        // 1. The number of rounds decides how closely the fit is checked.
        let level = SCRUTINY_LEVELS
            .iter()
            .find(|level| lowest.rounds >= level.min_rounds);
        if !ready.may_add_starts || !is_success || (level.is_none() && folds.is_empty()) {
            return None;
        }
        let parameters: BTreeSet<usize> = model.arms.iter().flat_map(ModelArm::tangents).collect();
        let labels: Vec<MovableLabel> = parameters
            .into_iter()
            .filter_map(|p| MovableLabel::new(model, p, ready.limits[p], lowest))
            .collect();
        let mut points: Vec<ProbePoint> = Vec::new();
        // 2. Probe both sides of the labels whose effect on the cost is within the limits of this level.
        if let Some(level) = level {
            let max_effect = labels.iter().map(|label| label.effect).fold(0.0, f64::max);
            let relevant_labels = labels.iter().filter(|label| {
                max_effect > 0.0 && level.effects.contains(&(label.effect / max_effect))
            });
            for label in relevant_labels {
                for side in [-1.0, 1.0] {
                    points.extend(label.probe_points(lowest, side, level.distances, level.max_rho));
                }
            }
        }
        // 3. Probe towards the known folds. The bounds of one spectrum may be narrower than the model's.
        for fold in folds {
            let label = labels
                .iter()
                .find(|label| label.parameter == fold.parameter);
            if let Some(label) = label {
                let distances =
                    DISTANCES_NEAR_FOLDS.map(|distance| distance * fold.range / label.range);
                points.extend(label.probe_points(
                    lowest,
                    fold.side,
                    &distances,
                    MAX_RHO_NEAR_FOLDS,
                ));
            }
        }
        // 4. Templates are meaningless outside the training hulls. A bound cuts several probes short, which are then
        //    the same point.
        points.retain(|point| !is_outside_hulls(model, &point.u));
        points.dedup_by(|next, point| next.u == point.u);
        let has_points = !points.is_empty();
        has_points.then(|| FoldCheck {
            spectrum,
            cost: cost(lowest),
            points,
        })
    }

    /// Returns the probe point where the cost rises least compared with the predicted rise, if its ρ is below its
    /// limit. `outcomes` are those at the probe points.
    fn choose_start(&self, outcomes: &[Outcome]) -> Option<Vec<f64>> {
        let mut best: Option<(f64, &ProbePoint)> = None;
        for (point, outcome) in self.points.iter().zip(outcomes) {
            let rho = (cost(outcome) - self.cost) / point.predicted_rise;
            let is_best = best.is_none_or(|(best_rho, _)| rho.total_cmp(&best_rho).is_lt());
            if rho < point.max_rho && is_best {
                best = Some((rho, point));
            }
        }
        best.map(|(_, point)| point.u.clone())
    }
}

/// Returns χ² plus the penalties, the function that the solver's steps reduce.
fn cost(outcome: &Outcome) -> f64 {
    outcome.chi2 + outcome.penalty
}

/// A label that may be moved away from a minimum.
struct MovableLabel {
    /// Index of the parameter.
    parameter: usize,
    /// Lower bound in u.
    lower: f64,
    /// Upper bound in u.
    upper: f64,
    /// Distance between the bounds in u.
    range: f64,
    /// δ² A_pp of a move δ over the whole range.
    effect: f64,
}

impl MovableLabel {
    /// Returns a label's bounds, range and effect on χ² at a minimum; `None` if it is held or has no finite bounds, or
    /// if its start is given, because the user then asks for the minimum near that start.
    fn new(
        model: &SpectralModel,
        parameter: usize,
        limits: ParameterLimits,
        minimum: &Outcome,
    ) -> Option<MovableLabel> {
        let [lower, upper] =
            [limits.lower, limits.upper].map(|bound| model.parameters[parameter].to_u(bound));
        let range = upper - lower;
        let effect = range * range * minimum.normal_matrix[packed_index(parameter, parameter)];
        let is_movable = range > 0.0 && range.is_finite() && limits.start.is_none();
        is_movable.then_some(MovableLabel {
            parameter,
            lower,
            upper,
            range,
            effect,
        })
    }

    /// Returns probe points on one side (−1 or 1) of a minimum along this label, at `distances` (shares of its range),
    /// as bounds allow. Points at which the quadratic model hardly rises are left out, because they lie in the same
    /// valley.
    fn probe_points(
        &self,
        minimum: &Outcome,
        side: f64,
        distances: &[f64],
        max_rho: f64,
    ) -> Vec<ProbePoint> {
        let shares_of_range = distances.iter().map(|distance| side * distance);
        shares_of_range
            .filter_map(|share| self.probe_point(minimum, share, max_rho))
            .collect()
    }

    /// Returns the point at a share of the label's range from a minimum, with the predicted rise of the cost; `None` if
    /// it is so near that it lies in the same valley.
    fn probe_point(&self, minimum: &Outcome, share: f64, max_rho: f64) -> Option<ProbePoint> {
        let p = self.parameter;
        let mut u = minimum.parameters.clone();
        u[p] = (u[p] + share * self.range).clamp(self.lower, self.upper);
        let delta = u[p] - minimum.parameters[p];
        let predicted_rise =
            delta * (delta * minimum.normal_matrix[packed_index(p, p)] - 2.0 * minimum.gradient[p]);
        let is_far = delta.abs() >= MIN_PROBE_DISTANCE * self.range && predicted_rise >= LEAST_RISE;
        is_far.then_some(ProbePoint {
            u,
            predicted_rise,
            max_rho,
        })
    }
}

/// Returns whether a point, in the solver's units, lies outside the training hull of any arm, where templates are
/// meaningless.
fn is_outside_hulls(model: &SpectralModel, u: &[f64]) -> bool {
    model
        .arms
        .iter()
        .any(|arm| arm.emulator.extrapolates(&physical_labels(model, arm, u)))
}

impl SpectralPasses {
    /// Looks around each spectrum's lowest outcome for folds, fits once more from beyond each, and adds the new
    /// outcomes to `outcomes`.
    pub fn search_beyond_folds(
        &mut self,
        spectra: ReadySpectra,
        outcomes: &mut [Vec<Outcome>],
        monitor: Monitor,
    ) -> Result<()> {
        let model = spectra.model;
        // 1. Choose the probe points around each lowest outcome, and evaluate all of them together.
        let mut checks: Vec<FoldCheck> = Vec::new();
        for (k, group) in outcomes.iter().enumerate() {
            let Some(lowest) = find_winner(group, model.marginalise) else {
                continue;
            };
            let lowest = &group[lowest];
            let folds = spectra
                .guess
                .map_or_else(Vec::new, |guess| guess.folds_near(&lowest.parameters));
            let check = FoldCheck::new(model, k, &spectra.spectra[k], lowest, &folds);
            checks.extend(check);
        }
        let probed_spectra: Vec<ReadySpectrum> = checks
            .iter()
            .map(|check| start_at_probe_points(&spectra.spectra[check.spectrum], &check.points))
            .collect();
        let probed_outcomes = self.evaluate(spectra.with_spectra(&probed_spectra))?;
        // 2. Choose the starts.
        let mut probed_outcomes = probed_outcomes.into_iter();
        let mut more_starts: Vec<MoreStarts> = Vec::new();
        for check in checks {
            let outcomes_of_check: Vec<Outcome> =
                probed_outcomes.by_ref().take(check.points.len()).collect();
            if let Some(start) = check.choose_start(&outcomes_of_check) {
                more_starts.push(MoreStarts {
                    spectrum: check.spectrum,
                    starts: vec![start],
                });
            }
        }
        // 3. Fit from them.
        self.fit_again(spectra, outcomes, more_starts, monitor)
    }
}

/// Returns a copy of a spectrum whose starts are the probe points.
fn start_at_probe_points(ready: &ReadySpectrum, points: &[ProbePoint]) -> ReadySpectrum {
    let starts = points
        .iter()
        .map(|point| Start {
            u: point.u.clone(),
            basin: 0,
        })
        .collect();
    ReadySpectrum {
        starts,
        ..ready.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(chi2: f64, status: Option<Status>) -> Outcome {
        Outcome {
            chi2,
            penalty: 0.0,
            ln_det: 0.0,
            status,
            ..Outcome::default()
        }
    }

    /// Returns label 1 with the bounds 0 and 10, and a minimum at 9. There is less room above than below, so that a
    /// probe above is cut short.
    fn movable_label() -> (MovableLabel, Outcome) {
        let label = MovableLabel {
            parameter: 1,
            lower: 0.0,
            upper: 10.0,
            range: 10.0,
            effect: 400.0,
        };
        let normal_matrix = vec![1.0, 0.0, 4.0];
        (
            label,
            Outcome {
                parameters: vec![5.0, 9.0],
                gradient: vec![0.0, 0.0],
                normal_matrix,
                ..outcome(7.0, None)
            },
        )
    }

    #[test]
    fn probe_points_stay_inside_the_bounds() {
        let (label, mut minimum) = movable_label();
        // The predicted rise is δ² A = 9 · 4 below; 1 · 4 above is too little.
        let point = |label: f64, predicted_rise: f64| ProbePoint {
            u: vec![5.0, label],
            predicted_rise,
            max_rho: 0.5,
        };
        let probe_points =
            |minimum: &Outcome, side: f64| label.probe_points(minimum, side, &[0.3], 0.5);
        assert_eq!(probe_points(&minimum, -1.0), [point(6.0, 36.0)]);
        assert_eq!(probe_points(&minimum, 1.0), []);
        // The label is held by its bound: the cost falls towards the bound, and rises the more on the way back.
        minimum.parameters[1] = 10.0;
        minimum.gradient[1] = 2.0;
        assert_eq!(probe_points(&minimum, -1.0), [point(7.0, 36.0 + 12.0)]);
    }

    #[test]
    fn the_start_is_the_probe_point_with_the_smallest_rho() {
        let points = [36.0, 36.0, 100.0].map(|rise| ProbePoint {
            u: vec![rise],
            predicted_rise: rise,
            max_rho: 0.3,
        });
        let check = FoldCheck {
            spectrum: 0,
            cost: 7.0,
            points: points.to_vec(),
        };
        let chosen = |chi2: [f64; 3]| check.choose_start(&chi2.map(|chi2| outcome(chi2, None)));
        assert_eq!(chosen([43.0, 19.0, 57.0]), None);
        assert_eq!(chosen([f64::NAN, 10.0, 9.0]), Some(vec![100.0]));
        // The first cost is below that of the minimum.
        assert_eq!(chosen([6.0, 10.0, 9.0]), Some(vec![36.0]));
    }
}
