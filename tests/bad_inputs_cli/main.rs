//! Bad input through the command line (shared `bad_inputs.md`, rows 1–20, 24–28, 34, 37): exit codes, messages, what is in the
//! table, and that nothing is written where nothing should be.
#![cfg(feature = "cli")]

#[path = "../common/mod.rs"]
mod common;
mod files;
mod rows;
mod setup;
