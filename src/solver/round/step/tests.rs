//! Tests of the step's rules: steps on trust, lengthened steps, costs far above the noise.

use super::*;
use crate::buffers::{LossSums, Sums};

fn rules<'a>(bounds: Bounds<'a>, settings: &'a LevenbergMarquardt, cost_error: f64) -> Rules<'a> {
    capped_rules(bounds, settings, cost_error, f64::INFINITY)
}

/// Returns rules that cap the cost at `largest_cost`.
fn capped_rules<'a>(
    bounds: Bounds<'a>,
    settings: &'a LevenbergMarquardt,
    cost_error: f64,
    largest_cost: f64,
) -> Rules<'a> {
    let tolerances = Tolerances::with_reduction(settings, settings.ftol, largest_cost, cost_error);
    Rules {
        bounds,
        settings,
        tolerances,
        trusts_last_step: true,
    }
}

/// Returns the sums of a point whose normal matrix is the identity.
fn sums(chi2: f64, gradient: [f64; 2]) -> Sums {
    Sums {
        chi2,
        penalty: 0.0,
        ln_det: 0.0,
        loss: LossSums::default(),
        gradient: gradient.to_vec(),
        normal_matrix: vec![1.0, 0.0, 1.0],
    }
}

/// Judges a step of parameter 1 from `before` to its bound, 1, and returns the status. The step predicted a reduction
/// of 800 and gained that, and the next one predicts 0.36 of a cost of 6.5e5.
fn status_after_step_from(before: f64) -> Option<Status> {
    let mut member = Member::new(0, 0, &[0.0, before], 1e-12);
    member.rounds = 2;
    member.predicted_reduction = PredictedReduction::Whole(800.0);
    member.sums = sums(6.508e5, [20.0, 30.0]);
    member.trial = vec![0.0, 1.0];
    member.trial_sums = sums(6.5e5, [0.6, 30.0]);
    let bounds = Bounds {
        lower: &[-9.0; 2],
        upper: &[9.0, 1.0],
    };
    let settings = &LevenbergMarquardt::default();
    step_member(&mut member, &rules(bounds, settings, 1e-6));
    member.status
}

/// The ratio of two predicted reductions says nothing about the next one if a parameter has met its bound in between.
#[test]
fn no_last_step_is_taken_on_trust_after_one_that_met_a_bound() {
    assert_eq!(status_after_step_from(1.0), Some(Status::Ftol));
    assert_eq!(status_after_step_from(0.5), None);
}

/// A lengthened step that raises the cost is taken back, and a plain one is tried instead.
#[test]
fn lengthened_steps_never_raise_the_cost() {
    let gradient = [0.3, 0.0];
    for rise in [0.9, 100.0, f64::NAN] {
        let mut member = Member::new(0, 0, &[0.0; 2], 1e-12);
        member.rounds = 5;
        member.phase = Phase::Striding;
        member.predicted_reduction = PredictedReduction::Rescaled(0.09);
        member.finishing_steps = 3;
        member.sums = sums(6.5e5, gradient);
        member.trial = vec![9.0, 0.0];
        member.trial_sums = sums(6.5e5 + rise, gradient);
        let bounds = Bounds {
            lower: &[-9.0; 2],
            upper: &[9.0; 2],
        };
        let settings = &LevenbergMarquardt::default();
        step_member(&mut member, &rules(bounds, settings, 1e-6));
        assert!(
            member.status.is_none() && member.parameters == [0.0; 2],
            "{rise}: {member:?}"
        );
        assert!(
            member.phase == Phase::Finishing && (member.trial[0] - 0.3).abs() < 1e-3,
            "{rise}: {member:?}"
        );
    }
}

