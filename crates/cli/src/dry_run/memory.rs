//! An estimate of the memory that a run takes at its peak.
//!
//! The constants were fitted to the peak resident memory of runs on two threads: 64 to 15,000 spectra of one arm with
//! and without vsini, 24 to 1,440 of three arms. The estimate was 0.79 to 1.12 times the peak where spectra differ, and
//! up to 1.41 times where they are copies of a few, which share the rows of their starts. Runs on cards, which have
//! more workers, were not compared.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use popfit::spectra::{ArmSpectra, Wavelength};
use popfit::{ModelFile, Spectra, SpectralFitter, Values};

/// Spectra of a batch on the CPU, and on GPUs.
const BATCH: u64 = 256;
const BATCH_OF_GPU: u64 = 2048;
/// The program itself.
const PROGRAM: u64 = 20 << 20;
/// Memory of a network in units of its file: weights in three layouts.
const NETWORK: f64 = 3.2;
/// Bytes per pixel of the library of the first guess, and of one with several vsini.
const LIBRARY: u64 = 2800;
const LIBRARY_WITH_VSINI: u64 = 11500;
/// Bytes per pixel that each thread computes with.
const THREAD: u64 = 600;
/// Starts whose rows are kept, at most, and for each spectrum; these are five rows of f32. Where vsini is free, fewer
/// starts recur.
const KEPT: u64 = 512;
const KEPT_OF_SPECTRUM: f64 = 0.5;
const KEPT_BYTES: u64 = 20;
const KEPT_WITH_VSINI: f64 = 0.4;
/// Bytes of a pixel that is being fitted.
const FITTED: u64 = 9;
/// Bytes of an element of the factor of a covariance matrix.
const FACTOR: u64 = 8;
/// Bytes of an element of a resolution matrix that is being fitted.
const RESOLUTION: u64 = 4;
/// What batches and their fits take in all, the allocator's gaps included, in units of their own bytes.
const WITH_GAPS: f64 = 1.4;
/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A run whose memory is estimated.
pub struct Run<'a> {
    pub fitter: &'a SpectralFitter,
    pub model: &'a ModelFile,
    pub paths: &'a [PathBuf],
    /// Some of the spectra.
    pub first: &'a Spectra<'a>,
    pub total: u64,
}

/// Returns text with the estimated peak of a run's memory (MiB) and, one per line, the parts that it comes from.
pub fn describe(run: &Run) -> String {
    let estimate = estimate(run);
    let Estimate {
        fixed,
        batches,
        fits,
        all_files,
        ..
    } = estimate;
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let mut text = format!("memory: about {} MiB at its peak", mib(estimate.peak()));
    let parts = [
        (fixed, "for the program and the model"),
        (batches, "for batches of spectra"),
        (fits, "for their fits"),
        (
            all_files,
            "for inflated files, which are closed as they have been read",
        ),
    ];
    for (bytes, what) in parts.into_iter().filter(|(bytes, _)| *bytes > 0) {
        text += &format!("\n{:>6} MiB {what}", mib(bytes));
    }
    if !is_cpu(run.fitter) {
        text += "\n  and the memory of the GPU itself";
    }
    text
}

/// Bytes.
struct Estimate {
    fixed: u64,
    /// Batches that have been read and not yet written.
    batches: u64,
    /// Batches that are being fitted.
    fits: u64,
    /// Inflated files, all of which are opened at once.
    all_files: u64,
    /// Inflated files that are still open once the batches above have been read.
    open_files: u64,
}

impl Estimate {
    /// Returns the run's highest memory (bytes): when all its files are opened, or while batches are fitted, if that is
    /// more.
    fn peak(&self) -> u64 {
        self.fixed
            + self
                .all_files
                .max(self.open_files + self.batches + self.fits)
    }
}

