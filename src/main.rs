//! `popfit`, the command.
#![deny(unsafe_code)]
// a panic is no answer to bad input
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo, clippy::unimplemented)
)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
