//! Counts of the flags of a stream of rows, and advice on frequent flags.

use super::row::FitRow;
use crate::flag::{FlagDescription, Flags};
use crate::solver::Status;

/// Number of flags.
const FLAGS: usize = Flags::DESCRIPTIONS.len();
/// A flag is frequent if at least one in so many fits carries it …
const ONE_OF: u64 = 5;
/// … and if at least so many fits do, or all.
const FEWEST: u64 = 5;
/// Share of pixels that the networks do not cover, above which a line reports it.
const LEAST_LEFT_OUT: f64 = 0.002;
/// χ²/dof above which `ivar` may be another quantity …
const FAR_TOO_HIGH: f64 = 100.0;
/// … and below which it certainly is.
const FAR_TOO_LOW: f64 = 0.1;

/// Counts of the flags of a run's fits. [`lines`](FlagCounts::lines) reports what is wrong with many of them.
///
/// ```
/// # fn example(fitter: popfit::SpectralFitter, rows: &[popfit::FitRow]) {
/// let mut counts = popfit::FlagCounts::new(&fitter.parameters());
/// rows.iter().for_each(|row| counts.add(row));
/// counts.lines().iter().for_each(|line| println!("{line}"));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FlagCounts {
    parameters: Vec<String>,
    /// Number of rows with a fit.
    fits: u64,
    by_flag: [u64; FLAGS],
    by_bound: Vec<u64>,
    /// Σ ln(χ²/dof) of the rows that carry each flag.
    ln_chi2: [f64; FLAGS],
    /// Number of good pixels that the networks do not cover.
    unreached: u64,
    /// Sum of the degrees of freedom, about the number of pixels that were fitted.
    fitted: u64,
}

impl FlagCounts {
    /// Returns empty counts; `parameters` are the names of the free parameters.
    pub fn new(parameters: &[String]) -> FlagCounts {
        let by_bound = vec![0; parameters.len()];
        FlagCounts {
            parameters: parameters.to_vec(),
            fits: 0,
            by_flag: [0; FLAGS],
            by_bound,
            ln_chi2: [0.0; FLAGS],
            unreached: 0,
            fitted: 0,
        }
    }

    /// Counts a row's flags, and the parameters that ended at a bound.
    pub fn add(&mut self, row: &FitRow) {
        if matches!(row.status, Status::BadInput | Status::Interrupted) {
            return;
        }
        self.fits += 1;
        self.unreached += row
            .unreached
            .iter()
            .map(|count| u64::from(*count))
            .sum::<u64>();
        self.fitted += u64::try_from(row.dof).unwrap_or(0);
        let reduced = row.chi2 / row.dof.max(1) as f64;
        let reduced = if reduced.is_nan() {
            1.0
        } else {
            reduced.clamp(f64::MIN_POSITIVE, f64::MAX)
        };
        for (k, (count, sum)) in self.by_flag.iter_mut().zip(&mut self.ln_chi2).enumerate() {
            if row.flags.bits() >> k & 1 == 1 {
                *count += 1;
                *sum += reduced.ln();
            }
        }
        for (p, count) in self.by_bound.iter_mut().enumerate() {
            *count += u64::from(row.at_bound >> p & 1);
        }
    }

    /// Returns the number of rows with each flag, in the order of [`Flags::DESCRIPTIONS`].
    pub fn by_flag(&self) -> &[u64] {
        &self.by_flag
    }

    /// Returns the number of rows in which each parameter ended at a bound.
    pub fn by_bound(&self) -> &[u64] {
        &self.by_bound
    }

    /// Returns one line per flag that at least a fifth of the fits carry, the most frequent first, with its usual
    /// causes. One more line refers to the book, and one reports the share of pixels that the networks do not cover.
    /// There is no line for flags that many good fits carry, nor for a flag of fewer than five fits unless all carry
    /// it.
    pub fn lines(&self) -> Vec<String> {
        let mut frequent = Vec::new();
        for (k, (flag, &count)) in Flags::DESCRIPTIONS.iter().zip(&self.by_flag).enumerate() {
            let is_frequent = count * ONE_OF >= self.fits && count >= FEWEST.min(self.fits.max(1));
            let advice = self.advice(flag, (self.ln_chi2[k] / count.max(1) as f64).exp());
            if is_frequent && !advice.is_empty() {
                let line = format!(
                    "{count} of {} fits have flag {} ({}): {advice}",
                    self.fits, flag.bit, flag.label
                );
                frequent.push((count, flag.bit, line));
            }
        }
        frequent.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
        let bits: Vec<String> = frequent.iter().map(|(_, bit, _)| bit.to_string()).collect();
        let reference = format!(
            "The page on flags in the book says what to do with {}.",
            bits.join(", ")
        );
        let reference = (!bits.is_empty()).then_some(reference);
        frequent
            .into_iter()
            .map(|(.., line)| line)
            .chain(reference)
            .chain(self.left_out())
            .collect()
    }

