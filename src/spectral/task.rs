//! Single spectra as tasks for other optimisers.

use std::sync::Arc;

use crate::error::Result;
use crate::model::SpectralObjective;
use crate::recording::Recording;
use crate::solver::Objective;
use crate::spectra::Spectra;
use crate::spectral::SpectralFitter;
use crate::spectral::input::assemble::{assemble, match_arms, prepare_spectra};
use crate::spectral::input::covariance::refuse;
use crate::spectral::input::guess::GuessedSpectrum;
use crate::spectral::input::layout::{lay_out_arms, mark_own_bases};
use crate::spectral::input::limits::LimitColumns;
use crate::spectral::input::reading::{require_known_errors, require_single_exposures};
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
        fitter.make_tasks(spectra)
    }
}

/// The objectives and inputs that the tasks of a batch of spectra share.
struct SpectralTasks<'a> {
    fitter: &'a SpectralFitter,
    grids: Vec<Grids>,
    linearise: SpectralObjective,
    evaluate: SpectralObjective,
    linearise_recording: Arc<Recording>,
    evaluate_recording: Arc<Recording>,
}

impl SpectralFitter {
    /// Returns one task per spectrum, at the best point of its first guess, for optimisers from outside.
    fn make_tasks(&self, spectra: &Spectra) -> Result<Vec<Task>> {
        let model = &self.model;
        require_single_exposures(spectra)?;
        require_known_errors(model)?;
        let arms = match_arms(model, spectra)?;
        let reason = "tasks for other optimisers: their residuals have no correlations";
        refuse(spectra, &arms, reason)?;
        let grids = self.make_run()?.sample_grids(&arms, spectra)?;
        let limit_columns = LimitColumns::new(model, spectra)?;
        let guess = self.first_guess()?;
        // 1. Find the start of each spectrum, and the pixels that count there.
        let prepared_spectra = prepare_spectra(model, &arms, &grids, spectra.len());
        let mut ready = Vec::with_capacity(spectra.len());
        for (place, prepared) in prepared_spectra.into_iter().enumerate() {
            let started = prepared.and_then(|prepared| {
                let limits = limit_columns.read_limits(place)?;
                let spectrum = GuessedSpectrum {
                    model,
                    arms: &arms,
                    grids: &grids,
                    place,
                    limits: &limits,
                    guess,
                    count: Some(1),
                };
                let (prepared, starts) = spectrum.guess_starts(prepared)?;
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
        let layout = mark_own_bases(
            lay_out_arms(model, &arms, &grids),
            ready.iter().map(|spectrum| &*spectrum.prepared),
        );
        let precision = self.precision.of_results();
        let linearise = SpectralObjective::new(model, &layout, precision);
        let evaluate = SpectralObjective::evaluation(model, &layout, precision);
        let tasks = SpectralTasks {
            fitter: self,
            grids,
            linearise_recording: Arc::new(linearise.record()),
            evaluate_recording: Arc::new(evaluate.record()),
            linearise,
            evaluate,
        };
        Ok(ready
            .into_iter()
            .map(|spectrum| tasks.make_task(spectrum))
            .collect())
    }
}

impl SpectralTasks<'_> {
    /// Makes the task of one prepared spectrum, at its start.
    fn make_task(&self, spectrum: ReadySpectrum) -> Task {
        let model = &self.fitter.model;
        let constant = if model.marginalise {
            spectrum.prepared.marginal_constant
        } else {
            0.0
        };
        let ready = [spectrum];
        let spectra = ReadySpectra {
            model,
            grids: &self.grids,
            spectra: &ready,
            guess: None,
        };
        let parameters = model
            .parameters
            .iter()
            .map(|parameter| parameter.solver.clone())
            .collect();
        let linearise = Job {
            recording: self.linearise_recording.clone(),
            batch: assemble(&self.linearise, spectra, &spectra.starts()),
        };
        let evaluate = Job {
            recording: self.evaluate_recording.clone(),
            batch: assemble(&self.evaluate, spectra, &spectra.starts()),
        };
        let mut task = Task::new(&self.fitter.device, linearise, evaluate, parameters);
        task.constant = constant;
        task
    }
}
