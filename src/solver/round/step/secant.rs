//! The curvature that the normal matrix leaves out. f64. Twin of `shaders/shared/secant.wgsl`.
//!
//! A = JᵀJ lacks Σ r ∇²r. Where a parameter is known no better than its own size (vsini 18 ± 30 km/s), the cost is two
//! to three times as curved as A says: full steps lead beyond twice the way to the minimum, and damping all parameters
//! for the sake of one makes them crawl. Steps are therefore solved with A + s sᵀ, where s is such that this matrix
//! predicts the change of the gradient between the last two points. A is the mean of both points, because otherwise the
//! change of J would count.
//!
//! The term is believed only under three conditions: the points lie so close that their residuals agree to a percent
//! (δᵀAδ ≤ 1e-4 of the cost); the step between them led well beyond the minimum; and the term adds at least a quarter
//! to what A says along the step. Without the first condition early rounds were misled. Without the second, NIST's
//! Bennett5 crept along its valley for ever. Nothing is stored for it: both points and their sums are at hand.
//! Covariances are those of A.

use super::damped::is_free;
use crate::math::triangle::packed_index;
use crate::solver::Bounds;
use crate::solver::member::Member;
use crate::solver::thresholds::{BENT, CLOSE};

/// Returns s such that A + s sᵀ predicts the gradient's change between the last two points; zeros if they do not tell.
///
/// This is the symmetric rank-one update (Nocedal & Wright 2006, eq. 6.24) of a structured secant equation (after
/// Dennis, Gay & Welsch 1981). One point is the accepted one. The other is the last trial point or, if that was
/// accepted, the point before it. A is the mean of both points, because otherwise the change of J would count. The
/// vector is zero where the points are too far apart, where the step between them did not lead well beyond a minimum,
/// or where A alone predicts the change well enough.
pub fn secant(member: &Member, bounds: Bounds<'_>) -> Vec<f64> {
    let count = member.parameters.len();
    let (here, there) = (&member.sums, &member.trial_sums);
    let delta = between(member);
    let mean = |p: usize, q: usize| {
        0.5 * (here.normal_matrix[packed_index(p, q)] + there.normal_matrix[packed_index(p, q)])
    };
    let (mut missed, mut quadratic, mut down, mut up) = (vec![0.0; count], 0.0, 0.0, 0.0);
    for p in (0..count).filter(|&p| is_free(member, p, bounds)) {
        let told: f64 = (0..count).map(|q| mean(p, q) * delta[q]).sum();
        missed[p] = here.gradient[p] - there.gradient[p] - told;
        quadratic += told * delta[p];
        down += here.gradient[p] * delta[p];
        up -= there.gradient[p] * delta[p];
    }
    let extra = down + up - quadratic;
    let (newer, older) = if member.rejections > 0 {
        (up, down)
    } else {
        (down, up)
    };
    let is_close = quadratic > 0.0 && quadratic <= CLOSE * here.cost();
    let is_between = down.min(up) > 0.0 && newer >= BENT * older;
    // before the second round there is no other point
    let known = member.rounds > 1
        && there.is_finite()
        && is_close
        && is_between
        && extra >= BENT * quadratic;
    missed
        .iter()
        .map(|m| if known { m / extra.sqrt() } else { 0.0 })
        .collect()
}

/// Returns whether, along the line between them, the cost rises more at the trial point than it falls at the accepted
/// one.
pub fn turns_back(member: &Member) -> bool {
    let slopes = member.sums.gradient.iter().zip(&member.trial_sums.gradient);
    between(member)
        .iter()
        .zip(slopes)
        .map(|(d, (here, there))| d * (here + there))
        .sum::<f64>()
        < 0.0
}

