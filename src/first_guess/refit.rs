//! The continuum fitted anew with a template: its χ² as a fit sees it, not with the continuum that was fitted without
//! lines.
//!
//! With that continuum, s = weight · Σ c p, a template T leaves the residual D − s T. Corrections of the coefficients c
//! of the terms p take bᵀA⁻¹b from its χ², with b = Σ weight · p T (D − s T) and A = Σ weight² · p pᵀ T². Terms are
//! smooth: each counts as constant in wide bins, in which all else is summed first.
//!
//! The continuum that fits the spectrum without lines takes up part of a hot star's wide lines, and hides which gravity
//! it has. A CPU whose vectors have another number of lanes may round these scores otherwise (`stretches.rs`).

use std::cell::RefCell;

use pulp::{Simd, WithSimd};

use super::bins::Signals;
use super::look::Candidate;
use super::stretches::Stretches;
use super::unit::Unit;
use crate::math::product::{MatrixProduct, Packed};
use crate::math::triangle::packed_length;
use crate::model::{PreparedArm, Sampling};

/// Wide bins in a segment, about, if it has as many fine ones: this many, and more where terms are many.
const WIDE: usize = 128;
const WIDE_OF_TERM: usize = 12;
/// Pixels of a wide bin, about, whose places are looked up.
const LOOKED_AT: usize = 2;
/// Candidates whose continua are corrected at once.
const LANES: usize = 8;
/// Candidates whose sums in wide bins fit into a core's cache.
const TOGETHER: usize = 256;
/// A term that the others leave less of than this share is not corrected.
const DETERMINED: f64 = 1e-9;

/// A spectrum's arm and the bins of all units.
#[derive(Clone, Copy)]
pub struct Arm<'a> {
    /// Its place among the arms.
    pub place: usize,
    pub prepared: &'a PreparedArm,
    /// weight · continuum
    pub smooth: &'a [f32],
    pub sampling: &'a Sampling,
    pub units: &'a [Unit],
    pub signals: &'a [Signals],
}

/// The continuum terms of a spectrum's arm in wide bins, with which the continuum is refitted to any template.
pub struct Refit<'a> {
    units: Vec<InUnit<'a>>,
    terms: usize,
    /// ln det A of a template without lines, if the fit marginalises over the continuum.
    ln_det: Option<f64>,
}

/// Sums of a few candidates in the wide bins of a unit.
struct Sums {
    /// (candidates, bins)
    slopes: Vec<f32>,
    squares: Vec<f32>,
    /// One or the other, for its product with the terms.
    packed: Packed<f32>,
}

thread_local! {
    /// The memory of a thread's sums, which every spectrum needs: new memory would take as long to clear as to fill.
    static SUMS: RefCell<Sums> =
        RefCell::new(Sums { slopes: Vec::new(), squares: Vec::new(), packed: Packed::zeros(0, 0) });
}

/// A unit with the sums and continuum terms that a refit reads there.
struct InUnit<'a> {
    unit: &'a Unit,
    wide: Wide,
    signals: &'a Signals,
    /// The segment covers all pixels at all velocities.
    is_reached: bool,
    /// Sums of the signals in stretches, with one place more.
    sums: [Vec<f32>; 2],
    /// (terms, bins) The terms over the continuum itself, and (pairs, bins) their products.
    terms: Vec<f32>,
    products: Vec<f32>,
}

