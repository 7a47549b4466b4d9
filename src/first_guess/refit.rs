//! The continuum fitted anew with a template: its χ² as a fit sees it, not with the continuum that was fitted without
//! lines.
//!
//! With that continuum, s = weight · Σ c p, a template T leaves the residual D − s T. Corrections of the coefficients c
//! of the terms p reduce its χ² by bᵀA⁻¹b, with b = Σ weight · p T (D − s T) and A = Σ weight² · p pᵀ T². The terms are
//! smooth, so each counts as constant in wide bins, in which everything else is summed first.
//!
//! The continuum that fits the spectrum without lines absorbs part of a hot star's wide lines, and so hides its
//! gravity. A CPU whose vectors have another number of lanes may round these scores differently (`stretches.rs`).

use std::cell::RefCell;

use pulp::{Simd, WithSimd};

use super::bins::Signals;
use super::look::Candidate;
use super::stretches::Stretches;
use super::unit::TemplateSegment;
use crate::math::product::{MatrixProduct, Packed};
use crate::math::triangle::packed_length;
use crate::model::{PreparedArm, Sampling};

/// Approximate smallest number of wide bins per segment, if it has as many fine ones.
const MIN_WIDE_BINS: usize = 128;
/// Approximate smallest number of wide bins per continuum term.
const WIDE_BINS_PER_TERM: usize = 12;
/// Approximate number of pixels per wide bin whose fine bins are looked up.
const SAMPLED_PIXELS_PER_BIN: usize = 2;
/// Candidates whose continua are corrected at once.
const CORRECTED_TOGETHER: usize = 8;
/// Candidates whose sums in wide bins fit into a core's cache.
const CANDIDATES_PER_BATCH: usize = 256;
/// A term is not corrected if a smaller share of it is independent of the terms before.
const MIN_INDEPENDENT_SHARE: f64 = 1e-9;

/// A spectrum's arm, and the bins of all segments.
#[derive(Clone, Copy)]
pub struct SpectrumArm<'a> {
    /// Index among the arms.
    pub index: usize,
    pub prepared: &'a PreparedArm,
    /// weight · continuum
    pub smooth: &'a [f32],
    pub sampling: &'a Sampling,
    pub segments: &'a [TemplateSegment],
    pub signals: &'a [Signals],
}

/// The continuum terms of a spectrum's arm in wide bins, with which the continuum is refitted to any template.
pub struct ContinuumRefit<'a> {
    segments: Vec<SegmentTerms<'a>>,
    terms: usize,
    /// ln det A of a template without lines, if the fit marginalises over the continuum.
    ln_det: Option<f64>,
}

/// Sums of a batch of candidates in the wide bins of a segment.
struct WideBinSums {
    /// (candidates, bins)
    slopes: Vec<f32>,
    squares: Vec<f32>,
    /// Slopes or squares, packed for the product with the terms.
    packed: Packed<f32>,
}

thread_local! {
    /// Buffers that a thread reuses for every spectrum, because clearing new memory would take as long as filling it.
    static SUMS: RefCell<WideBinSums> =
        RefCell::new(WideBinSums { slopes: Vec::new(), squares: Vec::new(), packed: Packed::zeros(0, 0) });
}

/// A segment with the sums and continuum terms that a refit reads there.
struct SegmentTerms<'a> {
    segment: &'a TemplateSegment,
    wide_bins: WideBins,
    signals: &'a Signals,
    /// The segment covers all pixels at all velocities.
    covers_all: bool,
    /// Sums of the signals in stretches, with one bin more per stretch.
    sums: [Vec<f32>; 2],
    /// (terms, bins) The terms divided by the continuum itself, and (pairs, bins) their products.
    terms: Vec<f32>,
    products: Vec<f32>,
}

