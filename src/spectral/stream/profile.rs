//! Profile of the time of a run: numbers for a table, and a trace.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use web_time::Instant;

use crate::buffers::Work;
use crate::io::memory::read_memory_peak;
use crate::solver::profile::{Clock, DeviceCalls, Meter, Spending, Spent, SubmittedRounds};
use crate::solver::{self};
use crate::spectral::stream::stages::{STAGE_NAMES, Span, StageTimes};

/// Profile of the time of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Profile {
    /// Number of rows that this run has fitted to their ends.
    pub fits: u64,
    /// Number of rows that came from the journal.
    pub recalled: u64,
    /// Number of rows whose fits did not begin or end because the run was cancelled.
    pub interrupted: u64,
    /// Seconds from the first read to the last write.
    pub seconds: f64,
    /// Seconds before that, in which files are checked, networks loaded, and the first guess is made. `None` unless the
    /// caller has measured them.
    pub opening: Option<f64>,
    /// Maximum number of bytes that the process had in memory, if the system reports it (Linux).
    pub memory_peak: Option<u64>,
    /// Stages of the host (read, prepare, first guess, fit, finish, posterior, hash, write), summed over all threads,
    /// which overlap. `fit` contains the work of the devices, and waiting for them. `hash` is the hashing of spectra
    /// for the journal. `write` includes writing to the journal.
    pub host: Vec<HostStage>,
    /// Profile of each device.
    pub devices: Vec<DeviceProfile>,
    /// Name and spans of each thread.
    #[serde(skip)]
    threads: Vec<(String, Vec<Span>)>,
}

/// A stage of the host.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct HostStage {
    /// Name of the stage, as in [`Summary::stages`](crate::Summary::stages).
    pub name: &'static str,
    /// Number of batches.
    pub calls: u64,
    /// Seconds, summed over all threads.
    pub seconds: f64,
    /// Share of the seconds of all stages.
    pub share: f64,
    /// Bytes of the arrays of spectra that were read or hashed; zero for other stages.
    pub bytes: f64,
    /// Rate in 10⁹ bytes per second.
    pub gbytes: f64,
}

/// Profile of a device.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DeviceProfile {
    /// Name of the device as it is in the result table.
    pub name: String,
    /// Clock by which seconds are measured. `timestamps` is that of the device, around every kernel. `threads` is the
    /// sum over the processor's threads. `submissions` is the wall clock around several rounds, if the device reports
    /// no times; the seconds of the stages are then zero.
    pub clock: &'static str,
    /// Number of threads over which the clock `threads` sums; 1 for the other clocks.
    pub threads: usize,
    /// Seconds of rounds, divided by those of the run and by the number of threads.
    pub busy: f64,
    /// Maximum number of bytes that the populations held at once.
    pub bytes_held: u64,
    /// Calls of the device during the run, by any run of the process. A measured run submits at most 16
    /// rounds at once and reads their times back, so it has more submissions, waits and copies than others; barriers
    /// are those of an unmeasured run.
    pub calls: DeviceCalls,
    /// Stages of the device (upload, hidden, template, observe, normal matrix, step, compact, readback).
    pub stages: Vec<DeviceStage>,
    /// Submissions of rounds in the order in which they ended.
    pub rounds: Vec<Rounds>,
}

/// A stage of a device. `upload` and `readback` are measured by the wall clock, summed over the workers, and include
/// waiting for the rounds of the other workers.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DeviceStage {
    /// Name of the stage. `hidden` has the labels and all layers but the last; `template` the last layer; `observe`
    /// rotation, line spread and Doppler shift; `normal matrix` priors, continuum and sums over pixels; `step` also
    /// stops superfluous starts.
    pub name: &'static str,
    /// Number of kernels: one per tile of members on the CPU, one per round for all members on a GPU.
    pub calls: u64,
    /// Seconds by the device's clock.
    pub seconds: f64,
    /// Share of the seconds of all stages.
    pub share: f64,
    /// Number of additions and multiplications in the sums that define the stage, without elementary functions.
    pub operations: f64,
    /// Bytes that are read and written without any cache; for `upload` and `readback`, bytes that are copied.
    pub bytes: f64,
    /// Rate in 10⁹ operations per second; that of one thread if the clock is `threads`.
    pub gflops: f64,
    /// Rate in 10⁹ bytes per second.
    pub gbytes: f64,
}

/// Rounds of one submission, after which the host reads the state of the members.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Rounds {
    /// Seconds since the run began.
    pub begin: f64,
    /// Seconds until the host received their end.
    pub seconds: f64,
    /// Number of active members in each round.
    pub active: Vec<usize>,
}

/// Numbers of rows of a run.
pub struct RowCounts {
    /// Rows that this run has fitted to their ends.
    pub fits: u64,
    /// Rows that came from the journal.
    pub recalled: u64,
    /// Rows whose fits were interrupted.
    pub interrupted: u64,
}

/// The meters of a run.
pub struct RunMeters {
    begin: Instant,
    devices: Vec<MeasuredDevice>,
}

