//! Prepares the arrays of one spectrum for the device: checks, masks and weights them, and makes the continuum basis
//! orthonormal (see `docs/src/equations.md`).
//!
//! An arm without unmasked pixels contributes exactly zero.

use std::borrow::Cow;
use std::sync::Arc;

use pulp::NullaryFnOnce;

use super::clean::replace_outliers;
use super::fault::{Cause, SpectrumFault, describe_place};
use super::jitter::ArmJitter;
use super::noise::{NoiseFactor, RawCovariance};
use super::reach::{Motion, PixelCounts};
use super::sampling::{Sampling, padded};
use super::set_basis::set_basis;
use super::weights::pixel_weights;
use super::{ModelArm, SpectralModel};
use crate::math::gram::PIXELS_PER_BLOCK;
use crate::math::logarithms::{SUMS_SIDE_BY_SIDE, sum_of_logarithms};

/// One arm of one spectrum, ready for the device. The shape of arrays is (padded) unless stated otherwise. The CPU
/// reads an array in an [`Arc`] without copying it.
#[derive(Clone, Debug, Default)]
pub struct PreparedArm {
    /// √ivar flux; 0 where masked.
    pub weighted_flux: Arc<Vec<f32>>,
    /// The same without cosmic rays and deep negative pixels, for the first guess and the continuum without lines; the
    /// data themselves unless the model has a robust loss.
    pub cleaned: Arc<Vec<f32>>,
    /// √ivar / `scale`, about 1; 0 where masked.
    pub weight: Arc<Vec<f32>>,
    /// (terms, terms) Lower-triangular transform from the basis to one that is orthonormal under `weight`.
    pub transform: Vec<f32>,
    /// Sampling of the part of the grid that has weight, if the spectrum uses its basis.
    pub window: Option<Arc<Sampling>>,
    /// (terms, padded) Basis of this spectrum alone, where its weights leave the shared ones ill conditioned; else
    /// empty.
    pub basis: Arc<Vec<f32>>,
    /// Number of continuum terms that the weights determine: 0 where the arm drops out.
    pub rank: usize,
    /// (diagonals, padded) The spectrum's resolution matrix; empty if the model uses none.
    pub resolution: Arc<Vec<f32>>,
    /// Factor that whitens residuals; `None` if the noise of no two pixels is correlated.
    pub noise: Option<Arc<NoiseFactor>>,
    /// Mean √ivar. Without a continuum, which would absorb this factor, the reciprocal of the template's unit.
    pub scale: f64,
    /// (terms) Coefficients of the continuum fitted without the model's lines.
    pub continuum: Vec<f32>,
    /// Number of pixels with weight that are left out because the template does not cover them.
    pub unreached: usize,
    /// The fitted jitter that the weights contain; `None` before one is known.
    pub jitter: Option<Arc<ArmJitter>>,
}

impl PreparedArm {
    /// Returns the continuum basis (terms, padded) of the spectrum's coefficients: its own, that of a window, or the
    /// grid's.
    pub fn basis<'a>(&'a self, grid: &'a Sampling) -> &'a Arc<Vec<f32>> {
        if self.basis.is_empty() {
            &self.window.as_deref().unwrap_or(grid).basis
        } else {
            &self.basis
        }
    }

    /// Returns whether the continuum basis is that of the whole grid.
    pub fn has_grid_basis(&self) -> bool {
        self.basis.is_empty() && self.window.is_none()
    }

    /// Computes weight · continuum at each pixel, the continuum being fitted without the model's lines (padded). The
    /// result is not stored, because it would be a third of all prepared data.
    pub fn weighted_continuum(&self, sampling: &Sampling) -> Vec<f32> {
        if self.continuum.is_empty() {
            return self.weight.to_vec();
        }
        let mut sums = vec![0.0; self.weight.len()];
        pulp::Arch::new().dispatch(AddContinuum {
            arm: self,
            sampling,
            sums: &mut sums,
        });
        sums
    }
}

/// Adds weight · continuum to `sums`.
struct AddContinuum<'a> {
    arm: &'a PreparedArm,
    sampling: &'a Sampling,
    sums: &'a mut [f32],
}

impl NullaryFnOnce for AddContinuum<'_> {
    type Output = ();

    /// Adds up block by block, so that the sums stay in the cache.
    #[inline(always)]
    fn call(self) {
        let AddContinuum {
            arm,
            sampling,
            sums,
        } = self;
        let pixels = sums.len();
        let basis = arm.basis(sampling);
        let blocks = sums
            .chunks_mut(PIXELS_PER_BLOCK)
            .zip(arm.weight.chunks(PIXELS_PER_BLOCK))
            .enumerate();
        for (block, (sums, weight)) in blocks {
            for (c, coefficient) in arm.continuum.iter().take(arm.rank).enumerate() {
                let basis = &basis[c * pixels + block * PIXELS_PER_BLOCK..];
                for ((sum, q), w) in sums.iter_mut().zip(basis).zip(weight) {
                    *sum += coefficient * q * w;
                }
            }
        }
    }
}

