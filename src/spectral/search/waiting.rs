//! The spectra of one request to a population: those that wait to enter, and the outcomes of those that have left.

use std::ops::Range;
use std::sync::Arc;

use crate::model::{Sampling, SpectralModel, SpectralObjective};
use crate::solver::simplex::FirstSimplex;
use crate::solver::{Batch, Outcome};
use crate::spectral::input::assemble::assemble;
use crate::spectral::input::ready::{Grids, ReadySpectra, ReadySpectrum, Starts};

/// The results of a pass.
#[derive(Default)]
pub struct PassOutcomes {
    /// Outcomes of each spectrum, one per start; none if the run was cancelled before the spectrum entered.
    pub outcomes: Vec<Vec<Outcome>>,
    /// Number of the submission after which each spectrum was read back.
    pub submissions: Vec<u32>,
}

/// Spectra that wait to enter a population, those that are in it, and the outcomes of those that have ended. It owns
/// all that it needs, because any worker may let its spectra enter.
pub struct Waiting {
    objective: Arc<SpectralObjective>,
    model: SpectralModel,
    grids: Vec<Grids>,
    spectra: Vec<ReadySpectrum>,
    /// Starts of each spectrum. A spectrum without starts does not enter.
    starts: Vec<Starts>,
    /// First simplices of each spectrum's starts. If empty, the solver's size sets all of them.
    pub simplices: Vec<Vec<Option<FirstSimplex>>>,
    /// The objective is evaluated at each start, once, and no fit begins there.
    pub is_evaluation: bool,
    pub finished: PassOutcomes,
    /// Number of submissions so far.
    submissions: u32,
    /// Index of the first spectrum that waits.
    next: usize,
    /// Number of starts that wait.
    starts_left: usize,
}

impl Waiting {
    /// Makes a queue of spectra that wait to enter a population from these starts, one list per spectrum.
    pub fn new(
        objective: Arc<SpectralObjective>,
        spectra: ReadySpectra,
        starts: Vec<Starts>,
    ) -> Waiting {
        let ReadySpectra {
            model,
            grids,
            spectra,
            ..
        } = spectra;
        // their own starts are not those from which they enter
        let without_starts = |one: &ReadySpectrum| ReadySpectrum {
            place: one.place,
            prepared: one.prepared.clone(),
            limits: one.limits.clone(),
            starts: Vec::new(),
            may_add_starts: false,
        };
        let mut waiting = Waiting {
            objective,
            model: model.clone(),
            grids: grids.to_vec(),
            spectra: spectra.iter().map(without_starts).collect(),
            starts,
            simplices: Vec::new(),
            is_evaluation: false,
            finished: PassOutcomes::default(),
            submissions: 0,
            next: 0,
            starts_left: 0,
        };
        waiting.begin_again();
        waiting
    }

    /// Lets all spectra wait again, and forgets their outcomes.
    pub fn begin_again(&mut self) {
        let count = self.starts.len();
        self.finished = PassOutcomes {
            outcomes: vec![Vec::new(); count],
            submissions: vec![0; count],
        };
        self.next = 0;
        self.starts_left = self.starts.iter().map(Vec::len).sum();
    }

    /// Returns the number of starts that wait.
    pub fn starts_left(&self) -> usize {
        self.starts_left
    }

    /// Returns the samplings that its spectra share, arm by arm. Populations hold one of each for all spectra in them.
    pub fn samplings(&self) -> Vec<Option<Arc<Sampling>>> {
        self.grids
            .iter()
            .map(|grid| grid.shared().cloned())
            .collect()
    }

    /// Returns the next spectra, at most as many and with at most as many starts as asked for, and their indices;
    /// `None` when none waits, or the next has more starts.
    pub fn next(&mut self, spectra: usize, starts: usize) -> Option<(Batch, Range<usize>)> {
        let first = self.starts[self.next..]
            .iter()
            .position(|own| !own.is_empty())?
            + self.next;
        let (mut end, mut room) = (first, starts);
        // A spectrum without starts ends the batch, because the arrays of a batch are slices.
        while end < self.starts.len()
            && end - first < spectra
            && (1..=room).contains(&self.starts[end].len())
        {
            room -= self.starts[end].len();
            end += 1;
        }
        if end == first {
            return None;
        }
        self.next = end;
        self.starts_left -= starts - room;
        let Waiting {
            objective,
            model,
            grids,
            is_evaluation,
            ..
        } = self;
        let entering = ReadySpectra {
            model,
            grids,
            spectra: &self.spectra[first..end],
            guess: None,
        };
        let mut batch = assemble(objective, entering, &self.starts[first..end]);
        batch.simplices = self
            .simplices
            .get(first..end)
            .map_or_else(Vec::new, <[_]>::concat);
        batch.is_evaluation = *is_evaluation;
        Some((batch, first..end))
    }

    /// Takes the outcomes, one per start, of a spectrum.
    pub fn end(&mut self, spectrum: usize, outcomes: Vec<Outcome>) {
        self.finished.outcomes[spectrum] = outcomes;
        self.finished.submissions[spectrum] = self.submissions;
    }

    /// Returns the number of submissions since the request arrived.
    pub fn submissions(&self) -> usize {
        self.submissions as usize
    }

    /// Counts a submission.
    pub fn count_submission(&mut self) {
        self.submissions += 1;
    }
}
