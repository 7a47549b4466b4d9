//! Result tables whose bytes changed after they were written: nobody reads other values without a word.

use std::path::{Path, PathBuf};

use super::popfit;
use popfit::low_level::TableReader;
use popfit::{FitRow, FitTable, Flags, Id, Status, WriteOptions};

/// Values that neither compress to nothing nor repeat.
fn row(k: i64) -> FitRow {
    let x = (k as f64 * 0.618_033_988_749_895).fract();
    let mut row = FitRow::new(Id::Integer(39_627_652_591_523_841 + 7 * k), 2);
    row.file = "night.fits".into();
    row.row = k as u64;
    row.status = Status::Ftol;
    row.status_text = "ftol".into();
    row.rounds = 5 + (k % 7) as u32;
    row.evaluations = 11;
    row.chi2 = 400.0 + x;
    row.dof = 397;
    row.objective = 401.0 + x;
    row.parameters = vec![100.0 * x - 50.0, 5000.0 + 1000.0 * x];
    row.errors = vec![0.5 + x, 10.0 * x];
    row.released_errors = vec![0.75 + x, 12.0 * x];
    row.flags = if k % 5 == 0 {
        Flags::LOW_SN
    } else {
        Flags::empty()
    };
    row.start = Some(1);
    row.n_starts_agree = 2;
    row.correlations = vec![x - 0.5];
    row
}

fn rows_text(table: &FitTable) -> String {
    format!("{:?}", table.to_rows())
}

fn table(rows: i64) -> FitTable {
    let parameters = ["velocity", "teff"].map(String::from).to_vec();
    FitTable::from_rows(parameters, &(0..rows).map(row).collect::<Vec<_>>()).unwrap()
}

fn write(folder: &Path, name: &str, rows: i64) -> PathBuf {
    let path = folder.join(name);
    table(rows)
        .write_with(
            &path,
            WriteOptions {
                overwrite: true,
                ..WriteOptions::default()
            },
        )
        .unwrap();
    path
}

/// Counts of flipped bytes by their effect.
#[derive(Debug, Default)]
struct Flips {
    noticed: usize,
    /// The rows are those that were written, but a note says that the table has no checksums: nobody can tell its
    /// footer from another program's.
    noted: usize,
    /// The table reads as it was written.
    harmless: usize,
}

/// Flips one byte at a time, `step` apart in `range`, and reads the table.
fn flip(path: &Path, range: std::ops::Range<usize>, step: usize) -> Flips {
    let whole = std::fs::read(path).unwrap();
    let read = || {
        let mut reader = TableReader::open(path)?;
        Ok::<_, popfit::Error>((reader.read_all()?, reader.metadata, reader.notes))
    };
    let (table, metadata, _) = read().unwrap();
    let (rows, whole_table) = (rows_text(&table), format!("{table:?} {metadata:?}"));
    let mut flips = Flips::default();
    for (count, place) in range.step_by(step).enumerate() {
        let mut bytes = whole.clone();
        // one bit, several, all of them
        bytes[place] ^= [0x01, 0x80, 0x24, 0xff][count % 4];
        std::fs::write(path, &bytes).unwrap();
        match read() {
            Err(_) => flips.noticed += 1,
            Ok((table, _, notes)) if !notes.is_empty() => {
                assert!(
                    rows_text(&table) == rows,
                    "byte {place} is other, and so are the values: {notes:?}"
                );
                flips.noted += 1;
            }
            Ok((table, metadata, _)) => {
                let found = format!("{table:?} {metadata:?}");
                assert!(
                    found == whole_table,
                    "byte {place} is other, and so are the values"
                );
                flips.harmless += 1;
            }
        }
    }
    std::fs::write(path, whole).unwrap();
    flips
}

/// Returns the offset at which the row groups end and the footer begins.
fn footer(path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap();
    let length = bytes.len();
    let footer = u32::from_le_bytes(bytes[length - 8..length - 4].try_into().unwrap());
    length - 8 - footer as usize
}

#[test]
fn flipped_bytes_of_parquets_pages_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "table.parquet", 600);
    let end = footer(&path);
    let flips = flip(&path, 4..end, 11);
    assert!(
        flips.noticed > 2000 && flips.noted == 0,
        "{flips:?} of {end} bytes"
    );
    // the pages' headers, a fortieth of these bytes, have some that nobody needs
    assert!(flips.harmless * 25 < flips.noticed, "{flips:?}");
}

