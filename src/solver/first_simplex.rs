//! A first simplex from the linearisation at a start: around the Gauss–Newton point, with edges along which the cost
//! rises alike.

use super::metric::{Linearisation, Metric};
use super::thresholds::LEAST_EDGE;
use crate::math::triangle::packed_index;

/// Edges as a share of the distance to the Gauss–Newton point, which is about how far off that point is.
const RADIUS: f64 = 0.1;
/// Most that the centre moves, and an edge is long, along any parameter: in units of the setting's size.
const REACH: f64 = 2.0;

/// Bounds in `u`, and the size of a simplex without a linearisation.
#[derive(Clone, Copy, Debug)]
pub struct Room<'a> {
    pub lower: &'a [f64],
    pub upper: &'a [f64],
    pub size: f64,
}

impl Room<'_> {
    /// Returns the indices of the parameters whose bounds leave room to move.
    pub fn free(&self) -> Vec<usize> {
        (0..self.lower.len())
            .filter(|&p| self.lower[p] < self.upper[p])
            .collect()
    }

    /// Returns the indices of the parameters that lie strictly between their bounds at `point`.
    pub fn inside(&self, point: &[f64]) -> Vec<usize> {
        (0..point.len())
            .filter(|&p| self.lower[p] < point[p] && point[p] < self.upper[p])
            .collect()
    }

    /// Moves a point in place into the bounds, parameter by parameter.
    pub fn clamp(&self, point: &mut [f64]) {
        for (x, (lower, upper)) in point.iter_mut().zip(self.lower.iter().zip(self.upper)) {
            *x = x.clamp(*lower, *upper);
        }
    }

    /// Returns whether a point lies inside the bounds or on them.
    fn contains(&self, point: &[f64]) -> bool {
        point
            .iter()
            .zip(self.lower.iter().zip(self.upper))
            .all(|(x, (lower, upper))| lower <= x && x <= upper)
    }

    /// Scales `vector`, which begins at `centre`, so that no element is longer than an edge of a simplex may be.
    fn shorten(&self, centre: &[f64], vector: &mut [f64]) {
        let allowed = |x: f64| REACH * self.size * (LEAST_EDGE * x.abs()).max(1.0);
        let share = centre
            .iter()
            .zip(&*vector)
            .map(|(x, v)| v.abs() / allowed(*x))
            .fold(1.0, f64::max);
        vector.iter_mut().for_each(|x| *x /= share);
    }

    /// Returns `centre` and, for each edge, shortened if it is too long, its end, or where that leaves the bounds the
    /// end of the reversed edge, clamped to them: (edges + 1, P).
    pub fn vertices(&self, centre: &[f64], edges: impl Iterator<Item = Vec<f64>>) -> Vec<f64> {
        let mut vertices = centre.to_vec();
        for mut edge in edges {
            self.shorten(centre, &mut edge);
            let along = |sign: f64| {
                centre
                    .iter()
                    .zip(&edge)
                    .map(|(x, e)| x + sign * e)
                    .collect::<Vec<f64>>()
            };
            let mut vertex = along(1.0);
            if !self.contains(&vertex) {
                vertex = along(-1.0);
                self.clamp(&mut vertex);
            }
            vertices.extend(vertex);
        }
        vertices
    }
}

/// Share of the predicted reduction that the centre must bring: where the linearisation is no guide, neither is its
/// metric.
const SUFFICIENT: f64 = 0.5;

/// Vertices around the Gauss–Newton point of a linearisation.
#[derive(Clone, Debug)]
pub struct FirstVertices {
    /// (n + 1, P), the point itself first.
    pub vertices: Vec<f64>,
    /// Reduction of the cost that the linearisation predicts there.
    pub promise: f64,
    /// Change of a minimum's cost by the noise of the data.
    pub unit: f64,
}

impl FirstVertices {
    /// Returns whether the objective fell (`reduction`) about as predicted, or the prediction was too small to judge.
    pub fn is_trusted(&self, reduction: f64) -> bool {
        reduction >= SUFFICIENT * self.promise - self.unit
    }
}

/// Returns simplex vertices around the Gauss–Newton point of the start; `None` where the normal matrix gives none.
///
/// With L Lᵀ the normal matrix and y = L⁻¹ g, the point is at L⁻ᵀ y from the start, and the edges are ρ L⁻ᵀ with
/// ρ = max(|y| / 10, √unit): the noise changes the cost of a minimum by a `unit`.
pub fn first_vertices(
    at: &Linearisation<'_>,
    room: &Room<'_>,
    dof: Option<f64>,
) -> Option<FirstVertices> {
    let count = at.point.len();
    let metric = Metric::new(at.normal_matrix, room.free())?;
    let y = metric.whitened(at.gradient);
    let squared: f64 = y.iter().map(|y| y * y).sum();
    if !squared.is_finite() {
        return None;
    }
    let unit = dof.map_or(1.0, |dof| (at.cost - squared).max(0.0) / dof);
    let radius = (RADIUS * squared.sqrt()).max(unit.sqrt());
    let mut step = metric.vector(&y, count);
    room.shorten(at.point, &mut step);
    let mut centre: Vec<f64> = at
        .point
        .iter()
        .zip(&step)
        .map(|(x, step)| x + step)
        .collect();
    room.clamp(&mut centre);
    let promise = promise(at, &centre);
    let directions = metric.directions(count);
    let edges = directions.chunks_exact(count.max(1)).zip(&y);
    let edges = edges.map(|(direction, y)| {
        direction
            .iter()
            .map(|e| (radius * e).copysign(radius * e * y))
            .collect()
    });
    Some(FirstVertices {
        vertices: room.vertices(&centre, edges),
        promise,
        unit,
    })
}

/// Returns the cost reduction that the linearisation predicts at a point: 2 gᵀs − sᵀA s, with s the step there.
fn promise(at: &Linearisation<'_>, point: &[f64]) -> f64 {
    let step: Vec<f64> = point
        .iter()
        .zip(at.point)
        .map(|(x, start)| x - start)
        .collect();
    let slope: f64 = at.gradient.iter().zip(&step).map(|(g, s)| g * s).sum();
    let row = |p: usize| {
        step.iter()
            .enumerate()
            .map(|(q, s)| at.normal_matrix[packed_index(p, q)] * s)
            .sum::<f64>()
    };
    2.0 * slope
        - step
            .iter()
            .enumerate()
            .map(|(p, s)| s * row(p))
            .sum::<f64>()
}