/// Estimates how much memory each part of the run takes (bytes), from its first batch, workers and file sizes.
fn estimate(run: &Run) -> Estimate {
    let networks: u64 = run.model.inputs().iter().map(|path| length(path)).sum();
    let arms = &run.first.arms;
    let pixels: usize = arms.iter().map(|arm| arm.pixels).sum();
    let vsini = has_free_vsini(run.model);
    let library = if vsini { LIBRARY_WITH_VSINI } else { LIBRARY };
    let share = if vsini { KEPT_WITH_VSINI } else { 1.0 };
    let starts = share * (KEPT_OF_SPECTRUM * run.total as f64).min(KEPT as f64);
    let per_pixel = library
        + THREAD * rayon::current_num_threads() as u64
        + (starts * KEPT_BYTES as f64) as u64;
    let fixed = PROGRAM + (NETWORK * networks as f64) as u64 + per_pixel * pixels as u64;
    let workers = run.fitter.workers() as u64;
    let job = spectra_of_a_job(run, workers);
    // one more is read than is fitted
    let read = run.total.min((workers + 1) * job);
    let count = run.first.len().max(1) as u64;
    let spread = arms_with_resolution(run.model);
    let is_used =
        |arm: &ArmSpectra| spread.contains(&arm.name) || (arms.len() == 1 && !spread.is_empty());
    let with_gaps = |bytes: u64| (WITH_GAPS * bytes as f64) as u64;
    let batches = with_gaps(read * (arms.iter().map(bytes_read).sum::<u64>() / count));
    let each = arms
        .iter()
        .map(|arm| bytes_fitted(arm, is_used(arm)))
        .sum::<u64>()
        / count;
    let inflated = run.paths.iter().filter_map(|path| inflated_length(path));
    let (all_files, largest) = inflated.fold((0, 0), |(sum, largest), bytes| {
        (sum + bytes, bytes.max(largest))
    });
    let unread = (all_files as f64 * (1.0 - read as f64 / run.total.max(1) as f64)) as u64;
    let fits = with_gaps(run.total.min(workers * job) * each);
    Estimate {
        fixed,
        batches,
        fits,
        all_files,
        open_files: unread.max(largest),
    }
}

/// Estimates how many spectra a worker fits together: a batch, or the spectra of several small files.
fn spectra_of_a_job(run: &Run, workers: u64) -> u64 {
    let batch = if is_cpu(run.fitter) {
        BATCH
    } else {
        BATCH_OF_GPU
    };
    let of_file = run
        .total
        .div_ceil(run.paths.len().max(1) as u64)
        .clamp(1, batch);
    let enough = run.total.div_ceil(workers).min(batch / 2).max(1);
    of_file * enough.div_ceil(of_file)
}

/// Returns whether the fitter's first device is the CPU.
fn is_cpu(fitter: &SpectralFitter) -> bool {
    fitter.device_name().starts_with("cpu")
}

/// Returns the length of a file (bytes); 0 if it cannot be read.
fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

/// Returns the names of the arms for which the model file says `line_spread = "file"`: the spectra's own resolution.
fn arms_with_resolution(model: &ModelFile) -> Vec<String> {
    let table: toml::Table = model.text.parse().unwrap_or_default();
    let arms = table
        .get("arm")
        .and_then(|arms| arms.as_array())
        .into_iter()
        .flatten();
    let uses_it = |arm: &&toml::Value| {
        arm.get("line_spread").and_then(|spread| spread.as_str()) == Some("file")
    };
    arms.filter(uses_it)
        .filter_map(|arm| Some(arm.get("name")?.as_str()?.to_string()))
        .collect()
}

/// Returns whether the model file gives vsini a range.
fn has_free_vsini(model: &ModelFile) -> bool {
    let table: toml::Table = model.text.parse().unwrap_or_default();
    table
        .get("vsini")
        .is_some_and(|vsini| vsini.get("range").is_some())
}

/// Returns how many bytes an arm's spectra (all that `arm` holds) take as they are read.
fn bytes_read(arm: &ArmSpectra) -> u64 {
    let own = if let Wavelength::Own(grids) = &arm.wavelength {
        grids.len() * size_of::<f64>()
    } else {
        0
    };
    let resolution = arm
        .resolution
        .as_ref()
        .map_or(0, |r| size_of_val(&*r.values));
    let bytes = |values: &Values| values.len() * if values.as_f32().is_some() { 4 } else { 8 };
    let covariance = arm
        .covariance
        .as_ref()
        .map_or(0, |matrices| bytes(&matrices.values));
    let matrices = resolution + covariance;
    (own + matrices + arm.mask.len() + bytes(&arm.flux) + bytes(&arm.ivar)) as u64
}

/// Estimates how many bytes an arm's spectra take while they are fitted, with resolution matrices if these are used,
/// and with the factors of their covariances.
fn bytes_fitted(arm: &ArmSpectra, has_resolution: bool) -> u64 {
    let resolution = arm
        .resolution
        .as_ref()
        .filter(|_| has_resolution)
        .map_or(0, |r| r.values.len());
    let covariance = arm
        .covariance
        .as_ref()
        .map_or(0, |matrices| matrices.values.len());
    FITTED * arm.flux.len() as u64 + RESOLUTION * resolution as u64 + FACTOR * covariance as u64
}

/// Returns the decompressed length (bytes, modulo 2³²) that a gzip file states at its end; `None` for other files.
fn inflated_length(path: &Path) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let (mut start, mut end) = ([0; 2], [0; 4]);
    file.read_exact(&mut start)
        .ok()
        .filter(|()| start == GZIP)?;
    file.seek(SeekFrom::End(-4))
        .and_then(|_| file.read_exact(&mut end))
        .ok()?;
    Some(u64::from(u32::from_le_bytes(end)))
}
