//! Small files that claim or need much memory: bombs, absurd counts, formulas that grow faster than their length.

use super::seeds::{Seed, primary, table};
use popfit_testing::{f64s, npy, npz};

/// Returns all of these files. None may take more memory than its length and 64 MiB.
pub fn greedy_seeds() -> Vec<Seed> {
    let file_itself = |bytes: Vec<u8>| [vec![0], bytes].concat();
    let mut seeds: Vec<Seed> = vec![
        (
            "spectra_npz",
            "as many arrays as are read".into(),
            file_itself(many_arrays(250, 1 << 17)),
        ),
        (
            "spectra_npz",
            "large arrays, inflated ahead".into(),
            file_itself(many_arrays(60, 1 << 20)),
        ),
        (
            "emulator_npz",
            "a network of zeros".into(),
            file_itself(npz(&[("w_array_0", zeros(&[3, 7_000_000]))], true)),
        ),
        (
            "safetensors",
            "a header of a mebibyte".into(),
            deep_header(),
        ),
        ("table", "hundreds of parameters".into(), wide_table()),
        (
            "model",
            "nested arrays".into(),
            format!("arm = {}{}", "[".repeat(50_000), "]".repeat(50_000)).into(),
        ),
        (
            "model",
            "ten thousand arms".into(),
            "[[arm]]\nname = \"b\"\nemulator = \"n\"\n"
                .repeat(10_000)
                .into(),
        ),
        (
            "journal",
            "a record of 2⁶⁴ − 1 bytes".into(),
            [vec![1], vec![255; 64]].concat(),
        ),
    ];
    for (name, bitpix) in [("bytes", 8), ("doubles", -64)] {
        seeds.push((
            "fits",
            format!("inflated {name}"),
            [vec![0], gzipped_images(bitpix)].concat(),
        ));
    }
    seeds.extend(
        formulas()
            .into_iter()
            .map(|(name, text)| ("formula", name.to_string(), text.into_bytes())),
    );
    seeds
}

fn zeros(shape: &[usize]) -> Vec<u8> {
    npy("<f4", shape, &vec![0; 4 * shape.iter().product::<usize>()])
}

/// One spectrum's worth of `arrays` columns of texts of zeros, each of `bytes`, deflated.
fn many_arrays(arrays: usize, bytes: usize) -> Vec<u8> {
    let text_bytes = 4096;
    let names = (0..arrays).map(|k| format!("c{k}")).collect::<Vec<_>>();
    let rows = bytes / text_bytes;
    let mut columns = vec![
        ("wavelength", f64s(&[1], &[5000.0])),
        ("flux", f64s(&[rows, 1], &vec![1.0; rows])),
        ("ivar", f64s(&[rows, 1], &vec![1.0; rows])),
    ];
    let column = npy("|S4096", &[rows], &vec![0; rows * text_bytes]);
    columns.extend(names.iter().map(|name| (name.as_str(), column.clone())));
    npz(&columns, true)
}

/// DESI's layout, 60 MB of zeros once inflated.
fn gzipped_images(bitpix: i64) -> Vec<u8> {
    // 1. Functions that write units.
    let rows = 300usize;
    let element_bytes = (bitpix.unsigned_abs() / 8) as usize;
    let pixels = (20 << 20) / (rows * element_bytes);
    let unit = |cards: &[String], data: &[u8]| -> Vec<u8> {
        let mut unit: Vec<u8> = cards
            .iter()
            .chain(&["END".to_string()])
            .flat_map(|card| format!("{card:<80}").into_bytes())
            .collect();
        unit.resize(unit.len().next_multiple_of(2880), b' ');
        unit.extend(data);
        unit.resize(unit.len().next_multiple_of(2880), 0);
        unit
    };
    let cards = |list: &[&str]| list.iter().map(|card| card.to_string()).collect::<Vec<_>>();
    let image = |name: &str, bitpix: i64, shape: &[usize], data: &[u8]| {
        let mut image_cards = cards(&["XTENSION= 'IMAGE'"]);
        image_cards.extend([
            format!("BITPIX  = {bitpix}"),
            format!("NAXIS   = {}", shape.len()),
        ]);
        image_cards.extend(
            (1..)
                .zip(shape.iter().rev())
                .map(|(k, n)| format!("NAXIS{k}  = {n}")),
        );
        image_cards.push(format!("EXTNAME = '{name}'"));
        unit(&image_cards, data)
    };
    // 2. Write a file of zeros.
    let ids = [
        "XTENSION= 'BINTABLE'",
        "BITPIX  = 8",
        "NAXIS   = 2",
        "NAXIS1  = 8",
        "NAXIS2  = 300",
        "TFIELDS = 1",
    ];
    let ids = [
        &ids[..],
        &[
            "TTYPE1  = 'TARGETID'",
            "TFORM1  = 'K'",
            "EXTNAME = 'FIBERMAP'",
        ],
    ]
    .concat();
    let grid: Vec<u8> = (0..pixels)
        .flat_map(|j| (4000.0 + j as f64).to_be_bytes())
        .collect();
    let zeros = vec![0; rows * pixels * element_bytes];
    let file = [
        unit(&cards(&["SIMPLE  = T", "BITPIX  = 8", "NAXIS   = 0"]), &[]),
        unit(&cards(&ids), &[0; 2400]),
        image("B_WAVELENGTH", -64, &[pixels], &grid),
        image("B_FLUX", bitpix, &[rows, pixels], &zeros),
        image("B_IVAR", bitpix, &[rows, pixels], &zeros),
        image("B_MASK", bitpix, &[rows, pixels], &zeros),
    ]
    .concat();
    // 3. Compress it.
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, &file).unwrap();
    encoder.finish().unwrap()
}

