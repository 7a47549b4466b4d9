//! Spectra that wait for places in a population.

use super::assemble::assemble;
use super::ready::Starts;
use super::ready::{Grids, Ready};
use crate::model::{SpectralModel, SpectralObjective};
use crate::solver::simplex::FirstSimplex;
use crate::solver::{Batch, Outcome, Queue};

/// The model, how its arms sample the spectra, and the spectra.
pub type Entering<'a> = (&'a SpectralModel, &'a [Grids], &'a [Ready]);

/// Members of a start, and what is told how many members have not ended.
type Watch<'a> = (usize, &'a mut dyn FnMut(usize));

pub struct Waiting<'a> {
    objective: &'a SpectralObjective,
    spectra: Entering<'a>,
    /// Starts of each spectrum. A spectrum without starts does not enter.
    pub starts: Vec<Starts>,
    /// Outcomes of each spectrum, one per start; none of those spectra that have not entered.
    pub outcomes: Vec<Vec<Outcome>>,
    /// First simplices of each spectrum's starts; empty where all are made of their size.
    pub simplices: Vec<Vec<Option<FirstSimplex>>>,
    pub watch: Option<Watch<'a>>,
    /// Submission after which each spectrum left, together with all that left then.
    pub left: Vec<u32>,
    submissions: u32,
    /// The first that waits, and the places of those that have entered.
    next: usize,
    entered: Vec<usize>,
}

impl<'a> Waiting<'a> {
    pub fn new(objective: &'a SpectralObjective, spectra: Entering<'a>, starts: Vec<Starts>) -> Waiting<'a> {
        let outcomes = vec![Vec::new(); starts.len()];
        let left = vec![0; starts.len()];
        let (next, entered) = (0, Vec::new());
        let simplices = Vec::new();
        Waiting { objective, spectra, starts, outcomes, simplices, watch: None, left, submissions: 0, next, entered }
    }

    /// The first of those from `k` on that has a start.
    fn seek(&self, mut k: usize) -> usize {
        while self.starts.get(k).is_some_and(Vec::is_empty) {
            k += 1;
        }
        k
    }
}

impl Queue for Waiting<'_> {
    fn next(&mut self, spectra: usize, starts: usize) -> Option<Batch> {
        let (first, before) = (self.seek(self.next), self.entered.len());
        let (mut end, mut room) = (first, starts);
        // those that lie between two without a start enter another time: the batch's arrays are slices
        while end < self.starts.len() && end - first < spectra && (1..=room).contains(&self.starts[end].len()) {
            room -= self.starts[end].len();
            self.entered.push(end);
            end += 1;
        }
        self.next = end;
        let (model, grids, ready) = self.spectra;
        if self.entered.len() == before {
            return None;
        }
        let mut batch = assemble(model, self.objective, grids, (&ready[first..end], &self.starts[first..end]));
        batch.simplices = self.simplices.get(first..end).map_or_else(Vec::new, <[_]>::concat);
        Some(batch)
    }

    fn is_empty(&self) -> bool {
        self.seek(self.next) >= self.starts.len()
    }

    fn end(&mut self, number: usize, outcomes: Vec<Outcome>) {
        let place = self.entered[number];
        self.outcomes[place] = outcomes;
        self.left[place] = self.submissions;
    }

    fn watch(&mut self, active: usize) {
        self.submissions += 1;
        let waiting: usize = self.starts[self.next..].iter().map(Vec::len).sum();
        if let Some((lanes, watch)) = &mut self.watch {
            watch(active + waiting * *lanes);
        }
    }
}
