//! Points of the library's templates: Sobol points inside the bounds and the training hulls, and points at their edges.

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::math::convolve::Convolve;
use crate::math::rotation::RotationKernel;
use crate::model::spread::LineSpreadMatrix;
use crate::model::{ModelArm, ModelParameter, SpectralModel};
use crate::recording::{LIGHT, Rotation, Source, Transform};

/// Templates in the library; with several rotations of each, half as many.
const LIBRARY_TEMPLATES: usize = 512;
/// Number of templates per one that lies at bounds or at the edge of a hull. Of 81,920 spectra (ten seeds of data, the
/// library's seeds 3 and 5), 11 of hot giants ended on the other side of the Balmer lines' maximum, 12 to 17,571 above
/// the right minimum. No Sobol point lay near their corner of the labels' box.
const TEMPLATES_PER_OUTER: usize = 8;
/// Number of bisections between a Sobol point and the bounds, if a hull ends in between.
const HULL_BISECTIONS: usize = 8;
/// vsini values of each template if vsini is free, in km/s.
const FREE_ROTATIONS: [f64; 4] = [5.0, 30.0, 80.0, 200.0];
/// Maximum number of Sobol points that are tried.
const MAX_SOBOL_POINTS: u32 = 1 << 16;

/// Returns the physical values of the network inputs of an arm's emulator, from parameters `u` in the solver's units.
pub fn physical_labels(model: &SpectralModel, arm: &ModelArm, u: &[f64]) -> Vec<f64> {
    arm.inputs
        .iter()
        .map(|input| {
            input
                .source
                .value(|p| model.parameters[p].to_physical(u[p]))
        })
        .collect()
}

/// Returns the vsini values (km/s) at which templates are computed: the fixed one, the start, or a few; empty if the
/// model has no rotation.
pub fn choose_rotations(model: &SpectralModel) -> Vec<f64> {
    match model.vsini {
        None => Vec::new(),
        Some(Rotation::Fixed(vsini)) => vec![vsini],
        Some(Rotation::Parameter { parameter, .. }) => {
            let ModelParameter {
                lower,
                upper,
                start,
                ..
            } = &model.parameters[parameter];
            if let Some(vsini) = start {
                return vec![vsini.clamp(*lower, *upper)];
            }
            let mut rotations = FREE_ROTATIONS.map(|v| v.clamp(*lower, *upper)).to_vec();
            rotations.dedup();
            rotations
        }
    }
}

/// Copies every point once per vsini of `rotations` (km/s), with its vsini set to that; returns the points unchanged if
/// vsini is not free.
pub fn rotate_points(
    model: &SpectralModel,
    points: Vec<Vec<f64>>,
    rotations: &[f64],
) -> Vec<Vec<f64>> {
    let Some(vsini_parameter) = model.free_vsini() else {
        return points;
    };
    let mut rotated = Vec::with_capacity(points.len() * rotations.len());
    for point in &points {
        for &vsini in rotations {
            let mut u = point.clone();
            u[vsini_parameter] = model.parameters[vsini_parameter].to_u(vsini);
            rotated.push(u);
        }
    }
    rotated
}

/// Broadens templates (points, pixels) by every rotation (vsini, km/s) and by the line spread function: (points ×
/// rotations, pixels).
pub fn observe_templates(arm: &ModelArm, flux: Vec<f32>, rotations: &[f64]) -> Vec<f32> {
    let pixels = arm.emulator.pixels();
    let spread = LineSpreadMatrix::new(arm, pixels);
    if rotations.is_empty() && spread.is_none() {
        return flux;
    }
    flux.par_chunks(pixels)
        .flat_map_iter(|row| observe_template(arm, row, rotations, spread.as_ref()))
        .collect()
}

/// Returns copies of one template, one per vsini (km/s) or a single one without, broadened by it and by the line spread
/// function.
fn observe_template(
    arm: &ModelArm,
    template: &[f32],
    rotations: &[f64],
    spread: Option<&LineSpreadMatrix>,
) -> Vec<f32> {
    let mut rows = template.repeat(rotations.len().max(1));
    for (row, vsini) in rows.chunks_exact_mut(template.len()).zip(rotations) {
        broaden_by_rotation(arm, row, *vsini);
    }
    if let Some(spread) = spread {
        rows.chunks_exact_mut(template.len())
            .for_each(|row| spread.apply(row));
    }
    rows
}

