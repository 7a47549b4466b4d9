//! The continuum fitted anew with a template: its χ² as a fit sees it, not with the continuum that was fitted without lines.
//!
//! With that continuum, s = weight · Σ c p, a template T leaves the residual D − s T. Corrections of the coefficients c of the terms p
//! take bᵀA⁻¹b from its χ², with b = Σ weight · p T (D − s T) and A = Σ weight² · p pᵀ T². Terms are smooth: each counts as constant in
//! wide bins, in which all else is summed first.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use pulp::{Simd, WithSimd};

use super::bins::{EIGHT, Signals};
use super::look::Candidate;
use super::unit::Unit;
use crate::model::PreparedArm;
use crate::model::sampling::Sampling;
use crate::solver::triangle::packed_length;

/// Wide bins in a segment, at least, where it has as many fine ones.
const LEAST: usize = 64;
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

/// Adds an arm's part to the candidates' scores: χ², and the part of ln det A that is not the same for all where models are marginalised.
pub fn add_refitted(candidates: &mut [Candidate], arm: Arm, marginalise: bool) {
    let terms = arm.prepared.rank;
    let columns = candidates.len().next_multiple_of(EIGHT);
    let [mut slopes, mut normal] = [terms, packed_length(terms)].map(|rows| vec![0f32; rows * columns]);
    let units = arm.units.iter().zip(arm.signals);
    for (unit, signals) in units.filter(|(unit, _)| unit.arm == arm.place) {
        let wide = Wide::new(unit, signals);
        let [mut of_slopes, mut of_squares] = [(); 2].map(|()| vec![0f32; candidates.len() * wide.bins]);
        let sums = [&mut of_slopes[..], &mut of_squares[..]];
        pulp::Arch::new().dispatch(AddSums { unit, signals, wide, candidates: &mut *candidates, sums });
        let [terms, products] = terms_in(unit, arm, wide);
        add_product(&mut slopes, (&terms, &of_slopes), (wide.bins, columns));
        add_product(&mut normal, (&products, &of_squares), (wide.bins, columns));
    }
    pulp::Arch::new().dispatch(Correct { slopes: &slopes, normal: &normal, terms, columns, candidates, marginalise });
}

/// Fine bins in a wide one, a divisor of eight, and wide ones.
#[derive(Clone, Copy)]
struct Wide {
    width: usize,
    bins: usize,
}

impl Wide {
    fn new(unit: &Unit, [signal, _]: &Signals) -> Wide {
        let most = (unit.fine.count / LEAST).clamp(1, EIGHT);
        let width = 1 << most.ilog2();
        Wide { width, bins: signal.len().div_ceil(width) }
    }
}

/// What A and b sum, without terms, in wide bins; and χ² with the continuum as it is, up to a constant.
struct AddSums<'a> {
    unit: &'a Unit,
    signals: &'a Signals,
    wide: Wide,
    candidates: &'a mut [Candidate],
    /// (candidates, bins) Σ s T (D − s T) and Σ s² T²: the continuum stands where the weight does.
    sums: [&'a mut [f32]; 2],
}

impl WithSimd for AddSums<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let AddSums { unit, signals: [cross, power], wide, candidates, sums: [slopes, squares] } = self;
        let rows = slopes.chunks_exact_mut(wide.bins).zip(squares.chunks_exact_mut(wide.bins));
        for (candidate, (slopes, squares)) in candidates.iter_mut().zip(rows) {
            let position = unit.position(candidate.velocity);
            let shift = unit.fine.whole(position);
            let first = shift / EIGHT * EIGHT;
            let template = unit.whole(candidate.template, shift - first);
            let count = template.len();
            let row = Row {
                template,
                cross: [&cross[first..][..count], &cross[first + 1..][..count]],
                power: [&power[first..][..count], &power[first + 1..][..count]],
                part: (position - shift as f64) as f32,
                width: wide.width,
                slopes: &mut slopes[first / wide.width..],
                squares: &mut squares[first / wide.width..],
            };
            candidate.score += row.fill(simd);
        }
    }
}

