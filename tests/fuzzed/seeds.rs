//! Small sound files, and recipes of them: where a fuzzer begins.

use popfit::low_level::Journal;
use popfit::spectra::open_reader;
use popfit::{Device, Emulator, SpectralFitter};

use super::recipes;
use popfit_testing::fits_bytes::f64s as big_endian;
use popfit_testing::tiny::{PIXELS, linear_layer, model, network_file, spectra, wave};
use popfit_testing::{file, le32, le64, npy};

/// Target, name, bytes.
pub type Seed = (&'static str, String, Vec<u8>);

/// One array of a recipe: the number of its name and of its type, its shape, what it is filled with.
type ArrayRecipe = (u8, u8, &'static [u8], Vec<u8>);

/// Those of `recipes::TYPES`.
const F64: u8 = 0;
const F32: u8 = 1;
const I64: u8 = 2;
const BOOL: u8 = 4;
const TEXT: u8 = 9;
const DEFLATED: u8 = 128;

/// Returns the seeds of all loaders.
pub fn sound_seeds() -> Vec<Seed> {
    let mut seeds = vec![("safetensors", "network".to_string(), recipes::network())];
    let mut add = |target, name: &str, bytes| seeds.push((target, name.to_string(), bytes));
    for (name, arrays) in [("payne", payne()), ("per_pixel", per_pixel())] {
        add("emulator_npz", name, npz(&arrays));
        add(
            "emulator_npz",
            &format!("{name}_file"),
            [&[0], recipes::npz(&npz(&arrays)).as_slice()].concat(),
        );
    }
    for (name, arrays) in [("shared", shared_grid()), ("arms", two_arms())] {
        add("spectra_npz", name, npz(&arrays));
        add(
            "spectra_npz",
            &format!("{name}_file"),
            [&[0], recipes::npz(&npz(&arrays)).as_slice()].concat(),
        );
    }
    let surveys = [
        ("desi", desi()),
        ("desi_tiles", desi_tiles()),
        ("sdss", sdss()),
        ("apstar", apogee(true)),
        ("apvisit", apogee(false)),
        ("lamost", lamost()),
        ("lamost_arms", lamost_arms()),
        ("mwm", mwm()),
    ];
    for (name, units) in surveys {
        let recipe = |mode: u8| [&[mode], units.as_slice()].concat();
        add("fits", name, recipe(1));
        add("fits", &format!("{name}_gz"), recipe(3));
        add(
            "fits",
            &format!("{name}_file"),
            [&[0], recipes::fits(&recipe(1)).as_slice()].concat(),
        );
    }
    for (k, text) in MODELS.iter().enumerate() {
        add("model", &format!("{k}"), text.as_bytes().to_vec());
    }
    for (k, text) in FORMULAS.iter().enumerate() {
        add("formula", &format!("{k}"), text.as_bytes().to_vec());
    }
    add(
        "table",
        "two_rows",
        [&[1], result_table().as_slice()].concat(),
    );
    add("table", "csv", CSV.as_bytes().to_vec());
    add("journal", "records", journal());
    seeds
}

/// A recipe of arrays that fit their shapes.
fn npz(arrays: &[ArrayRecipe]) -> Vec<u8> {
    let mut recipe = vec![2];
    for (name, kind, shape, fill) in arrays {
        recipe.extend([*name, *kind, shape.len() as u8]);
        recipe.extend(*shape);
        recipe.push(fill.len() as u8);
        recipe.extend(fill);
    }
    recipe
}

fn payne() -> Vec<ArrayRecipe> {
    let weights = || le32(&[0.5, -0.25, 1.0]);
    vec![
        (14, F32, &[3, 2], weights()),
        (15, F32, &[2, 3], weights()),
        (16, F64, &[4, 2], le64(&[0.5, 0.25])),
        (17, F32, &[3], weights()),
        (18, F32, &[2], weights()),
        (19, F32 | DEFLATED, &[4], weights()),
        (20, F64, &[2], le64(&[4000.0, 1.0])),
        (21, F64, &[2], le64(&[7000.0, 5.0])),
        (2, F64, &[4], le64(&[5000.0, 5001.0, 5002.0, 5003.0])),
    ]
}

fn per_pixel() -> Vec<ArrayRecipe> {
    let weights = || le32(&[0.5, -0.25, 1.0]);
    vec![
        (14, F32, &[2, 3, 2], weights()),
        (15, F32, &[2, 3], weights()),
        (17, F32, &[2, 3], weights()),
        (18, F32, &[2], weights()),
        (20, F64, &[2], le64(&[0.0, 0.0])),
        (21, F64, &[2], le64(&[1.0, 1.0])),
    ]
}

fn shared_grid() -> Vec<ArrayRecipe> {
    vec![
        (2, F64, &[3], le64(&[4000.0, 4001.0, 4002.0])),
        (0, F32 | DEFLATED, &[5, 3], le32(&[1.0, 0.5])),
        (1, F64 | DEFLATED, &[5, 3], le64(&[100.0])),
        (4, BOOL, &[5, 3], vec![0, 0, 1]),
        (5, I64, &[5], 7i64.to_le_bytes().to_vec()),
        (6, F32, &[5, 3, 3], le32(&[0.25, 0.5])),
        (13, F32, &[5], le32(&[30.0])),
    ]
}

fn two_arms() -> Vec<ArrayRecipe> {
    vec![
        (9, F64, &[2, 3], le64(&[4000.0, 4001.0, 4002.0])),
        (7, F64, &[2, 3], le64(&[1.0])),
        (8, F64, &[2, 3], le64(&[1.0])),
        (22, F64, &[2], le64(&[7000.0, 7001.0])),
        (11, F64, &[2, 2], le64(&[1.0])),
        (12, F64, &[2, 2], le64(&[0.1])),
        (5, TEXT, &[2], vec![b'M', 0, 0, 0]),
    ]
}

/// A unit of a FITS recipe: its cards, the bytes of its data and what these repeat.
fn unit(cards: &str, count: u16, fill: &[u8]) -> Vec<u8> {
    let mut unit = format!("{cards}\n\n").into_bytes();
    unit.extend(count.to_le_bytes());
    unit.push(fill.len() as u8);
    unit.extend(fill);
    unit
}

pub fn primary() -> Vec<u8> {
    unit("SIMPLE  = T\nBITPIX  = 8\nNAXIS   = 0", 0, &[])
}

/// An image of one to three axes, the slowest first, as FITS lists them backwards.
fn image(name: &str, bitpix: i64, shape: &[usize], extra_cards: &str, fill: &[u8]) -> Vec<u8> {
    let axes: String = (1..)
        .zip(shape.iter().rev())
        .map(|(k, n)| format!("NAXIS{k}  = {n}\n"))
        .collect();
    let axes = format!(
        "XTENSION= 'IMAGE'\nBITPIX  = {bitpix}\nNAXIS   = {}\n{axes}{extra_cards}",
        shape.len()
    );
    let bytes = shape.iter().product::<usize>() * (bitpix.unsigned_abs() / 8) as usize;
    unit(&format!("{axes}EXTNAME = '{name}'"), bytes as u16, fill)
}

pub fn table(name: &str, rows: usize, columns: &[(&str, &str, usize)], fill: &[u8]) -> Vec<u8> {
    let width: usize = columns.iter().map(|column| column.2).sum();
    let column_cards: String = (1..)
        .zip(columns)
        .map(|(k, (name, form, _))| {
            format!(
                "{:<8}= '{name}'\n{:<8}= '{form}'\n",
                format!("TTYPE{k}"),
                format!("TFORM{k}")
            )
        })
        .collect();
    let cards = format!(
        "XTENSION= 'BINTABLE'\nBITPIX  = 8\nNAXIS   = 2\nNAXIS1  = {width}\nNAXIS2  = {rows}\nPCOUNT  = 0\nGCOUNT  = 1\nTFIELDS = {}\n{column_cards}EXTNAME = '{name}'",
        columns.len()
    );
    unit(&cards, (rows * width) as u16, fill)
}

/// A result table of one row in CSV.
const CSV: &str = "id,file,row,status,status_text,rounds,evaluations,chi2,dof,objective,teff,teff_err,at_bound,flags,\
    start,n_starts_agree\n\"a, b\",x.npz,0,2,ftol,5,9,1.5,-3,2.5,5000.0,inf,0,2,-1,1\n";

/// A result table of two rows: a fit, and a spectrum that was refused.
fn result_table() -> Vec<u8> {
    let counts = [
        "rounds",
        "evaluations",
        "dof",
        "at_bound",
        "flags",
        "n_starts_agree",
    ];
    let floats = [
        "chi2",
        "objective",
        "teff",
        "teff_err",
        "logg",
        "logg_err",
        "correlation_teff_logg",
    ];
    let names = "id file row status status_text rounds evaluations chi2 dof objective teff teff_err logg logg_err \
        at_bound flags start n_starts_agree correlation_teff_logg";
    let mut columns = Vec::new();
    let mut rows = [Vec::new(), Vec::new()];
    for name in names.split(' ') {
        let (form, cells): ((&str, usize), [Vec<u8>; 2]) = match name {
            "file" => (("4A", 4), [b"a.np".to_vec(), b"a.np".to_vec()]),
            "status_text" => (("4A", 4), [b"ftol".to_vec(), b"bad ".to_vec()]),
            "status" | "start" => (("J", 4), [2i32, -1].map(|n| n.to_be_bytes().to_vec())),
            name if floats.contains(&name) => {
                (("D", 8), [0.25, f64::NAN].map(|x| x.to_be_bytes().to_vec()))
            }
            name if counts.contains(&name) => {
                (("J", 4), [5i32, 0].map(|n| n.to_be_bytes().to_vec()))
            }
            _ => (("K", 8), [7i64, 8].map(|n| n.to_be_bytes().to_vec())),
        };
        columns.push((name, form.0, form.1));
        rows.iter_mut()
            .zip(cells)
            .for_each(|(row, cell)| row.extend(cell));
    }
    [primary(), table("RESULTS", 2, &columns, &rows.concat())].concat()
}

fn desi() -> Vec<u8> {
    [
        primary(),
        table(
            "FIBERMAP",
            2,
            &[
                ("TARGETID", "K", 8),
                ("OBJTYPE", "3A", 3),
                ("FLAGS", "J", 4),
            ],
            b"\0\x8c\0\0\0\0\0\x07TGT\0\0\0\x01",
        ),
        image(
            "B_WAVELENGTH",
            -64,
            &[3],
            "",
            &big_endian(&[5000.0, 5001.0, 5002.0]),
        ),
        image("B_FLUX", -32, &[2, 3], "", &1.5f32.to_be_bytes()),
        image("B_IVAR", -32, &[2, 3], "", &100f32.to_be_bytes()),
        image(
            "B_MASK",
            32,
            &[2, 3],
            "BZERO   = 2147483648\n",
            &[128, 0, 0, 0],
        ),
        image("B_RESOLUTION", -32, &[2, 3, 3], "", &0.5f32.to_be_bytes()),
    ]
    .concat()
}

/// A DESI file whose mask is compressed by tiles in Rice's code: a first pixel, and one block without differences.
fn desi_tiles() -> Vec<u8> {
    let cards = "XTENSION= 'BINTABLE'\nBITPIX  = 8\nNAXIS   = 2\nNAXIS1  = 8\nNAXIS2  = 2\nPCOUNT  = 5\nGCOUNT  = 1\nTFIELDS = 1\n\
        TTYPE1  = 'COMPRESSED_DATA'\nTFORM1  = '1PB(5)'\nZIMAGE  = T\nZBITPIX = 32\nZNAXIS  = 2\nZNAXIS1 = 3\nZNAXIS2 = 2\n\
        ZCMPTYPE= 'RICE_1'\nEXTNAME = 'B_MASK'";
    let descriptors = [5i32, 0, 5, 0].map(i32::to_be_bytes).concat();
    let mask = unit(cards, 21, &[descriptors.as_slice(), &[0; 5]].concat());
    let uncompressed = desi();
    let mask_start = (0..uncompressed.len())
        .find(|&start| uncompressed[start..].starts_with(b"XTENSION= 'IMAGE'\nBITPIX  = 32"))
        .unwrap();
    [&uncompressed[..mask_start], &mask].concat()
}

/// LAMOST's low resolution up to DR7: an image of five rows.
fn lamost() -> Vec<u8> {
    let cards = "SIMPLE  = T\nBITPIX  = -32\nNAXIS   = 2\nNAXIS1  = 2\nNAXIS2  = 5\nCOEFF0  = 3.6\nCOEFF1  = 0.0001\nOBSID   = 7";
    let rows = [
        1.0, 2.0, 1.0, 1.0, 3981.0717, 3981.9885, 0.0, 1.0, 0.0, 1.0f32,
    ];
    unit(cards, 40, &rows.map(f32::to_be_bytes).concat())
}

/// LAMOST's medium resolution: a table with one row of arrays, and one with a row per pixel.
fn lamost_arms() -> Vec<u8> {
    let row = [1.0, 1.0, 2.0, 2.0, 5000.0, 5001.0f32]
        .map(f32::to_be_bytes)
        .concat();
    let arrays = [
        ("FLUX", "2E", 8),
        ("IVAR", "2E", 8),
        ("WAVELENGTH", "2E", 8),
    ];
    let pixels = [
        ("FLUX", "E", 4),
        ("IVAR", "E", 4),
        ("LOGLAM", "E", 4),
        ("PIXMASK", "E", 4),
    ];
    let pixel = [1.0, 2.0, 3.7, 0.0f32].map(f32::to_be_bytes).concat();
    [
        primary(),
        table("COADD_B", 1, &arrays, &row),
        table("COADD_R", 3, &pixels, &pixel),
    ]
    .concat()
}

/// SDSS-V: a table of two spectra, and one without rows.
fn mwm() -> Vec<u8> {
    let columns = [
        ("SDSS_ID", "K", 8),
        ("FLUX", "2E", 8),
        ("IVAR", "2E", 8),
        ("WAVELENGTH", "2E", 8),
        ("PIXEL_FLAGS", "2J", 8),
    ];
    let row = [0.0, 1.0, 1.0, 2.0, 1.0, 1.0, 5000.0, 5001.0, 0.0, 0.0f32]
        .map(f32::to_be_bytes)
        .concat();
    let none = [("SDSS_ID", "K", 8), ("FLUX", "0E", 0)];
    [
        primary(),
        table("BOSS/APO", 2, &columns, &row),
        table("APOGEE/LCO", 0, &none, &[]),
    ]
    .concat()
}

fn sdss() -> Vec<u8> {
    let row: Vec<u8> = [3.7f32, 1.0, 4.0]
        .iter()
        .flat_map(|x| x.to_be_bytes())
        .chain([0; 4])
        .collect();
    let columns = [
        ("loglam", "E", 4),
        ("flux", "E", 4),
        ("ivar", "E", 4),
        ("and_mask", "J", 4),
    ];
    let object = [
        ("PLATE", "J", 4),
        ("MJD", "J", 4),
        ("FIBERID", "J", 4),
        ("Z", "E", 4),
    ];
    [
        primary(),
        table("COADD", 3, &columns, &row),
        table("SPECOBJ", 1, &object, &[0, 0, 1, 10]),
    ]
    .concat()
}

fn apogee(star: bool) -> Vec<u8> {
    let axis = if star {
        "CRVAL1  = 4.179\nCDELT1  = 6E-06\n"
    } else {
        ""
    };
    let shape: &[usize] = if star { &[2, 4] } else { &[3, 2] };
    let mut units = vec![
        unit(
            "SIMPLE  = T\nBITPIX  = 8\nNAXIS   = 0\nOBJID   = '2M0000'",
            0,
            &[],
        ),
        image("FLUX", -32, shape, axis, &1f32.to_be_bytes()),
        image("ERROR", -32, shape, "", &0.1f32.to_be_bytes()),
        image("MASK", 16, shape, "", &[0, 0, 16, 0]),
    ];
    if !star {
        units.push(image(
            "WAVELENGTH",
            -64,
            shape,
            "",
            &big_endian(&[16900.0, 16800.0, 16200.0, 16100.0, 15500.0, 15400.0]),
        ));
    }
    units.concat()
}

/// Model files.
const MODELS: [&str; 3] = [
    "[[arm]]\nname = \"b\"\nemulator = \"net.safetensors\"\n[labels.a]\nstart = 1.0\nbounds = [-1, 1]\n",
    "[[arm]]\nname = \"\"\nemulator = \"net.safetensors\"\nlabels = [\"teff\"]\nrange = [5000.0, 5001.0]\ninterpolation = \"linear\"\nline_spread = { fwhm = 1.55 }\ncontinuum = { kind = \"rbf\", terms = 10 }\n[velocity]\nrange = [-1500.0, 1500.0]\nscan = \"off\"\n[vsini]\nfixed = 20.0\n[labels.teff]\nprior = { mean = 1.0, sigma = { column = \"S\" } }\n",
    "[continuum]\nkind = \"chebyshev\"\nterms = 3\nmarginalise = true\n[spectra]\nmask = [[4300.0, 4450.0]]\nerror_floor = 0.1\nnonfinite = \"mask\"\n[solver]\nkind = \"lm\"\nstarts = 2\n[[arm]]\nname = \"b\"\nemulator = \"net.safetensors\"\n[velocity]\nfixed = 0.0\n[labels.a]\ntied = \"0.4 - 0.1*feh\"\n",
];

const FORMULAS: [&str; 8] = [
    "a*exp(-(x-m)^2/(2*s^2)) + c",
    "b1*(1-exp(-b2*x))\nb2 = b1/4",
    "(b1+b2*x+b3*x**2+b4*x**3) / (1+b5*x+b6*x^2+b7*x^3)",
    "b1 + b2*cos(2*pi*x/12) + b3*sin(2*pi*x/b4) - atan2(x, b4)",
    "max(a, min(x, erf(b)))^-0.5 + abs(sign(c)*x) - cbrt(log1p(a)) * sqrt(.5e-3)",
    "t = (x-m)/s; u = t*t; a*exp(-u/2) + b*t*u\nm = v = a*s; v + v^2",
    "select(x <= m and x != 0 or s == 2, a*hypot(x, s), heaviside(x, 0.5))*copysign(a, x) < b\nm = s > 1",
    "asinh(a)*acosh(x+2)/atanh(b) + expm1(x)*log10(c)^d\nd = 2*a\nc = d",
];

/// A recipe of the journal of a small run.
fn journal() -> Vec<u8> {
    // 1. Fit two spectra with a small network, and write a journal.
    let folder = tempfile::tempdir().unwrap();
    let network = network_file(&["a"], "relu", &[linear_layer(1, wave)]);
    let emulator = Emulator::open(file(folder.path(), "net.safetensors", &network)).unwrap();
    let spectra = spectra(&emulator, &[0.5, -1.0], 0.01);
    let arm = &spectra.arms[0];
    let grid = le64(&arm.grid(0));
    let shape = [2, PIXELS];
    let arrays = [
        ("wavelength", npy("<f8", &[PIXELS], &grid)),
        ("flux", npy("<f8", &shape, &le64(&arm.flux.to_double()))),
        ("ivar", npy("<f8", &shape, &le64(&arm.ivar.to_double()))),
    ];
    let spectra = file(
        folder.path(),
        "spectra.npz",
        &popfit_testing::npz(&arrays, false),
    );
    let fitter = SpectralFitter::new(model(emulator, 0.0), Device::cpu());
    let target = folder.path().join("out.csv");
    let mut journal = Journal::open(&target, recipes::JOURNAL_KEY, false).unwrap();
    let mut source = open_reader(spectra).unwrap();
    let mut table = fitter.table();
    fitter
        .fit_journaled(&mut *source, &mut table, &mut journal)
        .unwrap();
    drop(journal);
    let file = std::fs::read(target.with_file_name(".out.csv.journal")).unwrap();
    // 2. Turn its records into a recipe.
    let mut recipe = vec![1];
    let mut records = &file[recipes::journal(&[1]).len()..];
    while let Some((length, rest)) = records.split_first_chunk::<8>() {
        let (payload, later) = rest[40..].split_at(u64::from_le_bytes(*length) as usize);
        recipe.extend((payload.len() as u16).to_le_bytes());
        recipe.extend(payload);
        records = later;
    }
    assert_eq!(
        recipes::journal(&recipe),
        file,
        "the recipe makes what the library writes"
    );
    recipe
}
