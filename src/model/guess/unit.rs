//! One segment of an arm's templates: its lines, in bins of two widths, and what a spectrum says there.

use std::ops::Range;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use rayon::prelude::*;

use super::bins::{Bins, Signals};
use super::components::Components;
use crate::error::Result;
use crate::memory::check;
use crate::model::continuum::{basis, dot, orthonormalise};
use crate::model::sampling::Sampling;
use crate::model::{ContinuumKind, ModelArm};
use crate::rows::scan::correlate_two;
use crate::solver::recording::LIGHT;

/// A bin of template pixels may be so wide that the lines shifted by it still correlate this well.
const BIN_CORRELATION: f64 = 0.85;
/// The same of the wider bins in which templates are chosen.
const COARSE_CORRELATION: f64 = 0.6;

/// One log-uniform segment of one arm's template.
#[derive(Debug)]
pub struct Unit {
    pub arm: usize,
    pub segment: usize,
    /// First pixel of the segment.
    start: usize,
    /// For the choice of templates: as fine, or twice as wide.
    pub coarse: Bins,
    /// For a closer look at the best.
    pub fine: Bins,
    /// (components, coarse bins) each.
    pub lines: Components,
    pub squares: Components,
    /// (templates, 2 × components): how each template mixes the lines' components, then those of the squares.
    mix: Vec<f32>,
    /// (templates, fine bins) each: lines and squares themselves.
    exact: [Vec<f32>; 2],
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
        let lines = Lines::new(arm, flux, segment.start..segment.end);
        let count = segment.end - segment.start;
        // a few of the templates tell the width of the lines
        let few = (0..templates).into_par_iter().step_by(8).map(|k| centred(lines.of(k)));
        let few: Vec<Vec<f64>> = few.collect();
        let width = |least| bin_width(&few, (count, segment.step), range, least);
        let bin = width(BIN_CORRELATION);
        let wide = width(COARSE_CORRELATION).min(2 * bin);
        let bins = count.div_ceil(bin);
        let more = 32 * templates as u64 * bins as u64 + 2 * Components::bytes(templates, bins);
        check(more, || format!("a first guess from {templates} templates of {bins} bins"))?;
        let (rows, exact) = lines.binned(templates, (bin, wide / bin));
        let (fine, coarse) = (Bins::new(bin, bins), Bins::new(wide, bins.div_ceil(wide / bin)));
        let [lines, squares] = &rows;
        let (lines, squares) =
            rayon::join(|| Components::new(lines, templates), || Components::new(squares, templates));
        let mix = mixed(&lines, &squares);
        Ok(Unit { arm: a, segment: s, start: segment.start, coarse, fine, lines, squares, mix, exact })
    }

    /// Where the velocities of both looks lie among whole shifts.
    pub fn place(&mut self, arm: &ModelArm, coarse: &[f64], fine: &[f64]) {
        let step = arm.grid.segments[self.segment].step;
        let shifts = |bins: &Bins, velocities: &[f64]| -> Vec<f64> {
            velocities.iter().map(|v| (v / LIGHT).atanh() / (step * bins.bin as f64)).collect()
        };
        let (coarse, fine) = (shifts(&self.coarse, coarse), shifts(&self.fine, fine));
        let lowest = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min).floor() as i64;
        // coarse bins begin where fine ones do
        let ratio = (self.coarse.bin / self.fine.bin) as i64;
        let first = lowest(&coarse).min(lowest(&fine).div_euclid(ratio));
        self.coarse.place(coarse, first);
        self.fine.place(fine, ratio * first);
    }

    /// What the spectrum says in fine bins.
    pub fn signals(&self, data: &[f32], smooth: &[f32], sampling: &Sampling) -> Signals {
        let mut signals = self.fine.no_signals();
        let [cross, power] = &mut signals;
        for (at, j) in self.places(sampling, cross.len()) {
            let (d, s) = (data[j], smooth[j]);
            cross[at] += s * (d - s);
            power[at] += s * s;
        }
        signals
    }

    /// What two of the continuum's directions (pixels) take of lines, in fine bins.
    pub fn absorption(&self, directions: [&[f32]; 2], smooth: &[f32], sampling: &Sampling) -> Signals {
        let mut signals = self.fine.no_signals();
        let [first, second] = &mut signals;
        for (at, j) in self.places(sampling, first.len()) {
            first[at] += directions[0][j] * smooth[j];
            second[at] += directions[1][j] * smooth[j];
        }
        signals
    }

    /// The bins that the segment's pixels belong to, and the pixels.
    fn places(&self, sampling: &Sampling, length: usize) -> impl Iterator<Item = (usize, usize)> {
        let pixels = sampling.index.iter().zip(&sampling.fraction).enumerate();
        let is_here = |packed: i32| packed >= 0 && (packed >> 24) as usize == self.segment;
        pixels.filter(move |(_, (packed, _))| is_here(**packed)).filter_map(move |(j, (packed, fraction))| {
            let nearest = (packed & 0xff_ffff) as usize + usize::from(*fraction >= 0.5);
            self.fine.place_of(nearest - self.start).filter(|at| *at < length).map(|at| (at, j))
        })
    }

    /// Those of fine bins in coarse ones, which are as wide or twice as wide.
    pub fn coarse_signals(&self, fine: &Signals) -> Signals {
        debug_assert!(self.coarse.bin == self.fine.bin || self.coarse.bin == 2 * self.fine.bin);
        let mut signals = self.coarse.no_signals();
        for (signal, fine) in signals.iter_mut().zip(fine) {
            if self.coarse.bin == self.fine.bin {
                signal.iter_mut().zip(fine).for_each(|(all, one)| *all = *one);
                continue;
            }
            let (pairs, odd) = fine.as_chunks();
            signal.iter_mut().zip(pairs).for_each(|(sum, [a, b])| *sum = a + b);
            if let (Some(sum), Some(one)) = (signal.get_mut(pairs.len()), odd.first()) {
                *sum = *one;
            }
        }
        signals
    }

    /// Adds this unit's share, power − 2 cross of every template, to `total` (templates, coarse velocities). The components'
    /// correlations are brought to the velocities first: there are fewer of them than templates.
    pub fn add_scores(&self, [cross, power]: &Signals, total: &mut [f32]) {
        let Bins { shifts, positions, .. } = &self.coarse;
        let cross = self.lines.correlate(cross, &self.coarse);
        let power = self.squares.correlate(power, &self.coarse);
        let (width, rows) = (positions.len(), 2 * self.lines.count);
        let mut at_velocities = Vec::with_capacity(rows * width);
        let both = cross.chunks_exact(*shifts).map(|row| (row, -2.0));
        for (row, factor) in both.chain(power.chunks_exact(*shifts).map(|row| (row, 1.0))) {
            at_velocities.extend(self.coarse.between(row, 0, 0..width).map(|x| factor * x));
        }
        let templates = total.len() / width;
        let target = MatMut::from_row_major_slice_mut(total, templates, width);
        let mix = MatRef::from_row_major_slice(&self.mix, templates, rows);
        let at_velocities = MatRef::from_row_major_slice(&at_velocities, rows, width);
        matmul(target, Accum::Add, mix, at_velocities, 1.0, Par::Seq);
    }

    /// Adds what two of the continuum's directions take of a template's lines at a fine velocity to `sums`.
    pub fn add_absorbed(&self, template: usize, signals: &Signals, velocity: usize, sums: &mut [f32; 2]) {
        let (fine, range) = (&self.fine, velocity..velocity + 1);
        let low = fine.whole(fine.positions[velocity]);
        let high = (low + 1).min(fine.shifts - 1);
        let lines = &self.exact[0][template * fine.count..][..fine.count];
        let found = correlate_two([lines, lines], signals.each_ref().map(Vec::as_slice), low..high + 1);
        for (sum, row) in sums.iter_mut().zip(&found) {
            *sum += fine.between(row, low, range.clone()).sum::<f32>();
        }
    }

    /// Adds this unit's share of a template's χ² at some fine velocities to `scores`, from its lines themselves.
    pub fn add_exact_scores(&self, template: usize, signals: &Signals, velocities: Range<usize>, scores: &mut [f32]) {
        let (fine, positions) = (&self.fine, &self.fine.positions[velocities.clone()]);
        let (Some(first), Some(last)) = (positions.first(), positions.last()) else { return };
        let (low, high) = (fine.whole(*first), (fine.whole(*last) + 1).min(fine.shifts - 1));
        let rows = self.exact.each_ref().map(|rows| &rows[template * fine.count..][..fine.count]);
        let [cross, power] = correlate_two(rows, signals.each_ref().map(Vec::as_slice), low..high + 1);
        let both = fine.between(&cross, low, velocities.clone()).zip(fine.between(&power, low, velocities));
        scores.iter_mut().zip(both).for_each(|(score, (cross, power))| *score += power - 2.0 * cross);
    }
}

