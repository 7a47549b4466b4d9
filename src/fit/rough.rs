//! Mixed precision: first rounds whose output layers are products of f16 numbers, and last rounds in f32 from where
//! they end.
//!
//! These are two passes of Levenberg–Marquardt. The first one goes to an `ftol` of 1e-4, with a recording whose output
//! layers are `narrow` and then a product of `Kind::Half` buffers. No decision depends on which members are in a round
//! together, and all results are those of f32. A card that has matrices of f16 with sums in f32 multiplies them as such
//! (`shaders/variants/product_cooperative.wgsl`), after `gpu/known_answer.rs` has compared a product with the host's.
//! Other adapters unpack halves in the usual kernels. The CPU rounds as they do, and gains nothing.

use super::ready::Starts;
use crate::solver::{LevenbergMarquardt, Outcome, Status};

/// Tolerance of the first rounds: f16 rows know a cost hardly better, and a looser one leaves more to the last rounds.
const FTOL: f64 = 1e-4;
/// First rounds, and how many there must be in all: f32 alone may need a few dozen.
const ROUNDS: u32 = 16;
const LEAST: u32 = 48;

/// Settings of the first and of the last rounds; `None` where there are too few to share.
pub fn settings(all: LevenbergMarquardt) -> Option<[LevenbergMarquardt; 2]> {
    let loose = |tolerance: f64| tolerance.max(FTOL);
    let [ftol, xtol, gtol] = [all.ftol, all.xtol, all.gtol].map(loose);
    (all.max_rounds >= LEAST).then(|| {
        [
            LevenbergMarquardt { max_rounds: ROUNDS, ftol, xtol, gtol, ..all },
            LevenbergMarquardt { max_rounds: all.max_rounds - ROUNDS, ..all },
        ]
    })
}

/// Returns the starts of the last rounds: the ends of those starts of each spectrum that did not give way. A start that
/// ended nowhere is taken again as it was.
pub fn ends(outcomes: &[Vec<Outcome>], starts: &[Starts]) -> Vec<Starts> {
    let is_somewhere = |o: &Outcome| (o.chi2 + o.penalty).is_finite() && o.parameters.iter().all(|x| x.is_finite());
    let end = |(outcome, start): (&Outcome, &Vec<f64>)| {
        let end = if is_somewhere(outcome) { &outcome.parameters } else { start };
        outcome.gave_way.is_none().then(|| end.clone())
    };
    let of_spectrum = |(group, starts): (&Vec<Outcome>, &Starts)| group.iter().zip(starts).filter_map(end).collect();
    outcomes.iter().zip(starts).map(of_spectrum).collect()
}

/// The first rounds' outcomes with the last rounds' in their places. What did not come to these is interrupted.
pub fn joined(first: Vec<Vec<Outcome>>, last: Vec<Vec<Outcome>>) -> Vec<Vec<Outcome>> {
    let of_spectrum = |(group, last): (Vec<Outcome>, Vec<Outcome>)| {
        let mut last = last.into_iter();
        let mut join = |before: Outcome| match before.gave_way {
            Some(_) => before,
            None => last.next().map_or_else(
                || Outcome { status: Some(Status::Interrupted), ..before.clone() },
                |after| Outcome {
                    rounds: before.rounds + after.rounds,
                    evaluations: before.evaluations + after.evaluations,
                    ..after
                },
            ),
        };
        group.into_iter().map(&mut join).collect()
    };
    first.into_iter().zip(last).map(of_spectrum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solver::GaveWay;

    fn outcome(at: f64, gave_way: Option<GaveWay>) -> Outcome {
        Outcome { gave_way, rounds: 3, evaluations: 4, parameters: vec![at], ..Outcome::default() }
    }

    #[test]
    fn rounds_are_shared() {
        let with = |max_rounds| settings(LevenbergMarquardt { max_rounds, ..LevenbergMarquardt::default() });
        assert_eq!((with(1), with(47)), (None, None));
        for (all, shares) in [(48, [16, 32]), (60, [16, 44]), (1000, [16, 984])] {
            assert_eq!(with(all).map(|both| both.map(|lm| lm.max_rounds)), Some(shares));
        }
    }

    #[test]
    fn each_start_goes_on_where_it_ended() {
        let starts = vec![vec![vec![0.0], vec![1.0], vec![2.0]], vec![vec![3.0]], vec![vec![4.0]]];
        let lost = Outcome { chi2: f64::NAN, ..outcome(0.7, None) };
        let first = vec![
            vec![outcome(0.5, Some(GaveWay::SameBasin)), outcome(1.5, None), lost],
            vec![outcome(3.5, None)],
            vec![],
        ];
        assert_eq!(ends(&first, &starts), [vec![vec![1.5], vec![2.0]], vec![vec![3.5]], vec![]]);
        // the second spectrum was cancelled on its way, the third before
        let last = vec![vec![outcome(1.6, None), outcome(2.6, None)], vec![], vec![]];
        let all = joined(first, last);
        let told = |o: &Outcome| (o.parameters[0], o.rounds, o.evaluations, o.status);
        let interrupted = Some(Status::Interrupted);
        assert_eq!(
            all[0].iter().map(told).collect::<Vec<_>>(),
            [(0.5, 3, 4, None), (1.6, 6, 8, None), (2.6, 6, 8, None)]
        );
        assert_eq!(all[1].iter().map(told).collect::<Vec<_>>(), [(3.5, 3, 4, interrupted)]);
        assert!(all[2].is_empty());
    }
}
