//! A fit as text, in the format of lmfit's `fit_report`.

use std::fmt::{self, Write};

use crate::curves::fitter::Named;
use crate::curves::input::data::ParameterPrior;
use crate::curves::{CurveFit, CurveFitter};
use crate::solver::Solver;

/// Maximum width of the names in a column, in characters.
const MAX_NAME_WIDTH: usize = 200;
/// Smallest absolute correlation that is reported.
const MIN_REPORTED_CORRELATION: f64 = 0.1;

impl fmt::Display for CurveFit {
    /// Writes the message, χ², and a line per parameter with its value and error. [`CurveFitter::report`] knows the
    /// parameters' names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: chi-square = {}",
            self.message,
            format_fixed(self.chi2).trim()
        )?;
        write!(f, " (dof = {}, {} evaluations)", self.dof, self.evaluations)?;
        for (value, error) in self.parameters.iter().zip(&self.errors) {
            let value = format_fixed(*value);
            if error.is_infinite() {
                write!(f, "\n    {value} +/- (undetermined)")?;
            } else if error.is_nan() {
                write!(f, "\n    {value} +/- (n/a)")?;
            } else {
                write!(f, "\n    {value} +/-{}", format_fixed(*error))?;
            }
        }
        Ok(())
    }
}

impl CurveFitter {
    /// Describes a fit as lmfit's `fit_report` does: statistics, parameters with errors and starts, and the
    /// correlations above 0.1.
    pub fn report(&self, fit: &CurveFit) -> String {
        // 1. Statistics. Writing into a String cannot fail.
        let mut text = "[[Fit Statistics]]\n".to_owned();
        let free_priors = self
            .priors
            .iter()
            .filter(|prior: &&Named<ParameterPrior>| !self.fixed.contains(&prior.parameter))
            .count();
        let free = (fit.points + free_priors) as i64 - fit.dof;
        let lines = [
            ("# fitting method", self.method()),
            ("# function evals", fit.evaluations.to_string()),
            ("# data points", fit.points.to_string()),
            ("# variables", free.to_string()),
            ("chi-square", format_fixed(fit.chi2)),
            ("reduced chi-square", format_fixed(fit.reduced_chi2())),
            ("Akaike info crit", format_fixed(fit.aic)),
            ("Bayesian info crit", format_fixed(fit.bic)),
        ];
        for (name, value) in lines {
            let _ = writeln!(text, "    {name:18} = {}", value.trim());
        }
        // 2. Warnings.
        if !fit.status.is_success() {
            let _ = writeln!(text, "##  Warning: {}", fit.message);
        }
        for warning in self
            .model
            .formula()
            .iter()
            .flat_map(|formula| formula.warnings())
        {
            let _ = writeln!(text, "##  Warning: {warning}");
        }
        if fit.errors.iter().any(|error| !error.is_finite()) {
            text += "##  Warning: uncertainties could not be estimated:\n";
        }
        // 3. Parameters and correlations.
        text += "[[Variables]]\n";
        let names = self.model.parameters();
        let width = column_width(names.iter()) + 1;
        for (p, name) in names.iter().enumerate() {
            let _ = writeln!(
                text,
                "    {:width$} {}",
                format!("{name}:"),
                self.describe_parameter(fit, p)
            );
        }
        self.append_correlations(fit, &mut text);
        text
    }

    /// Returns the solver's name, and the estimator if it is not least squares.
    fn method(&self) -> String {
        let solver = match self.solver {
            Solver::LevenbergMarquardt(_) | Solver::LevenbergMarquardtThenNelderMead(..) => {
                "Levenberg-Marquardt"
            }
            Solver::NelderMead(_) => "Nelder-Mead",
        };
        if self.estimator.is_least_squares() {
            solver.to_owned()
        } else {
            format!("{solver}, {:?}", self.estimator)
        }
    }

    /// Returns the text for parameter `p`: its value, error and start, or that it is fixed, or the expression that it
    /// is tied to.
    fn describe_parameter(&self, fit: &CurveFit, p: usize) -> String {
        let value = fit.parameters[p];
        let error = fit.errors[p];
        let tie = self
            .ties
            .iter()
            .find(|tie| tie.parameter == self.model.parameters()[p]);
        if tie.is_none() && error == 0.0 {
            let sign = if value < 0.0 { "" } else { " " };
            return format!("{sign}{} (fixed)", format_general(value));
        }
        let mut text = format_fixed(value);
        if !error.is_finite() {
            text += if error.is_infinite() {
                " +/- (undetermined)"
            } else {
                " +/- (n/a)"
            };
        } else {
            let _ = write!(text, " +/-{}", format_fixed(error));
            if value != 0.0 {
                let _ = write!(text, " ({:.2}%)", 100.0 * (error / value).abs());
            }
        }
        match tie {
            Some(tie) => format!("{text} == '{}'", tie.value),
            None => format!("{text} (init = {})", format_general(fit.start[p])),
        }
    }

