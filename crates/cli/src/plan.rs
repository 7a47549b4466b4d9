//! `popfit plan`: divides a run over files into parts for many workers.

use std::path::PathBuf;

use popfit::Control;

use super::fit_files::{Event, FitFiles, OptionNames};
use super::options::FitOptions;
use super::progress::say;
use super::selection::SelectionOptions;
use super::stdout::line;
use super::survey::{self, Part, PartSize};
use super::{Failure, name_order, signals};

#[derive(clap::Args)]
pub struct Arguments {
    /// The model file
    #[arg(value_name = "MODEL.toml")]
    model: PathBuf,
    /// Files of spectra, in the order of the rows
    #[arg(value_name = "SPECTRA", required = true)]
    spectra: Vec<PathBuf>,
    /// Folder for the plan, its parts and what workers note
    #[arg(short, long, value_name = "DIR", help_heading = "Input and output")]
    output: PathBuf,
    /// At most this many parts of about the same size; small files stay whole
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..),
        conflicts_with = "part_rows",
        help_heading = "Plan"
    )]
    parts: Option<u64>,
    /// About this many spectra per part
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20_000,
        value_parser = clap::value_parser!(u64).range(1..),
        help_heading = "Plan"
    )]
    part_rows: u64,
    #[command(flatten)]
    selection: SelectionOptions,
    #[command(flatten)]
    fit: FitOptions,
    /// Print nothing but errors
    #[arg(long, help_heading = "Input and output")]
    quiet: bool,
}

/// Runs `popfit plan`: checks all inputs, and writes the manifest.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut files = FitFiles::new(
        &arguments.model,
        arguments.spectra.clone(),
        &arguments.output,
    );
    files.selection = arguments.selection.selection()?;
    arguments.fit.apply(&mut files.settings);
    files.option_names = OptionNames::Flags;
    let quiet = arguments.quiet;
    files.on_event = Some(Box::new(move |event| match event {
        Event::Warning(text) | Event::Note(text) | Event::Advice(text) if !quiet => {
            say([format!("popfit: {text}")]);
        }
        _ => {}
    }));
    let size = match arguments.parts {
        Some(parts) => PartSize::Parts(parts),
        None => PartSize::Spectra(arguments.part_rows),
    };
    let control = Control::default();
    let _handlers = signals::cancel(&control)?;
    let plan =
        survey::plan(files, size, &control).map_err(|error| name_order(error, &arguments.model))?;
    if !quiet {
        let plan = plan.manifest();
        let sizes = || plan.parts.iter().map(Part::spectra);
        let folder = arguments.output.display();
        line(format_args!(
            "{folder}: spectra {}, files {}, parts {} (numbers 0 to {}) of {} to {} spectra\n\
             fit them:  popfit fit --plan {folder} --take       (by any number of workers)\n\
             then:      popfit merge {folder} -o results.parquet",
            plan.spectra(),
            plan.files.len(),
            plan.parts.len(),
            plan.parts.len() - 1,
            sizes().min().unwrap_or(0),
            sizes().max().unwrap_or(0),
        ));
    }
    Ok(())
}
