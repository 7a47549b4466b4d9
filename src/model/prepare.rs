//! From one spectrum's arrays to what a device reads: checked, masked, weighted, its continuum basis orthonormal (see
//! `docs/src/equations.md`).
//!
//! Each wavelength grid has one continuum basis, orthonormal over its pixels, which its spectra share. Under a mask at
//! one end, or under weights that differ by decades, the shared basis is nearly dependent and its sums cancel. This is
//! seen by the condition number of the Gram matrix's factor, which may be at most 10 times that of an orthonormal
//! basis. Otherwise the spectrum gets a basis of its own (`determined.rs`), and the first guess judges every template
//! by what the continuum leaves of its lines. An arm without unmasked pixels contributes exactly zero.

use std::borrow::Cow;

use pulp::{NullaryFnOnce, Simd, WithSimd};

use super::continuum::inverse_lower;
use super::determined::{SMALLEST_SINGULAR_VALUE, determined};
use super::fault::{Cause, Fault, place};
use super::sampling::{Sampling, padded};
use super::weights::weights;
use super::{ModelArm, SpectralModel};
use crate::rows::gram::{BLOCK, Gram};
use crate::rows::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};

/// One arm of one spectrum, ready for the device. All (padded) unless said otherwise.
#[derive(Clone, Debug, Default)]
pub struct PreparedArm {
    /// √ivar flux; 0 where masked.
    pub data: Vec<f32>,
    /// √ivar / `scale`, about 1; 0 where masked.
    pub weight: Vec<f32>,
    /// (terms, terms) lower triangular: from `basis`, or the grid's, to one that is orthonormal under `weight`.
    pub transform: Vec<f32>,
    /// (terms, padded) A basis of the spectrum's own, where its weights leave the grid's ill conditioned; else empty.
    pub basis: Vec<f32>,
    /// Number of continuum terms that the weights determine: 0 where the arm drops out.
    pub rank: usize,
    /// (diagonals, padded) The spectrum's resolution matrix; empty where the model asks for none.
    pub resolution: Vec<f32>,
    /// Mean √ivar; 1 without a continuum, which could not take it up.
    pub scale: f64,
    /// (terms) Of the basis: the continuum fitted without the model's lines.
    pub continuum: Vec<f32>,
}

impl PreparedArm {
    /// Returns the continuum basis (terms, padded) that the spectrum's coefficients belong to: its own, or the grid's.
    pub fn basis<'a>(&'a self, sampling: &'a Sampling) -> &'a [f32] {
        if self.basis.is_empty() { &sampling.basis } else { &self.basis }
    }

    /// Computes weight · continuum at each pixel, the continuum being fitted without the model's lines (padded). It is
    /// not kept, because it would be a third of all that is prepared.
    pub fn smooth(&self, sampling: &Sampling) -> Vec<f32> {
        if self.continuum.is_empty() {
            return self.weight.clone();
        }
        let mut smooth = vec![0.0; self.weight.len()];
        pulp::Arch::new().dispatch(AddContinuum { arm: self, sampling, smooth: &mut smooth });
        smooth
    }
}

struct AddContinuum<'a> {
    arm: &'a PreparedArm,
    sampling: &'a Sampling,
    smooth: &'a mut [f32],
}

impl NullaryFnOnce for AddContinuum<'_> {
    type Output = ();

    /// Adds up block by block, so that the sums stay in the cache.
    #[inline(always)]
    fn call(self) {
        let AddContinuum { arm, sampling, smooth } = self;
        let (pixels, basis) = (smooth.len(), arm.basis(sampling));
        let blocks = smooth.chunks_mut(BLOCK).zip(arm.weight.chunks(BLOCK)).enumerate();
        for (block, (smooth, weight)) in blocks {
            for (c, coefficient) in arm.continuum.iter().enumerate() {
                let basis = &basis[c * pixels + block * BLOCK..];
                for ((s, q), w) in smooth.iter_mut().zip(basis).zip(weight) {
                    *s += coefficient * q * w;
                }
            }
        }
    }
}

/// One spectrum, ready for the device.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub arms: Vec<PreparedArm>,
    /// Pixels that count.
    pub unmasked: usize,
    /// Pixels of the arms that are not dropped, masked ones too.
    pub pixels: usize,
    /// Continuum terms that the weights determine, over all arms.
    pub rank: usize,
    /// Pixels that were masked because they are not finite.
    pub nonfinite: usize,
    /// Median of |flux| √ivar.
    pub signal_to_noise: f64,
    /// Term that marginalisation adds to the device's ln det C: constants of the bases, − Σ ln ivar.
    pub marginal_constant: f64,
}

