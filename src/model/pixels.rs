//! The extent of a spectrum's pixels in template pixels, for means over them, and the test of whether means are needed.

use super::spread::Spread;
use super::{ModelArm, Pixels};
use crate::emulator::GridSegment;
use crate::model::sampling::padded;

/// Largest ratio of a pixel's extents to either side. A neighbour that is farther away lies beyond a gap.
const MOST_UNEVEN: f64 = 1.5;
/// Pixels may need means if they are wider than so many template pixels …
const WIDE: f64 = 1.5;
/// … and if the means differ from the values at the centres by more than this share of the template (root mean square).
const LARGEST_DIFFERENCE: f64 = 1e-3;

/// Returns the distances (2, padded) of the lower and of the upper edge of each pixel from its centre, in pixels of the
/// template; empty for an arm that samples. Edges lie half way between the grid's wavelengths (Å).
pub fn edges(arm: &ModelArm, wavelength: &[f64]) -> Vec<f32> {
    if arm.pixels != Some(Pixels::Integrate) {
        return Vec::new();
    }
    let stride = padded(wavelength.len());
    let mut edges = vec![0.5; 2 * stride];
    for (j, w) in wavelength.iter().enumerate() {
        if let Some((segment, _)) = arm.grid.locate(*w) {
            let (below, above) = reach(wavelength, j, &arm.grid.segments[segment]);
            (edges[j], edges[stride + j]) = (below as f32, above as f32);
        }
    }
    edges
}

/// Returns how far a pixel reaches below and above its centre, in pixels of this segment of the template.
fn reach(wavelength: &[f64], j: usize, segment: &GridSegment) -> (f64, f64) {
    let centre = wavelength[j];
    let half_way =
        |neighbour: Option<&f64>| neighbour.map(|neighbour| 0.5 * (neighbour - centre).abs());
    let below = half_way(j.checked_sub(1).and_then(|i| wavelength.get(i)));
    let above = half_way(wavelength.get(j + 1));
    // the width of a single pixel is not known: we take one of the template
    let nearer = below
        .into_iter()
        .chain(above)
        .reduce(f64::min)
        .unwrap_or(0.5 * centre * segment.step);
    let side = |side: Option<f64>| {
        side.filter(|half| *half <= MOST_UNEVEN * nearer)
            .unwrap_or(nearer)
    };
    let pixels = |edge: f64| (edge / centre).ln().abs() / segment.step;
    (pixels(centre - side(below)), pixels(centre + side(above)))
}

/// Returns the median width of a grid's pixels in template pixels, and the relative difference between means over them
/// and values at their centres. The difference is a root mean square, the largest among templates within the labels'
/// ranges. `None` if the pixels are narrow or the difference is small.
pub fn difference_of_means(arm: &ModelArm, wavelength: &[f64]) -> Option<(f64, f64)> {
    // 1. Find the extent of the pixels that lie inside the template.
    let places = wavelength.iter().enumerate().filter_map(|(j, w)| {
        let (segment, centre) = arm.grid.locate(*w)?;
        let segment = &arm.grid.segments[segment];
        let (below, above) = reach(wavelength, j, segment);
        let inside = |end: f64| (segment.start as f64..=(segment.end - 1) as f64).contains(&end);
        (inside(centre - below) && inside(centre + above)).then_some((centre, below, above))
    });
    let places: Vec<(f64, f64, f64)> = places.collect();
    let mut widths: Vec<f64> = places
        .iter()
        .map(|(_, below, above)| below + above)
        .collect();
    widths.sort_by(f64::total_cmp);
    let width = *widths
        .get(widths.len() / 2)
        .filter(|width| **width > WIDE)?;
    // 2. Compare means and values of some templates.
    let points = points(arm);
    let pixels = arm.emulator.pixels();
    let mut templates = arm.emulator.templates(&points);
    if let Some(spread) = Spread::new(arm, pixels) {
        templates
            .chunks_exact_mut(pixels)
            .for_each(|row| spread.apply(row));
    }
    let of_row = |row: &[f32]| relative_difference(row, &places);
    let difference = templates
        .chunks_exact(pixels)
        .map(of_row)
        .fold(0.0, f64::max);
    (difference > LARGEST_DIFFERENCE).then_some((width, difference))
}

/// Returns label vectors: the middle of all training ranges, and from there each label moved alone by a quarter of its
/// range either way.
fn points(arm: &ModelArm) -> Vec<f64> {
    let labels = arm.emulator.labels();
    let share = |k: usize, l: usize| match k {
        _ if k.div_ceil(2) != l + 1 => 0.5,
        _ if k % 2 == 1 => 0.25,
        _ => 0.75,
    };
    let value = |k: usize, l: usize| labels[l].min + share(k, l) * (labels[l].max - labels[l].min);
    (0..=2 * labels.len())
        .flat_map(|k| (0..labels.len()).map(move |l| value(k, l)))
        .collect()
}

/// Returns the root mean square difference between a template's means over pixels (centre, below, above) and its values
/// at their centres, divided by the root mean square of these values. The template is interpolated linearly.
fn relative_difference(template: &[f32], places: &[(f64, f64, f64)]) -> f64 {
    const PARTS: usize = 16;
    let flux = |x: f64| {
        let whole = (x.max(0.0) as usize).min(template.len() - 1);
        let next = template[(whole + 1).min(template.len() - 1)];
        f64::from(template[whole]) + (x - whole as f64) * f64::from(next - template[whole])
    };
    let (mut differences, mut squares) = (0.0, 0.0);
    for &(centre, below, above) in places {
        let part =
            |k: usize| flux(centre - below + (below + above) * (k as f64 + 0.5) / PARTS as f64);
        let mean = (0..PARTS).map(part).sum::<f64>() / PARTS as f64;
        differences += (mean - flux(centre)).powi(2);
        squares += flux(centre).powi(2);
    }
    (differences / f64::max(squares, f64::MIN_POSITIVE)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edges lie half way between wavelengths; beyond a gap and at the ends a pixel is as wide as on its other side.
    #[test]
    fn edges_are_half_way_but_not_across_gaps() {
        let segment = GridSegment {
            start: 0,
            end: 100,
            origin: 5000f64.ln(),
            step: 1e-4,
        };
        let grid = [5000.0, 5001.0, 5002.2, 5010.0, 5011.0];
        let near = |j: usize, below: f64, above: f64| {
            let expected =
                [(-below / grid[j]).ln_1p().abs(), (above / grid[j]).ln_1p()].map(|x| x / 1e-4);
            let found = reach(&grid, j, &segment);
            assert!(
                (found.0 - expected[0]).abs() + (found.1 - expected[1]).abs() < 1e-9,
                "{j}: {found:?}"
            );
        };
        near(0, 0.5, 0.5);
        near(1, 0.5, 0.6);
        near(2, 0.6, 0.6);
        near(3, 0.5, 0.5);
        near(4, 0.5, 0.5);
        assert!((reach(&[5000.0], 0, &segment).0 - 0.5).abs() < 1e-4);
    }
}
