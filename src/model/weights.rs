//! Weights of a spectrum's pixels: which of them count, and for how much.

use pulp::NullaryFnOnce;

use super::fault::place;
use super::prepare::RawArm;
use super::sampling::Sampling;
use super::{Cause, Fault, ModelArm, NonFinite, SpectralModel};

/// Returns the inverse variance of each pixel, with the error floor applied; 0 for pixels that are masked, not used,
/// or, where the settings allow it, of non-finite flux.
pub fn weights(
    model: &SpectralModel,
    arm: &ModelArm,
    raw: &RawArm,
    sampling: &Sampling,
    nonfinite: &mut usize,
) -> Result<Vec<f64>, Fault> {
    let mut ivar = match pulp::Arch::new().dispatch(Plain { raw, on: &sampling.on }) {
        Some(ivar) => ivar,
        // of several arms one that was not taken is NaN throughout: it drops out. A spectrum's only arm is bad
        None if model.arms.len() > 1 && raw.ivar.iter().all(|w| w.is_nan()) => vec![0.0; sampling.pixels],
        None => sifted_weights(model, arm, raw, sampling, nonfinite)?,
    };
    if model.spectra.error_floor > 0.0 {
        raise_errors(&mut ivar, model.spectra.error_floor);
    }
    check_range(arm, &ivar)?;
    Ok(ivar)
}

/// An ivar above this many times the median of its arm's is no measurement: rounding of √ivar · flux would decide the
/// fit.
const LARGEST_IVAR: f64 = 1e12;
/// Unless at least one pixel in so many has an ivar above the square root of that: then the others are the ones whose
/// weights were lowered …
const RARE: usize = 100;
/// … by twelve decades at most, so that none is above this many times the median.
const LARGEST_OF_LOWERED: f64 = 1e13;

/// Fails if a pixel's inverse variance is over 10¹² times the median, or 10¹³ times where 1 % of the pixels or more
/// stand out.
fn check_range(arm: &ModelArm, ivar: &[f64]) -> Result<(), Fault> {
    let (smallest, largest) = range(ivar);
    // the median is no smaller than the smallest, and most spectra need no median
    if largest <= LARGEST_IVAR * smallest {
        return Ok(());
    }
    let mut all: Vec<f64> = ivar.iter().copied().filter(|w| *w > 0.0).collect();
    let middle = all.len() / 2;
    let median = *all.select_nth_unstable_by(middle, f64::total_cmp).1;
    let large = all.iter().filter(|w| **w > LARGEST_IVAR.sqrt() * median).count();
    let most = if large * RARE < all.len() { LARGEST_IVAR } else { LARGEST_OF_LOWERED };
    let Some(j) = ivar.iter().position(|w| *w > most * median) else { return Ok(()) };
    let detail =
        format!("{}pixel {j}: ivar {:e} is more than {most:e} times the median, {median:e}", place(arm), ivar[j]);
    Err(Fault { cause: Cause::BadWeight, detail })
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
        ivar.iter().for_each(|w| bad |= w.is_nan() | (*w < 0.0) | (*w == f64::INFINITY));
        for ((w, on), y) in ivar.iter_mut().zip(on).zip(raw.flux.iter()) {
            *w = if *on { *w } else { 0.0 };
            bad |= (*w > 0.0) & !y.is_finite();
        }
        (!bad).then_some(ivar)
    }
}

/// Returns each pixel's inverse variance, 0 where it is not used; fails on a bad ivar, and counts or refuses flux that
/// is not finite.
fn sifted_weights(
    model: &SpectralModel,
    arm: &ModelArm,
    raw: &RawArm,
    sampling: &Sampling,
    nonfinite: &mut usize,
) -> Result<Vec<f64>, Fault> {
    let fault =
        |cause, j: usize, what: String| Err(Fault { cause, detail: format!("{}pixel {j}: {what}", place(arm)) });
    let mut ivar = vec![0.0; sampling.pixels];
    for (j, target) in ivar.iter_mut().enumerate() {
        let (y, w) = (raw.flux[j], raw.ivar[j]);
        if raw.mask.get(j).copied().unwrap_or(false) {
            continue;
        }
        if !(w.is_finite() && w >= 0.0) {
            // files may give the one or the other; an f32 has the digits that two roundings leave
            let sigma = (w.signum() * w.abs().sqrt().recip()) as f32;
            return fault(Cause::BadWeight, j, format!("ivar is {w} (sigma {sigma})"));
        }
        if w == 0.0 || !sampling.on[j] {
            continue;
        }
        if !y.is_finite() {
            match model.spectra.nonfinite {
                NonFinite::Error => return fault(Cause::NonFiniteInput, j, format!("flux is {y}")),
                NonFinite::Mask => *nonfinite += 1,
            }
            continue;
        }
        *target = w;
    }
    Ok(ivar)
}

/// Returns the least and the greatest of the positive values, infinity and 0 if there are none; eight side by side, as
/// one after the other each would wait for the last.
fn range(ivar: &[f64]) -> (f64, f64) {
    let (mut smallest, mut largest) = ([f64::INFINITY; 8], [0f64; 8]);
    let (eights, rest) = ivar.as_chunks::<8>();
    for eight in eights.iter().map(<[f64; 8]>::as_slice).chain([rest]) {
        for ((w, smallest), largest) in eight.iter().zip(&mut smallest).zip(&mut largest) {
            *smallest = if *w > 0.0 && *w < *smallest { *w } else { *smallest };
            *largest = if *w > *largest { *w } else { *largest };
        }
    }
    (smallest.into_iter().fold(f64::INFINITY, f64::min), largest.into_iter().fold(0.0, f64::max))
}

/// Raises pixels' errors 1/√ivar that are below `floor` × the median error to that value, by lowering `ivar`.
fn raise_errors(ivar: &mut [f64], floor: f64) {
    let mut errors: Vec<f64> = ivar.iter().filter(|w| **w > 0.0).map(|w| w.sqrt().recip()).collect();
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
