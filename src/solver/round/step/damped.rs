//! The damped step inside the box: (A + S + μ diag A) δ = g, bounds by an active set (see `docs/src/equations.md`), S =
//! s sᵀ of `secant.rs`. f64. Twin of `shaders/shared/box.wgsl`.

use super::Rules;
use super::decisions::Outlook;
use super::equations::{magnitude, shortened_reduction};
use super::faces::Way;
use super::system::System;
use crate::math::triangle::packed_index;
use crate::solver::Bounds;
use crate::solver::member::{Member, Phase, Promise};
use crate::solver::thresholds::{LEGS, SOLVE_ATTEMPTS, UNDAMPED};

/// A step from the accepted point and what it promises. Convergence is judged by the step as it was solved for, or
/// lengthened, its trial by what it promises after it was shortened.
pub struct Step {
    /// Shortened where it was too long, or lengthened where steps creep.
    pub delta: Vec<f64>,
    /// The step has another length than it was solved for, so that its promise says nothing about the next step.
    pub is_rescaled: bool,
    /// 2 gᵀδ − δᵀ(A + S)δ before, and after it was shortened. For a lengthened step, δᵀ(A + S)δ, and what it promised
    /// before.
    pub predicted_reduction: f64,
    pub taken_reduction: f64,
    /// ‖√diag(A) δ‖², before, and ‖√diag(A) θ‖² over the parameters that moved.
    pub length_squared: f64,
    pub scale_squared: f64,
    /// The largest share of its own diagonal by which a free parameter is damped: μ, or more by the floor.
    pub damping: f64,
}

impl Step {
    /// Returns what the step says about the end of the member's fit.
    pub fn outlook(&self, member: &Member) -> Outlook<f64> {
        Outlook {
            reduction: self.predicted_reduction,
            previous: member.promise.of_whole_step().unwrap_or(0.0),
            was_rejected: member.rejections > 0,
            is_rescaled: self.is_rescaled,
            is_undamped: self.damping < UNDAMPED,
            length_squared: self.length_squared,
            scale_squared: self.scale_squared,
        }
    }

    /// Multiplies the step by a factor above 1, and by `longest` at most, so that its promise says nothing about the
    /// next step. Convergence is judged by the length that it has before `longest` counts.
    pub fn lengthen(&mut self, factor: f64, longest: f64) {
        self.delta
            .iter_mut()
            .for_each(|delta| *delta *= factor.min(longest));
        self.predicted_reduction *= factor * factor;
        self.length_squared *= factor * factor;
        self.is_rescaled = true;
    }

    /// Returns the cost reduction predicted for the step as it is taken, whole or shortened. A reduction below 0 is
    /// rounding, and says as little about the next step as that of a shortened one.
    pub fn promise(&self) -> Promise {
        match self.is_rescaled {
            true => Promise::Rescaled(self.taken_reduction),
            false if self.predicted_reduction < 0.0 => Promise::Rescaled(-self.predicted_reduction),
            false => Promise::Whole(self.predicted_reduction),
        }
    }
}

/// Returns whether a parameter may move: its bounds leave room, it is not pushed against one, and the model depends on
/// it.
pub fn is_free(member: &Member, p: usize, bounds: Bounds<'_>) -> bool {
    let (x, g) = (member.parameters[p], member.sums.gradient[p]);
    bounds.of(p).lets_move(x, g) && member.sums.normal_matrix[packed_index(p, p)] > 0.0
}

/// Returns the damped step inside the bounds; raises the damping until the matrix factorises, `None` if it never does.
pub fn solve(member: &mut Member, secant: &[f64], rules: &Rules<'_>) -> Option<Step> {
    for _ in 0..SOLVE_ATTEMPTS {
        if let Some(step) = solve_in_box(member, secant, rules) {
            return Some(step);
        }
        member.damping = member.damping.raise();
    }
    None
}

/// Returns the damped step, going on along the bounds where it meets them; `None` if a matrix does not factorise.
fn solve_in_box(member: &Member, secant: &[f64], rules: &Rules<'_>) -> Option<Step> {
    let Rules {
        bounds, settings, ..
    } = *rules;
    let count = member.parameters.len();
    let free: Vec<bool> = (0..count).map(|p| is_free(member, p, bounds)).collect();
    // a floor would go on damping the steps that are to have none
    let floor = if member.phase == Phase::Searching {
        settings.diagonal_floor
    } else {
        0.0
    };
    let diagonal = |p: usize| member.sums.normal_matrix[packed_index(p, p)];
    let lowest = floor
        * (0..count)
            .filter(|&p| free[p])
            .map(diagonal)
            .fold(0.0, f64::max);
    let system = System {
        member,
        secant,
        lowest,
    };
    let mut way = Way {
        bounds,
        delta: vec![0.0; count],
        free,
    };
    let mut damping = 0.0;
    for _ in 0..=LEGS * count {
        let mut goal = way.delta.clone();
        damping = system.solve_free(&way.free, &mut goal)?;
        if !way.meet_faces(&member.parameters, &goal) && !way.release(&system) {
            break;
        }
    }
    Some(take(
        member,
        secant,
        way.delta,
        settings.largest_step,
        damping,
    ))
}

/// Returns the largest factor of a step with which no parameter moves by more than `most` times its magnitude.
pub fn longest_factor(member: &Member, most: f64, delta: &[f64]) -> f64 {
    let ratio = |(d, x): (&f64, &f64)| d.abs() / magnitude(*x, 1.0);
    most / delta
        .iter()
        .zip(&member.parameters)
        .map(ratio)
        .fold(0.0, f64::max)
}

/// Makes a step of `delta`, scaled so that no parameter moves by more than `most` times its magnitude, with its
/// predictions.
fn take(member: &Member, secant: &[f64], mut delta: Vec<f64>, most: f64, damping: f64) -> Step {
    let normal = &member.sums.normal_matrix;
    let (mut linear, mut quadratic, mut length_squared, mut scale_squared) = (0.0, 0.0, 0.0, 0.0);
    for p in 0..delta.len() {
        linear += member.sums.gradient[p] * delta[p];
        for q in 0..delta.len() {
            quadratic += delta[p] * (normal[packed_index(p, q)] + secant[p] * secant[q]) * delta[q];
        }
        if delta[p] != 0.0 {
            let diagonal = normal[packed_index(p, p)];
            length_squared += diagonal * delta[p] * delta[p];
            scale_squared += diagonal * member.parameters[p] * member.parameters[p];
        }
    }
    let share = longest_factor(member, most, &delta).min(1.0);
    delta.iter_mut().for_each(|d| *d *= share);
    Step {
        delta,
        is_rescaled: share < 1.0,
        predicted_reduction: 2.0 * linear - quadratic,
        taken_reduction: shortened_reduction(2.0 * linear, quadratic, share),
        length_squared,
        scale_squared,
        damping,
    }
}
