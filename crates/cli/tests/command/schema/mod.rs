//! The schema of the model file (`popfit schema`) says what the parser says: the same keys, and the same verdict on
//! model files, sound ones and damaged ones.

mod validator;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use popfit::ModelFile;
use popfit_testing::{f64s, npz, root};
use serde_json::Value;
use tempfile::TempDir;
use validator::{Schema, json};

/// Model files that have every key between them.
const BASES: [&str; 3] = [
    r#"
[[arm]]
name = "b"
emulator = "emulator.safetensors"
labels = ["teff", "logg", "feh", "alpha"]
activation = "silu"
range = [4000.0, 5000]
interpolation = "linear"
pixels = "integrate"
line_spread = { resolving_power = 4000 }
continuum = { kind = "rbf", terms = 6 }
[continuum]
kind = "chebyshev"
terms = 8
marginalise = true
[spectra]
mask = [[4300.0, 4450.0]]
mask_rest = [[4850.0, 4875.0]]
widen = { bits = [22, 23], factor = 3.0 }
jitter = 0.02
error_floor = 0.1
nonfinite = "mask"
loss = { kind = "huber", scale = 1.5 }
[velocity]
range = [-1000, 1000.0]
start = 0.0
prior = { mean = 0.0, sigma = 100.0 }
scan = "fixed"
[vsini]
range = [0.0, 300.0]
start = { column = "VSINI" }
prior = { mean = 10.0, sigma = { column = "SIGMA" } }
[labels.teff]
start = { column = "TEFF" }
bounds = [4500.0, { column = "MOST" }]
prior = { mean = { column = "TEFF" }, sigma = 100.0 }
[labels.logg]
fixed = 4.0
[labels.alpha]
tied = "0.1 - 0.1*feh"
[exposures]
velocity = "each"
[solver]
kind = "nelder-mead"
starts = 3
released_errors = true
"#,
    r#"
[[arm]]
name = "b"
emulator = "emulator.safetensors"
line_spread = { fwhm = 1.5 }
continuum = { kind = "none" }
[velocity]
fixed = 10.0
[vsini]
fixed = 0
[exposures]
velocity = "shared"
"#,
    r#"
[[arm]]
name = "b"
emulator = "emulator.safetensors"
wavelength = "wavelength.npz"
line_spread = "none"
[shared]
column = "CLUSTER"
labels = ["feh"]
"#,
];

fn schema() -> Schema {
    let printed = Command::new(env!("CARGO_BIN_EXE_popfit"))
        .arg("schema")
        .output()
        .unwrap();
    assert!(printed.status.success());
    let committed = std::fs::read(root().join("docs/src/model.schema.json")).unwrap();
    assert_eq!(printed.stdout, committed);
    Schema(serde_json::from_slice(&committed).unwrap())
}

/// A folder with the network that the model files name.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(
        root().join("data/emulator.safetensors"),
        folder.path().join("emulator.safetensors"),
    )
    .unwrap();
    let network = popfit::Emulator::open(root().join("data/emulator.safetensors")).unwrap();
    let wavelength = f64s(&[network.wavelength().len()], network.wavelength());
    std::fs::write(
        folder.path().join("wavelength.npz"),
        npz(&[("wavelength", wavelength)], false),
    )
    .unwrap();
    folder
}

/// The error of the parser, or of the model that is built.
fn refused(folder: &Path, text: &str) -> Option<String> {
    let path = folder.join("model.toml");
    std::fs::write(&path, text).unwrap();
    ModelFile::open(&path)
        .and_then(|file| file.build())
        .err()
        .map(|error| error.to_string())
}

/// A place of a document: keys and indices from the top.
type Place = Vec<String>;

/// The places of all values of a document, those inside arrays of numbers left out.
fn places(value: &Value, at: &Place, found: &mut Vec<Place>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(object) => object
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(k, item)| (k.to_string(), item))
            .collect(),
        _ => Vec::new(),
    };
    for (key, child) in children {
        let place = [&at[..], &[key]].concat();
        found.push(place.clone());
        places(child, &place, found);
    }
}

fn at<'a>(document: &'a mut toml::Value, place: &[String]) -> &'a mut toml::Value {
    place.iter().fold(document, |value, key| match value {
        toml::Value::Array(items) => &mut items[key.parse::<usize>().unwrap()],
        table => table.get_mut(key.as_str()).unwrap(),
    })
}

