//! Tables in the format of rvspecfit, for programs that read its output: RVTAB, FIBERMAP, SCORES, and the models in a
//! second file.

use std::io::{BufWriter, Write};
use std::path::Path;

use super::Entry;
use super::fits::metadata_unit;
use super::model_images::{ModelImages, beside, check_shared_grids};
use super::rvtab_columns::{RvBatch, columns};
use crate::error::{Error, Result};
use crate::io::files::File;
use crate::io::fits::sum::OnesSum;
use crate::io::fits::writer::cards::Cards;
use crate::io::fits::writer::table::{FitsColumn, TableUnit, refused};
use crate::io::output::{Metadata, OutputRecord, Staged, WholeFile, WriteOptions};
use crate::spectra::{Column, ColumnValues, Spectra};
use crate::spectral::{DeviceRows, FitRow, Journal, Sink, SpectralFitter};

/// Tables of the input that are copied to the output.
const PASSED: [&str; 2] = ["FIBERMAP", "SCORES"];

/// Writes rvspecfit's table and models piece by piece; both appear under their names when
/// [`finish`](RvTabWriter::finish)ed, and not at all otherwise.
pub struct RvTabWriter<'a> {
    fitter: &'a SpectralFitter,
    table: (Staged, File),
    models: (Staged, File),
    rvtab: TableUnit,
    passed: Vec<Passed>,
    images: ModelImages,
    metadata: Vec<Entry>,
}

/// FIBERMAP or SCORES: the columns that all files have.
struct Passed {
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
    /// Returns the path of the models that belong to a table: `rvmod_X.fits` beside `rvtab_X.fits`, `X_rvmod.fits`
    /// beside any other `X.fits`.
    pub fn models_of(table: &Path) -> std::path::PathBuf {
        beside(table)
    }

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
        let (
            path,
            WriteOptions {
                overwrite,
                metadata,
            },
        ) = (path.as_ref(), options.into());
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
        check_shared_grids(fitter, files)?;
        let table = Staged::create(path, overwrite)?;
        let models = Staged::create(&beside(path), overwrite)?;
        let fibermap = common("FIBERMAP", files);
        let structure = columns(&RvBatch {
            fitter,
            spectra: first,
            rows: &[],
            fits: &[],
            fibermap: &fibermap,
        });
        let rvtab = TableUnit::new(
            path,
            "RVTAB",
            structure.into_iter().map(|(column, _)| column).collect(),
        )?;
        let mut passed = Vec::new();
        for name in PASSED {
            let columns = common(name, files);
            let fits = columns
                .iter()
                .map(|c| FitsColumn::new(&c.name, &c.unit, &c.values))
                .collect();
            passed.push(Passed {
                name,
                columns,
                unit: TableUnit::new(path, name, fits)?,
            });
        }
        let images = ModelImages::new(path, fitter, files)?;
        Ok(RvTabWriter {
            fitter,
            table,
            models,
            rvtab,
            passed,
            images,
            metadata: metadata.entries(),
        })
    }

    /// Records how many rows in turn each device made, as [`TableWriter::made_by`](super::TableWriter::made_by) does.
    pub fn made_by(&mut self, by_rows: &[DeviceRows]) {
        self.metadata.extend(Metadata::rows(by_rows));
    }

    /// Completes both files, flushes them to the disk and moves them to their names, the table last.
    ///
    /// # Errors
    /// The errors of [`TableWriter::finish`](super::TableWriter::finish), for either file.
    pub fn finish(self) -> Result<()> {
        self.end(None)
    }

    /// Completes both files as [`finish`](RvTabWriter::finish) does, and records them in the journal of the run before
    /// they get their names. A run that is killed in between can then be resumed, because it finds its own files again.
    /// The outputs must be claimed ([`Journal::claim_outputs`]) before [`create`](RvTabWriter::create), which may
    /// overwrite existing files then.
    ///
    /// # Errors
    /// The errors of [`finish`](RvTabWriter::finish); [`Error::Io`] if the journal cannot be written.
    pub fn finish_journaled(self, journal: &mut Journal) -> Result<()> {
        self.end(Some(journal))
    }

    /// Completes both files and moves them to their names; with a journal, they are recorded there before.
    fn end(mut self, journal: Option<&mut Journal>) -> Result<()> {
        let (staged, file) = self.models;
        let path = staged.target().to_path_buf();
        let mut out = BufWriter::new(file);
        out.write_all(&primary()).map_err(refused(&path))?;
        self.images.write(&path, &mut out)?;
        if let Some(fibermap) = self
            .passed
            .iter_mut()
            .find(|p| p.name == "FIBERMAP" && !p.columns.is_empty())
        {
            fibermap.unit.write(&mut out).map_err(refused(&path))?;
        }
        let models = out
            .into_inner()
            .map_err(|e| refused(&path)(e.into_error()))?;

        let (table, file) = self.table;
        let path = table.target().to_path_buf();
        let mut metadata = metadata_unit(&path, &self.metadata)?;
        let mut out = BufWriter::new(file);
        out.write_all(&primary()).map_err(refused(&path))?;
        let passed = self
            .passed
            .iter_mut()
            .filter(|passed| !passed.columns.is_empty())
            .map(|passed| &mut passed.unit);
        for unit in [&mut self.rvtab]
            .into_iter()
            .chain(passed)
            .chain([&mut metadata])
        {
            unit.write(&mut out).map_err(refused(&path))?;
        }
        let file = out
            .into_inner()
            .map_err(|e| refused(&path)(e.into_error()))?;
        let models = WholeFile {
            staged,
            file: models,
        };
        Staged::publish_all(
            vec![
                models,
                WholeFile {
                    staged: table,
                    file,
                },
            ],
            journal.map(|journal| journal as &mut dyn OutputRecord),
        )
    }
}

