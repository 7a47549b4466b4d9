//! Words and colours that several parts of the page share.

use super::About;
use crate::spectral::quantity::unit;

/// Returns the CSS class by which a status code is coloured: `good` (converged), `fair` (out of rounds, interrupted) or
/// `bad`.
pub fn grade(code: i32) -> &'static str {
    match code {
        1.. => "good",
        0 | -2 => "fair",
        _ => "bad",
    }
}

/// Returns a parameter's name with its unit in parentheses, if it has one.
pub fn with_unit(about: &About, parameter: &str) -> String {
    match unit(&about.units, parameter) {
        "" => parameter.to_string(),
        unit => format!("{parameter} ({unit})"),
    }
}
