//! Mixed precision: rough rounds, whose output layers are products of f16 numbers, and exact rounds in f32, which begin
//! where the rough ones end.
//!
//! These are two passes of Levenberg–Marquardt. The rough one has an `ftol` of 1e-4, and a recording whose output
//! layers are `narrow` followed by a product of `Kind::Half` buffers. No decision depends on which members are in a
//! round together, and all results come from f32. A GPU with matrix units for f16 that add in f32 uses them for the
//! product (`shaders/variants/product_cooperative.wgsl`), after `gpu/known_answer.rs` has compared a product with the
//! host's. Other adapters unpack f16 numbers in the usual kernels. The CPU rounds as they do, and is not faster.

use crate::solver::{LevenbergMarquardt, Outcome, Status};
use crate::spectral::input::ready::StartPoints;

/// Tolerance of the rough rounds. The error of a cost from f16 rows is hardly smaller, and a larger tolerance leaves
/// more rounds to f32.
const ROUGH_TOLERANCE: f64 = 1e-4;
/// Maximum number of rough rounds.
const MAX_ROUGH_ROUNDS: u32 = 16;
/// Smallest number of rounds that is divided, because f32 alone may need a few dozen.
const MIN_DIVIDED_ROUNDS: u32 = 48;

/// Returns the settings of the rough and of the exact rounds; `None` if there are too few rounds to divide.
pub fn divide_rounds(settings: LevenbergMarquardt) -> Option<[LevenbergMarquardt; 2]> {
    if settings.max_rounds < MIN_DIVIDED_ROUNDS {
        return None;
    }
    let rough = LevenbergMarquardt {
        max_rounds: MAX_ROUGH_ROUNDS,
        ftol: settings.ftol.max(ROUGH_TOLERANCE),
        xtol: settings.xtol.max(ROUGH_TOLERANCE),
        gtol: settings.gtol.max(ROUGH_TOLERANCE),
        ..settings
    };
    let exact = LevenbergMarquardt {
        max_rounds: settings.max_rounds - MAX_ROUGH_ROUNDS,
        ..settings
    };
    Some([rough, exact])
}

/// Returns the points at which the rough rounds of each start ended, from where the exact rounds start. Starts that
/// gave way to others are left out. If an end is not finite, its start is returned instead.
pub fn collect_ends(outcomes: &[Vec<Outcome>], starts: &[StartPoints]) -> Vec<StartPoints> {
    let mut ends = Vec::with_capacity(outcomes.len());
    for (group, starts) in outcomes.iter().zip(starts) {
        let mut ends_of_spectrum = StartPoints::new();
        for (outcome, start) in group.iter().zip(starts) {
            if outcome.gave_way.is_some() {
                continue;
            }
            let is_finite = (outcome.chi2 + outcome.penalty).is_finite()
                && outcome.parameters.iter().all(|u| u.is_finite());
            let end = if is_finite {
                &outcome.parameters
            } else {
                start
            };
            ends_of_spectrum.push(end.clone());
        }
        ends.push(ends_of_spectrum);
    }
    ends
}

/// Replaces the outcomes of the rough rounds by those of the exact ones, and adds up the rounds of both. A rough
/// outcome without an exact one is interrupted.
pub fn join_outcomes(
    mut outcomes: Vec<Vec<Outcome>>,
    exact_outcomes: Vec<Vec<Outcome>>,
) -> Vec<Vec<Outcome>> {
    for (group, exact_group) in outcomes.iter_mut().zip(exact_outcomes) {
        let mut exact_group = exact_group.into_iter();
        for outcome in group
            .iter_mut()
            .filter(|outcome| outcome.gave_way.is_none())
        {
            let Some(exact) = exact_group.next() else {
                outcome.status = Some(Status::Interrupted);
                continue;
            };
            *outcome = Outcome {
                rounds: outcome.rounds + exact.rounds,
                evaluations: outcome.evaluations + exact.evaluations,
                ..exact
            };
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solver::GaveWay;

    fn outcome(parameter: f64, gave_way: Option<GaveWay>) -> Outcome {
        Outcome {
            gave_way,
            rounds: 3,
            evaluations: 4,
            parameters: vec![parameter],
            ..Outcome::default()
        }
    }

    #[test]
    fn many_rounds_are_divided_into_rough_and_exact_ones() {
        let divide = |max_rounds| {
            divide_rounds(LevenbergMarquardt {
                max_rounds,
                ..LevenbergMarquardt::default()
            })
        };
        assert_eq!((divide(1), divide(47)), (None, None));
        for (rounds, shares) in [(48, [16, 32]), (60, [16, 44]), (1000, [16, 984])] {
            assert_eq!(
                divide(rounds).map(|settings| settings.map(|lm| lm.max_rounds)),
                Some(shares)
            );
        }
    }

    #[test]
    fn exact_rounds_start_where_rough_rounds_ended() {
        let starts = vec![
            vec![vec![0.0], vec![1.0], vec![2.0]],
            vec![vec![3.0]],
            vec![vec![4.0]],
        ];
        let not_finite = Outcome {
            chi2: f64::NAN,
            ..outcome(0.7, None)
        };
        let rough = vec![
            vec![
                outcome(0.5, Some(GaveWay::SameBasin)),
                outcome(1.5, None),
                not_finite,
            ],
            vec![outcome(3.5, None)],
            vec![],
        ];
        assert_eq!(
            collect_ends(&rough, &starts),
            [vec![vec![1.5], vec![2.0]], vec![vec![3.5]], vec![]]
        );
        // The second spectrum was cancelled during its exact rounds, and the third before its rough rounds.
        let exact = vec![vec![outcome(1.6, None), outcome(2.6, None)], vec![], vec![]];
        let joined = join_outcomes(rough, exact);
        let summarise = |outcome: &Outcome| {
            (
                outcome.parameters[0],
                outcome.rounds,
                outcome.evaluations,
                outcome.status,
            )
        };
        let interrupted = Some(Status::Interrupted);
        assert_eq!(
            joined[0].iter().map(summarise).collect::<Vec<_>>(),
            [(0.5, 3, 4, None), (1.6, 6, 8, None), (2.6, 6, 8, None)]
        );
        assert_eq!(
            joined[1].iter().map(summarise).collect::<Vec<_>>(),
            [(3.5, 3, 4, interrupted)]
        );
        assert!(joined[2].is_empty());
    }
}
