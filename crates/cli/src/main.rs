//! `popfit`, the command.

/// Runs popfit with the arguments of the process.
fn main() -> std::process::ExitCode {
    popfit_cli::run_process(std::env::args_os()).into()
}
