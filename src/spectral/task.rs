//! Single spectra as tasks for other optimisers.

use std::sync::Arc;

use crate::error::Result;
use crate::model::SpectralObjective;
use crate::recording::Recording;
use crate::solver::Objective;
use crate::spectra::Spectra;
use crate::spectral::SpectralFitter;
use crate::spectral::input::assemble::{assemble, matched, prepare_all};
use crate::spectral::input::guess::GuessedSpectrum;
use crate::spectral::input::layout::{layout, layout_for};
use crate::spectral::input::limits::Tables;
use crate::spectral::input::ready::{Grids, ReadySpectra, ReadySpectrum};
use crate::spectral::results::blank::{bad_spectrum_error, blank_row};
use crate::task::{Job, Task};

impl Task {
    /// Returns one least-squares problem for each spectrum, for optimisers from outside. Each starts at the best point
    /// of the spectrum's first guess.
    ///
    /// # Errors
    ///
    /// Returns [`Error::BadSpectrum`](crate::Error::BadSpectrum) for a spectrum that cannot be fitted, and
    /// otherwise the errors of [`SpectralFitter::fit`] for its settings, the arms and their wavelengths.
    pub fn of_spectra(fitter: &SpectralFitter, spectra: &Spectra) -> Result<Vec<Task>> {
        fitter.tasks(spectra)
    }
}

/// The objectives and inputs that the tasks of a batch of spectra share.
struct SpectralTasks<'a> {
    fitter: &'a SpectralFitter,
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
        // 1. Find the start of each spectrum, and the pixels that count there.
        let mut ready = Vec::with_capacity(spectra.len());
        for (place, prepared) in prepare_all(model, &arms, &grids, spectra.len())
            .into_iter()
            .enumerate()
        {
            let started = prepared.and_then(|prepared| {
                let limits = tables.of(place)?;
                let (arms, grids, count) = (&arms[..], &grids[..], Some(1));
                let spectrum = GuessedSpectrum {
                    model,
                    arms,
                    grids,
                    place,
                    limits: &limits,
                    guess,
                    count,
                };
                let (prepared, starts) = spectrum.starts(prepared)?;
                Ok(ReadySpectrum {
                    place,
                    prepared: Arc::new(prepared),
                    limits,
                    starts,
                    may_add_starts: false,
                })
            });
            ready.push(
                started.map_err(|fault| {
                    bad_spectrum_error(&blank_row(model, spectra, place), &fault)
                })?,
            );
        }
        // 2. Make the tasks.
        let shape = layout_for(
            layout(model, &arms, &grids),
            ready.iter().map(|spectrum| &*spectrum.prepared),
        );
        let linearise = SpectralObjective::new(model, &shape, self.precision.of_results());
        let evaluate = SpectralObjective::evaluation(model, &shape, self.precision.of_results());
        let recordings = [Arc::new(linearise.record()), Arc::new(evaluate.record())];
        let tasks = SpectralTasks {
            fitter: self,
            grids,
            linearise,
            evaluate,
            recordings,
        };
        Ok(ready
            .into_iter()
            .map(|spectrum| tasks.task(spectrum))
            .collect())
    }
}

impl SpectralTasks<'_> {
    /// Makes the task of one prepared spectrum, at its start.
    fn task(&self, ready: ReadySpectrum) -> Task {
        let SpectralTasks { fitter, grids, .. } = self;
        let model = &fitter.model;
        let constant = if model.marginalise {
            ready.prepared.marginal_constant
        } else {
            0.0
        };
        let ready = [ready];
        let spectra = ReadySpectra {
            model,
            grids,
            spectra: &ready,
            guess: None,
        };
        let [linearise, evaluate] =
            [&self.linearise, &self.evaluate].map(|o| assemble(o, spectra, &spectra.starts()));
        let [first, second] = self.recordings.clone();
        let parameters = model.parameters.iter().map(|p| p.solver.clone()).collect();
        let linearise = Job {
            recording: first,
            batch: linearise,
        };
        let evaluate = Job {
            recording: second,
            batch: evaluate,
        };
        let mut task = Task::new(&fitter.device, linearise, evaluate, parameters);
        task.constant = constant;
        task
    }
}
