//! Words and colours that several parts of the page share.

use super::About;
use crate::fit::quantity::unit;

/// Returns the class that colours a status: good, fair, bad.
pub fn grade(code: i32) -> &'static str {
    match code {
        1.. => "good",
        0 | -2 => "fair",
        _ => "bad",
    }
}

/// Returns the name of a parameter with its unit, for axes and heads.
pub fn with_unit(about: &About, parameter: &str) -> String {
    match unit(&about.units, parameter) {
        "" => parameter.to_string(),
        unit => format!("{parameter} ({unit})"),
    }
}
