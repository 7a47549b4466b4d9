//! One Nelder–Mead iteration of one simplex: takes the values of the points that its members evaluated, then sets the
//! next ones. f64. Twin of `shaders/simplex.wgsl`.
//!
//! A simplex owns four consecutive members. Their points are its reflection, expansion and both contractions, or four
//! vertices that have no value yet (at the start, after a shrink, after a restart). A device thus runs simplices as it
//! runs everything else: the stages, then what moves the members, then `compact`. The recording has `values_only`: the
//! same stages without rows of derivatives. The CPU, and a GPU that enough simplices fill, evaluate only the one or two
//! points that matter, one after the other; with fewer, a GPU evaluates all four at once. The simplex moves the same
//! way.
//!
//! With n free parameters, the coefficients are those of Gao & Han (2012, Comput. Optim. Appl. 51, 259): ρ = 1, χ = 1 +
//! 2/n, γ = 3/4 − 1/2n, σ = 1 − 1/n (½ for n = 1). A coarse search up to n = 6 has those of Nelder & Mead, ρ = 1, χ =
//! 2, γ = σ = 1/2. These take fewer evaluations there, because the first simplex has the shape of the problem.

use crate::solver::member::Member;
use crate::solver::simplex::{LANES, Simplex};
use crate::solver::thresholds::{CLASSICAL, COLLAPSED, RESPREAD};
use crate::solver::{Bounds, NelderMead, Status};

/// Relative errors of objectives above this are f32's, whose parameters are of order 1.
const SINGLE: f64 = 1e-9;

/// Multiples of the way from the worst vertex through the centroid of the others, and of the edges in a shrink.
struct Coefficients {
    expansion: f64,
    contraction: f64,
    shrink: f64,
}

