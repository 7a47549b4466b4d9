//! One simplex of Nelder–Mead (Nelder & Mead 1965), on the host in f64. It asks for the objective at one point after
//! the other: at vertices that have no value yet, at the reflection, and at the expansion or the contraction that the
//! reflection's objective asks for. Any device that evaluates points can thus move it.
//!
//! With n free parameters, the coefficients are those of Gao & Han (2012, Comput. Optim. Appl. 51, 259): ρ = 1, χ = 1 +
//! 2/n, γ = 3/4 − 1/2n, σ = 1 − 1/n (½ for n = 1). A coarse search up to n = 6 has those of Nelder & Mead, ρ = 1, χ =
//! 2, γ = σ = 1/2. These take fewer evaluations there, because the first simplex has the shape of the problem.

use super::thresholds::{COLLAPSED_SIZE, LEAST_EDGE, MAX_CLASSICAL_PARAMETERS, RESPREAD_FACTOR};
use super::{Bounds, NelderMead, Outcome, Status};

/// Relative error of an objective above which it was computed in f32. Its parameters are then of order 1.
const LEAST_ERROR_OF_F32: f64 = 1e-9;

/// A first simplex of given shape, in place of one that is made of a size alone.
#[derive(Clone, Debug)]
pub struct FirstSimplex {
    /// (n + 1, P) in `u`.
    pub vertices: Vec<f64>,
    /// Objective of the first vertex.
    pub value: f64,
    /// The search ends, without restarts, where the objectives differ by this, in the units of
    /// [`NelderMead::fatol`](crate::NelderMead::fatol).
    pub coarse_fatol: f64,
}

/// What decides how a simplex moves and when it ends.
#[derive(Clone, Copy, Debug)]
pub struct SimplexRules<'a> {
    pub bounds: Bounds<'a>,
    pub settings: &'a NelderMead,
    /// See [`Recording::dof`](crate::recording::Recording::dof).
    pub dof: Option<f64>,
    /// Relative error of an objective.
    pub noise: f64,
}

/// Point that a simplex has asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TrialPoint {
    Vertex(usize),
    Reflection,
    /// Where the reflection is the best point.
    Expansion,
    /// On either side of the centroid.
    OutsideContraction,
    InsideContraction,
}

/// One simplex. P is the number of parameters, n that of the free ones.
#[derive(Clone, Debug)]
pub struct Simplex {
    /// Number of free parameters.
    free_count: usize,
    /// (n + 1, P) in `u`.
    vertices: Vec<f64>,
    /// (n + 1) objectives: NaN until it is evaluated, infinite where the model is not finite.
    values: Vec<f64>,
    trial: TrialPoint,
    /// (P) the point that is evaluated next.
    trial_point: Vec<f64>,
    /// (P) the reflection and its objective, while another point is evaluated.
    reflection: Vec<f64>,
    reflected: f64,
    /// Number of moves. Evaluations of all vertices without a value count as one.
    rounds: u32,
    /// Number of points whose objectives were needed.
    pub evaluations: u32,
    /// Number of times that a converged simplex was spread again around its best vertex.
    restarts: u32,
    /// Best objective when the simplex was last spread.
    spread_at: f64,
    /// Best objective when it was spread the time before.
    spread_before: f64,
    /// [`FirstSimplex::coarse_fatol`]; 0 where the settings' tolerance holds.
    coarse_fatol: f64,
}

/// Factors on the way from the worst vertex to the centroid of the others, and on the edges in a shrink.
struct Coefficients {
    expansion: f64,
    contraction: f64,
    shrink: f64,
}

