//! Flags of a fit, the bits of [`FitRow::flags`](crate::FitRow::flags).
//!
//! The list below is the only place in which flags are defined: the constants, [`FLAG_DESCRIPTIONS`], the report, the
//! tables' key `popfit.flags` and (by tests) `docs/src/results.md` and `flags.md` follow from it. A new flag needs a
//! line here and a section in `flags.md`.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign};

/// Flags of a fit: facts that its user should know, one bit each.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(u32);

impl Flags {
    /// Returns no flags.
    pub const fn empty() -> Flags {
        Flags(0)
    }

    /// Returns the flags with these bits. Bits that no flag has stay.
    pub const fn from_bits(bits: u32) -> Flags {
        Flags(bits)
    }

    /// Returns the bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether no flag is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether all of `flags` are set.
    pub const fn contains(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns whether any of `flags` is set.
    pub const fn intersects(self, flags: Flags) -> bool {
        self.0 & flags.0 != 0
    }

    /// Returns these flags and `flags`; `|` does the same where the result is no constant.
    #[must_use]
    pub const fn union(self, flags: Flags) -> Flags {
        Flags(self.0 | flags.0)
    }

    /// Sets `flags`, or clears them.
    pub fn set(&mut self, flags: Flags, is_set: bool) {
        if is_set {
            self.0 |= flags.0;
        } else {
            self.0 &= !flags.0;
        }
    }
}

impl BitAnd for Flags {
    type Output = Flags;

    fn bitand(self, flags: Flags) -> Flags {
        Flags(self.0 & flags.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, flags: Flags) -> Flags {
        self.union(flags)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, flags: Flags) {
        *self = self.union(flags);
    }
}

impl fmt::Display for Flags {
    /// Writes the names, joined by ` | `. Bits that no flag has are one hexadecimal number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unnamed_bits = self.0;
        let mut separator = "";
        for flag in FLAG_DESCRIPTIONS {
            if self.0 & flag.bit != 0 {
                write!(f, "{separator}{}", flag.name)?;
                unnamed_bits &= !flag.bit;
                separator = " | ";
            }
        }
        if unnamed_bits != 0 {
            write!(f, "{separator}{unnamed_bits:#x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({self})")
    }
}

/// A flag: its bit, its names and its meaning.
#[derive(Clone, Copy, Debug)]
pub struct FlagDescription {
    /// The bit, a power of two.
    pub bit: u32,
    /// The constant's name.
    pub name: &'static str,
    /// The short name that the report shows.
    pub label: &'static str,
    /// Meaning of the bit when it is set, in ASCII.
    pub meaning: &'static str,
    /// Usual causes if many fits carry the flag, as sentences; empty for a flag that many good fits carry.
    pub advice: &'static str,
}

/// Defines a constant for each flag, and the descriptions, from one list.
macro_rules! flags {
    ($($name:ident = $bit:literal, $label:literal, $meaning:literal, $advice:literal;)*) => {
        impl Flags {
            $(
                #[doc = concat!("Flag ", $bit, ", ", $label, ": ", $meaning, ".")]
                pub const $name: Flags = Flags($bit);
            )*
        }

        /// Descriptions of all flags, from the lowest bit up, without a gap.
        pub const FLAG_DESCRIPTIONS: &[FlagDescription] =
            &[$(FlagDescription {
                bit: $bit,
                name: stringify!($name),
                label: $label,
                meaning: $meaning,
                advice: $advice,
            }),*];
    };
}

flags! {
    START_CLIPPED = 1, "start clipped", "a start was outside its bounds and was moved onto them",
        "Are the starts in the unit of the parameter, and in the order of the spectra?";
    UNDETERMINED = 2, "undetermined", "the data do not determine some of the parameters: their errors are infinite",
        "Fix parameters that the spectra do not constrain; `popfit check` names labels without any effect.";
    NONFINITE_MASKED = 4, "non-finite masked", "pixels that were not finite are masked", "";
    OUTSIDE_HULL = 8, "outside training set",
        "outside the training hull of an emulator, or outside the training range of a label that no hull covers",
        "Are these stars of the kinds that the network was trained on? Labels also leave the training set where the \
         model is wrong: wavelengths (air or vacuum), line spread, continuum.";
    AT_BOUND = 16, "at bound", "a parameter ended at a bound, other than with flag 4096",
        "Are its bounds wide enough? Fits also end at bounds where the model is wrong: wavelengths (air or vacuum, \
         Å or nm), line spread, continuum.";
    MULTIMODAL = 32, "multimodal", "another start ended elsewhere, less than 9 above in the objective",
        "Two minima compete, and the data hardly decide. Try `--starts 16`, priors, or narrower bounds.";
    POOR_CHI2 = 64, "poor χ²", "poor fit: chi2/dof is above 2", "";
    LOW_SN = 128, "low S/N", "low signal-to-noise ratio: the median is below 5 per pixel",
        "Errors of such spectra are unreliable, and second minima are frequent: priors help. If the spectra are \
         better than that, is `ivar` in the unit of the flux?";
    MANY_MASKED = 256, "many masked", "more than half of the pixels that the model uses are masked",
        "Is the mask true where a pixel is bad, and are its bits chosen right?";
    NEGATIVE_FLUX = 512, "negative flux",
        "the median of an arm's flux, or of the continuum fitted to it, is below zero",
        "Is the sky subtracted twice, or is another array read as the flux?";
    HIGH_CHI2 = 1024, "high χ²", "chi2 is improbably high: the upper tail probability for its dof is below 1e-6",
        "Errors are too small, or bad pixels (cosmic rays, sky lines) have no mask, or the model is wrong: line \
         spread, wavelengths (air or vacuum), the kind of star. `--report` shows where the residuals are.";
    LOW_CHI2 = 2048, "low χ²", "chi2 is improbably low: the lower tail probability for its dof is below 1e-6",
        "Errors are too large, or resampling has smoothed the noise over neighbouring pixels.";
    NO_ROTATION = 4096, "no rotation",
        "vsini ended at its lower bound, which is at most 1 km/s: the spectrum does not show rotation", "";
    FEW_REACHED = 8192, "few reached",
        "more than half of the good pixels do not count, because the network does not cover them",
        "Use a network that is wider than the data by the largest velocity, vsini and line spread.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_written_by_their_names() {
        assert_eq!(Flags::empty().to_string(), "");
        let flags = Flags::from_bits(1 << 30) | Flags::LOW_SN | Flags::AT_BOUND;
        assert_eq!(flags.to_string(), "AT_BOUND | LOW_SN | 0x40000000");
        assert_eq!(format!("{:?}", Flags::LOW_SN), "Flags(LOW_SN)");
    }

    #[test]
    fn bits_of_flags_are_powers_of_two_in_order() {
        for (k, flag) in FLAG_DESCRIPTIONS.iter().enumerate() {
            assert_eq!(flag.bit, 1 << k, "{}", flag.name);
            assert!(flag.meaning.is_ascii(), "FITS writes it: {}", flag.meaning);
        }
    }

    /// The page on flags has one section per flag, in their order, and no other.
    #[test]
    fn every_flag_has_a_section_in_the_book() {
        let page = include_str!("../docs/src/flags.md");
        let headings: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("## "))
            .collect();
        let heading =
            |flag: &FlagDescription| format!("## {} `{}`: {}", flag.bit, flag.name, flag.label);
        assert_eq!(
            headings,
            FLAG_DESCRIPTIONS.iter().map(heading).collect::<Vec<_>>()
        );
    }
}
