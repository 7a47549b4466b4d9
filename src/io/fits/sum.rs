//! Checksums of FITS units, the keywords DATASUM and CHECKSUM (FITS standard 4.0, §4.4.2.7 and appendix J).
//!
//! DATASUM is the ones' complement sum of the data, taken as big-endian words of 32 bits, blocks padded. CHECKSUM is
//! text that makes the sum of the whole unit, header included, all ones.

#![deny(clippy::indexing_slicing)] // a file must not cause a panic

/// Characters of CHECKSUM's value.
const CHECKSUM_CHARACTERS: usize = 16;

/// A ones' complement sum of bytes at given positions.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnesSum(u64);

impl OnesSum {
    /// Adds bytes that begin at byte `position` of the data to the sum; the order in which pieces are added does not
    /// matter.
    pub fn add(&mut self, position: u64, bytes: &[u8]) {
        // 1. Bytes before the first whole word.
        let lead = ((4 - position % 4) % 4) as usize;
        let (first_bytes, aligned) = bytes.split_at(lead.min(bytes.len()));
        for (position, byte) in (position..).zip(first_bytes) {
            self.add_byte(position, *byte);
        }
        // 2. Whole words. So few at once that their sum does not overflow.
        let (words, last_bytes) = aligned.as_chunks::<4>();
        for piece in words.chunks(1 << 16) {
            let sum: u64 = piece
                .iter()
                .map(|word| u64::from(u32::from_be_bytes(*word)))
                .sum();
            self.0 = fold_carries(self.0 + sum);
        }
        // 3. Bytes behind the last whole word.
        for (place, byte) in last_bytes.iter().enumerate() {
            self.add_byte(place as u64, *byte);
        }
    }

    /// Adds one byte at its position, which decides its place in a big-endian word of four bytes.
    fn add_byte(&mut self, position: u64, byte: u8) {
        self.0 = fold_carries(self.0 + (u64::from(byte) << (8 * (3 - position % 4))));
    }

    /// Returns the ones' complement sum of both.
    #[must_use]
    pub fn plus(self, other: OnesSum) -> OnesSum {
        OnesSum(fold_carries(self.0 + other.0))
    }

    /// Returns the sum of the same bytes `offset` bytes further on.
    #[must_use]
    pub fn moved(self, offset: u64) -> OnesSum {
        // a byte's place in its word is turned by the offset, and so is that of every carry
        OnesSum(u64::from(
            self.value().rotate_right(8 * (offset % 4) as u32),
        ))
    }

    /// Returns the sum as a number, as the header key DATASUM gives it.
    pub fn value(self) -> u32 {
        self.0 as u32
    }

    /// Returns whether all 32 bits of the sum are 1, which that of an undamaged HDU with CHECKSUM is.
    pub fn is_all_ones(self) -> bool {
        self.value() == u32::MAX
    }

    /// Returns the text to write as CHECKSUM, if this is the sum of an HDU whose CHECKSUM is sixteen zeros.
    pub fn checksum(self) -> String {
        let complement = !self.value();
        let mut text = ['0'; CHECKSUM_CHARACTERS];
        for (k, byte) in complement.to_be_bytes().into_iter().enumerate() {
            for (j, character) in encode_byte(byte).into_iter().enumerate() {
                // the value begins at the twelfth byte of its card, one before a word's end
                if let Some(slot) = text.get_mut((4 * j + k + 1) % CHECKSUM_CHARACTERS) {
                    *slot = char::from(character);
                }
            }
        }
        text.into_iter().collect()
    }
}

/// Adds the carries beyond 32 bits back to the low 32 bits until none is left.
fn fold_carries(mut sum: u64) -> u64 {
    while sum >> 32 != 0 {
        sum = (sum & 0xffff_ffff) + (sum >> 32);
    }
    sum
}

/// Returns four letters or digits whose sum is the byte and four times '0'.
fn encode_byte(byte: u8) -> [u8; 4] {
    let quarter = byte / 4 + b'0';
    let mut characters = [quarter + byte % 4, quarter, quarter, quarter];
    while let Some([first, second]) = characters
        .as_chunks_mut::<2>()
        .0
        .iter_mut()
        .find(|pair| !pair.iter().all(u8::is_ascii_alphanumeric))
    {
        *first += 1;
        *second -= 1;
    }
    characters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_of_pieces_does_not_depend_on_their_order() {
        let bytes: Vec<u8> = (0..1001u32).map(|k| (k * 37 + 11) as u8).collect();
        let mut whole = OnesSum::default();
        whole.add(0, &bytes);
        for cut in [1, 2, 3, 4, 500, 997] {
            let mut pieces = OnesSum::default();
            let (first, second) = bytes.split_at(cut);
            pieces.add(cut as u64, second);
            pieces.add(0, first);
            assert_eq!(pieces.value(), whole.value(), "{cut}");
            let [mut before, mut behind] = [OnesSum::default(); 2];
            before.add(0, first);
            behind.add(0, second);
            let joined = before.plus(behind.moved(cut as u64));
            assert_eq!(joined.value(), whole.value(), "{cut}");
        }
    }

    /// The value's letters make the sum of the unit all ones, wherever the sum without them stands.
    #[test]
    fn checksums_complete_the_sum() {
        for value in [
            0,
            1,
            0x3a3a_3a3a,
            0x6065_5f5b,
            0xffff_fffe,
            868_229_149,
            2_503_531_142,
        ] {
            let text = OnesSum(value).checksum();
            assert!(
                text.bytes().all(|byte| byte.is_ascii_alphanumeric()),
                "{text}"
            );
            let mut with_text = OnesSum(value);
            let mut zeros = OnesSum::default();
            with_text.add(11, text.as_bytes());
            zeros.add(11, &[b'0'; CHECKSUM_CHARACTERS]);
            assert_eq!(
                fold_carries(with_text.0 + u64::from(!zeros.value())) as u32,
                u32::MAX,
                "{value}"
            );
        }
    }

    /// The example of the FITS standard, appendix J.
    #[test]
    fn checksum_of_the_standards_example() {
        assert_eq!(OnesSum(868_229_149).checksum(), "hcHjjc9ghcEghc9g");
    }
}
