//! Single spectra as tasks for other optimisers.

use std::sync::Arc;

use crate::error::Result;
use crate::first_guess::FirstGuess;
use crate::model::{Fault, Prepared, Sampling, SpectralObjective};
use crate::recording::Recording;
use crate::solver::Objective;
use crate::spectra::Spectra;
use crate::spectral::SpectralFitter;
use crate::spectral::input::assemble::{assemble, matched, prepare_all};
use crate::spectral::input::layout::{layout, layout_for};
use crate::spectral::input::limits::Tables;
use crate::spectral::input::ready::{Grids, ReadySpectra, ReadySpectrum};
use crate::spectral::results::blank::{blank, strict};
use crate::task::{Job, Task};

impl Task {
    /// Returns one least-squares problem for each spectrum, for optimisers from outside. Each starts at the best point
    /// of the spectrum's first guess.
    ///
    /// # Errors Returns [`Error::BadSpectrum`](crate::Error::BadSpectrum) for a spectrum that cannot be fitted, and
    /// otherwise the errors of [`SpectralFitter::fit`] for its settings, the arms and their wavelengths.
    pub fn of_spectra(fitter: &SpectralFitter, spectra: &Spectra) -> Result<Vec<Task>> {
        fitter.tasks(spectra)
    }
}

/// The objectives and inputs that the tasks of a batch of spectra share.
struct SpectralTasks<'a> {
    fitter: &'a SpectralFitter,
    guess: &'a FirstGuess,
    tables: Tables<'a>,
    grids: Vec<Grids>,
    linearise: SpectralObjective,
    evaluate: SpectralObjective,
    /// Recordings of the two objectives.
    recordings: [Arc<Recording>; 2],
}

impl SpectralFitter {
    /// Returns one task per spectrum, at the best point of its first guess, for optimisers from outside.
    fn tasks(&self, spectra: &Spectra) -> Result<Vec<Task>> {
        let model = &self.model;
        let arms = matched(model, spectra)?;
        let grids = self.run()?.grids(&arms, spectra)?;
        let tables = Tables::new(model, spectra)?;
        let guess = self.first_guess()?;
        let all = prepare_all(model, &arms, &grids, spectra.len());
        let shape = layout_for(layout(model, &arms, &grids), all.iter().filter_map(|one| one.as_ref().ok()));
        let linearise = SpectralObjective::new(model, &shape, self.precision.of_results());
        let evaluate = SpectralObjective::evaluation(model, &shape, self.precision.of_results());
        let recordings = [Arc::new(linearise.record()), Arc::new(evaluate.record())];
        let tasks = SpectralTasks { fitter: self, guess, tables, grids, linearise, evaluate, recordings };
        let mut made = Vec::with_capacity(all.len());
        for (place, prepared) in all.into_iter().enumerate() {
            let task = prepared.and_then(|prepared| tasks.task(place, prepared));
            made.push(task.map_err(|fault| strict(&blank(&self.model, spectra, place), &fault))?);
        }
        Ok(made)
    }
}

impl SpectralTasks<'_> {
    /// Makes the task of one prepared spectrum, at the best point of its first guess, or returns the fault of its
    /// limits.
    fn task(&self, place: usize, prepared: Prepared) -> std::result::Result<Task, Fault> {
        let SpectralTasks { fitter, grids, .. } = self;
        let model = &fitter.model;
        let limits = self.tables.of(place)?;
        let samplings: Vec<&Sampling> = grids.iter().filter_map(|g| g.of(place).ok()).map(|s| &**s).collect();
        let starts = self.guess.starts(&prepared, &samplings, &limits, Some(1));
        let constant = if model.marginalise { prepared.marginal_constant } else { 0.0 };
        let ready = [ReadySpectrum { place, prepared: Arc::new(prepared), limits, starts, may_add_starts: false }];
        let spectra = ReadySpectra { model, grids, spectra: &ready, guess: None };
        let [linearise, evaluate] = [&self.linearise, &self.evaluate].map(|o| assemble(o, spectra, &spectra.starts()));
        let [first, second] = self.recordings.clone();
        let parameters = model.parameters.iter().map(|p| p.solver.clone()).collect();
        let linearise = Job { recording: first, batch: linearise };
        let evaluate = Job { recording: second, batch: evaluate };
        let mut task = Task::new(&fitter.device, linearise, evaluate, parameters);
        task.constant = constant;
        Ok(task)
    }
}
