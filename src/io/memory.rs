//! Amount of available memory, and reservations that fail without ending the process.

use std::fs::read_to_string;

use crate::error::{Error, Result};
use crate::io::faults::{Operation, inject_fault};

/// Returns the bytes that this process can still allocate: the least of free RAM and swap, control group and `ulimit
/// -v`. `None` where the system does not tell (only Linux does).
fn available_bytes() -> Option<u64> {
    [free_memory(), control_group_limit(), free_address_space()]
        .into_iter()
        .flatten()
        .min()
}

/// Returns [`Error::OutOfMemory`], which names `what`, if this many more bytes are not available; `Ok` if that is
/// unknown.
pub(crate) fn check(bytes: u64, what: impl FnOnce() -> String) -> Result<()> {
    match available_bytes() {
        Some(free) if bytes > free => {
            let message = format!(
                "{} takes {}, {} are free",
                what(),
                format_bytes(bytes),
                format_bytes(free)
            );
            Err(Error::OutOfMemory {
                device: "cpu".into(),
                message,
            })
        }
        _ => Ok(()),
    }
}

/// Formats a number of bytes for a message, in bytes, MiB or GiB.
fn format_bytes(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{bytes} bytes"),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

/// Returns an empty vector with capacity for exactly `length` elements; `None` if the allocation fails.
pub(crate) fn try_with_capacity<T>(length: usize) -> Option<Vec<T>> {
    let mut empty = Vec::new();
    inject_fault(Operation::Allocate).ok()?;
    empty.try_reserve_exact(length).ok()?;
    Some(empty)
}

/// Returns the available memory and the free swap space together (bytes); `None` where Linux does not report it.
fn free_memory() -> Option<u64> {
    let text = read_to_string("/proc/meminfo").ok()?;
    Some(read_kibibytes(&text, "MemAvailable:")? + read_kibibytes(&text, "SwapFree:").unwrap_or(0))
}

/// Returns the smallest memory limit (bytes) of the process's control group (cgroup v2) and its parents; `None`
/// without.
fn control_group_limit() -> Option<u64> {
    let text = read_to_string("/proc/self/cgroup").ok()?;
    let mut group = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut limits = Vec::new();
    loop {
        let limit =
            read_to_string(format!("/sys/fs/cgroup/{group}/memory.max")).unwrap_or_default();
        limits.extend(limit.trim().parse::<u64>());
        if group.is_empty() {
            return limits.into_iter().min();
        }
        group = group.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
}

/// Returns the largest size of this process's resident set in bytes; `None` where the system does not report it (only
/// Linux does).
pub fn read_memory_peak() -> Option<u64> {
    read_status("VmHWM:")
}

/// Returns a size in bytes that the system reports of this process.
fn read_status(name: &str) -> Option<u64> {
    read_kibibytes(&read_to_string("/proc/self/status").ok()?, name)
}

/// Returns how many bytes of the address space limit (`ulimit -v`) are not in use yet; `None` where there is no limit.
fn free_address_space() -> Option<u64> {
    let limits = read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(read_status("VmSize:")?))
}

/// Finds the line that starts with `name` in a file like `/proc/meminfo`, and returns its KiB as bytes; `None` without
/// one.
fn read_kibibytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// Returns how many bytes a compressed file of this length (bytes) may decompress to, as a limit: 32 × length + 32 MiB.
/// Spectra with their masks and resolution matrices compress by 5 to 10, and f32 becomes f64; what takes more is a
/// bomb.
#[cfg(feature = "files")]
pub fn most_inflated_bytes(file_length: u64) -> u64 {
    file_length.saturating_mul(32).saturating_add(32 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_from_the_system() {
        assert_eq!(
            read_kibibytes("A: 1 kB\nMemAvailable:   20 kB\n", "MemAvailable:"),
            Some(20480)
        );
        assert_eq!(read_kibibytes("A: 1 kB\n", "MemAvailable:"), None);
        if cfg!(target_os = "linux") {
            assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 20));
        }
        assert_eq!(
            [
                format_bytes(10),
                format_bytes(5 << 20),
                format_bytes(3 << 29)
            ],
            ["10 bytes", "5 MiB", "1.5 GiB"]
        );
    }

    #[test]
    fn reservation_of_too_much_memory_fails() {
        assert!(try_with_capacity::<f64>(usize::MAX / 16).is_none());
        assert!(try_with_capacity::<f64>(100).is_some_and(|empty| empty.capacity() >= 100));
    }
}
