//! Bits of [`FitRow::flags`](crate::FitRow::flags): their numbers, names and meanings, said here and nowhere else.
//!
//! The report takes its words from [`ALL`], and a test compares the table of `README.md` with it.

/// One bit of the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Its number, a power of two.
    pub bit: u32,
    /// Its short name, as the report shows it.
    pub name: &'static str,
    /// What a row with this flag has.
    pub meaning: &'static str,
}

/// A constant for each flag, and [`ALL`], from one list.
macro_rules! flags {
    ($($constant:ident = $bit:literal, $name:literal, $meaning:literal;)*) => {
        $(
            #[doc = concat!("Flag ", $bit, ", ", $name, ": ", $meaning, ".")]
            pub const $constant: u32 = $bit;
        )*

        /// All flags, from the lowest bit up, without a gap.
        pub const ALL: [Flag; [$($bit),*].len()] =
            [$(Flag { bit: $constant, name: $name, meaning: $meaning }),*];
    };
}

flags! {
    START_CLIPPED = 1, "start clipped", "a start was outside its bounds and moved onto them";
    RANK_DEFICIENT = 2, "rank-deficient", "the covariance is rank-deficient";
    NONFINITE_MASKED = 4, "non-finite masked", "pixels that were not finite are masked";
    OUTSIDE_HULL = 8, "outside training set",
        "outside the training hull of an emulator, or outside the training range of a label that no hull covers";
    AT_BOUND = 16, "at bound", "a parameter ended at a bound, other than vsini at its lower bound";
    MULTIMODAL = 32, "multimodal", "another minimum within Δχ² < 9";
    POOR_CHI2 = 64, "poor χ²", "χ²/dof above 2";
    LOW_SN = 128, "low S/N", "median signal-to-noise ratio below 5 per pixel";
    MANY_MASKED = 256, "many masked", "more than half of the pixels masked";
    NEGATIVE_FLUX = 512, "negative flux", "the median of an arm's flux, or of the continuum fitted to it, is below zero";
    HIGH_CHI2 = 1024, "high χ²", "χ² improbably high: the upper tail probability for its dof is below 1e-6";
    LOW_CHI2 = 2048, "low χ²", "χ² improbably low: the lower tail probability for its dof is below 1e-6";
    NO_ROTATION = 4096, "no rotation", "vsini ended at its lower bound: the spectrum does not show rotation";
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn bits_follow_each_other() {
        assert!(ALL.iter().enumerate().all(|(k, flag)| flag.bit == 1 << k));
    }

    /// The README's table has a line for each flag, in these words.
    #[test]
    fn the_readme_says_the_same() {
        let readme = include_str!("../../README.md");
        let (_, table) = readme.split_once("| flag | |\n|---|---|\n").unwrap();
        let lines: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
        let expected: Vec<String> = ALL.iter().map(|flag| format!("| {} | {} |", flag.bit, flag.meaning)).collect();
        assert_eq!(lines, expected);
    }
}
