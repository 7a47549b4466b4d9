//! Tables in the format of rvspecfit, for programs that read its output: RVTAB, FIBERMAP, SCORES, and the models in a
//! second file.

use std::io::{BufWriter, Write};
use std::path::Path;

use super::MetadataEntry;
use super::fits::build_metadata_table;
use super::model_images::{ModelImages, check_shared_grids, models_path, refuse_exposures};
use super::rvtab_columns::{RvBatch, build_columns};
use crate::error::{Error, Result};
use crate::io::files::File;
use crate::io::fits::sum::OnesSum;
use crate::io::fits::writer::cards::Cards;
use crate::io::fits::writer::table::{CellValues, FitsColumn, TableUnit, refused};
use crate::io::output::{Metadata, OutputRecord, Staged, WholeFile, WriteOptions};
use crate::spectra::{Column, Spectra};
use crate::spectral::{DeviceRows, FitRow, Journal, Sink, SpectralFitter};

/// Tables of the input that are copied to the output.
const COPIED_TABLES: [&str; 2] = ["FIBERMAP", "SCORES"];

/// Writes rvspecfit's table and models piece by piece; both appear under their names when
/// [`finish`](RvTabWriter::finish)ed, and not at all otherwise.
pub struct RvTabWriter<'a> {
    fitter: &'a SpectralFitter,
    table: (Staged, File),
    models: (Staged, File),
    rvtab: TableUnit,
    copied: Vec<CopiedTable>,
    images: ModelImages,
    metadata: Vec<MetadataEntry>,
}

/// FIBERMAP or SCORES: the columns that all files have.
struct CopiedTable {
    name: &'static str,
    columns: Vec<Column>,
    unit: TableUnit,
}

impl std::fmt::Debug for RvTabWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let paths = [&self.table, &self.models].map(|(staged, _)| staged.target());
        f.debug_struct("RvTabWriter")
            .field("paths", &paths)
            .finish_non_exhaustive()
    }
}

impl<'a> RvTabWriter<'a> {
    /// Begins a result table in rvspecfit's format and the file of model spectra beside it; fails if either exists,
    /// unless allowed. `path` ends in `.fits`; `files` are the inputs without their spectra
    /// ([`SpectraReader::empty`](crate::spectra::SpectraReader::empty)); `options` are a [`Metadata`] or
    /// [`WriteOptions`].
    ///
    /// # Errors
    /// Before anything is fitted in vain, returns [`Error::Usage`] for another extension, without a file, and for
    /// spectra that are not on one grid in each arm, [`Error::OutputExists`] for a table or models that are there,
    /// unless `options` allow to overwrite them, [`Error::OutputLocked`] while another run writes one of them,
    /// [`Error::Write`] if a name is that of a folder, a device or a pipe, and [`Error::Io`] for a folder that is
    /// missing or cannot be written.
    pub fn create(
        path: impl AsRef<Path>,
        fitter: &'a SpectralFitter,
        files: &[Spectra],
        options: impl Into<WriteOptions>,
    ) -> Result<RvTabWriter<'a>> {
        let path = path.as_ref();
        let WriteOptions {
            overwrite,
            metadata,
        } = options.into();
        // 1. Check the arguments, and create both temporary files.
        if path
            .extension()
            .is_none_or(|extension| !extension.eq_ignore_ascii_case("fits"))
        {
            return Err(Error::Usage(format!(
                "{}: a table as rvspecfit writes it must end in .fits",
                path.display()
            )));
        }
        let Some(first) = files.first() else {
            return Err(Error::Usage("no file of spectra".into()));
        };
        refuse_exposures(path, fitter)?;
        check_shared_grids(fitter, files)?;
        let table = Staged::create(path, overwrite)?;
        let models = Staged::create(&models_path(path), overwrite)?;
        // 2. Begin RVTAB with the columns of an empty batch.
        let fibermap = find_common_columns("FIBERMAP", files);
        let described_columns = build_columns(&RvBatch {
            fitter,
            spectra: first,
            rows: &[],
            fits: &[],
            fibermap: &fibermap,
        });
        let rvtab = TableUnit::new(
            path,
            "RVTAB",
            described_columns
                .into_iter()
                .map(|(column, _)| column)
                .collect(),
        )?;
        // 3. Begin the tables that are copied from the input.
        let mut copied = Vec::new();
        for name in COPIED_TABLES {
            let columns = find_common_columns(name, files);
            let fits_columns = columns
                .iter()
                .map(|column| FitsColumn::new(&column.name, &column.unit, &column.values))
                .collect();
            copied.push(CopiedTable {
                name,
                columns,
                unit: TableUnit::new(path, name, fits_columns)?,
            });
        }
        let images = ModelImages::new(path, fitter, files)?;
        Ok(RvTabWriter {
            fitter,
            table,
            models,
            rvtab,
            copied,
            images,
            metadata: metadata.run_entries(),
        })
    }

    /// Completes both files, flushes them to the disk and moves them to their names, the table last.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if a file cannot be written, [`Error::OutputExists`] if a file that must not be
    /// overwritten took a name meanwhile, and [`Error::Unsettled`] if the files are whole but their folder could not be
    /// flushed.
    pub fn finish(self) -> Result<()> {
        self.finish_run(&[], None)
    }

    /// Completes both files of a run as [`TableWriter::finish_run`](super::TableWriter::finish_run) does.
    ///
    /// # Errors
    /// The errors of [`finish`](RvTabWriter::finish); [`Error::Io`] if the journal cannot be written.
    #[doc(hidden)]
    pub fn finish_run(
        mut self,
        by_rows: &[DeviceRows],
        journal: Option<&mut Journal>,
    ) -> Result<()> {
        self.metadata.extend(Metadata::device_rows_entry(by_rows));
        // 1. Complete the file of models, with the fibre map behind the images.
        let (models_staged, models_file) = self.models;
        let path = models_staged.target().to_path_buf();
        let mut out = BufWriter::new(models_file);
        out.write_all(&primary_header()).map_err(refused(&path))?;
        self.images.write(&path, &mut out)?;
        self.copied.retain(|table| !table.columns.is_empty());
        let mut tables = self.copied.iter_mut();
        if let Some(fibermap) = tables.find(|table| table.name == "FIBERMAP") {
            fibermap.unit.write(&mut out).map_err(refused(&path))?;
        }
        let models_file = out
            .into_inner()
            .map_err(|error| refused(&path)(error.into_error()))?;
        // 2. Complete the table: the fits, the copied tables, the metadata.
        let (table_staged, table_file) = self.table;
        let path = table_staged.target().to_path_buf();
        let mut metadata = build_metadata_table(&path, &self.metadata)?;
        let mut out = BufWriter::new(table_file);
        out.write_all(&primary_header()).map_err(refused(&path))?;
        self.rvtab.write(&mut out).map_err(refused(&path))?;
        for table in &mut self.copied {
            table.unit.write(&mut out).map_err(refused(&path))?;
        }
        metadata.write(&mut out).map_err(refused(&path))?;
        let table_file = out
            .into_inner()
            .map_err(|error| refused(&path)(error.into_error()))?;
        // 3. Move both to their names.
        let models = WholeFile {
            staged: models_staged,
            file: models_file,
        };
        let table = WholeFile {
            staged: table_staged,
            file: table_file,
        };
        Staged::publish_all(
            vec![models, table],
            journal.map(|journal| journal as &mut dyn OutputRecord),
        )
    }
}

