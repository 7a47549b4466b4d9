//! Tied labels: `0.4 - 0.1*feh`, a sum of numbers, names and products of one of each.

/// constant + Σ factor · label; every label once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tie {
    pub constant: f64,
    pub terms: Vec<(String, f64)>,
}

/// Parses a linear expression of labels, such as `2*a - b + 1`, into a constant and factors; errors name the character,
/// from 1.
pub fn parse(text: &str) -> Result<Tie, String> {
    let mut reader = Reader { text, at: 0 };
    let mut tie = Tie::default();
    let mut first = true;
    while first || reader.peek().is_some() {
        let sign = match reader.peek() {
            Some('+') => reader.skip(1.0),
            Some('-') => reader.skip(-1.0),
            _ if first => 1.0,
            Some(other) => return Err(reader.wrong(&format!("expected + or -, not `{other}`"))),
            None => break,
        };
        first = false;
        let (factor, name) = reader.term()?;
        match name {
            None => tie.constant += sign * factor,
            Some(name) => match tie.terms.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += sign * factor,
                None => tie.terms.push((name, sign * factor)),
            },
        }
    }
    Ok(tie)
}

struct Reader<'a> {
    text: &'a str,
    /// Byte.
    at: usize,
}

enum Factor {
    Number(f64),
    Name(String),
}

impl Reader<'_> {
    /// Returns the part of the text after the read position.
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// Skips spaces, and returns the next character without consuming it; `None` at the end of the text.
    fn peek(&mut self) -> Option<char> {
        self.at += self.rest().len() - self.rest().trim_start().len();
        self.rest().chars().next()
    }

    /// Moves one byte on, past an ASCII character, and returns `value`, what the character stands for.
    fn skip<T>(&mut self, value: T) -> T {
        self.at += 1;
        value
    }

    /// Returns the message with the character at which the reader stands in front, counted from 1.
    fn wrong(&self, message: &str) -> String {
        format!(
            "character {}: {message}",
            self.text[..self.at].chars().count() + 1
        )
    }

    /// Parses a number, a name or a product of both, and returns the factor and the name, if there is one.
    fn term(&mut self) -> Result<(f64, Option<String>), String> {
        let first = self.factor()?;
        if self.peek() != Some('*') {
            return Ok(match first {
                Factor::Number(x) => (x, None),
                Factor::Name(name) => (1.0, Some(name)),
            });
        }
        self.skip(());
        match (first, self.factor()?) {
            (Factor::Number(x), Factor::Name(name)) | (Factor::Name(name), Factor::Number(x)) => {
                Ok((x, Some(name)))
            }
            (Factor::Number(x), Factor::Number(y)) => Ok((x * y, None)),
            (Factor::Name(_), Factor::Name(_)) => {
                Err(self.wrong("a product of two labels is not linear"))
            }
        }
    }

    /// Reads a label's name or an unsigned number; fails with a message on anything else.
    fn factor(&mut self) -> Result<Factor, String> {
        match self.peek() {
            Some(c) if c.is_alphabetic() || c == '_' => {
                let rest = self.rest();
                let end = rest
                    .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .unwrap_or(rest.len());
                let name = rest[..end].to_string();
                self.at += end;
                Ok(Factor::Name(name))
            }
            Some(c) if c.is_ascii_digit() || c == '.' => {
                let length = number_length(self.rest());
                let value = self.rest()[..length]
                    .parse::<f64>()
                    .ok()
                    .filter(|x| x.is_finite());
                let value = value.ok_or_else(|| self.wrong("no number"))?;
                self.at += length;
                Ok(Factor::Number(value))
            }
            Some(other) => Err(self.wrong(&format!("expected a number or a label, not `{other}`"))),
            None => Err(self.wrong("expected a number or a label at the end")),
        }
    }
}

/// Returns the length of the number at the front of `text`: digits, a point, an exponent with its sign.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_digit = |b: &&u8| b.is_ascii_digit() || **b == b'.';
    let digits = |from: usize| from + bytes.iter().skip(from).take_while(is_digit).count();
    let end = digits(0);
    if !matches!(bytes.get(end), Some(b'e' | b'E')) {
        return end;
    }
    let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
    let exponent = digits(end + 1 + sign);
    if exponent > end + 1 + sign {
        exponent
    } else {
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_expressions() {
        let tie = |constant, terms: &[(&str, f64)]| Tie {
            constant,
            terms: terms
                .iter()
                .map(|(name, factor)| (name.to_string(), *factor))
                .collect(),
        };
        assert_eq!(parse("0.4 - 0.1*feh").unwrap(), tie(0.4, &[("feh", -0.1)]));
        assert_eq!(
            parse("-feh*2e-1+ logg + 1").unwrap(),
            tie(1.0, &[("feh", -0.2), ("logg", 1.0)])
        );
        assert_eq!(parse("feh + feh").unwrap(), tie(0.0, &[("feh", 2.0)]));
        assert_eq!(parse("0.3").unwrap(), tie(0.3, &[]));
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
            assert_eq!(parse(text).unwrap_err(), message, "{text}");
        }
    }
}
