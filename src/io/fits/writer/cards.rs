//! FITS headers: cards of 80 bytes in blocks of 2880.

use crate::io::fits::sum::OnesSum;

/// Number of bytes of a block.
pub const BLOCK_BYTES: usize = 2880;
const CARD_BYTES: usize = 80;
/// Value of CHECKSUM with which the sum of a unit is computed.
const UNSET_CHECKSUM: &str = "0000000000000000";
/// Maximum number of characters of a string value in one card.
const MAX_TEXT_CHARACTERS: usize = 66;

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
    /// first. `heap_bytes` is the number of bytes behind the array.
    pub fn extension(kind: &str, bitpix: i64, axes: &[u64], heap_bytes: u64) -> Cards {
        let mut cards = Cards::default();
        cards
            .text("XTENSION", kind)
            .integer("BITPIX", bitpix)
            .integer("NAXIS", axes.len() as i64);
        for (k, axis) in axes.iter().enumerate() {
            cards.integer(&format!("NAXIS{}", k + 1), *axis as i64);
        }
        cards
            .integer("PCOUNT", heap_bytes as i64)
            .integer("GCOUNT", 1);
        cards
    }

    /// Appends one card (80 characters), padded with blanks, to the header.
    fn card(&mut self, card: &str) -> &mut Cards {
        debug_assert!(card.len() <= CARD_BYTES && card.is_ascii(), "{card}");
        self.text.push_str(&format!("{card:<CARD_BYTES$}"));
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
        let quoted = escape_non_ascii(value).replace('\'', "''");
        if quoted.len() <= MAX_TEXT_CHARACTERS + 1 {
            return self.card(&format!("{key:<8}= '{quoted:<8}'"));
        }
        // A long text goes on in CONTINUE cards; all texts but the last end in &.
        let mut rest = quoted.as_str();
        let mut card_start = format!("{key:<8}= ");
        while !rest.is_empty() {
            let end = split_position(rest);
            let (part, later) = rest.split_at(end);
            let ampersand = if later.is_empty() { "" } else { "&" };
            self.card(&format!("{card_start}'{part}{ampersand}'"));
            card_start = "CONTINUE  ".into();
            rest = later;
        }
        self
    }

    /// Appends the checksums and END, and returns the header in whole FITS blocks; `data` is the sum of the data that
    /// follow.
    pub fn into_header(mut self, data: OnesSum) -> Vec<u8> {
        // 1. Complete the header, with zeros as its CHECKSUM.
        self.text("DATASUM", &data.value().to_string());
        let checksum_start = self.text.len();
        self.text("CHECKSUM", UNSET_CHECKSUM).card("END");
        let length = self.text.len().next_multiple_of(BLOCK_BYTES);
        self.text.push_str(&" ".repeat(length - self.text.len()));
        // 2. Sum it up, and write the checksum over the zeros.
        let mut header = OnesSum::default();
        header.add(0, self.text.as_bytes());
        let mut checksum = Cards::default();
        checksum.text("CHECKSUM", &header.plus(data).checksum());
        let checksum_card = checksum_start..checksum_start + CARD_BYTES;
        self.text.replace_range(checksum_card, &checksum.text);
        self.text.into_bytes()
    }
}

/// Returns the number of characters of a quoted text that fit one card. A doubled quote stays on one card.
fn split_position(quoted: &str) -> usize {
    let mut end = quoted.len().min(MAX_TEXT_CHARACTERS);
    while end < quoted.len() {
        let quotes = quoted[..end]
            .bytes()
            .rev()
            .take_while(|byte| *byte == b'\'');
        if quotes.count() % 2 == 0 {
            break;
        }
        end -= 1;
    }
    end
}

/// Returns the text with every character that is not printable ASCII replaced by its Rust escape, such as `\n` or
/// `\u{e9}`.
pub fn escape_non_ascii(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            ' '..='~' => escaped.push(character),
            _ => escaped.extend(character.escape_default()),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_strings_continue_on_further_cards() {
        let mut cards = Cards::default();
        let long_text = format!("{}''{}", "a".repeat(65), "b".repeat(100));
        cards.text("KEY", &long_text);
        let bytes = cards.into_header(OnesSum::default());
        assert_eq!(bytes.len(), BLOCK_BYTES);
        let text = String::from_utf8(bytes).unwrap();
        let mut joined = String::new();
        for card in (0..4).map(|k| text[k * CARD_BYTES..(k + 1) * CARD_BYTES].trim_end()) {
            if card.starts_with("DATASUM") {
                break;
            }
            assert!(
                card.starts_with("KEY     = '") || card.starts_with("CONTINUE  '"),
                "{card}"
            );
            joined.push_str(card[11..].strip_suffix('\'').unwrap().trim_end_matches('&'));
        }
        assert_eq!(joined.replace("''", "'"), long_text);
    }

    #[test]
    fn characters_beyond_ascii_are_escaped() {
        assert_eq!(escape_non_ascii("a\nμ"), "a\\n\\u{3bc}");
    }
}
