//! One segment of an arm's templates: its lines in bins of two widths, and a spectrum's sums and χ² there.

use std::ops::{Range, RangeInclusive};

use rayon::prelude::*;

use super::bins::{Bins, Signals};
use super::components::Components;
use super::lines::{Lines, choose_bin_width, subtract_mean};
use super::stretches::Stretches;
use crate::error::Result;
use crate::io::memory::check;
use crate::math::product::{MatrixProduct, Packed};
use crate::math::scan::correlate_two;
use crate::model::{ModelArm, Sampling};
use crate::recording::LIGHT;

/// Smallest correlation of the lines with themselves shifted by a fine bin.
const MIN_FINE_CORRELATION: f64 = 0.85;
/// Smallest correlation of the lines with themselves shifted by a coarse bin, in which templates are chosen.
const MIN_COARSE_CORRELATION: f64 = 0.6;
/// Reciprocal of the largest share of a segment's bins that is left out at either end because it is not covered at all
/// velocities.
const BINS_PER_LEFT_OUT: usize = 4;
/// Number of templates per one that is used to measure the width of the lines.
const TEMPLATES_PER_MEASURED: usize = 8;

/// One log-uniform segment of one arm's template.
#[derive(Debug)]
pub struct TemplateSegment {
    pub arm: usize,
    pub segment: usize,
    /// First pixel of the segment.
    start: usize,
    /// ln λ of a fine bin.
    bin_step: f64,
    /// Bins for the choice of templates: as wide as the fine ones, or twice as wide.
    pub coarse: Bins,
    /// Bins for exact scores.
    pub fine: Bins,
    /// (components, coarse bins) each.
    pub line_components: Components,
    pub square_components: Components,
    /// (templates, 2 × components) Each template's coefficients of the lines' components, then of those of the squares.
    coefficients: Vec<f32>,
    /// (templates, fine bins) each: lines and squares themselves.
    exact: [Vec<f32>; 2],
    /// Layout of the fine bins of signals.
    pub stretches: Stretches,
    /// (templates) Each template less 1 in fine bins; once velocities are placed, in stretches, with as many places
    /// before each as there are shifts. Its mean is 0 where a continuum has its own level.
    template_rows: Vec<Vec<f32>>,
    /// 1 in all fine bins of a template except the first and the last, 0 elsewhere; laid out as `template_rows`.
    coverage: Vec<f32>,
}

impl TemplateSegment {
    /// Bins the lines of all templates on a segment of an arm, ready for correlation over a range of velocities, km/s.
    /// `flux` is (templates, pixels of the arm).
    pub fn new(
        arm: &ModelArm,
        arm_index: usize,
        segment_index: usize,
        flux: &[f32],
        templates: usize,
        velocity_range: RangeInclusive<f64>,
    ) -> Result<TemplateSegment> {
        let segment = &arm.grid.segments[segment_index];
        let pixels = segment.end - segment.start;
        let lines = Lines::new(arm, flux, segment.start..segment.end);
        // 1. Choose bins that suit the width of the lines, as a few templates show it.
        let measured: Vec<Vec<f64>> = (0..templates)
            .into_par_iter()
            .step_by(TEMPLATES_PER_MEASURED)
            .map(|template| subtract_mean(lines.divide_by_continuum(template)))
            .collect();
        let shifts = (velocity_range.end() - velocity_range.start()) / LIGHT / segment.step;
        let fine_width = choose_bin_width(&measured, pixels, shifts, MIN_FINE_CORRELATION);
        let coarse_width =
            choose_bin_width(&measured, pixels, shifts, MIN_COARSE_CORRELATION).min(2 * fine_width);
        let ratio = coarse_width / fine_width;
        let fine_count = pixels.div_ceil(fine_width);
        let fine = Bins::new(fine_width, fine_count);
        let coarse = Bins::new(coarse_width, fine_count.div_ceil(ratio));
        // 2. Check that the binned lines fit into memory.
        let bytes = 36 * templates as u64 * fine_count as u64
            + 2 * Components::estimate_bytes(templates, fine_count);
        check(bytes, || {
            format!("a first guess from {templates} templates of {fine_count} bins")
        })?;
        // 3. Bin the templates and their lines, and compress the lines in coarse bins to components.
        let ([coarse_lines, coarse_squares], exact) = lines.bin_lines(templates, fine_width, ratio);
        let template_rows = (0..templates)
            .into_par_iter()
            .map(|template| lines.bin_template(template, fine_width))
            .collect();
        let (line_components, square_components) = rayon::join(
            || Components::new(&coarse_lines, templates),
            || Components::new(&coarse_squares, templates),
        );
        let coefficients = join_coefficients(&line_components, &square_components);
        Ok(TemplateSegment {
            arm: arm_index,
            segment: segment_index,
            start: segment.start,
            bin_step: segment.step * fine_width as f64,
            coarse,
            fine,
            line_components,
            square_components,
            coefficients,
            exact,
            stretches: Stretches::default(),
            template_rows,
            coverage: Vec::new(),
        })
    }

