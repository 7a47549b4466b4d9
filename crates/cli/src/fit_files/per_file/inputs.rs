//! Inputs of a run that writes a table for each: opened and checked before the fits, then read one after another.

use std::sync::{Mutex, MutexGuard, PoisonError};

use popfit::spectra::{FilesReader, InputFiles, SpectraReader};
use popfit::{Error, Result, Spectra};

use super::outputs::FileOutputs;
use super::run::FileRun;
use super::writer::FileWriter;

/// An input that has been opened and checked.
pub(super) struct InputFile<'a> {
    pub outputs: FileOutputs,
    /// True if outputs that are there are replaced.
    pub replaces: bool,
    /// The file without its spectra.
    pub head: Spectra<'static>,
    /// Number of spectra.
    pub spectra: u64,
    /// State of the file on the disk when it was opened.
    opened: InputFiles,
    progress: Mutex<FileProgress<'a>>,
}

/// Progress of a file, which the reader's thread and the writer's share.
pub(super) struct FileProgress<'a> {
    pub phase: Phase,
    /// The reader that has checked the file, until it is used.
    pub reader: Option<FilesReader>,
    /// The outputs, from their beginning by the reader's thread until the first rows.
    pub writer: Option<FileWriter<'a>>,
}

/// Phases of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    /// Its outputs are begun, and its spectra are read.
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

impl<'a> InputFile<'a> {
    /// Opens a file, and checks that the model suits it.
    pub fn open(
        run: &FileRun<'a>,
        outputs: FileOutputs,
        replaces: bool,
    ) -> Result<(InputFile<'a>, Vec<String>)> {
        let opened = InputFiles::new(&[&outputs.input]);
        let reader = FilesReader::open(&[&outputs.input], run.selection)?;
        let head = reader.empty();
        run.fitter
            .check_spectra([&head])
            .map_err(|error| match run.model_file {
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
                writer: None,
            }),
        };
        Ok((file, notes))
    }

    /// Returns the progress of the file, which no other thread changes meanwhile.
    pub fn progress(&self) -> MutexGuard<'_, FileProgress<'a>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the phase of the file.
    pub fn phase(&self) -> Phase {
        self.progress().phase.clone()
    }

    /// Notes that the file cannot be fitted, and drops its outputs if no rows are in them.
    pub fn fail(&self, error: &Error) {
        let mut progress = self.progress();
        progress.phase = Phase::Failed(error.to_string());
        progress.writer = None;
    }

    /// Lets the file wait once more, after the run in which it was begun has failed.
    pub fn wait_again(&self) {
        let mut progress = self.progress();
        progress.phase = Phase::Waiting;
        progress.writer = None;
    }

    /// Fails if the file was written to after it was opened.
    pub fn check_unchanged(&self) -> Result<()> {
        self.opened.check()
    }
}

/// Reads some of the inputs in turn. A file that cannot be read to its end is noted as failed, and the next one
/// follows. The outputs of a file are begun before its first spectra are read, so that nothing is fitted in vain.
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
    pub fn new(run: &'r FileRun<'a>, first: &InputFile<'_>, inputs: Vec<usize>) -> Self {
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
