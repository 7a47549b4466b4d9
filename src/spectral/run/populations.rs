//! State of a run on its device: the populations, and on GPUs a canary among the spectra.

use super::{Grids, ReadySpectrum, Run, SpectralFitter, Tally};
use crate::error::Result;
use crate::model::{ArmLayout, VelocityScan};
use crate::solver::Outcome;
use crate::spectral::input::ready::{Monitor, NEVER, ReadySpectra};
use crate::spectral::results::row::FitRow;
use crate::spectral::search::canary::Canary;
use crate::spectral::search::pass::PassSettings;
use crate::spectral::search::posterior::Scan;
use crate::spectral::search::solve::Passes;

impl Run<'_> {
    /// Makes the device's populations for spectra of this layout, unless those that the run has are for it.
    pub(super) fn make_resident(&mut self, layout: &[ArmLayout]) -> Result<()> {
        if self.resident.as_ref().is_some_and(|r| r.layout == layout) {
            return Ok(());
        }
        let SpectralFitter { model, shared, solver, precision, velocity_scan, .. } = self.fitter;
        // 1. A GPU's memory, or a limited one, is not divided for the few points of the checks for folds.
        let is_scarce = self.device.runs_wgsl() || self.memory.is_some();
        let probes = self.fitter.adds_starts() && !is_scarce;
        let has_evaluation = *velocity_scan == VelocityScan::Fixed || probes;
        // 2. There are as many starts as a batch has, and one for a canary. If the user limits the memory, that alone
        //    limits their number.
        let enough = if self.memory.is_some() { usize::MAX } else { self.device.enough() };
        let starts = self.usual_starts * self.fitter.batch_on(&*self.device);
        let max_starts = (starts.max(self.fitter.most_starts()) + 1).min(self.most).min(enough);
        // 3. The memory of the last populations is freed first.
        self.resident = None;
        let (solver, precision) = (*solver, *precision);
        let share = || Some(self.device.memory()? / self.sharing.max(2) as u64);
        let memory = self.memory.or_else(share);
        let settings = PassSettings { solver, precision, has_evaluation, memory, max_starts };
        let mut passes = Passes::new(model, shared, layout, &*self.device, settings)?;
        if let Some(meter) = &self.meter {
            passes.measure(meter);
        }
        self.resident = Some(passes);
        Ok(())
    }

    /// Makes the canary, a spectrum of known answer that checks a GPU, unless the run has one that suits these spectra.
    pub(super) fn make_canary(&mut self, layout: &[ArmLayout], grids: &[Grids], place: usize) -> Result<()> {
        let known = self.canary.take().filter(|canary| canary.suits(layout, grids));
        self.canary = match known {
            Some(canary) => Some(canary),
            None if self.device.runs_wgsl() => Canary::new(self.fitter, layout, grids, place)?,
            None => None,
        };
        Ok(())
    }

    /// Fits spectra, on a GPU with canaries among them, and returns them with the outcomes of their starts; a wrong
    /// canary is an error. `chunk` spectra enter together, and `finished` spectra of the batch already have their rows.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) if a canary among them is wrong.
    pub(super) fn outcomes(
        &mut self,
        grids: &[Grids],
        mut ready: Vec<ReadySpectrum>,
        finished: usize,
        chunk: usize,
    ) -> Result<(Vec<ReadySpectrum>, Vec<Vec<Outcome>>)> {
        let count = ready.len();
        let canary = self.canary.take().filter(|_| self.device.runs_wgsl());
        let places = canary.as_ref().map_or_else(Vec::new, |canary| canary.join(&mut ready, chunk));
        let mut outcomes = self.solve(grids, &ready, finished, count)?;
        for &place in places.iter().rev() {
            ready.remove(place);
            let own = outcomes.remove(place);
            if let Some(canary) = &canary {
                canary.judge(self.fitter, &self.device.name(), &own, self.is_cancelled())?;
            }
        }
        self.canary = canary;
        Ok((ready, outcomes))
    }

    /// Fits spectra, canaries included, and reports progress as `finished` plus a share of `count`; returns each
    /// spectrum's outcomes. `finished` spectra of the batch already have their rows, and `count` of those that enter
    /// are no canaries.
    fn solve(
        &mut self,
        grids: &[Grids],
        ready: &[ReadySpectrum],
        finished: usize,
        count: usize,
    ) -> Result<Vec<Vec<Outcome>>> {
        let Some(resident) = self.resident.as_mut() else { return Ok(Vec::new()) };
        let guess = self.fitter.shared.library();
        let spectra = ReadySpectra { model: &self.fitter.model, grids, spectra: ready, guess };
        let Some(tally) = self.tally else {
            return resident.solve(spectra, Monitor { cancel: &NEVER, progress: &mut |_| {} });
        };
        let reported = &mut self.reported;
        // The tally calls the progress function after every submission, even without a new spectrum.
        let mut report = |share: f64| {
            let now = finished + (count as f64 * share) as usize;
            tally.add(now.saturating_sub(*reported) as u64);
            *reported = now.max(*reported);
        };
        resident.solve(spectra, Monitor { cancel: tally.cancel(), progress: &mut report })
    }

    /// Scans the objective around the velocities of fitted spectra and writes the posteriors into their rows. If the
    /// run is cancelled, those that are not scanned become interrupted.
    pub(super) fn scan(&mut self, grids: &[Grids], ready: &[ReadySpectrum], rows: &mut [FitRow]) -> Result<()> {
        let (fitter, tally, device) = (self.fitter, self.tally, self.device.name());
        let canary = self.canary.as_ref().filter(|_| self.device.runs_wgsl());
        let Some(passes) = self.resident.as_mut() else { return Ok(()) };
        // The progress function is called without a new spectrum.
        let mut report = |_| tally.into_iter().for_each(|tally| tally.add(0));
        let monitor = Monitor { cancel: tally.map_or(&NEVER, Tally::cancel), progress: &mut report };
        let spectra = ReadySpectra { model: &fitter.model, grids, spectra: ready, guess: None };
        Scan { fitter, passes, spectra, canary, device: &device, monitor }.run(rows)
    }
}
