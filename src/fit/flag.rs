//! Bits of [`FitRow::flags`](crate::FitRow::flags).
//!
//! The list below is the only place where a flag is said: the constants, [`ALL`], the report, the tables' key
//! `popfit.flags` and (by a test) the README follow from it. A new flag is a new line.

/// A flag: its bit, its names and its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Flag {
    /// The bit, a power of two.
    pub bit: u32,
    /// The constant's name.
    pub name: &'static str,
    /// The name that the report shows.
    pub label: &'static str,
    /// What it means when the bit is set.
    pub meaning: &'static str,
}

macro_rules! flags {
    ($($name:ident = $bit:literal, $label:literal, $meaning:literal;)*) => {
        $(#[doc = concat!("Bit ", stringify!($bit), ": ", $meaning, ".")] pub const $name: u32 = $bit;)*
        /// Every flag, in the order of the bits.
        pub const ALL: &[Flag] =
            &[$(Flag { bit: $bit, name: stringify!($name), label: $label, meaning: $meaning }),*];
    };
}

flags! {
    START_CLIPPED = 1, "start clipped", "a start was outside its bounds and moved onto them";
    RANK_DEFICIENT = 2, "rank-deficient", "rank-deficient covariance";
    NONFINITE_MASKED = 4, "non-finite masked", "pixels that were not finite are masked";
    OUTSIDE_HULL = 8, "outside hull", "outside the emulator's training hull";
    AT_BOUND = 16, "at bound", "a parameter ended at a bound";
    MULTIMODAL = 32, "multimodal", "another minimum lies less than 9 above in chi2";
    POOR_CHI2 = 64, "poor χ²", "poor fit: chi2/dof is above 2";
    LOW_SN = 128, "low S/N", "low signal-to-noise ratio: the median is below 5 per pixel";
    MANY_MASKED = 256, "many masked", "more than half of the pixels are masked";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_powers_of_two_in_order() {
        for (k, flag) in ALL.iter().enumerate() {
            assert_eq!(flag.bit, 1 << k, "{}", flag.name);
            assert!(flag.meaning.is_ascii(), "FITS writes it: {}", flag.meaning);
        }
    }
}
