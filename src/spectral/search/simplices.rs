//! Evaluations by a device for simplex searches over spectra.

use crate::error::Result;
use crate::solver::Outcome;
use crate::solver::search::{FitSearch, Machine, SearchFit};
use crate::spectral::input::ready::{Monitor, ReadySpectra, StartPoints};
use crate::spectral::search::pass::SpectralPass;
use crate::spectral::search::waiting::WaitingSpectra;

/// The passes of a simplex search, and its spectra.
pub struct SpectralSearch<'a, 'w> {
    pub linearise: &'a mut SpectralPass,
    pub evaluate: &'a mut SpectralPass,
    pub spectra: ReadySpectra<'a>,
    pub starts: Vec<StartPoints>,
    pub monitor: Monitor<'w>,
}

impl SpectralSearch<'_, '_> {
    /// Returns one fit per start: the start, clamped to its spectrum's bounds, and these bounds, in the solver's units.
    pub fn list_fits(&self) -> Vec<SearchFit> {
        let ReadySpectra { model, spectra, .. } = self.spectra;
        let mut fits = Vec::new();
        for (spectrum, starts) in spectra.iter().zip(&self.starts) {
            let (lower, upper): (Vec<f64>, Vec<f64>) = model
                .parameters
                .iter()
                .zip(&spectrum.limits)
                .map(|(parameter, limits)| {
                    (parameter.to_u(limits.lower), parameter.to_u(limits.upper))
                })
                .unzip();
            for start in starts {
                let bounds = lower.iter().zip(&upper);
                let start = start
                    .iter()
                    .zip(bounds)
                    .map(|(u, (lower, upper))| u.clamp(*lower, *upper))
                    .collect();
                fits.push(SearchFit {
                    start,
                    lower: lower.clone(),
                    upper: upper.clone(),
                    rounding: 0.0,
                    points: 0,
                });
            }
        }
        fits
    }
}

impl Machine for SpectralSearch<'_, '_> {
    fn linearise(&mut self) -> Result<Vec<Outcome>> {
        let mut outcomes = self
            .linearise
            .evaluate(self.spectra, &self.starts)?
            .concat();
        if !self.spectra.model.marginalise {
            for outcome in &mut outcomes {
                outcome.ln_det = 0.0;
            }
        }
        Ok(outcomes)
    }

    fn evaluate(&mut self, searches: Vec<FitSearch>) -> Result<Vec<FitSearch>> {
        // 1. Sort the searches by spectrum.
        let total = searches.len().max(1);
        let mut searches = searches.into_iter();
        let searches_of_spectrum = self
            .starts
            .iter()
            .map(|starts| searches.by_ref().take(starts.len()).collect())
            .collect();
        // 2. Evaluate their points until all have ended.
        let Monitor { cancel, progress } = &mut self.monitor;
        let mut report = |remaining: usize| progress(1.0 - remaining as f64 / total as f64);
        let waiting = WaitingSpectra::with_searches(
            self.evaluate.objective.clone(),
            self.spectra,
            searches_of_spectrum,
        );
        let finished = self
            .evaluate
            .run_waiting(waiting, self.spectra, cancel, &mut report)?;
        Ok(finished.searches.into_iter().flatten().collect())
    }
}
