//! The damped step inside the box: (A + S + μ diag A) δ = g, bounds by projection with an active set (design §2.6), S = s sᵀ of
//! `secant.rs`. f64. Twin of `shaders/shared/box.wgsl`.

use crate::solver::LevenbergMarquardt;
use crate::solver::member::{Member, Mode};
use crate::solver::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};

/// Share of a parameter's unit below which its magnitude does not bound a step.
const SMALLEST_MAGNITUDE: f64 = 0.1;
/// Factors of ten by which the damping may rise until the matrix factorises.
const SOLVE_ATTEMPTS: usize = 10;

/// A step from the accepted point and what it promises. Convergence is judged by the step as it was solved for, its trial by what it
/// promises after it was shortened.
pub struct Step {
    /// Shortened where it was too long.
    pub delta: Vec<f64>,
    pub is_shortened: bool,
    /// 2 gᵀδ − δᵀ(A + S)δ before, and after it was shortened.
    pub predicted_reduction: f64,
    pub taken_reduction: f64,
    /// ‖√diag(A) δ‖, before, and ‖√diag(A) θ‖ over the parameters that moved.
    pub length: f64,
    pub scale: f64,
    /// The largest share of its own diagonal by which a free parameter is damped: μ, or more by the floor.
    pub damping: f64,
}

impl Step {
    /// Nothing is left to gain, to `share` of the cost, or to move.
    pub fn is_small(&self, settings: &LevenbergMarquardt, share: f64, cost: f64) -> bool {
        self.predicted_reduction <= share * cost || self.length <= settings.xtol * (self.scale + settings.xtol)
    }
}

/// A parameter that may move: its bounds leave room, it is not pushed against one, and the model depends on it.
pub fn is_free(member: &Member, p: usize, lower: &[f64], upper: &[f64]) -> bool {
    let (x, g) = (member.parameters[p], member.sums.gradient[p]);
    let pushed = (x <= lower[p] && g <= 0.0) || (x >= upper[p] && g >= 0.0);
    upper[p] > lower[p] && !pushed && member.sums.normal_matrix[packed_index(p, p)] > 0.0
}

/// The damped step inside the box; raises the damping until the matrix factorises. `None`: it never does.
pub fn solve(
    member: &mut Member,
    secant: &[f64],
    bounds: (&[f64], &[f64]),
    settings: &LevenbergMarquardt,
) -> Option<Step> {
    for _ in 0..SOLVE_ATTEMPTS {
        if let Some(step) = solve_in_box(member, secant, bounds, settings) {
            return Some(step);
        }
        member.damping.mu = f64::max(10.0 * member.damping.mu, 1e-6);
    }
    None
}

/// Parameters that would leave the box are put on its face, the others solved again with that step given.
fn solve_in_box(
    member: &Member,
    secant: &[f64],
    (lower, upper): (&[f64], &[f64]),
    settings: &LevenbergMarquardt,
) -> Option<Step> {
    let count = member.parameters.len();
    let mut delta = vec![0.0; count];
    let mut free: Vec<bool> = (0..count).map(|p| is_free(member, p, lower, upper)).collect();
    // a floor would go on damping the steps that are to have none
    let floor = if member.mode == Mode::Searching { settings.diagonal_floor } else { 0.0 };
    let mut damping = 0.0;
    for _ in 0..=count {
        damping = solve_free(member, secant, (&free, floor), &mut delta)?;
        let mut inside = true;
        for p in 0..count {
            let target = member.parameters[p] + delta[p];
            if free[p] && !(target >= lower[p] && target <= upper[p]) {
                delta[p] = if target < lower[p] { lower[p] } else { upper[p] } - member.parameters[p];
                free[p] = false;
                inside = false;
            }
        }
        if inside {
            break;
        }
    }
    Some(promise(member, secant, delta, settings.largest_step, damping))
}

/// The share of a step that moves no parameter by more than `most` times its magnitude: 1 where it is all of it.
fn share(member: &Member, most: f64, delta: &[f64]) -> f64 {
    let ratio = |(d, x): (&f64, &f64)| d.abs() / x.abs().max(SMALLEST_MAGNITUDE);
    let largest = delta.iter().zip(&member.parameters).map(ratio).fold(0.0, f64::max);
    if largest > most { most / largest } else { 1.0 }
}

/// Solves (A_FF + μ D) δ_F = g_F − A_FC δ_C, A with S, for the free F, the others C held; D = diag A_FF, at least `floor` times its
/// largest. Returns the largest μ D / diag A_FF.
fn solve_free(member: &Member, secant: &[f64], (free, floor): (&[bool], f64), delta: &mut [f64]) -> Option<f64> {
    let normal = &member.sums.normal_matrix;
    let curvature = |p: usize, q: usize| normal[packed_index(p, q)] + secant[p] * secant[q];
    let members: Vec<usize> = (0..free.len()).filter(|&p| free[p]).collect();
    let mut matrix = vec![0.0; packed_length(members.len())];
    let mut x = vec![0.0; members.len()];
    let mu = member.damping.mu;
    let mut damping = mu;
    let lowest = floor * members.iter().map(|&p| normal[packed_index(p, p)]).fold(0.0, f64::max);
    for (i, &p) in members.iter().enumerate() {
        for (j, &q) in members.iter().enumerate().take(i + 1) {
            matrix[packed_index(i, j)] = curvature(p, q);
        }
        let diagonal = normal[packed_index(p, p)];
        damping = damping.max(mu * lowest / diagonal);
        let damped = if diagonal < lowest { diagonal + mu * lowest } else { diagonal * (1.0 + mu) };
        matrix[packed_index(i, i)] = damped + secant[p] * secant[p];
        x[i] = member.sums.gradient[p];
        for q in (0..free.len()).filter(|&q| !free[q]) {
            x[i] -= curvature(p, q) * delta[q];
        }
    }
    if !cholesky(&mut matrix, members.len()) {
        return None;
    }
    solve_lower(&matrix, &mut x);
    solve_upper(&matrix, &mut x);
    if !x.iter().all(|v| v.is_finite()) {
        return None;
    }
    for (&p, v) in members.iter().zip(x) {
        delta[p] = v;
    }
    Some(damping)
}

fn promise(member: &Member, secant: &[f64], mut delta: Vec<f64>, most: f64, damping: f64) -> Step {
    let normal = &member.sums.normal_matrix;
    let (mut linear, mut quadratic, mut length, mut scale) = (0.0, 0.0, 0.0, 0.0);
    for p in 0..delta.len() {
        linear += member.sums.gradient[p] * delta[p];
        for q in 0..delta.len() {
            quadratic += delta[p] * (normal[packed_index(p, q)] + secant[p] * secant[q]) * delta[q];
        }
        if delta[p] != 0.0 {
            let diagonal = normal[packed_index(p, p)];
            length += diagonal * delta[p] * delta[p];
            scale += diagonal * member.parameters[p] * member.parameters[p];
        }
    }
    let share = share(member, most, &delta);
    delta.iter_mut().for_each(|d| *d *= share);
    Step {
        delta,
        is_shortened: share < 1.0,
        predicted_reduction: 2.0 * linear - quadratic,
        taken_reduction: share * (2.0 * linear - share * quadratic),
        length: length.sqrt(),
        scale: scale.sqrt(),
        damping,
    }
}
