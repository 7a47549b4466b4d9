//! Hash of a table's metadata, and the names that the checksums of Parquet and of FITS share.

use twox_hash::XxHash3_128;

use super::MetadataEntry;

/// Key of the checksums in the metadata.
pub(super) const CHECKSUM_KEY: &str = "popfit.checksum";
/// Name of the hash, the first line of the checksums.
pub(super) const HASH_NAME: &str = "xxh3_128";
/// End of a text: a byte that UTF-8 does not have.
pub(super) const TEXT_END: u8 = 0xff;

/// Returns the 128-bit hash of the metadata's keys and values, whatever their order, without the entry of the
/// checksums.
pub(super) fn hash_metadata(entries: &[MetadataEntry]) -> u128 {
    let mut hashed: Vec<&MetadataEntry> = entries
        .iter()
        .filter(|entry| ![CHECKSUM_KEY, "ARROW:schema"].contains(&&*entry.key))
        .collect();
    hashed.sort_unstable(); // not every reader keeps the order of the file
    let mut hash = XxHash3_128::new();
    for MetadataEntry { key, value } in hashed {
        for text in [key, value] {
            hash.write(text.as_bytes());
            hash.write(&[TEXT_END]);
        }
    }
    hash.finish_128()
}