/// A device of a run, its meter, and its calls before the run began.
struct MeasuredDevice {
    name: String,
    device: Arc<dyn solver::Backend>,
    meter: Arc<Meter>,
    calls_before: DeviceCalls,
}

impl RunMeters {
    /// Makes a meter of times for each device of a run that began at `begin`.
    pub fn new(devices: &[Arc<dyn solver::Backend>], begin: Instant) -> RunMeters {
        let devices = devices.iter().map(|device| MeasuredDevice {
            name: device.name(),
            device: device.clone(),
            meter: Arc::new(Meter::new(begin)),
            calls_before: device.calls(),
        });
        RunMeters {
            begin,
            devices: devices.collect(),
        }
    }

    /// Returns the meter of the device with this index.
    pub fn meter(&self, device: usize) -> Arc<Meter> {
        self.devices[device].meter.clone()
    }

    /// Returns the run's profile: its seconds and counts, the stages of host and devices, and the spans of each thread.
    /// `threads` are the reader, the writer, and the workers, device by device.
    pub fn profile(
        self,
        counts: RowCounts,
        workers_per_device: usize,
        threads: &[StageTimes],
    ) -> Profile {
        let seconds = self.begin.elapsed().as_secs_f64();
        let mut names = vec!["reader".to_string(), "writer".to_string()];
        for k in 0..threads.len().saturating_sub(names.len()) {
            let device = &self.devices[k / workers_per_device].name;
            names.push(format!("worker {}, {device}", k + 1));
        }
        let spans = threads.iter().map(|thread| thread.spans().to_vec());
        Profile {
            fits: counts.fits,
            recalled: counts.recalled,
            interrupted: counts.interrupted,
            seconds,
            opening: None,
            memory_peak: read_memory_peak(),
            host: summarise_host_stages(threads),
            devices: self
                .devices
                .iter()
                .map(|device| device.profile(seconds))
                .collect(),
            threads: names.into_iter().zip(spans).collect(),
        }
    }
}

impl Profile {
    /// Returns the spans and rounds as events for Chrome's trace viewers (about:tracing, Perfetto) as JSON. There is a
    /// row per thread with a span for every stage of a batch. For each device there are its rounds, in as many rows as
    /// needed because workers overlap, and a curve of the number of members at their beginnings.
    pub fn trace(&self) -> String {
        // 1. One row per thread.
        let mut events = Vec::new();
        for (thread, (name, spans)) in self.threads.iter().enumerate() {
            events.push(row_name_event(thread, name));
            for span in spans {
                let begin = span.begin.as_secs_f64();
                let seconds = span.time.as_secs_f64();
                let arguments = json!({ "batch": span.batch });
                events.push(span_event(thread, span.stage, begin, seconds, arguments));
            }
        }
        // 2. As many rows per device as its rounds need.
        let mut row = self.threads.len();
        for device in &self.devices {
            for (number, row_rounds) in divide_into_rows(&device.rounds).into_iter().enumerate() {
                let name = format!("{}, rounds {}", device.name, number + 1);
                events.push(row_name_event(row, &name));
                for rounds in row_rounds {
                    let begin = rounds.begin;
                    let seconds = rounds.seconds;
                    let members = rounds.active.first().copied().unwrap_or(0);
                    let arguments = json!({ "active": rounds.active });
                    events.push(span_event(row, "rounds", begin, seconds, arguments));
                    events.push(member_count_event(&name, begin, members));
                    events.push(member_count_event(&name, begin + seconds, 0));
                }
                row += 1;
            }
        }
        Value::Array(events).to_string()
    }
}

/// Divides a device's rounds, which are spans of time, into rows in which they do not overlap. Rounds of one worker
/// never overlap.
fn divide_into_rows(rounds: &[Rounds]) -> Vec<Vec<&Rounds>> {
    let mut sorted: Vec<&Rounds> = rounds.iter().collect();
    sorted.sort_by(|a, b| a.begin.total_cmp(&b.begin));
    let mut rows: Vec<Vec<&Rounds>> = Vec::new();
    for rounds in sorted {
        let free_row = rows.iter_mut().find(|row| {
            row.last()
                .is_none_or(|last| last.begin + last.seconds <= rounds.begin)
        });
        match free_row {
            Some(row) => row.push(rounds),
            None => rows.push(vec![rounds]),
        }
    }
    rows
}

/// Returns the trace event that gives a row its name.
fn row_name_event(row: usize, name: &str) -> Value {
    json!({ "name": "thread_name", "ph": "M", "pid": 1, "tid": row, "args": { "name": name } })
}

/// Returns the trace event of a span in a row, from `begin` on. Times are in seconds; the file has microseconds.
fn span_event(row: usize, name: &str, begin: f64, seconds: f64, arguments: Value) -> Value {
    json!({ "name": name, "ph": "X", "ts": 1e6 * begin, "dur": 1e6 * seconds, "pid": 1, "tid": row, "args": arguments })
}

/// Returns the trace event that sets the number of members, which viewers draw as a curve, at a time in seconds.
fn member_count_event(name: &str, time: f64, members: usize) -> Value {
    json!({ "name": name, "ph": "C", "ts": 1e6 * time, "pid": 1, "args": { "members": members } })
}

