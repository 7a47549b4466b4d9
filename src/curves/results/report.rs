//! A fit as text, in the format of lmfit's `fit_report`.

use std::fmt::{self, Write};

use crate::curves::fitter::Named;
use crate::curves::input::data::ParameterPrior;
use crate::curves::{CurveFit, CurveFitter};
use crate::solver::Solver;

/// Maximum width of the names in a column, in characters.
const MAX_WIDTH: usize = 200;
/// Correlations below this are not reported.
const LEAST_CORRELATION: f64 = 0.1;

impl fmt::Display for CurveFit {
    /// Writes the message, χ², and a line per parameter with its value and error. [`CurveFitter::report`] knows the
    /// parameters' names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: chi-square = {}",
            self.message,
            fixed(self.chi2).trim()
        )?;
        write!(f, " (dof = {}, {} evaluations)", self.dof, self.evaluations)?;
        for (value, error) in self.parameters.iter().zip(&self.errors) {
            match !error.is_finite() {
                true if error.is_infinite() => {
                    write!(f, "\n    {} +/- (undetermined)", fixed(*value))?
                }
                true => write!(f, "\n    {} +/- (n/a)", fixed(*value))?,
                false => write!(f, "\n    {} +/-{}", fixed(*value), fixed(*error))?,
            }
        }
        Ok(())
    }
}

impl CurveFitter {
    /// Describes a fit as lmfit's `fit_report` does: statistics, parameters with errors and starts, and the
    /// correlations above 0.1.
    pub fn report(&self, fit: &CurveFit) -> String {
        let mut text = "[[Fit Statistics]]\n".to_owned();
        let is_free = |prior: &&Named<ParameterPrior>| !self.fixed.contains(&prior.parameter);
        let free = (fit.points + self.priors.iter().filter(is_free).count()) as i64 - fit.dof;
        let lines = [
            ("# fitting method", self.method()),
            ("# function evals", fit.evaluations.to_string()),
            ("# data points", fit.points.to_string()),
            ("# variables", free.to_string()),
            ("chi-square", fixed(fit.chi2)),
            ("reduced chi-square", fixed(fit.reduced_chi2())),
            ("Akaike info crit", fixed(fit.aic)),
            ("Bayesian info crit", fixed(fit.bic)),
        ];
        // writing into a String cannot fail
        for (name, value) in lines {
            let _ = writeln!(text, "    {name:18} = {}", value.trim());
        }
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
        text += "[[Variables]]\n";
        let names = self.model.parameters();
        let width = names
            .iter()
            .map(|name| name.chars().count())
            .max()
            .unwrap_or(0)
            .min(MAX_WIDTH)
            + 1;
        for (p, name) in names.iter().enumerate() {
            let _ = writeln!(
                text,
                "    {:width$} {}",
                format!("{name}:"),
                self.variable(fit, p)
            );
        }
        self.correlations(fit, &mut text);
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
    fn variable(&self, fit: &CurveFit, p: usize) -> String {
        let (value, error) = (fit.parameters[p], fit.errors[p]);
        let tie = self
            .ties
            .iter()
            .find(|tie| tie.parameter == self.model.parameters()[p]);
        if tie.is_none() && error == 0.0 {
            let sign = if value < 0.0 { "" } else { " " };
            return format!("{sign}{} (fixed)", general(value));
        }
        let mut text = fixed(value);
        if !error.is_finite() {
            text += if error.is_infinite() {
                " +/- (undetermined)"
            } else {
                " +/- (n/a)"
            };
        } else {
            let _ = write!(text, " +/-{}", fixed(error));
            if value != 0.0 {
                let _ = write!(text, " ({:.2}%)", 100.0 * (error / value).abs());
            }
        }
        match tie {
            Some(tie) => format!("{text} == '{}'", tie.value),
            None => format!("{text} (init = {})", general(fit.start[p])),
        }
    }

    /// Appends to `text` the correlations between parameters of a magnitude above 0.1, the largest first.
    fn correlations(&self, fit: &CurveFit, text: &mut String) {
        let names = self.model.parameters();
        let count = names.len();
        let tied = |p: usize| self.ties.iter().any(|tie| tie.parameter == names[p]);
        let correlation = fit.correlation();
        let pairs = (0..count).flat_map(|p| (p + 1..count).map(move |q| (p, q)));
        let mut found: Vec<(String, f64)> = pairs
            .filter(|&(p, q)| {
                !tied(p) && !tied(q) && correlation[p * count + q].abs() > LEAST_CORRELATION
            })
            .map(|(p, q)| {
                (
                    format!("C({}, {})", names[p], names[q]),
                    correlation[p * count + q],
                )
            })
            .collect();
        if found.is_empty() {
            return;
        }
        found.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        let width = found
            .iter()
            .map(|(name, _)| name.chars().count())
            .max()
            .unwrap_or(0)
            .min(MAX_WIDTH);
        let _ = writeln!(
            text,
            "[[Correlations]] (unreported correlations are < {LEAST_CORRELATION:.3})"
        );
        for (name, value) in found {
            let _ = writeln!(text, "    {name:width$} = {value:+.4}");
        }
    }
}

/// Returns a number in at least 11 characters, with as many digits as they hold, as lmfit's `gformat` does.
fn fixed(value: f64) -> String {
    let exponent = value.abs().log10();
    let exponent = if exponent.is_finite() {
        exponent as i32
    } else {
        0
    };
    let digits = if exponent.abs() > 99 { 3 } else { 4 };
    let plain =
        (exponent > 0 && exponent < digits + 4) || (exponent <= 0 && -exponent < digits - 1);
    let text = match plain || !value.is_finite() {
        true => format!("{value:.*}", (digits + 4 - exponent.max(0)) as usize),
        false => scientific(&format!("{value:.*e}", digits as usize)),
    };
    format!("{text:>11}")
}

/// Returns a number as C's `%.7g` does.
fn general(value: f64) -> String {
    let text = format!("{value:.6e}");
    let exponent: i32 = text
        .split_once('e')
        .and_then(|(_, e)| e.parse().ok())
        .unwrap_or(0);
    match text.split_once('e') {
        Some((digits, _)) if !(-4..7).contains(&exponent) => {
            scientific(&format!("{}e{exponent}", without_zeros(digits)))
        }
        Some(_) => without_zeros(&format!("{value:.*}", (6 - exponent) as usize)).to_owned(),
        None => text,
    }
}

/// Returns a decimal number without zeros at the end of its fraction.
fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}

/// Returns a number in Rust's scientific notation with the exponent as C prints it: a sign and two digits.
fn scientific(text: &str) -> String {
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
    fn numbers_are_lmfits() {
        for (value, gformat, g) in NUMBERS {
            assert_eq!(
                (fixed(value).as_str(), general(value).as_str()),
                (gformat, g),
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
