//! Memory of processes, as Linux reports it.

use std::path::Path;

/// Returns a size in /proc/PROCESS/status in bytes, such as that of `VmHWM`, the peak resident memory; `None` if the
/// system does not report it. `process` is a number or "self".
pub fn read_process_memory(process: &str, key: &str) -> Option<u64> {
    let status = std::fs::read_to_string(Path::new("/proc").join(process).join("status")).ok()?;
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let kibibytes: u64 = value.split_whitespace().next()?.parse().ok()?;
    Some(1024 * kibibytes)
}

/// Returns this process's peak resident memory in MiB; `None` if the system does not report it.
pub fn read_peak_mebibytes() -> Option<u64> {
    read_process_memory("self", "VmHWM").map(|bytes| bytes >> 20)
}
