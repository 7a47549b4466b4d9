//! The damped step inside the box: (A + S + μ diag A) δ = g, bounds by an active set (see `docs/src/equations.md`), S =
//! s sᵀ of `secant.rs`. f64. Twin of `shaders/shared/box.wgsl`.

use super::Rules;
use super::decisions::Outlook;
use super::equations::{magnitude, shortened_reduction};
use super::faces::PathInBox;
use super::system::DampedSystem;
use crate::math::triangle::packed_index;
use crate::solver::Bounds;
use crate::solver::member::{Member, Phase, PredictedReduction};
use crate::solver::thresholds::{LEGS_PER_PARAMETER, SOLVE_ATTEMPTS, UNDAMPED};

/// A step from the accepted point and its predictions. Convergence is judged by the step as it was solved for, or
/// lengthened; its trial point by what the shortened step predicts.
pub struct DampedStep {
    /// Shortened where it was too long, or lengthened where steps creep.
    pub delta: Vec<f64>,
    /// The step has another length than it was solved for, so that its prediction says nothing about the next step.
    pub is_rescaled: bool,
    /// 2 gᵀδ − δᵀ(A + S)δ before the step was shortened. For a lengthened step, δᵀ(A + S)δ.
    pub predicted_reduction: f64,
    /// 2 gᵀδ − δᵀ(A + S)δ after the step was shortened, or before it was lengthened.
    pub taken_reduction: f64,
    /// ‖√diag(A) δ‖² before the step was shortened.
    pub length_squared: f64,
    /// ‖√diag(A) θ‖² over the parameters that moved.
    pub scale_squared: f64,
    /// The largest share of its own diagonal by which a free parameter is damped: μ, or more by the floor.
    pub damping: f64,
}

impl DampedStep {
    /// Returns the step's predictions about the end of the member's fit.
    pub fn outlook(&self, member: &Member) -> Outlook<f64> {
        Outlook {
            reduction: self.predicted_reduction,
            previous: member.predicted_reduction.of_whole_step().unwrap_or(0.0),
            was_rejected: member.rejections > 0,
            is_rescaled: self.is_rescaled,
            is_undamped: self.damping < UNDAMPED,
            length_squared: self.length_squared,
            scale_squared: self.scale_squared,
        }
    }

    /// Multiplies the step by a factor above 1, and by `longest` at most, so that its prediction says nothing about the
    /// next step. Convergence is judged by the length that it would have without `longest`.
    pub fn lengthen(&mut self, factor: f64, longest: f64) {
        self.delta
            .iter_mut()
            .for_each(|delta| *delta *= factor.min(longest));
        self.predicted_reduction *= factor * factor;
        self.length_squared *= factor * factor;
        self.is_rescaled = true;
    }

    /// Returns the cost reduction predicted for the step as it is taken, whole or rescaled. A reduction below 0 is
    /// rounding, and says as little about the next step as that of a rescaled one.
    pub fn prediction(&self) -> PredictedReduction {
        if self.is_rescaled {
            PredictedReduction::Rescaled(self.taken_reduction)
        } else if self.predicted_reduction < 0.0 {
            PredictedReduction::Rescaled(-self.predicted_reduction)
        } else {
            PredictedReduction::Whole(self.predicted_reduction)
        }
    }
}

/// Returns whether a parameter may move: its bounds leave room, it is not pushed against one, and the model depends on
/// it.
pub fn is_free(member: &Member, p: usize, bounds: Bounds<'_>) -> bool {
    let x = member.parameters[p];
    let gradient = member.sums.gradient[p];
    bounds.of(p).lets_move(x, gradient) && member.sums.normal_matrix[packed_index(p, p)] > 0.0
}

/// Returns the damped step inside the bounds; raises the damping until the matrix factorises, `None` if it never does.
pub fn solve_damped_step(
    member: &mut Member,
    secant: &[f64],
    rules: &Rules<'_>,
) -> Option<DampedStep> {
    for _ in 0..SOLVE_ATTEMPTS {
        if let Some(step) = solve_in_box(member, secant, rules) {
            return Some(step);
        }
        member.damping = member.damping.raise();
    }
    None
}

