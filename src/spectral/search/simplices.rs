//! Evaluations by a device for simplex searches over spectra.

use crate::error::Result;
use crate::solver::Outcome;
use crate::solver::search::{Begin, FitPoints, Machine, SearchFit};
use crate::solver::simplex::FirstSimplex;
use crate::spectral::input::ready::{Monitor, ReadySpectra, StartPoints};
use crate::spectral::search::pass::SpectralPass;
use crate::spectral::search::waiting::WaitingSpectra;

/// Share of the progress that the first round of searches makes.
const PROGRESS_OF_FIRST_SEARCHES: f64 = 0.8;

/// The passes of a simplex search, and its spectra.
pub struct SpectralSearch<'a, 'w> {
    pub linearise: &'a mut SpectralPass,
    pub simplex: &'a mut SpectralPass,
    pub evaluate: &'a mut SpectralPass,
    pub spectra: ReadySpectra<'a>,
    pub starts: Vec<StartPoints>,
    pub monitor: Monitor<'w>,
    /// Index of the spectrum of each fit.
    spectrum_of_fit: Vec<usize>,
    /// Number of calls of `search`.
    searches: u32,
}

impl<'a, 'w> SpectralSearch<'a, 'w> {
    /// Returns a search from these starts of each spectrum. `passes` linearise, move simplices, and evaluate.
    pub fn new(
        passes: [&'a mut SpectralPass; 3],
        spectra: ReadySpectra<'a>,
        starts: Vec<StartPoints>,
        monitor: Monitor<'w>,
    ) -> SpectralSearch<'a, 'w> {
        let [linearise, simplex, evaluate] = passes;
        let spectrum_of_fit = starts
            .iter()
            .enumerate()
            .flat_map(|(spectrum, points)| vec![spectrum; points.len()])
            .collect();
        SpectralSearch {
            linearise,
            simplex,
            evaluate,
            spectra,
            starts,
            monitor,
            spectrum_of_fit,
            searches: 0,
        }
    }

    /// Returns one fit per start: the start, clamped to its spectrum's bounds, and these bounds, in the solver's units.
    pub fn list_fits(&self) -> Vec<SearchFit> {
        let ReadySpectra { model, spectra, .. } = self.spectra;
        let mut fits = Vec::with_capacity(self.spectrum_of_fit.len());
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

    fn search(&mut self, begins: Vec<Begin>) -> Result<Vec<Option<Outcome>>> {
        // 1. Sort the starts and the first simplices by spectrum.
        let mut starts: Vec<StartPoints> = vec![Vec::new(); self.starts.len()];
        let mut simplices: Vec<Vec<Option<FirstSimplex>>> = vec![Vec::new(); self.starts.len()];
        let mut spectrum_of_begin: Vec<usize> = Vec::with_capacity(begins.len());
        for begin in begins {
            let spectrum = self.spectrum_of_fit[begin.fit];
            spectrum_of_begin.push(spectrum);
            starts[spectrum].push(begin.start);
            simplices[spectrum].push(begin.simplex);
        }
        // 2. The first searches take most of the time, so later ones do not move the progress on.
        let is_first = self.searches == 0;
        self.searches += 1;
        let progress_before = if is_first {
            0.0
        } else {
            PROGRESS_OF_FIRST_SEARCHES
        };
        let progress_share = if is_first {
            PROGRESS_OF_FIRST_SEARCHES
        } else {
            0.0
        };
        let lanes = self.simplex.population.lanes;
        let members = starts.iter().map(Vec::len).sum::<usize>() * lanes;
        let Monitor { cancel, progress } = &mut self.monitor;
        let mut report = |remaining: usize| {
            let finished_share = 1.0 - remaining as f64 / members.max(1) as f64;
            progress(progress_before + progress_share * finished_share);
        };
        // 3. Move the simplices.
        let mut waiting = WaitingSpectra::new(self.simplex.objective.clone(), self.spectra, starts);
        waiting.simplices = simplices;
        let outcomes = self
            .simplex
            .run_waiting(waiting, self.spectra, cancel, &mut report)?;
        // 4. Return the outcomes in the order of the request. A cancelled spectrum has none.
        let mut outcomes: Vec<_> = outcomes.into_iter().map(Vec::into_iter).collect();
        Ok(spectrum_of_begin
            .into_iter()
            .map(|spectrum| outcomes[spectrum].next())
            .collect())
    }

    fn evaluate(&mut self, points: Vec<FitPoints>) -> Result<Vec<Vec<f64>>> {
        // 1. Sort the points by spectrum, and evaluate the objective there.
        let parameters = self.spectra.model.parameters.len().max(1);
        let mut points_of_spectrum: Vec<StartPoints> = vec![Vec::new(); self.starts.len()];
        for points_of_fit in &points {
            let spectrum = self.spectrum_of_fit[points_of_fit.fit];
            let rows = points_of_fit.points.chunks_exact(parameters);
            points_of_spectrum[spectrum].extend(rows.map(<[f64]>::to_vec));
        }
        let outcomes = self.evaluate.evaluate(self.spectra, &points_of_spectrum)?;
        // 2. Return the objectives, sorted by fit again.
        let marginalise = self.spectra.model.marginalise;
        let mut remaining: Vec<_> = outcomes.into_iter().map(Vec::into_iter).collect();
        let mut objectives = Vec::with_capacity(points.len());
        for points_of_fit in &points {
            let spectrum = self.spectrum_of_fit[points_of_fit.fit];
            let count = points_of_fit.points.len() / parameters;
            let outcomes_of_fit = remaining[spectrum].by_ref().take(count);
            objectives.push(
                outcomes_of_fit
                    .map(|outcome| outcome.objective(marginalise))
                    .collect(),
            );
        }
        Ok(objectives)
    }
}