impl Coefficients {
    /// Returns the expansion, contraction and shrink factors: classical for coarse searches of few parameters, else
    /// adaptive.
    fn of(simplex: &Simplex) -> Coefficients {
        let free = simplex.free.len();
        if simplex.coarse_fatol > 0.0 && free <= CLASSICAL {
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

    /// Returns what was found there, with ln det C if that counts; infinite where it is not finite.
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
pub struct Worth {
    /// ln det C counts.
    pub marginalise: bool,
    /// See [`Recording::dof`](crate::recording::Recording::dof).
    pub dof: Option<f64>,
    /// Relative error of an objective.
    pub noise: f64,
}

/// Moves a simplex by its trial points' objectives and sets the next ones; returns the final status if there are none.
pub fn simplex<T: TrialPoint>(
    simplex: &mut Simplex,
    trials: &mut [T],
    bounds: Bounds<'_>,
    settings: &NelderMead,
    worth: Worth,
) -> Option<Status> {
    simplex.rounds += 1;
    let mut found = [f64::INFINITY; LANES];
    found
        .iter_mut()
        .zip(&*trials)
        .for_each(|(value, trial)| *value = trial.objective(worth.marginalise));
    if has_pending(simplex) {
        let unknown = simplex.values.iter_mut().filter(|value| value.is_nan());
        for (value, found) in unknown.zip(found) {
            simplex.evaluations += 1;
            *value = found;
        }
    } else {
        simplex.evaluations += 1 + u32::from(second_lane(simplex, found[0]).is_some());
        replace_worst(simplex, trials, &found);
    }
    choose(simplex, trials, bounds, settings, worth)
}

/// Returns how many trial points this round evaluates first: the vertices without a value, or the reflection.
pub fn first_lanes(simplex: &Simplex) -> usize {
    pending(simplex).count().max(1)
}

/// Returns the index of the other trial point to evaluate, given the reflection's objective; `None` if it needs none.
pub fn second_lane(simplex: &Simplex, reflected: f64) -> Option<usize> {
    if has_pending(simplex) {
        return None;
    }
    let (best, second, worst) = order(simplex);
    match () {
        () if reflected < simplex.values[best] => Some(1),
        () if reflected < simplex.values[second] => None,
        () if reflected < simplex.values[worst] => Some(2),
        () => Some(3),
    }
}

/// Returns the indices of the vertices without a value (NaN) that this round evaluates.
fn pending(simplex: &Simplex) -> impl Iterator<Item = usize> + '_ {
    (0..simplex.values.len())
        .filter(|&v| simplex.values[v].is_nan())
        .take(LANES)
}

/// Returns whether a vertex still waits for its value, which is then NaN.
fn has_pending(simplex: &Simplex) -> bool {
    simplex.values.iter().any(|value| value.is_nan())
}

/// Accepts one of the four trial points, or shrinks towards the best vertex.
fn replace_worst<T: TrialPoint>(simplex: &mut Simplex, trials: &[T], found: &[f64; LANES]) {
    let (best, second, worst) = order(simplex);
    let [reflected, expanded, outside, inside] = *found;
    let taken = if reflected < simplex.values[best] {
        Some(if expanded < reflected { 1 } else { 0 })
    } else if reflected < simplex.values[second] {
        Some(0)
    } else if reflected < simplex.values[worst] {
        (outside <= reflected).then_some(2)
    } else {
        (inside < simplex.values[worst]).then_some(3)
    };
    if let Some(lane) = taken {
        simplex.set_vertex(worst, trials[lane].point(), found[lane]);
        return;
    }
    let Coefficients { shrink, .. } = Coefficients::of(simplex);
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
fn order(simplex: &Simplex) -> (usize, usize, usize) {
    let values = &simplex.values;
    let best = simplex.best();
    // the last of equals, so that the best one is not also the worst
    let highest = |skip: usize| {
        let others = (0..values.len()).filter(|&v| v != skip);
        others
            .max_by(|&a, &b| values[a].total_cmp(&values[b]))
            .unwrap_or(0)
    };
    let worst = highest(values.len());
    (best, highest(worst), worst)
}

/// Returns whether all vertices agree with vertex `best` within rounding in f32, relative to its coordinates or
/// `least`.
fn is_collapsed(simplex: &Simplex, best: usize, least: f64) -> bool {
    let centre = simplex.vertex(best);
    let near = |v: usize| {
        simplex
            .vertex(v)
            .iter()
            .zip(centre)
            .all(|(x, c)| (x - c).abs() <= COLLAPSED * c.abs().max(least))
    };
    (0..simplex.values.len()).all(near)
}

/// Sets the next trial points of a simplex, or returns the final status if the search ends.
fn choose<T: TrialPoint>(
    simplex: &mut Simplex,
    trials: &mut [T],
    bounds: Bounds<'_>,
    settings: &NelderMead,
    Worth { dof, noise, .. }: Worth,
) -> Option<Status> {
    if simplex.free.is_empty() && simplex.values[0].is_finite() {
        return Some(Status::Gtol); // nothing can move, and its objective is known
    }
    if simplex.rounds >= settings.max_rounds {
        return Some(Status::MaxRounds);
    }
    if !has_pending(simplex) {
        let (best, _, worst) = order(simplex);
        let lowest = simplex.values[best];
        if !lowest.is_finite() {
            return Some(Status::NotFinite);
        }
        let range = simplex.values[worst] - lowest;
        // nothing has moved, and nowhere does the objective tell where to
        let untouched = simplex.rounds as usize <= simplex.values.len().div_ceil(LANES);
        if untouched && range <= noise * lowest.abs() && lowest != 0.0 {
            return Some(Status::Stalled);
        }
        let (fatol, relative) = settings.tolerances(dof, noise);
        let (unit, relative_unit) = NelderMead::unit(dof);
        let coarse = simplex.coarse_fatol * unit.max(relative_unit * lowest.abs());
        let fatol = fatol.max(relative * lowest.abs()).max(coarse);
        // infinite vertices are not converged
        let ended =
            range <= fatol || is_collapsed(simplex, best, if noise > SINGLE { 1.0 } else { 0.0 });
        // once from either side without gain
        let spreads = simplex.coarse_fatol == 0.0
            && simplex.restarts < settings.max_restarts
            && simplex.spread_before - lowest > fatol;
        if ended && !spreads {
            return Some(Status::Ftol);
        }
        if spreads && (ended || is_collapsed(simplex, best, 1.0)) {
            simplex.restarts += 1;
            (simplex.spread_before, simplex.spread_at) = (simplex.spread_at, lowest);
            // from either side in turn
            simplex.spread(
                best,
                bounds,
                settings.size * (-RESPREAD).powi(simplex.restarts as i32),
            );
        } else {
            set_search(simplex, trials, bounds);
            return None;
        }
    }
    let first = pending(simplex).next().unwrap_or(0);
    let asked = pending(simplex).chain(std::iter::repeat(first));
    for (trial, v) in trials.iter_mut().zip(asked) {
        trial.point_mut().copy_from_slice(simplex.vertex(v));
    }
    None
}

/// Sets the trial points to the worst vertex's reflection, expansion and two contractions, clamped to the bounds.
fn set_search<T: TrialPoint>(simplex: &Simplex, trials: &mut [T], bounds: Bounds<'_>) {
    let (_, _, worst) = order(simplex);
    let n = simplex.free.len() as f64;
    let Coefficients {
        expansion,
        contraction,
        ..
    } = Coefficients::of(simplex);
    let factors = [1.0, expansion, contraction, -contraction];
    for p in 0..bounds.lower.len() {
        let others = (0..simplex.values.len()).filter(|&v| v != worst);
        let centroid = others.map(|v| simplex.vertex(v)[p]).sum::<f64>() / n;
        let away = centroid - simplex.vertex(worst)[p];
        for (trial, factor) in trials.iter_mut().zip(factors) {
            trial.point_mut()[p] =
                (centroid + factor * away).clamp(bounds.lower[p], bounds.upper[p]);
        }
    }
}
