//! Profile of a run's time: a table's worth of numbers, and a trace.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use web_time::Instant;

use super::stages::{NAMES, Span, Stages};
use crate::buffers::Work;
use crate::solver::profile::{Clock, Look, Meter, Spending};
use crate::solver::{self};

/// Profile of the time of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Profile {
    /// Rows that this run has fitted to their ends.
    pub fits: u64,
    /// Rows that the journal knew.
    pub recalled: u64,
    /// Rows that were not fitted, or not to their ends, as the run was cancelled.
    pub interrupted: u64,
    /// From the first read to the last write.
    pub seconds: f64,
    /// Before that: files are read through, networks loaded, the first guess' library made. `None` unless who runs it
    /// has measured it.
    pub opening: Option<f64>,
    /// Most bytes that the process has had in memory, where the system tells (Linux).
    pub memory_peak: Option<u64>,
    /// read, prepare, first guess, fit, finish, posterior, hash, write: of all the run's threads, which overlap. `fit`
    /// contains what the devices do, and waiting for them; `hash` is of spectra whose rows the journal keeps, or may
    /// know; `write` keeps rows in it, too.
    pub host: Vec<HostStage>,
    /// One for each device.
    pub devices: Vec<DeviceProfile>,
    /// By thread: what it is, and its spans.
    #[serde(skip)]
    threads: Vec<(String, Vec<Span>)>,
}

/// A stage of the host.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct HostStage {
    /// Name of the stage, as in [`Summary::stages`](super::Summary::stages).
    pub name: &'static str,
    /// Batches.
    pub calls: u64,
    /// Seconds of all threads.
    pub seconds: f64,
    /// Share of the seconds of all stages.
    pub share: f64,
    /// Bytes of the arrays of spectra that were read or hashed; zero for other stages.
    pub bytes: f64,
    /// 10⁹ bytes a second.
    pub gbytes: f64,
}

/// Profile of a device.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DeviceProfile {
    /// Name of the device, as the result table has it.
    pub name: String,
    /// Clock by which seconds are measured. `timestamps`: the device's own, around every kernel. `threads`: their sum
    /// over the processor's threads. `submissions`: the wall clock around several rounds, as the device tells no times;
    /// the stages' seconds are then zero.
    pub clock: &'static str,
    /// Over which `threads` sums; 1 for the others.
    pub threads: usize,
    /// Seconds of rounds over those of the run, and over the threads.
    pub busy: f64,
    /// Most bytes that its populations have held at once.
    pub bytes_held: u64,
    /// upload, hidden, template, observe, normal matrix, step, compact, readback.
    pub stages: Vec<DeviceStage>,
    /// The submissions of rounds, in the order in which they ended.
    pub rounds: Vec<Rounds>,
}

/// A stage of a device. `upload` and `readback` are by the wall clock, waiting for the other worker's rounds included.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DeviceStage {
    /// hidden: labels and layers before the last; template: the last layer; observe: rotation, line spread and Doppler
    /// shift; normal matrix: priors, continuum and sums over pixels; step: with what stops superfluous starts.
    pub name: &'static str,
    /// Number of kernels: one per tile of members on the CPU, one per round for all members on a GPU.
    pub calls: u64,
    /// By the device's clock.
    pub seconds: f64,
    /// Share of the seconds of all stages.
    pub share: f64,
    /// Additions and multiplications of the sums that the stage is defined by; functions are not counted.
    pub operations: f64,
    /// Read and written, when nothing is still in a cache; copied, for upload and readback.
    pub bytes: f64,
    /// 10⁹ operations a second; of one thread, where the clock is `threads`.
    pub gflops: f64,
    /// 10⁹ bytes a second.
    pub gbytes: f64,
}

/// Rounds between two looks of the host.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Rounds {
    /// Seconds since the run began.
    pub begin: f64,
    /// Until the host knew that they were done.
    pub seconds: f64,
    /// Members that took part, by round.
    pub active: Vec<usize>,
}

/// Rows of a run, by what became of them.
pub struct Counted {
    pub fits: u64,
    pub recalled: u64,
    pub interrupted: u64,
}

