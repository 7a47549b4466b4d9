//! The extent of a spectrum's pixels in template pixels, for means over them, and the test of whether means are needed.

use super::spread::LineSpreadMatrix;
use super::{ModelArm, Pixels};
use crate::emulator::GridSegment;
use crate::model::sampling::padded;

/// Maximum ratio of a pixel's extents to either side. A neighbour that is farther away lies beyond a gap.
const MAX_UNEVENNESS: f64 = 1.5;
/// Width in template pixels above which a spectrum's pixels may need means.
const MIN_WIDE_PIXEL: f64 = 1.5;
/// Relative difference between means and values at the centres (root mean square) above which pixels need means.
const MIN_DIFFERENCE: f64 = 1e-3;

/// Returns the distances (2, padded) of the lower and of the upper edge of each pixel from its centre, in pixels of the
/// template; empty for an arm that samples. Edges lie half way between the grid's wavelengths (Å).
pub fn pixel_edges(arm: &ModelArm, wavelength: &[f64]) -> Vec<f32> {
    if arm.pixels != Some(Pixels::Integrate) {
        return Vec::new();
    }
    let stride = padded(wavelength.len());
    let mut edges = vec![0.5; 2 * stride];
    for (j, w) in wavelength.iter().enumerate() {
        if let Some((segment, _)) = arm.grid.locate(*w) {
            let (below, above) = pixel_extent(wavelength, j, &arm.grid.segments[segment]);
            edges[j] = below as f32;
            edges[stride + j] = above as f32;
        }
    }
    edges
}

/// Returns how far a pixel reaches below and above its centre, in pixels of this segment of the template.
fn pixel_extent(wavelength: &[f64], j: usize, segment: &GridSegment) -> (f64, f64) {
    let centre = wavelength[j];
    // 1. Take half of the distance to either neighbour.
    let half_distance = |neighbour: &f64| 0.5 * (neighbour - centre).abs();
    let previous = j.checked_sub(1).and_then(|i| wavelength.get(i));
    let below = previous.map(half_distance);
    let above = wavelength.get(j + 1).map(half_distance);
    // 2. Beyond a gap or an end, take the extent to the other side. A single pixel is as wide as one of the template.
    let nearer = below
        .into_iter()
        .chain(above)
        .reduce(f64::min)
        .unwrap_or(0.5 * centre * segment.step);
    let limit_extent = |extent: Option<f64>| {
        extent
            .filter(|extent| *extent <= MAX_UNEVENNESS * nearer)
            .unwrap_or(nearer)
    };
    // 3. Convert the extents from Å to template pixels.
    let template_pixels = |edge: f64| (edge / centre).ln().abs() / segment.step;
    let lower_edge = centre - limit_extent(below);
    let upper_edge = centre + limit_extent(above);
    (template_pixels(lower_edge), template_pixels(upper_edge))
}

/// Returns the median width of a grid's pixels in template pixels, and the relative difference between means over them
/// and values at their centres. The difference is a root mean square, the largest among templates within the labels'
/// ranges. `None` if the pixels are narrow or the difference is small.
pub fn difference_of_means(arm: &ModelArm, wavelength: &[f64]) -> Option<(f64, f64)> {
    // 1. Find the extent of the pixels that lie inside the template.
    let mut extents = Vec::new();
    for (j, w) in wavelength.iter().enumerate() {
        let Some((segment, centre)) = arm.grid.locate(*w) else {
            continue;
        };
        let segment = &arm.grid.segments[segment];
        let (below, above) = pixel_extent(wavelength, j, segment);
        let template = segment.start as f64..=(segment.end - 1) as f64;
        if template.contains(&(centre - below)) && template.contains(&(centre + above)) {
            extents.push((centre, below, above));
        }
    }
    let mut widths: Vec<f64> = extents
        .iter()
        .map(|(_, below, above)| below + above)
        .collect();
    widths.sort_by(f64::total_cmp);
    let width = *widths
        .get(widths.len() / 2)
        .filter(|width| **width > MIN_WIDE_PIXEL)?;
    // 2. Compare means and values of some templates.
    let pixels = arm.emulator.pixels();
    let mut templates = arm.emulator.templates(&sample_label_vectors(arm));
    if let Some(spread) = LineSpreadMatrix::new(arm, pixels) {
        templates
            .chunks_exact_mut(pixels)
            .for_each(|row| spread.apply(row));
    }
    let difference = templates
        .chunks_exact(pixels)
        .map(|row| relative_difference(row, &extents))
        .fold(0.0, f64::max);
    (difference > MIN_DIFFERENCE).then_some((width, difference))
}

