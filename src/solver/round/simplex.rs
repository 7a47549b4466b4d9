//! One Nelder–Mead iteration of one simplex: takes the objectives of the points that its members evaluated, then sets
//! the next ones. f64. Twin of `shaders/simplex.wgsl`.
//!
//! A simplex owns four consecutive members. Their points are its reflection, expansion and both contractions, or four
//! vertices that have no value yet (at the start, after a shrink, after a restart). A device thus runs simplices as it
//! runs all members: the stages, then the step, then `compact`. The recording has `values_only`: the same stages
//! without rows of derivatives. The CPU, and a GPU that enough simplices fill, evaluate only the one or two points that
//! matter, one after the other; with fewer, a GPU evaluates all four at once. The simplex moves in the same way.
//!
//! With n free parameters, the coefficients are those of Gao & Han (2012, Comput. Optim. Appl. 51, 259): ρ = 1, χ = 1 +
//! 2/n, γ = 3/4 − 1/2n, σ = 1 − 1/n (½ for n = 1). A coarse search up to n = 6 has those of Nelder & Mead, ρ = 1, χ =
//! 2, γ = σ = 1/2. These take fewer evaluations there, because the first simplex has the shape of the problem.

use crate::solver::member::Member;
use crate::solver::simplex::{Simplex, TRIALS_PER_SIMPLEX};
use crate::solver::thresholds::{COLLAPSED_SIZE, MAX_CLASSICAL_PARAMETERS, RESPREAD_FACTOR};
use crate::solver::{Bounds, NelderMead, Status};

/// Relative error of an objective above which it was computed in f32. Its parameters are then of order 1.
const LEAST_ERROR_OF_F32: f64 = 1e-9;

/// Factors on the way from the worst vertex to the centroid of the others, and on the edges in a shrink.
struct Coefficients {
    expansion: f64,
    contraction: f64,
    shrink: f64,
}

impl Coefficients {
    /// Returns the expansion, contraction and shrink factors: classical for coarse searches of few parameters, else
    /// adaptive.
    fn for_simplex(simplex: &Simplex) -> Coefficients {
        let free = simplex.free.len();
        if simplex.coarse_fatol > 0.0 && free <= MAX_CLASSICAL_PARAMETERS {
            return Coefficients {
                expansion: 2.0,
                contraction: 0.5,
                shrink: 0.5,
            };
        }
        let n = free as f64;
        Coefficients {
            expansion: 1.0 + 2.0 / n,
            contraction: 0.75 - 0.5 / n,
            shrink: 1.0 - 1.0 / n.max(2.0),
        }
    }
}

/// A trial point of a simplex.
pub trait TrialPoint {
    /// Returns the coordinates of the point (P).
    fn point(&self) -> &[f64];

    /// Returns the coordinates of the point, to be changed (P).
    fn point_mut(&mut self) -> &mut [f64];

    /// Returns the objective at the point, with ln det C if that counts; infinite where it is not finite.
    fn objective(&self, marginalise: bool) -> f64;
}

impl TrialPoint for Member {
    fn point(&self) -> &[f64] {
        &self.trial
    }

    fn point_mut(&mut self) -> &mut [f64] {
        &mut self.trial
    }

    fn objective(&self, marginalise: bool) -> f64 {
        let sums = &self.trial_sums;
        let value = sums.cost() + if marginalise { sums.ln_det } else { 0.0 };
        if value.is_finite() {
            value
        } else {
            f64::INFINITY
        }
    }
}

/// Definition of the objective, and its relative error.
#[derive(Clone, Copy, Debug)]
pub struct ObjectiveSettings {
    /// ln det C counts.
    pub marginalise: bool,
    /// See [`Recording::dof`](crate::recording::Recording::dof).
    pub dof: Option<f64>,
    /// Relative error of an objective.
    pub noise: f64,
}

