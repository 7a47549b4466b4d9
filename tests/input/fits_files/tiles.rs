//! Images compressed by tiles: the masks of DESI files. `tests/python/check_fits.py` reads what astropy compresses.

use super::*;
use popfit_testing::fits_bytes::{ARMS, COUNT, FitsBytes, arm, fibermap, gzip};

/// Pixels of arm B, whose mask is compressed.
const PIXELS: usize = ARMS[0].1;

/// Returns the stored values of the mask's rows: zero is −2³¹, and pixel j of row j is bad.
fn mask_rows() -> Vec<Vec<i32>> {
    (0..COUNT)
        .map(|row| {
            (0..PIXELS)
                .map(|j| if row == j { i32::MIN + 7 } else { i32::MIN })
                .collect()
        })
        .collect()
}

/// Returns the bytes of a tile, verbatim.
fn tile_bytes(tile: &[i32]) -> Vec<u8> {
    tile.iter().flat_map(|x| x.to_be_bytes()).collect()
}

/// Returns the first bytes of all pixels, then the second bytes, and so on.
fn shuffled_bytes(tile: &[i32]) -> Vec<u8> {
    (0..4)
        .flat_map(|k| tile.iter().map(move |x| x.to_be_bytes()[k]))
        .collect()
}

/// Returns a tile in Rice's code, two pixels per block: blocks without differences, and verbatim ones.
fn encode_rice(tile: &[i32]) -> Vec<u8> {
    let mut bits = format!("{:032b}", tile[0]);
    let mut previous = tile[0];
    for block in tile.chunks(2) {
        let differences: Vec<i32> = block
            .iter()
            .map(|x| x.wrapping_sub(std::mem::replace(&mut previous, *x)))
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

/// Returns a DESI file of arm B whose mask is compressed into these tiles, with additional cards.
fn compressed_file(kind: &str, tiles: &[Vec<u8>], extra_cards: &[&str]) -> FitsBytes {
    let heap: Vec<u8> = tiles.concat();
    let mut heap_size = 0;
    let mut data = Vec::new();
    for tile in tiles {
        data.extend(
            (tile.len() as i32)
                .to_be_bytes()
                .into_iter()
                .chain((heap_size as i32).to_be_bytes()),
        );
        heap_size += tile.len();
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
        format!("PCOUNT  = {heap_size}"),
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
    // The first value of a repeated key counts, so defaults that are given are dropped.
    let defaults = ["ZBITPIX = 32", "ZNAXIS  = 2", "ZNAXIS1 = 5", "ZNAXIS2 = 4"];
    let keys: Vec<&str> = extra_cards.iter().map(|card| &card[..8]).collect();
    let defaults = defaults.iter().filter(|card| !keys.contains(&&card[..8]));
    let cards: Vec<&str> = cards
        .iter()
        .map(String::as_str)
        .chain(defaults.copied())
        .chain(extra_cards.iter().copied())
        .collect();
    let mut without_mask = arm(fibermap(FitsBytes::new(&[])), "B", PIXELS).0;
    let name = (0..without_mask.len())
        .find(|&i| without_mask[i..].starts_with(b"'B_MASK'"))
        .unwrap();
    without_mask[name + 2] = b'X';
    FitsBytes(without_mask).unit(&cards, &data)
}

/// Asserts that the mask is read correctly, at once and row by row.
#[track_caller]
fn assert_mask_is_read(file: &FitsBytes) {
    let expected: Vec<bool> = (0..COUNT * PIXELS)
        .map(|k| k / PIXELS == k % PIXELS)
        .collect();
    assert_eq!(open(&file.0).unwrap().arms[0].mask, expected);
    assert_eq!(open(&gzip(&file.0)).unwrap().arms[0].mask, expected);
    let folder = tempfile::tempdir().unwrap();
    let path = popfit_testing::file(folder.path(), "x.fits", &file.0);
    let batches = read_batches(&path, &Selection::default(), 1).unwrap();
    assert_eq!(
        batches
            .iter()
            .flat_map(|batch| batch.arms[0].mask.to_vec())
            .collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn masks_of_each_compression_are_read() {
    let rows = mask_rows();
    let encode_rows =
        |code: &dyn Fn(&[i32]) -> Vec<u8>| rows.iter().map(|row| code(row)).collect::<Vec<_>>();
    let rice_cards = [
        "ZNAME1  = 'BLOCKSIZE'",
        "ZVAL1   = 2",
        "ZNAME2  = 'BYTEPIX'",
        "ZVAL2   = 4",
    ];
    assert_mask_is_read(&compressed_file(
        "GZIP_1",
        &encode_rows(&|row| gzip(&tile_bytes(row))),
        &[],
    ));
    assert_mask_is_read(&compressed_file(
        "GZIP_2",
        &encode_rows(&|row| gzip(&shuffled_bytes(row))),
        &[],
    ));
    assert_mask_is_read(&compressed_file(
        "RICE_1",
        &encode_rows(&encode_rice),
        &rice_cards,
    ));
    assert_mask_is_read(&compressed_file(
        "NOCOMPRESS",
        &encode_rows(&tile_bytes),
        &[],
    ));
    // Three rows per tile, of which the last has one row, and two pixels per tile, of which each row's last has one.
    let pixels = rows.concat();
    let tiles_of_rows: Vec<_> = pixels
        .chunks(3 * PIXELS)
        .map(|tile| gzip(&tile_bytes(tile)))
        .collect();
    assert_mask_is_read(&compressed_file(
        "GZIP_1",
        &tiles_of_rows,
        &["ZTILE1  = 5", "ZTILE2  = 3"],
    ));
    let tiles_of_pairs: Vec<_> = rows
        .iter()
        .flat_map(|row| row.chunks(2).map(|tile| gzip(&tile_bytes(tile))))
        .collect();
    assert_mask_is_read(&compressed_file(
        "GZIP_1",
        &tiles_of_pairs,
        &["ZTILE1  = 2", "ZTILE2  = 1"],
    ));
}

#[test]
fn other_compressions_are_refused_by_name() {
    let tiles: Vec<_> = mask_rows()
        .iter()
        .map(|row| gzip(&tile_bytes(row)))
        .collect();
    let message = |kind: &str, cards: &[&str]| {
        open(&compressed_file(kind, &tiles, cards).0)
            .unwrap_err()
            .to_string()
    };
    assert!(
        message("HCOMPRESS_1", &[])
            .contains("B_MASK): is an image compressed with HCOMPRESS_1 (funpack it)")
    );
    assert!(message("RICE_1", &["ZBITPIX = -32"]).contains("rounded floats"));
    assert!(message("GZIP_1", &["ZBITPIX = -32", "ZSCALE  = 0.1"]).contains("rounded floats"));
    let tiles_of_columns: Vec<_> = (0..3).map(|_| tiles[0].clone()).collect();
    let message =
        open(&compressed_file("GZIP_1", &tiles_of_columns, &["ZTILE1  = 2", "ZTILE2  = 4"]).0)
            .unwrap_err()
            .to_string();
    assert!(message.contains("not runs of pixels"), "{message}");
}

#[test]
fn damaged_tiles_are_errors() {
    let good: Vec<_> = mask_rows()
        .iter()
        .map(|row| gzip(&tile_bytes(row)))
        .collect();
    let replace_first = |tile: Vec<u8>| [vec![tile], good[1..].to_vec()].concat();
    let longer = gzip(&[tile_bytes(&mask_rows()[0]), vec![0]].concat());
    let cases = [
        ("GZIP_1", replace_first(gzip(&[0; 19])), vec![]),
        ("GZIP_1", replace_first(longer), vec![]),
        ("GZIP_1", replace_first(gzip(&vec![0; 1 << 20])), vec![]),
        (
            "GZIP_1",
            replace_first(good[0][..good[0].len() - 9].to_vec()),
            vec![],
        ),
        ("GZIP_1", replace_first(vec![]), vec![]),
        ("GZIP_2", replace_first(gzip(&[0; 21])), vec![]),
        ("RICE_1", replace_first(vec![0; 4]), vec![]),
        ("RICE_1", replace_first(vec![0xff; 60]), vec![]),
        ("NOCOMPRESS", replace_first(vec![1]), vec![]),
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
    for (k, (kind, tiles, cards)) in cases.iter().enumerate() {
        match open(&compressed_file(kind, tiles, cards).0) {
            Err(Error::Format { message, .. } | Error::TooLarge { message, .. }) => {
                assert!(message.contains("B_MASK"), "case {k}: {message}");
            }
            other => panic!("case {k}: {other:?}"),
        }
    }
    // Any change of a byte of descriptors or tiles gives an error or another mask, never a panic.
    let sound = compressed_file("GZIP_1", &good, &[]).0;
    let descriptors = (0..sound.len())
        .rfind(|&i| sound[i..].starts_with(&good[0]))
        .unwrap()
        - 8 * COUNT;
    for byte in descriptors..descriptors + 8 * COUNT + good.concat().len() {
        for value in [0, 0x7f, 0xff] {
            let mut bad = sound.clone();
            bad[byte] = value;
            let _ = open(&bad);
        }
    }
    let mut outside = sound;
    outside[descriptors + 4] = 0x7f;
    assert!(
        open(&outside)
            .unwrap_err()
            .to_string()
            .contains("outside of its heap")
    );
}
