//! Weights of a spectrum's pixels: which of them count, and for how much.

use std::ops::Range;

use pulp::NullaryFnOnce;

use super::fault::describe_place;
use super::prepare::RawArm;
use super::sampling::Sampling;
use super::{Cause, Jitter, ModelArm, NonFinite, SpectralModel, SpectrumFault};
use crate::math::median;

/// Returns the inverse variance of each pixel, with error floor and jitter applied, but not a fitted one; 0 for pixels
/// that are masked, not used, marked as bad by a huge error, or (if the settings allow it) not finite.
pub fn pixel_weights(
    model: &SpectralModel,
    arm: &ModelArm,
    raw: &RawArm,
    sampling: &Sampling,
    nonfinite: &mut usize,
) -> Result<Vec<f64>, SpectrumFault> {
    let mut ivar = match pulp::Arch::new().dispatch(UncheckedWeights {
        raw,
        on: &sampling.on,
    }) {
        Some(ivar) => ivar,
        // An arm that was not observed is NaN throughout. It drops out, unless it is the spectrum's only arm.
        None if model.arms.len() > 1 && raw.ivar.iter().all(|w| w.is_nan()) => {
            vec![0.0; sampling.pixels]
        }
        None => check_weights(model, arm, raw, sampling, nonfinite)?,
    };
    let needs_closer_look = has_wide_range(&ivar);
    if needs_closer_look {
        mask_pixels_marked_by_huge_errors(&raw.flux, &mut ivar);
    }
    if let Jitter::Fraction(fraction) = model.spectra.jitter
        && fraction > 0.0
    {
        add_jitter(&mut ivar, &raw.flux, fraction);
    }
    if model.spectra.error_floor > 0.0 {
        raise_errors(&mut ivar, model.spectra.error_floor);
    }
    if needs_closer_look {
        check_range(arm, &raw.flux, &ivar)?;
    }
    Ok(ivar)
}

/// Maximum ratio of the largest ivar to the smallest at which no pixel needs a closer look.
const MAX_USUAL_RATIO: f64 = 1e8;
/// An ivar below this share of a good pixel's is negligible: a million such pixels weigh no more than 10⁻⁸ of it.
const NEGLIGIBLE_SHARE: f64 = 1e-14;
/// Ivar of an error of 10⁹, with its rounding to f32. Surveys mark bad pixels by errors that are powers of ten and at
/// least that large, in any unit of the flux.
const MARK_IVAR: f64 = 1.000_001e-18;
/// Maximum difference between the decimal logarithm of an error and that of a mark.
const MARK_LOG_TOLERANCE: f64 = 1e-6;
/// Maximum ratio of a mark's ivar to that of good pixels, whose errors are smaller by a factor of 10⁴ or more.
const MAX_MARK_SHARE: f64 = 1e-8;
/// Maximum ratio of a pixel's ivar to the median of its arm. A larger one is no measurement, unless its signal-to-noise
/// ratio is plausible.
const MAX_IVAR_OVER_MEDIAN: f64 = 1e12;
/// Maximum signal-to-noise ratio of a measured pixel. Not far above it, rounding to f32 would determine the fit.
const MAX_SIGNAL_TO_NOISE: f64 = 1e5;

/// Returns whether the range of the positive values is so wide that they need a closer look.
fn has_wide_range(ivar: &[f64]) -> bool {
    let (smallest, largest) = pulp::Arch::new().dispatch(PositiveRange { ivar });
    largest > MAX_USUAL_RATIO * smallest
}

/// Returns the ivar up to which a pixel may be marked as bad, given the ivar of good pixels.
fn largest_marked_ivar(good_ivar: f64) -> f64 {
    (NEGLIGIBLE_SHARE * good_ivar).max(MARK_IVAR.min(MAX_MARK_SHARE * good_ivar))
}

/// Returns whether the error of this ivar is a power of ten.
fn is_power_of_ten(ivar: f64) -> bool {
    let exponent = -0.5 * ivar.log10();
    (exponent - exponent.round()).abs() < MARK_LOG_TOLERANCE
}

