//! Images compressed by tiles: the masks of DESI files. `tests/python/check_fits.py` reads what astropy compresses.

use super::*;
use popfit_testing::fits_bytes::{ARMS, COUNT, FitsBytes, arm, fibermap, gzip};

/// Pixels of arm B, whose mask is compressed.
const PIXELS: usize = ARMS[0].1;

/// Returns the stored values of the mask's rows: zero is −2³¹, and pixel j of row j is bad.
fn rows() -> Vec<Vec<i32>> {
    (0..COUNT)
        .map(|row| {
            (0..PIXELS)
                .map(|j| if row == j { i32::MIN + 7 } else { i32::MIN })
                .collect()
        })
        .collect()
}

/// Returns the bytes of a tile, verbatim.
fn plain(tile: &[i32]) -> Vec<u8> {
    tile.iter().flat_map(|x| x.to_be_bytes()).collect()
}

/// Returns the first bytes of all pixels, then the second bytes, and so on.
fn shuffled(tile: &[i32]) -> Vec<u8> {
    (0..4)
        .flat_map(|k| tile.iter().map(move |x| x.to_be_bytes()[k]))
        .collect()
}

/// Returns a tile in Rice's code, two pixels per block: blocks without differences, and verbatim ones.
fn rice(tile: &[i32]) -> Vec<u8> {
    let mut bits = format!("{:032b}", tile[0]);
    let mut last = tile[0];
    for block in tile.chunks(2) {
        let differences: Vec<i32> = block
            .iter()
            .map(|x| x.wrapping_sub(std::mem::replace(&mut last, *x)))
            .collect();
        if differences.iter().all(|d| *d == 0) {
            bits += "00000";
            continue;
        }
        bits += "11010";
        differences
            .iter()
            .for_each(|d| bits += &format!("{:032b}", (d << 1) ^ (d >> 31)));
    }
    bits += &"0".repeat(bits.len().next_multiple_of(8) - bits.len());
    (0..bits.len() / 8)
        .map(|k| u8::from_str_radix(&bits[8 * k..8 * k + 8], 2).unwrap())
        .collect()
}

/// Returns a DESI file of arm B whose mask is compressed into these tiles, with `more` cards.
fn file(kind: &str, tiles: &[Vec<u8>], more: &[&str]) -> FitsBytes {
    let heap: Vec<u8> = tiles.concat();
    let mut at = 0;
    let mut data = Vec::new();
    for tile in tiles {
        data.extend(
            (tile.len() as i32)
                .to_be_bytes()
                .into_iter()
                .chain((at as i32).to_be_bytes()),
        );
        at += tile.len();
    }
    data.extend(heap);
    let mut cards = vec![
        "XTENSION= 'BINTABLE'".to_string(),
        "BITPIX  = 8".into(),
        "NAXIS   = 2".into(),
    ];
    cards.extend([
        "NAXIS1  = 8".into(),
        format!("NAXIS2  = {}", tiles.len()),
        format!("PCOUNT  = {at}"),
    ]);
    cards.extend(
        [
            "GCOUNT  = 1",
            "TFIELDS = 1",
            "TTYPE1  = 'COMPRESSED_DATA'",
            "TFORM1  = '1PB(99)'",
        ]
        .map(String::from),
    );
    cards.extend(["ZIMAGE  = T", "EXTNAME = 'B_MASK'", "BZERO   = 2147483648"].map(String::from));
    cards.push(format!("ZCMPTYPE= '{kind}'"));
    // the first value of a repeated key counts, so defaults that `more` has are dropped
    let defaults = ["ZBITPIX = 32", "ZNAXIS  = 2", "ZNAXIS1 = 5", "ZNAXIS2 = 4"];
    let keys: Vec<&str> = more.iter().map(|card| &card[..8]).collect();
    let defaults = defaults.iter().filter(|card| !keys.contains(&&card[..8]));
    let cards: Vec<&str> = cards
        .iter()
        .map(String::as_str)
        .chain(defaults.copied())
        .chain(more.iter().copied())
        .collect();
    let mut bare = arm(fibermap(FitsBytes::new(&[])), "B", PIXELS).0;
    let name = (0..bare.len())
        .find(|&i| bare[i..].starts_with(b"'B_MASK'"))
        .unwrap();
    bare[name + 2] = b'X';
    FitsBytes(bare).unit(&cards, &data)
}

