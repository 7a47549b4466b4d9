//! Output of the rows of `popfit fit`.

use std::path::Path;

use popfit::spectra::FilesReader;
use popfit::{
    DeviceRows, Error, FitRow, Journal, Result, RvTabWriter, Schema, Sink, Spectra, SpectralFitter,
    TableWriter, WriteOptions,
};

/// Layouts of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// popfit's table: Parquet, FITS or CSV
    Table,
    /// rvspecfit's RVTAB, FIBERMAP and SCORES in FITS, and its models in a second file (rvtab_X.fits: rvmod_X.fits)
    Rvtab,
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Format::Table => "table",
            Format::Rvtab => "rvtab",
        })
    }
}

impl std::str::FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Format> {
        match name {
            "table" => Ok(Format::Table),
            "rvtab" => Ok(Format::Rvtab),
            _ => {
                let message = format!(
                    "format: {name:?} is no layout of a result; give \"table\" or \"rvtab\""
                );
                Err(Error::InvalidArgument {
                    argument: "format".into(),
                    message,
                })
            }
        }
    }
}

/// A result under construction.
pub enum Output<'a> {
    Table(Box<TableWriter>),
    RvTab(Box<RvTabWriter<'a>>),
}

impl<'a> Output<'a> {
    /// Begins the result file of `popfit fit` in this format, before anything is fitted; fails if it cannot be written.
    pub fn create(
        format: Format,
        path: &Path,
        fitter: &'a SpectralFitter,
        source: &FilesReader,
        options: WriteOptions,
    ) -> Result<Output<'a>> {
        Ok(match format {
            Format::Table => {
                let schema = Schema::of(fitter, source.text_ids());
                Output::Table(Box::new(TableWriter::create(path, &schema, options)?))
            }
            Format::Rvtab => Output::RvTab(Box::new(RvTabWriter::create(
                path,
                fitter,
                &source.files(),
                options,
            )?)),
        })
    }

    /// Completes the result file and gives it its name; `by_rows` says which device made which rows.
    /// The journal learns of the files before they have their names.
    pub fn finish(self, by_rows: &[DeviceRows], journal: &mut Journal) -> Result<()> {
        match self {
            Output::Table(mut table) => {
                table.made_by(by_rows);
                table.finish_journaled(journal)
            }
            Output::RvTab(mut table) => {
                table.made_by(by_rows);
                table.finish_journaled(journal)
            }
        }
    }
}

impl Sink for Output<'_> {
    fn append(&mut self, spectra: &Spectra, rows: &[FitRow]) -> Result<()> {
        match self {
            Output::Table(table) => Sink::append(table.as_mut(), spectra, rows),
            Output::RvTab(table) => table.append(spectra, rows),
        }
    }
}
