//! Header cards: `KEYWORD = value / comment`, 80 bytes each.

use std::collections::BTreeMap;

/// Bytes of a card.
pub const CARD_BYTES: usize = 80;
/// Keywords that decide sizes and types. If one is given twice, the header is ambiguous.
const STRUCTURAL_KEYWORDS: [&str; 10] = [
    "SIMPLE", "XTENSION", "BITPIX", "NAXIS", "PCOUNT", "GCOUNT", "TFIELDS", "TFORM", "BZERO",
    "BSCALE",
];

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Logical(bool),
    Integer(i64),
    Float(f64),
}

/// The valued keywords of one header; comments and history are left out.
#[derive(Clone, Debug, Default)]
pub struct Header {
    values: BTreeMap<String, Value>,
    /// The card of CHECKSUM has a comment, as other programs write it.
    has_foreign_checksum: bool,
}

impl Header {
    /// Parses the cards of a FITS header up to END into keys and values; of a key given twice, the first value counts.
    ///
    /// # Errors
    /// A card that is not ASCII, or a structural keyword given twice.
    pub fn parse(blocks: &[u8]) -> Result<Header, String> {
        let mut header = Header::default();
        // key of the card before, if its text goes on in the next card
        let mut continued_key: Option<String> = None;
        for card in blocks.chunks_exact(CARD_BYTES) {
            // 1. Split the card into keyword and value.
            if !card.iter().all(|byte| (b' '..=b'~').contains(byte)) {
                return Err(format!(
                    "a header card is not ASCII text: {:?}",
                    String::from_utf8_lossy(card.split_at(8).0)
                ));
            }
            let text = String::from_utf8_lossy(card);
            let (key, rest) = text.split_at(8);
            let key = key.trim_end();
            if key == "END" {
                break;
            }
            // 2. A CONTINUE card goes on with the text of the card before.
            if key == "CONTINUE" {
                header.append_continued_text(continued_key.as_deref(), rest);
                continue;
            }
            continued_key = None;
            let Some(value) = rest.strip_prefix('=').and_then(parse_value) else {
                continue;
            };
            // 3. Of a keyword given twice the first value counts.
            if header.values.contains_key(key) {
                if STRUCTURAL_KEYWORDS.contains(&key.trim_end_matches(|c: char| c.is_ascii_digit()))
                {
                    return Err(format!("{key} is given twice"));
                }
                continue; // as astropy does, the first one counts
            }
            // the comment follows the value, which has no quotes inside
            header.has_foreign_checksum |=
                key == "CHECKSUM" && rest.split('\'').nth(2).is_some_and(is_comment);
            let is_continued = matches!(&value, Value::Text(text) if text.ends_with('&'));
            continued_key = is_continued.then(|| key.to_string());
            header.values.insert(key.to_string(), value);
        }
        Ok(header)
    }

    /// Appends the text of a CONTINUE card to a string that ends in `&`.
    fn append_continued_text(&mut self, key: Option<&str>, card: &str) {
        let value = key.and_then(|key| self.values.get_mut(key));
        if let (Some(Value::Text(text)), Some(Value::Text(continuation))) =
            (value, parse_value(card))
            && text.ends_with('&')
        {
            text.pop();
            text.push_str(&continuation);
        }
    }

    /// Returns whether another program than popfit has written CHECKSUM: astropy and CFITSIO put a comment behind it.
    pub fn has_foreign_checksum(&self) -> bool {
        self.has_foreign_checksum
    }

    /// Returns the value of a key as text; `None` if it is absent or of another type.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.values.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the value of a key as an integer; `None` if it is absent or of another type.
    pub fn integer(&self, key: &str) -> Option<i64> {
        match self.values.get(key) {
            Some(Value::Integer(n)) => Some(*n),
            _ => None,
        }
    }

    /// Returns the value of a key as a float, from an integer too; `None` if it is absent or of another type.
    pub fn float(&self, key: &str) -> Option<f64> {
        match self.values.get(key) {
            Some(Value::Float(x)) => Some(*x),
            Some(Value::Integer(n)) => Some(*n as f64),
            _ => None,
        }
    }

    /// Returns the value of a key as a name, from a text or an integer; `None` if it is absent, empty or of another
    /// type.
    pub fn name(&self, key: &str) -> Option<String> {
        match self.values.get(key) {
            Some(Value::Text(text)) => {
                Some(text.trim().to_string()).filter(|text| !text.is_empty())
            }
            Some(Value::Integer(n)) => Some(n.to_string()),
            _ => None,
        }
    }

    /// Returns the value of a key as a boolean; `None` if it is absent or of another type.
    pub fn logical(&self, key: &str) -> Option<bool> {
        match self.values.get(key) {
            Some(Value::Logical(yes)) => Some(*yes),
            _ => None,
        }
    }
}

/// Returns whether what follows the value of a card is a comment.
fn is_comment(rest: &str) -> bool {
    rest.trim_start().starts_with('/')
}

/// Parses the value behind `=`; `None` if there is none or popfit does not read its type (complex numbers).
fn parse_value(field: &str) -> Option<Value> {
    let field = field.trim_start();
    if let Some(quoted) = field.strip_prefix('\'') {
        return Some(Value::Text(unquote(quoted)));
    }
    let bare = field.split('/').next().unwrap_or("").trim();
    match bare {
        "" => None,
        "T" => Some(Value::Logical(true)),
        "F" => Some(Value::Logical(false)),
        _ => match bare.parse() {
            Ok(n) => Some(Value::Integer(n)),
            Err(_) => bare.replace(['D', 'd'], "E").parse().ok().map(Value::Float),
        },
    }
}

/// Reads a FITS string from after its opening quote to the closing one: joins doubled quotes, and drops trailing
/// spaces.
fn unquote(quoted: &str) -> String {
    let mut text = String::new();
    let mut characters = quoted.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\'' && characters.next_if_eq(&'\'').is_none() {
            break;
        }
        text.push(character);
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(cards: &[&str]) -> Result<Header, String> {
        Header::parse(
            cards
                .iter()
                .map(|card| format!("{card:<80}"))
                .collect::<String>()
                .as_bytes(),
        )
    }

    #[test]
    fn values_of_every_type_are_parsed() {
        let header = parse(&[
            "A       = 'it''s / text  ' / comment",
            "B       =                    T",
            "C       =  9223372036854775807 / beyond 2^53",
            "D       = 1.5D-3",
            "E       = / undefined",
            "LONG    = 'one &'",
            "CONTINUE  'two &'",
            "CONTINUE  'three'",
            "A       = 'again'",
            "END",
            "F       = 1",
        ])
        .unwrap();
        assert_eq!(header.text("A"), Some("it's / text"));
        assert_eq!(header.logical("B"), Some(true));
        assert_eq!(header.integer("C"), Some(i64::MAX));
        assert_eq!(header.float("D"), Some(0.0015));
        assert_eq!((header.float("E"), header.integer("F")), (None, None));
        assert_eq!(header.text("LONG"), Some("one two three"));
    }

    #[test]
    fn repeated_structural_keywords_are_refused() {
        assert!(
            parse(&["NAXIS1  = 3", "NAXIS1  = 4"])
                .unwrap_err()
                .contains("NAXIS1")
        );
        assert!(
            parse(&["TFORM12 = 'J'", "TFORM12 = 'D'"])
                .unwrap_err()
                .contains("TFORM12")
        );
        assert!(parse(&["A       = 'é'"]).is_err());
    }
}