impl<'a> ContinuumRefit<'a> {
    /// Prepares the refit of an arm's continuum. If the fit marginalises over the continuum, scores contain ln det A,
    /// less that of a template without lines.
    pub fn new(arm: SpectrumArm<'a>, marginalise: bool) -> ContinuumRefit<'a> {
        let terms = arm.prepared.rank;
        let mut segments = Vec::new();
        for (segment, signals) in arm.segments.iter().zip(arm.signals) {
            if segment.arm != arm.index {
                continue;
            }
            let wide_bins = WideBins::new(segment.stretches, terms);
            let [terms, products] = bin_continuum_terms(segment, arm, wide_bins);
            segments.push(SegmentTerms {
                segment,
                wide_bins,
                signals,
                covers_all: signals.uncovered_misfit.is_empty(),
                sums: signals
                    .sums
                    .each_ref()
                    .map(|row| segment.stretches.lay_out(row, 0, 1)),
                terms,
                products,
            });
        }
        // The basis times the transform is orthonormal under the weights.
        let stride = arm.prepared.continuum.len() + 1;
        let diagonal = arm.prepared.transform.iter().step_by(stride).take(terms);
        let ln_det = marginalise.then(|| -2.0 * diagonal.map(|x| f64::from(*x).ln()).sum::<f64>());
        ContinuumRefit {
            segments,
            terms,
            ln_det,
        }
    }

    /// Adds the arm's χ² with the continuum refitted to each candidate's template to the candidates' scores, and, if
    /// marginalised, ln det A less that of a template without lines.
    pub fn add_scores(&self, candidates: &mut [Candidate]) {
        SUMS.with_borrow_mut(|sums| {
            candidates
                .chunks_mut(CANDIDATES_PER_BATCH)
                .for_each(|batch| self.add_scores_of_batch(batch, sums));
        });
    }

    /// Adds the scores ([`add_scores`](ContinuumRefit::add_scores)) of candidates whose sums fit into the cache.
    fn add_scores_of_batch(&self, candidates: &mut [Candidate], sums: &mut WideBinSums) {
        let terms = self.terms;
        let columns = candidates.len().next_multiple_of(CORRECTED_TOGETHER);
        let mut slopes = vec![0f32; terms * columns];
        let mut normal = vec![0f32; packed_length(terms) * columns];
        for segment_terms in &self.segments {
            let bins = segment_terms.wide_bins.count;
            // 1. Sum in wide bins. The buffers keep old values, but all that is read is written before.
            sums.slopes.resize(columns * bins, 0.0);
            sums.squares.resize(columns * bins, 0.0);
            pulp::Arch::new().dispatch(AddWideBinSums {
                segment_terms,
                candidates: &mut *candidates,
                sums: [&mut sums.slopes, &mut sums.squares],
            });
            // 2. Multiply the sums by the terms, and by the products of pairs of terms: b and A.
            sums.packed.set_transposed(&sums.slopes, columns, bins);
            MatrixProduct {
                input: &segment_terms.terms,
                packed: &sums.packed,
                output: &mut slopes,
                accumulate: true,
            }
            .run();
            sums.packed.set_transposed(&sums.squares, columns, bins);
            MatrixProduct {
                input: &segment_terms.products,
                packed: &sums.packed,
                output: &mut normal,
                accumulate: true,
            }
            .run();
        }
        // 3. Correct the continua.
        pulp::Arch::new().dispatch(CorrectContinua {
            slopes: &slopes,
            normal: &normal,
            terms,
            columns,
            candidates,
            ln_det: self.ln_det,
        });
    }
}

/// Wide bins, each of which consists of neighbouring fine bins of a stretch.
#[derive(Clone, Copy)]
struct WideBins {
    stretches: Stretches,
    /// Fine bins per wide bin.
    width: usize,
    /// Number of wide bins.
    count: usize,
}

impl WideBins {
    /// Chooses the number of fine bins per wide bin, so that a segment has about 128 wide bins, or 12 per continuum
    /// term if that is more.
    fn new(stretches: Stretches, terms: usize) -> WideBins {
        let Stretches { lanes, length } = stretches;
        let wide_bins = MIN_WIDE_BINS.max(WIDE_BINS_PER_TERM * terms);
        let width = (length * lanes / wide_bins).max(1);
        WideBins {
            stretches,
            width,
            count: length.div_ceil(width) * lanes,
        }
    }

