//! Points of the library's templates: Sobol points inside the bounds and the training hulls, and points at their edges.

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::math::convolve::Convolve;
use crate::math::rotation::RotationKernel;
use crate::model::spread::LineSpreadMatrix;
use crate::model::{ModelArm, ModelParameter, SpectralModel};
use crate::recording::{LIGHT, Rotation, Source, Transform};

/// Templates in the library; with several rotations of each, half as many.
const TEMPLATES: usize = 512;
/// One in so many templates lies at bounds or at the edge of a hull. Of 81,920 spectra (ten seeds of data, the
/// library's seeds 3 and 5), 11 of hot giants ended on the other side of the Balmer lines' maximum, 12 to 17,571 above
/// the right minimum. No Sobol point lay near their corner of the labels' box.
const OUTER: usize = 8;
/// Number of bisections between a Sobol point and the bounds, where a hull ends in between.
const HULL_STEPS: usize = 8;
/// km/s: the rotations of each template where vsini is free.
const ROTATIONS: [f64; 4] = [5.0, 30.0, 80.0, 200.0];
/// Doublings of the number of Sobol points that are tried before the hull counts as unreachable.
const SOBOL_ATTEMPTS: u32 = 1 << 16;

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

/// Returns the vsini values (km/s) at which templates are computed: fixed, start or a few; empty if the model has no
/// rotation.
pub fn rotations(model: &SpectralModel) -> Vec<f64> {
    match model.vsini {
        None => Vec::new(),
        Some(Rotation::Fixed(v)) => vec![v],
        Some(Rotation::Parameter { parameter, .. }) => {
            let ModelParameter {
                lower,
                upper,
                start,
                ..
            } = &model.parameters[parameter];
            if let Some(v) = start {
                return vec![v.clamp(*lower, *upper)];
            }
            let mut all = ROTATIONS.map(|v| v.clamp(*lower, *upper)).to_vec();
            all.dedup();
            all
        }
    }
}

/// Copies every point once per vsini of `rotations` (km/s), with its vsini set to that; returns the points unchanged if
/// vsini is not free.
pub fn rotated(model: &SpectralModel, points: Vec<Vec<f64>>, rotations: &[f64]) -> Vec<Vec<f64>> {
    let Some(p) = model.free_vsini() else {
        return points;
    };
    let at = |u: &Vec<f64>, v: f64| {
        let mut u = u.clone();
        u[p] = model.parameters[p].to_u(v);
        u
    };
    points
        .iter()
        .flat_map(|u| rotations.iter().map(move |&v| at(u, v)))
        .collect()
}

/// Broadens templates (points, pixels) by every rotation (vsini, km/s) and by the line spread: (points × rotations,
/// pixels).
pub fn observed(arm: &ModelArm, flux: Vec<f32>, rotations: &[f64]) -> Vec<f32> {
    let pixels = arm.emulator.pixels();
    let spread = LineSpreadMatrix::new(arm, pixels);
    if rotations.is_empty() && spread.is_none() {
        return flux;
    }
    flux.par_chunks(pixels)
        .flat_map_iter(|row| observed_rows(arm, row, rotations, spread.as_ref()))
        .collect()
}

/// Returns copies of one template, one for each vsini (km/s) or a single one without, broadened by it and by the line
/// spread.
fn observed_rows(
    arm: &ModelArm,
    template: &[f32],
    rotations: &[f64],
    spread: Option<&LineSpreadMatrix>,
) -> Vec<f32> {
    let mut all = template.repeat(rotations.len().max(1));
    for (row, v) in all.chunks_exact_mut(template.len()).zip(rotations) {
        broaden(arm, row, *v);
    }
    if let Some(spread) = spread {
        all.chunks_exact_mut(template.len())
            .for_each(|row| spread.apply(row));
    }
    all
}

/// Convolves a template in place with the rotation kernel of `vsini` (km/s), segment by segment of its grid.
fn broaden(arm: &ModelArm, row: &mut [f32], vsini: f64) {
    for segment in &arm.grid.segments {
        let kernel = RotationKernel::new(vsini / LIGHT / segment.step);
        let weights: Vec<f32> = kernel.weights.iter().map(|w| *w as f32).collect();
        let rows = &mut row[segment.start..segment.end];
        Convolve {
            pixels: rows.len(),
            rows,
            weights: &weights,
        }
        .run();
    }
}

