//! State of a run on its device: populations, and on GPUs a spectrum of known answer among those that enter.

use std::sync::atomic::AtomicBool;

use super::{Grids, Ready, Run, SpectralFitter, Tally};
use crate::error::Result;
use crate::fit::canary::Canary;
use crate::fit::posterior::Scan;
use crate::fit::row::FitRow;
use crate::fit::solve::Passes;
use crate::model::{ArmLayout, VelocityScan};
use crate::solver::Outcome;

impl Run<'_> {
    pub(super) fn make_resident(&mut self, layout: &[ArmLayout]) -> Result<()> {
        if self.resident.as_ref().is_some_and(|r| r.layout == layout) {
            return Ok(());
        }
        let SpectralFitter { model, shared, solver, precision, velocity_scan, .. } = self.fitter;
        // a GPU's memory, or what is left of it by a limit, is not shared for the few points that are looked at again
        let is_scarce = self.device.runs_wgsl() || self.memory.is_some();
        let looks = self.fitter.looks_past_folds() && !is_scarce;
        let evaluates = *velocity_scan == VelocityScan::Fixed || looks;
        self.resident = None; // frees its memory first
        // who says how much memory says how many
        let enough = if self.memory.is_some() { usize::MAX } else { self.device.enough() };
        // and the canary's
        let starts = self.fitter.usual_starts() * self.fitter.batch_on(&*self.device);
        let most = (starts.max(self.fitter.most_starts()) + 1).min(self.most).min(enough);
        let mut passes =
            Passes::new((model, shared), layout, &*self.device, (*solver, *precision, evaluates), (self.memory, most))?;
        if let Some(meter) = &self.meter {
            passes.measure(meter);
        }
        self.resident = Some(passes);
        Ok(())
    }

    /// Makes the canary of a device that runs WGSL, because drivers stand between such a device and its arithmetic. The
    /// one of the last batch is kept if it suits these spectra.
    pub(super) fn make_canary(&mut self, layout: &[ArmLayout], grids: &[Grids], place: usize) -> Result<()> {
        let known = self.canary.take().filter(|canary| canary.suits(layout, grids));
        self.canary = match known {
            Some(canary) => Some(canary),
            None if self.device.runs_wgsl() => Canary::new(self.fitter, layout, grids, place)?,
            None => None,
        };
        Ok(())
    }

    /// The outcomes of each spectrum's starts, of which `chunk` spectra enter together, and the spectra; an error where
    /// a canary among them is not well. `finished` spectra of the batch are done.
    pub(super) fn outcomes(
        &mut self,
        grids: &[Grids],
        mut ready: Vec<Ready>,
        (finished, chunk): (usize, usize),
    ) -> Result<(Vec<Ready>, Vec<Vec<Outcome>>)> {
        let count = ready.len();
        let canary = self.canary.take().filter(|_| self.device.runs_wgsl());
        let places = canary.as_ref().map_or_else(Vec::new, |canary| canary.join(&mut ready, chunk));
        let mut outcomes = self.population(grids, &ready, (finished, count))?;
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

    /// The outcomes of each spectrum's starts; none where the run was cancelled before it entered. `finished` spectra
    /// of the batch are done, and `count` are among those that enter.
    fn population(
        &mut self,
        grids: &[Grids],
        ready: &[Ready],
        (finished, count): (usize, usize),
    ) -> Result<Vec<Vec<Outcome>>> {
        let Some(resident) = self.resident.as_mut() else { return Ok(Vec::new()) };
        let (never, tally, told) = (AtomicBool::new(false), self.tally, &mut self.told);
        let cancel = tally.map_or(&never, Tally::cancel);
        let mut report = |share: f64| {
            let now = finished + (count as f64 * share) as usize;
            // told after every submission, of no news too
            if let Some(tally) = tally {
                tally.add(now.saturating_sub(*told) as u64);
                *told = now.max(*told);
            }
        };
        resident.solve(&self.fitter.model, grids, ready, (cancel, &mut report))
    }

    /// Scans the velocities of spectra that have been fitted; those that are not done when the run is cancelled count
    /// as interrupted.
    pub(super) fn scan(&mut self, grids: &[Grids], fitted: (&[Ready], &mut [FitRow])) -> Result<()> {
        let (never, tally, name) = (AtomicBool::new(false), self.tally, self.device.name());
        let canary = self.canary.as_ref().filter(|_| self.device.runs_wgsl()).map(|canary| (canary, &*name));
        let mut report = |_| {
            // of no news
            if let Some(tally) = tally {
                tally.add(0);
            }
        };
        let Some(passes) = self.resident.as_mut() else { return Ok(()) };
        let watched = (tally.map_or(&never, Tally::cancel), &mut report as &mut dyn FnMut(f64));
        Scan { fitter: self.fitter, passes, grids, canary, watched }.run(fitted)
    }
}
