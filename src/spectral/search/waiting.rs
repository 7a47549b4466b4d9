//! The spectra of one request to a population: those that wait to enter, and the outcomes of those that have left.

use std::ops::Range;
use std::sync::Arc;

use crate::model::{Sampling, SpectralModel, SpectralObjective};
use crate::solver::search::{FitSearch, take_objectives};
use crate::solver::{Batch, Outcome};
use crate::spectral::input::assemble::assemble;
use crate::spectral::input::ready::{Grids, ReadySpectra, ReadySpectrum, StartPoints};

/// The results of a pass.
#[derive(Default)]
pub struct PassOutcomes {
    /// Outcomes of each spectrum, one per start; none if the run was cancelled before the spectrum entered.
    pub outcomes: Vec<Vec<Outcome>>,
    /// Number of the submission after which each spectrum was read back.
    pub submissions: Vec<u32>,
    /// Searches of each spectrum, one per start: how far they have come. Empty without searches.
    pub searches: Vec<Vec<FitSearch>>,
}

/// Spectra that wait to enter a population, those that are in it, and the outcomes of those that have ended. The struct
/// owns all data that it needs, because any worker may let its spectra enter.
pub struct WaitingSpectra {
    objective: Arc<SpectralObjective>,
    model: SpectralModel,
    grids: Vec<Grids>,
    spectra: Vec<ReadySpectrum>,
    /// Starts of each spectrum. A spectrum without starts does not enter.
    starts: Vec<StartPoints>,
    /// The objective is evaluated once at each start, and no fit begins there.
    pub is_evaluation: bool,
    pub finished: PassOutcomes,
    /// Number of submissions since the request arrived.
    submissions: u32,
    /// Index of the first spectrum that waits.
    next_spectrum: usize,
    /// Number of starts that wait.
    starts_left: usize,
}

impl WaitingSpectra {
    /// Makes a queue of spectra that wait to enter a population from these starts, one list per spectrum.
    pub fn new(
        objective: Arc<SpectralObjective>,
        spectra: ReadySpectra,
        starts: Vec<StartPoints>,
    ) -> WaitingSpectra {
        // The spectra enter from `starts`, so their own starts are not copied.
        let mut waiting_spectra = Vec::with_capacity(spectra.spectra.len());
        for ready in spectra.spectra {
            waiting_spectra.push(ReadySpectrum {
                place: ready.place,
                prepared: ready.prepared.clone(),
                limits: ready.limits.clone(),
                starts: Vec::new(),
                may_add_starts: false,
            });
        }
        let mut waiting = WaitingSpectra {
            objective,
            model: spectra.model.clone(),
            grids: spectra.grids.to_vec(),
            spectra: waiting_spectra,
            starts,
            is_evaluation: false,
            finished: PassOutcomes::default(),
            submissions: 0,
            next_spectrum: 0,
            starts_left: 0,
        };
        waiting.begin_again();
        waiting
    }

    /// Makes a queue of spectra that stay in the population until the searches of each have ended, at whose points the
    /// objective is evaluated.
    pub fn with_searches(
        objective: Arc<SpectralObjective>,
        spectra: ReadySpectra,
        searches: Vec<Vec<FitSearch>>,
    ) -> WaitingSpectra {
        let points_of = |searches: &Vec<FitSearch>| -> StartPoints {
            let unfinished = searches.iter().filter(|search| !search.has_ended());
            unfinished.map(|search| search.point().to_vec()).collect()
        };
        let points = searches.iter().map(points_of).collect();
        let mut waiting = WaitingSpectra::new(objective, spectra, points);
        waiting.finished.searches = searches;
        waiting
    }

    /// Returns whether the spectra have searches.
    pub fn has_searches(&self) -> bool {
        !self.finished.searches.is_empty()
    }

    /// Lets all spectra wait again, and forgets their outcomes.
    pub fn begin_again(&mut self) {
        let count = self.starts.len();
        self.finished = PassOutcomes {
            outcomes: vec![Vec::new(); count],
            submissions: vec![0; count],
            searches: Vec::new(),
        };
        self.next_spectrum = 0;
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

    /// Returns a batch of the next spectra, and their indices. The batch has at most `max_spectra` spectra and at most
    /// `max_starts` starts. Returns `None` when no spectrum waits, or when the next one has more starts.
    pub fn next_batch(
        &mut self,
        max_spectra: usize,
        max_starts: usize,
    ) -> Option<(Batch, Range<usize>)> {
        // 1. Choose consecutive spectra. One without starts ends the batch, because the arrays of a batch are slices.
        let waiting_starts = &self.starts[self.next_spectrum..];
        let first = self.next_spectrum + waiting_starts.iter().position(|s| !s.is_empty())?;
        let mut end = first;
        let mut free_places = max_starts;
        while end < self.starts.len()
            && end - first < max_spectra
            && (1..=free_places).contains(&self.starts[end].len())
        {
            free_places -= self.starts[end].len();
            end += 1;
        }
        if end == first {
            return None;
        }
        self.next_spectrum = end;
        self.starts_left -= max_starts - free_places;
        // 2. Assemble their batch.
        let entering_spectra = ReadySpectra {
            model: &self.model,
            grids: &self.grids,
            spectra: &self.spectra[first..end],
            guess: None,
        };
        let mut batch = assemble(&self.objective, entering_spectra, &self.starts[first..end]);
        batch.is_evaluation = self.is_evaluation || self.has_searches();
        Some((batch, first..end))
    }

    /// Records the outcomes of a spectrum, one per start, and returns the points at which its searches go on.
    pub fn record_outcomes(&mut self, spectrum: usize, outcomes: Vec<Outcome>) -> StartPoints {
        let searches = self.finished.searches.get_mut(spectrum);
        let points = searches.map_or_else(Vec::new, |searches| {
            take_objectives(searches.iter_mut(), &outcomes, self.model.marginalise)
        });
        self.finished.outcomes[spectrum] = outcomes;
        self.finished.submissions[spectrum] = self.submissions;
        points
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