/// Returns Owen-scrambled Sobol points, in the solver's units, over the free labels without a start, inside bounds and
/// training hulls. The last eighth are the first Sobol points, moved outwards.
pub fn library(model: &SpectralModel, seed: u64) -> Result<Vec<Vec<f64>>> {
    let open = |p: usize| {
        let parameter = &model.parameters[p];
        let moves = [model.free_velocity(), model.free_vsini()].contains(&Some(p));
        !moves && parameter.start.is_none() && !parameter.is_held()
    };
    let dimensions: Vec<usize> = (0..model.parameters.len()).filter(|&p| open(p)).collect();
    let many = if rotations(model).len() > 1 {
        TEMPLATES / 2
    } else {
        TEMPLATES
    };
    let [wanted, outer] = if dimensions.is_empty() {
        [1, 0]
    } else {
        [many - many / OUTER, many / OUTER]
    };
    let point = |shares: &[f64]| {
        let mut u: Vec<f64> = model
            .parameters
            .iter()
            .map(|p| p.to_u(p.start.unwrap_or(p.lower).clamp(p.lower, p.upper)))
            .collect();
        for (&share, &p) in shares.iter().zip(&dimensions) {
            u[p] = along(&model.parameters[p], arm_transform(model, p), share);
        }
        u
    };
    let is_inside = |u: &[f64]| {
        let inside = |arm: &ModelArm| {
            arm.emulator
                .outside(&arm.emulator.scaled(&physical_labels(model, arm, u)))
                <= 0.0
        };
        dimensions.is_empty() || model.arms.iter().all(inside)
    };
    let mut shares: Vec<Vec<f64>> = Vec::with_capacity(wanted);
    for index in 0..SOBOL_ATTEMPTS {
        let coordinate =
            |dimension| f64::from(sobol_burley::sample(index, dimension as u32, seed as u32));
        let candidate: Vec<f64> = (0..dimensions.len()).map(coordinate).collect();
        if is_inside(&point(&candidate)) {
            shares.push(candidate);
        }
        if shares.len() == wanted {
            break;
        }
    }
    let mut points: Vec<Vec<f64>> = shares.iter().map(|shares| point(shares)).collect();
    points.extend(
        shares
            .iter()
            .take(outer)
            .map(|shares| outermost(shares, point, is_inside)),
    );
    if points.is_empty() {
        return Err(Error::model(unreachable(model)));
    }
    Ok(points)
}

/// Returns the outermost point inside the hulls on the line from a given point to one at the bounds. The given point
/// lies inside the hulls, at these `shares` of the labels' ranges. In the other point a label lies at its nearer bound
/// or, if its share is in the middle third, in proportion between the bounds.
fn outermost(
    shares: &[f64],
    point: impl Fn(&[f64]) -> Vec<f64>,
    is_inside: impl Fn(&[f64]) -> bool,
) -> Vec<f64> {
    let point_at = |way: f64| {
        let moved = shares
            .iter()
            .map(|share| share + way * ((3.0 * share - 1.0).clamp(0.0, 1.0) - share));
        point(&moved.collect::<Vec<f64>>())
    };
    let (mut inside, mut outside) = (0.0, 1.0);
    if is_inside(&point_at(outside)) {
        return point_at(outside);
    }
    for _ in 0..HULL_STEPS {
        let middle = 0.5 * (inside + outside);
        *(if is_inside(&point_at(middle)) {
            &mut inside
        } else {
            &mut outside
        }) = middle;
    }
    point_at(inside)
}

/// Returns the transform (identity or log₁₀) of the first network input that this parameter supplies; else the
/// identity.
fn arm_transform(model: &SpectralModel, parameter: usize) -> Transform {
    let inputs = model.arms.iter().flat_map(|arm| &arm.inputs);
    inputs
        .filter(|i| i.source == Source::Parameter(parameter))
        .map(|i| i.transform)
        .next()
        .unwrap_or(Transform::Identity)
}

/// Returns the value in solver's units at the fraction `at` from lower to upper bound: spaced linearly or in log₁₀.
fn along(parameter: &ModelParameter, transform: Transform, at: f64) -> f64 {
    let physical = match transform {
        Transform::Identity => parameter.lower + (parameter.upper - parameter.lower) * at,
        Transform::Log10 => parameter.lower * (parameter.upper / parameter.lower).powf(at),
    };
    parameter.to_u(physical)
}

/// Writes the message that no point within the bounds lies in the training hulls, naming labels that cannot reach their
/// range.
fn unreachable(model: &SpectralModel) -> String {
    let (mut outside, mut bounds) = (Vec::new(), Vec::new());
    for arm in &model.arms {
        for (label, input) in arm.emulator.labels().iter().zip(&arm.inputs) {
            let (low, high) = input
                .source
                .range(|p| model.parameters[p].bounds())
                .into_inner();
            let is = match &input.source {
                Source::Fixed(x) => format!("fixed at {x}"),
                Source::Parameter(_) => format!("within {low} to {high}"),
                Source::Linear { .. } => format!("tied, within {low} to {high}"),
            };
            let text = format!(
                "{} is {is}, its network was trained from {} to {}",
                label.name, label.min, label.max
            );
            if high < label.min || low > label.max {
                outside.push(text)
            } else {
                bounds.push(text)
            }
        }
    }
    let why = if outside.is_empty() { bounds } else { outside };
    format!(
        "no point inside the labels' bounds lies inside the training hulls: {}",
        why.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_move_to_bounds_or_to_the_edge_of_a_hull() {
        let to = |shares: &[f64], is_inside: fn(&[f64]) -> bool| {
            outermost(shares, <[f64]>::to_vec, is_inside)
        };
        assert_eq!(to(&[0.2, 0.5, 0.9], |_| true), [0.0, 0.5, 1.0]);
        let at_edge = to(&[0.5, 0.7], |x| x[0] + x[1] <= 1.25);
        assert!(
            at_edge[0] == 0.5 && (0.745..=0.75).contains(&at_edge[1]),
            "{at_edge:?}"
        );
    }
}