/// A run that is measured.
pub struct Measured {
    begin: Instant,
    /// Name and meter of each device.
    devices: Vec<(String, Arc<Meter>)>,
}

impl Measured {
    pub fn new(devices: &[Arc<dyn solver::Device>], begin: Instant) -> Measured {
        let meters = devices.iter().map(|device| (device.name(), Arc::new(Meter::new(begin))));
        Measured { begin, devices: meters.collect() }
    }

    pub fn meter(&self, device: usize) -> Arc<Meter> {
        self.devices[device].1.clone()
    }

    /// `threads`: the reader, the writer, then `sharing` workers a device.
    pub fn profile(self, (counts, sharing): (Counted, usize), threads: &[Stages]) -> Profile {
        let seconds = self.begin.elapsed().as_secs_f64();
        let device = |(name, meter): &(String, Arc<Meter>)| device_profile(name, meter.spending(), seconds);
        let worker = |k: usize| match k {
            0 => "reader".to_string(),
            1 => "writer".to_string(),
            _ => format!("worker {}, {}", k - 1, self.devices[(k - 2) / sharing].0),
        };
        let Counted { fits, recalled, interrupted } = counts;
        Profile {
            fits,
            recalled,
            interrupted,
            seconds,
            opening: None,
            memory_peak: memory_peak(),
            host: host_stages(threads),
            devices: self.devices.iter().map(device).collect(),
            threads: threads.iter().enumerate().map(|(k, stages)| (worker(k), stages.spans().to_vec())).collect(),
        }
    }
}

impl Profile {
    /// Events for Chrome's trace viewers (about:tracing, Perfetto), JSON: a row a thread with a span for every stage of
    /// a batch; for each device its rounds, in as many rows as workers' overlap, and with how many members they begin,
    /// as a curve.
    pub fn trace(&self) -> String {
        let mut events = Vec::new();
        for (thread, (name, spans)) in self.threads.iter().enumerate() {
            events.push(row_name(thread, name));
            for span in spans {
                let (begin, time) = (span.begin.as_secs_f64(), span.time.as_secs_f64());
                events.push(event(thread, span.stage, (begin, time), json!({ "batch": span.batch })));
            }
        }
        let mut row = self.threads.len();
        for device in &self.devices {
            for (number, rounds) in lanes(&device.rounds).into_iter().enumerate() {
                let name = format!("{}, rounds {}", device.name, number + 1);
                events.push(row_name(row, &name));
                for rounds in rounds {
                    let times = (rounds.begin, rounds.seconds);
                    events.push(event(row, "rounds", times, json!({ "active": rounds.active })));
                    events.extend([(rounds.begin, true), (rounds.begin + rounds.seconds, false)].map(
                        |(at, begins)| {
                            let members = rounds.active.first().filter(|_| begins).unwrap_or(&0);
                            json!({ "name": name, "ph": "C", "ts": 1e6 * at, "pid": 1, "args": { "members": members } })
                        },
                    ));
                }
                row += 1;
            }
        }
        Value::Array(events).to_string()
    }
}

/// Rounds in rows of such as do not overlap: those of one worker never do.
fn lanes(rounds: &[Rounds]) -> Vec<Vec<&Rounds>> {
    let mut sorted: Vec<&Rounds> = rounds.iter().collect();
    sorted.sort_by(|a, b| a.begin.total_cmp(&b.begin));
    let mut lanes: Vec<Vec<&Rounds>> = Vec::new();
    for one in sorted {
        let ended = |lane: &&mut Vec<&Rounds>| lane.last().is_none_or(|last| last.begin + last.seconds <= one.begin);
        match lanes.iter_mut().find(ended) {
            Some(lane) => lane.push(one),
            None => lanes.push(vec![one]),
        }
    }
    lanes
}

fn row_name(row: usize, name: &str) -> Value {
    json!({ "name": "thread_name", "ph": "M", "pid": 1, "tid": row, "args": { "name": name } })
}

