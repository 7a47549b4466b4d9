//! Tokens of a formula's text, each with the position where it begins.

#![deny(clippy::indexing_slicing)] // No text may cause a panic.

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
                let comparison = COMPARISONS
                    .iter()
                    .find(|(_, comparison_symbol)| comparison_symbol == symbol);
                match comparison {
                    Some(([first, second], _)) => format!("`{first}{second}`"),
                    None => format!("`{symbol}`"),
                }
            }
            Token::End => "the end of the formula".into(),
        }
    }
}

/// Mistake in the text, with the position of its character, counted from 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Complaint {
    pub at: usize,
    pub message: String,
}

/// Returns an error about character number `at` of the formula, counted from 0.
pub fn complain<T>(at: usize, message: impl Into<String>) -> Result<T, Complaint> {
    Err(Complaint {
        at,
        message: message.into(),
    })
}

/// Splits a formula into tokens with their positions in characters, ended by `End`; fails on a meaningless character.
pub fn tokenise(text: &str) -> Result<Vec<(usize, Token)>, Complaint> {
    let letters: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut position = 0;
    while let Some(&letter) = letters.get(position) {
        let rest = letters.get(position..).unwrap_or_default();
        let (token, length) = if letter.is_whitespace() {
            position += 1;
            continue;
        } else if letter.is_ascii_digit()
            || (letter == '.' && letters.get(position + 1).is_some_and(char::is_ascii_digit))
        {
            read_number(&letters, position)?
        } else if letter.is_alphabetic() || letter == '_' {
            let name: String = rest.iter().take_while(|c| may_be_in_name(**c)).collect();
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
            return complain(position, explain_meaningless(rest));
        };
        tokens.push((position, token));
        position += length;
    }
    tokens.push((letters.len(), Token::End));
    Ok(tokens)
}

/// Returns whether a character may be in a name: letters, digits (subscripts, too) and underscores.
pub fn may_be_in_name(letter: char) -> bool {
    (letter.is_alphanumeric() && !SUPERSCRIPTS.contains(letter)) || letter == '_'
}

/// Superscript characters.
const SUPERSCRIPTS: &str = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ";
/// The plain character of each superscript, in the same order.
const PLAIN_CHARACTERS: &str = "0123456789+-n";

/// Returns the message that the first of `letters` has no meaning in a formula, and what to write instead if that is
/// known.
fn explain_meaningless(letters: &[char]) -> String {
    let plain_character = |letter: &char| {
        SUPERSCRIPTS
            .chars()
            .zip(PLAIN_CHARACTERS.chars())
            .find(|(superscript, _)| superscript == letter)
            .map(|(_, plain)| plain)
    };
    let power: String = letters.iter().map_while(plain_character).collect();
    let is_doubled = letters.starts_with(&['&', '&']) || letters.starts_with(&['|', '|']);
    let instead = match letters.first() {
        _ if !power.is_empty() => format!("^{power}"),
        Some('×' | '·' | '⋅' | '∗') => "*".into(),
        Some('÷' | '∕') => "/".into(),
        Some('−' | '–') => "-".into(),
        Some('√') => "sqrt(…)".into(),
        Some('&') => "and".into(),
        Some('|') => "or".into(),
        letter => {
            return format!(
                "`{}` has no meaning in a formula",
                letter.copied().unwrap_or(' ')
            );
        }
    };
    format!(
        "write {instead} instead of `{}`",
        letters
            .iter()
            .take(power.len().max(1 + usize::from(is_doubled)))
            .collect::<String>()
    )
}

/// Reads the number at index `start` and returns its token and its length in characters; fails if a letter follows it
/// directly, because `2x` is not a product.
fn read_number(letters: &[char], start: usize) -> Result<(Token, usize), Complaint> {
    let is_digit = |k: usize| letters.get(k).is_some_and(char::is_ascii_digit);
    let mut end = start;
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
    let text: String = letters.get(start..end).unwrap_or_default().iter().collect();
    if let Some(next) = letters.get(end).filter(|c| may_be_in_name(**c)) {
        return complain(
            end,
            format!("`{next}` follows the number {text} without an operator between them"),
        );
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok((Token::Number(value), end - start)),
        Ok(_) => complain(start, format!("{text} is too large a number")),
        Err(_) => complain(start, format!("`{text}` is no number")),
    }
}
