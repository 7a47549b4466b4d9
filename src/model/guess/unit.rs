//! One segment of an arm's templates: its lines, binned, and what a spectrum says there.

use std::ops::Range;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use rayon::prelude::*;

use super::components::Components;
use crate::error::Result;
use crate::memory::check;
use crate::model::continuum::{basis, orthonormalise};
use crate::model::sampling::Sampling;
use crate::model::{ContinuumKind, ModelArm};
use crate::rows::scan::{correlate_one, padded_shifts};
use crate::solver::recording::LIGHT;

/// A bin of template pixels may be so wide that the lines shifted by it still correlate this well.
const BIN_CORRELATION: f64 = 0.85;

/// One log-uniform segment of one arm's template.
#[derive(Debug)]
pub struct Unit {
    pub arm: usize,
    pub segment: usize,
    /// First pixel of the segment.
    pub start: usize,
    /// Template pixels in a bin.
    pub bin: usize,
    pub bins: usize,
    /// (components, bins) each.
    pub lines: Components,
    pub squares: Components,
    /// (templates, 2 × components): how each template mixes the lines' components, then those of the squares.
    mix: Vec<f32>,
    /// (templates, bins) each: lines and squares themselves.
    exact: [Vec<f32>; 2],
    /// Shift of each velocity in bins, from the smallest whole one.
    pub first_shift: i64,
    pub shifts: usize,
    pub positions: Vec<f64>,
}

impl Unit {
    /// `flux` (templates, pixels of the arm).
    pub fn new(
        arm: &ModelArm,
        (a, s): (usize, usize),
        flux: &[f32],
        templates: usize,
        range: (f64, f64),
    ) -> Result<Unit> {
        let segment = &arm.grid.segments[s];
        let pixels = segment.start..segment.end;
        let lines = lines(arm, flux, templates, pixels);
        let count = segment.end - segment.start;
        let bin = bin_width(&lines, count, range, segment.step);
        let bins = count.div_ceil(bin);
        let more = 24 * templates as u64 * bins as u64 + 2 * Components::bytes(templates, bins);
        check(more, || format!("a first guess from {templates} templates of {bins} bins"))?;
        let binned = average(&lines, (count, bin, bins), |l| l);
        let squares = average(&lines, (count, bin, bins), |l| l * l);
        drop(lines);
        let exact = [&binned, &squares].map(|rows| rows.iter().map(|x| *x as f32).collect());
        let (lines, squares) =
            rayon::join(|| Components::new(&binned, templates), || Components::new(&squares, templates));
        let rows = lines.mix.chunks_exact(lines.count).zip(squares.mix.chunks_exact(squares.count));
        let mix = rows.flat_map(|(l, s)| l.iter().chain(s).copied()).collect();
        Ok(Unit {
            arm: a,
            segment: s,
            start: segment.start,
            bin,
            bins,
            lines,
            squares,
            mix,
            exact,
            first_shift: 0,
            shifts: 0,
            positions: Vec::new(),
        })
    }

    /// Where each velocity lies among the whole shifts.
    pub fn place(&mut self, arm: &ModelArm, velocities: &[f64]) {
        let step = arm.grid.segments[self.segment].step * self.bin as f64;
        self.positions = velocities.iter().map(|v| (v / LIGHT).atanh() / step).collect();
        let low = self.positions.iter().copied().fold(f64::INFINITY, f64::min).floor();
        let high = self.positions.iter().copied().fold(f64::NEG_INFINITY, f64::max).ceil();
        self.first_shift = low as i64;
        self.shifts = padded_shifts((high - low) as usize + 1);
        self.positions.iter_mut().for_each(|p| *p -= low);
    }

