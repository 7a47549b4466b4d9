//! `popfit-bench`: popfit beside argmin and levenberg-marquardt; `popfit-bench nist`: the digits of the NIST StRD
//! problems; `popfit-bench host`: what a run costs its host; `popfit-bench kernels`: the kernels that a card gets.

mod bench;
mod gauss;
mod host;
mod kernels;
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
    /// Fit files on a device that computes nothing, and print the time of each stage and thread of the host
    Host(host::Arguments),
    /// Write the kernels that an NVIDIA card gets
    Kernels(kernels::Arguments),
}

/// Runs the benchmark with the arguments of the process.
fn main() -> ExitCode {
    let code = popfit_cli::execute("popfit-bench", Arguments::try_parse(), |arguments| match arguments.command {
        Some(Command::Nist(arguments)) => nist::run(&arguments),
        Some(Command::Host(arguments)) => host::run(&arguments),
        Some(Command::Kernels(arguments)) => kernels::run(&arguments),
        None => bench::run(&arguments.bench),
    });
    code.into()
}
