//! Writers and readers of the result table in Parquet, FITS and CSV, with the columns that
//! `spectral/results/columns/mod.rs` declares; and rvspecfit's tables.

#[cfg(feature = "parquet")]
mod checksum;
mod csv;
mod fits;
mod fits_checksum;
mod metadata_hash;
mod model_images;
mod models;
#[cfg(feature = "parquet")]
mod parquet;
mod read;
mod read_csv;
mod read_fits;
#[cfg(feature = "parquet")]
mod read_parquet;
mod resume_key;
mod rvtab;
mod rvtab_columns;
#[cfg(all(test, feature = "parquet"))]
mod tests;

use std::path::Path;

use crate::error::{Error, Result};
use crate::flag::Flags;
use crate::io::files::File;
use crate::io::output::{Metadata, OutputRecord, Staged, WriteOptions};
use crate::solver::Status;
use crate::spectra::Spectra;
use crate::spectral::{
    DeviceRows, FitRow, FitTable, Journal, LAYOUT, ResultColumn, RowView, Schema, Sink,
    SpectralFitter, Store,
};
use csv::CsvTable;
use fits::FitsTable;
pub use models::ModelWriter;
#[cfg(feature = "parquet")]
use parquet::ParquetTable;
pub use read::TableReader;
pub use rvtab::RvTabWriter;

impl Metadata {
    /// Returns the metadata of a fitter's runs: its device, the emulators of its model and its settings.
    pub fn of(fitter: &SpectralFitter) -> Metadata {
        let emulators = fitter.model().emulators().into_iter();
        let mut emulators: Vec<_> = emulators.map(|(_, source, hash)| (source, hash)).collect();
        emulators.sort();
        emulators.dedup();
        let (device, settings) = (fitter.device_name(), fitter.settings_text());
        Metadata {
            device,
            model: String::new(),
            emulators,
            settings,
        }
    }

    /// Returns the metadata as keys and values: version, device, model file, emulators' hashes and settings.
    fn entries(&self) -> Vec<Entry> {
        let mut entries = vec![Entry::new("popfit.version", env!("CARGO_PKG_VERSION"))];
        entries.push(Entry::new("popfit.device", &*self.device));
        entries.push(Entry::new("popfit.model", &*self.model));
        let emulators = self.emulators.iter();
        entries.extend(
            emulators.map(|(file, hash)| Entry::new(format!("popfit.emulator.{file}"), &**hash)),
        );
        entries.push(Entry::new("popfit.settings", &*self.settings));
        entries
    }

    /// Returns all metadata of a result table: those of the run, the layout's version, and what status and flag codes
    /// mean.
    fn table_entries(&self) -> Vec<Entry> {
        let statuses = Status::ALL
            .iter()
            .map(|s| format!("{} {}: {}", s.code(), s.name(), s.meaning()));
        let flags = Flags::DESCRIPTIONS
            .iter()
            .map(|f| format!("{} {}: {}", f.bit, f.name, f.meaning));
        let mut entries = self.entries();
        entries.push(Entry::new("popfit.layout", LAYOUT.to_string()));
        entries.push(Entry::new(
            "popfit.status",
            statuses.collect::<Vec<_>>().join("\n"),
        ));
        entries.push(Entry::new(
            "popfit.flags",
            flags.collect::<Vec<_>>().join("\n"),
        ));
        entries
    }

    /// Returns the metadata entry that says which device made which rows, in lines as `0-2047 gpu:NAME`; `None` without
    /// rows.
    fn rows(by_rows: &[DeviceRows]) -> Option<Entry> {
        let mut next = 0;
        let line = |DeviceRows { device, rows }: &DeviceRows| {
            next += rows;
            format!("{}-{} {device}", next - rows, next - 1)
        };
        let lines: Vec<String> = by_rows
            .iter()
            .filter(|one| one.rows > 0)
            .map(line)
            .collect();
        (!lines.is_empty()).then(|| Entry::new("popfit.rows", lines.join("\n")))
    }