/// Returns the calls, seconds and bytes of each stage of the host, summed over all threads.
fn summarise_host_stages(threads: &[StageTimes]) -> Vec<HostStage> {
    let spans: Vec<&Span> = threads.iter().flat_map(StageTimes::spans).collect();
    let total: Duration = spans.iter().map(|span| span.time).sum();
    let mut stages = Vec::with_capacity(STAGE_NAMES.len());
    for name in STAGE_NAMES {
        let spans_of_stage = || spans.iter().filter(|span| span.stage == name);
        let time: Duration = spans_of_stage().map(|span| span.time).sum();
        let seconds = time.as_secs_f64();
        let bytes = spans_of_stage().map(|span| span.bytes).sum::<u64>() as f64;
        stages.push(HostStage {
            name,
            calls: spans_of_stage().count() as u64,
            seconds,
            share: ratio_or_zero(seconds, total.as_secs_f64()),
            bytes,
            gbytes: ratio_or_zero(1e-9 * bytes, seconds),
        });
    }
    stages
}

/// Returns calls, seconds and rates of one kind of a device's work, with its share of the `total` seconds.
fn summarise_work(work: Work, spent: Spent, total: f64) -> DeviceStage {
    DeviceStage {
        name: work.name(),
        calls: spent.calls,
        seconds: spent.seconds,
        share: ratio_or_zero(spent.seconds, total),
        operations: spent.operations,
        bytes: spent.bytes,
        gflops: ratio_or_zero(spent.operations * 1e-9, spent.seconds),
        gbytes: ratio_or_zero(spent.bytes * 1e-9, spent.seconds),
    }
}

impl MeasuredDevice {
    /// Returns the device's profile in a run of this many seconds: its stages, rounds, memory and load.
    fn profile(&self, seconds: f64) -> DeviceProfile {
        let Spending {
            clock,
            works,
            submissions,
            most_held,
            ..
        } = self.meter.spending();
        // 1. Times of the stages, and of those that belong to rounds.
        let total: f64 = works.iter().map(|spent| spent.seconds).sum();
        let stages = Work::ALL
            .into_iter()
            .map(|work| summarise_work(work, works[work as usize], total))
            .collect();
        let seconds_in_rounds: f64 = Work::ALL
            .iter()
            .filter(|work| !matches!(work, Work::Upload | Work::Readback))
            .map(|work| works[*work as usize].seconds)
            .sum();
        // 2. Time in which the device worked, by its clock.
        let (clock, threads, busy) = match clock {
            Clock::Submissions => ("submissions", 1, busy_seconds(&submissions)),
            Clock::Timestamps => ("timestamps", 1, seconds_in_rounds),
            Clock::Threads(count) => ("threads", count, seconds_in_rounds),
        };
        // 3. Rounds of each submission.
        let rounds = submissions.into_iter().map(|look| Rounds {
            begin: look.begin,
            seconds: look.seconds,
            active: look.active,
        });
        DeviceProfile {
            name: self.name.clone(),
            clock,
            threads,
            busy: ratio_or_zero(busy, seconds * threads as f64),
            bytes_held: most_held,
            calls: self.device.calls() - self.calls_before,
            stages,
            rounds: rounds.collect(),
        }
    }
}

/// Returns the seconds in which at least one worker had rounds on the device.
fn busy_seconds(submissions: &[SubmittedRounds]) -> f64 {
    let mut intervals: Vec<(f64, f64)> = submissions
        .iter()
        .map(|look| (look.begin, look.begin + look.seconds))
        .collect();
    intervals.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut busy = 0.0;
    let mut busy_until = 0.0;
    for (begin, end) in intervals {
        busy += (end - f64::max(begin, busy_until)).max(0.0);
        busy_until = f64::max(busy_until, end);
    }
    busy
}

/// Returns a ratio_or_zero; 0 if the denominator is not positive.
fn ratio_or_zero(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_in_a_row_do_not_overlap() {
        let rounds = |begin, seconds| Rounds {
            begin,
            seconds,
            active: Vec::new(),
        };
        let all_rounds = [
            rounds(1.0, 1.0),
            rounds(0.0, 1.5),
            rounds(1.6, 2.0),
            rounds(2.0, 0.1),
            rounds(2.05, 0.1),
        ];
        let begins: Vec<Vec<f64>> = divide_into_rows(&all_rounds)
            .iter()
            .map(|row| row.iter().map(|rounds| rounds.begin).collect())
            .collect();
        assert_eq!(begins, [vec![0.0, 1.6], vec![1.0, 2.0], vec![2.05]]);
    }

    #[test]
    fn overlapping_intervals_count_once() {
        let submission = |begin, seconds| SubmittedRounds {
            begin,
            seconds,
            active: Vec::new(),
        };
        let submissions = [
            submission(3.0, 1.0),
            submission(0.0, 1.0),
            submission(0.5, 1.0),
            submission(0.6, 0.1),
        ];
        assert_eq!(busy_seconds(&submissions), 2.5);
        assert_eq!(busy_seconds(&[]), 0.0);
    }
}
