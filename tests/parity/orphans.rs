//! No kernel without its twin.

use std::collections::BTreeSet;
use std::path::Path;

use popfit::low_level::kernels::Stage;

use super::SUMS;
use super::rows::{ROWS, VARIANTS};

/// Returns the names of the modules or shaders in a folder: of its files, and of its folders with a `mod.rs`.
fn stems(folder: &str, extension: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut stems = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_file = path.extension().is_some_and(|found| found == extension);
        if is_file || path.join("mod.rs").is_file() {
            stems.insert(path.file_stem().unwrap().to_str().unwrap().to_owned());
        }
    }
    stems
}

/// Every kernel exists in both languages and meets this test.
#[test]
fn no_kernel_is_an_orphan() {
    let shaders = stems("shaders", "wgsl");
    let mut twins: BTreeSet<String> = Stage::NAMES.iter().map(|name| (*name).to_owned()).collect();
    let files = stems("src/kernels", "rs");
    assert!(twins.is_subset(&files), "a kernel is a file: {twins:?}");
    // the kernels that move a population are no stages of a recording
    let no_kernels = ["mod", "device", "lanes"];
    for folder in ["src/solver/round", "src/cpu"] {
        let modules = stems(folder, "rs").into_iter();
        twins.extend(modules.filter(|stem| !no_kernels.contains(&stem.as_str())));
    }
    // the host packs and unpacks what enters and leaves in the kernel's order: src/gpu/transfer.rs
    twins.insert("transfer".into());
    assert_eq!(shaders, twins);
    let compared = ROWS
        .iter()
        .map(|r| r.0)
        .chain(SUMS.iter().map(|s| s.0))
        .chain(["step", "halve", "compact", "small", "transfer"]);
    assert_eq!(shaders, compared.map(str::to_owned).collect());
    // other ways to the same numbers begin with their kernel's name and meet its twin
    let variants = stems("shaders/variants", "wgsl");
    assert!(
        variants
            .iter()
            .all(|stem| shaders.contains(stem.split('_').next().unwrap_or_default()))
    );
    assert_eq!(variants, VARIANTS.map(str::to_owned).into());
}
