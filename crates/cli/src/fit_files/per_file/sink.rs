//! Sink that gives the rows of each input to the outputs of that input.

use popfit::low_level::FlagCounts;
use popfit::{FitRow, Result, Sink, Spectra, Status};

use super::inputs::Phase;
use super::run::FileRun;
use super::writer::FileWriter;
use crate::rows::{Counts, Faults};

/// Counts of rows.
#[derive(Clone)]
pub(super) struct Tally {
    pub counts: Counts,
    pub faults: Faults,
    pub flags: FlagCounts,
    /// Number of rows.
    pub rows: u64,
}

impl Tally {
    /// Returns the counts of no rows; `parameters` are the names of the free parameters.
    pub fn new(parameters: &[String]) -> Tally {
        Tally {
            counts: Counts::default(),
            faults: Faults::default(),
            flags: FlagCounts::new(parameters),
            rows: 0,
        }
    }

    /// Counts rows.
    fn add(&mut self, rows: &[FitRow]) {
        self.counts.add(rows);
        self.faults.add(rows);
        rows.iter().for_each(|row| self.flags.add(row));
        self.rows += rows.len() as u64;
    }
}

/// Receives the rows of all inputs in their order, and publishes the outputs of each when its last row is written.
pub(super) struct SplitSink<'r, 'a> {
    run: &'r FileRun<'a>,
    /// Counts of the rows of files that are written, and of the one that is open.
    pub tally: Tally,
    open: Option<OpenFile<'a>>,
}

/// The file whose rows arrive.
struct OpenFile<'a> {
    index: usize,
    /// Its outputs; `None` if it has failed.
    writer: Option<FileWriter<'a>>,
    /// Counts without the rows of this file.
    tally_before: Tally,
}

impl<'r, 'a> SplitSink<'r, 'a> {
    /// Returns a sink for the rows of a run, which go on with these counts.
    pub fn new(run: &'r FileRun<'a>, tally: Tally) -> SplitSink<'r, 'a> {
        SplitSink {
            run,
            tally,
            open: None,
        }
    }

    /// Ends a stream: publishes the outputs of the last file if they are whole, and drops them otherwise.
    pub fn finish(&mut self) -> Result<()> {
        let is_whole = self
            .open
            .as_ref()
            .is_some_and(|open| self.run.files[open.index].phase() == Phase::Read);
        if is_whole {
            self.close()
        } else {
            self.discard();
            Ok(())
        }
    }

    /// Drops the outputs of the file that is open, and the counts of its rows.
    pub fn discard(&mut self) {
        if let Some(open) = self.open.take() {
            self.tally = open.tally_before;
        }
    }

    /// Publishes the outputs of the file that is open, unless it has failed.
    fn close(&mut self) -> Result<()> {
        let Some(OpenFile {
            index,
            writer: Some(writer),
            tally_before,
        }) = self.open.take()
        else {
            return Ok(());
        };
        if !self.run.publish_file(index, writer)? {
            self.tally = tally_before;
        }
        Ok(())
    }
}

impl Sink for SplitSink<'_, '_> {
    fn append(&mut self, spectra: &Spectra, rows: &[FitRow]) -> Result<()> {
        self.append_made_by(spectra, rows, "")
    }

    fn append_made_by(&mut self, spectra: &Spectra, rows: &[FitRow], device: &str) -> Result<()> {
        if self.run.is_interrupted() {
            return Ok(());
        }
        // 1. Publish the file before, all of whose rows have arrived.
        let index = self.run.index_of(&spectra.file)?;
        if self.open.as_ref().is_none_or(|open| open.index != index) {
            self.close()?;
            self.open = Some(OpenFile {
                index,
                writer: self.run.create_outputs(index)?,
                tally_before: self.tally.clone(),
            });
        }
        // 2. A file whose fits were interrupted will not be whole, and nor will those that follow.
        if rows.iter().any(|row| row.status == Status::Interrupted) {
            self.discard();
            self.run.interrupt();
            return Ok(());
        }
        // 3. Append the rows. Those of a file that has failed are lost.
        let Some(OpenFile {
            writer: Some(writer),
            ..
        }) = &mut self.open
        else {
            return Ok(());
        };
        self.tally.add(rows);
        writer
            .append(spectra, rows, device)
            .map_err(|error| self.run.end_with(error))?;
        // 4. Publish the file as soon as it is whole.
        let file = &self.run.files[index];
        if writer.rows == file.spectra && file.phase() == Phase::Read {
            self.close()?;
        }
        Ok(())
    }
}
