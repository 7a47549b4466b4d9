//! Names of labels, units and arms, and texts for a terminal.
//!
//! Names come from files that others made, and go into tables, model files and messages. They are short, and have no
//! character that a terminal obeys or that begins a new line in a file.

/// Maximum number of characters of a name.
const MAX_LENGTH: usize = 64;

/// Fails if a name is too long for a table, or has a character that is not printable. `what` says what it names.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), String> {
    let length = name.chars().count();
    if length > MAX_LENGTH {
        let start: String = name.chars().take(MAX_LENGTH / 4).collect();
        let start = printable(&start);
        return Err(format!(
            "the {what} `{start}…` has {length} characters, more than the {MAX_LENGTH} of a name"
        ));
    }
    match name.chars().find(|c| !is_printable(*c)) {
        Some(found) => Err(format!(
            "the {what} `{}` has the character {found:?}, which no name may have",
            printable(name)
        )),
        None => Ok(()),
    }
}

/// Returns a text in which the characters that a terminal would obey are escaped, such as `\u{1b}`; line feeds and tabs
/// stay.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c if is_printable(c) => shown.push(c),
            c => shown.extend(c.escape_unicode()),
        }
    }
    shown
}

/// Returns whether a character is printed as itself: it is no control character, and none that starts a line, reverses
/// the direction of writing, or has no width.
fn is_printable(c: char) -> bool {
    let is_hidden = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !c.is_control() && !is_hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_printable() {
        for good in [
            "teff",
            "[Fe/H]",
            "température",
            "log₁₀ g",
            "",
            &"a".repeat(MAX_LENGTH),
        ] {
            assert_eq!(check_name("label", good), Ok(()));
        }
        let said = |name: &str| check_name("unit", name).unwrap_err();
        assert_eq!(
            said("K\n[arm]"),
            "the unit `K\n[arm]` has the character '\\n', which no name may have"
        );
        assert!(said("\u{1b}[2K").contains("`\\u{1b}[2K`"));
        assert!(said("a\u{202e}b").contains("\\u{202e}"));
        let long = said(&"é".repeat(70_000));
        assert_eq!(
            long,
            "the unit `éééééééééééééééé…` has 70000 characters, more than the 64 of a name"
        );
    }

    #[test]
    fn texts_for_a_terminal_have_no_commands() {
        assert_eq!(printable("a: é\n\tb"), "a: é\n\tb");
        assert_eq!(
            printable("\u{1b}]0;x\u{7}\r\u{9b}2J"),
            "\\u{1b}]0;x\\u{7}\\u{d}\\u{9b}2J"
        );
    }
}
