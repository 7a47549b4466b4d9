//! `popfit-bench`: popfit beside argmin and levenberg-marquardt; `popfit-bench nist`: the digits of the NIST StRD
//! problems.

mod bench;
mod gauss;
mod machine;
mod network;
mod nist;
mod peers;
mod race;
mod scaling;
mod scaling_plot;
mod score;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Times popfit beside argmin and levenberg-marquardt on this machine.
#[derive(Parser)]
#[command(version, about, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(flatten)]
    bench: bench::Arguments,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Fit the NIST StRD problems with every solver and count the digits
    Nist(nist::Arguments),
}

/// Runs the benchmark with the arguments of the process.
fn main() -> ExitCode {
    let code = popfit_cli::execute("popfit-bench", Arguments::try_parse(), |arguments| match arguments.command {
        Some(Command::Nist(arguments)) => nist::run(&arguments),
        None => bench::run(&arguments.bench),
    });
    code.into()
}