/// The footer says what the values are: other names, keys or sizes are noticed, or change nothing that is read.
#[test]
fn flipped_bytes_of_parquets_footer_change_no_value() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "table.parquet", 40);
    let flips = flip(&path, footer(&path)..std::fs::read(&path).unwrap().len(), 5);
    assert!(
        flips.noticed > 300 && flips.noted * 10 < flips.noticed,
        "{flips:?}"
    );
}

#[test]
fn flipped_bytes_of_fits_are_noticed_wherever_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "table.fits", 300);
    let length = std::fs::read(&path).unwrap().len();
    let flips = flip(&path, 0..length, 17);
    assert!(
        flips.noticed > 3500 && flips.noted + flips.harmless == 0,
        "{flips:?} of {length} bytes"
    );
}

/// Exchanges two parts of a file that are equally long.
fn exchanged(whole: &[u8], a: usize, b: usize, length: usize) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    bytes[a..a + length].copy_from_slice(&whole[b..b + length]);
    bytes[b..b + length].copy_from_slice(&whole[a..a + length]);
    bytes
}

/// FITS' own sums are the same whatever the order of words, rows and blocks.
#[test]
fn parts_of_fits_that_changed_places_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (good, path) = (
        write(folder.path(), "good.fits", 300),
        write(folder.path(), "bad.fits", 300),
    );
    let whole = std::fs::read(&path).unwrap();
    let place = |from: usize, word: &[u8]| {
        from + whole[from..]
            .windows(word.len())
            .position(|w| w == word)
            .unwrap()
    };
    let results = place(0, b"XTENSION");
    let card = place(results, b"NAXIS1  =");
    let row: usize = std::str::from_utf8(&whole[card + 10..card + 30])
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let rows = place(results, &format!("{:<80}", "END").into_bytes()).next_multiple_of(2880);
    let metadata = place(rows, b"XTENSION");
    // 1. Rows, a value in two rows, blocks, names of columns, and lines of the metadata. Rows that are four apart begin
    //    at the same place of a word.
    let ids = |k: usize| rows + k * row;
    let names = ["TTYPE1  =", "TTYPE3  ="].map(|name| place(results, name.as_bytes()) + 8);
    let lines = rows.max(metadata) + 2880;
    for (a, b, length) in [
        (ids(0), ids(4), row),
        (ids(0), ids(4), 8),
        (rows, rows + 2880, 2880),
        (names[0], names[1], 12),
        (lines, lines + 2880, 2880),
    ] {
        std::fs::write(&path, exchanged(&whole, a, b, length)).unwrap();
        // the library and both commands check the same
        let error = FitTable::read(&path).unwrap_err().to_string();
        for arguments in [
            vec![Path::new("report"), &path],
            vec![Path::new("compare"), &good, &path],
        ] {
            let output = popfit(&arguments);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{a} and {b}: {said}");
            assert!(
                said.contains(&error) && error.contains("damaged"),
                "{said}: {error}"
            );
        }
    }
    // 2. Any words of both units. Those that are equal change nothing.
    let words = (whole.len() - results) / 4;
    let mut noticed = 0;
    for k in 0..400 {
        let word = |k: usize| results + 4 * (k * 7919 % words);
        let bytes = exchanged(&whole, word(k), word(3 * k + 1), 4);
        std::fs::write(&path, &bytes).unwrap();
        match TableReader::open(&path).and_then(|mut reader| reader.read_all()) {
            Err(_) => noticed += 1,
            Ok(_) => assert!(bytes == whole, "words {} and {}", word(k), word(3 * k + 1)),
        }
    }
    assert!(noticed > 200, "{noticed}");
    assert!(
        popfit(&[Path::new("compare"), &good, &good])
            .stderr
            .is_empty()
    );
}