/// Sets the ivar of all pixels to 0 whose errors are so large that they mark bad pixels, however many these are.
///
/// Good pixels are those whose ivar stands out above the others, and marks are recognised by the median of their ivar.
/// If their signal-to-noise ratio is implausible, they are no good pixels: they are left to [`check_range`], and the
/// search continues among the others.
fn mask_pixels_marked_by_huge_errors(flux: &[f64], ivar: &mut [f64]) {
    let mut highest = f64::INFINITY;
    loop {
        // 1. Take the median ivar of those that stand out above the others.
        let remaining = || ivar.iter().copied().filter(|w| *w > 0.0 && *w <= highest);
        let limit_of_largest = largest_marked_ivar(remaining().fold(0.0, f64::max));
        let Some(good_ivar) = median_of(remaining().filter(|w| *w > limit_of_largest)) else {
            return;
        };
        // 2. If these pixels are measurements, mask the marked ones below them.
        let limit = largest_marked_ivar(good_ivar);
        if are_measured(flux, ivar, limit..highest) {
            for w in ivar.iter_mut() {
                let is_negligible = *w <= NEGLIGIBLE_SHARE * good_ivar;
                if *w <= limit && (is_negligible || is_power_of_ten(*w)) {
                    *w = 0.0;
                }
            }
            return;
        }
        // 3. Otherwise set them aside, and continue with the pixels below.
        highest = limit;
    }
}

/// Returns whether pixels with an ivar in `range` (start excluded, end included) can be measurements. Their median
/// signal-to-noise ratio is then not below that of pixels of lower ivar, and not above that of any instrument.
fn are_measured(flux: &[f64], ivar: &[f64], range: Range<f64>) -> bool {
    let ratio_inside = median_signal_to_noise(flux, ivar, |w| w > range.start && w <= range.end);
    let ratio_below = median_signal_to_noise(flux, ivar, |w| w <= range.start);
    (ratio_below..=MAX_SIGNAL_TO_NOISE).contains(&ratio_inside)
}

/// Returns the median signal-to-noise ratio of the pixels with weight whose ivar is chosen; 0 if there are none.
fn median_signal_to_noise(flux: &[f64], ivar: &[f64], is_chosen: impl Fn(f64) -> bool) -> f64 {
    let chosen_pixels = ivar
        .iter()
        .zip(flux)
        .filter(|(w, _)| **w > 0.0 && is_chosen(**w));
    let ratios = chosen_pixels.map(|(w, y)| y.abs() * w.sqrt());
    median_of(ratios.filter(|ratio| ratio.is_finite())).unwrap_or(0.0)
}

/// Fails if a pixel's inverse variance is over 10¹² times the median and its signal-to-noise ratio cannot be measured.
fn check_range(arm: &ModelArm, flux: &[f64], ivar: &[f64]) -> Result<(), SpectrumFault> {
    let Some(median) = median_of(ivar.iter().copied().filter(|w| *w > 0.0)) else {
        return Ok(());
    };
    let limit = MAX_IVAR_OVER_MEDIAN * median;
    let Some(j) = ivar.iter().position(|w| *w > limit) else {
        return Ok(());
    };
    if are_measured(flux, ivar, limit..f64::INFINITY) {
        return Ok(());
    }
    let detail = format!(
        "{}pixel {j}: ivar {:e} is more than {MAX_IVAR_OVER_MEDIAN:e} times the median, {median:e}, and cannot be a \
         measurement",
        describe_place(arm),
        ivar[j]
    );
    Err(SpectrumFault {
        cause: Cause::BadWeight,
        detail,
    })
}

/// Computes the weights of a spectrum by loops without branches; `None` if a pixel is bad, which is rare.
struct UncheckedWeights<'a> {
    raw: &'a RawArm<'a>,
    on: &'a [bool],
}

impl NullaryFnOnce for UncheckedWeights<'_> {
    type Output = Option<Vec<f64>>;

    #[inline(always)]
    fn call(self) -> Option<Vec<f64>> {
        let UncheckedWeights { raw, on } = self;
        let mut ivar = raw.ivar[..on.len()].to_vec();
        let mut bad = false;
        for (w, masked) in ivar.iter_mut().zip(raw.mask) {
            *w = if *masked { 0.0 } else { *w };
        }
        ivar.iter()
            .for_each(|w| bad |= w.is_nan() | (*w < 0.0) | (*w == f64::INFINITY));
        for ((w, on), y) in ivar.iter_mut().zip(on).zip(raw.flux.iter()) {
            *w = if *on { *w } else { 0.0 };
            bad |= (*w > 0.0) & !y.is_finite();
        }
        (!bad).then_some(ivar)
    }
}

