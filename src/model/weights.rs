//! Weights of a spectrum's pixels: which of them count, and for how much.

use std::ops::Range;

use pulp::NullaryFnOnce;

use super::fault::place;
use super::prepare::RawArm;
use super::sampling::Sampling;
use super::{Cause, Fault, ModelArm, NonFinite, SpectralModel};
use crate::math::median;

/// Returns the inverse variance of each pixel, with the error floor applied; 0 for pixels that are masked, not used,
/// marked as bad by a huge error, or (if the settings allow it) not finite.
pub fn weights(
    model: &SpectralModel,
    arm: &ModelArm,
    raw: &RawArm,
    sampling: &Sampling,
    nonfinite: &mut usize,
) -> Result<Vec<f64>, Fault> {
    let mut ivar = match pulp::Arch::new().dispatch(Plain {
        raw,
        on: &sampling.on,
    }) {
        Some(ivar) => ivar,
        // of several arms one that was not taken is NaN throughout: it drops out. A spectrum's only arm is bad
        None if model.arms.len() > 1 && raw.ivar.iter().all(|w| w.is_nan()) => {
            vec![0.0; sampling.pixels]
        }
        None => sifted_weights(model, arm, raw, sampling, nonfinite)?,
    };
    let is_wide = is_wide(&ivar);
    if is_wide {
        leave_out_marked(&raw.flux, &mut ivar);
    }
    if model.spectra.error_floor > 0.0 {
        raise_errors(&mut ivar, model.spectra.error_floor);
    }
    if is_wide {
        check_range(arm, &raw.flux, &ivar)?;
    }
    Ok(ivar)
}

/// Ratio of the largest ivar to the smallest below which no pixel needs a closer look.
const WIDEST_USUAL: f64 = 1e8;
/// An ivar below this share of a good pixel's says nothing: a million such pixels weigh no more than 10⁻⁸ of it.
const NO_INFORMATION: f64 = 1e-14;
/// The ivar of an error of 10⁹ (and its rounding to f32). Surveys mark bad pixels with powers of ten of at least that,
/// in any unit of the flux …
const MARK: f64 = 1.000_001e-18;
/// Largest difference between the logarithm of an error and that of a mark.
const ROUNDING_OF_MARKS: f64 = 1e-6;
/// … unless the errors of good pixels are within a factor of 10⁴ of it.
const MARK_STANDS_OUT: f64 = 1e-8;
/// An ivar above this many times the median of its arm is no measurement, unless its signal-to-noise ratio is
/// plausible.
const LARGEST_IVAR: f64 = 1e12;
/// Largest signal-to-noise ratio of a measured pixel. Not far above it, rounding to f32 would decide the fit.
const LARGEST_SN: f64 = 1e5;

/// Returns whether the range of the positive values is so wide that they need a closer look.
fn is_wide(ivar: &[f64]) -> bool {
    let (smallest, largest) = pulp::Arch::new().dispatch(PositiveRange { ivar });
    largest > WIDEST_USUAL * smallest
}

/// Returns the ivar up to which a pixel may be marked as bad, if good pixels have an ivar of `good`.
fn marked_up_to(good: f64) -> f64 {
    (NO_INFORMATION * good).max(MARK.min(MARK_STANDS_OUT * good))
}

/// Returns whether the error of this ivar is a power of ten.
fn is_mark(ivar: f64) -> bool {
    let exponent = -0.5 * ivar.log10();
    (exponent - exponent.round()).abs() < ROUNDING_OF_MARKS
}

/// Sets the ivar to 0 of all pixels whose errors are so large that they mark bad pixels, however many these are.
///
/// Good pixels are those whose ivar stands out above the others; marks are found by the median of their ivar. If their
/// signal-to-noise ratio cannot be measured, they are the wrong ones: they are left to [`check_range`], and the search
/// goes on among the others.
fn leave_out_marked(flux: &[f64], ivar: &mut [f64]) {
    let mut highest = f64::INFINITY;
    // each round sets aside the pixels above `limit`, unless they are good ones
    loop {
        let remaining = || ivar.iter().copied().filter(|w| *w > 0.0 && *w <= highest);
        let limit_of_largest = marked_up_to(remaining().fold(0.0, f64::max));
        let Some(good) = median_of(remaining().filter(|w| *w > limit_of_largest)) else {
            return;
        };
        let limit = marked_up_to(good);
        if are_measured(flux, ivar, limit..highest) {
            let is_marked = |w: f64| w <= limit && (w <= NO_INFORMATION * good || is_mark(w));
            ivar.iter_mut()
                .filter(|w| is_marked(**w))
                .for_each(|w| *w = 0.0);
            return;
        }
        highest = limit;
    }
}