    /// Converts the velocities (km/s) of the coarse and the fine search to shifts in bins, and lays out templates for
    /// them.
    pub fn place_velocities(
        &mut self,
        arm: &ModelArm,
        coarse_velocities: &[f64],
        fine_velocities: &[f64],
    ) {
        // 1. Coarse bins begin where fine ones do, so that fine sums can be added up in coarse bins.
        let pixel_step = arm.grid.segments[self.segment].step;
        let coarse_shifts =
            doppler_shifts(coarse_velocities, pixel_step * self.coarse.width as f64);
        let fine_shifts = doppler_shifts(fine_velocities, pixel_step * self.fine.width as f64);
        let ratio = (self.coarse.width / self.fine.width) as i64;
        let first_shift = lowest_whole_shift(&coarse_shifts)
            .min(lowest_whole_shift(&fine_shifts).div_euclid(ratio));
        self.coarse.place_shifts(coarse_shifts, first_shift);
        self.fine.place_shifts(fine_shifts, ratio * first_shift);
        // 2. Lay out the templates, with room for the shifts.
        let shifts = self.fine.shifts;
        self.stretches = Stretches::new(self.fine.count + shifts);
        self.template_rows
            .par_iter_mut()
            .for_each(|row| *row = self.stretches.lay_out(row, shifts, 0));
        // 3. The first and the last bin count as not covered.
        let mut coverage = vec![1.0; self.fine.count];
        if let Some(first) = coverage.first_mut() {
            *first = 0.0;
        }
        if let Some(last) = coverage.last_mut() {
            *last = 0.0;
        }
        self.coverage = self.stretches.lay_out(&coverage, shifts, 0);
    }

    /// Returns each template's lines, flux / continuum − 1, in fine bins, not approximated by components: (templates,
    /// fine bins).
    pub fn exact_lines(&self) -> &[f32] {
        &self.exact[0]
    }

    /// Returns the indices in [`Signals`] of the bins whose pixels are used. The segment covers them at all velocities
    /// of a range (km/s), so that velocities are compared by the same pixels. At most a quarter of the segment is left
    /// out at either end: a wider range also uses pixels that the segment covers at some velocities only.
    fn used_bins(&self, [lowest_velocity, highest_velocity]: [f64; 2]) -> Range<usize> {
        let lowest = self.shift_position(lowest_velocity).floor() as usize;
        let highest = self.shift_position(highest_velocity).ceil() as usize;
        let middle = lowest.midpoint(highest);
        let limit = self.fine.count / BINS_PER_LEFT_OUT;
        let left_out_before = (highest + 1 - middle).min(limit);
        let left_out_after = (middle + 2 - lowest).min(limit);
        middle + left_out_before..(middle + self.fine.count).saturating_sub(left_out_after)
    }

