//! Tokens of a formula's text, each with the place where it begins.

#![deny(clippy::indexing_slicing)] // a text must not cause a panic

/// Comparisons that are written with two characters, and the symbol of their token.
const COMPARISONS: [([char; 2], char); 4] = [
    (['<', '='], '≤'),
    (['>', '='], '≥'),
    (['!', '='], '≠'),
    (['=', '='], '≡'),
];

/// A piece of a formula.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Number(f64),
    Name(String),
    /// One of + - * / ^ ( ) = ; < > ≤ ≥ ≠ ≡ and the comma. In the text ^ may be **, ≤ may be <=, and ≡ is ==.
    Symbol(char),
    End,
}

impl Token {
    /// Returns the token in words, such as "the number 2" or "`x`", for an error message.
    pub fn describe(&self) -> String {
        match self {
            Token::Number(x) => format!("the number {x}"),
            Token::Name(name) => format!("`{name}`"),
            Token::Symbol(symbol) => {
                let written = COMPARISONS.iter().find(|(_, one)| one == symbol);
                format!(
                    "`{}`",
                    written.map_or(symbol.to_string(), |([first, second], _)| format!(
                        "{first}{second}"
                    ))
                )
            }
            Token::End => "the end of the formula".into(),
        }
    }
}

/// Error of the text, and the character at which it is (from 0).
#[derive(Clone, Debug, PartialEq)]
pub struct Complaint {
    pub at: usize,
    pub message: String,
}

/// Returns an error about the character number `at` of the formula, counted from 0.
pub fn complain<T>(at: usize, message: impl Into<String>) -> Result<T, Complaint> {
    Err(Complaint {
        at,
        message: message.into(),
    })
}

/// Splits a formula into tokens with their positions in characters, ended by `End`; fails on a meaningless character.
pub fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Complaint> {
    let letters: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&letter) = letters.get(at) {
        let rest = letters.get(at..).unwrap_or_default();
        let (token, length) = if letter.is_whitespace() {
            at += 1;
            continue;
        } else if letter.is_ascii_digit()
            || (letter == '.' && letters.get(at + 1).is_some_and(char::is_ascii_digit))
        {
            number(&letters, at)?
        } else if letter.is_alphabetic() || letter == '_' {
            let name: String = rest.iter().take_while(|c| is_of_name(**c)).collect();
            let length = name.chars().count();
            (Token::Name(name), length)
        } else if rest.starts_with(&['*', '*']) {
            (Token::Symbol('^'), 2)
        } else if let Some((_, symbol)) =
            COMPARISONS.iter().find(|(pair, _)| rest.starts_with(pair))
        {
            (Token::Symbol(*symbol), 2)
        } else if "+-*/^(),=;<>≤≥≠".contains(letter) {
            (Token::Symbol(letter), 1)
        } else {
            return complain(at, meaningless(rest));
        };
        found.push((at, token));
        at += length;
    }
    found.push((letters.len(), Token::End));
    Ok(found)
}

/// Returns whether a character may be in a name: letters, digits (subscripts, too) and underscores.
pub fn is_of_name(letter: char) -> bool {
    (letter.is_alphanumeric() && !SUPERSCRIPTS.contains(letter)) || letter == '_'
}

/// Superscript characters.
const SUPERSCRIPTS: &str = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ";
/// The plain character of each superscript.
const PLAIN: &str = "0123456789+-n";

/// Returns the message that the first of `letters` has no meaning in a formula, and what to write instead if that is
/// known.
fn meaningless(letters: &[char]) -> String {
    let plain = |letter: &char| {
        SUPERSCRIPTS
            .chars()
            .zip(PLAIN.chars())
            .find(|(raised, _)| raised == letter)
    };
    let power: String = letters
        .iter()
        .map_while(plain)
        .map(|(_, plain)| plain)
        .collect();
    let doubled = letters.starts_with(&['&', '&']) || letters.starts_with(&['|', '|']);
    let instead = match letters.first() {
        _ if !power.is_empty() => format!("^{power}"),
        Some('×' | '·' | '⋅' | '∗') => "*".into(),
        Some('÷' | '∕') => "/".into(),
        Some('−' | '–') => "-".into(),
        Some('√') => "sqrt(…)".into(),
        Some('&') => "and".into(),
        Some('|') => "or".into(),
        other => {
            return format!(
                "`{}` has no meaning in a formula",
                other.copied().unwrap_or(' ')
            );
        }
    };
    format!(
        "write {instead} instead of `{}`",
        letters
            .iter()
            .take(power.len().max(1 + usize::from(doubled)))
            .collect::<String>()
    )
}

/// Reads the number at index `at` and returns its token and its length in characters; fails if a name follows it
/// directly. A letter directly after it is an error: `2x` is not a product.
fn number(letters: &[char], at: usize) -> Result<(Token, usize), Complaint> {
    let is_digit = |k: usize| letters.get(k).is_some_and(char::is_ascii_digit);
    let mut end = at;
    while is_digit(end) || letters.get(end) == Some(&'.') {
        end += 1;
    }
    if matches!(letters.get(end), Some('e' | 'E')) {
        let sign = usize::from(matches!(letters.get(end + 1), Some('+' | '-')));
        if is_digit(end + 1 + sign) {
            end += 1 + sign;
            while is_digit(end) {
                end += 1;
            }
        }
    }
    let text: String = letters.get(at..end).unwrap_or_default().iter().collect();
    if let Some(next) = letters.get(end).filter(|c| is_of_name(**c)) {
        return complain(
            end,
            format!("`{next}` follows the number {text} without an operator between them"),
        );
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok((Token::Number(value), end - at)),
        Ok(_) => complain(at, format!("{text} is too large a number")),
        Err(_) => complain(at, format!("`{text}` is no number")),
    }
}
