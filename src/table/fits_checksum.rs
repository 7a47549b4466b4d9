//! Checksum of a FITS table that depends on the places of its bytes: the key `popfit.checksum` of the unit METADATA.
//!
//! DATASUM and CHECKSUM add words, and do not change when words, rows or blocks change places. This is XXH3 of 128 bits
//! with seed 0 over all bytes of the unit RESULTS, its header included, in the order of the file. The value is text:
//!
//! ```text
//! xxh3_128
//! RESULTS 0123456789abcdef0123456789abcdef
//! metadata …
//! ```
//!
//! The last line is the hash of the other keys, in the order of their bytes: key, FF, value, FF. The keyword ORDERSUM
//! in the header of RESULTS says that there is such a checksum: texts of METADATA may have changed places, too, and the
//! key with them.

use std::io::{self, Write};

use twox_hash::XxHash3_128;

use super::MetadataEntry;
use super::metadata_hash::{CHECKSUM_KEY, HASH_NAME, hash_metadata};
use crate::error::{Result, damage_message};
use crate::io::fits::tables::FitsTables;

/// Keyword of the header of RESULTS that names the key in the metadata.
pub(super) const CHECKSUM_KEYWORD: &str = "ORDERSUM";
/// Name of the unit with the rows.
pub(super) const RESULTS: &str = "RESULTS";

/// A writer that hashes what it passes on.
pub(super) struct HashingWriter<W> {
    out: W,
    hash: XxHash3_128,
}

impl<W: Write> HashingWriter<W> {
    /// Returns a writer to `out` that has hashed nothing yet.
    pub fn new(out: W) -> HashingWriter<W> {
        HashingWriter {
            out,
            hash: XxHash3_128::new(),
        }
    }