/// Returns the vector from the accepted point to the one in `trial`.
fn between(member: &Member) -> Vec<f64> {
    member
        .trial
        .iter()
        .zip(&member.parameters)
        .map(|(t, x)| t - x)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::{LossSums, Sums};
    use crate::solver::round::step::damped::solve;
    use crate::solver::round::step::{Rules, step};
    use crate::solver::{LevenbergMarquardt, Status, Tolerances};

    const NORMAL: [f64; 3] = [4.0, 1.0, 2.0];
    const GRADIENT: [f64; 2] = [0.6, -0.3];
    /// Vector s of the curvature that is left out, S = s sᵀ.
    const SIDE: [f64; 2] = [1.5, -0.5];
    const WIDE_OPEN: Bounds<'static> = Bounds {
        lower: &[-100.0; 2],
        upper: &[100.0; 2],
    };

    /// Rules without bounds that matter.
    fn rules(settings: &LevenbergMarquardt) -> Rules<'_> {
        let tolerances = Tolerances::of_members(settings, false, 1e-6);
        Rules {
            bounds: WIDE_OPEN,
            settings,
            tolerances,
            trusts_last_step: true,
        }
    }

    /// (A + `share` S) δ
    fn changed(share: f64, delta: &[f64]) -> Vec<f64> {
        let along = share * (SIDE[0] * delta[0] + SIDE[1] * delta[1]);
        (0..2)
            .map(|p| {
                (0..2)
                    .map(|q| NORMAL[packed_index(p, q)] * delta[q])
                    .sum::<f64>()
                    + SIDE[p] * along
            })
            .collect()
    }

    /// A quadratic cost of curvature A + `share` S around 7000, and its gradient at `trial`.
    fn member(share: f64, trial: [f64; 2]) -> Member {
        let mut member = Member::new(0, 0, &[0.0; 2], 1e-12);
        let there = changed(share, &trial);
        let sums = |gradient: Vec<f64>| Sums {
            chi2: 7000.0,
            penalty: 0.0,
            ln_det: 0.0,
            loss: LossSums::default(),
            gradient,
            normal_matrix: NORMAL.to_vec(),
        };
        member.rounds = 2;
        member.sums = sums(GRADIENT.to_vec());
        member.trial_sums = sums((0..2).map(|p| GRADIENT[p] - there[p]).collect());
        member.trial = trial.to_vec();
        member
    }

    #[test]
    fn another_gradient_tells_what_bends_the_cost() {
        let mut bent = member(1.0, [0.2, -0.3]);
        let found = secant(&bent, WIDE_OPEN);
        for (p, q) in [(0, 0), (1, 0), (1, 1)] {
            assert!(
                (found[p] * found[q] - SIDE[p] * SIDE[q]).abs() < 1e-9,
                "{found:?}"
            );
        }
        // so that the next step ends in the minimum
        let step = solve(&mut bent, &found, &rules(&LevenbergMarquardt::default())).unwrap();
        let left = changed(1.0, &step.delta);
        assert!(
            left.iter().zip(GRADIENT).all(|(l, g)| (l - g).abs() < 1e-9),
            "{left:?}"
        );
    }

    #[test]
    fn what_is_far_or_little_or_unknown_does_not_count() {
        let nothing = |member: &Member| secant(member, WIDE_OPEN) == [0.0; 2];
        assert!(!nothing(&member(1.0, [0.2, -0.3])));
        // little; a curvature that is too large makes steps too short, which does no harm
        assert!(nothing(&member(0.1, [0.34, -0.51])) && nothing(&member(-0.9, [0.34, -0.51])));
        // the minimum of this line is half the way: at the end of half of it, and in the first sixth of three times it
        let costly = |rejections, trial| {
            let mut member = member(1.0, trial);
            (member.sums.chi2, member.rejections) = (1e6, rejections);
            member
        };
        assert!(!nothing(&costly(0, [0.4, -0.6])) && !nothing(&costly(1, [0.6, -0.9])));
        assert!(nothing(&costly(1, [0.1, -0.15])) && nothing(&costly(0, [0.6, -0.9])));
        assert!(nothing(&member(1.0, [0.4, -0.6])) && nothing(&member(1.0, [0.0, 0.0])));
        // a parameter that is held or pushed against its bound does not count
        let other = secant(
            &member(1.0, [0.2, -0.3]),
            Bounds {
                lower: &[-100.0, 0.0],
                upper: &[100.0; 2],
            },
        );
        assert!(other[1] == 0.0);
        assert!(nothing(&Member {
            rounds: 1,
            ..member(1.0, [0.2, -0.3])
        }));
        let mut unknown = member(1.0, [0.2, -0.3]);
        unknown.trial_sums.gradient[1] = f64::NAN;
        assert!(nothing(&unknown));
    }

    #[test]
    fn steps_beyond_twice_the_way_turn_back() {
        let full = member(0.0, [0.2, -0.3]);
        let step = solve(
            &mut full.clone(),
            &[0.0; 2],
            &rules(&LevenbergMarquardt::default()),
        )
        .unwrap();
        let trial = [step.delta[0], step.delta[1]];
        // along this step S adds 1.07 of what A has
        assert!(!turns_back(&member(0.9, trial)) && turns_back(&member(1.1, trial)));
    }

    /// cost = 7000 + (4 − x)² + (−3 − x²)²: at its minimum four times as curved as JᵀJ says, so that Gauss–Newton steps
    /// lead ever farther away.
    #[test]
    fn bent_costs_are_met_in_few_rounds() {
        let minimum = 0.529_106_95;
        let mut member = Member::new(0, 0, &[0.6], 1e-3);
        while member.status.is_none() {
            let x = member.trial[0];
            let (residuals, slopes) = ([4.0 - x, -3.0 - x * x], [1.0, 2.0 * x]);
            member.trial_sums = Sums {
                chi2: 7000.0 + residuals.iter().map(|r| r * r).sum::<f64>(),
                penalty: 0.0,
                ln_det: 0.0,
                loss: LossSums::default(),
                gradient: vec![residuals[0] * slopes[0] + residuals[1] * slopes[1]],
                normal_matrix: vec![slopes.iter().map(|s| s * s).sum()],
            };
            let bounds = Bounds {
                lower: &[-10.0],
                upper: &[10.0],
            };
            step(
                &mut member,
                &Rules {
                    bounds,
                    ..rules(&LevenbergMarquardt::default())
                },
            );
        }
        let sigmas = (member.parameters[0] - minimum).abs() * member.sums.normal_matrix[0].sqrt();
        println!("{} rounds, {sigmas:e} errors away", member.rounds);
        assert!(
            member.status == Some(Status::Ftol) && sigmas < 0.005 && member.rounds <= 6,
            "{member:?}"
        );
    }
}
