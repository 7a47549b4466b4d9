//! The command: what it writes, refuses and says. Each module is a subject of `TESTING.md`:
//! `cargo test --release -p popfit-cli --test command NAME::` runs one.

mod check;
mod checksums;
mod cli;
mod demo;
mod devices;
mod fit_files;
mod flags;
mod ids;
mod init;
mod limited;
mod messages;
mod outputs;
mod pages;
mod per_file;
mod predict;
mod profile;
mod schema;
mod several_devices;
mod skips;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the command.
fn popfit(arguments: &[impl AsRef<OsStr>]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_popfit"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs the command in a folder.
fn popfit_in(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_popfit"))
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap()
}
