//! FITS headers: cards of 80 bytes in blocks of 2880.

use crate::io::fits::sum::OnesSum;

/// Number of bytes of a block.
pub const BLOCK: usize = 2880;
const CARD: usize = 80;
/// Value of CHECKSUM with which the sum of a unit is computed.
const ZEROS: &str = "0000000000000000";
/// Maximum number of characters of a string value in one card.
const TEXT: usize = 66;

/// A header under construction.
#[derive(Default)]
pub struct Cards {
    text: String,
}

impl Cards {
    /// Begins the primary header of a FITS file that has data only in extensions.
    pub fn primary() -> Cards {
        let mut cards = Cards::default();
        cards
            .logical("SIMPLE", true)
            .integer("BITPIX", 8)
            .integer("NAXIS", 0)
            .logical("EXTEND", true);
        cards
    }

    /// Begins the header of a FITS extension (such as IMAGE) with an array: bits per value, lengths of axes, fastest
    /// first.
    pub fn extension(kind: &str, bitpix: i64, axes: &[u64]) -> Cards {
        let mut cards = Cards::default();
        cards
            .text("XTENSION", kind)
            .integer("BITPIX", bitpix)
            .integer("NAXIS", axes.len() as i64);
        for (k, axis) in axes.iter().enumerate() {
            cards.integer(&format!("NAXIS{}", k + 1), *axis as i64);
        }
        cards.integer("PCOUNT", 0).integer("GCOUNT", 1);
        cards
    }

    /// Appends one card (80 characters), padded with blanks, to the header.
    fn card(&mut self, card: &str) -> &mut Cards {
        debug_assert!(card.len() <= CARD && card.is_ascii(), "{card}");
        self.text.push_str(&format!("{card:<CARD$}"));
        self
    }

    /// Appends a card with a keyword and a value T or F to the header.
    pub fn logical(&mut self, key: &str, value: bool) -> &mut Cards {
        self.card(&format!("{key:<8}= {:>20}", if value { "T" } else { "F" }))
    }

    /// Appends a card with a keyword and an integer to the header.
    pub fn integer(&mut self, key: &str, value: i64) -> &mut Cards {
        self.card(&format!("{key:<8}= {value:>20}"))
    }

    /// Appends a card with a keyword and a number given as digits, such as an integer beyond i64, to the header.
    pub fn digits(&mut self, key: &str, digits: &str) -> &mut Cards {
        self.card(&format!("{key:<8}= {digits:>20}"))
    }

    /// Appends a keyword and a string to the header, in several cards (CONTINUE) if it is long.
    pub fn text(&mut self, key: &str, value: &str) -> &mut Cards {
        let quoted = ascii(value).replace('\'', "''");
        if quoted.len() <= TEXT + 1 {
            return self.card(&format!("{key:<8}= '{quoted:<8}'"));
        }
        let mut rest = quoted.as_str();
        let mut head = format!("{key:<8}= ");
        while !rest.is_empty() {
            // a doubled quote stays on one card
            let mut end = rest.len().min(TEXT);
            while end < rest.len()
                && rest[..end]
                    .bytes()
                    .rev()
                    .take_while(|b| *b == b'\'')
                    .count()
                    % 2
                    == 1
            {
                end -= 1;
            }
            let (now, later) = rest.split_at(end);
            self.card(&format!(
                "{head}'{now}{}'",
                if later.is_empty() { "" } else { "&" }
            ));
            head = "CONTINUE  ".into();
            rest = later;
        }
        self
    }

    /// Appends the checksums and END, and returns the header in whole FITS blocks; `data` is the sum of the data that
    /// follow.
    pub fn finish(mut self, data: OnesSum) -> Vec<u8> {
        self.text("DATASUM", &data.value().to_string());
        let place = self.text.len();
        self.text("CHECKSUM", ZEROS).card("END");
        let blocks = self.text.len().next_multiple_of(BLOCK);
        self.text.push_str(&" ".repeat(blocks - self.text.len()));
        let mut header = OnesSum::default();
        header.add(0, self.text.as_bytes());
        let mut known = Cards::default();
        known.text("CHECKSUM", &header.plus(data).checksum());
        self.text.replace_range(place..place + CARD, &known.text);
        self.text.into_bytes()
    }
}

/// Returns the text with every character that is not printable ASCII replaced by its Rust escape, such as `\n` or
/// `\u{e9}`.
pub fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' '..='~' => out.push(c),
            other => out.extend(other.escape_default()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_strings_go_on() {
        let mut cards = Cards::default();
        let long = format!("{}''{}", "a".repeat(65), "b".repeat(100));
        cards.text("KEY", &long);
        let bytes = cards.finish(OnesSum::default());
        assert_eq!(bytes.len(), BLOCK);
        let text = String::from_utf8(bytes).unwrap();
        let mut joined = String::new();
        for card in (0..4).map(|k| text[k * CARD..(k + 1) * CARD].trim_end()) {
            if card.starts_with("DATASUM") {
                break;
            }
            assert!(
                card.starts_with("KEY     = '") || card.starts_with("CONTINUE  '"),
                "{card}"
            );
            joined.push_str(card[11..].strip_suffix('\'').unwrap().trim_end_matches('&'));
        }
        assert_eq!(joined.replace("''", "'"), long);
    }

    #[test]
    fn text_is_ascii() {
        assert_eq!(ascii("a\nμ"), "a\\n\\u{3bc}");
    }
}