impl<'a> Refit<'a> {
    /// Prepares the refit of an arm's continuum. If the fit marginalises over the continuum, scores contain ln det A,
    /// less that of a template without lines.
    pub fn new(arm: Arm<'a>, marginalise: bool) -> Refit<'a> {
        let terms = arm.prepared.rank;
        let units = arm
            .units
            .iter()
            .zip(arm.signals)
            .filter(|(unit, _)| unit.arm == arm.place);
        let units = units.map(|(unit, signals)| {
            let wide = Wide::new(unit.stretches, terms);
            let sums = signals
                .sums
                .each_ref()
                .map(|row| unit.stretches.lay_out(row, 0, 1));
            let [terms, products] = terms_in(unit, arm, wide);
            let is_reached = signals.unreached.is_empty();
            InUnit {
                unit,
                wide,
                signals,
                is_reached,
                sums,
                terms,
                products,
            }
        });
        // the basis times the transform is orthonormal under the weights
        let stride = arm.prepared.continuum.len() + 1;
        let diagonal = arm.prepared.transform.iter().step_by(stride).take(terms);
        let ln_det = marginalise.then(|| -2.0 * diagonal.map(|x| f64::from(*x).ln()).sum::<f64>());
        Refit {
            units: units.collect(),
            terms,
            ln_det,
        }
    }

    /// Adds the arm's χ² with the continuum refitted to each candidate's template to the candidates' scores, and, if
    /// marginalised, ln det A less that of a template without lines.
    pub fn add_scores(&self, candidates: &mut [Candidate]) {
        SUMS.with_borrow_mut(|sums| {
            candidates
                .chunks_mut(TOGETHER)
                .for_each(|some| self.add_scores_of_few(some, sums));
        });
    }

    /// Does what [`add_scores`](Refit::add_scores) does for candidates whose sums fit into the cache.
    fn add_scores_of_few(
        &self,
        candidates: &mut [Candidate],
        Sums {
            slopes: of_slopes,
            squares,
            packed,
        }: &mut Sums,
    ) {
        let (terms, columns) = (self.terms, candidates.len().next_multiple_of(LANES));
        let [mut slopes, mut normal] =
            [terms, packed_length(terms)].map(|rows| vec![0f32; rows * columns]);
        for in_unit in &self.units {
            let InUnit {
                wide,
                terms,
                products,
                ..
            } = in_unit;
            // all that is read is written before
            let sums = [&mut *of_slopes, &mut *squares].map(|sums| {
                sums.resize(columns * wide.bins, 0.0);
                &mut sums[..]
            });
            pulp::Arch::new().dispatch(AddSums {
                in_unit,
                candidates: &mut *candidates,
                sums,
            });
            packed.set_transposed(of_slopes, columns, wide.bins);
            MatrixProduct {
                input: terms,
                packed,
                output: &mut slopes,
                accumulate: true,
            }
            .run();
            packed.set_transposed(squares, columns, wide.bins);
            MatrixProduct {
                input: products,
                packed,
                output: &mut normal,
                accumulate: true,
            }
            .run();
        }
        let (slopes, normal, ln_det) = (&slopes, &normal, self.ln_det);
        pulp::Arch::new().dispatch(Correct {
            slopes,
            normal,
            terms,
            columns,
            candidates,
            ln_det,
        });
    }
}

/// Neighbouring fine bins of a stretch make a wide one.
#[derive(Clone, Copy)]
struct Wide {
    stretches: Stretches,
    /// Fine bins in one.
    width: usize,
    /// Their number.
    bins: usize,
}

impl Wide {
    /// Chooses how many fine bins make a wide one, so that a segment has about 128 wide bins, or 12 per continuum term
    /// if that is more.
    fn new(stretches: Stretches, terms: usize) -> Wide {
        let Stretches { lanes, length } = stretches;
        let width = (length * lanes / WIDE.max(WIDE_OF_TERM * terms)).max(1);
        Wide {
            stretches,
            width,
            bins: length.div_ceil(width) * lanes,
        }
    }