impl Sink for RvTabWriter<'_> {
    fn append(&mut self, spectra: &Spectra, rows: &[FitRow]) -> Result<()> {
        let path = self.table.0.target().to_path_buf();
        let fits = self.fitter.model_spectra(spectra, rows)?;
        let fibermap = self
            .passed
            .iter()
            .find(|p| p.name == "FIBERMAP")
            .map_or(&[][..], |p| &p.columns);
        let all = columns(&RvBatch {
            fitter: self.fitter,
            spectra,
            rows,
            fits: &fits,
            fibermap,
        });
        let values: Vec<ColumnValues> = all.into_iter().map(|(_, values)| values).collect();
        self.rvtab.append(&values).map_err(refused(&path))?;
        for passed in self
            .passed
            .iter_mut()
            .filter(|passed| !passed.columns.is_empty())
        {
            let find =
                |like: &Column| find(&spectra.columns, like).map(|column| column.values.clone());
            let values: Vec<ColumnValues> = passed.columns.iter().filter_map(find).collect();
            passed.unit.append(&values).map_err(refused(&path))?;
        }
        self.images.append(&fits).map_err(refused(&path))
    }
}

/// Returns the bytes of the primary FITS header, with popfit's version under DESI's keywords.
fn primary() -> Vec<u8> {
    let mut cards = Cards::primary();
    cards
        .text("DEPNAM00", "popfit")
        .text("DEPVER00", env!("CARGO_PKG_VERSION"));
    cards.finish(OnesSum::default())
}

/// Returns the column in `columns` with the same table, name and type as `like`; `None` if there is none.
pub(super) fn find<'a>(columns: &'a [Column], like: &Column) -> Option<&'a Column> {
    columns.iter().find(|column| {
        column.table == like.table
            && column.name == like.name
            && std::mem::discriminant(&column.values) == std::mem::discriminant(&like.values)
    })
}

/// Returns the first file's columns of the extra table `table` (such as FIBERMAP) that every other file has, too.
fn common(table: &str, files: &[Spectra]) -> Vec<Column> {
    let first = files.first().map_or(&[][..], |file| &file.columns);
    let everywhere = |column: &&Column| {
        files
            .iter()
            .all(|file| find(&file.columns, column).is_some())
    };
    first
        .iter()
        .filter(|column| &*column.table == table)
        .filter(everywhere)
        .cloned()
        .collect()
}