/// Moves a simplex by its trial points' objectives and sets the next ones; returns the final status if there are none.
pub fn move_simplex<T: TrialPoint>(
    simplex: &mut Simplex,
    trials: &mut [T],
    bounds: Bounds<'_>,
    settings: &NelderMead,
    objective: ObjectiveSettings,
) -> Option<Status> {
    simplex.rounds += 1;
    let mut objectives = [f64::INFINITY; TRIALS_PER_SIMPLEX];
    for (value, trial) in objectives.iter_mut().zip(&*trials) {
        *value = trial.objective(objective.marginalise);
    }
    if has_pending_vertex(simplex) {
        // The trial points were the vertices without a value.
        let pending_values = simplex.values.iter_mut().filter(|value| value.is_nan());
        for (value, objective) in pending_values.zip(objectives) {
            simplex.evaluations += 1;
            *value = objective;
        }
    } else {
        let needs_second = choose_second_lane(simplex, objectives[0]).is_some();
        simplex.evaluations += 1 + u32::from(needs_second);
        replace_worst(simplex, trials, &objectives);
    }
    choose_trial_points(simplex, trials, bounds, settings, objective)
}

/// Returns how many trial points this round evaluates first: the vertices without a value, or the reflection.
pub fn count_first_lanes(simplex: &Simplex) -> usize {
    pending_vertices(simplex).count().max(1)
}

/// Returns the index of the other trial point to evaluate, given the reflection's objective; `None` if it needs none.
pub fn choose_second_lane(simplex: &Simplex, reflected: f64) -> Option<usize> {
    if has_pending_vertex(simplex) {
        return None;
    }
    let (best, second, worst) = rank_vertices(simplex);
    if reflected < simplex.values[best] {
        Some(1) // expansion
    } else if reflected < simplex.values[second] {
        None
    } else if reflected < simplex.values[worst] {
        Some(2) // outside contraction
    } else {
        Some(3) // inside contraction
    }
}

/// Returns the indices of the vertices without a value (NaN) that this round evaluates.
fn pending_vertices(simplex: &Simplex) -> impl Iterator<Item = usize> + '_ {
    (0..simplex.values.len())
        .filter(|&v| simplex.values[v].is_nan())
        .take(TRIALS_PER_SIMPLEX)
}

/// Returns whether a vertex still waits for its value, which is then NaN.
fn has_pending_vertex(simplex: &Simplex) -> bool {
    simplex.values.iter().any(|value| value.is_nan())
}

/// Accepts one of the four trial points, or shrinks towards the best vertex.
fn replace_worst<T: TrialPoint>(
    simplex: &mut Simplex,
    trials: &[T],
    objectives: &[f64; TRIALS_PER_SIMPLEX],
) {
    // 1. Choose the trial point that replaces the worst vertex.
    let (best, second, worst) = rank_vertices(simplex);
    let [reflected, expanded, outside, inside] = *objectives;
    let accepted_lane = if reflected < simplex.values[best] {
        Some(if expanded < reflected { 1 } else { 0 })
    } else if reflected < simplex.values[second] {
        Some(0)
    } else if reflected < simplex.values[worst] {
        (outside <= reflected).then_some(2)
    } else {
        (inside < simplex.values[worst]).then_some(3)
    };
    if let Some(lane) = accepted_lane {
        simplex.set_vertex(worst, trials[lane].point(), objectives[lane]);
        return;
    }
    // 2. If there is none, shrink all other vertices towards the best; they have no value then.
    let Coefficients { shrink, .. } = Coefficients::for_simplex(simplex);
    let centre = simplex.vertex(best).to_vec();
    for v in (0..simplex.values.len()).filter(|&v| v != best) {
        let point: Vec<f64> = simplex
            .vertex(v)
            .iter()
            .zip(&centre)
            .map(|(x, c)| c + shrink * (x - c))
            .collect();
        simplex.set_vertex(v, &point, f64::NAN);
    }
}

/// Returns the indices of the vertices with the lowest, the second highest and the highest objective.
fn rank_vertices(simplex: &Simplex) -> (usize, usize, usize) {
    let worst = highest_vertex_except(simplex, simplex.values.len());
    (simplex.best(), highest_vertex_except(simplex, worst), worst)
}

/// Returns the index of the vertex with the highest objective, without vertex `skipped`. Of equals it is the last, so
/// that the best one is not also the worst.
fn highest_vertex_except(simplex: &Simplex, skipped: usize) -> usize {
    (0..simplex.values.len())
        .filter(|&v| v != skipped)
        .max_by(|&a, &b| simplex.values[a].total_cmp(&simplex.values[b]))
        .unwrap_or(0)
}

/// Returns whether all vertices agree with vertex `best` within rounding in f32, relative to its coordinates or
/// `least_magnitude`.
fn is_collapsed(simplex: &Simplex, best: usize, least_magnitude: f64) -> bool {
    let centre = simplex.vertex(best);
    (0..simplex.values.len()).all(|v| {
        simplex
            .vertex(v)
            .iter()
            .zip(centre)
            .all(|(x, c)| (x - c).abs() <= COLLAPSED_SIZE * c.abs().max(least_magnitude))
    })
}