/// Every object of the schema that has properties, with the name of the section in which the parser meets it.
fn sections(schema: &Schema) -> Vec<(&'static str, BTreeSet<String>)> {
    let properties = |pointer: &str| {
        let object = schema
            .0
            .pointer(pointer)
            .unwrap_or_else(|| panic!("no {pointer}"));
        object.as_object().unwrap().keys().cloned().collect()
    };
    [
        ("", "/properties"),
        ("continuum", "/properties/continuum/properties"),
        ("spectra", "/properties/spectra/properties"),
        ("velocity", "/properties/velocity/properties"),
        ("vsini", "/properties/vsini/properties"),
        ("exposures", "/properties/exposures/properties"),
        ("shared", "/properties/shared/properties"),
        ("solver", "/properties/solver/properties"),
        ("labels.teff", "/definitions/label/properties"),
        ("labels.teff.prior", "/definitions/prior/properties"),
        ("arm.0", "/definitions/arm/properties"),
        (
            "arm.0.continuum",
            "/definitions/arm/properties/continuum/properties",
        ),
        (
            "arm.0.line_spread",
            "/definitions/arm/properties/line_spread/anyOf/1/properties",
        ),
    ]
    .map(|(section, pointer)| (section, properties(pointer)))
    .into()
}

/// The keys that the parser knows of a section, by what it says of an unknown one.
fn known_keys(folder: &Path, section: &str) -> BTreeSet<String> {
    let header = format!("[{section}]");
    let base = BASES.into_iter().find(|base| base.contains(&header));
    let mut document: toml::Value = toml::from_str(base.unwrap_or(BASES[0])).unwrap();
    let place: Place = section
        .split('.')
        .filter(|key| !key.is_empty())
        .map(str::to_string)
        .collect();
    at(&mut document, &place)
        .as_table_mut()
        .unwrap()
        .insert("qqqqqqqq".into(), 1.into());
    let message = refused(folder, &toml::to_string(&document).unwrap()).unwrap();
    assert!(
        message.contains("unknown key") && message.contains("qqqqqqqq"),
        "{section}: {message}"
    );
    message
        .rsplit_once("known: ")
        .unwrap()
        .1
        .split(", ")
        .map(str::to_string)
        .collect()
}

#[test]
fn schema_and_parser_know_the_same_keys() {
    let (schema, folder) = (schema(), folder());
    for (section, keys) in sections(&schema) {
        assert_eq!(
            known_keys(folder.path(), section),
            keys,
            "section `{section}`"
        );
    }
}

