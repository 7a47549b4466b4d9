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

/// Number of damaged copies of each seed.
const COPIES_PER_SEED: u64 = 150;

/// Locks the counter of memory, which counts for the whole process: tests run one at a time.
fn lock_memory_counter() -> MutexGuard<'static, ()> {
    static COUNTER: Mutex<()> = Mutex::new(());
    COUNTER
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn loader_of(target: &str) -> Load {
    LOADERS.iter().find(|(name, _)| *name == target).unwrap().1
}

fn repository_folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the findings of libFuzzer: `findings/TARGET/NAME`.
fn read_findings() -> Vec<Seed> {
    let mut findings = Vec::new();
    for (target, _) in LOADERS {
        let files = std::fs::read_dir(repository_folder("tests/fuzzed/findings").join(target))
            .into_iter()
            .flatten();
        for entry in files.map(|entry| entry.unwrap()) {
            let name = entry.file_name().to_string_lossy().into_owned();
            findings.push((target, name, std::fs::read(entry.path()).unwrap()));
        }
    }
    findings
}

/// Returns whether a loader ended without a panic.
fn ends_without_panic((target, name, bytes): &Seed, what: &str) -> bool {
    let load = loader_of(target);
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
fn sound_files_and_findings_cause_no_panic() {
    let _lock = lock_memory_counter();
    let panics = seeds::sound_seeds()
        .iter()
        .chain(&read_findings())
        .filter(|seed| !ends_without_panic(seed, "as it is"))
        .count();
    assert_eq!(panics, 0);
    assert!(
        LOADERS
            .iter()
            .all(|(target, _)| seeds::sound_seeds().iter().any(|seed| seed.0 == *target))
    );
}

#[test]
fn sound_seeds_are_accepted() {
    let _lock = lock_memory_counter();
    let folder = tempfile::tempdir().unwrap();
    for (target, name, bytes) in seeds::sound_seeds() {
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
fn damaged_copies_cause_no_panic() {
    let _lock = lock_memory_counter();
    let mut panics = 0;
    for seed in seeds::sound_seeds().iter().chain(&read_findings()) {
        for copy in 1..=COPIES_PER_SEED {
            let mut random = Random(copy);
            let mut bytes = seed.2.clone();
            for _ in 0..=random.below(4) {
                let place = random.below(bytes.len());
                match random.below(4) {
                    0 => bytes.truncate(place),
                    1 => bytes.insert(place, random.below(256) as u8),
                    2 if place < bytes.len() => bytes[place] ^= 1 << random.below(8),
                    _ if place < bytes.len() => bytes[place] = random.below(256) as u8,
                    _ => {}
                }
            }
            panics += u32::from(!ends_without_panic(
                &(seed.0, seed.1.clone(), bytes),
                &format!("copy {copy}"),
            ));
        }
    }
    assert_eq!(panics, 0);
}

#[test]
fn greedy_files_stay_below_the_memory_limit() {
    let _lock = lock_memory_counter();
    let mut panics = 0;
    for seed in greedy::greedy_seeds() {
        let begin = Instant::now();
        panics += u32::from(!ends_without_panic(&seed, "greedy"));
        let time = begin.elapsed().as_secs_f64();
        let peak = harness::LAST_PEAK_BYTES.load(Relaxed) as f64 / f64::from(1 << 20);
        println!(
            "{}: {}: {} bytes, {peak:.1} MiB at its peak, {time:.2} s",
            seed.0,
            seed.1,
            seed.2.len()
        );
    }
    assert_eq!(panics, 0);
}

/// The counter of memory sees an allocation that is freed again.
#[test]
fn memory_counter_sees_large_allocations() {
    let _lock = lock_memory_counter();
    assert!(harness::measure_peak(|| drop(std::hint::black_box(vec![1u8; 1 << 24]))) >= 1 << 24);
}

/// `cargo test --release --test fuzzed -- --ignored` writes the seeds to where libFuzzer looks for them.
#[test]
#[ignore = "writes fuzz/corpus"]
fn write_the_corpus() {
    for (target, name, bytes) in seeds::sound_seeds().iter().chain(&read_findings()) {
        let folder = repository_folder("fuzz/corpus").join(target);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}
