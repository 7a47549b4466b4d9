//! Bits of masks that widen the errors of pixels instead of masking them.

use super::{ArmSpectra, Spectra};
use crate::error::{Error, Result};

/// All bits, for masks in which any bit masks a pixel.
pub(super) const ALL_BITS: u64 = u64::MAX;
/// Magnitude below which f64 represents every integer exactly.
const MAX_EXACT_INTEGER: f64 = (1u64 << f64::MANTISSA_DIGITS) as f64;

/// Bits of integer masks that do not mask a pixel but widen its error by a factor.
///
/// A pixel that has some of these bits, and none of the others that mask pixels, counts with the inverse variance
/// ivar / factor². Any other bit that masks a pixel masks it as without this rule.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Widening {
    /// Bits from 0, the lowest, to 63.
    pub bits: Vec<u8>,
    /// Factor of the errors, at least 1.
    pub factor: f64,
}

impl Widening {
    /// Highest bit of a mask.
    pub(crate) const MAX_MASK_BIT: u8 = 63;

    /// Makes the rule that pixels with these bits, counted from 0, have their errors times `factor`.
    pub fn new(bits: impl Into<Vec<u8>>, factor: f64) -> Widening {
        Widening {
            bits: bits.into(),
            factor,
        }
    }

    /// Returns the invalid setting and the reason; `None` if both are valid.
    pub(crate) fn fault(&self) -> Option<(&'static str, String)> {
        if self.bits.is_empty() {
            return Some(("bits", "must name a bit".to_string()));
        }
        if let Some(bit) = self.bits.iter().find(|bit| **bit > Widening::MAX_MASK_BIT) {
            return Some((
                "bits",
                format!(
                    "must be bits from 0 to {}, not {bit}",
                    Widening::MAX_MASK_BIT
                ),
            ));
        }
        for (k, bit) in self.bits.iter().enumerate() {
            if self.bits.iter().take(k).any(|earlier| earlier == bit) {
                return Some(("bits", format!("must not have bit {bit} twice")));
            }
        }
        if self.factor.is_finite() && self.factor >= 1.0 {
            return None;
        }
        let message = format!("must be a finite number of 1 or more, not {}", self.factor);
        Some(("factor", message))
    }

    /// Fails if the rule is invalid.
    pub(super) fn check(&self) -> Result<()> {
        match self.fault() {
            Some((key, message)) => Err(Error::Usage(format!("widen: `{key}` {message}"))),
            None => Ok(()),
        }
    }
}

/// The rule with which an arm's mask was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AppliedWidening {
    pub(crate) widening: Widening,
    /// True if the arm has a mask of integers, not of booleans or none.
    pub(crate) has_bits: bool,
}

/// Meaning of a pixel's mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PixelMask {
    /// The pixel counts.
    Good,
    /// The pixel does not count.
    Masked,
    /// The pixel counts with its error times the factor of the widening.
    Widened,
}

/// Meaning of the bits of masks.
#[derive(Clone, Debug)]
pub(super) struct MaskRule {
    /// Bits that mask a pixel.
    masking_bits: u64,
    /// Bits that widen errors; 0 without a widening.
    widening_bits: u64,
    widening: Option<Widening>,
}

impl MaskRule {
    /// Makes a rule by which the bits `masking_bits` mask a pixel, unless all of these that it has are bits of the
    /// widening.
    pub(super) fn new(masking_bits: u64, widening: Option<&Widening>) -> MaskRule {
        let bits = widening.map_or(&[][..], |widening| &widening.bits);
        let widening_bits = bits
            .iter()
            .filter_map(|bit| 1u64.checked_shl(u32::from(*bit)))
            .fold(0, |combined, bit| combined | bit);
        MaskRule {
            masking_bits,
            widening_bits,
            widening: widening.cloned(),
        }
    }

    /// Returns whether errors are to be widened.
    pub(super) fn widens(&self) -> bool {
        self.widening.is_some()
    }

    /// Returns the record of this rule for an arm that is read by it; `None` if no widening was asked for.
    pub(super) fn applied_widening(&self, has_bits: bool) -> Option<AppliedWidening> {
        self.widening
            .clone()
            .map(|widening| AppliedWidening { widening, has_bits })
    }

