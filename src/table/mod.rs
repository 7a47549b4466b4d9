//! Writers and readers of the result table in Parquet, FITS and CSV, with the columns that
//! `spectral/results/columns/mod.rs` declares; and rvspecfit's tables.

#[cfg(feature = "parquet")]
mod checksum;
mod csv;
mod fit_files;
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
#[cfg(feature = "parquet")]
mod read_parts;
mod resume_key;
mod rvtab;
mod rvtab_columns;
#[cfg(all(test, feature = "parquet"))]
mod tests;

use std::path::Path;

use crate::error::{Error, Result};
use crate::flag::FLAG_DESCRIPTIONS;
use crate::io::files::File;
use crate::io::output::{Metadata, OutputRecord, Staged, WriteOptions};
use crate::solver::Status;
use crate::spectra::Spectra;
use crate::spectral::{
    DeviceRows, FitRow, FitTable, Journal, LAYOUT, ResultColumn, Schema, Sink, SpectralFitter,
    Store,
};
use csv::CsvTable;
use fits::FitsTable;
pub use model_images::models_path;
pub use models::ModelWriter;
#[cfg(feature = "parquet")]
use parquet::ParquetTable;
pub use read::TableReader;
pub use rvtab::RvTabWriter;

impl Metadata {
    /// Returns the metadata of a fitter's runs: its device, the emulators of its model and its settings.
    pub fn of(fitter: &SpectralFitter) -> Metadata {
        let mut emulators = Vec::new();
        for (_, source, hash) in fitter.model().emulators() {
            emulators.push((source, hash));
        }
        emulators.sort();
        emulators.dedup();
        Metadata {
            device: fitter.maker(),
            model: String::new(),
            emulators,
            settings: fitter.settings_text(),
            part: None,
        }
    }

    /// Returns the metadata as keys and values: version, device, model file, emulators' hashes and settings.
    fn run_entries(&self) -> Vec<MetadataEntry> {
        let mut entries = vec![
            MetadataEntry::new("popfit.version", env!("CARGO_PKG_VERSION")),
            MetadataEntry::new("popfit.device", &*self.device),
            MetadataEntry::new("popfit.model", &*self.model),
        ];
        for (file, hash) in &self.emulators {
            let key = format!("popfit.emulator.{file}");
            entries.push(MetadataEntry::new(key, &**hash));
        }
        entries.push(MetadataEntry::new("popfit.settings", &*self.settings));
        if let Some(part) = &self.part {
            entries.push(MetadataEntry::new("popfit.part", &**part));
        }
        entries
    }

    /// Returns all metadata of a result table: those of the run, the layout's version, and what status and flag codes
    /// mean.
    fn table_entries(&self) -> Vec<MetadataEntry> {
        let statuses: Vec<String> = Status::ALL
            .iter()
            .map(|status| format!("{} {}: {}", status.code(), status.name(), status.meaning()))
            .collect();
        let flags: Vec<String> = FLAG_DESCRIPTIONS
            .iter()
            .map(|flag| format!("{} {}: {}", flag.bit, flag.name, flag.meaning))
            .collect();
        let mut entries = self.run_entries();
        entries.push(MetadataEntry::new("popfit.layout", LAYOUT.to_string()));
        entries.push(MetadataEntry::new("popfit.status", statuses.join("\n")));
        entries.push(MetadataEntry::new("popfit.flags", flags.join("\n")));
        entries
    }

    /// Returns the metadata entry that says which device made which rows, in lines as `0-2047 gpu:NAME`; `None` without
    /// rows.
    fn device_rows_entry(by_rows: &[DeviceRows]) -> Option<MetadataEntry> {
        let mut lines = Vec::new();
        let mut first_row = 0;
        for DeviceRows { device, rows } in by_rows.iter().filter(|part| part.rows > 0) {
            let last_row = first_row + rows - 1;
            lines.push(format!("{first_row}-{last_row} {device}"));
            first_row += rows;
        }
        (!lines.is_empty()).then(|| MetadataEntry::new("popfit.rows", lines.join("\n")))
    }

    /// Parses what [`run_entries`](Metadata::run_entries) makes, and returns the metadata and popfit's version, if it
    /// is there.
    fn from_entries(entries: Vec<MetadataEntry>) -> (Metadata, Option<String>) {
        let mut metadata = Metadata::default();
        let mut version = None;
        for MetadataEntry { key, value } in entries {
            match key.strip_prefix("popfit.") {
                Some("version") => version = Some(value),
                Some("device") => metadata.device = value,
                Some("model") => metadata.model = value,
                Some("settings") => metadata.settings = value,
                Some("part") => metadata.part = Some(value),
                Some(name) => {
                    if let Some(file) = name.strip_prefix("emulator.") {
                        metadata.emulators.push((file.to_string(), value));
                    }
                }
                None => {}
            }
        }
        (metadata, version)
    }
}

/// An entry of a table's key-value metadata.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MetadataEntry {
    key: String,
    value: String,
}

impl MetadataEntry {
    /// Returns a metadata entry with this key and value.
    fn new(key: impl Into<String>, value: impl Into<String>) -> MetadataEntry {
        MetadataEntry {
            key: key.into(),
            value: value.into(),
        }
    }
}