impl Simplex {
    /// Makes a simplex of given vertices or, without them, with a vertex at `start` and one at the end of an edge of
    /// the settings' size along each free parameter.
    pub fn new(start: &[f64], first: Option<FirstSimplex>, rules: &SimplexRules) -> Simplex {
        let SimplexRules {
            bounds, settings, ..
        } = rules;
        let free_count = bounds.free_parameters().len();
        let count = free_count + 1;
        let mut simplex = Simplex {
            free_count,
            vertices: start.repeat(count),
            values: vec![f64::NAN; count],
            trial: TrialPoint::Vertex(0),
            trial_point: start.to_vec(),
            reflection: start.to_vec(),
            reflected: f64::NAN,
            rounds: 0,
            evaluations: 0,
            restarts: 0,
            spread_at: f64::INFINITY,
            spread_before: f64::INFINITY,
            coarse_fatol: 0.0,
        };
        match first.filter(|first| first.vertices.len() == simplex.vertices.len()) {
            Some(first) => {
                simplex.vertices = first.vertices;
                simplex.values[0] = first.value;
                simplex.coarse_fatol = first.coarse_fatol;
            }
            None => simplex.spread(0, bounds, settings.size),
        }
        simplex
    }

    /// Chooses the first point; returns the final status if the search ends without one.
    pub fn begin(&mut self, rules: &SimplexRules) -> Option<Status> {
        self.choose_trial_point(rules)
    }

    /// Returns the point whose objective [`take_objective`](Self::take_objective) expects next (P).
    pub fn trial_point(&self) -> &[f64] {
        &self.trial_point
    }

    /// Returns the best vertex as the outcome, with its objective as χ²; gradient and normal matrix are empty.
    pub fn outcome(&self, status: Status) -> Outcome {
        let best = self.best();
        Outcome {
            status: Some(status),
            rounds: self.rounds,
            evaluations: self.evaluations,
            parameters: self.vertex(best).to_vec(),
            chi2: self.values[best],
            ..Outcome::default()
        }
    }

    /// Takes the objective at the trial point, infinite where it is not finite, and chooses the next point; returns the
    /// final status if the search has ended.
    pub fn take_objective(&mut self, value: f64, rules: &SimplexRules) -> Option<Status> {
        self.evaluations += 1;
        // 1. An iteration goes on while vertices have no value, or if the reflection asks for one more point.
        match self.trial {
            TrialPoint::Vertex(v) => {
                self.values[v] = value;
                if let Some(next) = self.next_pending() {
                    self.ask_vertex(next);
                    return None;
                }
            }
            TrialPoint::Reflection => {
                let (best, second, worst) = self.rank_vertices();
                if value < self.values[best] {
                    self.ask_second(TrialPoint::Expansion, value, rules);
                    return None;
                }
                if value >= self.values[second] {
                    let is_better = value < self.values[worst];
                    let trial = if is_better {
                        TrialPoint::OutsideContraction
                    } else {
                        TrialPoint::InsideContraction
                    };
                    self.ask_second(trial, value, rules);
                    return None;
                }
                self.replace(worst, value);
            }
            // 2. The second point decides what replaces the worst vertex. If there is nothing, the simplex shrinks.
            TrialPoint::Expansion => {
                let (_, _, worst) = self.rank_vertices();
                if value < self.reflected {
                    self.replace(worst, value);
                } else {
                    std::mem::swap(&mut self.trial_point, &mut self.reflection);
                    self.replace(worst, self.reflected);
                }
            }
            TrialPoint::OutsideContraction | TrialPoint::InsideContraction => {
                let (best, _, worst) = self.rank_vertices();
                let is_accepted = match self.trial {
                    TrialPoint::OutsideContraction => value <= self.reflected,
                    _ => value < self.values[worst],
                };
                if is_accepted {
                    self.replace(worst, value);
                } else {
                    self.shrink(best);
                }
            }
        }
        // 3. Begin the next iteration.
        self.rounds += 1;
        self.choose_trial_point(rules)
    }

