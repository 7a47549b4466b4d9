//! Counts of the flags of a stream of rows, and advice on frequent flags.

use super::row::FitRow;
use crate::flag::{FLAG_DESCRIPTIONS, FlagDescription, Flags};
use crate::solver::Status;

/// Number of flags.
const FLAG_COUNT: usize = FLAG_DESCRIPTIONS.len();
/// A flag is frequent if at least one in this many fits carries it,
const FITS_PER_FREQUENT_FLAG: u64 = 5;
/// and if at least this many fits do, or all.
const MIN_FREQUENT_FITS: u64 = 5;
/// Share of pixels that the networks do not cover above which a line reports it.
const MIN_REPORTED_LEFT_OUT: f64 = 0.002;
/// χ²/dof above which `ivar` may be another quantity.
const SUSPECT_HIGH_CHI2: f64 = 100.0;
/// χ²/dof below which `ivar` certainly is another quantity.
const SUSPECT_LOW_CHI2: f64 = 0.1;

/// Counts of the flags of a run's fits. [`lines`](FlagCounts::lines) reports what is wrong with many of them.
///
/// ```
/// # fn example(fitter: popfit::SpectralFitter, rows: &[popfit::FitRow]) {
/// let mut counts = popfit::low_level::FlagCounts::new(&fitter.parameters());
/// rows.iter().for_each(|row| counts.add(row));
/// counts.lines().iter().for_each(|line| println!("{line}"));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FlagCounts {
    parameters: Vec<String>,
    /// Number of rows with a fit.
    fits: u64,
    by_flag: [u64; FLAG_COUNT],
    by_bound: Vec<u64>,
    /// Σ ln(χ²/dof) of the rows that carry each flag.
    ln_chi2: [f64; FLAG_COUNT],
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
            by_flag: [0; FLAG_COUNT],
            by_bound,
            ln_chi2: [0.0; FLAG_COUNT],
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
        let reduced_chi2 = row.chi2 / row.dof.max(1) as f64;
        let ln_chi2 = if reduced_chi2.is_nan() {
            0.0
        } else {
            reduced_chi2.clamp(f64::MIN_POSITIVE, f64::MAX).ln()
        };
        for (bit, (count, sum)) in self.by_flag.iter_mut().zip(&mut self.ln_chi2).enumerate() {
            if row.flags.bits() >> bit & 1 == 1 {
                *count += 1;
                *sum += ln_chi2;
            }
        }
        for (p, count) in self.by_bound.iter_mut().enumerate() {
            *count += u64::from(row.at_bound >> p & 1);
        }
    }

    /// Returns the number of rows with each flag, in the order of [`FLAG_DESCRIPTIONS`].
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
        // 1. Report the frequent flags, the most frequent first.
        let mut frequent = Vec::new();
        for (k, (flag, &count)) in FLAG_DESCRIPTIONS.iter().zip(&self.by_flag).enumerate() {
            let is_frequent = count * FITS_PER_FREQUENT_FLAG >= self.fits
                && count >= MIN_FREQUENT_FITS.min(self.fits.max(1));
            let typical_chi2 = (self.ln_chi2[k] / count.max(1) as f64).exp();
            let advice = self.advise(flag, typical_chi2);
            if is_frequent && !advice.is_empty() {
                let line = format!(
                    "{count} of {} fits have flag {} ({}): {advice}",
                    self.fits, flag.bit, flag.label
                );
                frequent.push((count, flag.bit, line));
            }
        }
        frequent.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
        // 2. Refer to the book.
        let bits: Vec<String> = frequent.iter().map(|(_, bit, _)| bit.to_string()).collect();
        let mut lines: Vec<String> = frequent.into_iter().map(|(.., line)| line).collect();
        if !bits.is_empty() {
            lines.push(format!(
                "The page on flags in the book says what to do with {}.",
                bits.join(", ")
            ));
        }
        // 3. Report pixels that are left out.
        lines.extend(self.report_left_out());
        lines
    }

    /// Returns the line about pixels that the networks do not cover; `None` if there are few.
    fn report_left_out(&self) -> Option<String> {
        let share = self.unreached as f64 / (self.unreached + self.fitted).max(1) as f64;
        (share > MIN_REPORTED_LEFT_OUT).then(|| {
            format!(
                "{} % of the good pixels are left out, because the networks do not cover them (column unreached)",
                format_two_digits(100.0 * share)
            )
        })
    }

    /// Returns the usual causes of a frequent flag; empty if it needs no attention. `chi2` is the typical χ²/dof of the
    /// fits that carry it.
    fn advise(&self, flag: &FlagDescription, chi2: f64) -> String {
        let typical = format!("χ²/dof is typically {}", format_two_digits(chi2));
        match Flags::from_bits(flag.bit) {
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
            Flags::HIGH_CHI2 if chi2 > SUSPECT_HIGH_CHI2 => {
                format!(
                    "{typical}. Is `ivar` really 1/σ², in the unit of the flux? If it is: {}",
                    flag.advice
                )
            }
            Flags::LOW_CHI2 if chi2 < SUSPECT_LOW_CHI2 => {
                format!("{typical}. Is `ivar` really 1/σ², and not σ or σ²?")
            }
            Flags::HIGH_CHI2 | Flags::LOW_CHI2 => format!("{typical}. {}", flag.advice),
            _ => flag.advice.to_string(),
        }
    }
}

/// Formats a positive number to two significant digits, without an exponent from 0.0001 to a million.
fn format_two_digits(x: f64) -> String {
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
        let two_flags = lines(64, 64, Flags::LOW_SN | Flags::MANY_MASKED, 1.0);
        assert!(
            two_flags.len() == 3 && two_flags[2].ends_with("says what to do with 128, 256."),
            "{two_flags:?}"
        );
    }

    /// The advice on high and low χ² depends on how far χ²/dof is from 1.
    #[test]
    fn advice_depends_on_chi2() {
        let first_line = |flag, chi2| lines(64, 64, flag, chi2)[0].clone();
        let low = first_line(Flags::LOW_CHI2, 0.00131);
        let expected = "64 of 64 fits have flag 2048 (low χ²): χ²/dof is typically 0.0013. Is `ivar` really 1/σ²";
        assert!(low.starts_with(expected), "{low}");
        for (flag, chi2, is_asked) in [
            (Flags::LOW_CHI2, 0.7, false),
            (Flags::HIGH_CHI2, 3.0, false),
        ] {
            assert_eq!(first_line(flag, chi2).contains("`ivar` really"), is_asked);
        }
        let high = first_line(Flags::HIGH_CHI2, 1.4e9);
        assert!(
            high.contains("typically 1.4e9. Is `ivar` really") && high.contains("cosmic rays"),
            "{high}"
        );
        assert!(first_line(Flags::AT_BOUND, 1.0).contains("most often teff (64)"));
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