/// One spectrum, ready for the device.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub arms: Vec<PreparedArm>,
    /// Number of pixels that count.
    pub unmasked: usize,
    /// Number of pixels that the model covers and does not mask, in arms with weight. The spectrum may mask some of
    /// them.
    pub in_range: usize,
    /// Number of continuum terms that the weights determine, over all arms.
    pub rank: usize,
    /// Number of pixels that were masked because they are not finite.
    pub nonfinite: usize,
    /// Median of |flux| √ivar.
    pub signal_to_noise: f64,
    /// Term that marginalisation adds to the device's ln det C: constants of the bases, and the ln det of the noise's
    /// covariance, which is − Σ ln ivar unless the noise is correlated.
    pub marginal_constant: f64,
    /// Σ ln (V / σ²), by which a fitted jitter raises −2 ln L; σ² and V are the variances without and with it.
    pub jitter_constant: f64,
    /// Velocities and vsini that determine which pixels count; `None` before they are known.
    pub motion: Option<Motion>,
}

impl Prepared {
    /// Returns whether the noise of any two pixels that count is correlated.
    pub fn has_correlated_noise(&self) -> bool {
        self.arms.iter().any(|arm| arm.noise.is_some())
    }
}

/// Arrays of one spectrum in one arm (pixels).
#[derive(Clone)]
pub struct RawArm<'a> {
    /// Wavelengths in Å; empty where the weights are known to suit the grid's basis.
    pub wavelength: Cow<'a, [f64]>,
    pub flux: Cow<'a, [f64]>,
    pub ivar: Cow<'a, [f64]>,
    /// Masked pixels; empty without a mask.
    pub mask: &'a [bool],
    /// (diagonals, pixels) Resolution matrix, if the model uses it.
    pub resolution: Option<&'a [f32]>,
    /// Covariance of the noise, if the spectrum has one.
    pub covariance: Option<RawCovariance<'a>>,
}

/// Weights and scales the arms of a spectrum and their continuum bases for the device, or returns the fault that
/// excludes the spectrum. At a `motion`, pixels that the templates do not cover, and those in masks of the star's
/// frame, do not count. A fitted jitter (arms; or empty) is added to the errors.
pub fn prepare_spectrum(
    model: &SpectralModel,
    raw: &[RawArm],
    samplings: &[&Sampling],
    motion: Option<&Motion>,
    jitters: &[Arc<ArmJitter>],
) -> Result<Prepared, SpectrumFault> {
    // 1. Prepare the arms, and add up what they contribute.
    let mut prepared = Prepared {
        arms: Vec::with_capacity(raw.len()),
        unmasked: 0,
        in_range: 0,
        rank: 0,
        nonfinite: 0,
        signal_to_noise: 0.0,
        marginal_constant: 0.0,
        jitter_constant: 0.0,
        motion: motion.cloned(),
    };
    let mut ratio_bits = Vec::new();
    for (a, ((arm, raw), sampling)) in model.arms.iter().zip(raw).zip(samplings).enumerate() {
        let resolved = match &raw.covariance {
            Some(covariance) => Some(RawArm {
                ivar: Cow::Owned(covariance.resolve_ivar(model, arm, &raw.ivar, raw.mask)?),
                ..raw.clone()
            }),
            None => None,
        };
        let raw = resolved.as_ref().unwrap_or(raw);
        let mut ivar = pixel_weights(model, arm, raw, sampling, &mut prepared.nonfinite)?;
        let arm_motion = motion.map(|motion| motion.of_arm(a));
        let counts = PixelCounts::mask_uncounted(arm, sampling, arm_motion, &mut ivar);
        if let Some(jitter) = jitters.get(a) {
            prepared.jitter_constant += jitter.lower_weights(&mut ivar);
        }
        let mut prepared_arm = prepare_arm(
            arm,
            raw,
            sampling,
            &ivar,
            counts,
            model.loss().is_some(),
            &mut prepared,
        )?;
        prepared_arm.jitter = jitters.get(a).cloned();
        // The bits of positive numbers have the order of the numbers.
        ratio_bits.extend(
            prepared_arm
                .weighted_flux
                .iter()
                .map(|ratio| ratio.abs().to_bits()),
        );
        prepared.arms.push(prepared_arm);
    }
    // 2. Check that the pixels suffice.
    if prepared.unmasked == 0 {
        return Err(no_data_fault(&prepared, raw, samplings));
    }
    let free = model.parameters.iter().filter(|p| !p.is_held()).count();
    if prepared.unmasked < free + prepared.rank {
        return Err(underdetermined_fault(
            prepared.unmasked,
            free,
            prepared.rank,
        ));
    }
    // 3. Take the median signal-to-noise ratio. Zeros come first in the order; they stand for pixels without data.
    let zeros = ratio_bits.iter().filter(|bits| **bits == 0).count();
    if zeros < ratio_bits.len() {
        let middle = zeros + (ratio_bits.len() - zeros) / 2;
        let (_, median_bits, _) = ratio_bits.select_nth_unstable(middle);
        prepared.signal_to_noise = f64::from(f32::from_bits(*median_bits));
    }
    Ok(prepared)
}

