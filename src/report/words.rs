//! Words and colours that several parts of the page share.

use super::About;
use super::number::{escape_html, shorten};
use crate::solver::Status;
use crate::spectral::quantity::unit;

/// Returns the CSS class by which a status code is coloured: `good` (converged), `fair` (out of rounds, interrupted) or
/// `bad`.
pub fn status_class(code: i32) -> &'static str {
    match code {
        1.. => "good",
        0 | -2 => "fair",
        _ => "bad",
    }
}

/// Returns what a status is called where people read it: `converged (ftol)`, with the criterion that was met, or the
/// status itself.
pub fn describe_status(code: i32, text: &str) -> String {
    let text = shorten(text);
    if code > 0 {
        format!("converged ({text})")
    } else {
        text.to_string()
    }
}

/// Returns what it means that fits ended with this status, without saying again that they converged.
pub fn status_meaning(code: i32) -> &'static str {
    let meaning = Status::from_code(code).map_or("", Status::meaning);
    meaning.strip_prefix("converged: ").unwrap_or(meaning)
}

/// The effective temperature, whose subscript pictures set as one.
const TEMPERATURE_SYMBOL: (&str, &str, &str) = ("T_eff", "T", "eff");

/// Returns the symbol by which astronomers know a parameter, as plain text, or else its name.
pub fn parameter_symbol(parameter: &str) -> &str {
    match parameter {
        "teff" => TEMPERATURE_SYMBOL.0,
        "logg" => "log g",
        "feh" => "[Fe/H]",
        "alpha" => "[α/Fe]",
        "vsini" => "v sin i",
        name => name,
    }
}

/// Returns a parameter's symbol with its unit in parentheses, if it has one.
pub fn symbol_with_unit(about: &About, parameter: &str) -> String {
    match unit(&about.units, parameter) {
        "" => parameter_symbol(parameter).to_string(),
        unit => format!("{} ({unit})", parameter_symbol(parameter)),
    }
}

/// Escapes text for HTML, with the subscript of [`TEMPERATURE_SYMBOL`].
pub fn html_with_subscript(text: &str) -> String {
    escape_html(text).replace(
        TEMPERATURE_SYMBOL.0,
        &format!(
            "{}<sub>{}</sub>",
            TEMPERATURE_SYMBOL.1, TEMPERATURE_SYMBOL.2
        ),
    )
}

/// Escapes text for an SVG `text` element, with the subscript of [`TEMPERATURE_SYMBOL`].
pub fn svg_with_subscript(text: &str) -> String {
    let escaped = escape_html(text);
    let mut pieces = escaped.split(TEMPERATURE_SYMBOL.0);
    let mut svg = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        let (_, base, index) = TEMPERATURE_SYMBOL;
        svg += &format!(
            "{base}<tspan dy='3' font-size='80%'>{index}</tspan><tspan dy='-3'>{piece}</tspan>"
        );
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_temperature_has_a_subscript() {
        let about = About::default();
        let label = symbol_with_unit(&about, "teff");
        assert_eq!(
            (label.as_str(), &*html_with_subscript(&label)),
            ("T_eff (K)", "T<sub>eff</sub> (K)")
        );
        assert_eq!(
            svg_with_subscript(&label),
            "T<tspan dy='3' font-size='80%'>eff</tspan><tspan dy='-3'> (K)</tspan>"
        );
        assert_eq!(
            html_with_subscript(&symbol_with_unit(&about, "my_label<")),
            "my_label&lt;"
        );
        assert_eq!(
            ["logg", "feh", "alpha"].map(parameter_symbol),
            ["log g", "[Fe/H]", "[α/Fe]"]
        );
    }

    #[test]
    fn converged_fits_are_described_as_converged() {
        assert_eq!(
            describe_status(Status::Ftol.code(), "ftol"),
            "converged (ftol)"
        );
        assert_eq!(
            describe_status(Status::BadInput.code(), "no_data"),
            "no_data"
        );
        assert_eq!(
            status_meaning(Status::Ftol.code()),
            "the objective no longer falls"
        );
        assert_eq!(
            status_meaning(Status::MaxRounds.code()),
            "not converged within the allowed rounds"
        );
    }
}