/// Convolves a template in place with the rotation kernel of `vsini` (km/s), segment by segment of its grid.
fn broaden_by_rotation(arm: &ModelArm, row: &mut [f32], vsini: f64) {
    for segment in &arm.grid.segments {
        let kernel = RotationKernel::new(vsini / LIGHT / segment.step);
        let weights: Vec<f32> = kernel.weights.iter().map(|w| *w as f32).collect();
        let pixels = &mut row[segment.start..segment.end];
        Convolve {
            pixels: pixels.len(),
            rows: pixels,
            weights: &weights,
        }
        .run();
    }
}

/// Returns Owen-scrambled Sobol points, in the solver's units, over the free labels without a start, inside bounds and
/// training hulls. The last eighth are the first Sobol points, moved outwards.
pub fn sample_points(model: &SpectralModel, seed: u64) -> Result<Vec<Vec<f64>>> {
    // 1. Sample the parameters that are free and have no start, except the velocity and vsini.
    let dimensions: Vec<usize> = (0..model.parameters.len())
        .filter(|&p| is_sampled(model, p))
        .collect();
    let count = if choose_rotations(model).len() > 1 {
        LIBRARY_TEMPLATES / 2
    } else {
        LIBRARY_TEMPLATES
    };
    let [inner, outer] = if dimensions.is_empty() {
        [1, 0]
    } else {
        [
            count - count / TEMPLATES_PER_OUTER,
            count / TEMPLATES_PER_OUTER,
        ]
    };
    let point_at = |shares: &[f64]| point_at_shares(model, &dimensions, shares);
    let is_inside = |u: &[f64]| dimensions.is_empty() || is_inside_hulls(model, u);
    // 2. Take the first Sobol points inside the hulls.
    let mut inner_shares: Vec<Vec<f64>> = Vec::with_capacity(inner);
    for index in 0..MAX_SOBOL_POINTS {
        let shares: Vec<f64> = (0..dimensions.len())
            .map(|dimension| f64::from(sobol_burley::sample(index, dimension as u32, seed as u32)))
            .collect();
        if is_inside(&point_at(&shares)) {
            inner_shares.push(shares);
        }
        if inner_shares.len() == inner {
            break;
        }
    }
    let mut points: Vec<Vec<f64>> = inner_shares.iter().map(|shares| point_at(shares)).collect();
    // 3. Move copies of some to the bounds, or to the edge of a hull.
    for shares in inner_shares.iter().take(outer) {
        points.push(move_to_edge(shares, point_at, is_inside));
    }
    if points.is_empty() {
        return Err(Error::model(explain_empty_hulls(model)));
    }
    Ok(points)
}

/// Returns whether the library's points differ in a parameter.
pub fn is_sampled(model: &SpectralModel, p: usize) -> bool {
    let parameter = &model.parameters[p];
    let has_own_grid = [model.free_velocity(), model.free_vsini()].contains(&Some(p));
    !has_own_grid && parameter.start.is_none() && !parameter.is_held()
}

/// Returns the point, in the solver's units, at these shares of the ranges of the sampled parameters; others lie at
/// their start or lower bound.
fn point_at_shares(model: &SpectralModel, dimensions: &[usize], shares: &[f64]) -> Vec<f64> {
    let mut u: Vec<f64> = model
        .parameters
        .iter()
        .map(|p| p.to_u(p.start.unwrap_or(p.lower).clamp(p.lower, p.upper)))
        .collect();
    for (&share, &p) in shares.iter().zip(dimensions) {
        u[p] = interpolate_bounds(&model.parameters[p], input_transform(model, p), share);
    }
    u
}