/// Returns label vectors: the middle of all training ranges, and from there each label moved alone by a quarter of its
/// range either way.
fn sample_label_vectors(arm: &ModelArm) -> Vec<f64> {
    let labels = arm.emulator.labels();
    let mut vectors = Vec::new();
    for point in 0..=2 * labels.len() {
        for (index, label) in labels.iter().enumerate() {
            // Point 0 is the middle; points 2l + 1 and 2l + 2 move label l down and up.
            let share = if point.div_ceil(2) != index + 1 {
                0.5
            } else if point % 2 == 1 {
                0.25
            } else {
                0.75
            };
            vectors.push(label.min + share * (label.max - label.min));
        }
    }
    vectors
}

/// Returns the root mean square difference between a template's means over pixels (centre, below, above) and its values
/// at their centres, divided by the root mean square of these values. The template is interpolated linearly.
fn relative_difference(template: &[f32], extents: &[(f64, f64, f64)]) -> f64 {
    const POINTS_PER_PIXEL: usize = 16;
    let mut squared_differences = 0.0;
    let mut squared_fluxes = 0.0;
    for &(centre, below, above) in extents {
        let fluxes = (0..POINTS_PER_PIXEL).map(|k| {
            let distance = (below + above) * (k as f64 + 0.5) / POINTS_PER_PIXEL as f64;
            interpolate_linearly(template, centre - below + distance)
        });
        let mean = fluxes.sum::<f64>() / POINTS_PER_PIXEL as f64;
        let central_flux = interpolate_linearly(template, centre);
        squared_differences += (mean - central_flux).powi(2);
        squared_fluxes += central_flux.powi(2);
    }
    (squared_differences / f64::max(squared_fluxes, f64::MIN_POSITIVE)).sqrt()
}

/// Returns the flux of a template at a place in template pixels, by linear interpolation.
fn interpolate_linearly(template: &[f32], place: f64) -> f64 {
    let lower = (place.max(0.0) as usize).min(template.len() - 1);
    let upper = (lower + 1).min(template.len() - 1);
    let difference = f64::from(template[upper] - template[lower]);
    f64::from(template[lower]) + (place - lower as f64) * difference
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edges lie half way between wavelengths; beyond a gap and at the ends a pixel is as wide as on its other side.
    #[test]
    fn edges_lie_half_way_between_wavelengths_but_not_across_gaps() {
        let segment = GridSegment {
            start: 0,
            end: 100,
            origin: 5000f64.ln(),
            step: 1e-4,
        };
        let grid = [5000.0, 5001.0, 5002.2, 5010.0, 5011.0];
        let check_extent = |j: usize, below: f64, above: f64| {
            let expected =
                [(-below / grid[j]).ln_1p().abs(), (above / grid[j]).ln_1p()].map(|x| x / 1e-4);
            let extent = pixel_extent(&grid, j, &segment);
            assert!(
                (extent.0 - expected[0]).abs() + (extent.1 - expected[1]).abs() < 1e-9,
                "{j}: {extent:?}"
            );
        };
        check_extent(0, 0.5, 0.5);
        check_extent(1, 0.5, 0.6);
        check_extent(2, 0.6, 0.6);
        check_extent(3, 0.5, 0.5);
        check_extent(4, 0.5, 0.5);
        assert!((pixel_extent(&[5000.0], 0, &segment).0 - 0.5).abs() < 1e-4);
    }
}
