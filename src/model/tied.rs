//! Tied labels: `0.4 - 0.1*feh`, a sum of numbers, names and products of one of each.

/// Linear combination of labels, constant + Σ factor · label. Each label occurs once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinearTie {
    pub constant: f64,
    pub terms: Vec<(String, f64)>,
}

/// Parses a linear expression of labels, such as `2*a - b + 1`, into a constant and factors; errors name the character,
/// counted from 1.
pub fn parse_tie(text: &str) -> Result<LinearTie, String> {
    let mut reader = TieReader { text, position: 0 };
    let mut tie = LinearTie::default();
    let mut is_first = true;
    while is_first || reader.peek_character().is_some() {
        let sign = match reader.peek_character() {
            Some('+') => reader.skip_character(1.0),
            Some('-') => reader.skip_character(-1.0),
            _ if is_first => 1.0,
            Some(character) => {
                return Err(reader.error(&format!("expected + or -, not `{character}`")));
            }
            None => break,
        };
        is_first = false;
        let (factor, name) = reader.read_term()?;
        match name {
            None => tie.constant += sign * factor,
            Some(name) => match tie.terms.iter_mut().find(|(label, _)| *label == name) {
                Some((_, sum)) => *sum += sign * factor,
                None => tie.terms.push((name, sign * factor)),
            },
        }
    }
    Ok(tie)
}

/// Reads the text of a tie from left to right.
struct TieReader<'a> {
    text: &'a str,
    /// Index of the next byte.
    position: usize,
}

/// One factor of a product.
enum TieFactor {
    Number(f64),
    Name(String),
}

impl TieReader<'_> {
    /// Returns the part of the text after the read position.
    fn remaining_text(&self) -> &str {
        &self.text[self.position..]
    }

    /// Skips spaces, and returns the next character without consuming it; `None` at the end of the text.
    fn peek_character(&mut self) -> Option<char> {
        self.position += self.remaining_text().len() - self.remaining_text().trim_start().len();
        self.remaining_text().chars().next()
    }

    /// Skips one ASCII character, and returns `value`, for which the character stands.
    fn skip_character<T>(&mut self, value: T) -> T {
        self.position += 1;
        value
    }

    /// Returns the message with the number of the next character in front, counted from 1.
    fn error(&self, message: &str) -> String {
        format!(
            "character {}: {message}",
            self.text[..self.position].chars().count() + 1
        )
    }

    /// Parses a number, a name or a product of both, and returns the factor and the name, if there is one.
    fn read_term(&mut self) -> Result<(f64, Option<String>), String> {
        let first_factor = self.read_factor()?;
        if self.peek_character() != Some('*') {
            return Ok(match first_factor {
                TieFactor::Number(number) => (number, None),
                TieFactor::Name(name) => (1.0, Some(name)),
            });
        }
        self.skip_character(());
        match (first_factor, self.read_factor()?) {
            (TieFactor::Number(x), TieFactor::Name(name))
            | (TieFactor::Name(name), TieFactor::Number(x)) => Ok((x, Some(name))),
            (TieFactor::Number(x), TieFactor::Number(y)) => Ok((x * y, None)),
            (TieFactor::Name(_), TieFactor::Name(_)) => {
                Err(self.error("a product of two labels is not linear"))
            }
        }
    }

    /// Reads a label's name or an unsigned number; fails with a message on anything else.
    fn read_factor(&mut self) -> Result<TieFactor, String> {
        match self.peek_character() {
            Some(c) if c.is_alphabetic() || c == '_' => {
                let text = self.remaining_text();
                let length = text
                    .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .unwrap_or(text.len());
                let name = text[..length].to_string();
                self.position += length;
                Ok(TieFactor::Name(name))
            }
            Some(c) if c.is_ascii_digit() || c == '.' => {
                let length = number_length(self.remaining_text());
                let value = self.remaining_text()[..length]
                    .parse::<f64>()
                    .ok()
                    .filter(|x| x.is_finite());
                let value = value.ok_or_else(|| self.error("no number"))?;
                self.position += length;
                Ok(TieFactor::Number(value))
            }
            Some(character) => {
                Err(self.error(&format!("expected a number or a label, not `{character}`")))
            }
            None => Err(self.error("expected a number or a label at the end")),
        }
    }
}

/// Returns the length of the number at the front of `text`: digits, a point, an exponent with its sign.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_digit = |b: &&u8| b.is_ascii_digit() || **b == b'.';
    let end_of_digits =
        |start: usize| start + bytes.iter().skip(start).take_while(is_digit).count();
    let mantissa_end = end_of_digits(0);
    if !matches!(bytes.get(mantissa_end), Some(b'e' | b'E')) {
        return mantissa_end;
    }
    let sign_length = usize::from(matches!(bytes.get(mantissa_end + 1), Some(b'+' | b'-')));
    let exponent_start = mantissa_end + 1 + sign_length;
    let exponent_end = end_of_digits(exponent_start);
    // Without digits behind it, the letter e is no exponent.
    if exponent_end > exponent_start {
        exponent_end
    } else {
        mantissa_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_expressions_give_a_constant_and_factors() {
        let tie = |constant, terms: &[(&str, f64)]| LinearTie {
            constant,
            terms: terms
                .iter()
                .map(|(name, factor)| (name.to_string(), *factor))
                .collect(),
        };
        assert_eq!(
            parse_tie("0.4 - 0.1*feh").unwrap(),
            tie(0.4, &[("feh", -0.1)])
        );
        assert_eq!(
            parse_tie("-feh*2e-1+ logg + 1").unwrap(),
            tie(1.0, &[("feh", -0.2), ("logg", 1.0)])
        );
        assert_eq!(parse_tie("feh + feh").unwrap(), tie(0.0, &[("feh", 2.0)]));
        assert_eq!(parse_tie("0.3").unwrap(), tie(0.3, &[]));
    }

    #[test]
    fn errors_name_the_character() {
        for (text, message) in [
            ("", "character 1: expected a number or a label at the end"),
            (
                "0.4 -",
                "character 6: expected a number or a label at the end",
            ),
            ("0.4 0.1*feh", "character 5: expected + or -, not `0`"),
            (
                "feh*logg",
                "character 9: a product of two labels is not linear",
            ),
            (
                "0.4 - (feh)",
                "character 7: expected a number or a label, not `(`",
            ),
            ("1.2.3", "character 1: no number"),
        ] {
            assert_eq!(parse_tie(text).unwrap_err(), message, "{text}");
        }
    }
}
