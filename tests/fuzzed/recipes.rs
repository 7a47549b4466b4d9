//! Files made from a fuzzer's bytes: its first byte says whether they are the file itself, or a recipe of one whose
//! checksums and paddings are right, so that what lies behind these is reached.

use std::io::{Cursor, Write};
use std::sync::LazyLock;

use sha2::{Digest, Sha256};
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

/// Key of the journals: the settings on which their rows depend.
pub const JOURNAL_KEY: &str = "key";
/// Maximum number of bytes of an array or a unit that a recipe makes.
const MAX_RECIPE_BYTES: usize = 1 << 16;

/// Names that arrays of NPZ files have.
const ARRAY_NAMES: [&str; 23] = [
    "flux",
    "ivar",
    "wavelength",
    "sigma",
    "mask",
    "id",
    "resolution",
    "b_flux",
    "b_ivar",
    "b_wavelength",
    "b_mask",
    "r_flux",
    "r_sigma",
    "SNR",
    "w_array_0",
    "w_array_1",
    "w_array_2",
    "b_array_0",
    "b_array_1",
    "b_array_2",
    "x_min",
    "x_max",
    "r_wavelength",
];
const ELEMENT_TYPES: [&str; 14] = [
    "<f8", "<f4", "<i8", "<i4", "|b1", "|u1", ">f8", ">i2", "<u8", "<U3", "|S4", "|O", "<c8", "<i2",
];

/// Rest of a recipe; beyond its end are zeros.
struct Recipe<'a>(&'a [u8]);