/// Returns the fault of a spectrum without a pixel that counts.
fn no_data_fault(prepared: &Prepared, raw: &[RawArm], samplings: &[&Sampling]) -> SpectrumFault {
    let reason = if samplings.iter().all(|sampling| sampling.used == 0) {
        "the model's masks cover all"
    } else if prepared.arms.iter().any(|arm| arm.unreached > 0) {
        "the template ends too near, and covers none of the unmasked ones at the velocity and vsini of the star"
    } else if raw.iter().any(may_have_underflowed) {
        "ivar is 0 where the flux is above 1e15: a float32 below 1e-45 is 0 (scale the flux, or save ivar as float64, or \
         give sigma)"
    } else if prepared.nonfinite > 0 {
        "all are masked, have ivar 0 or are not finite (flux or error NaN, sigma 0, or an ivar above 3e38 in float32)"
    } else {
        "all are masked or have ivar 0"
    };
    SpectrumFault {
        cause: Cause::NoData,
        detail: format!("no pixel counts: {reason}"),
    }
}

/// Returns whether all weights of an arm are 0 and its flux is so large that an ivar in f32 may have become 0.
fn may_have_underflowed(raw: &RawArm) -> bool {
    raw.ivar.iter().all(|w| *w == 0.0) && raw.flux.iter().any(|y| y.abs() > 1e15 && y.is_finite())
}

/// Returns the fault of a spectrum that has fewer unmasked pixels than free parameters and continuum terms.
fn underdetermined_fault(pixels: usize, free: usize, rank: usize) -> SpectrumFault {
    let detail = format!(
        "{pixels} unmasked pixels are fewer than {free} free parameters plus the {rank} continuum terms that they \
         determine"
    );
    SpectrumFault {
        cause: Cause::Underdetermined,
        detail,
    }
}

/// Prepares one arm, and adds its pixels, continuum terms and marginalisation constant to the totals in `prepared`. An
/// arm without weight drops out.
fn prepare_arm(
    arm: &ModelArm,
    raw: &RawArm,
    sampling: &Sampling,
    ivar: &[f64],
    PixelCounts {
        in_range,
        unreached,
    }: PixelCounts,
    has_loss: bool,
    prepared: &mut Prepared,
) -> Result<PreparedArm, SpectrumFault> {
    let terms = arm.continuum.terms;
    let pixels = padded(sampling.pixels);
    let count = ivar.iter().filter(|w| **w > 0.0).count();
    // 1. An arm without weight drops out: its sums are exactly zero.
    let mut out = PreparedArm {
        weighted_flux: vec![0.0; pixels].into(),
        cleaned: Arc::default(),
        weight: vec![0.0; pixels].into(),
        transform: vec![0.0; terms * terms],
        window: None,
        basis: Arc::default(),
        rank: 0,
        resolution: pad_resolution(arm, raw, sampling, ivar)?.into(),
        noise: None,
        scale: arm.unit.recip(),
        continuum: vec![0.0; terms],
        unreached,
        jitter: None,
    };
    if count == 0 {
        out.cleaned = out.weighted_flux.clone();
        return Ok(out);
    }
    // 2. Weight the data, and check them.
    let ln_ivar = pulp::Arch::new().dispatch(FluxWeighting {
        flux: &raw.flux,
        ivar,
        count,
        arm: &mut out,
    });
    if let Some(j) = find_nonfinite_pixel(&out, sampling.pixels) {
        let detail = format!(
            "{}pixel {j}: flux {} with ivar {} is out of range",
            describe_place(arm),
            raw.flux[j],
            ivar[j]
        );
        return Err(SpectrumFault {
            cause: Cause::BadWeight,
            detail,
        });
    }
    out.cleaned = if has_loss {
        replace_outliers(&raw.flux, ivar, &out.weighted_flux).into()
    } else {
        out.weighted_flux.clone()
    };
    prepared.unmasked += count;
    prepared.in_range += in_range;
    prepared.marginal_constant -= ln_ivar;
    if let Some(covariance) = &raw.covariance {
        out.noise = covariance.factorise(arm, ivar)?.map(Arc::new);
        prepared.marginal_constant += out.noise.as_ref().map_or(0.0, |noise| noise.ln_det());
    }
    // 3. Choose the continuum basis.
    if terms == 0 {
        return Ok(out);
    }
    prepared.marginal_constant += set_basis(arm, raw, sampling, &mut out)?;
    // C has two factors of the template, and so of its unit, per term.
    prepared.marginal_constant += 2.0 * out.rank as f64 * arm.unit.ln();
    prepared.rank += out.rank;
    Ok(out)
}