/// Returns whether pixels with an ivar in `range` (start excluded, end included) can be measurements. Their median
/// signal-to-noise ratio is then not below that of pixels of lower ivar, and not above that of any instrument.
fn are_measured(flux: &[f64], ivar: &[f64], range: Range<f64>) -> bool {
    let median_ratio = |is_chosen: &dyn Fn(f64) -> bool| {
        let pixels = ivar
            .iter()
            .zip(flux)
            .filter(|(w, _)| **w > 0.0 && is_chosen(**w));
        median_of(
            pixels
                .map(|(w, y)| y.abs() * w.sqrt())
                .filter(|ratio| ratio.is_finite()),
        )
        .unwrap_or(0.0)
    };
    let inside = median_ratio(&|w| w > range.start && w <= range.end);
    let below = median_ratio(&|w| w <= range.start);
    (below..=LARGEST_SN).contains(&inside)
}

/// Fails if a pixel's inverse variance is over 10¹² times the median and its signal-to-noise ratio cannot be measured.
fn check_range(arm: &ModelArm, flux: &[f64], ivar: &[f64]) -> Result<(), Fault> {
    let Some(median) = median_of(ivar.iter().copied().filter(|w| *w > 0.0)) else {
        return Ok(());
    };
    let limit = LARGEST_IVAR * median;
    let Some(j) = ivar.iter().position(|w| *w > limit) else {
        return Ok(());
    };
    if are_measured(flux, ivar, limit..f64::INFINITY) {
        return Ok(());
    }
    let detail = format!(
        "{}pixel {j}: ivar {:e} is more than {LARGEST_IVAR:e} times the median, {median:e}, and cannot be a measurement",
        place(arm),
        ivar[j]
    );
    Err(Fault {
        cause: Cause::BadWeight,
        detail,
    })
}

/// Computes the weights of a spectrum by loops without branches; `None` if a pixel is bad, as in few spectra.
struct Plain<'a> {
    raw: &'a RawArm<'a>,
    on: &'a [bool],
}

impl NullaryFnOnce for Plain<'_> {
    type Output = Option<Vec<f64>>;

    #[inline(always)]
    fn call(self) -> Option<Vec<f64>> {
        let Plain { raw, on } = self;
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
fn sifted_weights(
    model: &SpectralModel,
    arm: &ModelArm,
    raw: &RawArm,
    sampling: &Sampling,
    nonfinite: &mut usize,
) -> Result<Vec<f64>, Fault> {
    let fault = |cause, j: usize, what: String| {
        Err(Fault {
            cause,
            detail: format!("{}pixel {j}: {what}", place(arm)),
        })
    };
    let masks_nonfinite = model.spectra.nonfinite == NonFinite::Mask;
    // 1. Take over the weights. Only a masked pixel may have an invalid one.
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
            return fault(Cause::BadWeight, j, bad_ivar(w));
        }
        *target = if sampling.on[j] { w } else { 0.0 };
    }
    // 2. Check the flux of the pixels that count.
    if is_wide(&ivar) {
        leave_out_marked(&raw.flux, &mut ivar);
    }
    match (0..sampling.pixels).find(|&j| ivar[j] > 0.0 && !raw.flux[j].is_finite()) {
        Some(j) => fault(Cause::NonFiniteInput, j, format!("flux is {}", raw.flux[j])),
        None => Ok(ivar),
    }
}

/// Describes an ivar that is negative or not finite, with the sigma that it may come from, and a remedy.
fn bad_ivar(ivar: f64) -> String {
    // a file may give either of them; an f32 has the digits that two roundings leave
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

/// The least and the greatest of the positive values, infinity and 0 if there are none.
struct PositiveRange<'a> {
    ivar: &'a [f64],
}

impl NullaryFnOnce for PositiveRange<'_> {
    type Output = (f64, f64);

    /// Takes eight values side by side: one after the other each would wait for the last.
    #[inline(always)]
    fn call(self) -> (f64, f64) {
        let (mut smallest, mut largest) = ([f64::INFINITY; 8], [0f64; 8]);
        let (eights, rest) = self.ivar.as_chunks::<8>();
        let mut last = [0.0; 8];
        last[..rest.len()].copy_from_slice(rest);
        for eight in eights.iter().chain([&last]) {
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
    let smallest = *errors.select_nth_unstable_by(middle, f64::total_cmp).1 * floor;
    let largest = (smallest * smallest).recip();
    for w in ivar.iter_mut() {
        *w = w.min(largest);
    }
}
/// Returns the median of the numbers of an iterator; `None` if there are none.
fn median_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    median(&mut values.collect::<Vec<f64>>())
}