    /// Pairs the index of each wide bin with the spectrum's pixel in its middle, interpolated, or the nearest one at
    /// the spectrum's ends. Only a few pixels are looked up, and those between are interpolated.
    fn middle_pixels(&self, unit: &Unit, sampling: &Sampling) -> Vec<(usize, usize)> {
        let Stretches { lanes, length } = self.stretches;
        let every = (sampling.pixels / (LOOKED_AT * self.bins)).max(1);
        let looked_at = (0..sampling.pixels)
            .step_by(every)
            .chain(sampling.pixels.checked_sub(1));
        let known: Vec<(usize, usize)> = looked_at
            .filter_map(|j| Some((unit.place(sampling, j)?, j)))
            .collect();
        let Some(&first) = known.first() else {
            return Vec::new();
        };
        let mut next = 0;
        let mut pairs = Vec::with_capacity(self.bins);
        // in the order of fine bins, in which pixels are, too
        for lane in 0..lanes {
            for (place, begin) in (0..length).step_by(self.width).enumerate() {
                let middle =
                    lane * length + usize::midpoint(begin, (begin + self.width).min(length));
                next += known[next..]
                    .iter()
                    .take_while(|(bin, _)| *bin < middle)
                    .count();
                let (low, high) = (
                    next.checked_sub(1).map_or(first, |k| known[k]),
                    known.get(next),
                );
                let way = |high: &(usize, usize)| {
                    (high.1 - low.1) * middle.saturating_sub(low.0) / (high.0 - low.0).max(1)
                };
                pairs.push((place * lanes + lane, low.1 + high.map_or(0, way)));
            }
        }
        pairs
    }
}

/// Sums that make up A and b in wide bins, before the continuum terms multiply them; and χ² with the continuum as it
/// is, up to a constant.
struct AddSums<'a> {
    in_unit: &'a InUnit<'a>,
    candidates: &'a mut [Candidate],
    /// (candidates, bins) Σ s T (D − s T) and Σ s² T²: the continuum stands where the weight does.
    sums: [&'a mut [f32]; 2],
}

impl WithSimd for AddSums<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let AddSums {
            in_unit:
                InUnit {
                    unit,
                    wide,
                    signals,
                    is_reached,
                    sums,
                    ..
                },
            candidates,
            sums: [slopes, squares],
        } = self;
        let [cross, power] = sums.each_ref().map(|row| S::as_simd_f32s(row).0);
        let rows = slopes
            .chunks_exact_mut(wide.bins)
            .zip(squares.chunks_exact_mut(wide.bins));
        for (candidate, (slopes, squares)) in candidates.iter_mut().zip(rows) {
            let position = unit.position(candidate.velocity);
            let shift = unit.fine.whole(position);
            let lines = S::as_simd_f32s(unit.whole(candidate.template, shift)).0;
            let part = simd.splat_f32s((position - shift as f64) as f32);
            let to = [slopes, squares].map(|row| S::as_mut_simd_f32s(row).0);
            if *is_reached {
                candidate.score +=
                    add_row::<S, true>(simd, [lines, cross, power, lines], part, wide.width, to);
            } else {
                let inside = S::as_simd_f32s(unit.inside(shift)).0;
                candidate.score +=
                    add_row::<S, false>(simd, [lines, cross, power, inside], part, wide.width, to);
                candidate.score -= unit.unreached(signals, candidate.velocity);
            }
        }
    }
}

