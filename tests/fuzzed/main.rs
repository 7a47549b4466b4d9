//! A short run of what `fuzz/` runs for long: every loader over its seeds, what fuzzing found, and damaged copies of
//! both; and files that were written to take more memory than they may.

mod greedy;
mod harness;
mod recipes;
mod seeds;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use harness::{LOADERS, Load};
use popfit_testing::random::Random;
use seeds::Seed;

/// Damaged copies of each seed.
const COPIES: u64 = 150;

/// Memory is counted for the whole process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn loader(target: &str) -> Load {
    LOADERS.iter().find(|(name, _)| *name == target).unwrap().1
}

fn folder(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

/// Returns the findings of libFuzzer: `findings/TARGET/NAME`.
fn findings() -> Vec<Seed> {
    let mut found = Vec::new();
    for (target, _) in LOADERS {
        let files = std::fs::read_dir(folder("tests/fuzzed/findings").join(target))
            .into_iter()
            .flatten();
        for entry in files.map(|entry| entry.unwrap()) {
            let name = entry.file_name().to_string_lossy().into_owned();
            found.push((target, name, std::fs::read(entry.path()).unwrap()));
        }
    }
    found
}

/// Returns whether a loader ended without a panic.
fn is_loaded((target, name, bytes): &Seed, what: &str) -> bool {
    let load = loader(target);
    let ended = catch_unwind(AssertUnwindSafe(|| load(bytes)));
    if ended.is_err() {
        println!(
            "{target}: {name}, {what}: {:02x?}",
            &bytes[..bytes.len().min(300)]
        );
    }
    ended.is_ok()
}

#[test]
fn sound_files_and_findings() {
    let _alone = alone();
    let bad = seeds::all()
        .iter()
        .chain(&findings())
        .filter(|seed| !is_loaded(seed, "as it is"))
        .count();
    assert_eq!(bad, 0);
    assert!(
        LOADERS
            .iter()
            .all(|(target, _)| seeds::all().iter().any(|seed| seed.0 == *target))
    );
}

#[test]
fn seeds_are_read_not_refused() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    for (target, name, bytes) in seeds::all() {
        let (file, bytes) = match target {
            "emulator_npz" | "spectra_npz" => ("seed.fits", recipes::npz(&bytes)),
            "fits" => ("seed.fits", recipes::fits(&bytes)),
            "table" => harness::table_file(&bytes),
            _ => ("seed.fits", bytes),
        };
        let path = popfit_testing::file(folder.path(), file, &bytes);
        let error = match target {
            "safetensors" | "emulator_npz" => popfit::Emulator::open(&path).err(),
            "spectra_npz" | "fits" => popfit::Spectra::open(&path).err(),
            "model" => popfit::ModelFile::open(&path).err(),
            "formula" => {
                popfit::Formula::parse(std::str::from_utf8(&bytes).unwrap().lines().next().unwrap())
                    .err()
            }
            "table" => popfit::FitTable::read(&path).err(),
            _ => None, // the journal's seed is compared with what the library writes
        };
        assert!(error.is_none(), "{target}: {name}: {error:?}");
    }
}

#[test]
fn damaged_copies() {
    let _alone = alone();
    let mut bad = 0;
    for seed in seeds::all().iter().chain(&findings()) {
        for copy in 1..=COPIES {
            let mut random = Random(copy);
            let mut bytes = seed.2.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                match random.below(4) {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at, random.below(256) as u8),
                    2 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
                    _ if at < bytes.len() => bytes[at] = random.below(256) as u8,
                    _ => {}
                }
            }
            bad += u32::from(!is_loaded(
                &(seed.0, seed.1.clone(), bytes),
                &format!("copy {copy}"),
            ));
        }
    }
    assert_eq!(bad, 0);
}

#[test]
fn greedy_files_take_little() {
    let _alone = alone();
    let mut bad = 0;
    for seed in greedy::all() {
        let begin = Instant::now();
        bad += u32::from(!is_loaded(&seed, "greedy"));
        let (time, peak) = (
            begin.elapsed().as_secs_f64(),
            harness::LAST.load(Relaxed) as f64 / f64::from(1 << 20),
        );
        println!(
            "{}: {}: {} bytes, {peak:.1} MiB at its peak, {time:.2} s",
            seed.0,
            seed.1,
            seed.2.len()
        );
    }
    assert_eq!(bad, 0);
}

/// The counter sees what is taken.
#[test]
fn taking_more_is_seen() {
    let _alone = alone();
    assert!(harness::peak_of(|| drop(std::hint::black_box(vec![1u8; 1 << 24]))) >= 1 << 24);
}

/// `cargo test --release --test fuzzed -- --ignored` writes the seeds to where libFuzzer looks for them.
#[test]
#[ignore = "writes fuzz/corpus"]
fn write_the_corpus() {
    for (target, name, bytes) in seeds::all().iter().chain(&findings()) {
        let folder = folder("fuzz/corpus").join(target);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}