/// Returns whether a point in the solver's units lies inside the training hulls of all arms.
fn is_inside_hulls(model: &SpectralModel, u: &[f64]) -> bool {
    model.arms.iter().all(|arm| {
        let scaled = arm.emulator.scaled(&physical_labels(model, arm, u));
        arm.emulator.outside(&scaled) <= 0.0
    })
}

/// Returns the outermost point inside the hulls on the line from a given point to one at the bounds. The given point
/// lies inside the hulls, at these `shares` of the labels' ranges. In the other point a label lies at its nearer bound
/// or, if its share is in the middle third, in proportion between the bounds.
fn move_to_edge(
    shares: &[f64],
    point_at: impl Fn(&[f64]) -> Vec<f64>,
    is_inside: impl Fn(&[f64]) -> bool,
) -> Vec<f64> {
    let point_on_line = |fraction: f64| {
        let moved = shares.iter().map(|share| {
            let outer_share = (3.0 * share - 1.0).clamp(0.0, 1.0);
            share + fraction * (outer_share - share)
        });
        point_at(&moved.collect::<Vec<f64>>())
    };
    let mut inside = 0.0;
    let mut outside = 1.0;
    let outer_point = point_on_line(outside);
    if is_inside(&outer_point) {
        return outer_point;
    }
    for _ in 0..HULL_BISECTIONS {
        let middle = 0.5 * (inside + outside);
        if is_inside(&point_on_line(middle)) {
            inside = middle;
        } else {
            outside = middle;
        }
    }
    point_on_line(inside)
}

/// Returns the transform (identity or log₁₀) of the first network input that a parameter supplies, or the identity if
/// it supplies none.
fn input_transform(model: &SpectralModel, parameter: usize) -> Transform {
    let inputs = model.arms.iter().flat_map(|arm| &arm.inputs);
    inputs
        .filter(|input| input.source == Source::Parameter(parameter))
        .map(|input| input.transform)
        .next()
        .unwrap_or(Transform::Identity)
}

/// Returns the value, in the solver's units, at a share of the range from lower to upper bound, linear or in log₁₀.
fn interpolate_bounds(parameter: &ModelParameter, transform: Transform, share: f64) -> f64 {
    let physical = match transform {
        Transform::Identity => parameter.lower + (parameter.upper - parameter.lower) * share,
        Transform::Log10 => parameter.lower * (parameter.upper / parameter.lower).powf(share),
    };
    parameter.to_u(physical)
}

/// Returns the message that no point within the bounds lies in the training hulls. It names the labels whose bounds lie
/// outside of their training range, or all labels if there is none.
fn explain_empty_hulls(model: &SpectralModel) -> String {
    let mut outside = Vec::new();
    let mut overlapping = Vec::new();
    for arm in &model.arms {
        for (label, input) in arm.emulator.labels().iter().zip(&arm.inputs) {
            let (low, high) = input
                .source
                .range(|p| model.parameters[p].bounds())
                .into_inner();
            let setting = match &input.source {
                Source::Fixed(x) => format!("fixed at {x}"),
                Source::Parameter(_) => format!("within {low} to {high}"),
                Source::Linear { .. } => format!("tied, within {low} to {high}"),
            };
            let text = format!(
                "{} is {setting}, its network was trained from {} to {}",
                label.name, label.min, label.max
            );
            if high < label.min || low > label.max {
                outside.push(text)
            } else {
                overlapping.push(text)
            }
        }
    }
    let reasons = if outside.is_empty() {
        overlapping
    } else {
        outside
    };
    format!(
        "no point inside the labels' bounds lies inside the training hulls: {}",
        reasons.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_move_to_bounds_or_to_the_edge_of_a_hull() {
        let moved = |shares: &[f64], is_inside: fn(&[f64]) -> bool| {
            move_to_edge(shares, <[f64]>::to_vec, is_inside)
        };
        assert_eq!(moved(&[0.2, 0.5, 0.9], |_| true), [0.0, 0.5, 1.0]);
        let at_edge = moved(&[0.5, 0.7], |x| x[0] + x[1] <= 1.25);
        assert!(
            at_edge[0] == 0.5 && (0.745..=0.75).contains(&at_edge[1]),
            "{at_edge:?}"
        );
    }
}
