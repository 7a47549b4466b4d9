//! `popfit report`: a result table as a page.

use std::io::Write;
use std::path::{Path, PathBuf};

use popfit::low_level::TableReader;
use popfit::low_level::checks::check_spectra;
use popfit::low_level::printable;
use popfit::low_level::report::{About, Collector, MOST_REQUESTED, ReportFile, fitter_of_table};
use popfit::spectra::{FilesReader, Selection, SpectraReader};
use popfit::{Error, SpectralFitter, WriteOptions};

use super::Failure;
use super::stdout::line;

/// Spectra that are read at once.
const BATCH: usize = 256;

#[derive(clap::Args)]
pub struct Arguments {
    /// The result table: a name that ends in .parquet, .fits or .csv
    #[arg(value_name = "TABLE")]
    table: PathBuf,
    /// The page [default: the table's name with _report.html instead of its ending]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw spectra with their fits; these are the files that the table was made from
    #[arg(long, value_name = "FILE", num_args = 1..)]
    spectra: Vec<PathBuf>,
    /// Draw the spectrum with this id, at the top of the page; may be given several times
    #[arg(
        long = "id",
        value_name = "ID",
        requires = "spectra",
        allow_negative_numbers = true
    )]
    ids: Vec<String>,
    /// The model file [default: the model in the table's metadata, whose emulators must still exist]
    #[arg(long, value_name = "MODEL.toml", requires = "spectra")]
    model: Option<PathBuf>,
    /// Replace the page if it exists
    #[arg(long)]
    overwrite: bool,
}

/// Runs `popfit report`: reads a result table and, to draw them, spectra, and writes an HTML page.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let output = output(arguments)?;
    if arguments.ids.len() > MOST_REQUESTED {
        let count = arguments.ids.len();
        return Err(Failure::usage(format!(
            "--id: {count} ids are given, and a page draws at most {MOST_REQUESTED} requested spectra"
        )));
    }
    let page = ReportFile::create(
        &output,
        &WriteOptions {
            overwrite: arguments.overwrite,
            ..WriteOptions::default()
        },
    )?;
    let mut table = open_table(&arguments.table)?;
    let mut kept = Collector::new(&table.schema.parameters);
    kept.request(&arguments.ids);
    while let Some(rows) = table.next_batch()? {
        kept.add(&rows);
    }
    check_ids(arguments, &kept)?;
    let fitter = if arguments.spectra.is_empty() {
        None
    } else {
        Some(fitter(arguments, &table)?)
    };
    if let Some(fitter) = &fitter {
        attach_spectra(arguments, &mut kept, fitter)?;
    }
    let title = name(&arguments.table);
    let mut about = About::default()
        .title(title)
        .metadata(table.metadata)
        .units(table.schema.units);
    about.version = table.version;
    page.write(&about, &kept, fitter.as_ref())
        .map_err(Failure::running)?;
    line(format_args!("wrote {}", output.display()));
    Ok(())
}

/// Returns the page's path, from the option or beside the table; fails if it is the table itself or not `.html`.
fn output(arguments: &Arguments) -> Result<PathBuf, Failure> {
    let output = arguments
        .output
        .clone()
        .unwrap_or_else(|| beside(&arguments.table));
    let real = |path: &Path| path.canonicalize().ok();
    if real(&output).is_some() && real(&output) == real(&arguments.table) {
        return Err(Failure::usage(format!(
            "{} would be overwritten: it is the table",
            output.display()
        )));
    }
    if !output
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("html"))
    {
        return Err(Failure::usage(format!(
            "{}: the page is HTML, give a name that ends in .html",
            output.display()
        )));
    }
    Ok(output)
}

/// Fails if an id given with `--id` is not in the table.
fn check_ids(arguments: &Arguments, kept: &Collector) -> Result<(), Failure> {
    let missing = kept.missing_ids();
    let table = arguments.table.display();
    match missing.as_slice() {
        [] => Ok(()),
        [id] => Err(Failure::usage(format!(
            "--id {id}: {table} has no row with this id"
        ))),
        several => Err(Failure::usage(format!(
            "--id: {table} has no rows with the ids {}",
            several.join(", ")
        ))),
    }
}

/// Returns a fitter with the model that made the table, found in the table or given with `--model`; fails if it is
/// missing.
fn fitter(arguments: &Arguments, table: &TableReader) -> Result<SpectralFitter, Failure> {
    let folder = |path: &PathBuf| path.parent().unwrap_or(Path::new("")).to_path_buf();
    let folders: Vec<PathBuf> = arguments
        .spectra
        .iter()
        .chain([&arguments.table])
        .map(folder)
        .collect();
    let fitter = fitter_of_table(
        &table.schema,
        &table.metadata,
        arguments.model.as_deref(),
        &folders,
    );
    let remedy = if arguments.model.is_none() {
        "; give the model file with --model"
    } else {
        ""
    };
    fitter.map_err(|error| match error {
        Error::Usage(message) => {
            Failure::usage(format!("{}: {message}{remedy}", arguments.table.display()))
        }
        other => other.into(),
    })
}

/// Reads the files of spectra, and keeps those that the report draws; fails if a requested one is in none of them.
fn attach_spectra(
    arguments: &Arguments,
    kept: &mut Collector,
    fitter: &SpectralFitter,
) -> Result<(), Failure> {
    let selection = fitter.model().complete_selection(Selection::default());
    let mut source = FilesReader::open(&arguments.spectra, &selection)?;
    check_spectra(fitter, &source.files())?;
    for note in source.notes() {
        warn(note);
    }
    while let Some(batch) = source.next_batch(BATCH)? {
        kept.attach_spectra(&batch);
        source.recycle(batch);
    }
    let picked = kept.picked();
    let paths: Vec<String> = arguments
        .spectra
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let (files, table) = (paths.join(", "), arguments.table.display());
    if let Some(id) = picked.requested_without_spectrum.first() {
        let row = "which has a row in";
        return Err(Failure::usage(format!(
            "--id {id}: the spectrum, {row} {table}, is not in {files}"
        )));
    }
    if picked.spectra == 0 && picked.rows > 0 {
        return Err(Failure::usage(format!(
            "{table} has no rows of the spectra in {files}: rows and ids differ"
        )));
    }
    if picked.spectra < picked.rows {
        let (drawn, rows) = (picked.spectra, picked.rows);
        warn(format_args!(
            "only {drawn} of the {rows} spectra to choose pictures from are in {files}"
        ));
    }
    Ok(())
}

/// Prints a note on standard error, after `popfit: `.
pub fn warn(note: impl std::fmt::Display) {
    let _ = writeln!(
        std::io::stderr(),
        "popfit: {}",
        printable(&note.to_string())
    );
}

/// Opens a result table to be read, and prints its reader's notes (such as unverified checksums) on standard error.
pub fn open_table(path: &Path) -> Result<TableReader, Error> {
    let ending = path
        .extension()
        .map(|ending| ending.to_string_lossy().to_lowercase());
    if !["parquet", "fits", "csv"].contains(&ending.as_deref().unwrap_or_default()) {
        let path = path.display();
        return Err(Error::Usage(format!(
            "{path}: give a result table, which ends in .parquet, .fits or .csv"
        )));
    }
    let table = TableReader::open(path)?;
    for note in &table.notes {
        warn(note);
    }
    Ok(table)
}

/// Returns the last component of a path, as text.
pub fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// Returns the report's default path, in the folder of the table: `NAME_report.html`.
fn beside(table: &Path) -> PathBuf {
    let stem = table.file_stem().unwrap_or_default().to_string_lossy();
    table.with_file_name(format!("{stem}_report.html"))
}
