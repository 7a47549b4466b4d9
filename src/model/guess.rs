//! First guess: a library of templates against a spectrum's lines over all velocities, arms summed (design §2.10).
//!
//! A template's χ² at a shift is const + Σ s² l² − 2 Σ s (D − s) l, with s = weight · continuum and l = template / its continuum − 1:
//! two cross-correlations. The library's l and l² are replaced by a few principal components, which makes them cheap.

use std::ops::Range;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use nalgebra::{DMatrix, SymmetricEigen};
use rayon::prelude::*;

use super::continuum::{basis, orthonormalise};
use super::prepare::Prepared;
use super::sampling::Sampling;
use super::{ContinuumKind, ModelArm, ModelParameter, SpectralModel};
use crate::error::{Error, Result};
use crate::rows::scan::{Correlate, padded_shifts};
use crate::solver::recording::{LIGHT, LabelInput, Source, Transform, Velocity};

/// Templates in the library.
const TEMPLATES: usize = 256;
/// Templates that the principal components are made from.
const PRINCIPAL: usize = 128;
/// Templates that are evaluated in one product.
const PIECE: usize = 64;
/// Principal components of the lines, and of the lines squared.
const COMPONENTS: usize = 40;
/// A bin of template pixels may be so wide that the lines shifted by it still correlate this well.
const BIN_CORRELATION: f64 = 0.85;
/// Two starts are distinct when a scaled label differs by this, or the velocity.
const DISTINCT_LABEL: f64 = 0.6;
const DISTINCT_VELOCITY: f64 = 60.0;
/// Doublings of the number of Sobol points that are tried before the hull counts as unreachable.
const SOBOL_ATTEMPTS: u32 = 1 << 16;

/// Where a fit begins, in the solver's u, and the score (χ² up to a constant) that chose it.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    pub u: Vec<f64>,
    pub score: f64,
}

/// The library of one model.
#[derive(Debug)]
pub struct FirstGuess {
    /// (templates, parameters) in u, the velocity zero.
    parameters: Vec<Vec<f64>>,
    /// (templates) scaled labels of the first arm.
    scaled: Vec<Vec<f64>>,
    units: Vec<Unit>,
    /// km/s
    velocities: Vec<f64>,
    velocity: Option<(usize, ModelParameter)>,
}

/// One log-uniform segment of one arm's template.
#[derive(Debug)]
struct Unit {
    arm: usize,
    segment: usize,
    /// First pixel of the segment.
    start: usize,
    /// Template pixels in a bin.
    bin: usize,
    bins: usize,
    /// (components, bins) each.
    lines: Components,
    squares: Components,
    /// Shift of each velocity in bins, from the smallest whole one.
    first_shift: i64,
    shifts: usize,
    positions: Vec<f64>,
}

#[derive(Debug)]
struct Components {
    count: usize,
    /// (count, bins)
    rows: Vec<f32>,
    /// (templates, count)
    mix: Vec<f32>,
}

impl FirstGuess {
    /// Evaluates the library.
    pub fn new(model: &SpectralModel, seed: u64) -> Result<FirstGuess> {
        let parameters = library(model, seed)?;
        let mut units = Vec::new();
        let (low, high) = model.velocity_range();
        for (a, arm) in model.arms.iter().enumerate() {
            let labels: Vec<f64> = parameters.iter().flat_map(|u| physical_labels(model, arm, u)).collect();
            // pieces of a fixed size: the same bits with any number of threads
            let pieces = labels.par_chunks(PIECE * arm.inputs.len());
            let flux: Vec<f32> = pieces.flat_map_iter(|labels| arm.emulator.templates(labels)).collect();
            for segment in 0..arm.grid.segments.len() {
                units.push(Unit::new(arm, (a, segment), &flux, parameters.len(), (low, high)));
            }
        }
        let velocities = velocities(&units[0], &model.arms[0], low, high);
        for unit in &mut units {
            unit.place(&model.arms[unit.arm], &velocities);
        }
        let first = &model.arms[0];
        let scaled = parameters.iter().map(|u| first.emulator.scaled(&physical_labels(model, first, u))).collect();
        let velocity =
            if let Velocity::Parameter(p) = model.velocity { Some((p, model.parameters[p].clone())) } else { None };
        Ok(FirstGuess { parameters, scaled, units, velocities, velocity })
    }

