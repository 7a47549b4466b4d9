//! Evaluations by a device for simplex searches over spectra.

use crate::error::Result;
use crate::solver::Outcome;
use crate::solver::search::{Begin, FitPoints, Machine, SearchFit};
use crate::solver::simplex::FirstSimplex;
use crate::spectral::input::ready::{Monitor, ReadySpectra, Starts};
use crate::spectral::search::pass::Pass;
use crate::spectral::search::waiting::Waiting;

/// Share of the time that the first searches take.
const FIRST: f64 = 0.8;

/// The passes of a simplex search, and its spectra.
pub struct SpectralSearch<'a, 'w> {
    pub linearise: &'a mut Pass,
    pub simplex: &'a mut Pass,
    pub evaluate: &'a mut Pass,
    pub spectra: ReadySpectra<'a>,
    pub starts: Vec<Starts>,
    pub monitor: Monitor<'w>,
    /// Index of the spectrum of each fit.
    of_fit: Vec<usize>,
    /// Number of searches so far.
    searches: u32,
}

impl<'a, 'w> SpectralSearch<'a, 'w> {
    /// Returns a search from these starts of each spectrum. `passes` linearise, move simplices, and evaluate.
    pub fn new(
        passes: [&'a mut Pass; 3],
        spectra: ReadySpectra<'a>,
        starts: Vec<Starts>,
        monitor: Monitor<'w>,
    ) -> SpectralSearch<'a, 'w> {
        let [linearise, simplex, evaluate] = passes;
        let of_fit = starts
            .iter()
            .enumerate()
            .flat_map(|(s, own)| vec![s; own.len()])
            .collect();
        SpectralSearch {
            linearise,
            simplex,
            evaluate,
            spectra,
            starts,
            monitor,
            of_fit,
            searches: 0,
        }
    }

    /// Returns one search per start: the start, clamped to its spectrum's bounds, and these, in the solver's units.
    pub fn fits(&self) -> Vec<SearchFit> {
        let ReadySpectra { model, spectra, .. } = self.spectra;
        let mut fits = Vec::with_capacity(self.of_fit.len());
        for (one, starts) in spectra.iter().zip(&self.starts) {
            let bounds = model.parameters.iter().zip(&one.limits);
            let (lower, upper): (Vec<f64>, Vec<f64>) = bounds
                .map(|(p, limits)| (p.to_u(limits.lower), p.to_u(limits.upper)))
                .unzip();
            for start in starts {
                let limited = start.iter().zip(lower.iter().zip(&upper));
                let start = limited
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
        let mut all = self
            .linearise
            .evaluate(self.spectra, &self.starts)?
            .concat();
        if !self.spectra.model.marginalise {
            all.iter_mut().for_each(|outcome| outcome.ln_det = 0.0);
        }
        Ok(all)
    }

    fn search(&mut self, begins: Vec<Begin>) -> Result<Vec<Option<Outcome>>> {
        let mut starts: Vec<Starts> = vec![Vec::new(); self.starts.len()];
        let mut simplices: Vec<Vec<Option<FirstSimplex>>> = vec![Vec::new(); self.starts.len()];
        let counts: Vec<usize> = begins.iter().map(|begin| self.of_fit[begin.fit]).collect();
        for begin in begins {
            let spectrum = self.of_fit[begin.fit];
            starts[spectrum].push(begin.start);
            simplices[spectrum].push(begin.simplex);
        }
        let (done, share) = if self.searches == 0 {
            (0.0, FIRST)
        } else {
            (FIRST, 0.0)
        };
        self.searches += 1;
        let lanes = self.simplex.population.lanes;
        let members = starts.iter().map(Vec::len).sum::<usize>() * lanes;
        let Monitor { cancel, progress } = &mut self.monitor;
        let mut report =
            |left: usize| progress(done + share * (1.0 - left as f64 / members.max(1) as f64));
        let mut waiting = Waiting::new(self.simplex.objective.clone(), self.spectra, starts);
        waiting.simplices = simplices;
        let found = self
            .simplex
            .run_waiting(waiting, self.spectra, cancel, &mut report)?;
        let mut outcomes: Vec<_> = found.into_iter().map(Vec::into_iter).collect();
        Ok(counts
            .into_iter()
            .map(|spectrum| outcomes[spectrum].next())
            .collect())
    }

    fn evaluate(&mut self, points: Vec<FitPoints>) -> Result<Vec<Vec<f64>>> {
        let width = self.spectra.model.parameters.len().max(1);
        let mut points_of: Vec<Starts> = vec![Vec::new(); self.starts.len()];
        for asked in &points {
            points_of[self.of_fit[asked.fit]]
                .extend(asked.points.chunks_exact(width).map(<[f64]>::to_vec));
        }
        let marginalise = self.spectra.model.marginalise;
        let outcomes = self.evaluate.evaluate(self.spectra, &points_of)?;
        let objectives = |own: Vec<Outcome>| {
            own.into_iter()
                .map(|outcome| outcome.objective(marginalise))
        };
        let mut values: Vec<_> = outcomes.into_iter().map(objectives).collect();
        let own = |asked: &FitPoints| {
            values[self.of_fit[asked.fit]]
                .by_ref()
                .take(asked.points.len() / width)
                .collect()
        };
        Ok(points.iter().map(own).collect())
    }
}
