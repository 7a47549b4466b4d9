//! Words and colours that several parts of the page share.

use crate::fit::quantity::unit;

/// The class that colours a status: good, fair, bad.
pub fn grade(code: i32) -> &'static str {
    match code {
        1.. => "good",
        0 | -2 => "fair",
        _ => "bad",
    }
}

/// A parameter with its unit, as axes and heads say it.
pub fn with_unit(units: &[(String, String)], parameter: &str) -> String {
    match unit(units, parameter) {
        "" => parameter.to_string(),
        unit => format!("{parameter} ({unit})"),
    }
}
