//! `popfit import`: emulators of other programs.
//!
//! rvspecfit keeps its networks as torch checkpoints beside HDF5 files. Readers of both would weigh more than the
//! import is worth, so that a Python script does it; who has such a library has the Python packages too.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use popfit::{Emulator, OutputFile};

use super::Failure;
use super::stdout::line;

const SCRIPT: &str = include_str!("import_rvspecfit.py");
const PYTHON: &str = if cfg!(windows) { "python" } else { "python3" };

#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    source: Source,
}

#[derive(clap::Subcommand)]
enum Source {
    /// A neural-network template library of rvspecfit becomes one safetensors file; runs Python with torch, h5py and
    /// scipy
    Rvspecfit(Rvspecfit),
}

#[derive(clap::Args)]
struct Rvspecfit {
    /// The library: rvspecfit's template_lib, with interp_NAME.h5 and the checkpoint it names
    #[arg(value_name = "DIR", required_unless_present = "script")]
    folder: Option<PathBuf>,
    /// The NAME of interp_NAME.h5; may be left out when there is one
    #[arg(long, value_name = "NAME")]
    setup: Option<String>,
    /// The emulator file [default: NAME.safetensors]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// The Python that has torch, h5py, numpy and scipy
    #[arg(long, value_name = "PYTHON", default_value = PYTHON)]
    python: PathBuf,
    /// Only write the Python script to a file, to run it elsewhere
    #[arg(long, value_name = "FILE", conflicts_with_all = ["folder", "setup", "output", "python"])]
    script: Option<PathBuf>,
    /// Replace the emulator file, or the script, if it exists
    #[arg(long)]
    overwrite: bool,
}

/// Runs `popfit import rvspecfit`: writes out the Python script that exports the emulator, or runs it on a folder.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Source::Rvspecfit(arguments) = &arguments.source;
    match (&arguments.script, &arguments.folder) {
        (Some(script), _) => {
            OutputFile::create(script, arguments.overwrite)?.write(SCRIPT)?;
            line(format_args!("wrote {}", script.display()));
            Ok(())
        }
        (None, Some(folder)) => rvspecfit(arguments, folder),
        (None, None) => Err(Failure::usage("no DIR")),
    }
}

/// Runs the export script in Python on a folder of rvspecfit, then opens and describes the emulator that it wrote.
fn rvspecfit(arguments: &Rvspecfit, folder: &Path) -> Result<(), Failure> {
    let mut command = Command::new(&arguments.python);
    // A torch.py in the working directory is not torch.
    command
        .env("PYTHONSAFEPATH", "1")
        .env("PYTHONUTF8", "1")
        .arg("-c")
        .arg(SCRIPT)
        .arg(folder);
    if let Some(setup) = &arguments.setup {
        command.arg("--setup").arg(setup);
    }
    if let Some(output) = &arguments.output {
        command.arg("--output").arg(output);
    }
    if arguments.overwrite {
        command.arg("--overwrite");
    }
    let output = command.output().map_err(|error| {
        let python = arguments.python.display();
        Failure::usage(format!(
            "{python}: {error}; the import needs Python with torch, h5py, numpy and scipy: name one with --python, or \
             write the script out with --script FILE and run it where they are"
        ))
    })?;
    let message = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let message = message
            .trim()
            .trim_start_matches("import_rvspecfit: ")
            .to_string();
        return Err(Failure {
            message,
            code: if output.status.code() == Some(2) {
                2
            } else {
                1
            },
        });
    }
    let _ = std::io::stderr().write_all(message.as_bytes());
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let emulator = Emulator::open(&path)?;
    let names: Vec<&str> = emulator
        .labels()
        .iter()
        .map(|label| label.name.as_str())
        .collect();
    line(format_args!(
        "{}: {} pixels, labels {}",
        path.display(),
        emulator.pixels(),
        names.join(", ")
    ));
    Ok(())
}