    /// Appends to `text` the correlations between parameters of a magnitude above 0.1, the largest first.
    fn append_correlations(&self, fit: &CurveFit, text: &mut String) {
        // 1. Collect the large correlations between parameters that are not tied.
        let names = self.model.parameters();
        let count = names.len();
        let is_tied = |p: usize| self.ties.iter().any(|tie| tie.parameter == names[p]);
        let matrix = fit.correlation();
        let mut correlations: Vec<(String, f64)> = Vec::new();
        for p in 0..count {
            for q in p + 1..count {
                let correlation = matrix[p * count + q];
                if !is_tied(p) && !is_tied(q) && correlation.abs() > MIN_REPORTED_CORRELATION {
                    correlations.push((format!("C({}, {})", names[p], names[q]), correlation));
                }
            }
        }
        if correlations.is_empty() {
            return;
        }
        // 2. Write them, the largest first.
        correlations.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        let width = column_width(correlations.iter().map(|(name, _)| name));
        let _ = writeln!(
            text,
            "[[Correlations]] (unreported correlations are < {MIN_REPORTED_CORRELATION:.3})"
        );
        for (name, value) in correlations {
            let _ = writeln!(text, "    {name:width$} = {value:+.4}");
        }
    }
}

/// Returns the width of a column of names in characters.
fn column_width<'a>(names: impl Iterator<Item = &'a String>) -> usize {
    names
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0)
        .min(MAX_NAME_WIDTH)
}

/// Returns a number in at least 11 characters, with as many digits as they hold, as lmfit's `gformat` does.
fn format_fixed(value: f64) -> String {
    let exponent = value.abs().log10();
    let exponent = if exponent.is_finite() {
        exponent as i32
    } else {
        0
    };
    // An exponent of three digits takes the place of a digit of the number.
    let digits = if exponent.abs() > 99 { 3 } else { 4 };
    let fits_without_exponent =
        (exponent > 0 && exponent < digits + 4) || (exponent <= 0 && -exponent < digits - 1);
    let text = match fits_without_exponent || !value.is_finite() {
        true => format!("{value:.*}", (digits + 4 - exponent.max(0)) as usize),
        false => format_exponent_as_c(&format!("{value:.*e}", digits as usize)),
    };
    format!("{text:>11}")
}

/// Returns a number as C's `%.7g` does.
fn format_general(value: f64) -> String {
    let text = format!("{value:.6e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..7).contains(&exponent) {
        trim_fraction(&format!("{value:.*}", (6 - exponent) as usize)).to_owned()
    } else {
        format_exponent_as_c(&format!("{}e{exponent}", trim_fraction(digits)))
    }
}

/// Returns a decimal number without zeros at the end of its fraction.
fn trim_fraction(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}

/// Returns a number in Rust's scientific notation with the exponent as C prints it: a sign and two digits.
fn format_exponent_as_c(text: &str) -> String {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!(
        "{digits}e{}{:02}",
        if exponent < 0 { '-' } else { '+' },
        exponent.abs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are those of lmfit 1.3.4's `gformat` and Python's `.7g`: tests/python/make_estimators.py.
    #[test]
    fn numbers_are_formatted_as_by_lmfit() {
        for (value, gformat, general) in NUMBERS {
            assert_eq!(
                (format_fixed(value).as_str(), format_general(value).as_str()),
                (gformat, general),
                "{value}"
            );
        }
    }

    const NUMBERS: [(f64, &str, &str); 16] = [
        (0.0, " 0.00000000", "0"),
        (1.0, " 1.00000000", "1"),
        (-1.5, "-1.50000000", "-1.5"),
        (2.345_678_901_234_56, " 2.34567890", "2.345679"),
        (12.345_678_9, " 12.3456789", "12.34568"),
        (-123_456.789, "-123456.789", "-123456.8"),
        (10_000_000.0, " 10000000.0", "1e+07"),
        (123_456_789.0, " 1.2346e+08", "1.234568e+08"),
        (0.0015, " 0.00150000", "0.0015"),
        (-2.25e-05, "-2.2500e-05", "-2.25e-05"),
        (1e-12, " 1.0000e-12", "1e-12"),
        (6.022_140_76e23, " 6.0221e+23", "6.022141e+23"),
        (9_999_999_900.0, " 1.0000e+10", "1e+10"),
        (1e-120, " 1.000e-120", "1e-120"),
        (0.1, " 0.10000000", "0.1"),
        (99999.99, " 99999.9900", "99999.99"),
    ];
}