    /// Pairs the index of each wide bin with the spectrum's pixel in its middle, interpolated, or the nearest one at
    /// the spectrum's ends. Only a few pixels are looked up, and those between are interpolated.
    fn find_middle_pixels(
        &self,
        segment: &TemplateSegment,
        sampling: &Sampling,
    ) -> Vec<(usize, usize)> {
        let Stretches { lanes, length } = self.stretches;
        // 1. Look up the fine bins of a few pixels, the last one among them.
        let step = (sampling.pixels / (SAMPLED_PIXELS_PER_BIN * self.count)).max(1);
        let sampled: Vec<(usize, usize)> = (0..sampling.pixels)
            .step_by(step)
            .chain(sampling.pixels.checked_sub(1))
            .filter_map(|pixel| Some((segment.find_bin(sampling, pixel)?, pixel)))
            .collect();
        let Some(&first) = sampled.first() else {
            return Vec::new();
        };
        // 2. Interpolate between them, in the order of fine bins, which is also that of pixels.
        let mut next = 0;
        let mut pairs = Vec::with_capacity(self.count);
        for lane in 0..lanes {
            for (index, begin) in (0..length).step_by(self.width).enumerate() {
                let end = (begin + self.width).min(length);
                let middle = lane * length + usize::midpoint(begin, end);
                while sampled.get(next).is_some_and(|(bin, _)| *bin < middle) {
                    next += 1;
                }
                let (low_bin, low_pixel) = next.checked_sub(1).map_or(first, |k| sampled[k]);
                let offset = match sampled.get(next) {
                    Some((high_bin, high_pixel)) => {
                        (high_pixel - low_pixel) * middle.saturating_sub(low_bin)
                            / (high_bin - low_bin).max(1)
                    }
                    None => 0,
                };
                pairs.push((index * lanes + lane, low_pixel + offset));
            }
        }
        pairs
    }
}

/// Computes the sums of A and b in wide bins, before the continuum terms multiply them, and adds χ² with the continuum
/// as it is, up to a constant.
struct AddWideBinSums<'a> {
    segment_terms: &'a SegmentTerms<'a>,
    candidates: &'a mut [Candidate],
    /// (candidates, bins) Σ s T (D − s T) and Σ s² T², in which s, with the continuum, takes the place of the weight.
    sums: [&'a mut [f32]; 2],
}

impl WithSimd for AddWideBinSums<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let AddWideBinSums {
            segment_terms:
                SegmentTerms {
                    segment,
                    wide_bins,
                    signals,
                    covers_all,
                    sums,
                    ..
                },
            candidates,
            sums: [slopes, squares],
        } = self;
        let [cross, power] = sums.each_ref().map(|row| S::as_simd_f32s(row).0);
        let rows = slopes
            .chunks_exact_mut(wide_bins.count)
            .zip(squares.chunks_exact_mut(wide_bins.count));
        for (candidate, (slopes, squares)) in candidates.iter_mut().zip(rows) {
            // 1. Find the template at the candidate's velocity: a whole shift, and a fraction of the next one.
            let position = segment.shift_position(candidate.velocity);
            let shift = segment.fine.whole_shift(position);
            let lines = S::as_simd_f32s(segment.template_at_shift(candidate.template, shift)).0;
            let fraction = simd.splat_f32s((position - shift as f64) as f32);
            // 2. Sum the bins that the segment covers.
            let outputs = [slopes, squares].map(|row| S::as_mut_simd_f32s(row).0);
            if *covers_all {
                let inputs = [lines, cross, power, lines];
                candidate.score +=
                    sum_wide_bins::<S, true>(simd, inputs, fraction, wide_bins.width, outputs);
            } else {
                let coverage = S::as_simd_f32s(segment.coverage_at_shift(shift)).0;
                let inputs = [lines, cross, power, coverage];
                candidate.score +=
                    sum_wide_bins::<S, false>(simd, inputs, fraction, wide_bins.width, outputs);
                candidate.score -= segment.uncovered_misfit(signals, candidate.velocity);
            }
        }
    }
}

/// Sums slopes and squares in wide bins of `width` fine ones, from a template's lines and the signals, which are
/// interpolated by `fraction` towards the next bin. Unless COVERS_ALL, bins with a `coverage` of 0 are left out.
/// Returns χ² up to a constant.
#[inline(always)]
fn sum_wide_bins<S: Simd, const COVERS_ALL: bool>(
    simd: S,
    [lines, cross, power, coverage]: [&[S::f32s]; 4],
    fraction: S::f32s,
    width: usize,
    [slopes, squares]: [&mut [S::f32s]; 2],
) -> f32 {
    let zero = simd.splat_f32s(0.0);
    let two = simd.splat_f32s(2.0);
    let interpolate = |this, next| simd.mul_add_f32s(fraction, simd.sub_f32s(next, this), this);
    let signals = cross
        .chunks(width)
        .zip(cross[1..].chunks(width))
        .zip(power.chunks(width).zip(power[1..].chunks(width)));
    let mut chi2 = zero;
    for (((lines, coverage), ((x, next_x), (p, next_p))), (slope, square)) in lines
        .chunks(width)
        .zip(coverage.chunks(width))
        .zip(signals)
        .zip(slopes.iter_mut().zip(squares))
    {
        // Sums of x, p, x l, p l and p l² with x = s (D − s), p = s² and l = T − 1.
        let [
            mut sum_x,
            mut sum_p,
            mut sum_x_line,
            mut sum_p_line,
            mut sum_square,
        ] = [zero; 5];
        let signals = x.iter().zip(next_x).zip(p.iter().zip(next_p));
        for ((line, coverage), ((x, next_x), (p, next_p))) in
            lines.iter().zip(coverage).zip(signals)
        {
            let mut x = interpolate(*x, *next_x);
            let mut p = interpolate(*p, *next_p);
            if !COVERS_ALL {
                x = simd.mul_f32s(x, *coverage);
                p = simd.mul_f32s(p, *coverage);
            }
            let p_line = simd.mul_f32s(p, *line);
            sum_x = simd.add_f32s(sum_x, x);
            sum_p = simd.add_f32s(sum_p, p);
            sum_x_line = simd.mul_add_f32s(x, *line, sum_x_line);
            sum_p_line = simd.add_f32s(sum_p_line, p_line);
            sum_square = simd.mul_add_f32s(p_line, *line, sum_square);
        }
        // Sums of s T (D − s T), of s² T², and of the change of χ².
        *slope = simd.sub_f32s(
            simd.add_f32s(sum_x, sum_x_line),
            simd.add_f32s(sum_p_line, sum_square),
        );
        *square = simd.add_f32s(sum_p, simd.mul_add_f32s(two, sum_p_line, sum_square));
        chi2 = simd.add_f32s(
            chi2,
            simd.sub_f32s(sum_square, simd.mul_f32s(two, sum_x_line)),
        );
    }
    simd.reduce_sum_f32s(chi2)
}