/// Arrays of one spectrum in one arm (pixels).
pub struct RawArm<'a> {
    /// Å; empty where weights are known to suit the grid's basis.
    pub wavelength: Cow<'a, [f64]>,
    pub flux: Cow<'a, [f64]>,
    pub ivar: Cow<'a, [f64]>,
    /// Empty: no mask.
    pub mask: &'a [bool],
    /// (diagonals, pixels) Resolution matrix, where the model asks for it.
    pub resolution: Option<&'a [f32]>,
}

/// Weights and scales a spectrum's arms and its continuum bases for the device, or returns the fault that excludes the
/// spectrum.
pub fn prepare(model: &SpectralModel, raw: &[RawArm], samplings: &[&Sampling]) -> Result<Prepared, Fault> {
    let mut prepared = Prepared {
        arms: Vec::with_capacity(raw.len()),
        unmasked: 0,
        pixels: 0,
        rank: 0,
        nonfinite: 0,
        signal_to_noise: 0.0,
        marginal_constant: 0.0,
    };
    let mut ratios = Vec::new();
    for ((arm, raw), sampling) in model.arms.iter().zip(raw).zip(samplings) {
        let ivar = weights(model, arm, raw, sampling, &mut prepared.nonfinite)?;
        let one = prepare_arm(arm, raw, sampling, &ivar, &mut prepared)?;
        // the bits of positive numbers are in their order
        ratios.extend(one.data.iter().map(|d| d.abs().to_bits()));
        prepared.arms.push(one);
    }
    if prepared.unmasked == 0 {
        let masked = samplings.iter().all(|s| s.used == 0);
        let why = if masked { "the model's masks cover all" } else { "all are masked or have ivar 0" };
        return Err(Fault { cause: Cause::NoData, detail: format!("no pixel counts: {why}") });
    }
    let free = model.parameters.iter().filter(|p| !p.is_held()).count();
    if prepared.unmasked < free + prepared.rank {
        return Err(underdetermined(prepared.unmasked, free, prepared.rank));
    }
    // zeros, which are no data, come first
    let zeros = ratios.iter().filter(|bits| **bits == 0).count();
    if zeros < ratios.len() {
        let middle = zeros + (ratios.len() - zeros) / 2;
        prepared.signal_to_noise = f64::from(f32::from_bits(*ratios.select_nth_unstable(middle).1));
    }
    Ok(prepared)
}

/// Returns the fault of a spectrum that has fewer unmasked pixels than free parameters and continuum terms.
fn underdetermined(pixels: usize, free: usize, rank: usize) -> Fault {
    let detail = format!(
        "{pixels} unmasked pixels are fewer than {free} free parameters plus the {rank} continuum terms that they \
         determine"
    );
    Fault { cause: Cause::Underdetermined, detail }
}

/// Prepares one arm, and adds its pixels, continuum terms and marginalisation constant to the totals in `prepared`. An
/// arm without weight drops out.
fn prepare_arm(
    arm: &ModelArm,
    raw: &RawArm,
    sampling: &Sampling,
    ivar: &[f64],
    prepared: &mut Prepared,
) -> Result<PreparedArm, Fault> {
    let (terms, pixels) = (arm.continuum.terms, padded(sampling.pixels));
    let count = ivar.iter().filter(|w| **w > 0.0).count();
    let mut out = PreparedArm {
        data: vec![0.0; pixels],
        weight: vec![0.0; pixels],
        transform: vec![0.0; terms * terms],
        basis: Vec::new(),
        rank: 0,
        resolution: resolution(arm, raw, sampling, ivar)?,
        scale: 1.0,
        continuum: vec![0.0; terms],
    };
    if count == 0 {
        return Ok(out); // the arm drops out: its sums are exactly zero
    }
    let ln_ivar = pulp::Arch::new().dispatch(Scale { flux: &raw.flux, ivar, count, arm: &mut out });
    let scale = out.scale;
    if let Some(j) = first_not_finite(&out, sampling.pixels) {
        let (flux, w) = (raw.flux[j], ivar[j]);
        let detail = format!("{}pixel {j}: flux {flux} with ivar {w} is out of range", place(arm));
        return Err(Fault { cause: Cause::BadWeight, detail });
    }
    prepared.unmasked += count;
    prepared.pixels += sampling.pixels;
    prepared.marginal_constant -= ln_ivar;
    if terms == 0 {
        return Ok(out);
    }
    let shared = pulp::Arch::new().dispatch(Orthonormal { sampling, terms, arm: &mut out }).filter(|found| {
        let condition = (terms as f64).sqrt() * found.condition * sampling.condition;
        found.condition <= MOST_CONDITION * terms as f64 && condition * SMALLEST_SINGULAR_VALUE < 1.0
    });
    // ln det C of the raw basis under ivar, from that of the device's basis under weight
    prepared.marginal_constant += match shared {
        Some(found) => {
            out.rank = terms;
            2.0 * (found.ln_diagonal + terms as f64 * scale.ln() + sampling.ln_det)
        }
        None => own_basis(arm, raw, sampling, &mut out)?,
    };
    prepared.rank += out.rank;
    Ok(out)
}

