//! `popfit`, the command.
#![deny(unsafe_code)]
// a panic is no answer to bad input
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo, clippy::unimplemented)
)]

mod cli;

/// Arrays of at least this many bytes go back to the system when they are dropped; smaller ones when so many bytes of them lie idle.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: i32 = 1 << 20;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const IDLE: i32 = 1 << 24;

/// glibc raises that size to that of what is dropped. Batches, which one thread makes and another drops, would then leave holes in the memory
/// of each, until a run takes twice what it uses.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(
    unsafe_code,
    reason = "mallopt is called before there is a second thread, with parameters that glibc documents"
)]
fn return_large_arrays() {
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, IDLE);
    }
}

fn main() -> std::process::ExitCode {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    return_large_arrays();
    cli::main()
}
