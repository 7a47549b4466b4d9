//! `popfit schema`: the JSON Schema of the model file, for editors.

use std::path::PathBuf;

use popfit::OutputFile;

use super::Failure;
use super::stdout::line;

const SCHEMA: &str = include_str!("../../../docs/src/model.schema.json");

#[derive(clap::Args)]
pub struct Arguments {
    /// Write the schema to FILE instead of printing it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long, requires = "output")]
    overwrite: bool,
}

/// Prints or writes the schema.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.output {
        Some(path) => Ok(OutputFile::create(path, arguments.overwrite)?.write(SCHEMA)?),
        None => {
            line(SCHEMA.trim_end());
            Ok(())
        }
    }
}
