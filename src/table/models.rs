//! The file of best-fit spectra of a run.

use std::io::{BufWriter, Write};
use std::path::Path;

use super::MetadataEntry;
use super::fits::{begin_fits_table, build_metadata_table, fits_values_of_rows};
use super::model_images::{ModelImages, refuse_exposures};
use crate::error::{Error, Result};
use crate::io::files::File;
use crate::io::fits::sum::OnesSum;
use crate::io::fits::writer::cards::Cards;
use crate::io::fits::writer::table::{TableUnit, refused};
use crate::io::output::{OutputRecord, Staged, WriteOptions};
use crate::spectra::Spectra;
use crate::spectral::{FitRow, Journal, ResultColumn, Schema, Sink, SpectralFitter};

/// Columns of the result table that identify the spectrum of each row of the images.
const IDENTITY_COLUMNS: [&str; 3] = ["id", "file", "row"];

/// Writes the best-fit spectra of a run piece by piece as FITS: the images {ARM}_WAVELENGTH and {ARM}_MODEL with a row
/// for each spectrum, the table SPECTRA, which says whose they are, and METADATA. The file appears under its name when
/// [`finish`](ModelWriter::finish)ed, and not at all otherwise.
pub struct ModelWriter<'a> {
    fitter: &'a SpectralFitter,
    staged: (Staged, File),
    columns: Vec<ResultColumn>,
    spectra: TableUnit,
    images: ModelImages,
    metadata: Vec<MetadataEntry>,
}

impl std::fmt::Debug for ModelWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelWriter")
            .field("path", &self.staged.0.target())
            .finish_non_exhaustive()
    }
}

impl<'a> ModelWriter<'a> {
    /// Begins the file. `path` ends in `.fits`; `files` are the inputs without their spectra
    /// ([`SpectraReader::empty`](crate::spectra::SpectraReader::empty)); `schema` is that of the result table;
    /// `options` are a [`Metadata`](crate::Metadata) or [`WriteOptions`].
    ///
    /// # Errors
    /// Before anything is fitted in vain, returns [`Error::Usage`] for another extension, [`Error::Model`] if two
    /// columns of the table have the same name, [`Error::OutputExists`] for a file that is there, unless `options`
    /// allow to overwrite it, [`Error::OutputLocked`] while another run writes it, [`Error::Write`] if the name is that
    /// of a folder, a device or a pipe, and [`Error::Io`] for a folder that is missing or cannot be written.
    pub fn create(
        path: impl AsRef<Path>,
        fitter: &'a SpectralFitter,
        files: &[Spectra],
        schema: &Schema,
        options: impl Into<WriteOptions>,
    ) -> Result<ModelWriter<'a>> {
        let path = path.as_ref();
        let WriteOptions {
            overwrite,
            metadata,
        } = options.into();
        // 1. Create the temporary file.
        if path
            .extension()
            .is_none_or(|extension| !extension.eq_ignore_ascii_case("fits"))
        {
            return Err(Error::Usage(format!(
                "{}: the file of best-fit spectra must end in .fits",
                path.display()
            )));
        }
        refuse_exposures(path, fitter)?;
        let staged = Staged::create(path, overwrite)?;
        // 2. Begin the table that identifies the spectra, and the images.
        let all_columns = schema.distinct_columns()?;
        let columns: Vec<ResultColumn> = all_columns
            .into_iter()
            .filter(|column| IDENTITY_COLUMNS.contains(&&*column.name))
            .collect();
        let spectra = begin_fits_table(path, "SPECTRA", &columns)?;
        let images = ModelImages::new(path, fitter, files)?;
        Ok(ModelWriter {
            fitter,
            staged,
            columns,
            spectra,
            images,
            metadata: metadata.run_entries(),
        })
    }

    /// Completes the file, flushes it to the disk and moves it to its name.
    ///
    /// # Errors
    /// The errors of [`TableWriter::finish`](super::TableWriter::finish).
    pub fn finish(self) -> Result<()> {
        self.publish(None)
    }

    /// Completes the file as [`finish`](ModelWriter::finish) does, and records it in the journal of the run before it
    /// gets its name, as [`TableWriter::finish_run`](super::TableWriter::finish_run) does.
    ///
    /// # Errors
    /// The errors of [`finish`](ModelWriter::finish); [`Error::Io`] if the journal cannot be written.
    #[doc(hidden)]
    pub fn finish_journaled(self, journal: &mut Journal) -> Result<()> {
        self.publish(Some(journal))
    }

    /// Completes the file and moves it to its name; with a journal, it is recorded there before.
    fn publish(mut self, journal: Option<&mut Journal>) -> Result<()> {
        let (staged, file) = self.staged;
        let path = staged.target().to_path_buf();
        let mut out = BufWriter::new(file);
        out.write_all(&Cards::primary().into_header(OnesSum::default()))
            .map_err(refused(&path))?;
        self.images.write(&path, &mut out)?;
        for mut unit in [self.spectra, build_metadata_table(&path, &self.metadata)?] {
            unit.write(&mut out).map_err(refused(&path))?;
        }
        let file = out
            .into_inner()
            .map_err(|error| refused(&path)(error.into_error()))?;
        staged.publish(
            file,
            journal.map(|journal| journal as &mut dyn OutputRecord),
        )
    }
}

impl Sink for ModelWriter<'_> {
    fn append(&mut self, spectra: &Spectra, rows: &[FitRow]) -> Result<()> {
        let fits = self.fitter.model_spectra(spectra, rows)?;
        let path = self.staged.0.target();
        self.spectra
            .append(&fits_values_of_rows(rows, &self.columns))
            .map_err(refused(path))?;
        self.images.append(&fits).map_err(refused(path))
    }
}