/// Returns the damped step at the current damping, along the bounds where it meets them; `None` if a matrix does not
/// factorise.
fn solve_in_box(member: &Member, secant: &[f64], rules: &Rules<'_>) -> Option<DampedStep> {
    let Rules {
        bounds, settings, ..
    } = *rules;
    let count = member.parameters.len();
    let free: Vec<bool> = (0..count).map(|p| is_free(member, p, bounds)).collect();
    // 1. The floor of the damping's diagonal, a share of the largest element. Once it is released, it is 0, because it
    //    would go on damping steps that are to be undamped.
    let floor = if member.phase == Phase::Searching {
        settings.diagonal_floor
    } else {
        0.0
    };
    let largest_diagonal = (0..count)
        .filter(|&p| free[p])
        .map(|p| member.sums.normal_matrix[packed_index(p, p)])
        .fold(0.0, f64::max);
    let system = DampedSystem {
        member,
        secant,
        diagonal_floor: floor * largest_diagonal,
    };
    // 2. Walk towards the solution for the free parameters until no bound is met and none is released.
    let mut path = PathInBox {
        bounds,
        delta: vec![0.0; count],
        free,
    };
    let mut damping = 0.0;
    for _ in 0..=LEGS_PER_PARAMETER * count {
        let mut goal = path.delta.clone();
        damping = system.solve_free(&path.free, &mut goal)?;
        let meets_face = path.advance_to_face(&member.parameters, &goal);
        if !meets_face && !path.release_best_parameter(&system) {
            break;
        }
    }
    // 3. Limit its length, and predict its reduction.
    let step = finish_step(member, secant, path.delta, settings.largest_step, damping);
    Some(step)
}

/// Returns the largest factor of a step with which no parameter moves by more than `largest_step` times its magnitude.
pub fn longest_factor(member: &Member, largest_step: f64, delta: &[f64]) -> f64 {
    let mut largest_ratio = 0.0;
    for (delta, x) in delta.iter().zip(&member.parameters) {
        largest_ratio = f64::max(largest_ratio, delta.abs() / magnitude(*x, 1.0));
    }
    largest_step / largest_ratio
}

/// Makes a step of `delta`, shortened so that no parameter moves by more than `largest_step` times its magnitude, with
/// its predictions.
fn finish_step(
    member: &Member,
    secant: &[f64],
    mut delta: Vec<f64>,
    largest_step: f64,
    damping: f64,
) -> DampedStep {
    let normal_matrix = &member.sums.normal_matrix;
    // 1. The terms of the quadratic model, gᵀδ and δᵀ(A + S)δ, and the lengths of step and parameters.
    let mut linear = 0.0;
    let mut quadratic = 0.0;
    let mut length_squared = 0.0;
    let mut scale_squared = 0.0;
    for p in 0..delta.len() {
        linear += member.sums.gradient[p] * delta[p];
        for q in 0..delta.len() {
            let curvature = normal_matrix[packed_index(p, q)] + secant[p] * secant[q];
            quadratic += delta[p] * curvature * delta[q];
        }
        if delta[p] != 0.0 {
            let diagonal = normal_matrix[packed_index(p, p)];
            length_squared += diagonal * delta[p] * delta[p];
            scale_squared += diagonal * member.parameters[p] * member.parameters[p];
        }
    }
    // 2. Shorten the step if it is too long.
    let share = longest_factor(member, largest_step, &delta).min(1.0);
    for element in &mut delta {
        *element *= share;
    }
    DampedStep {
        delta,
        is_rescaled: share < 1.0,
        predicted_reduction: 2.0 * linear - quadratic,
        taken_reduction: shortened_reduction(2.0 * linear, quadratic, share),
        length_squared,
        scale_squared,
        damping,
    }
}
