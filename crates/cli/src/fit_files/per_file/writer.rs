//! Writer of the outputs of one input.

use std::path::Path;

use popfit::low_level::{DeviceRows, ModelWriter};
use popfit::{Error, FitRow, Result, Sink, Spectra, WriteOptions};

use super::inputs::InputFile;
use super::run::FileRun;
use crate::output::{ResultWriter, schema};

/// The table of one input, and its best-fit spectra, while they are written.
pub(super) struct FileWriter<'a> {
    table: ResultWriter<'a>,
    models: Option<ModelWriter<'a>>,
    /// Number of rows in turn that each device made.
    by_rows: Vec<DeviceRows>,
    /// Number of rows.
    pub rows: u64,
}

impl<'a> FileWriter<'a> {
    /// Begins the outputs of a file under temporary names, and makes their folders.
    pub fn create(run: &FileRun<'a>, file: &InputFile) -> Result<FileWriter<'a>> {
        let outputs = &file.outputs;
        for path in outputs.paths() {
            let folder = path.parent().unwrap_or(Path::new(""));
            std::fs::create_dir_all(folder).map_err(|source| Error::Io {
                path: folder.to_path_buf(),
                source,
            })?;
        }
        let options = WriteOptions {
            metadata: run.metadata.clone(),
            overwrite: file.replaces,
        };
        let heads = std::slice::from_ref(&file.head);
        let table = ResultWriter::create(
            run.format,
            &outputs.table,
            run.fitter,
            heads,
            options.clone(),
        )?;
        let models = match (&table, &outputs.models) {
            (ResultWriter::Table(_), Some(path)) => {
                let schema = schema(run.fitter, heads);
                Some(ModelWriter::create(
                    path, run.fitter, heads, &schema, options,
                )?)
            }
            _ => None,
        };
        Ok(FileWriter {
            table,
            models,
            by_rows: Vec::new(),
            rows: 0,
        })
    }

    /// Appends the rows of some spectra, which this device made.
    pub fn append(&mut self, spectra: &Spectra, rows: &[FitRow], device: &str) -> Result<()> {
        self.table.append(spectra, rows)?;
        if let Some(models) = &mut self.models {
            models.append(spectra, rows)?;
        }
        let count = rows.len() as u64;
        self.rows += count;
        match self.by_rows.last_mut() {
            Some(last) if last.device == device => last.rows += count,
            _ => {
                let mut part = DeviceRows::default();
                (part.device, part.rows) = (device.into(), count);
                self.by_rows.push(part);
            }
        }
        Ok(())
    }

    /// Completes the outputs and gives them their names, the table last.
    pub fn publish(self) -> Result<()> {
        if let Some(models) = self.models {
            models.finish()?;
        }
        self.table.finish(&self.by_rows, None)
    }
}