    /// Parses what [`entries`](Metadata::entries) makes, and returns the metadata and popfit's version, if it is there.
    fn from_entries(entries: Vec<Entry>) -> (Metadata, Option<String>) {
        let (mut metadata, mut version) = (Metadata::default(), None);
        for Entry { key, value } in entries {
            match key.strip_prefix("popfit.") {
                Some("version") => version = Some(value),
                Some("device") => metadata.device = value,
                Some("model") => metadata.model = value,
                Some("settings") => metadata.settings = value,
                Some(other) => {
                    let emulator = other
                        .strip_prefix("emulator.")
                        .map(|file| (file.to_string(), value));
                    metadata.emulators.extend(emulator);
                }
                None => {}
            }
        }
        (metadata, version)
    }
}

/// An entry of a table's key-value metadata.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: String,
    value: String,
}

impl Entry {
    /// Returns a metadata entry with this key and value.
    fn new(key: impl Into<String>, value: impl Into<String>) -> Entry {
        Entry {
            key: key.into(),
            value: value.into(),
        }
    }
}

/// A table that is being written, by format.
enum Format {
    #[cfg(feature = "parquet")]
    Parquet(Box<ParquetTable>),
    Csv(Box<CsvTable>),
    Fits(Box<FitsTable>),
}

/// Writes a table piece by piece; it appears under its name when [`finish`](TableWriter::finish)ed, and not at all
/// otherwise.
pub struct TableWriter {
    schema: Schema,
    columns: Vec<ResultColumn>,
    format: Format,
    staged: Staged,
}

impl std::fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableWriter")
            .field("path", &self.staged.target())
            .field("schema", &self.schema)
            .finish()
    }
}

impl TableWriter {
    /// Begins a result table in a temporary file, as Parquet, FITS or CSV by `path`'s extension; `finish` gives it its
    /// name. `path` ends in `.parquet`, `.fits` or `.csv`; `options` are a [`Metadata`] or [`WriteOptions`].
    ///
    /// # Errors
    /// Before anything is fitted in vain, returns [`Error::Usage`] for another extension, [`Error::Model`] if two
    /// columns have the same name, [`Error::OutputExists`] for a file that is there, unless `options` allow to
    /// overwrite it, [`Error::OutputLocked`] while another run writes it, [`Error::Write`] if the name is that of a
    /// folder, a device or a pipe, and [`Error::Io`] for a folder that is missing or cannot be written.
    pub fn create(
        path: impl AsRef<Path>,
        schema: &Schema,
        options: impl Into<WriteOptions>,
    ) -> Result<TableWriter> {
        let (
            path,
            WriteOptions {
                overwrite,
                metadata,
            },
        ) = (path.as_ref(), options.into());
        let extension = extension(path)?;
        let columns = schema.distinct_columns()?;
        let (staged, file) = Staged::create(path, overwrite)?;
        let format = open(extension, path, file, &columns, &metadata)?;
        Ok(TableWriter {
            schema: schema.clone(),
            columns,
            format,
            staged,
        })
    }

    /// Appends rows to the table; fails if a row does not fit the schema or cannot be written.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the file cannot be written, and [`Error::Write`] if a row does not fit the schema.
    pub fn append(&mut self, rows: &[FitRow]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        for row in rows {
            let refused = |message| Error::Write {
                path: self.staged.target().to_path_buf(),
                message,
            };
            self.schema.check_row(row).map_err(refused)?;
        }
        let values = Store::from_rows(rows).into_values(&self.columns);
        let written = match &mut self.format {
            #[cfg(feature = "parquet")]
            Format::Parquet(table) => table.append(values),
            Format::Csv(table) => table.append(&values),
            Format::Fits(table) => table.append(values),
        };
        written.map_err(Error::writing(self.staged.target()))
    }

    /// Records how many rows in turn each device made ([`Summary::by_rows`](crate::Summary::by_rows)) as `popfit.rows`;
    /// not in CSV.
    pub fn made_by(&mut self, by_rows: &[DeviceRows]) {
        let Some(entry) = Metadata::rows(by_rows) else {
            return;
        };
        match &mut self.format {
            #[cfg(feature = "parquet")]
            Format::Parquet(table) => table.describe(entry),
            Format::Fits(table) => table.describe(entry),
            Format::Csv(_) => {}
        }
    }

    /// Completes the table, flushes it to the disk, and renames the temporary file to its final path in one step.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the file cannot be written, [`Error::OutputExists`] if a file that must not be
    /// overwritten took the name meanwhile, and [`Error::Unsettled`] if the file is whole but its folder could not be
    /// flushed.
    pub fn finish(self) -> Result<()> {
        self.end(None)
    }

