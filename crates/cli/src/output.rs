//! ResultWriter of the rows of `popfit fit`.

use std::path::Path;

use popfit::RvTabWriter;
use popfit::low_level::Journal;
use popfit::low_level::{DeviceRows, Schema, TableWriter};
use popfit::spectra::Ids;
use popfit::{Error, FitRow, Result, Sink, Spectra, SpectralFitter, WriteOptions};

/// Layouts of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// popfit's table: Parquet, FITS or CSV, as OUT ends; Parquet with --per-file
    Table,
    /// popfit's table in Parquet
    Parquet,
    /// popfit's table in FITS
    Fits,
    /// popfit's table in CSV
    Csv,
    /// rvspecfit's RVTAB, FIBERMAP and SCORES in FITS, and its models in a second file (rvtab_X.fits: rvmod_X.fits)
    Rvtab,
}

impl Format {
    /// All layouts.
    const ALL: [Format; 5] = [
        Format::Table,
        Format::Parquet,
        Format::Fits,
        Format::Csv,
        Format::Rvtab,
    ];

    /// Returns the name of the layout.
    fn name(self) -> &'static str {
        match self {
            Format::Table => "table",
            Format::Parquet => "parquet",
            Format::Fits => "fits",
            Format::Csv => "csv",
            Format::Rvtab => "rvtab",
        }
    }

    /// Returns the layout without the kind of file: `Table` for popfit's table of any kind.
    pub(crate) fn layout(self) -> Format {
        match self {
            Format::Rvtab => Format::Rvtab,
            Format::Table | Format::Parquet | Format::Fits | Format::Csv => Format::Table,
        }
    }

    /// Returns the extension of files that a run names itself.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Format::Table | Format::Parquet => "parquet",
            Format::Fits | Format::Rvtab => "fits",
            Format::Csv => "csv",
        }
    }

    /// Fails if a table of this name is a file of another kind than the layout asks for.
    pub(crate) fn check_extension(self, table: &Path) -> Result<()> {
        let fits = |extension: &std::ffi::OsStr| extension.eq_ignore_ascii_case(self.extension());
        // the writers check what the other two ask for
        if matches!(self, Format::Table | Format::Rvtab) || table.extension().is_some_and(fits) {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "{}: a table of the format {self} must end in .{}",
            table.display(),
            self.extension()
        )))
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Format> {
        let format = Format::ALL.into_iter().find(|format| format.name() == name);
        format.ok_or_else(|| {
            let message = format!(
                "format: {name:?} is no layout of a result; give \"table\", \"parquet\", \"fits\", \"csv\" or \
                 \"rvtab\""
            );
            Error::InvalidArgument {
                argument: "format".into(),
                message,
            }
        })
    }
}

/// A result under construction.
pub enum ResultWriter<'a> {
    Table(Box<TableWriter>),
    RvTab(Box<RvTabWriter<'a>>),
}

impl<'a> ResultWriter<'a> {
    /// Begins the result file of `popfit fit` in this format, before anything is fitted; fails if it cannot be written.
    /// `heads` are the files of spectra without their spectra.
    pub fn create(
        format: Format,
        path: &Path,
        fitter: &'a SpectralFitter,
        heads: &[Spectra],
        options: WriteOptions,
    ) -> Result<ResultWriter<'a>> {
        Ok(match format.layout() {
            Format::Rvtab => {
                ResultWriter::RvTab(Box::new(RvTabWriter::create(path, fitter, heads, options)?))
            }
            _ => {
                let schema = schema(fitter, heads);
                ResultWriter::Table(Box::new(TableWriter::create(path, &schema, options)?))
            }
        })
    }

    /// Completes the result file and gives it its name; `by_rows` says which device made which rows.
    /// The journal, if there is one, learns of the files before they have their names.
    pub fn finish(self, by_rows: &[DeviceRows], journal: Option<&mut Journal>) -> Result<()> {
        match self {
            ResultWriter::Table(table) => table.finish_run(by_rows, journal),
            ResultWriter::RvTab(table) => table.finish_run(by_rows, journal),
        }
    }
}

/// Returns the schema of the table of these files, which are given without their spectra.
pub fn schema(fitter: &SpectralFitter, heads: &[Spectra]) -> Schema {
    let has_text_ids = heads.iter().any(|head| matches!(head.ids, Ids::Text(_)));
    Schema::of(fitter, has_text_ids)
}

impl Sink for ResultWriter<'_> {
    fn append(&mut self, spectra: &Spectra, rows: &[FitRow]) -> Result<()> {
        match self {
            ResultWriter::Table(table) => Sink::append(table.as_mut(), spectra, rows),
            ResultWriter::RvTab(table) => table.append(spectra, rows),
        }
    }
}
