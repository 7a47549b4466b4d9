//! Names of labels, units and arms, and texts for a terminal.
//!
//! Names come from files that others made, and go into tables, model files and messages. They are short, and have no
//! control characters, which a terminal would execute or which would begin a new line in a file.

/// Maximum number of characters of a name.
const MAX_NAME_CHARACTERS: usize = 64;

/// Fails if a name is too long for a table, or has a character that is not printable. `named_thing` describes the
/// named thing in the message.
pub(crate) fn check_name(named_thing: &str, name: &str) -> Result<(), String> {
    let length = name.chars().count();
    if length > MAX_NAME_CHARACTERS {
        let start: String = name.chars().take(MAX_NAME_CHARACTERS / 4).collect();
        let start = printable(&start);
        return Err(format!(
            "the {named_thing} `{start}…` has {length} characters, more than the {MAX_NAME_CHARACTERS} of a name"
        ));
    }
    match name.chars().find(|c| !is_printable(*c)) {
        Some(character) => Err(format!(
            "the {named_thing} `{}` has the character {character:?}, which no name may have",
            printable(name)
        )),
        None => Ok(()),
    }
}

/// Returns a text in which control characters are escaped, such as `\u{1b}`; line feeds and tabs
/// stay.
pub fn printable(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => escaped.push(c),
            c if is_printable(c) => escaped.push(c),
            c => escaped.extend(c.escape_unicode()),
        }
    }
    escaped
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
        for name in [
            "teff",
            "[Fe/H]",
            "température",
            "log₁₀ g",
            "",
            &"a".repeat(MAX_NAME_CHARACTERS),
        ] {
            assert_eq!(check_name("label", name), Ok(()));
        }
        let message = |name: &str| check_name("unit", name).unwrap_err();
        assert_eq!(
            message("K\n[arm]"),
            "the unit `K\n[arm]` has the character '\\n', which no name may have"
        );
        assert!(message("\u{1b}[2K").contains("`\\u{1b}[2K`"));
        assert!(message("a\u{202e}b").contains("\\u{202e}"));
        let long_name_message = message(&"é".repeat(70_000));
        assert_eq!(
            long_name_message,
            "the unit `éééééééééééééééé…` has 70000 characters, more than the 64 of a name"
        );
    }

    #[test]
    fn control_characters_are_escaped_in_printed_texts() {
        assert_eq!(printable("a: é\n\tb"), "a: é\n\tb");
        assert_eq!(
            printable("\u{1b}]0;x\u{7}\r\u{9b}2J"),
            "\\u{1b}]0;x\\u{7}\\u{d}\\u{9b}2J"
        );
    }
}