    /// Returns the sums over a spectrum's pixels in each fine bin, with D = `data` and s = `smooth`, its weight ·
    /// continuum. `velocities` is the range in which templates are compared, in km/s.
    pub fn sum_signals(
        &self,
        data: &[f32],
        smooth: &[f32],
        sampling: &Sampling,
        velocity_range: [f64; 2],
    ) -> Signals {
        let count = self.fine.count;
        let shifts = self.fine.shifts;
        let used = self.used_bins(velocity_range);
        let mut sums = self.fine.zero_signals();
        let [cross, power] = &mut sums;
        let mut is_cut = false;
        // 1. Sum the pixels in bins. A pixel in bin k lies before the covered bins from the shift k on, and after them
        //    up to the shift k + 1 − count.
        let mut misfit_before = vec![0.0; shifts + 1];
        let mut misfit_after = vec![0.0; shifts + 1];
        for (pixel, (d, s)) in data.iter().zip(smooth).enumerate() {
            let bin_of_pixel = self.find_bin(sampling, pixel);
            let Some(bin) = bin_of_pixel.filter(|bin| used.contains(bin)) else {
                is_cut |= bin_of_pixel.is_some() && *s != 0.0;
                continue;
            };
            cross[bin] += s * (d - s);
            power[bin] += s * s;
            if (bin < shifts || bin + 1 >= count) && *s != 0.0 {
                let misfit = f64::from((d - s) * (d - s)) - 1.0;
                misfit_before[bin.min(shifts)] += misfit;
                misfit_after[(bin + 2).saturating_sub(count).min(shifts)] += misfit;
            }
        }
        // 2. Cumulative sums give the misfit of the pixels that are not covered at each shift.
        misfit_after[0] = 0.0;
        for shift in 1..shifts {
            misfit_before[shift] += misfit_before[shift - 1];
        }
        for shift in (1..shifts).rev() {
            misfit_after[shift] += misfit_after[shift + 1];
        }
        let uncovered_misfit: Vec<f32> = (0..shifts)
            .map(|shift| (misfit_before[shift] + misfit_after[shift + 1]) as f32)
            .collect();
        let covers_all = uncovered_misfit
            .iter()
            .take(self.fine.wanted_shifts)
            .all(|misfit| *misfit == 0.0);
        is_cut |= !covers_all;
        Signals {
            sums,
            uncovered_misfit: if covers_all {
                Vec::new()
            } else {
                uncovered_misfit
            },
            is_cut,
        }
    }

    /// Returns the misfit of the pixels that the segment does not cover at a velocity in km/s (see [`Signals`]).
    pub fn uncovered_misfit(&self, signals: &Signals, velocity: f64) -> f32 {
        let misfits = &signals.uncovered_misfit;
        if misfits.is_empty() {
            return 0.0;
        }
        let position = self.shift_position(velocity);
        let shift = self.fine.whole_shift(position);
        let this = misfits[shift];
        let next = misfits[(shift + 1).min(self.fine.shifts - 1)];
        this + (position - shift as f64) as f32 * (next - this)
    }

    /// Returns 1 in the fine bins that the segment covers at this whole shift, except those at its ends, and 0
    /// elsewhere: (length, lanes).
    pub fn coverage_at_shift(&self, shift: usize) -> &[f32] {
        let Stretches { lanes, length } = self.stretches;
        &self.coverage[(self.fine.shifts - shift) * lanes..][..length * lanes]
    }

    /// Converts a velocity (km/s) to its fractional index among the whole shifts of the fine bins, clamped to their
    /// range.
    pub fn shift_position(&self, velocity: f64) -> f64 {
        self.fine
            .clamp_position((velocity / LIGHT).atanh() / self.bin_step)
    }

    /// Returns a template's flux less 1 in fine bins, moved by the whole shift of this index, 0 beyond the template:
    /// (length, lanes).
    pub fn template_at_shift(&self, template: usize, shift: usize) -> &[f32] {
        let Stretches { lanes, length } = self.stretches;
        &self.template_rows[template][(self.fine.shifts - shift) * lanes..][..length * lanes]
    }

    /// Returns the index in a spectrum's fine-bin sums to which its pixel belongs; `None` if the pixel is not read from
    /// this segment.
    #[inline]
    pub fn find_bin(&self, sampling: &Sampling, pixel: usize) -> Option<usize> {
        let packed = sampling.index[pixel];
        if packed < 0 || (packed >> 24) as usize != self.segment {
            return None;
        }
        let nearest = (packed & 0xff_ffff) as usize + usize::from(sampling.fraction[pixel] >= 0.5);
        self.fine
            .signal_index(nearest - self.start)
            .filter(|bin| *bin < self.fine.count + self.fine.shifts)
    }

    /// Adds up a spectrum's fine-bin sums in coarse bins, which are as wide or twice as wide.
    pub fn rebin_to_coarse(&self, fine_signals: &Signals) -> [Vec<f32>; 2] {
        let is_same_width = self.coarse.width == self.fine.width;
        debug_assert!(is_same_width || self.coarse.width == 2 * self.fine.width);
        let mut coarse_sums = self.coarse.zero_signals();
        for (coarse, fine) in coarse_sums.iter_mut().zip(&fine_signals.sums) {
            if is_same_width {
                for (sum, value) in coarse.iter_mut().zip(fine) {
                    *sum = *value;
                }
                continue;
            }
            let (pairs, odd) = fine.as_chunks();
            for (sum, [a, b]) in coarse.iter_mut().zip(pairs) {
                *sum = a + b;
            }
            if let (Some(sum), Some(value)) = (coarse.get_mut(pairs.len()), odd.first()) {
                *sum = *value;
            }
        }
        coarse_sums
    }