impl Sink for RvTabWriter<'_> {
    fn append(&mut self, spectra: &Spectra, rows: &[FitRow]) -> Result<()> {
        let path = self.table.0.target().to_path_buf();
        let fits = self.fitter.model_spectra(spectra, rows)?;
        // 1. The fits.
        let fibermap = self.copied.iter().find(|table| table.name == "FIBERMAP");
        let columns = build_columns(&RvBatch {
            fitter: self.fitter,
            spectra,
            rows,
            fits: &fits,
            fibermap: fibermap.map_or(&[][..], |table| &table.columns),
        });
        let values: Vec<CellValues> = columns
            .into_iter()
            .map(|(_, values)| values.into())
            .collect();
        self.rvtab.append(&values).map_err(refused(&path))?;
        // 2. The rows of the input's tables that belong to these spectra.
        for table in &mut self.copied {
            if table.columns.is_empty() {
                continue;
            }
            let mut values: Vec<CellValues> = Vec::new();
            for column in &table.columns {
                let input = find_matching_column(&spectra.columns, column);
                values.extend(input.map(|column| column.values.clone().into()));
            }
            table.unit.append(&values).map_err(refused(&path))?;
        }
        // 3. The models.
        self.images.append(&fits).map_err(refused(&path))
    }
}

/// Returns the bytes of the primary FITS header, with popfit's version under DESI's keywords.
fn primary_header() -> Vec<u8> {
    let mut cards = Cards::primary();
    cards
        .text("DEPNAM00", "popfit")
        .text("DEPVER00", env!("CARGO_PKG_VERSION"));
    cards.into_header(OnesSum::default())
}

/// Returns the column in `columns` with the same table, name and type as `like`; `None` if there is none.
pub(super) fn find_matching_column<'a>(columns: &'a [Column], like: &Column) -> Option<&'a Column> {
    columns.iter().find(|column| {
        column.table == like.table
            && column.name == like.name
            && std::mem::discriminant(&column.values) == std::mem::discriminant(&like.values)
    })
}

/// Returns the first file's columns of the extra table `table` (such as FIBERMAP) that every other file has, too.
fn find_common_columns(table: &str, files: &[Spectra]) -> Vec<Column> {
    let first_columns = files.first().map_or(&[][..], |file| &file.columns);
    let is_in_all_files = |column: &Column| {
        files
            .iter()
            .all(|file| find_matching_column(&file.columns, column).is_some())
    };
    first_columns
        .iter()
        .filter(|column| &*column.table == table && is_in_all_files(column))
        .cloned()
        .collect()
}