/// Fits cost = (1 − x)² + (height − x² / 400)² from x = 0.
fn fit_between_two_residuals(height: f64, largest_cost: f64) -> Member {
    let mut member = Member::new(0, 0, &[0.0], 1e-3);
    while member.status.is_none() {
        let x = member.trial[0];
        let residuals = [1.0 - x, height - 0.0025 * x * x];
        let slopes = [1.0, 0.005 * x];
        member.trial_sums = Sums {
            chi2: residuals.iter().map(|r| r * r).sum(),
            penalty: 0.0,
            ln_det: 0.0,
            loss: LossSums::default(),
            gradient: vec![residuals[0] * slopes[0] + residuals[1] * slopes[1]],
            normal_matrix: vec![slopes.iter().map(|s| s * s).sum()],
        };
        let bounds = Bounds {
            lower: &[-100.0],
            upper: &[100.0],
        };
        let settings = &LevenbergMarquardt::default();
        step_member(
            &mut member,
            &capped_rules(bounds, settings, 1e-3, largest_cost),
        );
    }
    println!("{} rounds to {}", member.rounds, member.parameters[0]);
    member
}

/// At the minimum, x = 20, the cost is a sixteenth as curved as JᵀJ says, and each Gauss–Newton step is 0.94 times
/// as long as the one before. If no step were lengthened, the fit would end at x = 1.
#[test]
fn creeping_steps_are_lengthened() {
    let member = fit_between_two_residuals(191.0, f64::INFINITY);
    let distance = (member.parameters[0] - 20.0).abs();
    assert!(
        member.status == Some(Status::Ftol) && distance < 0.1 && member.rounds <= 20,
        "{member:?}"
    );
}

/// At the minimum, x = 2.5, each Gauss–Newton step is 0.6 times as long as the one before. The cost is 14,400, capped
/// at 2: 10⁻⁹ of the whole cost would be a hundredth of x's error.
#[test]
fn a_fit_with_a_cost_far_above_the_noise_does_not_stop_early() {
    let member = fit_between_two_residuals(120.015625, 2.0);
    let distance = (member.parameters[0] - 2.5).abs();
    let status = member.status.unwrap();
    assert!(
        status.is_success() && distance < 1e-6 && member.rounds <= 8,
        "{member:?}"
    );
}

/// Returns the status after some finishing steps, of which the last is orthogonal to the next one. It predicted a
/// reduction of 1.1e-4, and the next one predicts `reduction`.
fn status_after_finishing_steps(
    reduction: f64,
    finishing_steps: u32,
    largest_cost: f64,
) -> Option<Status> {
    let slope = reduction.sqrt();
    let mut member = Member::new(0, 0, &[-0.0105, 0.0], 1e-6);
    member.rounds = 5;
    member.phase = Phase::Finishing;
    member.predicted_reduction = PredictedReduction::Whole(1.1e-4);
    member.finishing_steps = finishing_steps - 1;
    member.sums = sums(3000.0, [0.0105, slope]);
    member.trial = vec![0.0; 2];
    member.trial_sums = sums(3000.0, [0.0, slope]);
    let bounds = Bounds {
        lower: &[-9.0; 2],
        upper: &[9.0; 2],
    };
    let settings = &LevenbergMarquardt::default();
    step_member(
        &mut member,
        &capped_rules(bounds, settings, 1e-6, largest_cost),
    );
    member.status
}

/// Where each step is 0.95 times as long as the one before, all remaining steps together cover a fifth of an error.
/// Where steps grow, both cover more than a hundredth of an error.
#[test]
fn finishing_steps_go_on_while_the_remaining_distance_is_large() {
    for reduction in [1e-4, 4e-4] {
        for steps in [1, FAR_FINISHING_STEPS - 1] {
            assert_eq!(status_after_finishing_steps(reduction, steps, 1e4), None);
        }
        assert_eq!(
            status_after_finishing_steps(reduction, FAR_FINISHING_STEPS, 1e4),
            Some(Status::Ftol)
        );
        // The unit of such a cost is not known to be the noise.
        assert_eq!(
            status_after_finishing_steps(reduction, 1, f64::INFINITY),
            Some(Status::Ftol)
        );
    }
    // The remaining distance is less than a hundredth of an error.
    assert_eq!(
        status_after_finishing_steps(1e-5, FINISHING_STEPS - 1, 1e4),
        None
    );
    assert_eq!(
        status_after_finishing_steps(1e-5, FINISHING_STEPS, 1e4),
        Some(Status::Ftol)
    );
}
