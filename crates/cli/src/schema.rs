//! `popfit schema`: the JSON Schema of the model file, for editors.

use std::path::PathBuf;

use popfit::{ModelFile, OutputFile};

use super::Failure;
use super::stdout::line;

#[derive(clap::Args)]
pub struct Arguments {
    /// Write the schema to FILE instead of printing it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long, requires = "output")]
    overwrite: bool,
}

/// Runs `popfit schema`: prints the JSON schema of model files, or writes it to a file.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.output {
        Some(path) => {
            OutputFile::create(path, arguments.overwrite)?.write(ModelFile::SCHEMA)?;
            line(format_args!("wrote {}", path.display()));
        }
        None => line(ModelFile::SCHEMA.trim_end()),
    }
    Ok(())
}
