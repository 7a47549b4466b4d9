//! Numbers of bytes on the command line.

/// Parses a positive number of bytes from an option, such as `4096`, `512M` or `2G` (in powers of 1024).
pub fn bytes(text: &str) -> Result<u64, String> {
    let upper = text.trim().to_uppercase();
    let suffixes = [('K', 10), ('M', 20), ('G', 30)];
    let split = suffixes
        .iter()
        .find_map(|(suffix, shift)| Some((upper.strip_suffix(*suffix)?, *shift)));
    let (digits, shift) = split.unwrap_or((upper.as_str(), 0));
    let number: u64 = digits
        .parse()
        .map_err(|_| "give bytes, such as 4096, 512M or 2G".to_string())?;
    number
        .checked_mul(1 << shift)
        .filter(|n| *n > 0)
        .ok_or_else(|| "out of range".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_suffixes() {
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("1k"), Ok(1024));
        assert_eq!(bytes("512M"), Ok(512 << 20));
        assert_eq!(bytes("2G"), Ok(2 << 30));
        for wrong in ["", "G", "1.5G", "-1", "0", "99999999999G", "1T", "é"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