/// `report` and `compare` end with an error that names the file and the rows, and write nothing.
#[test]
fn commands_refuse_a_damaged_table_and_name_the_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (
        write(folder.path(), "good.parquet", 9000),
        write(folder.path(), "bad.parquet", 9000),
    );
    // in the second row group, before the footer
    let mut bytes = std::fs::read(&bad).unwrap();
    let end = footer(&bad);
    let place = (end - 20_000..end).find(|&place| {
        let mut other = bytes.clone();
        other[place] ^= 1;
        std::fs::write(&bad, other).unwrap();
        matches!(FitTable::read(&bad), Err(error) if error.to_string().contains("checksum"))
    });
    bytes[place.expect("a byte of a value")] ^= 1;
    std::fs::write(&bad, bytes).unwrap();
    for arguments in [
        vec![Path::new("report"), &bad],
        vec![Path::new("compare"), &good, &bad],
    ] {
        let output = popfit(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        for part in ["bad.parquet", "rows 8192 to 8999", "checksum", "fit again"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    assert!(!folder.path().join("bad_report.html").exists());
    assert!(
        popfit(&[Path::new("compare"), &good, &good])
            .stderr
            .is_empty()
    );
}

/// Rewrites a table as another program would: with its own name, and with or without the keys.
fn rewrite(from: &Path, to: &Path, keys: bool) {
    use parquet::arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder};
    use parquet::file::properties::WriterProperties;
    let builder =
        ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(from).unwrap()).unwrap();
    let known = builder
        .metadata()
        .file_metadata()
        .key_value_metadata()
        .unwrap()
        .clone();
    let schema = builder.schema().clone();
    let known = keys.then(|| {
        known
            .into_iter()
            .filter(|pair| pair.key != "ARROW:schema")
            .collect()
    });
    let properties = WriterProperties::builder()
        .set_created_by("other 1.0".into())
        .set_key_value_metadata(known);
    let file = std::fs::File::create(to).unwrap();
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties.build())).unwrap();
    for batch in builder.build().unwrap() {
        writer.write(&batch.unwrap().slice(0, 3)).unwrap();
    }
    writer.close().unwrap();
}

#[test]
fn tables_of_other_programs_are_read_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let own = write(folder.path(), "own.parquet", 10);
    for (keys, expected) in [
        (true, "rewritten by other 1.0"),
        (false, "written by other 1.0, has no checksums"),
    ] {
        let other = folder.path().join("other.parquet");
        rewrite(&own, &other, keys);
        let mut reader = TableReader::open(&other).unwrap();
        assert!(
            reader.notes.iter().any(|note| note.contains(expected)),
            "{:?}",
            reader.notes
        );
        assert_eq!(reader.read_all().unwrap().len(), 3);
        let said = popfit(&[Path::new("report"), &other, Path::new("--overwrite")]);
        assert!(said.status.success());
        assert!(
            String::from_utf8_lossy(&said.stderr).contains(expected),
            "{said:?}"
        );
        let page = std::fs::read_to_string(other.with_file_name("other_report.html")).unwrap();
        assert_eq!(
            page.contains("another program wrote it without popfit's metadata"),
            !keys
        );
    }
    // astropy's Table.write leaves popfit's other units out, and the old sums in the header
    let fits = folder.path().join("others.fits");
    let bytes = std::fs::read(write(folder.path(), "own.fits", 10)).unwrap();
    let results = bytes
        .windows(8)
        .position(|word| word == b"XTENSION")
        .unwrap();
    let metadata = bytes
        .windows(8)
        .rposition(|word| word == b"XTENSION")
        .unwrap();
    let mut others = bytes[..results].to_vec();
    for word in [b"DATASUM ", b"CHECKSUM"] {
        let place = others.windows(8).position(|other| other == word).unwrap();
        others[place..place + 80].copy_from_slice(format!("{:<80}", "COMMENT").as_bytes());
    }
    others.extend(&bytes[results..metadata]);
    let first_id = others.len() - 2880;
    others[first_id] ^= 1;
    std::fs::write(&fits, others).unwrap();
    let notes = TableReader::open(&fits).unwrap().notes;
    let expected = [
        "checksums of HDU 1 (RESULTS) are not verified",
        "no checksums in HDU 0",
    ];
    assert!(
        notes.len() == 2
            && expected
                .iter()
                .zip(&notes)
                .all(|(part, note)| note.contains(part)),
        "{notes:?}"
    );
    for name in ["own.parquet", "own.fits"] {
        assert!(
            TableReader::open(write(folder.path(), name, 3))
                .unwrap()
                .notes
                .is_empty(),
            "{name}"
        );
    }
}

/// A reader finds units and layout beside the values.
#[test]
fn units_and_the_layout_travel_with_the_table() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["table.parquet", "table.fits"] {
        let rows: Vec<FitRow> = table(3).to_rows();
        let labelled =
            FitTable::from_rows(["velocity", "vmic"].map(String::from).to_vec(), &rows).unwrap();
        let labelled = labelled.with_units(vec![("vmic".into(), "km/s".into())]);
        let path = folder.path().join(name);
        labelled.write(&path).unwrap();
        let reader = TableReader::open(&path).unwrap();
        assert_eq!(reader.layout, Some(1), "{name}");
        let units =
            ["velocity", "vmic"].map(|parameter| (parameter.to_string(), "km/s".to_string()));
        assert_eq!(reader.schema.units, units, "{name}");
    }
}
