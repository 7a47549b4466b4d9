//! The queue of spectra that wait to enter a population.

use crate::model::SpectralObjective;
use crate::solver::simplex::FirstSimplex;
use crate::solver::{Batch, Outcome, Queue};
use crate::spectral::input::assemble::assemble;
use crate::spectral::input::ready::{ReadySpectra, Starts};

/// The results of a pass.
#[derive(Default)]
pub struct PassOutcomes {
    /// Outcomes of each spectrum, one per start; none if the run was cancelled before the spectrum entered.
    pub outcomes: Vec<Vec<Outcome>>,
    /// Number of the submission after which each spectrum was read back.
    pub submissions: Vec<u32>,
}

/// Reports the number of members that have not ended.
pub struct MemberCount<'a> {
    /// Members per start.
    pub lanes: usize,
    /// Receives the number after each submission.
    pub report: &'a mut dyn FnMut(usize),
}

/// Spectra that wait to enter a population, those that are in it, and the outcomes of those that have ended.
pub struct Waiting<'a> {
    objective: &'a SpectralObjective,
    spectra: ReadySpectra<'a>,
    /// Starts of each spectrum. A spectrum without starts does not enter.
    pub starts: Vec<Starts>,
    /// First simplices of each spectrum's starts. If empty, the solver's size sets all of them.
    pub simplices: Vec<Vec<Option<FirstSimplex>>>,
    pub remaining: Option<MemberCount<'a>>,
    pub finished: PassOutcomes,
    /// Number of submissions so far.
    submissions: u32,
    /// Index of the first spectrum that waits.
    next: usize,
    /// Indices of the spectra that have entered, in the order of entry.
    entered: Vec<usize>,
}

impl<'a> Waiting<'a> {
    /// Makes a queue of spectra that wait to enter a population from these starts, one list per spectrum.
    pub fn new(objective: &'a SpectralObjective, spectra: ReadySpectra<'a>, starts: Vec<Starts>) -> Waiting<'a> {
        let finished = PassOutcomes { outcomes: vec![Vec::new(); starts.len()], submissions: vec![0; starts.len()] };
        Waiting {
            objective,
            spectra,
            starts,
            simplices: Vec::new(),
            remaining: None,
            finished,
            submissions: 0,
            next: 0,
            entered: Vec::new(),
        }
    }

    /// Returns the index of the first spectrum from `k` on that has a start.
    fn first_with_start(&self, mut k: usize) -> usize {
        while self.starts.get(k).is_some_and(Vec::is_empty) {
            k += 1;
        }
        k
    }
}

impl Queue for Waiting<'_> {
    fn next(&mut self, spectra: usize, starts: usize) -> Option<Batch> {
        let (first, before) = (self.first_with_start(self.next), self.entered.len());
        let (mut end, mut room) = (first, starts);
        // A spectrum without starts ends the batch, because the arrays of a batch are slices.
        while end < self.starts.len() && end - first < spectra && (1..=room).contains(&self.starts[end].len()) {
            room -= self.starts[end].len();
            self.entered.push(end);
            end += 1;
        }
        self.next = end;
        if self.entered.len() == before {
            return None;
        }
        let entering = self.spectra.with_spectra(&self.spectra.spectra[first..end]);
        let mut batch = assemble(self.objective, entering, &self.starts[first..end]);
        batch.simplices = self.simplices.get(first..end).map_or_else(Vec::new, <[_]>::concat);
        Some(batch)
    }

    fn is_empty(&self) -> bool {
        self.first_with_start(self.next) >= self.starts.len()
    }

    fn end(&mut self, number: usize, outcomes: Vec<Outcome>) {
        let place = self.entered[number];
        self.finished.outcomes[place] = outcomes;
        self.finished.submissions[place] = self.submissions;
    }

    fn watch(&mut self, active: usize) {
        self.submissions += 1;
        let waiting: usize = self.starts[self.next..].iter().map(Vec::len).sum();
        if let Some(MemberCount { lanes, report }) = &mut self.remaining {
            report(active + waiting * *lanes);
        }
    }
}