/// (templates, 2 × components): how templates are made of both.
fn mixed(lines: &Components, squares: &Components) -> Vec<f32> {
    let rows = lines.mix.chunks_exact(lines.count).zip(squares.mix.chunks_exact(squares.count));
    rows.flat_map(|(l, s)| l.iter().chain(s).copied()).collect()
}

/// Templates in a segment.
struct Lines<'a> {
    /// (templates, stride)
    flux: &'a [f32],
    stride: usize,
    pixels: Range<usize>,
    /// The continuum's orthonormal basis (terms, pixels); none where the model has no continuum.
    basis: Vec<f64>,
}

impl Lines<'_> {
    fn new<'a>(arm: &ModelArm, flux: &'a [f32], pixels: Range<usize>) -> Lines<'a> {
        let wavelength = &arm.emulator.wavelength()[pixels.clone()];
        let count = wavelength.len();
        let mut rows = basis(arm.continuum, wavelength, wavelength[0], wavelength[count - 1]);
        let usable =
            arm.continuum.kind != ContinuumKind::None && orthonormalise(&mut rows, count, &vec![true; count]).is_some();
        let basis = if usable { rows } else { Vec::new() };
        Lines { flux, stride: arm.emulator.pixels(), pixels, basis }
    }

    /// Those of a template: flux / continuum − 1, or flux − 1 where the model has no continuum (pixels).
    fn of(&self, template: usize) -> Vec<f64> {
        let flux = self.flux[template * self.stride..][self.pixels.clone()].iter().map(|f| f64::from(*f));
        if self.basis.is_empty() {
            return flux.map(|f| f - 1.0).collect();
        }
        let flux: Vec<f64> = flux.collect();
        let mut smooth = vec![0.0; flux.len()];
        for row in self.basis.chunks_exact(flux.len()) {
            let a = dot(row, &flux);
            smooth.iter_mut().zip(row).for_each(|(s, p)| *s += a * p);
        }
        flux.iter().zip(&smooth).map(|(f, s)| if *s > 0.0 { f / s - 1.0 } else { 0.0 }).collect()
    }

    /// Lines and their squares of all templates, averaged in bins: (templates, coarse bins), and (templates, fine bins) in f32. A coarse
    /// bin has `ratio` fine ones.
    fn binned(&self, templates: usize, (bin, ratio): (usize, usize)) -> ([Vec<f64>; 2], [Vec<f32>; 2]) {
        let fine = self.pixels.len().div_ceil(bin);
        let coarse = fine.div_ceil(ratio);
        let (mut rows, mut exact) =
            ([(); 2].map(|()| vec![0.0; templates * coarse]), [(); 2].map(|()| vec![0.0; templates * fine]));
        let ([lines, squares], [exact_lines, exact_squares]) = (&mut rows, &mut exact);
        let places = (lines.par_chunks_mut(coarse).zip(squares.par_chunks_mut(coarse)))
            .zip(exact_lines.par_chunks_mut(fine).zip(exact_squares.par_chunks_mut(fine)));
        places.enumerate().for_each(|(k, (rows, exact))| {
            let own = self.of(k);
            let both = [average(&own, bin, |l| l), average(&own, bin, |l| l * l)];
            for ((row, exact), values) in [(rows.0, exact.0), (rows.1, exact.1)].into_iter().zip(both) {
                exact.iter_mut().zip(&values).for_each(|(exact, value)| *exact = *value as f32);
                row.copy_from_slice(&if ratio > 1 { average(&values, ratio, |x| x) } else { values });
            }
        });
        (rows, exact)
    }
}

