//! Populations of a run on its device, and the spectra that go through them.

use std::sync::atomic::Ordering;

use super::{Grids, ReadySpectrum, Run, RunProgress, SpectralFitter};
use crate::error::Result;
use crate::model::{ArmLayout, VelocityScan};
use crate::solver::Outcome;
use crate::spectral::input::ready::{Monitor, NEVER, ReadySpectra};
use crate::spectral::results::row::FitRow;
use crate::spectral::search::pass::PassSettings;
use crate::spectral::search::posterior::Scan;
use crate::spectral::search::solve::Passes;

impl Run<'_> {
    /// Makes the device's populations for spectra of this layout, unless those of the workspace are for it.
    pub(super) fn make_passes(&mut self, layout: &[ArmLayout]) -> Result<()> {
        let SpectralFitter {
            model,
            shared,
            solver,
            precision,
            velocity_scan,
            ..
        } = self.fitter;
        // 1. A GPU's memory, or a limited one, is not divided for the few points of the checks for folds.
        let is_scarce = self.device.runs_wgsl() || self.memory.is_some();
        let probes = self.fitter.adds_starts() && !is_scarce;
        let has_evaluation = *velocity_scan == VelocityScan::Fixed || probes;
        // 2. There are as many starts as the batches of all workers that share a population have.
        let workers = if self.device.shares_populations() {
            self.sharing
        } else {
            1
        };
        let starts = self.usual_starts * self.fitter.batch_on(&*self.device) * workers;
        let max_in_flight = self
            .seat
            .borrowed
            .workspace
            .most
            .load(Ordering::Relaxed)
            .min(self.device.enough());
        let max_starts = starts.max(self.fitter.most_starts()).min(max_in_flight);
        let (solver, precision) = (*solver, *precision);
        // a worker that is alone leaves half of the device to others
        let of_device = || Some(self.device.memory()? / if self.sharing == 1 { 2 } else { 1 });
        let memory = self
            .memory
            .or_else(of_device)
            .map(|bytes| bytes / (self.sharing / workers) as u64);
        let settings = PassSettings {
            solver,
            precision,
            has_evaluation,
            memory,
            workers,
            max_starts,
        };
        // 3. Those of the last spectra are kept, or freed before others are made.
        let mut kept = self
            .seat
            .passes
            .take()
            .filter(|passes| passes.is_for(layout, settings));
        if kept.is_none() {
            kept = self.seat.take_passes(layout, settings);
        }
        let made = &self.seat.borrowed.workspace.populations;
        let make = || Passes::new(model, shared, layout, &*self.device, made, settings);
        let passes = kept.map_or_else(make, Ok)?;
        self.meter.iter().for_each(|meter| passes.measure(meter));
        self.seat.passes = Some(passes);
        Ok(())
    }

    /// Fits spectra and returns each one's outcomes. `finished` spectra of the batch already have their rows, and
    /// progress is reported in addition to them.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) if a spot check finds a GPU's results wrong.
    pub(super) fn outcomes(
        &mut self,
        grids: &[Grids],
        ready: &[ReadySpectrum],
        finished: usize,
    ) -> Result<Vec<Vec<Outcome>>> {
        let Some(passes) = self.seat.passes.as_mut() else {
            return Ok(Vec::new());
        };
        let guess = self.fitter.shared.library();
        let spectra = ReadySpectra {
            model: &self.fitter.model,
            grids,
            spectra: ready,
            guess,
        };
        let Some(tally) = self.tally else {
            return passes.solve(
                spectra,
                Monitor {
                    cancel: &NEVER,
                    progress: &mut |_| {},
                },
            );
        };
        let (reported, count) = (&mut self.reported, ready.len());
        // The tally calls the progress function after every submission, even without a new spectrum.
        let mut report = |share: f64| {
            let now = finished + (count as f64 * share) as usize;
            tally.add_finished(now.saturating_sub(*reported) as u64);
            *reported = now.max(*reported);
        };
        passes.solve(
            spectra,
            Monitor {
                cancel: tally.cancel(),
                progress: &mut report,
            },
        )
    }

    /// Scans the objective around the velocities of fitted spectra and writes the posteriors into their rows. If the
    /// run is cancelled, those that are not scanned become interrupted.
    pub(super) fn scan(
        &mut self,
        grids: &[Grids],
        ready: &[ReadySpectrum],
        rows: &mut [FitRow],
    ) -> Result<()> {
        let (fitter, tally) = (self.fitter, self.tally);
        let Some(passes) = self.seat.passes.as_mut() else {
            return Ok(());
        };
        // The progress function is called without a new spectrum.
        let mut report = |_| tally.into_iter().for_each(|tally| tally.add_finished(0));
        let monitor = Monitor {
            cancel: tally.map_or(&NEVER, RunProgress::cancel),
            progress: &mut report,
        };
        let spectra = ReadySpectra {
            model: &fitter.model,
            grids,
            spectra: ready,
            guess: None,
        };
        Scan {
            fitter,
            passes,
            spectra,
            monitor,
        }
        .run(rows)
    }
}
