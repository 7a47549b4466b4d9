//! Mixed precision: first rounds whose output layers are products of f16 numbers, and last rounds in f32 that begin at
//! their ends.
//!
//! These are two passes of Levenberg–Marquardt. The first one has an `ftol` of 1e-4, and a recording whose output
//! layers are `narrow` followed by a product of `Kind::Half` buffers. No decision depends on which members are in a
//! round together, and all results come from f32. A GPU with matrix units for f16 that add in f32 uses them for the
//! product (`shaders/variants/product_cooperative.wgsl`), after `gpu/known_answer.rs` has compared a product with the
//! host's. Other adapters unpack f16 numbers in the usual kernels. The CPU rounds as they do, and is not faster.

use crate::solver::{LevenbergMarquardt, Outcome, Status};
use crate::spectral::input::ready::Starts;

/// Tolerance of the first rounds. The error of a cost from f16 rows is hardly smaller, and a larger tolerance leaves
/// more rounds to f32.
const FTOL: f64 = 1e-4;
/// Maximum number of first rounds.
const ROUNDS: u32 = 16;
/// Smallest number of rounds that is divided, because f32 alone may need a few dozen.
const MIN_ROUNDS: u32 = 48;

/// Returns the settings of the first and of the last rounds; `None` if there are too few rounds to divide.
pub fn settings(all: LevenbergMarquardt) -> Option<[LevenbergMarquardt; 2]> {
    let loose = |tolerance: f64| tolerance.max(FTOL);
    let [ftol, xtol, gtol] = [all.ftol, all.xtol, all.gtol].map(loose);
    (all.max_rounds >= MIN_ROUNDS).then(|| {
        [
            LevenbergMarquardt {
                max_rounds: ROUNDS,
                ftol,
                xtol,
                gtol,
                ..all
            },
            LevenbergMarquardt {
                max_rounds: all.max_rounds - ROUNDS,
                ..all
            },
        ]
    })
}

/// Returns where each start's first, rough rounds ended, from where the last rounds start; without starts that gave way
/// to others. A start whose end is not finite begins again.
pub fn ends(outcomes: &[Vec<Outcome>], starts: &[Starts]) -> Vec<Starts> {
    let is_finite = |o: &Outcome| {
        (o.chi2 + o.penalty).is_finite() && o.parameters.iter().all(|x| x.is_finite())
    };
    let end = |(outcome, start): (&Outcome, &Vec<f64>)| {
        let end = if is_finite(outcome) {
            &outcome.parameters
        } else {
            start
        };
        outcome.gave_way.is_none().then(|| end.clone())
    };
    let of_spectrum = |(group, starts): (&Vec<Outcome>, &Starts)| {
        group.iter().zip(starts).filter_map(end).collect()
    };
    outcomes.iter().zip(starts).map(of_spectrum).collect()
}

/// Replaces outcomes of the first rounds by those of the last, with the rounds of both; one without a last is
/// interrupted.
pub fn joined(mut outcomes: Vec<Vec<Outcome>>, last: Vec<Vec<Outcome>>) -> Vec<Vec<Outcome>> {
    for (group, last) in outcomes.iter_mut().zip(last) {
        let mut last = last.into_iter();
        for outcome in group
            .iter_mut()
            .filter(|outcome| outcome.gave_way.is_none())
        {
            let Some(after) = last.next() else {
                outcome.status = Some(Status::Interrupted);
                continue;
            };
            let (rounds, evaluations) = (
                outcome.rounds + after.rounds,
                outcome.evaluations + after.evaluations,
            );
            *outcome = Outcome {
                rounds,
                evaluations,
                ..after
            };
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solver::GaveWay;

    fn outcome(at: f64, gave_way: Option<GaveWay>) -> Outcome {
        Outcome {
            gave_way,
            rounds: 3,
            evaluations: 4,
            parameters: vec![at],
            ..Outcome::default()
        }
    }

    #[test]
    fn rounds_are_shared() {
        let with = |max_rounds| {
            settings(LevenbergMarquardt {
                max_rounds,
                ..LevenbergMarquardt::default()
            })
        };
        assert_eq!((with(1), with(47)), (None, None));
        for (all, shares) in [(48, [16, 32]), (60, [16, 44]), (1000, [16, 984])] {
            assert_eq!(
                with(all).map(|both| both.map(|lm| lm.max_rounds)),
                Some(shares)
            );
        }
    }

    #[test]
    fn each_start_goes_on_where_it_ended() {
        let starts = vec![
            vec![vec![0.0], vec![1.0], vec![2.0]],
            vec![vec![3.0]],
            vec![vec![4.0]],
        ];
        let lost = Outcome {
            chi2: f64::NAN,
            ..outcome(0.7, None)
        };
        let first = vec![
            vec![
                outcome(0.5, Some(GaveWay::SameBasin)),
                outcome(1.5, None),
                lost,
            ],
            vec![outcome(3.5, None)],
            vec![],
        ];
        assert_eq!(
            ends(&first, &starts),
            [vec![vec![1.5], vec![2.0]], vec![vec![3.5]], vec![]]
        );
        // the second spectrum was cancelled on its way, the third before
        let last = vec![vec![outcome(1.6, None), outcome(2.6, None)], vec![], vec![]];
        let all = joined(first, last);
        let told = |o: &Outcome| (o.parameters[0], o.rounds, o.evaluations, o.status);
        let interrupted = Some(Status::Interrupted);
        assert_eq!(
            all[0].iter().map(told).collect::<Vec<_>>(),
            [(0.5, 3, 4, None), (1.6, 6, 8, None), (2.6, 6, 8, None)]
        );
        assert_eq!(
            all[1].iter().map(told).collect::<Vec<_>>(),
            [(3.5, 3, 4, interrupted)]
        );
        assert!(all[2].is_empty());
    }
}
