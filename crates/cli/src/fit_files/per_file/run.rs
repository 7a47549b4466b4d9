//! State of a run that writes a table for each input. The thread that reads and the one that writes share it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use popfit::spectra::{FilesReader, Selection};
use popfit::{Control, Error, Metadata, ModelFile, Result, SpectralFitter};

use super::inputs::{InputFile, Phase};
use super::writer::FileWriter;
use crate::output::Format;

/// A run that writes a table for each input.
pub(super) struct FileRun<'a> {
    pub fitter: &'a SpectralFitter,
    pub model_file: Option<&'a ModelFile>,
    pub selection: &'a Selection,
    pub format: Format,
    pub metadata: Metadata,
    /// True if a file whose outputs appear meanwhile counts as skipped.
    pub skips_existing: bool,
    /// The inputs that are fitted.
    pub files: Vec<InputFile>,
    /// Index of each input, by its name in rows.
    index_by_name: HashMap<String, usize>,
    /// Cancels the run.
    cancel: Arc<AtomicBool>,
    /// True once fits were interrupted, because the run was cancelled or its time was up.
    is_interrupted: AtomicBool,
    /// True once an output has failed in a way that ends the run, such as a full disk.
    has_failed_output: AtomicBool,
}

impl<'a> FileRun<'a> {
    /// Returns a run without inputs.
    pub fn new(
        fitter: &'a SpectralFitter,
        model_file: Option<&'a ModelFile>,
        selection: &'a Selection,
        format: Format,
        metadata: Metadata,
        control: &Control,
    ) -> FileRun<'a> {
        FileRun {
            fitter,
            model_file,
            selection,
            format,
            metadata,
            skips_existing: false,
            files: Vec::new(),
            index_by_name: HashMap::new(),
            cancel: control.cancel.clone(),
            is_interrupted: AtomicBool::new(false),
            has_failed_output: AtomicBool::new(false),
        }
    }

    /// Adds an input.
    pub fn add_file(&mut self, file: InputFile) {
        let name = file.outputs.input.display().to_string();
        self.index_by_name.insert(name, self.files.len());
        self.files.push(file);
    }

    /// Returns the index of the input that has this name in rows.
    pub fn index_of(&self, name: &str) -> Result<usize> {
        let index = self.index_by_name.get(name).copied();
        index.ok_or_else(|| Error::Usage(format!("{name} is none of the files of this run")))
    }

    /// Returns whether no more files are begun.
    pub fn is_stopped(&self) -> bool {
        self.is_interrupted() || self.cancel.load(Ordering::Relaxed)
    }

    /// Returns whether fits were interrupted.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::Relaxed)
    }

    /// Notes that fits were interrupted.
    pub fn interrupt(&self) {
        self.is_interrupted.store(true, Ordering::Relaxed);
    }

    /// Notes that an output has failed in a way that ends the run; returns the error.
    pub fn end_with(&self, error: Error) -> Error {
        self.has_failed_output.store(true, Ordering::Relaxed);
        error
    }

    /// Returns whether an error of the fits ends the run: that of an output or of the device, and not that of a file.
    pub fn is_ended_by(&self, error: &Error) -> bool {
        self.has_failed_output.load(Ordering::Relaxed)
            || matches!(
                error,
                Error::Device { .. }
                    | Error::DeviceLost { .. }
                    | Error::DeviceUntrusted { .. }
                    | Error::OutOfMemory { .. }
                    | Error::Interrupted { .. }
            )
    }

    /// Returns the reader of a file that is to be read now; `None` if the file cannot be fitted.
    pub fn begin_file(&self, index: usize) -> Result<Option<FilesReader>> {
        let file = &self.files[index];
        // The reader is there already if the files were checked before the run.
        let checked_reader = file.progress().reader.take();
        let opened = match checked_reader {
            Some(reader) => Ok(reader),
            None => FilesReader::open(&[&file.outputs.input], self.selection),
        };
        let reader = match opened {
            Ok(reader) => reader,
            Err(error) => {
                file.fail(&error);
                return Ok(None);
            }
        };
        file.enter(Phase::Begun);
        // Outputs that cannot be written are found before anything is fitted in vain. They are not kept, because many
        // small files are read ahead, and a process may have few open files.
        let outputs = self.create_outputs(index)?;
        let is_writable = outputs.is_some();
        Ok(is_writable.then_some(reader))
    }

    /// Begins the outputs of a file; returns `None` if the file has failed, before or now.
    pub fn create_outputs(&self, index: usize) -> Result<Option<FileWriter<'a>>> {
        let file = &self.files[index];
        if !matches!(file.phase(), Phase::Begun | Phase::Read) {
            return Ok(None);
        }
        match FileWriter::create(self, file) {
            Ok(writer) => Ok(Some(writer)),
            Err(error) => self.fail_output(file, error).map(|()| None),
        }
    }

    /// Notes that all spectra of a file have been read. A file without spectra is written at once.
    pub fn end_reading(&self, index: usize, has_spectra: bool) -> Result<()> {
        self.files[index].end_reading();
        if has_spectra {
            return Ok(());
        }
        match self.create_outputs(index)? {
            Some(writer) => self.publish_file(index, writer).map(drop),
            None => Ok(()),
        }
    }

    /// Publishes the outputs of a file, unless it has failed; returns whether they are written.
    pub fn publish_file(&self, index: usize, writer: FileWriter<'a>) -> Result<bool> {
        let file = &self.files[index];
        if matches!(file.phase(), Phase::Failed(_)) {
            return Ok(false);
        }
        if let Err(error) = file.check_unchanged() {
            file.fail(&error);
            return Ok(false);
        }
        match writer.publish() {
            Ok(()) => {
                file.enter(Phase::Written);
                Ok(true)
            }
            Err(error) => self.fail_output(file, error).map(|()| false),
        }
    }

    /// Notes that the outputs of a file cannot be written, because another run writes or has written them, or because
    /// the layout has no place for its spectra.
    ///
    /// # Errors
    /// Returns any other error, such as that of a full disk: it ends the run.
    fn fail_output(&self, file: &InputFile, error: Error) -> Result<()> {
        match error {
            Error::OutputExists { .. } if self.skips_existing => {
                file.enter(Phase::AlreadyThere);
            }
            Error::OutputExists { .. } | Error::OutputLocked { .. } | Error::Usage(_) => {
                file.fail(&error);
            }
            other => return Err(self.end_with(other)),
        }
        Ok(())
    }
}