/// Fills slopes and squares, in wide bins of `width` places, from a template's lines and the signals there, read `part`
/// of the way to the next bin. Unless all bins are REACHED, those with an `inside` of 0 are left out. Returns χ².
#[inline(always)]
fn add_row<S: Simd, const REACHED: bool>(
    simd: S,
    [lines, cross, power, inside]: [&[S::f32s]; 4],
    part: S::f32s,
    width: usize,
    [slopes, squares]: [&mut [S::f32s]; 2],
) -> f32 {
    let (zero, two) = (simd.splat_f32s(0.0), simd.splat_f32s(2.0));
    let between = |this, next| simd.mul_add_f32s(part, simd.sub_f32s(next, this), this);
    let signals = cross
        .chunks(width)
        .zip(cross[1..].chunks(width))
        .zip(power.chunks(width).zip(power[1..].chunks(width)));
    let mut chi2 = zero;
    for (((lines, inside), ((x, next_x), (p, next_p))), (slope, square)) in lines
        .chunks(width)
        .zip(inside.chunks(width))
        .zip(signals)
        .zip(slopes.iter_mut().zip(squares))
    {
        // with x = s (D − s), p = s² and l = T − 1: sums of x, p, x l, p l and p l²
        let [
            mut of_x,
            mut of_p,
            mut of_x_line,
            mut of_p_line,
            mut of_square,
        ] = [zero; 5];
        let signals = x.iter().zip(next_x).zip(p.iter().zip(next_p));
        for ((line, inside), ((x, next_x), (p, next_p))) in lines.iter().zip(inside).zip(signals) {
            let (mut x, mut p) = (between(*x, *next_x), between(*p, *next_p));
            if !REACHED {
                (x, p) = (simd.mul_f32s(x, *inside), simd.mul_f32s(p, *inside));
            }
            let p_line = simd.mul_f32s(p, *line);
            of_x = simd.add_f32s(of_x, x);
            of_p = simd.add_f32s(of_p, p);
            of_x_line = simd.mul_add_f32s(x, *line, of_x_line);
            of_p_line = simd.add_f32s(of_p_line, p_line);
            of_square = simd.mul_add_f32s(p_line, *line, of_square);
        }
        *slope = simd.sub_f32s(
            simd.add_f32s(of_x, of_x_line),
            simd.add_f32s(of_p_line, of_square),
        );
        *square = simd.add_f32s(of_p, simd.mul_add_f32s(two, of_p_line, of_square));
        chi2 = simd.add_f32s(
            chi2,
            simd.sub_f32s(of_square, simd.mul_f32s(two, of_x_line)),
        );
    }
    simd.reduce_sum_f32s(chi2)
}

/// Adds what corrections of the continuum take, −bᵀA⁻¹b, and ln det A: by Cholesky factors of [`LANES`] candidates at
/// once. The basis is about orthonormal, so that det A neither overflows nor underflows.
struct Correct<'a> {
    /// (terms, columns) b and (pairs, columns) A.
    slopes: &'a [f32],
    normal: &'a [f32],
    terms: usize,
    columns: usize,
    candidates: &'a mut [Candidate],
    ln_det: Option<f64>,
}

type Lanes = [f64; LANES];

impl WithSimd for Correct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Correct {
            slopes,
            normal,
            terms,
            columns,
            candidates,
            ln_det,
        } = self;
        let mut factor = vec![[0.0; LANES]; packed_length(terms)];
        let (mut inverse, mut solved) = (vec![[0.0; LANES]; terms], vec![[0.0; LANES]; terms]);
        for (k, eight) in candidates.chunks_mut(LANES).enumerate() {
            let (mut gain, mut det) = ([0.0; LANES], [1.0; LANES]);
            for i in 0..terms {
                let row = packed_length(i);
                for j in 0..i {
                    let mut sum = lanes(normal, (row + j) * columns + k * LANES);
                    for m in 0..j {
                        subtract(&mut sum, &factor[row + m], &factor[packed_length(j) + m]);
                    }
                    for lane in 0..LANES {
                        factor[row + j][lane] = sum[lane] * inverse[j][lane];
                    }
                }
                let diagonal = lanes(normal, (row + i) * columns + k * LANES);
                let (mut pivot, mut right) = (diagonal, lanes(slopes, i * columns + k * LANES));
                for m in 0..i {
                    subtract(&mut pivot, &factor[row + m], &factor[row + m]);
                    subtract(&mut right, &factor[row + m], &solved[m]);
                }
                for lane in 0..LANES {
                    let is_determined = pivot[lane] > DETERMINED * diagonal[lane];
                    inverse[i][lane] = if is_determined {
                        1.0 / pivot[lane].sqrt()
                    } else {
                        0.0
                    };
                    det[lane] *= if is_determined { pivot[lane] } else { 1.0 };
                    solved[i][lane] = right[lane] * inverse[i][lane];
                    gain[lane] -= solved[i][lane] * solved[i][lane];
                }
            }
            for ((candidate, gain), det) in eight.iter_mut().zip(gain).zip(det) {
                candidate.score +=
                    (gain + ln_det.map_or(0.0, |without_lines| det.ln() - without_lines)) as f32;
            }
        }
    }
}

