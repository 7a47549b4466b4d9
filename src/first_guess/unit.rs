//! One segment of an arm's templates: its lines, in bins of two widths, and what a spectrum says there.

use std::ops::{Range, RangeInclusive};

use rayon::prelude::*;

use super::bins::{Bins, Signals};
use super::components::Components;
use super::lines::{Lines, bin_width, centred};
use super::stretches::Stretches;
use crate::error::Result;
use crate::io::memory::check;
use crate::math::product::{MatrixProduct, Packed};
use crate::math::scan::correlate_two;
use crate::model::{ModelArm, Sampling};
use crate::recording::LIGHT;

/// A bin of template pixels may be so wide that the lines shifted by it still correlate this well.
const BIN_CORRELATION: f64 = 0.85;
/// The same of the wider bins in which templates are chosen.
const COARSE_CORRELATION: f64 = 0.6;
/// At most one in so many bins is left out at either end of a segment because it is not covered at all velocities.
const MOST_LEFT_OUT: usize = 4;

/// One log-uniform segment of one arm's template.
#[derive(Debug)]
pub struct Unit {
    pub arm: usize,
    pub segment: usize,
    /// First pixel of the segment.
    start: usize,
    /// ln λ of a fine bin.
    bin_step: f64,
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
    /// Layout of the fine bins of signals.
    pub stretches: Stretches,
    /// (templates) Each template less 1 in fine bins; once velocities are placed, in stretches, with as many places
    /// before each as there are shifts. Its mean is 0 where a continuum has its own level.
    whole: Vec<Vec<f32>>,
    /// 1 in all fine bins of a template except the first and the last, 0 elsewhere; laid out as `whole`.
    inside: Vec<f32>,
}

impl Unit {
    /// Bins the lines of all templates on segment `s` of arm number `a`, ready for correlation over a range of
    /// velocities, km/s. `flux` is (templates, pixels of the arm).
    pub fn new(
        arm: &ModelArm,
        a: usize,
        s: usize,
        flux: &[f32],
        templates: usize,
        range: RangeInclusive<f64>,
    ) -> Result<Unit> {
        let segment = &arm.grid.segments[s];
        let lines = Lines::new(arm, flux, segment.start..segment.end);
        let count = segment.end - segment.start;
        // a few of the templates tell the width of the lines
        let few = (0..templates)
            .into_par_iter()
            .step_by(8)
            .map(|k| centred(lines.of(k)));
        let few: Vec<Vec<f64>> = few.collect();
        let shifts = (range.end() - range.start()) / LIGHT / segment.step;
        let width = |least| bin_width(&few, count, shifts, least);
        let bin = width(BIN_CORRELATION);
        let wide = width(COARSE_CORRELATION).min(2 * bin);
        let bins = count.div_ceil(bin);
        let more = 36 * templates as u64 * bins as u64 + 2 * Components::bytes(templates, bins);
        check(more, || {
            format!("a first guess from {templates} templates of {bins} bins")
        })?;
        let (rows, exact) = lines.binned(templates, bin, wide / bin);
        let whole = (0..templates)
            .into_par_iter()
            .map(|k| lines.whole(k, bin))
            .collect();
        let (fine, coarse) = (
            Bins::new(bin, bins),
            Bins::new(wide, bins.div_ceil(wide / bin)),
        );
        let [lines, squares] = &rows;
        let (lines, squares) = rayon::join(
            || Components::new(lines, templates),
            || Components::new(squares, templates),
        );
        let mix = mixed(&lines, &squares);
        Ok(Unit {
            arm: a,
            segment: s,
            start: segment.start,
            bin_step: segment.step * bin as f64,
            coarse,
            fine,
            lines,
            squares,
            mix,
            exact,
            stretches: Stretches::default(),
            whole,
            inside: Vec::new(),
        })
    }

