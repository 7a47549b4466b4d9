//! The curvature that the normal matrix leaves out. f64. Twin of `shaders/shared/secant.wgsl`.
//!
//! A = JᵀJ lacks Σ r ∇²r. Where a parameter is known no better than its own size (vsini 18 ± 30 km/s), the cost is two
//! to three times as curved as A says: full steps lead beyond twice the way to the minimum, and damping all parameters
//! for the sake of one makes them crawl. Steps are therefore solved with A + s sᵀ, where s is such that this matrix
//! predicts the change of the gradient between the last two points. A is the mean of both points, because otherwise the
//! change of J would count.
//!
//! The term is used only under three conditions: the points lie so close that their residuals agree to a percent (δᵀAδ
//! ≤ 1e-4 of the cost); the step between them led well beyond the minimum; and the term adds at least a quarter to A's
//! curvature along the step. Without the first condition early rounds were misled. Without the second, NIST's Bennett5
//! crept along its valley for ever. The term needs no storage of its own, because both points and their sums are
//! members' state. Covariances are those of A.

use super::damped::is_free;
use crate::math::triangle::packed_index;
use crate::solver::Bounds;
use crate::solver::member::Member;
use crate::solver::thresholds::{CLOSE_POINTS_SHARE, LEAST_SECANT_SHARE};

/// Returns s such that A + s sᵀ predicts the change of the gradient between the last two points; zeros where it is not
/// to be used.
///
/// This is the symmetric rank-one update (Nocedal & Wright 2006, eq. 6.24) of a structured secant equation (after
/// Dennis, Gay & Welsch 1981). One point is the accepted one. The other is the last trial point or, if that was
/// accepted, the point before it. A is the mean of both points, because otherwise the change of J would count. The
/// vector is zero where the points are too far apart, where the step between them did not lead well beyond a minimum,
/// or where A alone predicts the change well enough.
pub fn find_secant_vector(member: &Member, bounds: Bounds<'_>) -> Vec<f64> {
    let count = member.parameters.len();
    let accepted = &member.sums;
    let other = &member.trial_sums;
    let delta = step_to_trial_point(member);
    // 1. Compare the change of the gradient with that which the mean normal matrix predicts, Aδ.
    let mut unpredicted = vec![0.0; count];
    let mut quadratic = 0.0;
    let mut fall_at_accepted = 0.0;
    let mut rise_at_other = 0.0;
    for p in (0..count).filter(|&p| is_free(member, p, bounds)) {
        let predicted: f64 = (0..count)
            .map(|q| {
                let index = packed_index(p, q);
                0.5 * (accepted.normal_matrix[index] + other.normal_matrix[index]) * delta[q]
            })
            .sum();
        unpredicted[p] = accepted.gradient[p] - other.gradient[p] - predicted;
        quadratic += predicted * delta[p];
        fall_at_accepted += accepted.gradient[p] * delta[p];
        rise_at_other -= other.gradient[p] * delta[p];
    }
    // 2. The curvature along δ that A lacks: δᵀ(g − g₊ − Aδ).
    let missing_curvature = fall_at_accepted + rise_at_other - quadratic;
    // 3. The three conditions of the header, and before the second round there is no other point.
    let (newer_slope, older_slope) = if member.rejections > 0 {
        (rise_at_other, fall_at_accepted)
    } else {
        (fall_at_accepted, rise_at_other)
    };
    let are_close = quadratic > 0.0 && quadratic <= CLOSE_POINTS_SHARE * accepted.cost();
    let minimum_is_between = fall_at_accepted.min(rise_at_other) > 0.0
        && newer_slope >= LEAST_SECANT_SHARE * older_slope;
    let is_usable = member.rounds > 1
        && other.is_finite()
        && are_close
        && minimum_is_between
        && missing_curvature >= LEAST_SECANT_SHARE * quadratic;
    if !is_usable {
        return vec![0.0; count];
    }
    unpredicted
        .iter()
        .map(|change| change / missing_curvature.sqrt())
        .collect()
}

/// Returns whether the trial point lies beyond twice the way to the minimum along the line between the two points: the
/// cost rises there more than it falls at the accepted point.
pub fn overshoots_minimum(member: &Member) -> bool {
    let slopes = member.sums.gradient.iter().zip(&member.trial_sums.gradient);
    step_to_trial_point(member)
        .iter()
        .zip(slopes)
        .map(|(delta, (accepted, trial))| delta * (accepted + trial))
        .sum::<f64>()
        < 0.0
}