/// Copies the values of a row from index `at` on, one per SIMD lane, converted to f64.
#[inline(always)]
fn lanes(row: &[f32], at: usize) -> Lanes {
    let mut lanes = [0.0; LANES];
    for (lane, value) in lanes.iter_mut().zip(&row[at..at + LANES]) {
        *lane = f64::from(*value);
    }
    lanes
}

/// Subtracts the product a b from `from`, lane by lane.
#[inline(always)]
fn subtract(from: &mut Lanes, a: &Lanes, b: &Lanes) {
    for lane in 0..LANES {
        from[lane] -= a[lane] * b[lane];
    }
}

/// Returns the continuum's terms over the continuum itself in a unit's wide bins, (terms, bins), and their products,
/// (pairs, bins).
fn terms_in(unit: &Unit, arm: Arm, wide: Wide) -> [Vec<f32>; 2] {
    let (pixels, count) = (arm.smooth.len(), arm.prepared.rank);
    let basis = arm.prepared.basis(arm.sampling);
    let mut terms = vec![0f32; count * wide.bins];
    for (bin, pixel) in wide.middle_pixels(unit, arm.sampling) {
        let of = |k: usize| basis[k * pixels + pixel];
        let continuum: f32 = arm
            .prepared
            .continuum
            .iter()
            .take(count)
            .enumerate()
            .map(|(k, c)| c * of(k))
            .sum();
        if continuum != 0.0 {
            (0..count).for_each(|k| terms[k * wide.bins + bin] = of(k) / continuum);
        }
    }
    let mut products = vec![0f32; packed_length(count) * wide.bins];
    let pairs = (0..count).flat_map(|i| (0..=i).map(move |j| (i, j)));
    for ((i, j), out) in pairs.zip(products.chunks_exact_mut(wide.bins)) {
        let (a, b) = (
            &terms[i * wide.bins..][..wide.bins],
            &terms[j * wide.bins..][..wide.bins],
        );
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = a * b;
        }
    }
    [terms, products]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{all_prepared, demo};
    use super::*;

    /// However wide the machine's vectors are, and however bins are left over, each wide bin has the pixel in its
    /// middle.
    #[test]
    fn every_wide_bin_has_the_pixel_in_its_middle() {
        let (model, mut guess, spectra) = demo();
        let (sampling, _) = all_prepared(&model, &spectra);
        let unit = &mut guess.units[0];
        let bins = unit.fine.count + unit.fine.shifts;
        let places: Vec<Option<usize>> = (0..sampling.pixels)
            .map(|j| unit.place(&sampling, j))
            .collect();
        let reached = places.iter().flatten();
        let (low, high) = (*reached.clone().min().unwrap(), *reached.max().unwrap());
        for (lanes, terms) in [1, 2, 4, 8, 16, 7]
            .into_iter()
            .flat_map(|lanes| [(lanes, 1), (lanes, 10), (lanes, 32)])
        {
            let stretches = Stretches {
                lanes,
                length: bins.div_ceil(lanes),
            };
            let wide = Wide::new(stretches, terms);
            let pairs = wide.middle_pixels(unit, &sampling);
            let mut seen: Vec<usize> = pairs.iter().map(|(bin, _)| *bin).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..wide.bins), "{lanes} lanes");
            for (bin, pixel) in pairs {
                let begin = bin / lanes * wide.width;
                let middle = bin % lanes * stretches.length
                    + usize::midpoint(begin, (begin + wide.width).min(stretches.length));
                let distance = places[pixel].unwrap().abs_diff(middle.clamp(low, high));
                assert!(
                    distance <= 1,
                    "{lanes} lanes, {terms} terms, bin {bin}: {distance} bins away"
                );
            }
        }
    }
}
