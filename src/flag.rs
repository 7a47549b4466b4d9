//! Flags of a fit, the bits of [`FitRow::flags`](crate::FitRow::flags).
//!
//! The list below is the only place in which flags are defined: the constants, [`Flags::DESCRIPTIONS`], the report, the
//! tables' key `popfit.flags` and (by a test) `docs/src/results.md` follow from it. A new flag is a new line.

use std::fmt;

/// A flag: its bit, its names and its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlagDescription {
    /// The bit, a power of two.
    pub bit: u32,
    /// The constant's name.
    pub name: &'static str,
    /// The short name that the report shows.
    pub label: &'static str,
    /// Meaning of the bit when it is set, in ASCII.
    pub meaning: &'static str,
}

/// Defines a constant for each flag, and the descriptions, from one list.
macro_rules! flags {
    ($($name:ident = $bit:literal, $label:literal, $meaning:literal;)*) => {
        bitflags::bitflags! {
            /// Flags of a fit: facts that its user should know. [`DESCRIPTIONS`](Flags::DESCRIPTIONS) lists them.
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
            pub struct Flags: u32 {
                $(
                    #[doc = concat!("Flag ", $bit, ", ", $label, ": ", $meaning, ".")]
                    const $name = $bit;
                )*
            }
        }

        impl Flags {
            /// All flags, from the lowest bit up, without a gap.
            pub const DESCRIPTIONS: &[FlagDescription] =
                &[$(FlagDescription { bit: $bit, name: stringify!($name), label: $label, meaning: $meaning }),*];
        }
    };
}

impl fmt::Display for Flags {
    /// Writes the names, joined by ` | `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags::parser::to_writer(self, f)
    }
}

flags! {
    START_CLIPPED = 1, "start clipped", "a start was outside its bounds and was moved onto them";
    UNDETERMINED = 2, "undetermined", "the data do not determine some of the parameters: their errors are infinite";
    NONFINITE_MASKED = 4, "non-finite masked", "pixels that were not finite are masked";
    OUTSIDE_HULL = 8, "outside training set",
        "outside the training hull of an emulator, or outside the training range of a label that no hull covers";
    AT_BOUND = 16, "at bound", "a parameter ended at a bound, other than with flag 4096";
    MULTIMODAL = 32, "multimodal", "another start ended elsewhere, less than 9 above in the objective";
    POOR_CHI2 = 64, "poor χ²", "poor fit: chi2/dof is above 2";
    LOW_SN = 128, "low S/N", "low signal-to-noise ratio: the median is below 5 per pixel";
    MANY_MASKED = 256, "many masked", "more than half of the pixels that the model uses are masked";
    NEGATIVE_FLUX = 512, "negative flux",
        "the median of an arm's flux, or of the continuum fitted to it, is below zero";
    HIGH_CHI2 = 1024, "high χ²", "chi2 is improbably high: the upper tail probability for its dof is below 1e-6";
    LOW_CHI2 = 2048, "low χ²", "chi2 is improbably low: the lower tail probability for its dof is below 1e-6";
    NO_ROTATION = 4096, "no rotation",
        "vsini ended at its lower bound, which is at most 1 km/s: the spectrum does not show rotation";
    FEW_REACHED = 8192, "few reached",
        "more than half of the good pixels are left out: the template ends before all that makes them";
}

#[cfg(test)]
mod tests {
    use super::Flags;

    #[test]
    fn bits_are_powers_of_two_in_order() {
        for (k, flag) in Flags::DESCRIPTIONS.iter().enumerate() {
            assert_eq!(flag.bit, 1 << k, "{}", flag.name);
            assert!(flag.meaning.is_ascii(), "FITS writes it: {}", flag.meaning);
        }
    }
}