/// Returns the vector from the accepted point to the one in `trial`.
fn step_to_trial_point(member: &Member) -> Vec<f64> {
    member
        .trial
        .iter()
        .zip(&member.parameters)
        .map(|(trial, accepted)| trial - accepted)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::{LossSums, Sums};
    use crate::solver::round::step::damped::solve_damped_step;
    use crate::solver::round::step::{Rules, step_member};
    use crate::solver::{LevenbergMarquardt, Status, Tolerances};

    const NORMAL: [f64; 3] = [4.0, 1.0, 2.0];
    const GRADIENT: [f64; 2] = [0.6, -0.3];
    /// Vector s of the curvature that A lacks, S = s sᵀ.
    const SECANT: [f64; 2] = [1.5, -0.5];
    const WIDE_OPEN: Bounds<'static> = Bounds {
        lower: &[-100.0; 2],
        upper: &[100.0; 2],
    };

    /// Returns rules with bounds that are never active.
    fn rules(settings: &LevenbergMarquardt) -> Rules<'_> {
        let tolerances = Tolerances::of_members(settings, false, 1e-6);
        Rules {
            bounds: WIDE_OPEN,
            settings,
            tolerances,
            trusts_last_step: true,
        }
    }

    /// Returns (A + `share` S) δ, the fall of the gradient along δ.
    fn gradient_change(share: f64, delta: &[f64]) -> Vec<f64> {
        let along_secant = share * (SECANT[0] * delta[0] + SECANT[1] * delta[1]);
        (0..2)
            .map(|p| {
                (0..2)
                    .map(|q| NORMAL[packed_index(p, q)] * delta[q])
                    .sum::<f64>()
                    + SECANT[p] * along_secant
            })
            .collect()
    }

    /// Makes a member whose cost, about 7000, is quadratic with curvature A + `share` S, with its gradient at `trial`.
    fn member(share: f64, trial: [f64; 2]) -> Member {
        let mut member = Member::new(0, 0, &[0.0; 2], 1e-12);
        let change = gradient_change(share, &trial);
        member.rounds = 2;
        member.sums = sums(GRADIENT.to_vec());
        member.trial_sums = sums((0..2).map(|p| GRADIENT[p] - change[p]).collect());
        member.trial = trial.to_vec();
        member
    }

    /// Returns the sums of a point with this gradient.
    fn sums(gradient: Vec<f64>) -> Sums {
        Sums {
            chi2: 7000.0,
            penalty: 0.0,
            ln_det: 0.0,
            loss: LossSums::default(),
            gradient,
            normal_matrix: NORMAL.to_vec(),
        }
    }

    #[test]
    fn the_secant_vector_recovers_the_missing_curvature() {
        let mut member = member(1.0, [0.2, -0.3]);
        let secant = find_secant_vector(&member, WIDE_OPEN);
        for (p, q) in [(0, 0), (1, 0), (1, 1)] {
            assert!(
                (secant[p] * secant[q] - SECANT[p] * SECANT[q]).abs() < 1e-9,
                "{secant:?}"
            );
        }
        // With it, the next step ends in the minimum.
        let settings = LevenbergMarquardt::default();
        let step = solve_damped_step(&mut member, &secant, &rules(&settings)).unwrap();
        let change = gradient_change(1.0, &step.delta);
        assert!(
            change
                .iter()
                .zip(GRADIENT)
                .all(|(change, g)| (change - g).abs() < 1e-9),
            "{change:?}"
        );
    }

    #[test]
    fn the_secant_vector_is_zero_for_distant_points_small_terms_and_missing_points() {
        let is_zero = |member: &Member| find_secant_vector(member, WIDE_OPEN) == [0.0; 2];
        assert!(!is_zero(&member(1.0, [0.2, -0.3])));
        // A small term, and a negative one: where A exaggerates the curvature, steps are too short, which does no harm.
        assert!(is_zero(&member(0.1, [0.34, -0.51])) && is_zero(&member(-0.9, [0.34, -0.51])));
        // The minimum of this line is half the way: at the end of half of it, and in the first sixth of three times it.
        let with_high_cost = |rejections, trial| {
            let mut member = member(1.0, trial);
            member.sums.chi2 = 1e6;
            member.rejections = rejections;
            member
        };
        assert!(
            !is_zero(&with_high_cost(0, [0.4, -0.6])) && !is_zero(&with_high_cost(1, [0.6, -0.9]))
        );
        assert!(
            is_zero(&with_high_cost(1, [0.1, -0.15])) && is_zero(&with_high_cost(0, [0.6, -0.9]))
        );
        assert!(is_zero(&member(1.0, [0.4, -0.6])) && is_zero(&member(1.0, [0.0, 0.0])));
        // A parameter that its bound holds does not count.
        let at_bound = find_secant_vector(
            &member(1.0, [0.2, -0.3]),
            Bounds {
                lower: &[-100.0, 0.0],
                upper: &[100.0; 2],
            },
        );
        assert!(at_bound[1] == 0.0);
        assert!(is_zero(&Member {
            rounds: 1,
            ..member(1.0, [0.2, -0.3])
        }));
        let mut with_nan = member(1.0, [0.2, -0.3]);
        with_nan.trial_sums.gradient[1] = f64::NAN;
        assert!(is_zero(&with_nan));
    }

    #[test]
    fn steps_beyond_twice_the_way_to_the_minimum_overshoot_it() {
        let mut quadratic = member(0.0, [0.2, -0.3]);
        let settings = LevenbergMarquardt::default();
        let step = solve_damped_step(&mut quadratic, &[0.0; 2], &rules(&settings)).unwrap();
        let trial = [step.delta[0], step.delta[1]];
        // Along this step S adds 1.07 of A's curvature.
        assert!(
            !overshoots_minimum(&member(0.9, trial)) && overshoots_minimum(&member(1.1, trial))
        );
    }

    /// cost = 7000 + (4 − x)² + (−3 − x²)²: at its minimum four times as curved as JᵀJ says, so that Gauss–Newton steps
    /// lead ever farther away.
    #[test]
    fn costs_with_missing_curvature_converge_in_few_rounds() {
        let minimum = 0.529_106_95;
        let mut member = Member::new(0, 0, &[0.6], 1e-3);
        while member.status.is_none() {
            let x = member.trial[0];
            let residuals = [4.0 - x, -3.0 - x * x];
            let slopes = [1.0, 2.0 * x];
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
            step_member(
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