fn centred(mut row: Vec<f64>) -> Vec<f64> {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    row.iter_mut().for_each(|x| *x -= mean);
    row
}

/// The widest bin, a power of two, that blurs neither the lines, so that they correlate as `least` says, nor the range of velocities.
/// `lines` have the mean 0.
fn bin_width(lines: &[Vec<f64>], (count, step): (usize, f64), (low, high): (f64, f64), least: f64) -> usize {
    let at = |lag: usize| lines.iter().map(|row| dot(&row[lag..], &row[..count - lag])).sum::<f64>();
    let same = at(0).max(f64::MIN_POSITIVE);
    let shifts = (high - low) / LIGHT / step;
    let mut bin = 1;
    while 2 * bin < count / 64 && shifts / (2 * bin) as f64 >= 8.0 && at(2 * bin) >= least * same {
        bin *= 2;
    }
    bin
}

/// Means of bins of what `f` makes of a row's values.
fn average(row: &[f64], bin: usize, f: impl Fn(f64) -> f64) -> Vec<f64> {
    row.chunks(bin).map(|c| c.iter().map(|l| f(*l)).sum::<f64>() / c.len() as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(k: usize) -> f64 {
        ((k * 7919) % 101) as f64 / 101.0 - 0.5
    }

    /// χ² by plain sums at a position, a whole shift and a fraction.
    fn plain(rows: [&[f64]; 2], signals: &Signals, position: f64) -> f64 {
        let at = |shift: usize| -> f64 {
            let sum =
                |k: usize| -> f64 { rows[k].iter().zip(&signals[k][shift..]).map(|(a, b)| a * f64::from(*b)).sum() };
            sum(1) - 2.0 * sum(0)
        };
        let (whole, f) = (position as usize, position.fract());
        at(whole) * (1.0 - f) + at(whole + 1) * f
    }

    /// Where as many components as templates say all of them, both looks see the sums themselves, each in its own bins, of which the
    /// finer are odd.
    #[test]
    fn both_looks_see_the_sums() {
        let (templates, pixels) = (5, 146);
        let values: Vec<f64> = (0..templates * pixels).map(value).collect();
        let means = |bin, f: fn(f64) -> f64| -> Vec<f64> {
            values.chunks_exact(pixels).flat_map(|row| average(row, bin, f)).collect()
        };
        let rows = |bin: usize| [means(bin, |l| l), means(bin, |l| l * l)];
        let (of_fine, of_coarse) = (rows(2), rows(4));
        let (mut coarse, mut fine) = (Bins::new(4, 37), Bins::new(2, 73));
        let (slow, fast) = (vec![-2.75, -1.5, 0.0, 2.75, 3.9], vec![-5.5, -3.0, 0.0, 5.5, 7.8]);
        coarse.place(slow, -3);
        fine.place(fast, -6);
        let (lines, squares) = (Components::new(&of_coarse[0], templates), Components::new(&of_coarse[1], templates));
        let mix = mixed(&lines, &squares);
        let exact = of_fine.each_ref().map(|rows| rows.iter().map(|x| *x as f32).collect());
        let unit = Unit { arm: 0, segment: 0, start: 0, coarse, fine, lines, squares, mix, exact };
        let mut signals = unit.fine.no_signals();
        signals.iter_mut().flatten().enumerate().for_each(|(k, x)| *x = value(k + 11) as f32);
        let wide = unit.coarse_signals(&signals);
        assert!(signals[0].len() % 2 == 1 && wide[0].len() > signals[0].len() / 2);
        assert!(wide[0].iter().zip(signals[0].chunks(2)).all(|(sum, some)| *sum == some.iter().sum::<f32>()));
        let mut total = vec![0f32; templates * 5];
        unit.add_scores(&wide, &mut total);
        for template in 0..templates {
            let mut few = [0f32; 3];
            unit.add_exact_scores(template, &signals, 1..4, &mut few);
            let row = |rows: &[Vec<f64>; 2], k: usize, count: usize| rows[k][template * count..][..count].to_vec();
            let of = |rows, count| [row(rows, 0, count), row(rows, 1, count)];
            let [a, b] = of(&of_fine, 73);
            for (v, found) in (1..4).zip(few) {
                let expected = plain([&a, &b], &signals, unit.fine.positions[v]);
                assert!((f64::from(found) - expected).abs() < 1e-4, "{template}, {v}: {found} {expected}");
            }
            let [a, b] = of(&of_coarse, 37);
            for v in 0..5 {
                let expected = plain([&a, &b], &wide, unit.coarse.positions[v]);
                let found = f64::from(total[template * 5 + v]);
                assert!((found - expected).abs() < 1e-3, "{template}, {v}: {found} {expected}");
            }
        }
    }

    /// A pixel's fine bin lies in the coarse one that it stands in, wherever velocities begin.
    #[test]
    fn bins_of_both_widths_begin_together() {
        let (mut coarse, mut fine) = (Bins::new(4, 16), Bins::new(2, 32));
        coarse.place(vec![-2.5], -4);
        fine.place(vec![-7.3, 1.0], -8);
        for pixel in 0..64 {
            assert_eq!(coarse.place_of(pixel).unwrap(), fine.place_of(pixel).unwrap() / 2);
        }
    }
}
