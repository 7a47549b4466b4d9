//! `popfit merge`: makes one table of the parts of a plan.

use std::path::PathBuf;

use popfit::Control;

use super::stdout::line;
use super::survey::{self, MergeOptions, Plan};
use super::{Failure, signals};

#[derive(clap::Args)]
pub struct Arguments {
    /// Folder of the plan
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The result table: a name that ends in .parquet, .fits or .csv
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Replace OUT if it exists; it stays until the new one is whole
    #[arg(long)]
    overwrite: bool,
    /// Accept parts that devices of different kinds made, whose rows may differ in their last bits
    #[arg(long)]
    mixed_devices: bool,
    /// Print nothing but errors
    #[arg(long)]
    quiet: bool,
}

/// Runs `popfit merge`.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let options = MergeOptions {
        overwrite: arguments.overwrite,
        mixed_devices: arguments.mixed_devices,
    };
    let control = Control::default();
    let _handlers = signals::cancel(&control)?;
    let plan = Plan::open(&arguments.folder)?;
    let merged = survey::merge(&plan, &arguments.output, &options, &control.cancel)?;
    if !arguments.quiet {
        line(format_args!(
            "{}: {} rows of {} parts, made by {}",
            arguments.output.display(),
            merged.rows,
            merged.parts,
            merged.devices.join(" + ")
        ));
    }
    Ok(())
}