/// Sets the next trial points of a simplex, or returns the final status if the search ends.
fn choose_trial_points<T: TrialPoint>(
    simplex: &mut Simplex,
    trials: &mut [T],
    bounds: Bounds<'_>,
    settings: &NelderMead,
    ObjectiveSettings { dof, noise, .. }: ObjectiveSettings,
) -> Option<Status> {
    if simplex.free.is_empty() && simplex.values[0].is_finite() {
        return Some(Status::Gtol); // nothing can move, and its objective is known
    }
    if simplex.rounds >= settings.max_rounds {
        return Some(Status::MaxRounds);
    }
    if !has_pending_vertex(simplex) {
        // 1. A search has failed where no vertex has a finite objective, or where the first ones are all equal, so that
        //    they show no direction.
        let (best, _, worst) = rank_vertices(simplex);
        let lowest = simplex.values[best];
        if !lowest.is_finite() {
            return Some(Status::NotFinite);
        }
        let range = simplex.values[worst] - lowest;
        let rounds_of_first_vertices = simplex.values.len().div_ceil(TRIALS_PER_SIMPLEX);
        let is_untouched = simplex.rounds as usize <= rounds_of_first_vertices;
        if is_untouched && range <= noise * lowest.abs() && lowest != 0.0 {
            return Some(Status::Stalled);
        }
        // 2. It has converged where the objectives agree within the tolerance, or the vertices within rounding.
        //    Infinite vertices have not converged.
        let (fatol, relative) = settings.tolerances(dof, noise);
        let (unit, relative_unit) = NelderMead::unit(dof);
        let coarse = simplex.coarse_fatol * unit.max(relative_unit * lowest.abs());
        let tolerance = fatol.max(relative * lowest.abs()).max(coarse);
        let least_magnitude = if noise > LEAST_ERROR_OF_F32 { 1.0 } else { 0.0 };
        let has_converged = range <= tolerance || is_collapsed(simplex, best, least_magnitude);
        // 3. It is spread again until two restarts in a row, one from either side, have gained nothing.
        let may_restart = simplex.coarse_fatol == 0.0
            && simplex.restarts < settings.max_restarts
            && simplex.spread_before - lowest > tolerance;
        if has_converged && !may_restart {
            return Some(Status::Ftol);
        }
        let restarts = may_restart && (has_converged || is_collapsed(simplex, best, 1.0));
        if !restarts {
            set_search_points(simplex, trials, bounds);
            return None;
        }
        simplex.restarts += 1;
        simplex.spread_before = simplex.spread_at;
        simplex.spread_at = lowest;
        // The negative factor changes the side each time.
        let size = settings.size * (-RESPREAD_FACTOR).powi(simplex.restarts as i32);
        simplex.spread(best, bounds, size);
    }
    // 4. Evaluate the vertices without a value; lanes beyond them repeat the first one.
    let first_pending = pending_vertices(simplex).next().unwrap_or(0);
    let evaluated = pending_vertices(simplex).chain(std::iter::repeat(first_pending));
    for (trial, v) in trials.iter_mut().zip(evaluated) {
        trial.point_mut().copy_from_slice(simplex.vertex(v));
    }
    None
}

/// Sets the trial points to the worst vertex's reflection, expansion and two contractions, clamped to the bounds.
fn set_search_points<T: TrialPoint>(simplex: &Simplex, trials: &mut [T], bounds: Bounds<'_>) {
    let (_, _, worst) = rank_vertices(simplex);
    let n = simplex.free.len() as f64;
    let Coefficients {
        expansion,
        contraction,
        ..
    } = Coefficients::for_simplex(simplex);
    let factors = [1.0, expansion, contraction, -contraction];
    for p in 0..bounds.lower.len() {
        let other_vertices = (0..simplex.values.len()).filter(|&v| v != worst);
        let centroid = other_vertices.map(|v| simplex.vertex(v)[p]).sum::<f64>() / n;
        let away = centroid - simplex.vertex(worst)[p];
        for (trial, factor) in trials.iter_mut().zip(factors) {
            trial.point_mut()[p] =
                (centroid + factor * away).clamp(bounds.lower[p], bounds.upper[p]);
        }
    }
}