    /// Chooses the first point of an iteration, or returns the final status if the search ends.
    fn choose_trial_point(&mut self, rules: &SimplexRules) -> Option<Status> {
        let SimplexRules {
            bounds,
            settings,
            dof,
            noise,
        } = *rules;
        if self.free_count == 0 && self.values[0].is_finite() {
            return Some(Status::Gtol); // nothing can move, and its objective is known
        }
        if self.rounds >= settings.max_rounds {
            return Some(Status::MaxRounds);
        }
        if let Some(pending) = self.next_pending() {
            self.ask_vertex(pending);
            return None;
        }
        // 1. A search has failed where no vertex has a finite objective, or where the first ones are all equal, so that
        //    they show no direction.
        let (best, _, worst) = self.rank_vertices();
        let lowest = self.values[best];
        if !lowest.is_finite() {
            return Some(Status::NotFinite);
        }
        let range = self.values[worst] - lowest;
        if self.rounds == 1 && range <= noise * lowest.abs() && lowest != 0.0 {
            return Some(Status::Stalled);
        }
        // 2. It has converged where the objectives agree within the tolerance, or the vertices within rounding.
        //    Infinite vertices have not converged.
        let (fatol, relative) = settings.tolerances(dof, noise);
        let (unit, relative_unit) = NelderMead::unit(dof);
        let coarse = self.coarse_fatol * unit.max(relative_unit * lowest.abs());
        let tolerance = fatol.max(relative * lowest.abs()).max(coarse);
        let least_magnitude = if noise > LEAST_ERROR_OF_F32 { 1.0 } else { 0.0 };
        let has_converged = range <= tolerance || self.is_collapsed(best, least_magnitude);
        // 3. It is spread again until two restarts in a row, one from either side, have gained nothing.
        let may_restart = self.coarse_fatol == 0.0
            && self.restarts < settings.max_restarts
            && self.spread_before - lowest > tolerance;
        if has_converged && !may_restart {
            return Some(Status::Ftol);
        }
        if may_restart && (has_converged || self.is_collapsed(best, 1.0)) {
            self.restarts += 1;
            self.spread_before = self.spread_at;
            self.spread_at = lowest;
            // The negative factor changes the side each time.
            let size = settings.size * (-RESPREAD_FACTOR).powi(self.restarts as i32);
            self.spread(best, &bounds, size);
            if let Some(pending) = self.next_pending() {
                self.ask_vertex(pending);
            }
            return None;
        }
        self.set_trial_point(1.0, &bounds);
        self.trial = TrialPoint::Reflection;
        None
    }

    /// Asks for the objective at a vertex.
    fn ask_vertex(&mut self, v: usize) {
        let count = self.trial_point.len();
        self.trial_point
            .copy_from_slice(&self.vertices[v * count..(v + 1) * count]);
        self.trial = TrialPoint::Vertex(v);
    }

    /// Keeps the reflection and its objective, and asks for the objective at another point on the same line.
    fn ask_second(&mut self, trial: TrialPoint, reflected: f64, rules: &SimplexRules) {
        let Coefficients {
            expansion,
            contraction,
            ..
        } = self.coefficients();
        let factor = match trial {
            TrialPoint::Expansion => expansion,
            TrialPoint::InsideContraction => -contraction,
            _ => contraction,
        };
        self.reflection.copy_from_slice(&self.trial_point);
        self.reflected = reflected;
        self.set_trial_point(factor, &rules.bounds);
        self.trial = trial;
    }

    /// Sets the trial point to c + `factor` (c − x), clamped to the bounds: x is the worst vertex, c the centroid of
    /// the others.
    fn set_trial_point(&mut self, factor: f64, bounds: &Bounds) {
        let (_, _, worst) = self.rank_vertices();
        let count = self.trial_point.len();
        for p in 0..count {
            let coordinates = self.vertices[p..].iter().step_by(count).enumerate();
            let others = coordinates.filter(|(v, _)| *v != worst);
            let centroid = others.map(|(_, x)| x).sum::<f64>() / self.free_count as f64;
            let away = centroid - self.vertices[worst * count + p];
            self.trial_point[p] =
                (centroid + factor * away).clamp(bounds.lower[p], bounds.upper[p]);
        }
    }

    /// Replaces a vertex by the trial point.
    fn replace(&mut self, v: usize, value: f64) {
        let count = self.trial_point.len();
        self.vertices[v * count..(v + 1) * count].copy_from_slice(&self.trial_point);
        self.values[v] = value;
    }

