//! Decoder of Rice's code for integers, as in images compressed by tiles (FITS standard 4.0, §10.4.1).
//!
//! A tile begins with its first pixel, verbatim. Blocks of differences d between neighbours follow, mapped to 2 d for d
//! ≥ 0 and to −2 d − 1 for d < 0. Each mapped difference has its upper bits in unary, then its f low bits; the code of
//! a block gives f. Two codes are special: all differences are 0, or all are verbatim.

/// Reader of bits, the highest bit of each byte first.
struct BitReader<'a> {
    bytes: std::slice::Iter<'a, u8>,
    held: u64,
    count: u32,
}

impl BitReader<'_> {
    /// Reads `count` bits, at most 32, as a number; `None` at the end.
    fn read_bits(&mut self, count: u32) -> Option<u32> {
        while self.count < count {
            self.held = self.held << 8 | u64::from(*self.bytes.next()?);
            self.count += 8;
        }
        self.count -= count;
        Some(((self.held >> self.count) & ((1 << count) - 1)) as u32)
    }

    /// Counts the zeros before the next 1, and reads that 1, too; `None` at the end.
    fn count_zeros(&mut self) -> Option<u32> {
        let mut count = 0;
        while self.read_bits(1)? == 0 {
            count += 1;
        }
        Some(count)
    }
}

/// Decodes `count` integers of `width` bytes (1, 2 or 4; one byte is unsigned), coded in blocks of `block`, and passes
/// each to `push_value`; `None` if the bytes end early or contain an unknown code.
pub fn decode_rice(
    packed: &[u8],
    count: usize,
    width: u32,
    block: usize,
    mut push_value: impl FnMut(i32),
) -> Option<()> {
    let mut bits = BitReader {
        bytes: packed.iter(),
        held: 0,
        count: 0,
    };
    // number of bits of a block's code, and the code of verbatim differences
    let (code_bits, verbatim_code) = match width {
        1 => (3, 7),
        2 => (4, 15),
        _ => (5, 26),
    };
    let mut value = bits.read_bits(8 * width)?;
    let mut remaining = count;
    while remaining > 0 {
        // 1. Read the code of a block.
        let code = bits.read_bits(code_bits)?;
        for _ in 0..remaining.min(block) {
            // 2. Read a mapped difference: zero, coded or verbatim.
            let mapped = match code {
                0 => 0,
                code if code < verbatim_code => {
                    let upper = bits.count_zeros()?;
                    upper.checked_mul(1 << (code - 1))? | bits.read_bits(code - 1)?
                }
                code if code == verbatim_code => bits.read_bits(8 * width)?,
                _ => return None,
            };
            // 3. Undo the mapping, and add the difference to the value before.
            let difference = if mapped & 1 == 0 {
                mapped >> 1
            } else {
                !(mapped >> 1)
            };
            value = value.wrapping_add(difference);
            push_value(match width {
                1 => i32::from(value as u8),
                2 => i32::from(value as i16),
                _ => value as i32,
            });
        }
        remaining -= remaining.min(block);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three blocks of two pixels, written by hand: 5, then differences 0, −2; 0, 0; 100, −100 verbatim.
    #[test]
    fn blocks_of_each_kind_are_decoded() {
        let code = "00000101 010 10 011 000 111 11001000 11000111";
        let bits: String = code
            .replace(' ', "")
            .chars()
            .chain("0".repeat(7).chars())
            .collect();
        let bytes: Vec<u8> = (0..bits.len() / 8)
            .map(|k| u8::from_str_radix(&bits[8 * k..8 * k + 8], 2).unwrap())
            .collect();
        let mut values = Vec::new();
        decode_rice(&bytes, 6, 1, 2, |x| values.push(x)).unwrap();
        assert_eq!(values, [5, 3, 3, 3, 103, 3]);
        assert!(
            (0..bytes.len())
                .all(|end| decode_rice(bytes.get(..end).unwrap(), 6, 1, 2, |_| ()).is_none()),
            "cut"
        );
    }
}