/// Asserts that the mask is read as it was written, at once and row by row.
#[track_caller]
fn is_read(file: &FitsBytes) {
    let expected: Vec<bool> = (0..COUNT * PIXELS)
        .map(|k| k / PIXELS == k % PIXELS)
        .collect();
    assert_eq!(open(&file.0).unwrap().arms[0].mask, expected);
    assert_eq!(open(&gzip(&file.0)).unwrap().arms[0].mask, expected);
    let folder = tempfile::tempdir().unwrap();
    let path = popfit_testing::file(folder.path(), "x.fits", &file.0);
    let rows = batches(&path, &Selection::default(), 1).unwrap();
    assert_eq!(
        rows.iter()
            .flat_map(|batch| batch.arms[0].mask.to_vec())
            .collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn masks_of_each_code_are_read() {
    let rows = rows();
    let by_row =
        |code: &dyn Fn(&[i32]) -> Vec<u8>| rows.iter().map(|row| code(row)).collect::<Vec<_>>();
    let rice_cards = [
        "ZNAME1  = 'BLOCKSIZE'",
        "ZVAL1   = 2",
        "ZNAME2  = 'BYTEPIX'",
        "ZVAL2   = 4",
    ];
    is_read(&file("GZIP_1", &by_row(&|row| gzip(&plain(row))), &[]));
    is_read(&file("GZIP_2", &by_row(&|row| gzip(&shuffled(row))), &[]));
    is_read(&file("RICE_1", &by_row(&rice), &rice_cards));
    is_read(&file("NOCOMPRESS", &by_row(&plain), &[]));
    // three rows per tile (the last tile has one row), and two pixels per tile (each row's last tile has one pixel)
    let all = rows.concat();
    let of_rows: Vec<_> = all
        .chunks(3 * PIXELS)
        .map(|tile| gzip(&plain(tile)))
        .collect();
    is_read(&file("GZIP_1", &of_rows, &["ZTILE1  = 5", "ZTILE2  = 3"]));
    let pairs: Vec<_> = rows
        .iter()
        .flat_map(|row| row.chunks(2).map(|tile| gzip(&plain(tile))))
        .collect();
    is_read(&file("GZIP_1", &pairs, &["ZTILE1  = 2", "ZTILE2  = 1"]));
}

#[test]
fn other_compressions_are_refused_by_name() {
    let tiles: Vec<_> = rows().iter().map(|row| gzip(&plain(row))).collect();
    let said =
        |kind: &str, more: &[&str]| open(&file(kind, &tiles, more).0).unwrap_err().to_string();
    assert!(
        said("HCOMPRESS_1", &[])
            .contains("B_MASK): is an image compressed with HCOMPRESS_1 (funpack it)")
    );
    assert!(said("RICE_1", &["ZBITPIX = -32"]).contains("rounded floats"));
    assert!(said("GZIP_1", &["ZBITPIX = -32", "ZSCALE  = 0.1"]).contains("rounded floats"));
    let columns: Vec<_> = (0..3).map(|_| tiles[0].clone()).collect();
    let said = open(&file("GZIP_1", &columns, &["ZTILE1  = 2", "ZTILE2  = 4"]).0)
        .unwrap_err()
        .to_string();
    assert!(said.contains("not runs of pixels"), "{said}");
}

#[test]
fn hostile_tiles_are_errors() {
    let good: Vec<_> = rows().iter().map(|row| gzip(&plain(row))).collect();
    let with = |tile: Vec<u8>| [vec![tile], good[1..].to_vec()].concat();
    let longer = gzip(&[plain(&rows()[0]), vec![0]].concat());
    let cases = [
        ("GZIP_1", with(gzip(&[0; 19])), vec![]),
        ("GZIP_1", with(longer), vec![]),
        ("GZIP_1", with(gzip(&vec![0; 1 << 20])), vec![]),
        (
            "GZIP_1",
            with(good[0][..good[0].len() - 9].to_vec()),
            vec![],
        ),
        ("GZIP_1", with(vec![]), vec![]),
        ("GZIP_2", with(gzip(&[0; 21])), vec![]),
        ("RICE_1", with(vec![0; 4]), vec![]),
        ("RICE_1", with(vec![0xff; 60]), vec![]),
        ("NOCOMPRESS", with(vec![1]), vec![]),
        ("GZIP_1", good.clone(), vec!["ZNAXIS1 = 1000000000000"]),
        (
            "GZIP_1",
            good.clone(),
            vec![
                "ZNAXIS1 = 9223372036854775807",
                "ZNAXIS2 = 9223372036854775807",
            ],
        ),
        (
            "GZIP_1",
            good.clone(),
            vec!["ZNAXIS1 = 1000000000000", "ZTILE1  = 1000000000000"],
        ),
        ("GZIP_1", good.clone(), vec!["ZNAXIS1 = 0"]),
        ("GZIP_1", good.clone(), vec!["ZNAXIS  = 0"]),
        ("GZIP_1", good.clone(), vec!["ZNAXIS  = 999999999"]),
        ("GZIP_1", good.clone(), vec!["ZTILE1  = 0"]),
        ("GZIP_1", good.clone(), vec!["ZTILE1  = -5"]),
        ("GZIP_1", good.clone(), vec!["ZBITPIX = 7"]),
        (
            "GZIP_1",
            good.clone(),
            vec!["THEAP   = 9223372036854775807"],
        ),
        ("GZIP_1", good.clone(), vec!["THEAP   = 0"]),
        ("GZIP_1", good[1..].to_vec(), vec![]),
        (
            "RICE_1",
            good.clone(),
            vec!["ZNAME1  = 'BLOCKSIZE'", "ZVAL1   = 0"],
        ),
        (
            "RICE_1",
            good.clone(),
            vec!["ZNAME1  = 'BYTEPIX'", "ZVAL1   = 8"],
        ),
    ];
    for (k, (kind, tiles, more)) in cases.iter().enumerate() {
        match open(&file(kind, tiles, more).0) {
            Err(Error::Format { message, .. } | Error::TooLarge { message, .. }) => {
                assert!(message.contains("B_MASK"), "case {k}: {message}");
            }
            other => panic!("case {k}: {other:?}"),
        }
    }
    // descriptors beyond the heap, and every byte of them and of the tiles changed
    let sound = file("GZIP_1", &good, &[]).0;
    let at = (0..sound.len())
        .rfind(|&i| sound[i..].starts_with(&good[0]))
        .unwrap()
        - 8 * COUNT;
    for byte in at..at + 8 * COUNT + good.concat().len() {
        for value in [0, 0x7f, 0xff] {
            let mut bad = sound.clone();
            bad[byte] = value;
            let _ = open(&bad);
        }
    }
    let mut far = sound;
    far[at + 4] = 0x7f;
    assert!(
        open(&far)
            .unwrap_err()
            .to_string()
            .contains("outside of its heap")
    );
}