    /// Converts the velocities (km/s) of the coarse and the fine search to shifts in bins, and lays out templates for
    /// them.
    pub fn place_velocities(&mut self, arm: &ModelArm, coarse: &[f64], fine: &[f64]) {
        let step = arm.grid.segments[self.segment].step;
        let shifts = |bins: &Bins, velocities: &[f64]| -> Vec<f64> {
            velocities
                .iter()
                .map(|v| (v / LIGHT).atanh() / (step * bins.bin as f64))
                .collect()
        };
        let (coarse, fine) = (shifts(&self.coarse, coarse), shifts(&self.fine, fine));
        let lowest = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min).floor() as i64;
        // coarse bins begin where fine ones do
        let ratio = (self.coarse.bin / self.fine.bin) as i64;
        let first = lowest(&coarse).min(lowest(&fine).div_euclid(ratio));
        self.coarse.place(coarse, first);
        self.fine.place(fine, ratio * first);
        let shifts = self.fine.shifts;
        self.stretches = Stretches::new(self.fine.count + shifts);
        self.whole
            .par_iter_mut()
            .for_each(|row| *row = self.stretches.lay_out(row, shifts, 0));
        let mut inside = vec![1.0; self.fine.count];
        inside
            .first_mut()
            .into_iter()
            .for_each(|first| *first = 0.0);
        inside.last_mut().into_iter().for_each(|last| *last = 0.0);
        self.inside = self.stretches.lay_out(&inside, shifts, 0);
    }

    /// Returns each template's lines, flux / continuum − 1, in fine bins, not approximated by components: (templates,
    /// fine bins).
    pub fn own_lines(&self) -> &[f32] {
        &self.exact[0]
    }

    /// Returns the places in [`Signals`] at which pixels are used. The segment covers them at all velocities of a range
    /// (km/s), so that velocities are compared by the same pixels. At most a quarter of the segment is left out at
    /// either end: for a wider range, pixels are also used that it covers at some velocities only.
    fn used_places(&self, [lowest, highest]: [f64; 2]) -> Range<usize> {
        let (lowest, highest) = (
            self.position(lowest).floor() as usize,
            self.position(highest).ceil() as usize,
        );
        let (middle, limit) = (lowest.midpoint(highest), self.fine.count / MOST_LEFT_OUT);
        let (before, behind) = (
            (highest + 1 - middle).min(limit),
            (middle + 2 - lowest).min(limit),
        );
        middle + before..(middle + self.fine.count).saturating_sub(behind)
    }

    /// Returns the sums over a spectrum's pixels in each fine bin, with D = `data` and s = `smooth`, its weight ·
    /// continuum. `velocities` is the range in which templates are compared, in km/s.
    pub fn signals(
        &self,
        data: &[f32],
        smooth: &[f32],
        sampling: &Sampling,
        velocities: [f64; 2],
    ) -> Signals {
        let (count, shifts) = (self.fine.count, self.fine.shifts);
        let used = self.used_places(velocities);
        let (mut sums, mut is_cut) = (self.fine.no_signals(), false);
        let [cross, power] = &mut sums;
        // a pixel at place k lies before the covered bins from the shift k on, and behind them up to the shift k + 1 −
        // count
        let (mut before, mut behind) = (vec![0.0; shifts + 1], vec![0.0; shifts + 1]);
        for (j, (d, s)) in data.iter().zip(smooth).enumerate() {
            let place = self.place(sampling, j);
            let Some(at) = place.filter(|at| used.contains(at)) else {
                is_cut |= place.is_some() && *s != 0.0;
                continue;
            };
            cross[at] += s * (d - s);
            power[at] += s * s;
            if (at < shifts || at + 1 >= count) && *s != 0.0 {
                let misfit = f64::from((d - s) * (d - s)) - 1.0;
                before[at.min(shifts)] += misfit;
                behind[(at + 2).saturating_sub(count).min(shifts)] += misfit;
            }
        }
        behind[0] = 0.0;
        (1..shifts).for_each(|shift| before[shift] += before[shift - 1]);
        (1..shifts)
            .rev()
            .for_each(|shift| behind[shift] += behind[shift + 1]);
        let unreached: Vec<f32> = (0..shifts)
            .map(|shift| (before[shift] + behind[shift + 1]) as f32)
            .collect();
        let all_reached = unreached
            .iter()
            .take(self.fine.wanted)
            .all(|misfit| *misfit == 0.0);
        is_cut |= !all_reached;
        Signals {
            sums,
            unreached: if all_reached { Vec::new() } else { unreached },
            is_cut,
        }
    }

    /// Returns the sum over pixels that the segment does not cover at a velocity in km/s (see [`Signals`]).
    pub fn unreached(&self, signals: &Signals, velocity: f64) -> f32 {
        if signals.unreached.is_empty() {
            return 0.0;
        }
        let position = self.position(velocity);
        let shift = self.fine.whole(position);
        let [this, next] =
            [shift, shift + 1].map(|k| signals.unreached[k.min(self.fine.shifts - 1)]);
        this + (position - shift as f64) as f32 * (next - this)
    }

    /// Returns 1 in the fine bins that the segment covers at this whole shift, except those at its ends, and 0
    /// elsewhere: (length, lanes).
    pub fn inside(&self, shift: usize) -> &[f32] {
        let Stretches { lanes, length } = self.stretches;
        &self.inside[(self.fine.shifts - shift) * lanes..][..length * lanes]
    }

    /// Converts a velocity (km/s) to its fractional index among the whole shifts of the fine bins, clamped to their
    /// range.
    pub fn position(&self, velocity: f64) -> f64 {
        self.fine
            .position((velocity / LIGHT).atanh() / self.bin_step)
    }

    /// Returns a template's flux less 1 in fine bins, moved by the whole shift of this index, 0 beyond it: (length,
    /// lanes).
    pub fn whole(&self, template: usize, shift: usize) -> &[f32] {
        let Stretches { lanes, length } = self.stretches;
        &self.whole[template][(self.fine.shifts - shift) * lanes..][..length * lanes]
    }

    /// Returns the index in a spectrum's fine-bin sums to which its pixel belongs; `None` if the pixel is not read from
    /// this segment.
    #[inline]
    pub fn place(&self, sampling: &Sampling, pixel: usize) -> Option<usize> {
        let packed = sampling.index[pixel];
        if packed < 0 || (packed >> 24) as usize != self.segment {
            return None;
        }
        let nearest = (packed & 0xff_ffff) as usize + usize::from(sampling.fraction[pixel] >= 0.5);
        self.fine
            .place_of(nearest - self.start)
            .filter(|at| *at < self.fine.count + self.fine.shifts)
    }

    /// Adds up a spectrum's fine-bin sums in coarse bins, which are as wide or twice as wide.
    pub fn coarse_sums(&self, fine: &Signals) -> [Vec<f32>; 2] {
        debug_assert!(self.coarse.bin == self.fine.bin || self.coarse.bin == 2 * self.fine.bin);
        let mut signals = self.coarse.no_signals();
        for (signal, fine) in signals.iter_mut().zip(&fine.sums) {
            if self.coarse.bin == self.fine.bin {
                signal
                    .iter_mut()
                    .zip(fine)
                    .for_each(|(all, one)| *all = *one);
                continue;
            }
            let (pairs, odd) = fine.as_chunks();
            signal
                .iter_mut()
                .zip(pairs)
                .for_each(|(sum, [a, b])| *sum = a + b);
            if let (Some(sum), Some(one)) = (signal.get_mut(pairs.len()), odd.first()) {
                *sum = *one;
            }
        }
        signals
    }

    /// Adds this segment's χ² up to a constant, from principal components, to `total` (templates, coarse velocities).
    /// The components' correlations are brought to the velocities first: there are fewer of them than templates.
    pub fn add_scores(&self, [cross, power]: &[Vec<f32>; 2], total: &mut [f32]) {
        let Bins {
            shifts, positions, ..
        } = &self.coarse;
        let cross = self.lines.correlate(cross, &self.coarse);
        let power = self.squares.correlate(power, &self.coarse);
        let (width, rows) = (positions.len(), 2 * self.lines.count);
        let mut at_velocities = Vec::with_capacity(rows * width);
        let both = cross.chunks_exact(*shifts).map(|row| (row, -2.0));
        for (row, factor) in both.chain(power.chunks_exact(*shifts).map(|row| (row, 1.0))) {
            at_velocities.extend(self.coarse.between(row, 0, 0..width).map(|x| factor * x));
        }
        let packed = &Packed::new(&at_velocities, rows, width);
        MatrixProduct {
            input: &self.mix,
            packed,
            output: total,
            accumulate: true,
        }
        .run();
    }

    /// Adds this segment's χ² of a template up to a constant, from its own lines, to `scores`, one per fine velocity of
    /// a range.
    pub fn add_exact_scores(
        &self,
        template: usize,
        signals: &Signals,
        velocities: Range<usize>,
        scores: &mut [f32],
    ) {
        let (fine, positions) = (&self.fine, &self.fine.positions[velocities.clone()]);
        let (Some(first), Some(last)) = (positions.first(), positions.last()) else {
            return;
        };
        let (low, high) = (
            fine.whole(*first),
            (fine.whole(*last) + 1).min(fine.shifts - 1),
        );
        // the bins at both ends do not count unless the segment covers all pixels
        let left_out = usize::from(!signals.unreached.is_empty() && fine.count > 2);
        let inside = template * fine.count + left_out..(template + 1) * fine.count - left_out;
        let rows = self.exact.each_ref().map(|rows| &rows[inside.clone()]);
        let sums = signals.sums.each_ref().map(|sums| &sums[left_out..]);
        let [cross, power] = correlate_two(rows, sums, low..high + 1);
        let both = fine
            .between(&cross, low, velocities.clone())
            .zip(fine.between(&power, low, velocities));
        scores
            .iter_mut()
            .zip(both)
            .for_each(|(score, (cross, power))| *score += power - 2.0 * cross);
    }
}