    /// Returns the hash of all bytes that were written.
    pub fn hash(&self) -> u128 {
        self.hash.finish_128()
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.write(bytes.get(..written).unwrap_or(bytes));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Returns the entry of the metadata with the checksums: the hash `results` of the unit RESULTS, and that of `entries`.
pub(super) fn checksum_entry(results: u128, entries: &[MetadataEntry]) -> MetadataEntry {
    let metadata = hash_metadata(entries);
    MetadataEntry::new(
        CHECKSUM_KEY,
        format!("{HASH_NAME}\n{RESULTS} {results:032x}\nmetadata {metadata:032x}"),
    )
}

/// Compares a table that popfit wrote with its checksums; returns a note if there is nothing to compare with, because
/// another program has rewritten the table or an earlier popfit wrote it.
///
/// # Errors
/// `Io`; and a message if bytes of the rows, or texts of the metadata, are not where they were written.
pub(super) fn verify_checksum(
    file: &mut FitsTables,
    entries: &[MetadataEntry],
) -> Result<std::result::Result<Option<String>, String>> {
    // 1. Without a checksum, or with one of another state of the table, there is only a note.
    let checksums = entries.iter().find(|entry| entry.key == CHECKSUM_KEY);
    if checksums.is_none() && !has_checksum_keyword(file)? {
        let note = "it has no checksum of the order of its rows: rows that changed places would not be noticed";
        return Ok(Ok(Some(note.into())));
    }
    if file.has_foreign_checksum(RESULTS)? {
        let note = "another program has rewritten it, and its metadata key popfit.checksum is that of the table \
                    before: rows that changed places would not be noticed";
        return Ok(Ok(Some(note.into())));
    }
    // 2. Compare the metadata, then the bytes of RESULTS.
    let Some(MetadataEntry { value, .. }) = checksums else {
        return Ok(Err(format!(
            "damaged: the metadata key {CHECKSUM_KEY} is missing, which popfit writes"
        )));
    };
    let Some((results, metadata)) = parse_checksums(value) else {
        return Ok(Err(format!(
            "damaged: its checksums, metadata key {CHECKSUM_KEY}, cannot be read"
        )));
    };
    if metadata != hash_metadata(entries) {
        return Ok(Err(damage_message("its metadata's texts")));
    }
    Ok(match file.digest(RESULTS)? == results {
        true => Ok(None),
        false => Err(damage_message(&format!(
            "the bytes of {RESULTS} and their order"
        ))),
    })
}

/// Returns whether the header of RESULTS says that the metadata have a checksum.
pub(super) fn has_checksum_keyword(file: &FitsTables) -> Result<bool> {
    file.has_text(RESULTS, CHECKSUM_KEYWORD)
}

/// Reads the hashes of the unit RESULTS and of the metadata from the text of [`checksum_entry`]; `None` for any other
/// text.
fn parse_checksums(text: &str) -> Option<(u128, u128)> {
    let mut lines = text.strip_prefix(HASH_NAME)?.strip_prefix('\n')?.lines();
    let results = parse_checksum_line(lines.next()?, RESULTS)?;
    let metadata = parse_checksum_line(lines.next()?, "metadata")?;
    lines.next().is_none().then_some((results, metadata))
}

/// Reads the hash from a line `label hash`; `None` for a line with another label, or none at all.
fn parse_checksum_line(line: &str, label: &str) -> Option<u128> {
    let hex = line.strip_prefix(label)?.strip_prefix(' ')?;
    u128::from_str_radix(hex, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::fits::{FitsTable, build_metadata_table};
    use super::*;
    use crate::FitRow;
    use crate::io::files::File;
    use crate::io::fits::sum::OnesSum;
    use crate::io::fits::writer::cards::Cards;
    use crate::io::output::Metadata;
    use crate::spectral::{Schema, Store};
    use crate::table::TableReader;

    /// Writes a FITS table of three rows, with `finish` at its end, and returns its bytes and the notes of its reader.
    fn write_table(finish: impl FnOnce(FitsTable, &Path)) -> (Vec<u8>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.fits");
        let schema = Schema {
            parameters: vec!["teff".into()],
            ..Schema::default()
        };
        let columns = schema.columns();
        let file = File::create_new(&path).unwrap();
        let mut table = FitsTable::new(&path, file, &columns, &Metadata::default()).unwrap();
        let rows: Vec<FitRow> = (0..3)
            .map(|k| FitRow {
                row: k,
                ..FitRow::new(k as i64, 1)
            })
            .collect();
        table
            .append(Store::from_rows(&rows).into_values(&columns))
            .unwrap();
        finish(table, &path);
        let mut reader = TableReader::open(&path).unwrap();
        assert_eq!(reader.read_all().unwrap().len(), 3);
        (std::fs::read(&path).unwrap(), reader.notes)
    }

    /// Returns the first place of a word from `start` on.
    fn find_word(bytes: &[u8], start: usize, word: &[u8]) -> usize {
        start
            + bytes[start..]
                .windows(word.len())
                .position(|window| window == word)
                .unwrap()
    }

    /// Writes the CHECKSUM of a unit.
    fn rewrite_checksum(bytes: &mut [u8], start: usize, end: usize) {
        let value = find_word(bytes, start, b"CHECKSUM") + 11;
        bytes[value..value + 16].fill(b'0');
        let mut whole = OnesSum::default();
        whole.add(0, &bytes[start..end]);
        bytes[value..value + 16].copy_from_slice(whole.checksum().as_bytes());
    }

    #[test]
    fn a_table_of_an_earlier_version_is_read_with_a_note() {
        let (_, notes) = write_table(|table, path| drop(table.finish(path).unwrap()));
        assert_eq!(notes, [""; 0]);
        let (_, notes) = write_table(|mut table, path| {
            let mut bytes = Cards::primary().into_header(OnesSum::default());
            table.table.write(&mut bytes).unwrap();
            let card = find_word(&bytes, 0, CHECKSUM_KEYWORD.as_bytes());
            bytes[card..card + 80].copy_from_slice(format!("{:<80}", "COMMENT").as_bytes());
            let start = find_word(&bytes, 0, b"XTENSION");
            let end = bytes.len();
            rewrite_checksum(&mut bytes, start, end);
            build_metadata_table(path, &table.metadata)
                .unwrap()
                .write(&mut bytes)
                .unwrap();
            std::fs::write(path, bytes).unwrap();
        });
        assert!(
            notes.len() == 1 && notes[0].contains("no checksum of the order of its rows"),
            "{notes:?}"
        );
    }

    /// astropy and CFITSIO write a comment behind the sums of the units that they rewrite.
    #[test]
    fn a_table_that_another_program_rewrote_is_read_with_a_note() {
        let (_, notes) = write_table(|table, path| {
            drop(table.finish(path).unwrap());
            let mut bytes = std::fs::read(path).unwrap();
            let start = find_word(&bytes, 0, b"XTENSION");
            let end = find_word(&bytes, start + 8, b"XTENSION");
            let card = find_word(&bytes, start, b"CHECKSUM");
            bytes[card + 29..card + 51].copy_from_slice(b"/ HDU checksum updated");
            // the first id
            let rows = find_word(&bytes, start, &format!("{:<80}", "END").into_bytes())
                .next_multiple_of(2880);
            bytes[rows + 7] ^= 16;
            let mut data = OnesSum::default();
            data.add(0, &bytes[rows..end]);
            let datasum = find_word(&bytes, start, b"DATASUM ");
            let text = format!("DATASUM = '{:<8}'", data.value());
            bytes[datasum..datasum + 80].copy_from_slice(format!("{text:<80}").as_bytes());
            rewrite_checksum(&mut bytes, start, end);
            std::fs::write(path, bytes).unwrap();
        });
        assert!(
            notes.len() == 1 && notes[0].contains("another program has rewritten it"),
            "{notes:?}"
        );
    }

    #[test]
    fn only_the_text_of_a_checksum_is_parsed() {
        let text = checksum_entry(3, &[]).value;
        assert_eq!(parse_checksums(&text), Some((3, hash_metadata(&[]))));
        for (original, replacement) in [
            ("xxh3", "xxh4"),
            ("RESULTS", "RESULT"),
            ("metadata ", "metadata"),
            ("3", "g"),
        ] {
            assert_eq!(parse_checksums(&text.replace(original, replacement)), None);
        }
        assert_eq!(parse_checksums(&format!("{text}\nmore 0")), None);
    }
}
