//! Map of the folds of a model's templates.
//!
//! Some templates depend on a label so weakly that the spectrum turns back on itself when that label grows. The Balmer
//! lines of hot stars, for example, are strongest at some surface gravity. A spectrum then resembles another one on the
//! other side of this *fold*, and its fit may end on the wrong side. Where the folds lie depends on the networks alone.
//! We therefore look for them once, without data, at a few points u of the library: each label p is moved by δ, and the
//! change of the lines l is compared with that of a linear model:
//!
//! ```text
//! ρ = ‖l(u + δ e_p) − l(u)‖² / ‖δ ∂l/∂u_p‖².
//! ```
//!
//! ρ is about 1 where there is no fold, 1/4 where the lines turn, and near 0 where they have come back.

use std::ops::Range;

use rayon::prelude::*;

use super::library::{is_sampled, physical_labels};
use super::lines::{divide_by_continuum, make_continuum_basis};
use crate::emulator::{Emulator, Evaluator};
use crate::model::continuum::inner_product;
use crate::model::{ModelArm, SpectralModel};

/// Maximum number of the library's points at which folds are sought.
const MAPPED_POINTS: usize = 128;
/// Number of mapped points nearest to a fit whose folds count for it.
const NEAREST_POINTS: usize = 3;
/// Distances by which labels are moved to either side, as shares of the distance between their bounds.
const DISTANCES: [f64; 3] = [0.15, 0.3, 0.4];
/// Smallest distance that counts where a bound cuts a move short.
const MIN_DISTANCE: f64 = 0.1;
/// Step of the derivative by a label, as a share of the distance between its bounds.
const DERIVATIVE_STEP: f64 = 0.01;
/// ρ below which the lines have turned back, or are about to. Of `synb` fits, 11 % then end near a fold, and so do
/// nearly all of those that end more than 10 above the right minimum.
const MAX_RHO: f64 = 0.35;
/// Relative effects of the labels that may have a fold that matters. The effect of a label is ‖δ ∂l/∂u_p‖² for a move δ
/// over its whole range, and its relative effect is the ratio to the largest effect of all labels.
const FOLDING_EFFECTS: Range<f64> = 0.05..0.5;
/// Approximate number of pixels of an arm at which lines are compared. Lines that fold are wide.
const COMPARED_PIXELS: usize = 512;
/// Smallest number of pixels of a segment for each term of its continuum, if it has as many.
const MIN_PIXELS_PER_TERM: usize = 4;

/// A fold of the templates near a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fold {
    /// Index of the parameter that is the label.
    pub parameter: usize,
    /// The side on which the fold lies: −1 where the label is smaller, 1 where it is larger.
    pub side: f64,
    /// The range of the label in which folds were sought, in u.
    pub range: f64,
}

/// The folds of a model's templates at some points.
#[derive(Debug)]
pub struct FoldMap {
    labels: Vec<SampledLabel>,
    points: Vec<MappedPoint>,
}

/// A label in which the library's points differ.
#[derive(Debug)]
struct SampledLabel {
    /// Index of the parameter.
    parameter: usize,
    /// Bounds in u.
    lower: f64,
    upper: f64,
    /// Weight of distances along this label: the root of its mean relative effect.
    weight: f64,
}

/// A point at which folds were sought.
#[derive(Debug)]
struct MappedPoint {
    u: Vec<f64>,
    /// (labels)
    relative_effects: Vec<f64>,
    folds: Vec<Fold>,
}

impl FoldMap {
    /// Looks for folds at the first of the library's points, which are in the solver's units.
    pub fn new(model: &SpectralModel, library: &[Vec<f64>]) -> FoldMap {
        let sampled = (0..model.parameters.len()).filter(|&p| is_sampled(model, p));
        let mut labels: Vec<SampledLabel> = sampled.map(|p| SampledLabel::new(model, p)).collect();
        let thinned: Vec<ThinnedArm> = model.arms.iter().map(ThinnedArm::new).collect();
        let arms: Vec<ArmLines> = thinned
            .iter()
            .map(|arm| ArmLines {
                model,
                arm,
                evaluator: arm.emulator.evaluator(),
            })
            .collect();
        let points: Vec<MappedPoint> = library[..library.len().min(MAPPED_POINTS)]
            .par_iter()
            .map(|u| MappedPoint::new(u, &labels, &arms))
            .collect();
        for (k, label) in labels.iter_mut().enumerate() {
            let effects = points.iter().map(|point| point.relative_effects[k]);
            label.weight = (effects.sum::<f64>() / points.len() as f64).sqrt();
        }
        FoldMap { labels, points }
    }