/// Joins each template's coefficients of the components of lines and of squared lines: (templates, 2 × components).
fn mixed(lines: &Components, squares: &Components) -> Vec<f32> {
    let rows = lines
        .mix
        .chunks_exact(lines.count)
        .zip(squares.mix.chunks_exact(squares.count));
    rows.flat_map(|(l, s)| l.iter().chain(s).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::first_guess::lines::average;

    fn value(k: usize) -> f64 {
        ((k * 7919) % 101) as f64 / 101.0 - 0.5
    }

    /// χ² by plain sums at a position, a whole shift and a fraction.
    fn plain(rows: [&[f64]; 2], signals: &[Vec<f32>; 2], position: f64) -> f64 {
        let at = |shift: usize| -> f64 {
            let sum = |k: usize| -> f64 {
                rows[k]
                    .iter()
                    .zip(&signals[k][shift..])
                    .map(|(a, b)| a * f64::from(*b))
                    .sum()
            };
            sum(1) - 2.0 * sum(0)
        };
        let (whole, f) = (position as usize, position.fract());
        at(whole) * (1.0 - f) + at(whole + 1) * f
    }

    /// Both looks see the sums themselves, each in its own bins, if there are as many components as templates, so that
    /// the components hold them completely. The number of fine bins is odd.
    #[test]
    fn both_looks_see_the_sums() {
        let (templates, pixels) = (5, 146);
        let values: Vec<f64> = (0..templates * pixels).map(value).collect();
        let means = |bin, f: fn(f64) -> f64| -> Vec<f64> {
            values
                .chunks_exact(pixels)
                .flat_map(|row| average(row, bin, f))
                .collect()
        };
        let rows = |bin: usize| [means(bin, |l| l), means(bin, |l| l * l)];
        let (of_fine, of_coarse) = (rows(2), rows(4));
        let (mut coarse, mut fine) = (Bins::new(4, 37), Bins::new(2, 73));
        let (slow, fast) = (
            vec![-2.75, -1.5, 0.0, 2.75, 3.9],
            vec![-5.5, -3.0, 0.0, 5.5, 7.8],
        );
        coarse.place(slow, -3);
        fine.place(fast, -6);
        let (lines, squares) = (
            Components::new(&of_coarse[0], templates),
            Components::new(&of_coarse[1], templates),
        );
        let mix = mixed(&lines, &squares);
        let exact = of_fine
            .each_ref()
            .map(|rows| rows.iter().map(|x| *x as f32).collect());
        let unit = Unit {
            arm: 0,
            segment: 0,
            start: 0,
            bin_step: 1e-4,
            coarse,
            fine,
            lines,
            squares,
            mix,
            exact,
            stretches: Stretches::default(),
            whole: Default::default(),
            inside: Vec::new(),
        };
        let mut signals = Signals {
            sums: unit.fine.no_signals(),
            unreached: Vec::new(),
            is_cut: false,
        };
        signals
            .sums
            .iter_mut()
            .flatten()
            .enumerate()
            .for_each(|(k, x)| *x = value(k + 11) as f32);
        let (wide, sums) = (unit.coarse_sums(&signals), &signals.sums);
        assert!(sums[0].len() % 2 == 1 && wide[0].len() > sums[0].len() / 2);
        assert!(
            wide[0]
                .iter()
                .zip(sums[0].chunks(2))
                .all(|(sum, some)| *sum == some.iter().sum::<f32>())
        );
        let mut total = vec![0f32; templates * 5];
        unit.add_scores(&wide, &mut total);
        for template in 0..templates {
            let mut few = [0f32; 3];
            unit.add_exact_scores(template, &signals, 1..4, &mut few);
            let row = |rows: &[Vec<f64>; 2], k: usize, count: usize| {
                rows[k][template * count..][..count].to_vec()
            };
            let of = |rows, count| [row(rows, 0, count), row(rows, 1, count)];
            let [a, b] = of(&of_fine, 73);
            for (v, found) in (1..4).zip(few) {
                let expected = plain([&a, &b], sums, unit.fine.positions[v]);
                assert!(
                    (f64::from(found) - expected).abs() < 1e-4,
                    "{template}, {v}: {found} {expected}"
                );
            }
            let [a, b] = of(&of_coarse, 37);
            for v in 0..5 {
                let expected = plain([&a, &b], &wide, unit.coarse.positions[v]);
                let found = f64::from(total[template * 5 + v]);
                assert!(
                    (found - expected).abs() < 1e-3,
                    "{template}, {v}: {found} {expected}"
                );
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
            assert_eq!(
                coarse.place_of(pixel).unwrap(),
                fine.place_of(pixel).unwrap() / 2
            );
        }
    }
}
