//! The order of the house: which room imports which, how many files need one another, and how wide a comment may be.
//!
//! A room is a top folder of `src`, or a file beside them. The test reads the sources without tests and follows every
//! path to the file that defines what it names. What breaks a rule today is listed below with its size. The lists only
//! shrink: the test fails on what is new or has grown, and also on an exception that is larger than what it excuses.

mod builds;
mod graph;
mod made_up;
mod modules;
mod resolve;
mod tokens;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use graph::{Breach, climbs, complaints, knots, room};
use modules::{Crate, Sources};

/// Rooms from the ground floor up. A room imports only rooms on lower floors, so rooms on one floor do not know each
/// other.
const FLOORS: [&[&str]; 21] = [
    &["error", "names", "setters", "suggest", "values"],
    &["threads", "words"],
    &["control", "flag"],
    &["io", "math"],
    &["buffers"],
    &["kernels"],
    &["recording"],
    &["solver"],
    &["cpu", "gpu"],
    &["device"],
    &["formula"],
    &["emulator", "spectra"],
    &["model"],
    &["first_guess"],
    &["curve_model"],
    &["task"],
    &["curves", "spectral"],
    &["table"],
    &["report"],
    &["demo_data", "guide", "low_level"],
    &["lib"],
];

/// Rooms that import a room that is not below them, with the number of pairs of files. Where two rooms import each
/// other, one of the two directions stands here.
const CLIMBS: [(&str, usize); 0] = [];

/// The largest number of files that may need one another.
const MAX_KNOT: usize = 10;

/// Rooms with a larger knot, and the number of its files.
const KNOTS: [(&str, usize); 0] = [];

/// The largest number of columns of a line.
const MAX_COLUMNS: usize = 120;

/// Returns all Rust files below a folder. Links are not followed.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    files(folder, "rs")
}

/// Returns all files below a folder whose names have this extension. Links are not followed.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (kind, path) = (entry.file_type().unwrap(), entry.path());
        if kind.is_dir() {
            found.extend(files(&path, extension));
        } else if kind.is_file() && path.extension().is_some_and(|other| other == extension) {
            found.push(path);
        }
    }
    found
}

/// Returns the Rust sources in a folder of the repository, by their paths below `base`.
fn sources(folder: &str, base: &str) -> Sources {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let base = root.join(base);
    let named = rust_files(&root.join(folder)).into_iter().map(|path| {
        let parts: Vec<_> = path
            .strip_prefix(&base)
            .unwrap()
            .iter()
            .map(|part| part.to_str().unwrap())
            .collect();
        (parts.join("/"), fs::read_to_string(&path).unwrap())
    });
    named.collect()
}

fn assert_kept(rule: &str, found: &[Breach], exceptions: &[(&str, usize)]) {
    let complaints = complaints(rule, found, exceptions);
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn a_room_imports_only_rooms_below_it() {
    let arrows = Crate::read(&sources("src", "src"), false).arrows();
    assert_kept("floors", &climbs(&arrows, &FLOORS), &CLIMBS);
}

#[test]
fn every_room_has_its_floor() {
    let sources = sources("src", "src");
    let rooms: BTreeSet<_> = sources.keys().map(|file| room(file)).collect();
    let listed: Vec<_> = FLOORS.concat();
    assert_eq!(rooms, listed.iter().copied().collect());
    assert_eq!(rooms.len(), listed.len(), "a room stands on two floors");
}

#[test]
fn few_files_need_one_another() {
    let arrows = Crate::read(&sources("src", "src"), false).arrows();
    assert_kept("knots", &knots(&arrows, MAX_KNOT), &KNOTS);
}

/// rustfmt keeps code within the columns; comments of Rust and all lines of WGSL are looked at here.
#[test]
fn lines_are_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "crates", "tests", "benches", "examples"]
        .map(|folder| rust_files(&root.join(folder)));
    let shaders = files(&root.join("shaders"), "wgsl");
    assert!(!shaders.is_empty() && folders.iter().all(|files| !files.is_empty()));
    for path in folders.concat().into_iter().chain(shaders) {
        let text = fs::read_to_string(&path).unwrap();
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        let lines = text
            .lines()
            .filter(|line| !is_rust || line.trim_start().starts_with("//"));
        let long = lines
            .map(str::trim_end)
            .find(|line| line.chars().count() > MAX_COLUMNS);
        assert_eq!(long, None, "{}", path.display());
    }
}

/// The diagram names files and folders of `src`, or the folder of the shaders. A file's name alone continues the folder
/// that stands before it.
#[test]
fn the_diagram_names_files_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let diagram = fs::read_to_string(root.join("docs/architecture.svg")).unwrap();
    let (_, drawing) = diagram.split_once("</style>").unwrap();
    let texts = drawing
        .split('>')
        .filter_map(|part| part.split_once('<'))
        .map(|(text, _)| text);
    let words = texts
        .flat_map(|text| text.split([' ', ',', ';', '(', ')']))
        .map(|word| word.trim_end_matches('.'));
    let mut folder = "";
    let mut found = 0;
    for word in words.filter(|word| word.ends_with('/') || word.ends_with(".rs")) {
        let path = if word.contains('/') {
            word.to_string()
        } else {
            format!("{folder}{word}")
        };
        assert!(
            root.join("src").join(&path).exists() || root.join(&path).exists(),
            "{path} does not exist"
        );
        folder = if word.ends_with('/') { word } else { folder };
        found += 1;
    }
    assert!(found > 30, "{found} names");
}

/// A file that the reader misses, or an import that it cannot follow, would break no rule.
#[test]
fn no_source_is_overlooked() {
    let sources = sources("src", "src");
    let read = Crate::read(&sources, true);
    let files: BTreeSet<_> = read.modules.iter().map(|module| &module.file).collect();
    assert_eq!(files, sources.keys().collect());
    assert_eq!(read.lost_imports(), [""; 0]);
    assert_eq!(Crate::read(&sources, false).lost_imports(), [""; 0]);
}
