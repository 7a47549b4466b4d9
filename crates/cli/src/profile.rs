//! `--profile`: where a run's time went, as a table and in two files beside the output.

use std::path::{Path, PathBuf};

use popfit::low_level::solver::profile::DeviceCalls;
use popfit::low_level::{DeviceProfile, Profile};
use popfit::{Error, OutputFile, Result};

use super::rows::{aligned, cells, short};

const DIGITS: i32 = 3;

/// Returns the paths of the two files that `--profile` writes beside `output`: the numbers and the trace.
pub fn files(output: &Path) -> [PathBuf; 2] {
    ["profile.json", "trace.json"].map(|extension| output.with_extension(extension))
}

/// Both files, before they are written.
pub struct ProfileFiles([OutputFile; 2]);

impl ProfileFiles {
    /// Begins the two files of `--profile` beside `output`; fails if one exists that `may_replace` does not allow.
    pub fn create(output: &Path, may_replace: impl Fn(&Path) -> bool) -> Result<ProfileFiles> {
        let [numbers, trace] = files(output).map(|file| {
            let overwrite = may_replace(&file);
            OutputFile::create(file, overwrite)
        });
        Ok(ProfileFiles([numbers?, trace?]))
    }

    /// Writes the profile as JSON to the first file, and the trace of its events to the second.
    pub fn write(self, profile: &Profile) -> Result<()> {
        let [numbers, trace] = self.0;
        let text = serde_json::to_string_pretty(profile).map_err(|error| Error::Write {
            path: numbers.path().to_path_buf(),
            message: error.to_string(),
        })?;
        numbers.write(text)?;
        trace.write(profile.trace())
    }
}

/// Returns the lines of text that show a profile: a table of the host's stages, then one of each device's.
pub fn lines(profile: &Profile) -> Vec<String> {
    let memory = profile.memory_peak.map_or(String::new(), |bytes| {
        format!(", at most {} of memory", size(bytes as f64))
    });
    let opening = profile.opening.map_or(String::new(), |seconds| {
        format!(" after {} of opening", time(seconds))
    });
    let mut lines = vec![format!(
        "profile of {:.2} s{opening}{memory}",
        profile.seconds
    )];
    let mut host = vec![cells([
        "host, all threads",
        "calls",
        "time",
        "share",
        "GB/s",
        "bytes",
    ])];
    for stage in &profile.host {
        host.push(vec![
            stage.name.into(),
            stage.calls.to_string(),
            time(stage.seconds),
            share(stage.share),
            known(stage.gbytes, short(stage.gbytes, DIGITS)),
            known(stage.bytes, size(stage.bytes)),
        ]);
    }
    lines.extend(aligned(&host));
    for device in &profile.devices {
        lines.push(heading(device));
        lines.extend(aligned(&stages(device)));
        lines.push(rounds(device));
        lines.extend(calls(device));
    }
    lines
}

/// Returns the line above a device's table: name, share of the time that it was busy, memory, and what its clock
/// measures.
fn heading(device: &DeviceProfile) -> String {
    let DeviceProfile {
        name,
        busy,
        bytes_held,
        ..
    } = device;
    let clock = match device.clock {
        "threads" => "time of all threads, GF/s and GB/s of one",
        "timestamps" => {
            "time by its own clock, upload and readback with waiting for the other worker"
        }
        _ => "it tells no times of its kernels",
    };
    format!(
        "{name}: busy with rounds {}, holds at most {}; {clock}",
        share(*busy),
        size(*bytes_held as f64)
    )
}

/// Returns the cells of a device's table, with one row per stage of the computation below a row of headings.
fn stages(device: &DeviceProfile) -> Vec<Vec<String>> {
    let mut table = vec![cells([
        "stage", "calls", "time", "share", "GF/s", "GB/s", "bytes",
    ])];
    for stage in &device.stages {
        table.push(vec![
            stage.name.into(),
            stage.calls.to_string(),
            known(stage.seconds, time(stage.seconds)),
            known(stage.seconds, share(stage.share)),
            known(stage.gflops, short(stage.gflops, DIGITS)),
            known(stage.gbytes, short(stage.gbytes, DIGITS)),
            size(stage.bytes),
        ]);
    }
    table
}

/// Returns a line: how many rounds a device made, and how many members (fits and their starts) took part in each.
fn rounds(device: &DeviceProfile) -> String {
    const SHOWN: usize = 16;
    let active: Vec<usize> = device
        .rounds
        .iter()
        .flat_map(|look| look.active.iter().copied())
        .collect();
    let mut shown: Vec<String> = active.iter().take(SHOWN).map(usize::to_string).collect();
    if active.len() > SHOWN {
        shown.push("…".into());
    }
    let members: usize = active.iter().sum();
    format!(
        "{} rounds of {members} members in all: {}",
        active.len(),
        shown.join(" ")
    )
}

/// Returns a line: what a device was asked for; none for a device that does not count.
fn calls(device: &DeviceProfile) -> Option<String> {
    let DeviceCalls {
        dispatches,
        barriers,
        submissions,
        waits,
        ..
    } = device.calls;
    let DeviceCalls {
        buffers,
        buffer_bytes,
        uploads,
        uploaded_bytes,
        copies,
        copied_bytes,
        ..
    } = device.calls;
    let [buffer_bytes, uploaded, copied] =
        [buffer_bytes, uploaded_bytes, copied_bytes].map(|bytes| size(bytes as f64));
    (submissions > 0).then(|| {
        format!(
            "{dispatches} dispatches with {barriers} barriers, {submissions} submissions, {waits} waits; {buffers} new \
             buffers of {buffer_bytes}, {uploads} uploads of {uploaded}, {copies} copies of {copied}"
        )
    })
}

/// Returns `text` if the number `x` is positive, else `-` as it is not known.
fn known(x: f64, text: String) -> String {
    if x > 0.0 { text } else { "-".into() }
}

/// Formats a share (0 to 1) as a percentage.
fn share(x: f64) -> String {
    format!("{:.1} %", 100.0 * x)
}

/// Formats a time in ms if it is below 1 s, else in s.
fn time(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{:.2} ms", 1e3 * seconds)
    } else {
        format!("{seconds:.2} s")
    }
}

/// Formats a number of bytes with a decimal unit from B to TB.
fn size(bytes: f64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 1000.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    format!("{} {}", short(value, DIGITS), units[unit])
}