    /// Returns the meaning of a pixel's bits.
    pub(super) fn judge_bits(&self, bits: u64) -> PixelMask {
        if bits & self.masking_bits & !self.widening_bits != 0 {
            PixelMask::Masked
        } else if bits & self.widening_bits != 0 {
            PixelMask::Widened
        } else {
            PixelMask::Good
        }
    }

    /// Returns the meaning of a number whose bits are those of an integer of `bytes` bytes. A number that is no
    /// integer, or so large that f64 may have rounded it, has no known bits, and masks a pixel as without widening.
    pub(super) fn judge_number(&self, number: f64, bytes: usize) -> PixelMask {
        if self.widens() && number.abs() < MAX_EXACT_INTEGER && number.fract() == 0.0 {
            return self.judge_bits(number as i64 as u64 & lowest_bytes(bytes));
        }
        let is_masked = if self.masking_bits == ALL_BITS {
            number != 0.0
        } else {
            number as i64 as u64 & self.masking_bits != 0
        };
        if is_masked {
            PixelMask::Masked
        } else {
            PixelMask::Good
        }
    }
}

/// Fails if errors are to be widened by bits of masks, and no arm of these spectra has a mask with bits. `place` names
/// their files; it is empty for arrays.
pub(super) fn require_mask_bits(
    place: &str,
    heads: &[Spectra],
    widening: Option<&Widening>,
) -> Result<()> {
    let mut arms = heads.iter().flat_map(|head| &head.arms);
    let has_bits = |arm: &ArmSpectra| {
        arm.widening
            .as_ref()
            .is_some_and(|widening| widening.has_bits)
    };
    if widening.is_none() || arms.any(has_bits) {
        return Ok(());
    }
    let place = if place.is_empty() {
        String::new()
    } else {
        format!("{place}: ")
    };
    Err(Error::Usage(format!(
        "{place}errors are to be widened by bits of masks (`spectra.widen` in the model file), but there is no mask \
         with bits: masks are of booleans, or there are none; give a mask of integers, or leave `widen` out"
    )))
}

/// Returns a mask of the bits of an integer of `bytes` bytes, at most 8.
fn lowest_bytes(bytes: usize) -> u64 {
    u64::MAX >> (64 - 8 * bytes.clamp(1, 8))
}

impl<'a> ArmSpectra<'a> {
    /// Replaces the mask by the bits of integers (n × pixels): pixels whose bits are all among those of `widening` have
    /// their ivar divided by its factor², those with any other bit are masked. A model that asks for
    /// [widened errors](crate::SpectraSettings::widen) takes arrays only if they were made with the same rule.
    ///
    /// # Errors
    /// `ShapeMismatch` if the numbers of bits and values of the flux differ; `Usage` for a rule without bits, with a
    /// bit above 63 or twice, or with a factor that is not finite and at least 1, and for an arm whose errors were
    /// widened before.
    pub fn with_mask_bits(self, bits: &[u64], widening: &Widening) -> Result<ArmSpectra<'a>> {
        widening.check()?;
        if self.widening.is_some() {
            return Err(Error::Usage(
                "the bits of the mask were given before: errors would be widened twice".into(),
            ));
        }
        let rule = MaskRule::new(ALL_BITS, Some(widening));
        self.with_pixel_masks(
            bits.iter().map(|bits| rule.judge_bits(*bits)).collect(),
            rule.applied_widening(true),
        )
    }

    /// Masks pixels, and widens the errors of others, by the meaning of their bits.
    pub(super) fn with_pixel_masks(
        mut self,
        pixels: Vec<PixelMask>,
        applied: Option<AppliedWidening>,
    ) -> Result<ArmSpectra<'a>> {
        let is_widened = |k: usize| pixels.get(k) == Some(&PixelMask::Widened);
        if let Some(AppliedWidening { widening, .. }) = &applied
            && pixels.len() == self.ivar.len()
            && pixels.contains(&PixelMask::Widened)
        {
            self.ivar
                .divide_where(is_widened, widening.factor * widening.factor);
        }
        self.widening = applied;
        // `collect` uses the memory of `pixels` again.
        let mask = pixels.into_iter().map(|pixel| pixel == PixelMask::Masked);
        self.with_mask(mask.collect::<Vec<bool>>())
    }
}
