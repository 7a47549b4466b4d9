//! Each loader fed with hostile bytes: shared by `fuzz/` (libFuzzer) and `tests/fuzzed` (corpus and
//! findings).
//!
//! A loader may accept or refuse a file. It must not panic, and its peak memory must stay below the file's length plus
//! 64 MiB.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use popfit::low_level::Journal;
use popfit::low_level::TableReader;
use popfit::spectra::{Selection, open_reader_with};
use popfit::{CurveFitter, Device, Emulator, Formula, ModelFile};

use super::recipes;

/// A loader.
pub type Load = fn(&[u8]);

/// Every loader by the name of its fuzz target.
pub const LOADERS: [(&str, Load); 8] = [
    ("safetensors", safetensors),
    ("emulator_npz", emulator_npz),
    ("spectra_npz", spectra_npz),
    ("fits", fits),
    ("model", model),
    ("formula", formula),
    ("journal", journal),
    ("table", table),
];

/// Bytes beyond the file's length that reading may take at its peak.
const MAX_MEMORY_BEYOND_FILE: usize = 64 << 20;
/// Spectra in a batch.
const SPECTRA_PER_BATCH: usize = 512;

/// Allocator that counts the process's memory, and its peak.
pub struct CountingAllocator;

static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Memory that the last load took at its peak, in bytes.
pub static LAST_PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD_BYTES.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK_BYTES.fetch_max(held, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD_BYTES.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(place, layout) }
    }
}

/// Runs a loader and returns the bytes that it took at its peak. Other threads' memory counts, too: one at a time.
pub fn measure_peak(load: impl FnOnce()) -> usize {
    let before = HELD_BYTES.load(Relaxed);
    PEAK_BYTES.store(before, Relaxed);
    load();
    let peak = PEAK_BYTES.load(Relaxed).saturating_sub(before);
    LAST_PEAK_BYTES.store(peak, Relaxed);
    peak
}

/// Hands `bytes` to `load` as a file, in memory.
fn load_file(name: &str, bytes: &[u8], load: impl FnOnce(&Path)) {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    }
    .unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let peak = measure_peak(|| load(&path));
    assert!(
        peak <= bytes.len() + MAX_MEMORY_BEYOND_FILE,
        "{name}: {peak} bytes for a file of {}",
        bytes.len()
    );
}

fn load_emulator(path: &Path) {
    let Ok(emulator) = Emulator::open(path) else {
        return;
    };
    let middle_labels: Vec<f64> = emulator
        .labels()
        .iter()
        .map(|label| 0.5 * label.min + 0.5 * label.max)
        .collect();
    assert_eq!(emulator.templates(&middle_labels).len(), emulator.pixels());
    let _ = popfit::low_level::TemplateGrid::new(emulator.wavelength());
}

/// popfit's own emulators.
pub fn safetensors(bytes: &[u8]) {
    load_file("net.safetensors", bytes, load_emulator);
}

/// Emulators in NPZ, and their wavelength grids.
pub fn emulator_npz(bytes: &[u8]) {
    load_file("net.npz", &recipes::npz(bytes), |path| {
        load_emulator(path);
        let _ = popfit::emulator::read_wavelength(path);
        let _ = popfit::low_level::npz::numbers(path, "x_min");
        let _ = popfit::low_level::npz::texts(path, "id");
    });
}

/// Reads all batches of a file of spectra, as many spectra as the reader promises.
fn load_spectra(path: &Path, selection: &Selection) {
    let Ok(mut reader) = open_reader_with(path, selection) else {
        return;
    };
    let mut count = 0;
    let promised = reader.len();
    assert!(reader.empty().is_empty());
    while let Ok(Some(batch)) = reader.next_batch(SPECTRA_PER_BATCH) {
        assert!(!batch.is_empty() && batch.len() <= SPECTRA_PER_BATCH);
        for arm in &batch.arms {
            assert_eq!(
                (arm.flux.len(), arm.ivar.len()),
                (batch.len() * arm.pixels, batch.len() * arm.pixels)
            );
            arm.signal_to_noise(batch.len() - 1);
        }
        count += batch.len() as u64;
        if count == promised {
            return;
        }
    }
}

/// Spectra in NPZ.
pub fn spectra_npz(bytes: &[u8]) {
    load_file("spectra.npz", &recipes::npz(bytes), |path| {
        load_spectra(path, &Selection::default())
    });
}

/// Spectra in FITS, gzipped or not.
pub fn fits(bytes: &[u8]) {
    load_file("spectra.fits", &recipes::fits(bytes), |path| {
        load_spectra(path, &Selection::default());
        let selection = Selection {
            objtype: Some("TGT".into()),
            min_signal_to_noise: Some(0.0),
            arms: Some(vec!["b".into()]),
            ..Selection::default()
        };
        load_spectra(path, &selection);
    });
}

/// Model files; those that name no other folder are built, with a small emulator.
pub fn model(bytes: &[u8]) {
    load_file("model.toml", bytes, |path| {
        let Ok(file) = ModelFile::open(path) else {
            return;
        };
        if !file.text.contains(['/', '\\']) {
            std::fs::write(path.with_file_name("net.safetensors"), recipes::network()).unwrap();
            let _ = file.build();
        }
    });
}

/// A formula; the lines after it are ties, `name = expression`.
pub fn formula(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let peak = measure_peak(|| {
        let mut lines = text.split('\n');
        let Ok(formula) = Formula::parse(lines.next().unwrap_or_default()) else {
            return;
        };
        let values = vec![0.5; formula.parameters().len()];
        let rows = formula.linearise(&[-1.0, 0.0, 2.0], &values).unwrap();
        assert_eq!(rows.len(), 3 * (1 + values.len()));
        assert!(!formula.wgsl(true).is_empty());
        let ties = lines.filter_map(|line| line.split_once('='));
        let fitter = CurveFitter::new(formula, Device::cpu());
        let _ = ties
            .fold(fitter, |fitter, (name, tie)| fitter.tie(name.trim(), tie))
            .validate();
    });
    assert!(
        peak <= bytes.len() + MAX_MEMORY_BEYOND_FILE,
        "formula: {peak} bytes for a text of {}",
        bytes.len()
    );
}

/// Journals, opened to be resumed and to be started anew.
pub fn journal(bytes: &[u8]) {
    load_file(".out.csv.journal", &recipes::journal(bytes), |path| {
        let target = path.with_file_name("out.csv");
        let Ok(journal) = Journal::open(&target, recipes::JOURNAL_KEY, true) else {
            return;
        };
        assert!(journal.has_rows() || journal.is_empty());
        drop(journal);
        let _ = Journal::open(&target, recipes::JOURNAL_KEY, false);
    });
}

/// Returns name and bytes of a result table: Parquet or CSV by its first bytes, or a recipe of FITS.
pub fn table_file(bytes: &[u8]) -> (&'static str, Vec<u8>) {
    match bytes {
        [b'P', b'A', b'R', b'1', ..] => ("table.parquet", bytes.to_vec()),
        [b'i', b'd', b',', ..] => ("table.csv", bytes.to_vec()),
        _ => ("table.fits", recipes::fits(bytes)),
    }
}

/// Result tables.
pub fn table(bytes: &[u8]) {
    let (name, bytes) = table_file(bytes);
    load_file(name, &bytes, |path| {
        let Ok(mut reader) = TableReader::open(path) else {
            return;
        };
        while let Ok(Some(rows)) = reader.next_batch() {
            assert!(
                rows.iter()
                    .all(|row| row.parameters.len() == reader.schema.parameters.len())
            );
        }
    });
}