    /// Shrinks all other vertices towards the best; they have no value then.
    fn shrink(&mut self, best: usize) {
        let Coefficients { shrink, .. } = self.coefficients();
        let centre = self.vertex(best).to_vec();
        let vertices = self.vertices.chunks_exact_mut(centre.len());
        for (v, (vertex, value)) in vertices.zip(&mut self.values).enumerate() {
            if v != best {
                for (x, c) in vertex.iter_mut().zip(&centre) {
                    *x = c + shrink * (*x - c);
                }
                *value = f64::NAN;
            }
        }
    }

    /// Makes a new simplex around the vertex `best`, with one edge of length |`size`| along each free parameter.
    ///
    /// Edges point along the sign of `size`, or the other way if they would leave the bounds. The objectives of the new
    /// vertices are unknown.
    fn spread(&mut self, best: usize, bounds: &Bounds, size: f64) {
        let centre = self.vertex(best).to_vec();
        let value = self.values[best];
        self.vertices = centre.repeat(self.values.len());
        self.values.fill(f64::NAN);
        self.values[0] = value;
        for (k, p) in bounds.free_parameters().into_iter().enumerate() {
            let edge = size * (LEAST_EDGE * centre[p].abs()).max(1.0);
            let forward = centre[p] + edge;
            let backward = centre[p] - edge;
            let is_inside = forward >= bounds.lower[p] && forward <= bounds.upper[p];
            self.vertices[(k + 1) * centre.len() + p] = if is_inside {
                forward
            } else {
                backward.clamp(bounds.lower[p], bounds.upper[p])
            };
        }
    }

    /// Returns the expansion, contraction and shrink factors: classical for coarse searches of few parameters, else
    /// adaptive.
    fn coefficients(&self) -> Coefficients {
        if self.coarse_fatol > 0.0 && self.free_count <= MAX_CLASSICAL_PARAMETERS {
            return Coefficients {
                expansion: 2.0,
                contraction: 0.5,
                shrink: 0.5,
            };
        }
        let n = self.free_count as f64;
        Coefficients {
            expansion: 1.0 + 2.0 / n,
            contraction: 0.75 - 0.5 / n,
            shrink: 1.0 - 1.0 / n.max(2.0),
        }
    }

    /// Returns the coordinates of vertex `v` (P).
    fn vertex(&self, v: usize) -> &[f64] {
        let count = self.trial_point.len();
        &self.vertices[v * count..(v + 1) * count]
    }

    /// Returns the first vertex without a value.
    fn next_pending(&self) -> Option<usize> {
        self.values.iter().position(|value| value.is_nan())
    }

    /// Returns the index of the vertex with the lowest objective, the first of equals.
    fn best(&self) -> usize {
        (0..self.values.len())
            .min_by(|&a, &b| self.values[a].total_cmp(&self.values[b]))
            .unwrap_or(0)
    }

    /// Returns the indices of the vertices with the lowest, the second highest and the highest objective.
    fn rank_vertices(&self) -> (usize, usize, usize) {
        let worst = self.highest_vertex_except(self.values.len());
        (self.best(), self.highest_vertex_except(worst), worst)
    }

    /// Returns the index of the vertex with the highest objective, without vertex `skipped`. Of equals it is the last,
    /// so that the best one is not also the worst.
    fn highest_vertex_except(&self, skipped: usize) -> usize {
        (0..self.values.len())
            .filter(|&v| v != skipped)
            .max_by(|&a, &b| self.values[a].total_cmp(&self.values[b]))
            .unwrap_or(0)
    }

    /// Returns whether all vertices agree with vertex `best` within rounding in f32, relative to its coordinates or
    /// `least_magnitude`.
    fn is_collapsed(&self, best: usize, least_magnitude: f64) -> bool {
        let centre = self.vertex(best);
        (0..self.values.len()).all(|v| {
            let coordinates = self.vertex(v).iter().zip(centre);
            coordinates
                .into_iter()
                .all(|(x, c)| (x - c).abs() <= COLLAPSED_SIZE * c.abs().max(least_magnitude))
        })
    }
}