/// Returns each pixel's inverse variance, 0 where it is not used; fails on a bad ivar, and counts or refuses pixels
/// whose flux or ivar is not finite.
fn check_weights(
    model: &SpectralModel,
    arm: &ModelArm,
    raw: &RawArm,
    sampling: &Sampling,
    nonfinite: &mut usize,
) -> Result<Vec<f64>, SpectrumFault> {
    let fault = |cause, j: usize, description: String| {
        Err(SpectrumFault {
            cause,
            detail: format!("{}pixel {j}: {description}", describe_place(arm)),
        })
    };
    let masks_nonfinite = model.spectra.nonfinite == NonFinite::Mask;
    // 1. Copy the weights. Only a masked pixel may have an invalid one.
    let mut ivar = vec![0.0; sampling.pixels];
    for (j, target) in ivar.iter_mut().enumerate() {
        let w = raw.ivar[j];
        if raw.mask.get(j).copied().unwrap_or(false) {
            continue;
        }
        if masks_nonfinite && w != 0.0 && !(w.is_finite() && raw.flux[j].is_finite()) {
            *nonfinite += usize::from(sampling.on[j]);
            continue;
        }
        if !(w.is_finite() && w >= 0.0) {
            return fault(Cause::BadWeight, j, describe_bad_ivar(w));
        }
        *target = if sampling.on[j] { w } else { 0.0 };
    }
    // 2. Surveys mark bad pixels by huge errors, which a very wide range of ivar shows. Their flux may be anything.
    if has_wide_range(&ivar) {
        mask_pixels_marked_by_huge_errors(&raw.flux, &mut ivar);
    }
    // 3. Check the flux of the pixels that count.
    match (0..sampling.pixels).find(|&j| ivar[j] > 0.0 && !raw.flux[j].is_finite()) {
        Some(j) => fault(Cause::NonFiniteInput, j, format!("flux is {}", raw.flux[j])),
        None => Ok(ivar),
    }
}

/// Describes an ivar that is negative or not finite, with the sigma that it may come from, and a remedy.
fn describe_bad_ivar(ivar: f64) -> String {
    // The file may have given sigma. Two roundings leave the digits of an f32.
    let sigma = (ivar.signum() * ivar.abs().sqrt().recip()) as f32;
    let hint = match ivar {
        f64::INFINITY => {
            ": sigma is 0 there, or the ivar was above 3e38, the largest float32 (then scale the flux, or save ivar as \
             float64, or give sigma); nonfinite = \"mask\" masks such pixels"
        }
        w if w.is_nan() => "; nonfinite = \"mask\" masks such pixels",
        _ => "",
    };
    format!("ivar is {ivar} (sigma {sigma}){hint}")
}

/// Computes the smallest and the largest of the positive values; infinity and 0 if there are none.
struct PositiveRange<'a> {
    ivar: &'a [f64],
}

impl NullaryFnOnce for PositiveRange<'_> {
    type Output = (f64, f64);

    /// Compares eight values at a time in lanes of their own. In a single lane each comparison would wait for the last.
    #[inline(always)]
    fn call(self) -> (f64, f64) {
        let mut smallest = [f64::INFINITY; 8];
        let mut largest = [0f64; 8];
        let (eights, rest) = self.ivar.as_chunks::<8>();
        let mut padded_rest = [0.0; 8];
        padded_rest[..rest.len()].copy_from_slice(rest);
        for eight in eights.iter().chain([&padded_rest]) {
            for ((w, smallest), largest) in eight.iter().zip(&mut smallest).zip(&mut largest) {
                *smallest = if *w > 0.0 && *w < *smallest {
                    *w
                } else {
                    *smallest
                };
                *largest = if *w > *largest { *w } else { *largest };
            }
        }
        (
            smallest.into_iter().fold(f64::INFINITY, f64::min),
            largest.into_iter().fold(0.0, f64::max),
        )
    }
}

/// Adds the fraction `jitter` of each pixel's flux to its error in quadrature. Pixels without weight keep none.
fn add_jitter(ivar: &mut [f64], flux: &[f64], jitter: f64) {
    for (w, flux) in ivar.iter_mut().zip(flux) {
        if *w > 0.0 {
            // 1 / (1/w + (jitter · flux)²) without a quotient that overflows
            let added = jitter * flux;
            *w /= 1.0 + *w * added * added;
        }
    }
}

/// Raises pixels' errors 1/√ivar that are below `floor` × the median error to that value, by lowering `ivar`.
fn raise_errors(ivar: &mut [f64], floor: f64) {
    let mut errors: Vec<f64> = ivar
        .iter()
        .filter(|w| **w > 0.0)
        .map(|w| w.sqrt().recip())
        .collect();
    if errors.is_empty() {
        return;
    }
    let middle = errors.len() / 2;
    let smallest_error = *errors.select_nth_unstable_by(middle, f64::total_cmp).1 * floor;
    let largest_ivar = (smallest_error * smallest_error).recip();
    for w in ivar.iter_mut() {
        *w = w.min(largest_ivar);
    }
}

/// Returns the median of the numbers of an iterator; `None` if there are none.
fn median_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    median(&mut values.collect::<Vec<f64>>())
}