    /// Adds this segment's χ² up to a constant, from principal components, to `scores` (templates, coarse
    /// velocities). The components' correlations are interpolated at the velocities first, because there are fewer of
    /// them than templates.
    pub fn add_component_scores(&self, [cross, power]: &[Vec<f32>; 2], scores: &mut [f32]) {
        let bins = &self.coarse;
        let velocities = bins.positions.len();
        let cross_rows = self.line_components.correlate(cross, bins);
        let power_rows = self.square_components.correlate(power, bins);
        // χ² is a template's squares times the power, less twice its lines times the cross term.
        let components = 2 * self.line_components.count;
        let mut at_velocities = Vec::with_capacity(components * velocities);
        for (rows, factor) in [(&cross_rows, -2.0), (&power_rows, 1.0)] {
            for row in rows.chunks_exact(bins.shifts) {
                let interpolated = bins.interpolate(row, 0, 0..velocities);
                at_velocities.extend(interpolated.map(|x| factor * x));
            }
        }
        MatrixProduct {
            input: &self.coefficients,
            packed: &Packed::new(&at_velocities, components, velocities),
            output: scores,
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
        let fine = &self.fine;
        let positions = &fine.positions[velocities.clone()];
        let (Some(first), Some(last)) = (positions.first(), positions.last()) else {
            return;
        };
        let lowest_shift = fine.whole_shift(*first);
        let highest_shift = (fine.whole_shift(*last) + 1).min(fine.shifts - 1);
        // The bins at both ends do not count unless the segment covers all pixels.
        let left_out = usize::from(!signals.uncovered_misfit.is_empty() && fine.count > 2);
        let bins = template * fine.count + left_out..(template + 1) * fine.count - left_out;
        let rows = self.exact.each_ref().map(|rows| &rows[bins.clone()]);
        let sums = signals.sums.each_ref().map(|sums| &sums[left_out..]);
        let [cross, power] = correlate_two(rows, sums, lowest_shift..highest_shift + 1);
        let cross = fine.interpolate(&cross, lowest_shift, velocities.clone());
        let power = fine.interpolate(&power, lowest_shift, velocities);
        for (score, (cross, power)) in scores.iter_mut().zip(cross.zip(power)) {
            *score += power - 2.0 * cross;
        }
    }
}

/// Joins each template's coefficients of the components of lines and of squared lines: (templates, 2 × components).
fn join_coefficients(lines: &Components, squares: &Components) -> Vec<f32> {
    let line_rows = lines.coefficients.chunks_exact(lines.count);
    let square_rows = squares.coefficients.chunks_exact(squares.count);
    line_rows
        .zip(square_rows)
        .flat_map(|(line, square)| line.iter().chain(square).copied())
        .collect()
}

/// Converts velocities (km/s) to Doppler shifts in bins of `bin_step` in ln λ.
fn doppler_shifts(velocities: &[f64], bin_step: f64) -> Vec<f64> {
    velocities
        .iter()
        .map(|velocity| (velocity / LIGHT).atanh() / bin_step)
        .collect()
}

/// Returns the whole shift at or below the smallest one.
fn lowest_whole_shift(shifts: &[f64]) -> i64 {
    shifts.iter().copied().fold(f64::INFINITY, f64::min).floor() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::first_guess::lines::average;

    fn value(k: usize) -> f64 {
        ((k * 7919) % 101) as f64 / 101.0 - 0.5
    }

    /// χ² by plain sums at a position, a whole shift and a fraction.
    fn chi2_by_plain_sums(rows: [&[f64]; 2], signals: &[Vec<f32>; 2], position: f64) -> f64 {
        let correlation = |k: usize, shift: usize| -> f64 {
            rows[k]
                .iter()
                .zip(&signals[k][shift..])
                .map(|(row, signal)| row * f64::from(*signal))
                .sum()
        };
        let chi2 = |shift: usize| correlation(1, shift) - 2.0 * correlation(0, shift);
        let whole = position as usize;
        let fraction = position.fract();
        chi2(whole) * (1.0 - fraction) + chi2(whole + 1) * fraction
    }

    /// Both scores meet plain sums, each in its own bins, if there are as many components as templates, so that the
    /// components hold them completely. The number of fine bins is odd.
    #[test]
    fn component_and_exact_scores_meet_plain_sums() {
        let templates = 5;
        let pixels = 146;
        let values: Vec<f64> = (0..templates * pixels).map(value).collect();
        let means = |width, f: fn(f64) -> f64| -> Vec<f64> {
            values
                .chunks_exact(pixels)
                .flat_map(|row| average(row, width, f))
                .collect()
        };
        let lines_and_squares = |width: usize| [means(width, |l| l), means(width, |l| l * l)];
        let fine_rows = lines_and_squares(2);
        let coarse_rows = lines_and_squares(4);
        let mut coarse = Bins::new(4, 37);
        let mut fine = Bins::new(2, 73);
        coarse.place_shifts(vec![-2.75, -1.5, 0.0, 2.75, 3.9], -3);
        fine.place_shifts(vec![-5.5, -3.0, 0.0, 5.5, 7.8], -6);
        let line_components = Components::new(&coarse_rows[0], templates);
        let square_components = Components::new(&coarse_rows[1], templates);
        let coefficients = join_coefficients(&line_components, &square_components);
        let exact = fine_rows
            .each_ref()
            .map(|rows| rows.iter().map(|x| *x as f32).collect());
        let segment = TemplateSegment {
            arm: 0,
            segment: 0,
            start: 0,
            bin_step: 1e-4,
            coarse,
            fine,
            line_components,
            square_components,
            coefficients,
            exact,
            stretches: Stretches::default(),
            template_rows: Default::default(),
            coverage: Vec::new(),
        };
        let mut signals = Signals {
            sums: segment.fine.zero_signals(),
            uncovered_misfit: Vec::new(),
            is_cut: false,
        };
        signals
            .sums
            .iter_mut()
            .flatten()
            .enumerate()
            .for_each(|(k, x)| *x = value(k + 11) as f32);
        let fine_sums = &signals.sums;
        let coarse_sums = segment.rebin_to_coarse(&signals);
        assert!(fine_sums[0].len() % 2 == 1 && coarse_sums[0].len() > fine_sums[0].len() / 2);
        assert!(
            coarse_sums[0]
                .iter()
                .zip(fine_sums[0].chunks(2))
                .all(|(sum, pair)| *sum == pair.iter().sum::<f32>())
        );
        let mut scores = vec![0f32; templates * 5];
        segment.add_component_scores(&coarse_sums, &mut scores);
        for template in 0..templates {
            let mut exact_scores = [0f32; 3];
            segment.add_exact_scores(template, &signals, 1..4, &mut exact_scores);
            let fine_row = fine_rows
                .each_ref()
                .map(|rows| &rows[template * 73..][..73]);
            for (v, score) in (1..4).zip(exact_scores) {
                let expected = chi2_by_plain_sums(fine_row, fine_sums, segment.fine.positions[v]);
                assert!(
                    (f64::from(score) - expected).abs() < 1e-4,
                    "{template}, {v}: {score} {expected}"
                );
            }
            let coarse_row = coarse_rows
                .each_ref()
                .map(|rows| &rows[template * 37..][..37]);
            for v in 0..5 {
                let expected =
                    chi2_by_plain_sums(coarse_row, &coarse_sums, segment.coarse.positions[v]);
                let score = f64::from(scores[template * 5 + v]);
                assert!(
                    (score - expected).abs() < 1e-3,
                    "{template}, {v}: {score} {expected}"
                );
            }
        }
    }

    /// A pixel's fine bin lies in its coarse bin, at any first velocity.
    #[test]
    fn bins_of_both_widths_begin_together() {
        let mut coarse = Bins::new(4, 16);
        let mut fine = Bins::new(2, 32);
        coarse.place_shifts(vec![-2.5], -4);
        fine.place_shifts(vec![-7.3, 1.0], -8);
        for pixel in 0..64 {
            assert_eq!(
                coarse.signal_index(pixel).unwrap(),
                fine.signal_index(pixel).unwrap() / 2
            );
        }
    }
}