    /// Returns the folds of the mapped points nearest to a point in the solver's units, each once.
    pub fn folds_near(&self, u: &[f64]) -> Vec<Fold> {
        let mut by_distance: Vec<(f64, &MappedPoint)> = self
            .points
            .iter()
            .map(|point| (self.squared_distance(&point.u, u), point))
            .collect();
        if by_distance.len() > NEAREST_POINTS {
            by_distance.select_nth_unstable_by(NEAREST_POINTS, |a, b| a.0.total_cmp(&b.0));
            by_distance.truncate(NEAREST_POINTS);
        }
        let mut folds: Vec<Fold> = Vec::new();
        for fold in by_distance.iter().flat_map(|(_, point)| &point.folds) {
            if !folds.contains(fold) {
                folds.push(*fold);
            }
        }
        // Points at equal distances may come in any order.
        folds.sort_by(|a, b| {
            let by_parameter = a.parameter.cmp(&b.parameter);
            by_parameter.then(a.side.total_cmp(&b.side))
        });
        folds
    }

    /// Returns the squared distance of two points, in which each label is a share of its range and has its weight.
    fn squared_distance(&self, a: &[f64], b: &[f64]) -> f64 {
        let weighted = self.labels.iter().map(|label| {
            let p = label.parameter;
            label.weight * (a[p] - b[p]) / label.range()
        });
        weighted.map(|difference| difference * difference).sum()
    }
}

impl SampledLabel {
    fn new(model: &SpectralModel, parameter: usize) -> SampledLabel {
        let [lower, upper] = {
            let parameter = &model.parameters[parameter];
            [parameter.lower, parameter.upper].map(|bound| parameter.to_u(bound))
        };
        SampledLabel {
            parameter,
            lower,
            upper,
            weight: 0.0,
        }
    }

    fn range(&self) -> f64 {
        self.upper - self.lower
    }

    /// Returns the step of the derivative at a point, towards the more distant bound.
    fn derivative_step(&self, u: &[f64]) -> f64 {
        let middle = 0.5 * (self.lower + self.upper);
        (DERIVATIVE_STEP * self.range()).copysign(middle - u[self.parameter])
    }

    /// Returns the moves of this label from a point to either side, as far as its bounds allow, each with the fold that
    /// it would detect.
    fn moves(&self, u: &[f64]) -> Vec<(Fold, f64)> {
        let value = u[self.parameter];
        let mut moves = Vec::with_capacity(2 * DISTANCES.len());
        for side in [-1.0, 1.0] {
            for distance in DISTANCES {
                let moved = value + side * distance * self.range();
                let delta = moved.clamp(self.lower, self.upper) - value;
                if delta.abs() >= MIN_DISTANCE * self.range() {
                    let fold = Fold {
                        parameter: self.parameter,
                        side,
                        range: self.range(),
                    };
                    moves.push((fold, delta));
                }
            }
        }
        // A bound cuts several moves short, which are then the same.
        moves.dedup();
        moves
    }
}

impl MappedPoint {
    /// Compares the lines at a point with those at moved points.
    fn new(u: &[f64], labels: &[SampledLabel], arms: &[ArmLines]) -> MappedPoint {
        // 1. Estimate the squared norm of the lines' derivative by each label.
        let steps: Vec<f64> = labels
            .iter()
            .map(|label| label.derivative_step(u))
            .collect();
        let mut points = vec![u.to_vec()];
        let stepped = labels.iter().zip(&steps);
        points.extend(stepped.map(|(label, step)| move_along(u, label.parameter, *step)));
        let lines = extract_lines(arms, &points);
        let squared_slopes: Vec<f64> = steps
            .iter()
            .zip(&lines[1..])
            .map(|(step, moved)| squared_distance(moved, &lines[0]) / (step * step))
            .collect();
        // 2. Compare the labels' effects.
        let slopes_of_labels = squared_slopes.iter().zip(labels);
        let mut relative_effects: Vec<f64> = slopes_of_labels
            .map(|(slope, label)| slope * label.range() * label.range())
            .collect();
        let largest = relative_effects
            .iter()
            .copied()
            .fold(f64::MIN_POSITIVE, f64::max);
        for effect in &mut relative_effects {
            let relative = *effect / largest;
            *effect = if relative.is_finite() { relative } else { 0.0 };
        }
        // 3. Move the labels that may have a fold, and list those that have one.
        let mut folds = Vec::new();
        for (k, label) in labels.iter().enumerate() {
            if !FOLDING_EFFECTS.contains(&relative_effects[k]) {
                continue;
            }
            let moves = label.moves(u);
            let points: Vec<Vec<f64>> = moves
                .iter()
                .map(|(_, delta)| move_along(u, label.parameter, *delta))
                .collect();
            for ((fold, delta), moved) in moves.iter().zip(extract_lines(arms, &points)) {
                let rho = squared_distance(&moved, &lines[0]) / (delta * delta * squared_slopes[k]);
                if rho < MAX_RHO && !folds.contains(fold) {
                    folds.push(*fold);
                }
            }
        }
        MappedPoint {
            u: u.to_vec(),
            relative_effects,
            folds,
        }
    }
}