    /// The spectrum's s (D − s) and s² in template bins, padded for the shifts.
    pub fn signals(&self, data: &[f32], smooth: &[f32], sampling: &Sampling) -> (Vec<f32>, Vec<f32>) {
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

    /// Adds this unit's share, power − 2 cross of every template, to `total` (templates, velocities). The components' correlations
    /// `cross` and `power` (count, shifts) are brought to the velocities first: there are fewer of them than templates.
    pub fn add_scores(&self, cross: &[f32], power: &[f32], total: &mut [f32]) {
        let (width, rows) = (self.positions.len(), 2 * self.lines.count);
        let mut at_velocities = Vec::with_capacity(rows * width);
        let both = cross.chunks_exact(self.shifts).map(|row| (row, -2.0));
        for (row, factor) in both.chain(power.chunks_exact(self.shifts).map(|row| (row, 1.0))) {
            at_velocities.extend(self.positions.iter().map(|&position| {
                let i = (position as usize).min(self.shifts - 1);
                let f = (position - i as f64) as f32;
                factor * (row[i] * (1.0 - f) + row[(i + 1).min(self.shifts - 1)] * f)
            }));
        }
        let templates = total.len() / width;
        let target = MatMut::from_row_major_slice_mut(total, templates, width);
        let mix = MatRef::from_row_major_slice(&self.mix, templates, rows);
        let at_velocities = MatRef::from_row_major_slice(&at_velocities, rows, width);
        matmul(target, Accum::Add, mix, at_velocities, 1.0, Par::Seq);
    }

    /// Adds this unit's share of a template's χ² at some velocities to `scores`, from its lines themselves.
    pub fn add_exact_scores(
        &self,
        template: usize,
        (cross, power): (&[f32], &[f32]),
        velocities: Range<usize>,
        scores: &mut [f32],
    ) {
        let positions = &self.positions[velocities];
        let (Some(first), Some(last)) = (positions.first(), positions.last()) else { return };
        let whole = |position: f64| (position as usize).min(self.shifts - 1);
        let (low, high) = (whole(*first), (whole(*last) + 1).min(self.shifts - 1));
        let of = |rows: &[f32], signal: &[f32]| {
            let row = &rows[template * self.bins..][..self.bins];
            correlate_one(row, signal, low..high + 1)
        };
        let (cross, power) = (of(&self.exact[0], cross), of(&self.exact[1], power));
        for (score, position) in scores.iter_mut().zip(positions) {
            let i = whole(*position);
            let f = (position - i as f64) as f32;
            let at = |row: &[f32]| row[i - low] * (1.0 - f) + row[(i + 1).min(self.shifts - 1) - low] * f;
            *score += at(&power) - 2.0 * at(&cross);
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

/// Means of bins of what `f` makes of the values (rows, count) → (rows, bins).
fn average(rows: &[f64], (count, bin, bins): (usize, usize, usize), f: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut out = Vec::with_capacity(rows.len() / count * bins);
    for row in rows.chunks_exact(count) {
        out.extend(row.chunks(bin).map(|c| c.iter().map(|l| f(*l)).sum::<f64>() / c.len() as f64));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where as many components as templates say all of them, both looks see the same; and what they see are the sums themselves.
    #[test]
    fn both_looks_see_the_sums() {
        let (templates, bins, shifts) = (5, 37, padded_shifts(9));
        let value = |k: usize| ((k * 7919) % 101) as f64 / 101.0 - 0.5;
        let lines: Vec<f64> = (0..templates * bins).map(value).collect();
        let squares: Vec<f64> = lines.iter().map(|x| x * x).collect();
        let exact = [&lines, &squares].map(|rows| rows.iter().map(|x| *x as f32).collect());
        let (lines, squares) = (Components::new(&lines, templates), Components::new(&squares, templates));
        let rows = lines.mix.chunks_exact(lines.count).zip(squares.mix.chunks_exact(squares.count));
        let mix = rows.flat_map(|(l, s)| l.iter().chain(s).copied()).collect();
        let positions = vec![0.25, 1.5, 2.0, 4.75, 6.5, 7.25, 7.9];
        let (arm, segment, start, bin, first_shift) = (0, 0, 0, 1, 0);
        let unit = Unit { arm, segment, start, bin, bins, lines, squares, mix, exact, first_shift, shifts, positions };
        let signal = |seed: usize| (0..bins + shifts).map(|k| value(k + seed) as f32).collect::<Vec<f32>>();
        let (cross, power) = (signal(11), signal(57));
        let width = unit.positions.len();
        let mut total = vec![0f32; templates * width];
        let of = |components: &Components, signal: &[f32]| components.correlate(signal, bins, shifts);
        unit.add_scores(&of(&unit.lines, &cross), &of(&unit.squares, &power), &mut total);
        for template in 0..templates {
            let mut few = vec![0f32; 4];
            unit.add_exact_scores(template, (&cross, &power), 2..6, &mut few);
            for (v, found) in (2..6).zip(few) {
                let (whole, f) = (unit.positions[v] as usize, unit.positions[v].fract());
                let at = |s: usize| -> f64 {
                    let row = |k: usize| &unit.exact[k][template * bins..][..bins];
                    let sum = |row: &[f32], signal: &[f32]| -> f64 {
                        row.iter().zip(&signal[s..]).map(|(a, b)| f64::from(a * b)).sum()
                    };
                    sum(row(1), &power) - 2.0 * sum(row(0), &cross)
                };
                let expected = at(whole) * (1.0 - f) + at(whole + 1) * f;
                assert!((f64::from(found) - expected).abs() < 1e-4, "{template}, {v}: {found} {expected}");
                let first = f64::from(total[template * width + v]);
                assert!((first - expected).abs() < 1e-3, "{template}, {v}: {first} {expected}");
            }
        }
    }
}
