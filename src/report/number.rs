//! Numbers and texts for readers.

use std::borrow::Cow;

use twox_hash::XxHash3_128;

/// Maximum number of characters of an id, a path or a status in the page.
const MAX_SHOWN_CHARACTERS: usize = 80;
/// Number of characters that are kept of the beginning of a longer text.
const BEGINNING_CHARACTERS: usize = 36;
/// Number of characters that are kept of the end of a longer text.
const END_CHARACTERS: usize = 20;

/// Returns an id, a path or a status as the page shows it. One of more than 80 characters is shortened to its
/// beginning, its end and a hash of the whole, so that two that differ are shown differently.
pub fn shorten(text: &str) -> Cow<'_, str> {
    let characters = text.chars().count();
    if characters <= MAX_SHOWN_CHARACTERS {
        return text.into();
    }
    let beginning: String = text.chars().take(BEGINNING_CHARACTERS).collect();
    let end: String = text.chars().skip(characters - END_CHARACTERS).collect();
    format!(
        "{beginning}…{end} [{:016x}]",
        XxHash3_128::oneshot(text.as_bytes()) as u64
    )
    .into()
}

/// Escapes `&`, `<`, `>` and quotes, so that text can be put into HTML and its attributes.
pub fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            character => escaped.push(character),
        }
    }
    escaped
}

/// Formats a number to about `digits` significant digits, with the sign − for negative ones, – for NaN.
pub fn format_number(x: f64, digits: usize) -> String {
    if !x.is_finite() {
        return format_non_finite(x);
    }
    if x == 0.0 {
        return "0".into();
    }
    let magnitude = decimal_exponent(x);
    if !(-5..15).contains(&magnitude) {
        return use_minus_sign(format!("{x:.*e}", digits.saturating_sub(1)));
    }
    format_decimals(x, (digits as i32 - 1 - magnitude).max(0) as usize)
}

/// Formats a value ± its error, to two significant digits of the error; an infinite error as ∞, and without a positive
/// error the value alone.
pub fn format_with_error(value: f64, error: f64) -> String {
    if value.is_finite() && error == f64::INFINITY {
        return format!("{} ± ∞", format_number(value, 5));
    }
    if !(value.is_finite() && error.is_finite() && error > 0.0) {
        return format_number(value, 5);
    }
    // rounding may carry: 0.0996 has two digits as 0.10
    let rounded: f64 = format!("{error:.1e}").parse().unwrap_or(error);
    let decimals = 1 - decimal_exponent(rounded);
    if decimals > 9 || decimal_exponent(value) > 14 {
        return format!("{} ± {}", format_number(value, 6), format_number(error, 2));
    }
    let decimals = decimals.max(0) as usize;
    format!(
        "{} ± {}",
        format_decimals(value, decimals),
        format_decimals(error, decimals)
    )
}

/// Formats a count, with thin spaces between groups of three digits from 10 000 on.
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (k, digit) in digits.chars().enumerate() {
        if k > 0 && (digits.len() - k).is_multiple_of(3) && digits.len() > 4 {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats `part` / `whole` as a percentage; 0 % and 100 % are shown only if they are exact, – if `whole` is 0.
pub fn format_percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".into();
    }
    let share = 100.0 * part as f64 / whole as f64;
    match part {
        0 => "0 %".into(),
        _ if part == whole => "100 %".into(),
        _ if share < 0.1 => "< 0.1 %".into(),
        _ if share > 99.9 => "> 99.9 %".into(),
        _ => format!("{share:.1} %"),
    }
}

/// Formats a number with this many decimals, with the sign − for negative ones and none for zero.
pub fn format_decimals(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let is_zero = text.bytes().all(|byte| matches!(byte, b'-' | b'0' | b'.'));
    use_minus_sign(if is_zero {
        text.trim_start_matches('-').to_string()
    } else {
        text
    })
}

/// Replaces each hyphen in a number's text by the minus sign −.
fn use_minus_sign(text: String) -> String {
    text.replace('-', "−")
}

/// Returns the text for a number that is not finite: – for NaN, ∞ or −∞.
fn format_non_finite(x: f64) -> String {
    if x.is_nan() {
        "–".into()
    } else if x > 0.0 {
        "∞".into()
    } else {
        "−∞".into()
    }
}

/// Returns the power of ten of a number's first digit, as 2 for 345 and −2 for 0.05; 0 for zero.
fn decimal_exponent(x: f64) -> i32 {
    if x == 0.0 {
        0
    } else {
        x.abs().log10().floor() as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_two_digits_and_values_match() {
        let cases = [
            (5777.123, 12.34, "5777 ± 12"),
            (-0.04321, 0.00567, "−0.0432 ± 0.0057"),
            (4.4377, 0.0996, "4.44 ± 0.10"),
            (123_456.0, 4321.0, "123456 ± 4321"),
            (-0.001, 0.5, "0.00 ± 0.50"),
            (1.5, f64::NAN, "1.5000"),
            (1.5, 0.0, "1.5000"),
            (f64::NAN, 0.1, "–"),
            (f64::INFINITY, f64::INFINITY, "∞"),
        ];
        for (value, error, expected) in cases {
            assert_eq!(format_with_error(value, error), expected);
        }
    }

    #[test]
    fn numbers_and_texts_are_shortened() {
        assert_eq!(format_number(-0.0, 4), "0");
        assert_eq!(format_number(1234.5678, 3), "1235");
        assert_eq!(format_number(-1.5e-9, 3), "−1.50e−9");
        assert_eq!(format_count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(
            (format_percent(1, 10_000), format_percent(9_999, 10_000)),
            ("< 0.1 %".into(), "> 99.9 %".into())
        );
        let long_text = "é".repeat(80);
        assert_eq!(shorten(&long_text), long_text);
        let [first, second] = ["a", "b"]
            .map(|middle| shorten(&format!("{long_text}{middle}{long_text}")).into_owned());
        assert!(
            first != second && first.starts_with(&"é".repeat(36)) && first.chars().count() == 76,
            "{first}"
        );
        assert_eq!(
            escape_html("<script>\"&'"),
            "&lt;script&gt;&quot;&amp;&#39;"
        );
    }
}
