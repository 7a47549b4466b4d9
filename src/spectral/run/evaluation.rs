//! Evaluations of the objective at given points, outside of the search for minima.

use std::sync::Arc;

use super::workspace::EvaluationPopulation;
use super::{Grids, ReadySpectrum, SpectralRun};
use crate::error::Result;
use crate::model::ArmLayout;
use crate::solver::{Backend, Batch, LevenbergMarquardt, Outcome};
use crate::spectral::input::assemble::assemble;
use crate::spectral::input::ready::ReadySpectra;

/// Prepared spectra of one shape, each of which is evaluated at its only start.
#[derive(Clone, Copy)]
pub struct EvaluatedPoints<'a> {
    pub layout: &'a [ArmLayout],
    /// Samplings of each arm for all spectra of the batch.
    pub grids: &'a [Grids],
    pub ready: &'a [ReadySpectrum],
    pub derivatives: bool,
}

impl SpectralRun<'_> {
    /// Evaluates prepared spectra of one shape at their starts, one each, with derivatives, on the run's device.
    pub(super) fn evaluate_spectra(
        &mut self,
        layout: &[ArmLayout],
        grids: &[Grids],
        ready: &[ReadySpectrum],
    ) -> Result<Vec<Outcome>> {
        let device = self.device.clone();
        let memory = self
            .memory
            .or_else(|| Some(device.memory()? / 2))
            .map(|bytes| bytes / self.sharing as u64);
        let points = EvaluatedPoints {
            layout,
            grids,
            ready,
            derivatives: true,
        };
        self.evaluate_on(&*device, memory, points)
    }

    /// Evaluates points on a device, in batches, and those with correlated noise again, with its covariance, on the
    /// CPU. The population takes at most `memory` bytes.
    pub fn evaluate_on(
        &mut self,
        device: &dyn Backend,
        memory: Option<u64>,
        points: EvaluatedPoints,
    ) -> Result<Vec<Outcome>> {
        let EvaluatedPoints {
            layout,
            grids,
            ready,
            derivatives,
        } = points;
        let fitter = self.fitter;
        let model = &fitter.model;
        let mut outcomes = Vec::with_capacity(ready.len());
        if ready.is_empty() {
            return Ok(outcomes);
        }
        // 1. Use the population of an earlier evaluation if it has the same objective and is large enough.
        let objective =
            fitter
                .shared
                .get_or_make_objective(model, layout, fitter.precision, !derivatives);
        let recording = objective.recording();
        let capacity = device.capacity(recording, memory)?;
        let batch_size = fitter
            .batch_on(device)
            .min(capacity)
            .min(ready.len())
            .max(1);
        let earlier = self.take_evaluation().filter(|earlier| {
            Arc::ptr_eq(&earlier.objective, &objective)
                && earlier.population.capacity() >= batch_size
        });
        let mut population = match earlier {
            Some(earlier) => earlier.population,
            None => {
                let single_round = LevenbergMarquardt::default().max_rounds(1);
                device.population(recording.clone(), &single_round, batch_size)?
            }
        };
        // 2. Evaluate batch by batch. The first round of a fit evaluates its start.
        for chunk in ready.chunks(batch_size) {
            let spectra = ReadySpectra {
                model,
                grids,
                spectra: chunk,
                guess: None,
            };
            let batch: Batch = assemble(&objective, spectra, &spectra.starts());
            let members: Vec<usize> = (0..batch.members()).collect();
            outcomes.append(&mut pollster::block_on(async {
                population.load(&batch).await?;
                population.advance(1).await?;
                population.read(&members).await
            })?);
        }
        // 3. Keep the population, unless it belongs to a device that has replaced the workspace's.
        if self.worker.borrowed.is_on(device) {
            population.clear();
            self.keep_evaluation(EvaluationPopulation {
                objective,
                population,
            });
        }
        // 4. Add the covariance of correlated noise.
        fitter
            .correlated_fit(layout, grids)
            .evaluate(ready, &mut outcomes)?;
        Ok(outcomes)
    }
}