/// Returns the index of the first pixel whose data or weight is not finite; `None` if all are.
fn first_not_finite(arm: &PreparedArm, pixels: usize) -> Option<usize> {
    // without a branch: most spectra have none, and the pixel is looked for afterwards
    let any_bad = |values: &[f32]| values.iter().fold(false, |bad, x| bad | !x.is_finite());
    let is_bad = |j: &usize| !arm.data[*j].is_finite() || !arm.weight[*j].is_finite();
    if any_bad(&arm.data) || any_bad(&arm.weight) { (0..pixels).find(is_bad) } else { None }
}

/// Replaces the grid's continuum basis in `out` by one from this spectrum's weights; returns the term that corrects ln
/// det C for it.
fn own_basis(arm: &ModelArm, raw: &RawArm, sampling: &Sampling, out: &mut PreparedArm) -> Result<f64, Fault> {
    let rows = sampling.raw_basis(arm, &raw.wavelength);
    let Some(found) = determined(&rows, sampling.pixels, &out.weight, out.scale) else {
        let detail = format!("{}no pixel has a weight that an f32 can hold", place(arm));
        return Err(Fault { cause: Cause::BadWeight, detail });
    };
    let terms = arm.continuum.terms;
    (out.basis, out.rank) = (found.basis, found.rank);
    out.transform.fill(0.0);
    (0..found.rank).for_each(|c| out.transform[c * terms + c] = 1.0);
    let rows = out.basis.chunks_exact(out.weight.len());
    for (target, row) in out.continuum.iter_mut().zip(rows) {
        let products = row.iter().zip(&out.weight).zip(&out.data).map(|((q, w), d)| f64::from(q * w) * f64::from(*d));
        *target = products.sum::<f64>() as f32;
    }
    Ok(2.0 * found.ln_diagonal)
}

/// Copies a spectrum's resolution matrix to padded diagonals; fails if a used pixel reads a value that is not finite.
/// What is not finite in it is 0, and a fault where a pixel that counts reads it.
fn resolution(arm: &ModelArm, raw: &RawArm, sampling: &Sampling, ivar: &[f64]) -> Result<Vec<f32>, Fault> {
    let (pixels, stride) = (sampling.pixels, padded(sampling.pixels));
    let Some(matrix) = raw.resolution else { return Ok(Vec::new()) };
    let diagonals = matrix.len() / pixels;
    let mut out = vec![0.0; diagonals * stride];
    for (d, (row, target)) in matrix.chunks_exact(pixels).zip(out.chunks_exact_mut(stride)).enumerate() {
        for (column, (value, target)) in row.iter().zip(target).enumerate() {
            if value.is_finite() {
                *target = *value;
                continue;
            }
            let reader = (column + d).checked_sub(diagonals / 2);
            if reader.is_some_and(|j| ivar.get(j).is_some_and(|w| *w > 0.0)) {
                let detail = format!("arm {}, resolution, diagonal {d}, pixel {column}: {value}", arm.name);
                return Err(Fault { cause: Cause::NonFiniteInput, detail });
            }
        }
    }
    Ok(out)
}

/// The grid's basis serves spectra under whose weights its condition number is at most so many times that of an
/// orthonormal one: its sums are made in f32, and their rounding grows with the square.
const MOST_CONDITION: f64 = 10.0;

/// Sums side by side.
const LANES: usize = 8;

/// Data and weights of an arm with some pixels that count, and the weights' scale where there is a continuum.
struct Scale<'a> {
    flux: &'a [f64],
    ivar: &'a [f64],
    count: usize,
    arm: &'a mut PreparedArm,
}