    /// The library's points in u, the velocity not set.
    pub fn points(&self) -> &[Vec<f64>] {
        &self.parameters
    }

    /// The best distinct starts, at most `count`, at least one.
    pub fn starts(&self, prepared: &Prepared, samplings: &[&Sampling], count: usize) -> Vec<Start> {
        let scores = self.scores(prepared, samplings);
        let width = self.velocities.len();
        let mut best: Vec<(usize, usize, f32)> = Vec::with_capacity(self.parameters.len());
        for (k, row) in scores.chunks_exact(width).enumerate() {
            let lowest = row.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).unwrap_or((0, &0.0));
            best.push((k, lowest.0, *lowest.1));
        }
        best.sort_by(|a, b| a.2.total_cmp(&b.2).then(a.0.cmp(&b.0)));
        let mut chosen: Vec<(usize, f64, f64)> = Vec::new();
        for (k, at, score) in best {
            let v = self.refined_velocity(&scores[k * width..][..width], at);
            let distinct = |&(other, velocity, _): &(usize, f64, f64)| {
                let pairs = self.scaled[k].iter().zip(&self.scaled[other]);
                pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) > DISTINCT_LABEL
                    || (v - velocity).abs() > DISTINCT_VELOCITY
            };
            if chosen.iter().all(distinct) {
                chosen.push((k, v, f64::from(score)));
            }
            if chosen.len() >= count {
                break;
            }
        }
        chosen.into_iter().map(|(k, v, score)| self.start(k, v, score)).collect()
    }

    fn start(&self, k: usize, velocity: f64, score: f64) -> Start {
        let mut u = self.parameters[k].clone();
        if let Some((p, parameter)) = &self.velocity {
            u[*p] = parameter.to_u(velocity.clamp(parameter.lower, parameter.upper));
        }
        Start { u, score }
    }

    /// The minimum of the parabola through the best velocity and its neighbours, km/s.
    fn refined_velocity(&self, row: &[f32], at: usize) -> f64 {
        let v = self.velocities[at];
        if at == 0 || at + 1 >= row.len() {
            return v;
        }
        let (a, b, c) = (f64::from(row[at - 1]), f64::from(row[at]), f64::from(row[at + 1]));
        let curvature = a - 2.0 * b + c;
        let offset = if curvature > 0.0 { (0.5 * (a - c) / curvature).clamp(-0.5, 0.5) } else { 0.0 };
        v + offset * 0.5 * (self.velocities[at + 1] - self.velocities[at - 1])
    }

    /// (templates, velocities): χ² up to a constant.
    fn scores(&self, prepared: &Prepared, samplings: &[&Sampling]) -> Vec<f32> {
        let mut total = vec![0f32; self.parameters.len() * self.velocities.len()];
        for unit in &self.units {
            let arm = &prepared.arms[unit.arm];
            let (cross, power) = unit.signals(&arm.data, &arm.smooth, samplings[unit.arm]);
            let cross = unit.lines.correlate(&cross, unit.bins, unit.shifts);
            let power = unit.squares.correlate(&power, unit.bins, unit.shifts);
            unit.add_scores(&cross, &power, self.velocities.len(), &mut total);
        }
        total
    }
}

/// Labels of an emulator at u.
fn physical_labels(model: &SpectralModel, arm: &ModelArm, u: &[f64]) -> Vec<f64> {
    let value = |input: &LabelInput| match input.source {
        Source::Fixed(x) => x,
        Source::Parameter(p) => model.parameters[p].to_physical(u[p]),
    };
    arm.inputs.iter().map(value).collect()
}