/// Adds the reduction of χ² by corrections of the continuum, −bᵀA⁻¹b, and ln det A, from Cholesky factors of
/// [`CORRECTED_TOGETHER`] candidates at once. The basis is about orthonormal, so that det A neither overflows nor
/// underflows.
struct CorrectContinua<'a> {
    /// (terms, columns) b and (pairs, columns) A.
    slopes: &'a [f32],
    normal: &'a [f32],
    terms: usize,
    columns: usize,
    candidates: &'a mut [Candidate],
    ln_det: Option<f64>,
}

/// One value per candidate that is corrected at once.
type CandidateLanes = [f64; CORRECTED_TOGETHER];

impl WithSimd for CorrectContinua<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let CorrectContinua {
            slopes,
            normal,
            terms,
            columns,
            candidates,
            ln_det,
        } = self;
        let mut factor = vec![[0.0; CORRECTED_TOGETHER]; packed_length(terms)];
        let mut inverse_diagonal = vec![[0.0; CORRECTED_TOGETHER]; terms];
        let mut solution = vec![[0.0; CORRECTED_TOGETHER]; terms];
        for (k, group) in candidates.chunks_mut(CORRECTED_TOGETHER).enumerate() {
            // Factorise A = L Lᵀ row by row (Cholesky), and solve L x = b. The reduction of χ² is xᵀx.
            let mut change = [0.0; CORRECTED_TOGETHER];
            let mut det = [1.0; CORRECTED_TOGETHER];
            for i in 0..terms {
                // 1. Elements of the row before the diagonal.
                let row = packed_length(i);
                for j in 0..i {
                    let mut sum = read_lanes(normal, (row + j) * columns + k * CORRECTED_TOGETHER);
                    for m in 0..j {
                        subtract_product(&mut sum, &factor[row + m], &factor[packed_length(j) + m]);
                    }
                    for lane in 0..CORRECTED_TOGETHER {
                        factor[row + j][lane] = sum[lane] * inverse_diagonal[j][lane];
                    }
                }
                // 2. Its pivot, and its equation of L x = b.
                let diagonal = read_lanes(normal, (row + i) * columns + k * CORRECTED_TOGETHER);
                let mut pivot = diagonal;
                let mut right_side = read_lanes(slopes, i * columns + k * CORRECTED_TOGETHER);
                for m in 0..i {
                    subtract_product(&mut pivot, &factor[row + m], &factor[row + m]);
                    subtract_product(&mut right_side, &factor[row + m], &solution[m]);
                }
                // 3. A term that depends on those before is left out: its row of L⁻¹ is zero.
                for lane in 0..CORRECTED_TOGETHER {
                    let is_determined = pivot[lane] > MIN_INDEPENDENT_SHARE * diagonal[lane];
                    inverse_diagonal[i][lane] = if is_determined {
                        1.0 / pivot[lane].sqrt()
                    } else {
                        0.0
                    };
                    det[lane] *= if is_determined { pivot[lane] } else { 1.0 };
                    solution[i][lane] = right_side[lane] * inverse_diagonal[i][lane];
                    change[lane] -= solution[i][lane] * solution[i][lane];
                }
            }
            for ((candidate, change), det) in group.iter_mut().zip(change).zip(det) {
                candidate.score +=
                    (change + ln_det.map_or(0.0, |without_lines| det.ln() - without_lines)) as f32;
            }
        }
    }
}