    /// Completes the file as [`finish`](TableWriter::finish) does, and records it in the journal of the run before it
    /// gets its name. A run that is killed in between can then be resumed, because it finds its own table again. The
    /// outputs must be claimed ([`Journal::claim_outputs`]) before [`create`](TableWriter::create), which may overwrite
    /// existing files then.
    ///
    /// # Errors
    /// The errors of [`finish`](TableWriter::finish); [`Error::Io`] if the journal cannot be written.
    pub fn finish_journaled(self, journal: &mut Journal) -> Result<()> {
        self.end(Some(journal))
    }

    /// Completes the file and moves it to its name; with a journal, the file is recorded there before.
    fn end(self, journal: Option<&mut Journal>) -> Result<()> {
        let path = self.staged.target();
        let file = match self.format {
            #[cfg(feature = "parquet")]
            Format::Parquet(table) => table.finish().map_err(Error::writing(path))?,
            Format::Csv(table) => table.finish().map_err(Error::writing(path))?,
            Format::Fits(table) => table.finish(path)?,
        };
        self.staged.publish(
            file,
            journal.map(|journal| journal as &mut dyn OutputRecord),
        )
    }
}

impl Sink for TableWriter {
    fn append(&mut self, _: &Spectra, rows: &[FitRow]) -> Result<()> {
        TableWriter::append(self, rows)
    }
}

/// Number of rows that are gathered from the columns at once.
const ROWS_AT_ONCE: usize = 4096;

impl FitTable {
    /// Writes the table as Parquet, FITS or CSV, by `path`'s extension, with the default [`WriteOptions`]: they replace
    /// no file and describe no run.
    ///
    /// # Errors
    /// The errors of [`write_with`](FitTable::write_with).
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write_with(path, WriteOptions::default())
    }

    /// Writes the table as Parquet, FITS or CSV, by the extension of `path`, with [`WriteOptions`] or a [`Metadata`],
    /// which CSV omits.
    ///
    /// # Errors
    /// The errors of [`TableWriter::create`], [`TableWriter::append`] and [`TableWriter::finish`].
    pub fn write_with(
        &self,
        path: impl AsRef<Path>,
        options: impl Into<WriteOptions>,
    ) -> Result<()> {
        let mut writer = TableWriter::create(path, &self.schema(), options)?;
        let mut rows = self.rows();
        while rows.len() > 0 {
            writer.append(
                &rows
                    .by_ref()
                    .take(ROWS_AT_ONCE)
                    .map(RowView::to_row)
                    .collect::<Vec<_>>(),
            )?;
        }
        writer.finish()
    }
}

/// Format of a table, by its file's extension.
#[derive(Clone, Copy)]
enum Extension {
    #[cfg(feature = "parquet")]
    Parquet,
    Csv,
    Fits,
}

/// Returns the table format that the path's extension names; fails for others than `.parquet`, `.fits` and `.csv`.
fn extension(path: &Path) -> Result<Extension> {
    let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase());
    match extension.as_deref() {
        #[cfg(feature = "parquet")]
        Some("parquet") => Ok(Extension::Parquet),
        #[cfg(not(feature = "parquet"))]
        Some("parquet") => {
            let message =
                "this popfit was built without Parquet (feature `parquet`); choose .fits or .csv";
            Err(Error::Usage(format!("{}: {message}", path.display())))
        }
        Some("csv") => Ok(Extension::Csv),
        Some("fits") => Ok(Extension::Fits),
        _ => Err(Error::Usage(format!(
            "{}: the result table must end in .parquet, .fits or .csv",
            path.display()
        ))),
    }
}

/// Begins a table of these columns in `file`, in the format of `extension`.
fn open(
    extension: Extension,
    path: &Path,
    file: File,
    columns: &[ResultColumn],
    metadata: &Metadata,
) -> Result<Format> {
    let refused = Error::writing(path);
    Ok(match extension {
        #[cfg(feature = "parquet")]
        Extension::Parquet => Format::Parquet(Box::new(
            ParquetTable::new(file, columns, metadata).map_err(refused)?,
        )),
        Extension::Csv => Format::Csv(Box::new(CsvTable::new(file, columns).map_err(refused)?)),
        Extension::Fits => Format::Fits(Box::new(FitsTable::new(path, file, columns, metadata)?)),
    })
}
