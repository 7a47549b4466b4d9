//! Inputs of a run that writes a table for each: opened and checked before the fits, then read one after another.

use std::sync::{Mutex, MutexGuard, PoisonError};

use popfit::low_level::InputFiles;
use popfit::low_level::checks::check_spectra;
use popfit::spectra::{FilesReader, SpectraReader};
use popfit::{Error, Result, Spectra};

use super::outputs::FileOutputs;
use super::run::FileRun;

/// An input that has been opened and checked.
pub(super) struct InputFile {
    pub outputs: FileOutputs,
    /// True if outputs that are there are replaced.
    pub replaces: bool,
    /// The file without its spectra.
    pub head: Spectra<'static>,
    /// Number of spectra.
    pub spectra: u64,
    /// State of the file on the disk when it was opened.
    opened: InputFiles,
    progress: Mutex<FileProgress>,
}

/// Progress of a file, which the reader's thread and the writer's share.
pub(super) struct FileProgress {
    pub phase: Phase,
    /// The reader that has checked the file, until it is used.
    pub reader: Option<FilesReader>,
}

/// Phases of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    /// Its spectra are read.
    Begun,
    /// All of its spectra have been read.
    Read,
    /// Its outputs are whole.
    Written,
    /// Another run has written its outputs meanwhile.
    AlreadyThere,
    /// It could not be fitted, for this reason.
    Failed(String),
}

impl InputFile {
    /// Opens a file, and checks that the model suits it.
    pub fn open(
        run: &FileRun<'_>,
        outputs: FileOutputs,
        replaces: bool,
    ) -> Result<(InputFile, Vec<String>)> {
        let opened = InputFiles::new(&[&outputs.input]);
        let reader = FilesReader::open(&[&outputs.input], run.selection)?;
        let head = reader.empty();
        check_spectra(run.fitter, [&head]).map_err(|error| match run.model_file {
            Some(file) => file.blame(error),
            None => error,
        })?;
        let notes = reader.notes().to_vec();
        let file = InputFile {
            outputs,
            replaces,
            head,
            spectra: reader.len(),
            opened,
            progress: Mutex::new(FileProgress {
                phase: Phase::Waiting,
                reader: Some(reader),
            }),
        };
        Ok((file, notes))
    }

    /// Returns the progress of the file, which no other thread changes meanwhile.
    pub fn progress(&self) -> MutexGuard<'_, FileProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the phase of the file.
    pub fn phase(&self) -> Phase {
        self.progress().phase.clone()
    }

    /// Sets the phase of the file.
    pub fn enter(&self, phase: Phase) {
        self.progress().phase = phase;
    }

    /// Notes that all spectra of the file have been read, unless it has failed meanwhile.
    pub fn end_reading(&self) {
        let mut progress = self.progress();
        if progress.phase == Phase::Begun {
            progress.phase = Phase::Read;
        }
    }

    /// Notes that the file cannot be fitted.
    pub fn fail(&self, error: &Error) {
        self.enter(Phase::Failed(error.to_string()));
    }

    /// Fails if the file was written to after it was opened.
    pub fn check_unchanged(&self) -> Result<()> {
        self.opened.check()
    }
}

/// Reads some of the inputs in turn. A file that cannot be read to its end is noted as failed, and the next one
/// follows.
pub(super) struct InputsReader<'r, 'a> {
    run: &'r FileRun<'a>,
    /// Indices of the files that follow.
    following: std::vec::IntoIter<usize>,
    current: Option<CurrentFile>,
    spectra: u64,
    first_head: Spectra<'static>,
}

/// The file that is being read.
struct CurrentFile {
    index: usize,
    reader: FilesReader,
    /// True once spectra have been read, which the writer will receive.
    has_spectra: bool,
}

impl<'r, 'a> InputsReader<'r, 'a> {
    /// Returns a reader of the inputs with these indices; `first` is one of them.
    pub fn new(run: &'r FileRun<'a>, first: &InputFile, inputs: Vec<usize>) -> Self {
        let spectra = inputs.iter().map(|index| run.files[*index].spectra).sum();
        InputsReader {
            run,
            following: inputs.into_iter(),
            current: None,
            spectra,
            first_head: first.head.clone(),
        }
    }
}

impl SpectraReader for InputsReader<'_, '_> {
    fn len(&self) -> u64 {
        self.spectra
    }

    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra<'static>>> {
        while !self.run.is_stopped() {
            // 1. Begin the next file.
            let Some(current) = &mut self.current else {
                let Some(index) = self.following.next() else {
                    break;
                };
                let reader = self.run.begin_file(index)?;
                self.current = reader.map(|reader| CurrentFile {
                    index,
                    reader,
                    has_spectra: false,
                });
                continue;
            };
            // 2. Read it.
            match current.reader.next_batch(max) {
                Ok(Some(batch)) => {
                    current.has_spectra = true;
                    return Ok(Some(batch));
                }
                Ok(None) => self.run.end_reading(current.index, current.has_spectra)?,
                Err(error) => self.run.files[current.index].fail(&error),
            }
            self.current = None;
        }
        Ok(None)
    }

    fn recycle(&mut self, used: Spectra<'static>) {
        if let Some(current) = &mut self.current {
            current.reader.recycle(used);
        }
    }

    fn empty(&self) -> Spectra<'static> {
        self.first_head.clone()
    }
}