/// A table that is being written, by format.
enum FormatWriter {
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
    writer: FormatWriter,
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
        let path = path.as_ref();
        let WriteOptions {
            overwrite,
            metadata,
        } = options.into();
        TableWriter::begin(path, schema, &metadata, || Staged::create(path, overwrite))
    }

    /// Begins a result table as [`create`](TableWriter::create) does, but other processes may write the same file: the
    /// first that [`finish`](TableWriter::finish)es gives it its name. Files that killed processes left stay: looking
    /// for them takes longer, the more files the folder has.
    ///
    /// # Errors
    /// Returns [`Error::Usage`] for an extension that is not one of a table, [`Error::Model`] if two columns have the
    /// same name, and [`Error::Io`] for a folder that is missing or cannot be written.
    #[doc(hidden)]
    pub fn create_racing(
        path: impl AsRef<Path>,
        schema: &Schema,
        metadata: &Metadata,
    ) -> Result<TableWriter> {
        let path = path.as_ref();
        TableWriter::begin(path, schema, metadata, || Staged::create_beside(path))
    }

    /// Begins a table in the file that `create_file` makes, once its extension and columns are found to be valid.
    fn begin(
        path: &Path,
        schema: &Schema,
        metadata: &Metadata,
        create_file: impl FnOnce() -> Result<(Staged, File)>,
    ) -> Result<TableWriter> {
        let extension = parse_extension(path)?;
        let columns = schema.distinct_columns()?;
        let (staged, file) = create_file()?;
        let writer = begin_table(extension, path, file, &columns, metadata)?;
        Ok(TableWriter {
            schema: schema.clone(),
            columns,
            writer,
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
            self.schema.check_row(row).map_err(|message| Error::Write {
                path: self.staged.target().to_path_buf(),
                message,
            })?;
        }
        let values = Store::from_rows(rows).into_values(&self.columns);
        let written = match &mut self.writer {
            #[cfg(feature = "parquet")]
            FormatWriter::Parquet(table) => table.append(values),
            FormatWriter::Csv(table) => table.append(&values),
            FormatWriter::Fits(table) => table.append(values),
        };
        written.map_err(Error::writing(self.staged.target()))
    }

    /// Completes the table, flushes it to the disk, and renames the temporary file to its final path in one step.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the file cannot be written, [`Error::OutputExists`] if a file that must not be
    /// overwritten took the name meanwhile, and [`Error::Unsettled`] if the file is whole but its folder could not be
    /// flushed.
    pub fn finish(self) -> Result<()> {
        self.finish_run(&[], None)
    }

    /// Completes the table of a run as [`finish`](TableWriter::finish) does. It records how many rows in turn each
    /// device made ([`Summary::by_rows`](crate::Summary::by_rows)) as `popfit.rows`, not in CSV, and the file in the
    /// run's journal before the file gets its name. A run that is killed in between can then be resumed, because it
    /// finds its own table again. The outputs must be claimed ([`Journal::claim_outputs`]) before
    /// [`create`](TableWriter::create), which may overwrite existing files then.
    ///
    /// # Errors
    /// The errors of [`finish`](TableWriter::finish); [`Error::Io`] if the journal cannot be written.
    pub fn finish_run(
        mut self,
        by_rows: &[DeviceRows],
        journal: Option<&mut Journal>,
    ) -> Result<()> {
        if let Some(entry) = Metadata::device_rows_entry(by_rows) {
            match &mut self.writer {
                #[cfg(feature = "parquet")]
                FormatWriter::Parquet(table) => table.add_metadata(entry),
                FormatWriter::Fits(table) => table.add_metadata(entry),
                FormatWriter::Csv(_) => {}
            }
        }
        let path = self.staged.target();
        let file = match self.writer {
            #[cfg(feature = "parquet")]
            FormatWriter::Parquet(table) => table.finish().map_err(Error::writing(path))?,
            FormatWriter::Csv(table) => table.finish().map_err(Error::writing(path))?,
            FormatWriter::Fits(table) => table.finish(path)?,
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
const ROWS_PER_APPEND: usize = 4096;

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
        for first in (0..self.len()).step_by(ROWS_PER_APPEND) {
            let end = self.len().min(first + ROWS_PER_APPEND);
            let rows: Vec<FitRow> = (first..end).map(|index| self.row(index)).collect();
            writer.append(&rows)?;
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
fn parse_extension(path: &Path) -> Result<Extension> {
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
fn begin_table(
    extension: Extension,
    path: &Path,
    file: File,
    columns: &[ResultColumn],
    metadata: &Metadata,
) -> Result<FormatWriter> {
    let write_error = Error::writing(path);
    Ok(match extension {
        #[cfg(feature = "parquet")]
        Extension::Parquet => FormatWriter::Parquet(Box::new(
            ParquetTable::new(file, columns, metadata).map_err(write_error)?,
        )),
        Extension::Csv => {
            FormatWriter::Csv(Box::new(CsvTable::new(file, columns).map_err(write_error)?))
        }
        Extension::Fits => {
            FormatWriter::Fits(Box::new(FitsTable::new(path, file, columns, metadata)?))
        }
    })
}