    /// Returns the line about pixels that the networks do not cover; `None` if there are few.
    fn left_out(&self) -> Option<String> {
        let share = self.unreached as f64 / (self.unreached + self.fitted).max(1) as f64;
        (share > LEAST_LEFT_OUT).then(|| {
            format!(
                "{} % of the good pixels are left out, because the networks do not cover them (column unreached)",
                two_digits(100.0 * share)
            )
        })
    }

    /// Returns the usual causes of a frequent flag; empty if it needs no attention. `chi2` is the typical χ²/dof of the
    /// fits that carry it.
    fn advice(&self, flag: &FlagDescription, chi2: f64) -> String {
        let typical = format!("χ²/dof is typically {}", two_digits(chi2));
        match Flags::from_bits_truncate(flag.bit) {
            Flags::AT_BOUND => {
                let most_frequent = self
                    .parameters
                    .iter()
                    .zip(&self.by_bound)
                    .rev()
                    .max_by_key(|(_, count)| **count);
                most_frequent.map_or(String::new(), |(name, count)| {
                    format!("most often {name} ({count}). {}", flag.advice)
                })
            }
            Flags::HIGH_CHI2 if chi2 > FAR_TOO_HIGH => {
                format!(
                    "{typical}. Is `ivar` really 1/σ², in the unit of the flux? If it is: {}",
                    flag.advice
                )
            }
            Flags::LOW_CHI2 if chi2 < FAR_TOO_LOW => {
                format!("{typical}. Is `ivar` really 1/σ², and not σ or σ²?")
            }
            Flags::HIGH_CHI2 | Flags::LOW_CHI2 => format!("{typical}. {}", flag.advice),
            _ => flag.advice.to_string(),
        }
    }
}

/// Formats a positive number to two significant digits, without an exponent from 0.0001 to a million.
fn two_digits(x: f64) -> String {
    if !(1e-4..1e6).contains(&x) {
        return format!("{x:.1e}");
    }
    let decimals = (1 - x.log10().floor() as i32).max(0) as usize;
    format!("{x:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of `fits` rows, of which the first `flagged` have these flags and χ²/dof, and all a dof of 10.
    fn lines(fits: usize, flagged: usize, flags: Flags, chi2: f64) -> Vec<String> {
        let mut counts = FlagCounts::new(&["velocity".to_string(), "teff".to_string()]);
        for k in 0..fits {
            let flags = if k < flagged { flags } else { Flags::empty() };
            counts.add(&row(flags, 10.0 * chi2));
        }
        counts.lines()
    }

    fn row(flags: Flags, chi2: f64) -> FitRow {
        let at_bound = if flags.contains(Flags::AT_BOUND) {
            0b10
        } else {
            0
        };
        FitRow {
            chi2,
            dof: 10,
            flags,
            at_bound,
            status: Status::Gtol,
            ..FitRow::new(1, 2)
        }
    }

    /// A flag is reported if a fifth of the fits, and at least five, carry it, or if all do.
    #[test]
    fn frequent_flags_have_a_line() {
        let flag = Flags::LOW_SN;
        let cases = [
            (64, 64, 2),
            (64, 13, 2),
            (64, 12, 0),
            (20, 4, 0),
            (20, 5, 2),
            (3, 3, 2),
            (3, 2, 0),
            (1, 1, 2),
        ];
        for (fits, flagged, expected) in cases {
            assert_eq!(
                lines(fits, flagged, flag, 1.0).len(),
                expected,
                "{flagged} of {fits}"
            );
        }
        assert_eq!(FlagCounts::new(&[]).lines(), [""; 0]);
        let many = lines(64, 64, Flags::LOW_SN | Flags::MANY_MASKED, 1.0);
        assert!(
            many.len() == 3 && many[2].ends_with("says what to do with 128, 256."),
            "{many:?}"
        );
    }

    /// The advice on high and low χ² depends on how far χ²/dof is from 1.
    #[test]
    fn advice_depends_on_chi2() {
        let first = |flag, chi2| lines(64, 64, flag, chi2)[0].clone();
        let far = first(Flags::LOW_CHI2, 0.00131);
        let expected = "64 of 64 fits have flag 2048 (low χ²): χ²/dof is typically 0.0013. Is `ivar` really 1/σ²";
        assert!(far.starts_with(expected), "{far}");
        for (flag, chi2, is_asked) in [
            (Flags::LOW_CHI2, 0.7, false),
            (Flags::HIGH_CHI2, 3.0, false),
        ] {
            assert_eq!(first(flag, chi2).contains("`ivar` really"), is_asked);
        }
        let high = first(Flags::HIGH_CHI2, 1.4e9);
        assert!(
            high.contains("typically 1.4e9. Is `ivar` really") && high.contains("cosmic rays"),
            "{high}"
        );
        assert!(first(Flags::AT_BOUND, 1.0).contains("most often teff (64)"));
    }

    /// Flags that good fits carry have no line.
    #[test]
    fn usual_flags_have_no_line() {
        for flag in [
            Flags::NONFINITE_MASKED,
            Flags::POOR_CHI2,
            Flags::NO_ROTATION,
        ] {
            assert_eq!(lines(64, 64, flag, 1.0), [""; 0]);
        }
    }
}
