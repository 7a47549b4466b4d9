//! Runs from files to a table, which can be resumed.

use std::path::Path;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::io::output::WriteOptions;
use crate::spectra::{FilesReader, InputFiles, Selection};
use crate::spectral::{Journal, Schema, SpectralFitter, Summary, check_spectra};
use crate::table::TableWriter;

impl SpectralFitter {
    /// Fits the selected spectra of `files`, and writes their table to `output`, as Parquet, FITS or CSV by its
    /// extension. `options` are [`WriteOptions`] or a [`Metadata`](crate::Metadata), such as
    /// `&Metadata { model: text.into(), ..Metadata::of(&fitter) }` with the text of the model file.
    ///
    /// Fitted rows are kept in a journal beside `output` until the table is whole. If the run is killed, fails or is
    /// stopped by [`control`](SpectralFitter::control), the same call resumes it, to the bytes of an uninterrupted run.
    /// After a stop a new table has rows with [`Status::Interrupted`](crate::Status::Interrupted); one that existed
    /// before stays as it was.
    ///
    /// # Errors
    /// Returns the errors of [`fit_stream`](SpectralFitter::fit_stream), [`FilesReader::open`] and
    /// [`FitTable::write_with`](crate::FitTable::write_with); [`Error::Journal`] if the journal is of a run with other
    /// files or settings: remove it to begin anew; [`Error::InputChanged`] if a file was written to meanwhile;
    /// [`Error::Interrupted`] if the run was stopped while it hashed the files, or while the output of an earlier run
    /// exists.
    pub fn fit_files(
        &self,
        files: &[impl AsRef<Path>],
        selection: &Selection,
        output: impl AsRef<Path>,
        options: impl Into<WriteOptions>,
    ) -> Result<Summary> {
        let options = options.into();
        self.control
            .scope(|| self.fit_files_in_pool(files, selection, output.as_ref(), options))?
    }

    /// Fits files with workers that compute in the current pool of this thread.
    fn fit_files_in_pool(
        &self,
        files: &[impl AsRef<Path>],
        selection: &Selection,
        output: &Path,
        mut options: WriteOptions,
    ) -> Result<Summary> {
        let begin = Instant::now();
        // 1. Open the files, and hash their contents.
        let selection = self.model().complete_selection(selection.clone());
        let mut inputs = InputFiles::new(files);
        let mut reader = FilesReader::open(files, &selection)?;
        check_spectra(self, &reader.files())?;
        if !inputs.read(&self.control.cancel)? {
            return Err(Error::Interrupted {
                path: output.into(),
                kept: false,
            });
        }
        // 2. Open the journal, which knows a table that this run has written itself, and begin the table.
        let key = self.resume_key(&options.metadata.model, &selection, &inputs);
        let mut journal = Journal::open(output, &key, true)?;
        let outputs = [output.to_path_buf()];
        journal.claim_outputs(&outputs, options.overwrite)?;
        let is_new = !output.exists();
        options.overwrite |= !is_new;
        let schema = Schema::of(self, reader.text_ids());
        let mut table = TableWriter::create(output, &schema, options)?;
        // 3. Fit in the time that is left.
        let mut fitter = self.clone();
        let timeout = &mut fitter.control.timeout;
        *timeout = timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()));
        let summary = fitter.fit_journaled(&mut reader, &mut table, &mut journal)?;
        inputs.check()?;
        if summary.interrupted > 0 && !is_new {
            let kept = journal.has_rows();
            journal.leave();
            return Err(Error::Interrupted {
                path: output.into(),
                kept,
            });
        }
        // 4. Complete the table. The journal learns of it before it has its name.
        table.finish_run(&summary.by_rows, Some(&mut journal))?;
        journal.record_outputs(&outputs)?;
        if summary.interrupted > 0 {
            journal.leave();
        } else {
            journal.remove()?;
        }
        Ok(summary)
    }
}