impl NullaryFnOnce for Scale<'_> {
    /// Σ ln ivar.
    type Output = f64;

    #[inline(always)]
    fn call(self) -> f64 {
        let Scale { flux, ivar, count, arm } = self;
        let root: Vec<f64> = ivar.iter().map(|w| w.sqrt()).collect();
        // it scales as the data do, so that the device sees the same numbers whatever their unit, to the last bit when
        // two units differ by a power of two
        if !arm.transform.is_empty() {
            let mut sums = [0.0; LANES];
            for part in root.chunks(LANES) {
                sums.iter_mut().zip(part).for_each(|(sum, root)| *sum += root);
            }
            arm.scale = sums.iter().sum::<f64>() / count as f64;
        }
        let scale = arm.scale;
        for ((data, flux), root) in arm.data.iter_mut().zip(flux).zip(&root) {
            let value = (*flux * *root) as f32;
            *data = if *root > 0.0 { value } else { 0.0 };
        }
        arm.weight.iter_mut().zip(&root).for_each(|(weight, root)| *weight = (*root / scale) as f32);
        ivar.chunks(4096).map(sum_of_logarithms).sum()
    }
}

/// Returns Σ ln w of the positive values among at most 4,096, with few logarithms: mantissas are multiplied, exponents
/// added.
#[inline(always)]
fn sum_of_logarithms(values: &[f64]) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let (mut exponents, mut mantissas) = ([0u64; LANES], [1f64; LANES]);
    for part in values.chunks(LANES) {
        for ((w, exponent), mantissa) in part.iter().zip(&mut exponents).zip(&mut mantissas) {
            // a subnormal counts as the smallest normal number
            let bits = if *w > 0.0 { w.max(f64::MIN_POSITIVE).to_bits() } else { 1f64.to_bits() };
            *exponent += bits >> 52;
            *mantissa *= f64::from_bits(bits & MANTISSA | 1f64.to_bits());
        }
    }
    let exponent = exponents.iter().sum::<u64>() as f64 - (1023 * values.len()) as f64;
    exponent * std::f64::consts::LN_2 + mantissas.iter().map(|m| m.ln()).sum::<f64>()
}

/// The basis that is orthonormal under the weights, and the continuum fitted to the data alone.
struct Orthonormal<'a> {
    sampling: &'a Sampling,
    terms: usize,
    arm: &'a mut PreparedArm,
}

/// Determinant and condition of the grid's basis under a spectrum's weights.
struct Weighted {
    /// Σ ln diagonal of the Cholesky factor L of Σ weight² q qᵀ.
    ln_diagonal: f64,
    /// Upper limit of L's condition number; as many as there are terms where these are orthogonal.
    condition: f64,
}

impl WithSimd for Orthonormal<'_> {
    /// `None` when the Gram matrix is singular.
    type Output = Option<Weighted>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Option<Weighted> {
        let (terms, pixels) = (self.terms, self.arm.data.len());
        if self.sampling.basis.is_empty() {
            return None;
        }
        let mut gram = Gram::<f32>::new(terms + 1, 0);
        for start in (0..pixels).step_by(BLOCK) {
            let count = BLOCK.min(pixels - start);
            let weight = &self.arm.weight[start..start + count];
            for c in 0..terms {
                let basis = &self.sampling.basis[c * pixels + start..][..count];
                for ((s, q), w) in gram.row(c).iter_mut().zip(basis).zip(weight) {
                    *s = w * q;
                }
            }
            gram.row(terms)[..count].copy_from_slice(&self.arm.data[start..start + count]);
            gram.add(simd, count);
        }
        let mut factor = vec![0.0; packed_length(terms)];
        let mut a = vec![0.0; terms];
        for i in 0..terms {
            for j in 0..=i {
                factor[packed_index(i, j)] = gram.sum(i, j);
            }
            a[i] = gram.sum(terms, i);
        }
        if !cholesky(&mut factor, terms) {
            return None;
        }
        solve_lower(&factor, &mut a);
        solve_upper(&factor, &mut a);
        let inverse = inverse_lower(&factor, terms);
        for (target, value) in self.arm.transform.iter_mut().zip(&inverse) {
            *target = *value as f32;
        }
        for (target, value) in self.arm.continuum.iter_mut().zip(&a) {
            *target = *value as f32;
        }
        let norm = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>().sqrt();
        let ln_diagonal = (0..terms).map(|i| factor[packed_index(i, i)].ln()).sum();
        Some(Weighted { ln_diagonal, condition: norm(&factor) * norm(&inverse) })
    }
}