/// Sobol points (Owen-scrambled) of the labels that have no start, inside the bounds and every hull; in u.
fn library(model: &SpectralModel, seed: u64) -> Result<Vec<Vec<f64>>> {
    let open = |p: usize| {
        let parameter = &model.parameters[p];
        model.velocity != Velocity::Parameter(p) && parameter.start.is_none() && !parameter.is_held()
    };
    let dimensions: Vec<usize> = (0..model.parameters.len()).filter(|&p| open(p)).collect();
    let wanted = if dimensions.is_empty() { 1 } else { TEMPLATES };
    let mut points = Vec::with_capacity(wanted);
    for index in 0..SOBOL_ATTEMPTS {
        let mut u: Vec<f64> =
            model.parameters.iter().map(|p| p.to_u(p.start.unwrap_or(p.lower).clamp(p.lower, p.upper))).collect();
        for (dimension, &p) in dimensions.iter().enumerate() {
            let at = f64::from(sobol_burley::sample(index, dimension as u32, seed as u32));
            u[p] = along(&model.parameters[p], arm_transform(model, p), at);
        }
        let inside =
            |arm: &ModelArm| arm.emulator.outside(&arm.emulator.scaled(&physical_labels(model, arm, &u))) <= 0.0;
        if dimensions.is_empty() || model.arms.iter().all(inside) {
            points.push(u);
        }
        if points.len() == wanted {
            return Ok(points);
        }
    }
    if points.is_empty() {
        return Err(Error::Model("no point inside the labels' bounds lies inside the training hulls".into()));
    }
    Ok(points)
}

fn arm_transform(model: &SpectralModel, parameter: usize) -> Transform {
    let inputs = model.arms.iter().flat_map(|arm| &arm.inputs);
    inputs
        .filter(|i| i.source == Source::Parameter(parameter))
        .map(|i| i.transform)
        .next()
        .unwrap_or(Transform::Identity)
}

/// The point at a fraction of the way between the bounds, even in the label's own scale.
fn along(parameter: &ModelParameter, transform: Transform, at: f64) -> f64 {
    let physical = match transform {
        Transform::Identity => parameter.lower + (parameter.upper - parameter.lower) * at,
        Transform::Log10 => parameter.lower * (parameter.upper / parameter.lower).powf(at),
    };
    parameter.to_u(physical)
}

/// Every bin of the first unit inside the range, km/s.
fn velocities(unit: &Unit, arm: &ModelArm, low: f64, high: f64) -> Vec<f64> {
    let step = arm.grid.segments[unit.segment].step * unit.bin as f64;
    let index = |v: f64| (v / LIGHT).atanh() / step;
    let whole = index(low).ceil() as i64..=index(high).floor() as i64;
    let mut all: Vec<f64> = whole.map(|k| LIGHT * (k as f64 * step).tanh()).collect();
    if all.is_empty() {
        all.push(0.5 * (low + high));
    }
    all
}

impl Unit {
    /// `flux` (templates, pixels of the arm).
    fn new(arm: &ModelArm, (a, s): (usize, usize), flux: &[f32], templates: usize, range: (f64, f64)) -> Unit {
        let segment = &arm.grid.segments[s];
        let pixels = segment.start..segment.end;
        let lines = lines(arm, flux, templates, pixels);
        let count = segment.end - segment.start;
        let bin = bin_width(&lines, count, range, segment.step);
        let bins = count.div_ceil(bin);
        let binned = average(&lines, count, bin, bins);
        let squares: Vec<f64> = average(&lines.iter().map(|l| l * l).collect::<Vec<_>>(), count, bin, bins);
        let (lines, squares) =
            rayon::join(|| Components::new(&binned, templates), || Components::new(&squares, templates));
        Unit {
            arm: a,
            segment: s,
            start: segment.start,
            bin,
            bins,
            lines,
            squares,
            first_shift: 0,
            shifts: 0,
            positions: Vec::new(),
        }
    }

    /// Where each velocity lies among the whole shifts.
    fn place(&mut self, arm: &ModelArm, velocities: &[f64]) {
        let step = arm.grid.segments[self.segment].step * self.bin as f64;
        self.positions = velocities.iter().map(|v| (v / LIGHT).atanh() / step).collect();
        let low = self.positions.iter().copied().fold(f64::INFINITY, f64::min).floor();
        let high = self.positions.iter().copied().fold(f64::NEG_INFINITY, f64::max).ceil();
        self.first_shift = low as i64;
        self.shifts = padded_shifts((high - low) as usize + 1);
        self.positions.iter_mut().for_each(|p| *p -= low);
    }

