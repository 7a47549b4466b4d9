//! `popfit report`: a result table as a page.

use std::io::Write;
use std::path::{Path, PathBuf};

use popfit::report::{About, Collector, ReportFile};
use popfit::{Error, TableReader};

use super::Failure;
use super::stdout::line;

#[derive(clap::Args)]
pub struct Arguments {
    /// The result table: a name that ends in .parquet or .fits
    #[arg(value_name = "OUT")]
    table: PathBuf,
    /// The page [default: the table's name with _report.html instead of its ending]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the page if it exists
    #[arg(long)]
    overwrite: bool,
}

/// Reads the table batch by batch and writes the page.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let output = arguments.output.clone().unwrap_or_else(|| beside(&arguments.table));
    let real = |path: &Path| path.canonicalize().ok();
    if real(&output).is_some() && real(&output) == real(&arguments.table) {
        return Err(Failure::usage(format!("{} would be overwritten: it is the table", output.display())));
    }
    if !output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html")) {
        return Err(Failure::usage(format!("{}: the page is HTML, give a name that ends in .html", output.display())));
    }
    let page = ReportFile::create(&output, arguments.overwrite)?;
    let mut table = open_table(&arguments.table)?;
    let mut kept = Collector::new(&table.schema.parameters);
    while let Some(rows) = table.next_batch()? {
        kept.add(&rows);
    }
    let title = name(&arguments.table);
    let (version, metadata, units) = (table.version, table.metadata, table.schema.units);
    let about = About { title, version, metadata, units, ..About::default() };
    page.write(&about, &kept, None).map_err(Failure::running)?;
    line(format_args!("wrote {}", output.display()));
    Ok(())
}

/// Opens a result table, and prints what its reader notes on standard error.
pub fn open_table(path: &Path) -> Result<TableReader, Error> {
    let table = TableReader::open(path)?;
    for note in &table.notes {
        let _ = writeln!(std::io::stderr(), "popfit: {note}");
    }
    Ok(table)
}

/// A file's name without its folders.
pub fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn beside(table: &Path) -> PathBuf {
    let stem = table.file_stem().unwrap_or_default().to_string_lossy();
    table.with_file_name(format!("{stem}_report.html"))
}