#[test]
fn sound_model_files_are_accepted() {
    let (schema, folder) = (schema(), folder());
    for base in BASES {
        assert_eq!(refused(folder.path(), base), None, "{base}");
    }
    let mut texts: Vec<String> = BASES.map(str::to_string).into();
    texts.push(std::fs::read_to_string(root().join("data/model.toml")).unwrap());
    for what in [
        "desi",
        "sdss",
        "mwm",
        "apogee",
        "lamost",
        "lamost-mrs",
        "emulator.safetensors",
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_popfit"));
        let status = command
            .current_dir(folder.path())
            .args(["init", what, "--overwrite"])
            .output()
            .unwrap()
            .status;
        assert!(status.success(), "{what}");
        texts.push(std::fs::read_to_string(folder.path().join("model.toml")).unwrap());
    }
    // the book's examples of whole model files
    let book = std::fs::read_to_string(root().join("docs/src/model-file.md")).unwrap();
    let blocks = book
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```"))
        .map(|(block, _)| block);
    texts.extend(
        blocks
            .filter(|block| block.contains("arm"))
            .map(str::to_string),
    );
    assert!(texts.len() >= 9);
    for text in texts {
        assert!(
            schema.accepts(&json(&toml::from_str(&text).unwrap())),
            "{text}"
        );
    }
}

/// Replaces every value by values of other types and by an unknown word, leaves out every key and adds an unknown one.
#[test]
fn schema_and_parser_agree_on_damaged_files() {
    let (schema, folder) = (schema(), folder());
    let others = [
        "\"qqqqqqqq\"",
        "-1",
        "0.5",
        "true",
        "[]",
        "[1, 2, 3]",
        "{}",
        "{ qqqqqqqq = 1 }",
    ];
    let (mut count, mut apart) = (0, Vec::new());
    for base in BASES {
        let whole: toml::Value = toml::from_str(base).unwrap();
        let mut found = Vec::new();
        places(&json(&whole), &Vec::new(), &mut found);
        for place in &found {
            let (key, parent) = place.split_last().unwrap();
            let mut damaged = Vec::new();
            for other in others {
                let other: toml::Table = toml::from_str(&format!("x = {other}")).unwrap();
                let mut document = whole.clone();
                *at(&mut document, place) = other["x"].clone();
                damaged.push(document);
            }
            let mut document = whole.clone();
            if let toml::Value::Table(table) = at(&mut document, parent) {
                table.remove(key);
                damaged.push(document);
            }
            for document in damaged {
                let text = toml::to_string(&document).unwrap();
                let (message, accepted) = (
                    refused(folder.path(), &text),
                    schema.accepts(&json(&document)),
                );
                count += 1;
                if message.is_some() == accepted && !is_of_meaning(message.as_deref()) {
                    apart.push(format!(
                        "{}: the parser says {message:?}\n{text}",
                        place.join(".")
                    ));
                }
            }
        }
    }
    assert!(
        apart.is_empty(),
        "{} disagreements: {}",
        apart.len(),
        apart.join("\n")
    );
    println!("{count} damaged files");
    assert!(count > 500);
}

/// Returns whether a message is about something that no schema can know: the network, other values, files.
fn is_of_meaning(message: Option<&str>) -> bool {
    let words = [
        "no emulator has a label",
        "is no free parameter",
        "label names for",
        "names this file as",
        "is not an interval",
        "outside its bounds",
        "pixels wide",
        "must be positive, as the network takes its logarithm",
    ];
    message.is_some_and(|message| words.iter().any(|word| message.contains(word)))
}

/// Numbers at and beyond the limits that the schema states.
#[test]
fn limits_are_those_of_the_parser() {
    let (schema, folder) = (schema(), folder());
    let head = "[[arm]]\nname = \"b\"\nemulator = \"emulator.safetensors\"\n";
    let cases = [
        (
            "solver = { starts = N }",
            &["1", "64"][..],
            &["0", "65", "2.5"][..],
        ),
        ("continuum = { terms = N }", &["1", "32"], &["0", "33"]),
        (
            "continuum = { kind = \"rbf\", terms = N }",
            &["4", "32"],
            &["3", "33"],
        ),
        ("continuum = { kind = \"none\", terms = N }", &[], &["1"]),
        (
            "spectra.widen = { bits = [0, N], factor = 2 }",
            &["1", "63"],
            &["64", "-1", "0", "1.5"],
        ),
        (
            "spectra.widen = { bits = [3], factor = N }",
            &["1", "2.5"],
            &["0.99", "-2", "nan", "inf"],
        ),
        (
            "spectra = { jitter = N }",
            &["0", "0.02"],
            &["-0.1", "nan", "inf", "\"fitted\"", "true"],
        ),
        ("spectra = { jitter = N }", &["\"fit\""], &["\"\""]),
        (
            "spectra = { error_floor = N }",
            &["0", "0.5"],
            &["-0.1", "nan", "inf"],
        ),
        (
            "velocity = { range = [0, N] }",
            &["30000"],
            &["30001", "nan"],
        ),
        ("velocity = { fixed = N }", &["-30000"], &["-30001"]),
        ("vsini = { range = [0, N] }", &["1000"], &["1001"]),
        ("vsini = { fixed = N }", &["0"], &["-1", "1001"]),
        (
            "labels.feh.prior = { mean = 0, sigma = N }",
            &["0.1"],
            &["0", "-1"],
        ),
    ];
    for (text, good, bad) in cases {
        for (number, is_good) in good
            .iter()
            .map(|n| (n, true))
            .chain(bad.iter().map(|n| (n, false)))
        {
            let text = format!("{}\n{head}", text.replace('N', number));
            let accepted = schema.accepts(&json(&toml::from_str(&text).unwrap()));
            assert_eq!(
                (accepted, refused(folder.path(), &text).is_none()),
                (is_good, is_good),
                "{text}"
            );
        }
    }
}