/// Returns the values of a row from index `start` on, one per lane, converted to f64.
#[inline(always)]
fn read_lanes(row: &[f32], start: usize) -> CandidateLanes {
    let mut lanes = [0.0; CORRECTED_TOGETHER];
    for (lane, value) in lanes
        .iter_mut()
        .zip(&row[start..start + CORRECTED_TOGETHER])
    {
        *lane = f64::from(*value);
    }
    lanes
}

/// Subtracts the product a b from a value, lane by lane.
#[inline(always)]
fn subtract_product(value: &mut CandidateLanes, a: &CandidateLanes, b: &CandidateLanes) {
    for lane in 0..CORRECTED_TOGETHER {
        value[lane] -= a[lane] * b[lane];
    }
}

/// Returns the continuum's terms divided by the continuum itself in a segment's wide bins, (terms, bins), and the
/// products of pairs of them, (pairs, bins).
fn bin_continuum_terms(
    segment: &TemplateSegment,
    arm: SpectrumArm,
    wide_bins: WideBins,
) -> [Vec<f32>; 2] {
    let pixels = arm.smooth.len();
    let count = arm.prepared.rank;
    let bins = wide_bins.count;
    // 1. Read the terms at the pixel in the middle of each wide bin.
    let basis = arm.prepared.basis(arm.sampling);
    let mut terms = vec![0f32; count * bins];
    for (bin, pixel) in wide_bins.find_middle_pixels(segment, arm.sampling) {
        let term_at_pixel = |k: usize| basis[k * pixels + pixel];
        let coefficients = arm.prepared.continuum.iter().take(count);
        let continuum: f32 = coefficients
            .enumerate()
            .map(|(k, coefficient)| coefficient * term_at_pixel(k))
            .sum();
        if continuum != 0.0 {
            for k in 0..count {
                terms[k * bins + bin] = term_at_pixel(k) / continuum;
            }
        }
    }
    // 2. Multiply each pair of terms, in the order of a packed lower triangle.
    let mut products = vec![0f32; packed_length(count) * bins];
    let pairs = (0..count).flat_map(|i| (0..=i).map(move |j| (i, j)));
    for ((i, j), products) in pairs.zip(products.chunks_exact_mut(bins)) {
        let first = &terms[i * bins..][..bins];
        let second = &terms[j * bins..][..bins];
        for ((product, a), b) in products.iter_mut().zip(first).zip(second) {
            *product = a * b;
        }
    }
    [terms, products]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{demo, prepare_all};
    use super::*;

    /// Each wide bin has the pixel in its middle, for any number of lanes and of bins left over.
    #[test]
    fn every_wide_bin_has_the_pixel_in_its_middle() {
        let (model, mut guess, spectra) = demo();
        let (sampling, _) = prepare_all(&model, &spectra);
        let segment = &mut guess.segments[0];
        let fine_bins = segment.fine.count + segment.fine.shifts;
        let bins_of_pixels: Vec<Option<usize>> = (0..sampling.pixels)
            .map(|pixel| segment.find_bin(&sampling, pixel))
            .collect();
        let sampled_bins = bins_of_pixels.iter().flatten();
        let lowest_bin = *sampled_bins.clone().min().unwrap();
        let highest_bin = *sampled_bins.max().unwrap();
        for (lanes, terms) in [1, 2, 4, 8, 16, 7]
            .into_iter()
            .flat_map(|lanes| [(lanes, 1), (lanes, 10), (lanes, 32)])
        {
            let stretches = Stretches {
                lanes,
                length: fine_bins.div_ceil(lanes),
            };
            let wide_bins = WideBins::new(stretches, terms);
            let pairs = wide_bins.find_middle_pixels(segment, &sampling);
            let mut paired_bins: Vec<usize> = pairs.iter().map(|(bin, _)| *bin).collect();
            paired_bins.sort_unstable();
            assert!(
                paired_bins.into_iter().eq(0..wide_bins.count),
                "{lanes} lanes"
            );
            for (bin, pixel) in pairs {
                let begin = bin / lanes * wide_bins.width;
                let end = (begin + wide_bins.width).min(stretches.length);
                let middle = bin % lanes * stretches.length + usize::midpoint(begin, end);
                let distance = bins_of_pixels[pixel]
                    .unwrap()
                    .abs_diff(middle.clamp(lowest_bin, highest_bin));
                assert!(
                    distance <= 1,
                    "{lanes} lanes, {terms} terms, bin {bin}: {distance} bins away"
                );
            }
        }
    }
}
