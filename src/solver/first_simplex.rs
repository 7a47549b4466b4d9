//! A first simplex from the linearisation at a start: around the Gauss–Newton point, with edges along which the cost
//! rises alike.

use super::bounds::Bounds;
use super::metric::{Linearisation, Metric};
use super::thresholds::LEAST_EDGE;
use crate::math::triangle::packed_index;

/// Length of edges, as a share of the distance to the Gauss–Newton point: that point is about as far off.
const EDGE_SHARE_OF_STEP: f64 = 0.1;
/// Maximum distance that the centre moves, and maximum length of an edge, along any parameter, in units of the
/// settings' size.
const MAX_EDGE_SIZES: f64 = 2.0;

/// Bounds in `u`, and the size of a simplex without a linearisation.
#[derive(Clone, Copy, Debug)]
pub struct SearchBox<'a> {
    pub bounds: Bounds<'a>,
    pub size: f64,
}

impl SearchBox<'_> {
    /// Returns whether a point lies inside the bounds or on them.
    fn contains(&self, point: &[f64]) -> bool {
        point
            .iter()
            .zip(self.bounds.lower.iter().zip(self.bounds.upper))
            .all(|(x, (lower, upper))| lower <= x && x <= upper)
    }

    /// Scales `vector`, which begins at `centre`, so that no element is longer than an edge of a simplex may be.
    fn shorten(&self, centre: &[f64], vector: &mut [f64]) {
        let mut largest_ratio = 1.0;
        for (x, element) in centre.iter().zip(&*vector) {
            let longest = MAX_EDGE_SIZES * self.size * (LEAST_EDGE * x.abs()).max(1.0);
            largest_ratio = f64::max(largest_ratio, element.abs() / longest);
        }
        for element in vector {
            *element /= largest_ratio;
        }
    }

    /// Returns `centre` and the end of each edge, as (edges + 1, P). Edges that are too long are shortened; those that
    /// leave the bounds are reversed, and their ends clamped to the bounds.
    pub fn vertices(&self, centre: &[f64], edges: impl Iterator<Item = Vec<f64>>) -> Vec<f64> {
        let mut vertices = centre.to_vec();
        for mut edge in edges {
            self.shorten(centre, &mut edge);
            let mut vertex = add_scaled(centre, &edge, 1.0);
            if !self.contains(&vertex) {
                vertex = add_scaled(centre, &edge, -1.0);
                self.bounds.clamp(&mut vertex);
            }
            vertices.extend(vertex);
        }
        vertices
    }
}

/// Returns `centre` + `factor` × `edge`.
fn add_scaled(centre: &[f64], edge: &[f64], factor: f64) -> Vec<f64> {
    centre
        .iter()
        .zip(edge)
        .map(|(x, e)| x + factor * e)
        .collect()
}

/// Smallest share of the predicted reduction that the centre must gain: where the linearisation predicts the objective
/// badly, its metric is no guide either.
const LEAST_TRUSTED_SHARE: f64 = 0.5;

/// Vertices around the Gauss–Newton point of a linearisation.
#[derive(Clone, Debug)]
pub struct FirstVertices {
    /// (n + 1, P), the point itself first.
    pub vertices: Vec<f64>,
    /// Reduction of the cost that the linearisation predicts at that point.
    predicted_reduction: f64,
    /// Change of a minimum's cost by the noise of the data.
    unit: f64,
}

impl FirstVertices {
    /// Returns whether the objective fell (`reduction`) about as predicted, or the prediction was too small to judge.
    pub fn is_trusted(&self, reduction: f64) -> bool {
        reduction >= LEAST_TRUSTED_SHARE * self.predicted_reduction - self.unit
    }
}

/// Returns simplex vertices around the Gauss–Newton point of the start; `None` where the normal matrix gives none.
///
/// With L Lᵀ the normal matrix and y = L⁻¹ g, the point is at L⁻ᵀ y from the start, and the edges are ρ L⁻ᵀ with
/// ρ = max(|y| / 10, √unit): the noise changes the cost of a minimum by a `unit`.
pub fn first_vertices(
    start: &Linearisation<'_>,
    search_box: &SearchBox<'_>,
    dof: Option<f64>,
) -> Option<FirstVertices> {
    let count = start.point.len();
    // 1. The Gauss–Newton step in coordinates y in which the normal matrix is the unit matrix.
    let metric = Metric::new(start.normal_matrix, search_box.bounds.free_parameters())?;
    let y = metric.whitened(start.gradient);
    let squared_length: f64 = y.iter().map(|y| y * y).sum();
    if !squared_length.is_finite() {
        return None;
    }
    // 2. The centre, at the end of that step.
    let mut step = metric.vector(&y, count);
    search_box.shorten(start.point, &mut step);
    let mut centre: Vec<f64> = start
        .point
        .iter()
        .zip(&step)
        .map(|(x, step)| x + step)
        .collect();
    search_box.bounds.clamp(&mut centre);
    let predicted_reduction = predict_reduction(start, &centre);
    // 3. The edges, each along the sign of the step.
    let unit = dof.map_or(1.0, |dof| (start.cost - squared_length).max(0.0) / dof);
    let radius = (EDGE_SHARE_OF_STEP * squared_length.sqrt()).max(unit.sqrt());
    let directions = metric.directions(count);
    let edges = directions
        .chunks_exact(count.max(1))
        .zip(&y)
        .map(|(direction, y)| {
            direction
                .iter()
                .map(|e| (radius * e).copysign(radius * e * y))
                .collect()
        });
    Some(FirstVertices {
        vertices: search_box.vertices(&centre, edges),
        predicted_reduction,
        unit,
    })
}

/// Returns the cost reduction that the linearisation predicts at a point: 2 gᵀs − sᵀA s, with s the step there.
fn predict_reduction(start: &Linearisation<'_>, point: &[f64]) -> f64 {
    let step: Vec<f64> = point
        .iter()
        .zip(start.point)
        .map(|(x, start)| x - start)
        .collect();
    let linear: f64 = start.gradient.iter().zip(&step).map(|(g, s)| g * s).sum();
    let quadratic: f64 = (0..step.len())
        .map(|p| {
            let row_product: f64 = (0..step.len())
                .map(|q| start.normal_matrix[packed_index(p, q)] * step[q])
                .sum();
            step[p] * row_product
        })
        .sum();
    2.0 * linear - quadratic
}
