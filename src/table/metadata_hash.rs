//! Hash of a table's metadata, and the names that the checksums of Parquet and of FITS share.

use twox_hash::XxHash3_128;

use super::Entry;

/// Key of the checksums in the metadata.
pub(super) const KEY: &str = "popfit.checksum";
/// Name of the hash, the first line of the checksums.
pub(super) const ALGORITHM: &str = "xxh3_128";
/// End of a text: a byte that UTF-8 does not have.
pub(super) const END: u8 = 0xff;

/// Returns the 128-bit hash of the metadata's keys and values, whatever their order, without the entry of the
/// checksums.
pub(super) fn of_metadata(entries: &[Entry]) -> u128 {
    let mut hash = XxHash3_128::new();
    let is_other = |entry: &&Entry| ![KEY, "ARROW:schema"].contains(&&*entry.key);
    let mut others: Vec<&Entry> = entries.iter().filter(is_other).collect();
    others.sort_unstable(); // not every reader keeps the order of the file
    for Entry { key, value } in others {
        for text in [key, value] {
            hash.write(text.as_bytes());
            hash.write(&[END]);
        }
    }
    hash.finish_128()
}