/// Returns a point with one parameter moved.
fn move_along(u: &[f64], parameter: usize, delta: f64) -> Vec<f64> {
    let mut moved = u.to_vec();
    moved[parameter] += delta;
    moved
}

/// Returns ‖a − b‖².
fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    let difference: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    inner_product(&difference, &difference)
}

/// An arm whose network has only some of the pixels.
struct ThinnedArm<'a> {
    arm: &'a ModelArm,
    emulator: Emulator,
    /// (segments) The pixels of each, and an orthonormal continuum basis there.
    segments: Vec<(Range<usize>, Vec<f64>)>,
}

impl ThinnedArm<'_> {
    fn new(arm: &ModelArm) -> ThinnedArm<'_> {
        let wavelength = arm.emulator.wavelength();
        let step = (arm.emulator.pixels() / COMPARED_PIXELS).max(1);
        let mut pixels = Vec::new();
        let mut segments = Vec::new();
        for segment in &arm.grid.segments {
            let begin = pixels.len();
            let length = segment.end - segment.start;
            let max_step = length / (MIN_PIXELS_PER_TERM * arm.continuum.terms).max(1);
            pixels.extend((segment.start..segment.end).step_by(step.clamp(1, max_step.max(1))));
            let segment_wavelength: Vec<f64> =
                pixels[begin..].iter().map(|k| wavelength[*k]).collect();
            let basis = make_continuum_basis(arm.continuum, &segment_wavelength);
            segments.push((begin..pixels.len(), basis));
        }
        ThinnedArm {
            arm,
            emulator: arm.emulator.select_pixels(&pixels),
            segments,
        }
    }
}

/// Extracts the lines of an arm's templates, without rotation or line spread.
struct ArmLines<'a> {
    model: &'a SpectralModel,
    arm: &'a ThinnedArm<'a>,
    evaluator: Evaluator<'a>,
}

impl ArmLines<'_> {
    /// Appends the lines at each point to its row.
    fn append_lines(&self, points: &[Vec<f64>], rows: &mut [Vec<f64>]) {
        let labels: Vec<f64> = points
            .iter()
            .flat_map(|u| physical_labels(self.model, self.arm.arm, u))
            .collect();
        let flux = self.evaluator.templates(&labels);
        let templates = flux.chunks_exact(self.arm.emulator.pixels());
        for (template, row) in templates.zip(rows) {
            for (pixels, basis) in &self.arm.segments {
                let flux = template[pixels.clone()].iter().map(|f| f64::from(*f));
                row.extend(divide_by_continuum(flux.collect(), basis));
            }
        }
    }
}

/// Returns the lines of all arms, one row per point.
fn extract_lines(arms: &[ArmLines], points: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut rows = vec![Vec::new(); points.len()];
    if !points.is_empty() {
        arms.iter()
            .for_each(|arm| arm.append_lines(points, &mut rows));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::tests::demo;

    /// Hot metal-poor giants have a fold of the surface gravity on one side, and the Sun has none.
    #[test]
    fn folds_of_the_surface_gravity_of_hot_stars_are_found() {
        let (model, guess, _) = demo();
        let folds_at = |labels: [f64; 4]| {
            let mut u = vec![0.0; 5];
            for (p, value) in labels.into_iter().enumerate() {
                u[p + 1] = model.parameters[p + 1].to_u(value);
            }
            guess.folds_near(&u)
        };
        let sides_at = |labels: [f64; 4]| -> Vec<(usize, f64)> {
            let folds = folds_at(labels);
            folds
                .iter()
                .map(|fold| (fold.parameter, fold.side))
                .collect()
        };
        assert_eq!(sides_at([7500.0, 2.0, -1.5, 0.2]), [(2, -1.0)]);
        assert_eq!(sides_at([5777.0, 4.44, 0.0, 0.0]), []);
    }
}