    /// The spectrum's s (D − s) and s² in template bins, padded for the shifts.
    fn signals(&self, data: &[f32], smooth: &[f32], sampling: &Sampling) -> (Vec<f32>, Vec<f32>) {
        let length = self.bins + self.shifts;
        let (mut cross, mut power) = (vec![0f32; length], vec![0f32; length]);
        for (j, &packed) in sampling.index.iter().enumerate() {
            if packed < 0 || (packed >> 24) as usize != self.segment {
                continue;
            }
            let nearest = (packed & 0xff_ffff) as usize + usize::from(sampling.fraction[j] >= 0.5);
            // bin b at shift s reads the template's bin b − s: correlate() reads signal[b' + s'] with s' = s − first_shift
            let bin = ((nearest - self.start) / self.bin) as i64 - self.first_shift;
            if let Some(at) = usize::try_from(bin).ok().filter(|at| *at < length) {
                let s = smooth[j];
                cross[at] += s * (data[j] - s);
                power[at] += s * s;
            }
        }
        (cross, power)
    }

    fn add_scores(&self, cross: &[f32], power: &[f32], width: usize, total: &mut [f32]) {
        let templates = total.len() / width;
        let (mut x, mut p) = (vec![0f32; self.shifts], vec![0f32; self.shifts]);
        for k in 0..templates {
            self.lines.template(k, cross, &mut x);
            self.squares.template(k, power, &mut p);
            let row = &mut total[k * width..][..width];
            for (out, &position) in row.iter_mut().zip(&self.positions) {
                let i = (position as usize).min(self.shifts - 1);
                let f = (position - i as f64) as f32;
                let at = |i: usize| p[i] - 2.0 * x[i];
                *out += at(i) * (1.0 - f) + at((i + 1).min(self.shifts - 1)) * f;
            }
        }
    }
}

/// Lines of each template in a segment: flux / continuum − 1, or flux − 1 where the model has no continuum (templates, pixels).
fn lines(arm: &ModelArm, flux: &[f32], templates: usize, pixels: Range<usize>) -> Vec<f64> {
    let wavelength = &arm.emulator.wavelength()[pixels.clone()];
    let (count, stride) = (wavelength.len(), arm.emulator.pixels());
    let mut rows = basis(arm.continuum, wavelength, wavelength[0], wavelength[count - 1]);
    let usable =
        arm.continuum.kind != ContinuumKind::None && orthonormalise(&mut rows, count, &vec![true; count]).is_some();
    let one = |k: usize| {
        let flux = flux[k * stride..][pixels.clone()].iter().map(|f| f64::from(*f));
        if !usable {
            return flux.map(|f| f - 1.0).collect::<Vec<f64>>();
        }
        let flux: Vec<f64> = flux.collect();
        let mut smooth = vec![0.0; count];
        for row in rows.chunks_exact(count) {
            let a: f64 = row.iter().zip(&flux).map(|(p, f)| p * f).sum();
            smooth.iter_mut().zip(row).for_each(|(s, p)| *s += a * p);
        }
        flux.iter().zip(&smooth).map(|(f, s)| if *s > 0.0 { f / s - 1.0 } else { 0.0 }).collect()
    };
    (0..templates).into_par_iter().flat_map_iter(one).collect()
}

/// The widest bin, a power of two, that blurs neither the lines nor the range of velocities.
fn bin_width(lines: &[f64], count: usize, (low, high): (f64, f64), step: f64) -> usize {
    let correlation = |lag: usize| {
        let (mut shifted, mut same) = (0.0, 0.0);
        // a few of the templates tell the width of the lines
        for row in lines.chunks_exact(count).step_by(8) {
            let mean = row.iter().sum::<f64>() / count as f64;
            shifted += row[lag..].iter().zip(row).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
            same += row.iter().map(|a| (a - mean).powi(2)).sum::<f64>();
        }
        shifted / same.max(f64::MIN_POSITIVE)
    };
    let shifts = (high - low) / LIGHT / step;
    let mut bin = 1;
    while 2 * bin < count / 64 && shifts / (2 * bin) as f64 >= 8.0 && correlation(2 * bin) >= BIN_CORRELATION {
        bin *= 2;
    }
    bin
}