/// A template in fine bins, the spectrum's signals there and a bin further, and what they make in wide bins.
struct Row<'a> {
    template: &'a [f32],
    cross: [&'a [f32]; 2],
    power: [&'a [f32]; 2],
    /// The share of the bin further.
    part: f32,
    width: usize,
    slopes: &'a mut [f32],
    squares: &'a mut [f32],
}

impl Row<'_> {
    /// Fills slopes and squares. Returns χ².
    #[inline(always)]
    fn fill<S: Simd>(self, simd: S) -> f32 {
        let (one, two, part) = (simd.splat_f32s(1.0), simd.splat_f32s(2.0), simd.splat_f32s(self.part));
        let mut chi2 = simd.splat_f32s(0.0);
        // what a vector of the machine holds, but never more than a wide bin
        let step = self.width.min(S::F32_LANES);
        let steps = self.width / step;
        for (k, (slope, square)) in self.slopes.iter_mut().zip(self.squares).enumerate() {
            let bin = k * self.width;
            if bin >= self.template.len() {
                break;
            }
            let (mut slopes, mut squares) = (simd.splat_f32s(0.0), simd.splat_f32s(0.0));
            for part_of in 0..steps {
                let at = bin + part_of * step;
                let load = |row: &[f32]| match S::as_simd_f32s(&row[at..at + step]).0 {
                    [whole] => *whole,
                    _ => simd.partial_load_f32s(&row[at..at + step]),
                };
                let between = |[this, next]: [&[f32]; 2]| {
                    let this = load(this);
                    simd.mul_add_f32s(part, simd.sub_f32s(load(next), this), this)
                };
                let (t, x, p) = (load(self.template), between(self.cross), between(self.power));
                let line = simd.sub_f32s(t, one);
                let lines = simd.mul_f32s(p, line);
                slopes = simd.mul_add_f32s(t, simd.sub_f32s(x, lines), slopes);
                squares = simd.mul_add_f32s(t, simd.mul_f32s(p, t), squares);
                chi2 = simd.mul_add_f32s(line, simd.sub_f32s(lines, simd.mul_f32s(two, x)), chi2);
            }
            (*slope, *square) = (simd.reduce_sum_f32s(slopes), simd.reduce_sum_f32s(squares));
        }
        simd.reduce_sum_f32s(chi2)
    }
}

/// Adds what corrections of the continuum take, −bᵀA⁻¹b, and ln det A over the product of the first candidate's diagonal: by Cholesky
/// factors of eight candidates at once.
struct Correct<'a> {
    /// (terms, columns) b and (pairs, columns) A.
    slopes: &'a [f32],
    normal: &'a [f32],
    terms: usize,
    columns: usize,
    candidates: &'a mut [Candidate],
    marginalise: bool,
}

type Lanes = [f64; EIGHT];