/// JSON as deep as a header of safetensors may be long.
fn deep_header() -> Vec<u8> {
    let header = format!("{{\"a\":{}", "[".repeat(1_000_000));
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat()
}

/// A row of as many parameters as a FITS table has columns for.
fn wide_table() -> Vec<u8> {
    let mut names: Vec<String> =
        "id file row status status_text rounds evaluations chi2 dof objective"
            .split(' ')
            .map(String::from)
            .collect();
    names.extend((0..492).flat_map(|k| [format!("p{k}"), format!("p{k}_err")]));
    names.extend(
        "at_bound flags start n_starts_agree"
            .split(' ')
            .map(String::from),
    );
    let columns: Vec<(&str, &str, usize)> =
        names.iter().map(|name| (name.as_str(), "K", 8)).collect();
    [
        &[1],
        primary().as_slice(),
        &table("RESULTS", 1, &columns, &[0]),
    ]
    .concat()
}

/// Each parameter is tied to an expression that has the one before it several times: the graph is short, but its
/// expansion is not.
fn doubling(count: usize) -> String {
    let sum: String = (1..=count).map(|k| format!("+p{k}")).collect();
    let ties: String = (1..=count)
        .map(|k| {
            format!(
                "\np{k} = exp(p{0}) + exp(p{0})*abs(p{0} + sin(p{0}))",
                k - 1
            )
        })
        .collect();
    format!("p0*x{sum}{ties}")
}

/// Each term occurs several times in the next one, as `next` writes it: the text is short, but its expansion is not.
fn terms(count: usize, next: impl Fn(&str) -> String) -> String {
    let terms: String = (1..count)
        .map(|k| format!("t{k}={};", next(&format!("t{}", k - 1))))
        .collect();
    format!("t0=a*x+b;{terms}t{}", count - 1)
}

/// Formulas whose derivatives are many or long.
fn formulas() -> Vec<(&'static str, String)> {
    let names = |between: &str, count: usize| {
        (0..count)
            .map(|k| format!("p{k}"))
            .collect::<Vec<_>>()
            .join(between)
    };
    vec![
        ("a sum of parameters", names("+", 1900)),
        ("a product of parameters", names("*", 1900)),
        (
            "a product of few parameters",
            format!("{}*{}", names("*", 32), "sin(x*p1)*".repeat(700) + "x"),
        ),
        ("powers of powers", format!("{}p", "p^".repeat(98))),
        (
            "functions of functions",
            format!("{}p*x{}", "atan2(p+x,sin(".repeat(45), "))".repeat(45)),
        ),
        (
            "a long product",
            (0..30)
                .map(|k| format!("sin(x+{}*p{k})", k + 2))
                .collect::<Vec<_>>()
                .join("*"),
        ),
        ("quotients", "p/(x+".repeat(95) + "q" + &")".repeat(95)),
        ("ties that double each time", doubling(30)),
        (
            "terms that double each time",
            terms(500, |t| format!("{t}*(c+{t})")),
        ),
        (
            "quotients of terms",
            terms(500, |t| format!("sin({t})/({t}+c)")),
        ),
        ("powers of terms", terms(500, |t| format!("{t}^64-{t}"))),
    ]
}
