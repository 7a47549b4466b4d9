//! `popfit`, the command.

fn main() -> std::process::ExitCode {
    popfit_cli::run(std::env::args_os())
}
