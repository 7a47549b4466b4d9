//! `popfit-bench`: popfit beside argmin and levenberg-marquardt. `popfit-bench nist`: the digits of the NIST StRD
//! problems. `host`: the host's part of a run; `curves`: the time of small fits; `kernels`: the kernels that a card
//! gets; `gpu-kernels`: their times on it; `gpu-ceiling`: what a card can do at most; `tiled`: many spectra out of few.
//! `trials/` has what judges solvers at length.

mod bench;
mod curves;
mod gauss;
mod gpu_ceiling;
mod gpu_kernels;
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
mod tiled;
mod trials;
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
    /// Time many small fits by one call on a device
    Curves(curves::Arguments),
    /// Write the kernels that an NVIDIA card gets
    Kernels(kernels::Arguments),
    /// Time the kernels of a round on a GPU, by the number of members
    GpuKernels(gpu_kernels::Arguments),
    /// Measure what each GPU can do at most
    GpuCeiling(gpu_ceiling::Arguments),
    /// Write the spectra of a file over and over
    Tiled(tiled::Arguments),
    #[command(flatten)]
    Trial(trials::Trial),
}

/// Runs the benchmark with the arguments of the process.
fn main() -> ExitCode {
    let code =
        popfit_cli::execute(
            "popfit-bench",
            Arguments::try_parse(),
            |arguments| match arguments.command {
                Some(Command::Nist(arguments)) => nist::run(&arguments),
                Some(Command::Host(arguments)) => host::run(&arguments),
                Some(Command::Curves(arguments)) => curves::run(&arguments),
                Some(Command::Kernels(arguments)) => kernels::run(&arguments),
                Some(Command::GpuKernels(arguments)) => gpu_kernels::run(&arguments),
                Some(Command::GpuCeiling(arguments)) => gpu_ceiling::run(&arguments),
                Some(Command::Tiled(arguments)) => tiled::run(&arguments),
                Some(Command::Trial(trial)) => trials::run(&trial),
                None => bench::run(&arguments.bench),
            },
        );
    code.into()
}
