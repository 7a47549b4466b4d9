//! Populations of a run on its device, and the spectra that go through them.

use std::sync::atomic::Ordering;

use super::{Grids, ReadySpectrum, RunProgress, SpectralRun};
use crate::error::Result;
use crate::model::{ArmLayout, VelocityScan};
use crate::solver::Outcome;
use crate::spectral::input::ready::{Monitor, NEVER_CANCELLED, ReadySpectra};
use crate::spectral::results::row::FitRow;
use crate::spectral::search::pass::PassSettings;
use crate::spectral::search::posterior::PosteriorScan;
use crate::spectral::search::solve::SpectralPasses;

impl SpectralRun<'_> {
    /// Makes the passes for spectra of this layout, with their populations on the device, unless there are such ones.
    pub(super) fn make_passes(&mut self, layout: &[ArmLayout]) -> Result<()> {
        let fitter = self.fitter;
        // 1. A GPU's memory, or a limited one, is not divided for the few points of the checks for folds.
        let is_scarce = self.device.runs_wgsl() || self.memory.is_some();
        let evaluates_probes = fitter.adds_starts() && !is_scarce;
        let has_evaluation = fitter.velocity_scan == VelocityScan::Fixed || evaluates_probes;
        // 2. There are as many starts as the batches of all workers that share a population have.
        let workers = if self.device.shares_populations() {
            self.sharing
        } else {
            1
        };
        let starts = self.usual_starts * fitter.batch_on(&*self.device) * workers;
        let max_in_flight = self
            .worker
            .borrowed
            .workspace
            .max_starts_in_flight
            .load(Ordering::Relaxed)
            .min(self.device.enough());
        let max_starts = starts.max(fitter.most_starts()).min(max_in_flight);
        // 3. Each population gets its share of the memory. A worker that is alone leaves half of the device to others.
        let device_divisor = if self.sharing == 1 { 2 } else { 1 };
        let memory = self
            .memory
            .or_else(|| Some(self.device.memory()? / device_divisor))
            .map(|bytes| bytes / (self.sharing / workers) as u64);
        let settings = PassSettings {
            solver: fitter.solver,
            precision: fitter.precision,
            has_evaluation,
            memory,
            workers,
            max_starts,
        };
        // 4. Use the passes of the last spectra, or those that another worker has left. Others are freed before new
        //    ones
        //    are made.
        let mut passes = self
            .worker
            .passes
            .take()
            .filter(|passes| passes.is_for(layout, settings));
        if passes.is_none() {
            passes = self.worker.take_passes(layout, settings);
        }
        let passes = match passes {
            Some(passes) => passes,
            None => SpectralPasses::new(
                &fitter.model,
                &fitter.shared,
                layout,
                &*self.device,
                &self.worker.borrowed.workspace.populations,
                settings,
            )?,
        };
        if let Some(meter) = &self.meter {
            passes.measure(meter);
        }
        self.worker.passes = Some(passes);
        Ok(())
    }

    /// Fits spectra and returns each one's outcomes. `finished` spectra of the batch already have their rows, and
    /// progress is reported in addition to them.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) if a spot check finds a GPU's results wrong.
    pub(super) fn solve_ready_spectra(
        &mut self,
        grids: &[Grids],
        ready: &[ReadySpectrum],
        finished: usize,
    ) -> Result<Vec<Vec<Outcome>>> {
        let Some(passes) = self.worker.passes.as_mut() else {
            return Ok(Vec::new());
        };
        let spectra = ReadySpectra {
            model: &self.fitter.model,
            grids,
            spectra: ready,
            guess: self.fitter.shared.library(),
        };
        let Some(tally) = self.tally else {
            let silent = Monitor {
                cancel: &NEVER_CANCELLED,
                progress: &mut |_| {},
            };
            return passes.solve(spectra, silent);
        };
        // The tally calls the user's progress function after every submission, even if no other spectrum has ended.
        let reported = &mut self.reported;
        let mut report = |share: f64| {
            let ended = finished + (ready.len() as f64 * share) as usize;
            tally.add_finished(ended.saturating_sub(*reported) as u64);
            *reported = ended.max(*reported);
        };
        let monitor = Monitor {
            cancel: tally.cancel(),
            progress: &mut report,
        };
        passes.solve(spectra, monitor)
    }

    /// Continues the outcomes of spectra whose noise is correlated, with the covariance of the noise, on the CPU.
    pub(super) fn correlate_outcomes(
        &self,
        layout: &[ArmLayout],
        grids: &[Grids],
        ready: &[ReadySpectrum],
        outcomes: &mut [Vec<Outcome>],
    ) -> Result<()> {
        let fitter = self.fitter;
        let cancel = self.tally.map_or(&NEVER_CANCELLED, RunProgress::cancel);
        fitter
            .correlated_fit(layout, grids)
            .refine(ready, outcomes, cancel)
    }

    /// Scans the objective around the velocities of fitted spectra and writes the posteriors into their rows. If the
    /// run is cancelled, those that are not scanned become interrupted.
    pub(super) fn scan_velocities(
        &mut self,
        grids: &[Grids],
        ready: &[ReadySpectrum],
        rows: &mut [FitRow],
    ) -> Result<()> {
        let fitter = self.fitter;
        let tally = self.tally;
        let Some(passes) = self.worker.passes.as_mut() else {
            return Ok(());
        };
        // The tally calls the user's progress function, although no other spectrum has ended.
        let mut report = |_| {
            if let Some(tally) = tally {
                tally.add_finished(0);
            }
        };
        let monitor = Monitor {
            cancel: tally.map_or(&NEVER_CANCELLED, RunProgress::cancel),
            progress: &mut report,
        };
        let spectra = ReadySpectra {
            model: &fitter.model,
            grids,
            spectra: ready,
            guess: None,
        };
        let scan = PosteriorScan {
            fitter,
            passes,
            spectra,
            monitor,
        };
        scan.write_posteriors(rows)
    }
}