/// Means of bins (rows, count) → (rows, bins).
fn average(rows: &[f64], count: usize, bin: usize, bins: usize) -> Vec<f64> {
    let mut out = Vec::with_capacity(rows.len() / count * bins);
    for row in rows.chunks_exact(count) {
        out.extend(row.chunks(bin).map(|c| c.iter().sum::<f64>() / c.len() as f64));
    }
    out
}

impl Components {
    /// Principal components of the first [`PRINCIPAL`] of `rows` (templates, bins), each scaled to unit length so that weak lines
    /// count as much as strong ones, no mean subtracted; then every row's projection on them.
    fn new(rows: &[f64], templates: usize) -> Components {
        let bins = rows.len() / templates;
        let some = PRINCIPAL.min(templates);
        let count = COMPONENTS.min(some).next_multiple_of(8);
        let mut unit: Vec<f64> = rows[..some * bins].to_vec();
        for row in unit.chunks_exact_mut(bins) {
            let length = row.iter().map(|x| x * x).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
            row.iter_mut().for_each(|x| *x /= length);
        }
        let unit = MatRef::from_row_major_slice(&unit, some, bins);
        let mut products = vec![0.0; some * some];
        let target = MatMut::from_column_major_slice_mut(&mut products, some, some);
        matmul(target, Accum::Replace, unit, unit.transpose(), 1.0, Par::Seq);
        let eigen = SymmetricEigen::new(DMatrix::from_vec(some, some, products));
        let mut order: Vec<usize> = (0..some).collect();
        order.sort_by(|&a, &b| eigen.eigenvalues[b].total_cmp(&eigen.eigenvalues[a]));
        // orthonormal components = (eigenvectors / √eigenvalue)ᵀ · unit rows
        let mut vectors = vec![0.0; some * count];
        for (c, &at) in order.iter().take(count).enumerate().filter(|(_, at)| eigen.eigenvalues[**at] > 1e-12) {
            for k in 0..some {
                vectors[k * count + c] = eigen.eigenvectors[(k, at)] / eigen.eigenvalues[at].sqrt();
            }
        }
        let vectors = MatRef::from_row_major_slice(&vectors, some, count);
        let mut components = vec![0.0; count * bins];
        let target = MatMut::from_row_major_slice_mut(&mut components, count, bins);
        matmul(target, Accum::Replace, vectors.transpose(), unit, 1.0, Par::Seq);
        let mut mix = vec![0.0; templates * count];
        let target = MatMut::from_row_major_slice_mut(&mut mix, templates, count);
        let (all, axes) = (
            MatRef::from_row_major_slice(rows, templates, bins),
            MatRef::from_row_major_slice(&components, count, bins),
        );
        matmul(target, Accum::Replace, all, axes.transpose(), 1.0, Par::Seq);
        let single = |values: Vec<f64>| values.into_iter().map(|x| x as f32).collect();
        Components { count, rows: single(components), mix: single(mix) }
    }

    /// (count, shifts)
    fn correlate(&self, signal: &[f32], bins: usize, shifts: usize) -> Vec<f32> {
        let mut out = vec![0f32; self.count * shifts];
        Correlate { rows: &self.rows, length: bins, signal, out: &mut out, shifts }.run();
        out
    }

    /// One template's correlation from those of the components.
    fn template(&self, k: usize, correlations: &[f32], out: &mut [f32]) {
        out.fill(0.0);
        for (factor, row) in self.mix[k * self.count..][..self.count].iter().zip(correlations.chunks_exact(out.len())) {
            for (o, c) in out.iter_mut().zip(row) {
                *o += factor * c;
            }
        }
    }
}
