//! Kinds of evidence that popfit meets a case of the list.

use popfit::FitRow;

use crate::setup::Arrays;

/// One thing that shows it.
pub enum Shown {
    /// A spectrum is spoiled, the first, the middle and the last of five: its row is as it should be, and no bit of
    /// another changes.
    Fault(Fault),
    /// All rows are as they should be, with a model or arrays of their own.
    Whole(Whole),
    /// The run ends with an error of these words before anything is fitted, with exit code 2 and nothing written.
    Refused(Refused),
    /// A test elsewhere: its file without `.rs`, or its folder; its name.
    Test(&'static str, &'static str),
}

pub struct Fault {
    /// More of the model file.
    pub model: &'static str,
    /// The sound spectra.
    pub sound: fn() -> Arrays,
    pub spoil: fn(&mut Arrays, usize),
    pub expect: fn(&Seen) -> bool,
}

/// Result of fitting a spoiled spectrum.
pub struct Seen<'a> {
    pub row: &'a FitRow,
    /// The rows of all before it was spoiled.
    pub clean: &'a [FitRow],
    pub bad: usize,
}

impl Seen<'_> {
    pub fn before(&self) -> &FitRow {
        &self.clean[self.bad]
    }
}

pub struct Whole {
    pub model: &'static str,
    pub network: fn() -> Vec<u8>,
    pub arrays: fn() -> Arrays,
    /// The rows, and those of the sound spectra and model.
    pub expect: fn(&[FitRow], &[FitRow]) -> bool,
}

pub struct Refused {
    pub model: &'static str,
    /// The bytes of the file of spectra.
    pub file: fn() -> Vec<u8>,
    pub words: &'static [&'static str],
}
