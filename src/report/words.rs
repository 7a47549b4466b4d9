//! Words and colours that several parts of the page share.

use super::About;
use super::number::{escape, shortened};
use crate::solver::Status;
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

/// Returns what a status is called where people read it: `converged (ftol)`, with the criterion that was met, or the
/// status itself.
pub fn ending(code: i32, text: &str) -> String {
    let text = shortened(text);
    if code > 0 {
        format!("converged ({text})")
    } else {
        text.to_string()
    }
}

/// Returns what it means that fits ended with this status, without saying again that they converged.
pub fn meaning(code: i32) -> &'static str {
    let meaning = Status::from_code(code).map_or("", Status::meaning);
    meaning.strip_prefix("converged: ").unwrap_or(meaning)
}

/// The effective temperature, whose subscript pictures set as one.
const TEFF: (&str, &str, &str) = ("T_eff", "T", "eff");

/// Returns the symbol by which astronomers know a parameter, as plain text, or else its name.
pub fn symbol(parameter: &str) -> &str {
    match parameter {
        "teff" => TEFF.0,
        "logg" => "log g",
        "feh" => "[Fe/H]",
        "alpha" => "[α/Fe]",
        "vsini" => "v sin i",
        other => other,
    }
}

/// Returns a parameter's symbol with its unit in parentheses, if it has one.
pub fn with_unit(about: &About, parameter: &str) -> String {
    match unit(&about.units, parameter) {
        "" => symbol(parameter).to_string(),
        unit => format!("{} ({unit})", symbol(parameter)),
    }
}

/// Escapes text for HTML, with the subscript of [`TEFF`].
pub fn html(text: &str) -> String {
    escape(text).replace(TEFF.0, &format!("{}<sub>{}</sub>", TEFF.1, TEFF.2))
}

/// Escapes text for an SVG `text` element, with the subscript of [`TEFF`].
pub fn svg(text: &str) -> String {
    let text = escape(text);
    let mut pieces = text.split(TEFF.0);
    let mut out = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        let (_, base, index) = TEFF;
        out += &format!(
            "{base}<tspan dy='3' font-size='80%'>{index}</tspan><tspan dy='-3'>{piece}</tspan>"
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_temperature_has_a_subscript() {
        let about = About::default();
        let label = with_unit(&about, "teff");
        assert_eq!(
            (label.as_str(), &*html(&label)),
            ("T_eff (K)", "T<sub>eff</sub> (K)")
        );
        assert_eq!(
            svg(&label),
            "T<tspan dy='3' font-size='80%'>eff</tspan><tspan dy='-3'> (K)</tspan>"
        );
        assert_eq!(html(&with_unit(&about, "my_label<")), "my_label&lt;");
        assert_eq!(
            ["logg", "feh", "alpha"].map(symbol),
            ["log g", "[Fe/H]", "[α/Fe]"]
        );
    }

    #[test]
    fn a_fit_that_converged_is_said_to() {
        assert_eq!(ending(Status::Ftol.code(), "ftol"), "converged (ftol)");
        assert_eq!(ending(Status::BadInput.code(), "no_data"), "no_data");
        assert_eq!(
            meaning(Status::Ftol.code()),
            "the objective no longer falls"
        );
        assert_eq!(
            meaning(Status::MaxRounds.code()),
            "not converged within the allowed rounds"
        );
    }
}