impl<'a> Recipe<'a> {
    fn take_byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn take_number(&mut self) -> usize {
        usize::from(self.take_byte()) + 256 * usize::from(self.take_byte())
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Returns `count` bytes that repeat a pattern of the recipe.
    fn take_pattern(&mut self, count: usize) -> Vec<u8> {
        let length = usize::from(self.take_byte());
        let pattern = self.take(length);
        pattern
            .iter()
            .copied()
            .cycle()
            .take(if pattern.is_empty() { 0 } else { count })
            .chain(std::iter::repeat(0))
            .take(count)
            .collect()
    }
}

/// An NPZ file: as it is; with arrays as they are; or with arrays of the right length.
pub fn npz(bytes: &[u8]) -> Vec<u8> {
    let mut recipe = Recipe(bytes);
    let mode = recipe.take_byte();
    if mode.is_multiple_of(3) {
        return recipe.0.to_vec();
    }
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    while !recipe.0.is_empty() {
        let name = ARRAY_NAMES[usize::from(recipe.take_byte()) % ARRAY_NAMES.len()];
        let (kind, array) = if mode % 3 == 1 {
            take_array(&mut recipe)
        } else {
            make_array(&mut recipe)
        };
        let method = if kind & 128 == 0 {
            CompressionMethod::Stored
        } else {
            CompressionMethod::Deflated
        };
        let options = SimpleFileOptions::default().compression_method(method);
        // a name twice is the fuzzer's business in files as they are
        if zip.start_file(format!("{name}.npy"), options).is_ok() {
            zip.write_all(&array).unwrap();
        }
    }
    zip.finish().unwrap().into_inner()
}

fn take_array(recipe: &mut Recipe) -> (u8, Vec<u8>) {
    let kind = recipe.take_byte();
    let count = recipe.take_number();
    (kind, recipe.take(count).to_vec())
}

/// An array's header and as many elements as its shape says, as long as they are not too many.
fn make_array(recipe: &mut Recipe) -> (u8, Vec<u8>) {
    let kind = recipe.take_byte();
    let descr = ELEMENT_TYPES[usize::from(kind & 127) % ELEMENT_TYPES.len()];
    let order = recipe.take_byte();
    let shape: Vec<usize> = (0..order & 3)
        .map(|_| usize::from(recipe.take_byte()))
        .collect();
    let element_bytes =
        descr[2..].parse::<usize>().unwrap_or(8) * if descr.contains('U') { 4 } else { 1 };
    let count = shape.iter().product::<usize>() * element_bytes;
    let dimensions: String = shape.iter().map(|n| format!("{n}, ")).collect();
    let fortran = if order & 4 == 0 { "False" } else { "True" };
    let text = format!(
        "{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': ({}), }}\n",
        dimensions.trim_end()
    );
    let mut array = b"\x93NUMPY\x01\x00".to_vec();
    array.extend((text.len() as u16).to_le_bytes());
    array.extend(text.as_bytes());
    array.extend(recipe.take_pattern(count.min(MAX_RECIPE_BYTES)));
    (kind, array)
}

/// A FITS file: as it is, or units of cards (lines, up to an empty one) and data; gzipped or not.
pub fn fits(bytes: &[u8]) -> Vec<u8> {
    // 1. The mode says whether the bytes are the file itself.
    let mut recipe = Recipe(bytes);
    let mode = recipe.take_byte();
    let mut file = Vec::new();
    if mode & 1 == 0 {
        file = recipe.0.to_vec();
    }
    // 2. Otherwise make units of cards and data.
    while mode & 1 == 1 && !recipe.0.is_empty() && file.len() < 4 * MAX_RECIPE_BYTES {
        let end = recipe
            .0
            .windows(2)
            .position(|pair| pair == b"\n\n")
            .unwrap_or(recipe.0.len());
        for card in recipe.take(end).split(|byte| *byte == b'\n') {
            let mut card = card.to_vec();
            card.resize(80, b' ');
            file.extend(card);
        }
        recipe.take(2);
        file.extend(format!("{:<80}", "END").bytes());
        file.resize(file.len().next_multiple_of(2880), b' ');
        let count = recipe.take_number();
        file.extend(recipe.take_pattern(count));
        file.resize(file.len().next_multiple_of(2880), 0);
    }
    // 3. Compress the file if the mode says so.
    if mode & 2 == 0 {
        return file;
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&file).unwrap();
    encoder.finish().unwrap()
}

/// A journal: as it is, or with its head and the checksums of its records.
pub fn journal(bytes: &[u8]) -> Vec<u8> {
    let mut recipe = Recipe(bytes);
    if recipe.take_byte() & 1 == 0 {
        return recipe.0.to_vec();
    }
    static HEAD: LazyLock<Vec<u8>> = LazyLock::new(journal_head);
    let mut file = HEAD.clone();
    while !recipe.0.is_empty() {
        let count = recipe.take_number();
        let payload = recipe.take(count);
        file.extend((payload.len() as u64).to_le_bytes());
        file.extend((!(payload.len() as u64)).to_le_bytes());
        file.extend(Sha256::digest(payload));
        file.extend(payload);
    }
    file
}

/// Returns the bytes that the library writes to a journal before there is a record.
fn journal_head() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out.csv");
    let _journal = popfit::low_level::Journal::open(&target, JOURNAL_KEY, false).unwrap();
    std::fs::read(folder.path().join(".out.csv.journal")).unwrap()
}

/// A small emulator: label `a`, 16 pixels.
pub fn network() -> Vec<u8> {
    let description = r#"{\"version\":1,\"activation\":\"relu\",\"output\":\"identity\",\"labels\":[{\"name\":\"a\",\"transform\":\"identity\",\"mean\":0.0,\"std\":1.0,\"min\":-10.0,\"max\":10.0}]}"#;
    let header = format!(
        r#"{{"__metadata__":{{"popfit":"{description}"}},"layer.0.bias":{{"dtype":"F32","shape":[16],"data_offsets":[0,64]}},"layer.0.weight":{{"dtype":"F32","shape":[16,1],"data_offsets":[64,128]}},"wavelength":{{"dtype":"F64","shape":[16],"data_offsets":[128,256]}}}}"#
    );
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend((0..32).flat_map(|k: u8| (1.0 + 0.01 * f32::from(k)).to_le_bytes()));
    file.extend((0..16).flat_map(|j: u8| (5000.0 * (1e-4 * f64::from(j)).exp()).to_le_bytes()));
    file
}