/// Returns the index of the first pixel whose data or weight is not finite; `None` if all are.
fn find_nonfinite_pixel(arm: &PreparedArm, pixels: usize) -> Option<usize> {
    // Most spectra have none, so a test without branches comes before the search for the pixel.
    let has_nonfinite = |values: &[f32]| values.iter().fold(false, |bad, x| bad | !x.is_finite());
    if has_nonfinite(&arm.weighted_flux) || has_nonfinite(&arm.weight) {
        (0..pixels).find(|&j| !arm.weighted_flux[j].is_finite() || !arm.weight[j].is_finite())
    } else {
        None
    }
}

/// Copies a spectrum's resolution matrix to padded diagonals; fails if a pixel that counts reads a value that is not
/// finite. Other values that are not finite become 0.
fn pad_resolution(
    arm: &ModelArm,
    raw: &RawArm,
    sampling: &Sampling,
    ivar: &[f64],
) -> Result<Vec<f32>, SpectrumFault> {
    let pixels = sampling.pixels;
    let stride = padded(pixels);
    let Some(matrix) = raw.resolution else {
        return Ok(Vec::new());
    };
    let diagonals = matrix.len() / pixels;
    let mut padded_matrix = vec![0.0; diagonals * stride];
    for (d, (row, target)) in matrix
        .chunks_exact(pixels)
        .zip(padded_matrix.chunks_exact_mut(stride))
        .enumerate()
    {
        for (column, (value, target)) in row.iter().zip(target).enumerate() {
            if value.is_finite() {
                *target = *value;
                continue;
            }
            let reading_pixel = (column + d).checked_sub(diagonals / 2);
            if reading_pixel.is_some_and(|j| ivar.get(j).is_some_and(|w| *w > 0.0)) {
                let detail = format!(
                    "arm {}, resolution, diagonal {d}, pixel {column}: {value}",
                    arm.name
                );
                return Err(SpectrumFault {
                    cause: Cause::NonFiniteInput,
                    detail,
                });
            }
        }
    }
    Ok(padded_matrix)
}

/// Computes data and weights of an arm with pixels that count, and the scale of the weights where there is a continuum.
struct FluxWeighting<'a> {
    flux: &'a [f64],
    ivar: &'a [f64],
    count: usize,
    arm: &'a mut PreparedArm,
}

impl NullaryFnOnce for FluxWeighting<'_> {
    /// Sum Σ ln ivar over the pixels that count.
    type Output = f64;

    #[inline(always)]
    fn call(self) -> f64 {
        let FluxWeighting {
            flux,
            ivar,
            count,
            arm,
        } = self;
        let root: Vec<f64> = ivar.iter().map(|w| w.sqrt()).collect();
        // The mean scales as the data do, so that the device gets the same numbers in any unit, to the last bit if two
        // units differ by a power of two.
        if !arm.transform.is_empty() {
            let mut sums = [0.0; SUMS_SIDE_BY_SIDE];
            for part in root.chunks(SUMS_SIDE_BY_SIDE) {
                sums.iter_mut()
                    .zip(part)
                    .for_each(|(sum, root)| *sum += root);
            }
            arm.scale = sums.iter().sum::<f64>() / count as f64;
        }
        let scale = arm.scale;
        for ((data, flux), root) in Arc::make_mut(&mut arm.weighted_flux)
            .iter_mut()
            .zip(flux)
            .zip(&root)
        {
            let value = (*flux * *root) as f32;
            *data = if *root > 0.0 { value } else { 0.0 };
        }
        Arc::make_mut(&mut arm.weight)
            .iter_mut()
            .zip(&root)
            .for_each(|(weight, root)| *weight = (*root / scale) as f32);
        ivar.chunks(4096).map(sum_of_logarithms).sum()
    }
}