impl WithSimd for Correct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Correct { slopes, normal, terms, columns, candidates, marginalise } = self;
        let mut factor = vec![[0.0; EIGHT]; packed_length(terms)];
        let (mut inverse, mut solved) = (vec![[0.0; EIGHT]; terms], vec![[0.0; EIGHT]; terms]);
        for (k, eight) in candidates.chunks_mut(EIGHT).enumerate() {
            let (mut gain, mut det) = ([0.0; EIGHT], [1.0; EIGHT]);
            for i in 0..terms {
                let row = packed_length(i);
                for j in 0..i {
                    let mut sum = lanes(normal, (row + j) * columns + k * EIGHT);
                    for m in 0..j {
                        subtract(&mut sum, &factor[row + m], &factor[packed_length(j) + m]);
                    }
                    for lane in 0..EIGHT {
                        factor[row + j][lane] = sum[lane] * inverse[j][lane];
                    }
                }
                let diagonal = lanes(normal, (row + i) * columns + k * EIGHT);
                let of_first = f64::from(normal[(row + i) * columns]);
                let (mut pivot, mut right) = (diagonal, lanes(slopes, i * columns + k * EIGHT));
                for m in 0..i {
                    subtract(&mut pivot, &factor[row + m], &factor[row + m]);
                    subtract(&mut right, &factor[row + m], &solved[m]);
                }
                for lane in 0..EIGHT {
                    let is_determined = pivot[lane] > DETERMINED * diagonal[lane];
                    inverse[i][lane] = if is_determined { 1.0 / pivot[lane].sqrt() } else { 0.0 };
                    det[lane] *= if is_determined { pivot[lane] / of_first } else { 1.0 };
                    solved[i][lane] = right[lane] * inverse[i][lane];
                    gain[lane] -= solved[i][lane] * solved[i][lane];
                }
            }
            for ((candidate, gain), det) in eight.iter_mut().zip(gain).zip(det) {
                candidate.score += (gain + if marginalise { det.ln() } else { 0.0 }) as f32;
            }
        }
    }
}

#[inline(always)]
fn lanes(row: &[f32], at: usize) -> Lanes {
    let mut lanes = [0.0; EIGHT];
    for (lane, value) in lanes.iter_mut().zip(&row[at..at + EIGHT]) {
        *lane = f64::from(*value);
    }
    lanes
}

#[inline(always)]
fn subtract(from: &mut Lanes, a: &Lanes, b: &Lanes) {
    for lane in 0..EIGHT {
        from[lane] -= a[lane] * b[lane];
    }
}

/// The continuum's terms over the continuum itself in a unit's wide bins, (terms, bins), and their products, (pairs, bins).
fn terms_in(unit: &Unit, arm: Arm, wide: Wide) -> [Vec<f32>; 2] {
    let (pixels, count) = (arm.smooth.len(), arm.prepared.rank);
    // the pixels of each bin, of which the middle one speaks for all
    let mut runs = vec![None; wide.bins];
    for (at, j) in unit.places(arm.sampling, wide.bins * wide.width) {
        let (first, last) = runs[at / wide.width].get_or_insert((j, j));
        (*first, *last) = (j.min(*first), j.max(*last));
    }
    let basis = arm.prepared.basis(arm.sampling);
    let mut terms = vec![0f32; count * wide.bins];
    for (bin, (first, last)) in runs.into_iter().enumerate().filter_map(|(bin, run)| Some((bin, run?))) {
        let of = |k: usize| basis[k * pixels + usize::midpoint(first, last)];
        let continuum: f32 = arm.prepared.continuum.iter().take(count).enumerate().map(|(k, c)| c * of(k)).sum();
        if continuum != 0.0 {
            (0..count).for_each(|k| terms[k * wide.bins + bin] = of(k) / continuum);
        }
    }
    let mut products = vec![0f32; packed_length(count) * wide.bins];
    let pairs = (0..count).flat_map(|i| (0..=i).map(move |j| (i, j)));
    for ((i, j), out) in pairs.zip(products.chunks_exact_mut(wide.bins)) {
        let (a, b) = (&terms[i * wide.bins..][..wide.bins], &terms[j * wide.bins..][..wide.bins]);
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = a * b;
        }
    }
    [terms, products]
}

/// Adds (rows, bins) × (candidates, bins)ᵀ to (rows, columns), of which candidates fill the first.
fn add_product(target: &mut [f32], (rows, candidates): (&[f32], &[f32]), (bins, columns): (usize, usize)) {
    let (count, filled) = (rows.len() / bins, candidates.len() / bins);
    let target = MatMut::from_row_major_slice_mut(target, count, columns).subcols_mut(0, filled);
    let rows = MatRef::from_row_major_slice(rows, count, bins);
    let candidates = MatRef::from_row_major_slice(candidates, filled, bins).transpose();
    matmul(target, Accum::Add, rows, candidates, 1.0, Par::Seq);
}
