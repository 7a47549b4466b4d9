//! `popfit-bench host`: what a run over files, or of small fits, costs its host. The device computes nothing
//! ([`NullDevice`]), so that the rate is the most that any card could reach.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use popfit::low_level::NullDevice;
use popfit::{Control, Device};
use popfit_cli::{Failure, FitFiles, cells, fit_files, line, print};

use super::curves;

/// Number of curves without files.
const CURVES: usize = 1_000_000;
/// Time between two looks at the threads' times: a thread that ends has at most so much more than is printed.
const LOOK: Duration = Duration::from_millis(5);
/// Name of the thread that looks, whose own time is not that of the run.
const CLOCK: &str = "clock";

#[derive(clap::Args)]
pub struct Arguments {
    /// Model file; without, Gauss functions are fitted as columns of small fits
    #[arg(requires = "spectra")]
    model: Option<PathBuf>,
    /// Files of spectra; a file that is named several times is fitted so many times
    spectra: Vec<PathBuf>,
    /// Number of threads of the run's pool, by default as many as the processor has; with 1, the time of a stage is
    /// that of one core
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Spectra per batch
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
}

/// Fits files or curves on a device that computes nothing; prints the time of each stage and of each thread.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.model {
        Some(model) => of_spectra(model, arguments),
        None => curves::time(
            NullDevice.into(),
            CURVES,
            arguments.threads.unwrap_or_else(all_threads),
        ),
    }
}

/// Returns the number of the processor's threads.
pub fn all_threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Fits files of spectra on a device that computes nothing.
fn of_spectra(model: &Path, arguments: &Arguments) -> Result<(), Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::of_the_run(error.to_string()))?;
    let mut files = FitFiles::new(
        model.to_path_buf(),
        arguments.spectra.clone(),
        folder.path().join("null.parquet"),
    );
    files.settings.device = Device::from(NullDevice).into();
    files.settings.batch_size = arguments.batch;
    // a pool of the run's own has names, by which its threads are told from the writer
    let control = Control {
        profile: true,
        threads: Some(arguments.threads.unwrap_or_else(all_threads)),
        ..Control::default()
    };
    let (done, threads) = with_thread_times(|| fit_files(files, &control));
    let summary = done?.summary;
    let Some(profile) = &summary.profile else {
        return Ok(());
    };
    let each = |seconds: f64| format!("{:.2}", 1e6 * seconds / profile.fits.max(1) as f64);
    let all: f64 = threads.values().sum();
    line(format_args!(
        "{} spectra in {:.3} s, {:.0} a second; {} µs of a core for each, with opening",
        profile.fits,
        profile.seconds,
        profile.fits as f64 / profile.seconds,
        each(all)
    ));
    let mut rows = vec![cells(["stage, all threads", "calls", "µs a spectrum"])];
    rows.extend(
        profile
            .host
            .iter()
            .map(|s| vec![s.name.to_owned(), s.calls.to_string(), each(s.seconds)]),
    );
    print(&rows);
    let mut rows = vec![cells([
        "thread; the writer is popfit-bench",
        "µs of a core a spectrum",
    ])];
    rows.extend(
        threads
            .iter()
            .map(|(name, seconds)| vec![name.clone(), each(*seconds)]),
    );
    print(&rows);
    Ok(())
}

/// Does `work`, and returns with its result the seconds that this process's threads computed meanwhile, by their names;
/// none where the system does not tell (it does on Linux).
fn with_thread_times<R>(work: impl FnOnce() -> R) -> (R, BTreeMap<String, f64>) {
    let before = thread_times();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = thread::Builder::new()
            .name(CLOCK.into())
            .spawn_scoped(scope, || {
                let mut latest = before.clone();
                while !is_done.load(Ordering::Relaxed) {
                    latest.extend(thread_times());
                    thread::sleep(LOOK);
                }
                latest.extend(thread_times());
                latest
            });
        let done = work();
        is_done.store(true, Ordering::Relaxed);
        let after = watch
            .ok()
            .and_then(|watch| watch.join().ok())
            .unwrap_or_default();
        let mut by_name: BTreeMap<String, f64> = BTreeMap::new();
        for (number, (name, seconds)) in after.into_iter().filter(|(_, (name, _))| name != CLOCK) {
            let earlier = before.get(&number).map_or(0.0, |(_, seconds)| *seconds);
            *by_name.entry(name).or_default() += seconds - earlier;
        }
        (done, by_name)
    })
}

/// Returns the name of each thread of this process, and the seconds that it has computed, by its number in the system.
fn thread_times() -> BTreeMap<String, (String, f64)> {
    let time = |task: fs::DirEntry| {
        let text = |file| fs::read_to_string(task.path().join(file)).ok();
        let nanoseconds: f64 = text("schedstat")?.split_whitespace().next()?.parse().ok()?;
        let number = task.file_name().into_string().ok()?;
        Some((
            number,
            (text("comm")?.trim().to_owned(), 1e-9 * nanoseconds),
        ))
    };
    fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(time)
        .collect()
}
