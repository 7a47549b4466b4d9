//! A population's simplices on the host (Nelder & Mead 1965, adaptive coefficients of Gao & Han 2012).
//!
//! A simplex owns [`TRIALS_PER_SIMPLEX`] consecutive members. Their points are its reflection, expansion and both
//! contractions, or vertices that have no value yet; `round/simplex.rs` says which of them are evaluated.

use super::thresholds::LEAST_EDGE;
use super::{Bounds, Outcome, Status};
use crate::buffers::LossSums;

/// Number of members of a simplex, one per trial point.
pub const TRIALS_PER_SIMPLEX: usize = 4;

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

/// One simplex. P is the number of parameters, n that of the free ones.
#[derive(Clone, Debug)]
pub struct Simplex {
    /// Place in the batch.
    pub slot: usize,
    /// The free parameters.
    pub free: Vec<usize>,
    /// (n + 1, P) in `u`.
    pub vertices: Vec<f64>,
    /// (n + 1) objectives: NaN until it is evaluated, infinite where the model is not finite.
    pub values: Vec<f64>,
    pub rounds: u32,
    /// Number of points whose objectives were needed.
    pub evaluations: u32,
    /// Number of times that a converged simplex was spread again around its best vertex.
    pub restarts: u32,
    /// Best objective when the simplex was last spread.
    pub spread_at: f64,
    /// Best objective when it was spread the time before.
    pub spread_before: f64,
    /// [`FirstSimplex::coarse_fatol`]; 0 where the settings' tolerance holds.
    pub coarse_fatol: f64,
}

impl Simplex {
    /// Makes a simplex with a vertex at `start` and one at the end of an edge of length `size` along each free
    /// parameter. No objective is known yet.
    pub fn new(slot: usize, start: &[f64], bounds: Bounds<'_>, size: f64) -> Simplex {
        let free: Vec<usize> = (0..start.len())
            .filter(|&p| bounds.upper[p] > bounds.lower[p])
            .collect();
        let count = free.len() + 1;
        let mut simplex = Simplex {
            slot,
            free,
            vertices: start.repeat(count),
            values: vec![f64::NAN; count],
            rounds: 0,
            evaluations: 0,
            restarts: 0,
            spread_at: f64::INFINITY,
            spread_before: f64::INFINITY,
            coarse_fatol: 0.0,
        };
        simplex.spread(0, bounds, size);
        simplex
    }

    /// Replaces the vertices by those of a first simplex, if one of as many vertices is given, and takes its tolerance.
    pub fn shaped(mut self, first: Option<&FirstSimplex>) -> Simplex {
        if let Some(first) = first.filter(|first| first.vertices.len() == self.vertices.len()) {
            self.vertices.clone_from(&first.vertices);
            self.values[0] = first.value;
            self.coarse_fatol = first.coarse_fatol;
        }
        self
    }

    /// Returns the points that the simplex's members evaluate first, one after another: (4, P).
    pub fn first_trials(&self) -> Vec<f64> {
        let pending: Vec<usize> = (0..self.values.len())
            .filter(|&v| self.values[v].is_nan())
            .collect();
        let mut trials = Vec::new();
        for lane in 0..TRIALS_PER_SIMPLEX {
            let vertex = pending.get(lane).copied().unwrap_or(0);
            trials.extend_from_slice(self.vertex(vertex));
        }
        trials
    }

    /// Returns the best vertex as the outcome, with its objective as χ²; gradient and normal matrix are empty.
    pub fn outcome(&self, status: Option<Status>) -> Outcome {
        let best = self.best();
        Outcome {
            status,
            gave_way: None,
            rounds: self.rounds,
            evaluations: self.evaluations,
            parameters: self.vertex(best).to_vec(),
            chi2: self.values[best],
            penalty: 0.0,
            ln_det: 0.0,
            loss: LossSums::default(),
            gradient: Vec::new(),
            normal_matrix: Vec::new(),
        }
    }

    /// Returns the coordinates of vertex `v` (P).
    pub fn vertex(&self, v: usize) -> &[f64] {
        let count = self.vertices.len() / self.values.len();
        &self.vertices[v * count..(v + 1) * count]
    }

    /// Replaces the coordinates and the value of vertex `v`.
    pub fn set_vertex(&mut self, v: usize, point: &[f64], value: f64) {
        let count = point.len();
        self.vertices[v * count..(v + 1) * count].copy_from_slice(point);
        self.values[v] = value;
    }

    /// Makes a new simplex around the vertex `best`, with one edge of length |`size`| along each free parameter.
    ///
    /// Edges point along the sign of `size`, or the other way if they would leave the bounds. The objectives of the new
    /// vertices are unknown.
    pub fn spread(&mut self, best: usize, bounds: Bounds<'_>, size: f64) {
        let centre = self.vertex(best).to_vec();
        let value = self.values[best];
        self.set_vertex(0, &centre, value);
        for (k, p) in self.free.clone().into_iter().enumerate() {
            let mut point = centre.clone();
            let edge = size * (LEAST_EDGE * centre[p].abs()).max(1.0);
            let forward = centre[p] + edge;
            let backward = centre[p] - edge;
            let is_inside = forward >= bounds.lower[p] && forward <= bounds.upper[p];
            point[p] = if is_inside {
                forward
            } else {
                backward.clamp(bounds.lower[p], bounds.upper[p])
            };
            self.set_vertex(k + 1, &point, f64::NAN);
        }
    }

    /// Returns the index of the vertex with the lowest objective, the first of equals.
    pub fn best(&self) -> usize {
        (0..self.values.len())
            .min_by(|&a, &b| self.values[a].total_cmp(&self.values[b]))
            .unwrap_or(0)
    }
}