/// Microseconds in the file.
fn event(row: usize, name: &str, (begin, seconds): (f64, f64), arguments: Value) -> Value {
    json!({ "name": name, "ph": "X", "ts": 1e6 * begin, "dur": 1e6 * seconds, "pid": 1, "tid": row, "args": arguments })
}

fn host_stages(threads: &[Stages]) -> Vec<HostStage> {
    let spans = || threads.iter().flat_map(Stages::spans);
    let total: Duration = spans().map(|span| span.time).sum();
    let stage = |name: &'static str| {
        let own = || spans().filter(|span| span.stage == name);
        let seconds = own().map(|span| span.time).sum::<Duration>().as_secs_f64();
        let bytes = own().map(|span| span.bytes).sum::<u64>() as f64;
        let (share, gbytes) = (ratio(seconds, total.as_secs_f64()), ratio(1e-9 * bytes, seconds));
        HostStage { name, calls: own().count() as u64, seconds, share, bytes, gbytes }
    };
    NAMES.into_iter().map(stage).collect()
}

fn device_profile(name: &str, spending: Spending, seconds: f64) -> DeviceProfile {
    let Spending { clock, works, looks, most_held, .. } = spending;
    let total: f64 = works.iter().map(|spent| spent.seconds).sum();
    let stage = |work: Work| {
        let spent = works[work as usize];
        DeviceStage {
            name: work.name(),
            calls: spent.calls,
            seconds: spent.seconds,
            share: ratio(spent.seconds, total),
            operations: spent.operations,
            bytes: spent.bytes,
            gflops: ratio(spent.operations * 1e-9, spent.seconds),
            gbytes: ratio(spent.bytes * 1e-9, spent.seconds),
        }
    };
    let is_round = |work: &Work| !matches!(work, Work::Upload | Work::Readback);
    let in_rounds: f64 = Work::ALL.iter().filter(|work| is_round(work)).map(|w| works[*w as usize].seconds).sum();
    let (clock, threads, busy) = match clock {
        Clock::Submissions => ("submissions", 1, union(&looks)),
        Clock::Timestamps => ("timestamps", 1, in_rounds),
        Clock::Threads(count) => ("threads", count, in_rounds),
    };
    let rounds = looks.into_iter().map(|Look { begin, seconds, active }| Rounds { begin, seconds, active });
    DeviceProfile {
        name: name.to_string(),
        clock,
        threads,
        busy: ratio(busy, seconds * threads as f64),
        bytes_held: most_held,
        stages: Work::ALL.into_iter().map(stage).collect(),
        rounds: rounds.collect(),
    }
}

/// Seconds in which at least one stretch of rounds was under way: workers share a device.
fn union(looks: &[Look]) -> f64 {
    let mut stretches: Vec<(f64, f64)> = looks.iter().map(|look| (look.begin, look.begin + look.seconds)).collect();
    stretches.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut busy, mut until) = (0.0, 0.0);
    for (begin, end) in stretches {
        busy += (end - f64::max(begin, until)).max(0.0);
        until = f64::max(until, end);
    }
    busy
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Linux: the high-water mark of the resident set.
fn memory_peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(1024 * kilobytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_a_row_follow_each_other() {
        let rounds = |begin, seconds| Rounds { begin, seconds, active: Vec::new() };
        let all = [rounds(1.0, 1.0), rounds(0.0, 1.5), rounds(1.6, 2.0), rounds(2.0, 0.1), rounds(2.05, 0.1)];
        let begins = |lane: &Vec<&Rounds>| lane.iter().map(|one| one.begin).collect::<Vec<_>>();
        let lanes: Vec<Vec<f64>> = lanes(&all).iter().map(begins).collect();
        assert_eq!(lanes, [vec![0.0, 1.6], vec![1.0, 2.0], vec![2.05]]);
    }

    #[test]
    fn stretches_that_overlap_count_once() {
        let look = |begin, seconds| Look { begin, seconds, active: Vec::new() };
        let looks = [look(3.0, 1.0), look(0.0, 1.0), look(0.5, 1.0), look(0.6, 0.1)];
        assert_eq!(union(&looks), 2.5);
        assert_eq!(union(&[]), 0.0);
    }
}
