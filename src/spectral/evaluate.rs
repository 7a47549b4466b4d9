//! The objective of spectra at given parameters, and their first guess: intermediate results of a fit, computed without
//! one.

use std::borrow::Cow;
use std::sync::Arc;

use rayon::prelude::*;

use crate::device::retry::Attempts;
use crate::error::{Error, Result};
use crate::first_guess::FirstGuess;
use crate::math::triangle::packed_index;
use crate::model::{Cause, Motion, Prepared, SpectrumFault};
use crate::solver::Outcome;
use crate::spectra::{ArmSpectra, Spectra};
use crate::spectral::SpectralFitter;
use crate::spectral::input::assemble::{match_arms, prepare_spectra, prepare_spectrum_of_batch};
use crate::spectral::input::given::to_physical;
use crate::spectral::input::guess::GuessedSpectrum;
use crate::spectral::input::layout::{lay_out_arms, mark_own_bases};
use crate::spectral::input::limits::LimitColumns;
use crate::spectral::input::reading::{require_known_errors, require_single_exposures};
use crate::spectral::input::ready::{Grids, ReadySpectrum};
use crate::spectral::inspect::make_ready_spectrum;
use crate::spectral::results::blank::{bad_spectrum_error, blank_row};
use crate::spectral::run::SpectralRun;
use crate::spectral::run::evaluation::EvaluatedPoints;
use crate::threads;

/// The objective of n spectra at one point each, from [`SpectralFitter::objective`]. P is the number of parameters.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Objectives {
    /// (n): χ² of the pixels, or the sum of a robust loss.
    pub chi2: Vec<f64>,
    /// (n): χ² with the penalties of priors and training hulls and, if the model marginalises over the continuum, the
    /// terms of that. It is the objective in the row of a fit.
    pub objective: Vec<f64>,
    /// (n, P): derivatives of χ² and penalties by the parameters, in physical units. The terms of marginalisation are
    /// left out. Empty unless asked for.
    pub gradient: Vec<f64>,
    /// (n, P, P): normal matrices JᵀJ of the weighted residuals, in physical units. The inverse is the covariance of a
    /// least-squares fit that ends there. Empty unless asked for.
    pub normal_matrix: Vec<f64>,
    /// (n): the reason why a spectrum has no objective, in which case its numbers are NaN; empty for the others.
    pub messages: Vec<String>,
}

impl Objectives {
    /// Returns objectives that are all missing (NaN), one per message, with derivatives by `parameters` parameters if
    /// asked for.
    pub(super) fn missing(
        messages: Vec<String>,
        parameters: usize,
        derivatives: bool,
    ) -> Objectives {
        let count = messages.len();
        let derivative_rows = if derivatives { count } else { 0 };
        Objectives {
            chi2: vec![f64::NAN; count],
            objective: vec![f64::NAN; count],
            gradient: vec![f64::NAN; derivative_rows * parameters],
            normal_matrix: vec![f64::NAN; derivative_rows * parameters * parameters],
            messages,
        }
    }
}

/// The first guess of a spectrum, from [`SpectralFitter::guess`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Guess {
    /// The points from which a fit would start, the one of the lowest objective first.
    pub starts: Vec<GuessedStart>,
    /// The reason why there is no start; empty if there are any.
    pub message: String,
}

/// A point from which a fit would start.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GuessedStart {
    /// (P), in physical units.
    pub parameters: Vec<f64>,
    /// χ² of the pixels there, as in [`Objectives`].
    pub chi2: f64,
    /// The fit's objective there.
    pub objective: f64,
}

impl SpectralFitter {
    /// Computes the objective of each spectrum at its parameters (spectra, parameters), which are in physical units and
    /// in the order of [`parameters`](SpectralFitter::parameters), with `derivatives` if they are asked for, on the
    /// fitter's first device. Bounds do not act. The pixels that count are those of a fit that ends there, so that the
    /// parameters of a row give its χ² and objective. All exposures of an object have the velocity of its parameters.
    ///
    /// # Errors
    /// Returns the errors of [`fit`](SpectralFitter::fit) for its settings, the arms and their wavelengths, and
    /// [`Error::ShapeMismatch`] for another number of parameters. A spectrum that cannot be fitted has a message, or is
    /// [`Error::BadSpectrum`] if the fitter is [strict](SpectralFitter::strict).
    pub fn objective(
        &self,
        spectra: &Spectra,
        parameters: &[f64],
        derivatives: bool,
    ) -> Result<Objectives> {
        let model = &self.model;
        require_known_errors(model)?;
        let width = model.parameters.len();
        let count = spectra.len();
        if parameters.len() != count * width {
            let values = parameters.len();
            let message = format!("{values} values, expected {count} spectra × {width} parameters");
            return Err(Error::mismatch("parameters", message).naming("parameters"));
        }
        if spectra.exposures.is_some() {
            return self.objective_of_exposures(spectra, parameters, derivatives);
        }
        let mut matched = MatchedSpectra::new(self, spectra)?;
        // 1. Prepare each spectrum with the pixels that count at its point.
        let points = parameters.par_chunks_exact(width).enumerate();
        let prepared: Vec<Result<ReadySpectrum, SpectrumFault>> = threads::in_pool(|| {
            points
                .map(|(place, physical)| matched.prepare_at(place, physical))
                .collect()
        });
        let (ready, messages) = self.separate_faults(spectra, prepared)?;
        // 2. Evaluate all of them.
        let outcomes = matched.evaluate(&ready, derivatives)?;
        // 3. Write the numbers to the places of the spectra. NaN stands for those without an objective.
        let mut objectives = Objectives::missing(messages, width, derivatives);
        let scale = |p: usize| model.parameters[p].solver.scale;
        for (spectrum, outcome) in ready.iter().zip(&outcomes) {
            let place = spectrum.place;
            objectives.chi2[place] = outcome.chi2;
            objectives.objective[place] = self.row_builder().objective(outcome, &spectrum.prepared);
            if !derivatives {
                continue;
            }
            for p in 0..width {
                // The solver's gradient is −½ of the derivatives by u.
                objectives.gradient[place * width + p] = -2.0 * outcome.gradient[p] / scale(p);
                for q in 0..width {
                    let element = outcome.normal_matrix[packed_index(p, q)];
                    objectives.normal_matrix[(place * width + p) * width + q] =
                        element / (scale(p) * scale(q));
                }
            }
        }
        Ok(objectives)
    }

    /// Finds the points from which a fit of each spectrum would start, and computes their objective on the fitter's
    /// first device.
    ///
    /// # Errors
    /// Returns the errors of [`fit`](SpectralFitter::fit) for its settings, the model, the arms and their wavelengths.
    /// A spectrum that cannot be fitted has a message, or is [`Error::BadSpectrum`] if the fitter is
    /// [strict](SpectralFitter::strict).
    pub fn guess(&self, spectra: &Spectra) -> Result<Vec<Guess>> {
        let mut matched = MatchedSpectra::new(self, spectra)?;
        let first_guess = self.first_guess()?;
        // 1. Find the starts.
        let prepared = prepare_spectra(&self.model, &matched.arms, &matched.grids, spectra.len());
        let started: Vec<Result<ReadySpectrum, SpectrumFault>> = threads::in_pool(|| {
            prepared
                .into_par_iter()
                .enumerate()
                .map(|(place, prepared)| matched.guess_starts(place, prepared, first_guess))
                .collect()
        });
        let (ready, messages) = self.separate_faults(spectra, started)?;
        // 2. Evaluate each start as a spectrum of its own, because starts of one spectrum would stop each other.
        let mut points: Vec<ReadySpectrum> = Vec::new();
        for spectrum in &ready {
            for start in &spectrum.starts {
                points.push(make_ready_spectrum(
                    spectrum.place,
                    start.u.clone(),
                    &spectrum.limits,
                    spectrum.prepared.clone(),
                ));
            }
        }
        let outcomes = matched.evaluate(&points, false)?;
        // 3. Sort the starts of each spectrum by their objectives.
        let mut guesses: Vec<Guess> = messages
            .into_iter()
            .map(|message| Guess {
                starts: Vec::new(),
                message,
            })
            .collect();
        for (point, outcome) in points.iter().zip(outcomes) {
            guesses[point.place].starts.push(GuessedStart {
                parameters: to_physical(&self.model, &point.starts[0]),
                chi2: outcome.chi2,
                objective: self.row_builder().objective(&outcome, &point.prepared),
            });
        }
        for guess in &mut guesses {
            guess
                .starts
                .sort_by(|a, b| a.objective.total_cmp(&b.objective));
        }
        Ok(guesses)
    }

    /// Separates the spectra that can be fitted from the messages of those that cannot. The message of a spectrum that
    /// can be fitted is empty. The first fault is an error if the fitter is strict.
    fn separate_faults(
        &self,
        spectra: &Spectra,
        results: Vec<Result<ReadySpectrum, SpectrumFault>>,
    ) -> Result<(Vec<ReadySpectrum>, Vec<String>)> {
        let mut ready = Vec::with_capacity(results.len());
        let mut messages = vec![String::new(); results.len()];
        for (place, result) in results.into_iter().enumerate() {
            match result {
                Ok(spectrum) => ready.push(spectrum),
                Err(fault) if self.strict => {
                    return Err(bad_spectrum_error(
                        &blank_row(&self.model, spectra, place),
                        &fault,
                    ));
                }
                Err(fault) => messages[place] = format!("{}: {}", fault.cause.name(), fault.detail),
            }
        }
        Ok((ready, messages))
    }
}

/// Spectra matched to the arms of a fitter's model, with the samplings of their grids and the columns of their limits.
struct MatchedSpectra<'s> {
    run: SpectralRun<'s>,
    arms: Vec<Cow<'s, ArmSpectra<'s>>>,
    grids: Vec<Grids>,
    limit_columns: LimitColumns<'s>,
}

impl<'s> MatchedSpectra<'s> {
    /// Checks the fitter's settings, and matches the spectra to its model.
    fn new(fitter: &'s SpectralFitter, spectra: &'s Spectra<'s>) -> Result<MatchedSpectra<'s>> {
        require_single_exposures(spectra)?;
        let mut run = fitter.make_run()?;
        let arms = match_arms(&fitter.model, spectra)?;
        let grids = run.sample_grids(&arms, spectra)?;
        let limit_columns = LimitColumns::new(&fitter.model, spectra)?;
        Ok(MatchedSpectra {
            run,
            arms,
            grids,
            limit_columns,
        })
    }

    /// Prepares the spectrum at `place` with the pixels that count at parameters in physical units, where it starts.
    fn prepare_at(&self, place: usize, physical: &[f64]) -> Result<ReadySpectrum, SpectrumFault> {
        let model = &self.run.fitter.model;
        if let Some(p) = physical.iter().position(|value| !value.is_finite()) {
            let detail = format!("{} is {}", model.parameters[p].solver.name, physical[p]);
            return Err(SpectrumFault {
                cause: Cause::BadStart,
                detail,
            });
        }
        let u: Vec<f64> = model
            .parameters
            .iter()
            .zip(physical)
            .map(|(parameter, value)| parameter.to_u(*value))
            .collect();
        let limits = self.limit_columns.read_limits(place)?;
        let motion = Motion::around(model, &u, &limits);
        let prepared =
            prepare_spectrum_of_batch(model, &self.arms, &self.grids, place, Some(&motion), &[])?;
        Ok(make_ready_spectrum(place, u, &limits, prepared.into()))
    }

    /// Finds the starts of the prepared spectrum at `place`.
    fn guess_starts(
        &self,
        place: usize,
        prepared: Result<Prepared, SpectrumFault>,
        first_guess: &FirstGuess,
    ) -> Result<ReadySpectrum, SpectrumFault> {
        let limits = self.limit_columns.read_limits(place)?;
        let fitter = self.run.fitter;
        let spectrum = GuessedSpectrum {
            model: &fitter.model,
            arms: &self.arms,
            grids: &self.grids,
            place,
            limits: &limits,
            guess: first_guess,
            count: fitter.starts,
        };
        let (prepared, starts) = spectrum.guess_starts(prepared?)?;
        Ok(ReadySpectrum {
            place,
            prepared: Arc::new(prepared),
            limits,
            starts,
            may_add_starts: false,
        })
    }

    /// Evaluates prepared spectra at their starts, one each, on the fitter's first device, and returns their outcomes.
    /// If the device fails, it is renewed or replaced as in a fit.
    fn evaluate(&mut self, ready: &[ReadySpectrum], derivatives: bool) -> Result<Vec<Outcome>> {
        let fitter = self.run.fitter;
        let layout = mark_own_bases(
            lay_out_arms(&fitter.model, &self.arms, &self.grids),
            ready.iter().map(|spectrum| &*spectrum.prepared),
        );
        let mut device = fitter.device.inner.clone();
        let mut attempts = Attempts::default();
        loop {
            let points = EvaluatedPoints {
                layout: &layout,
                grids: &self.grids,
                ready,
                derivatives,
            };
            match self.run.evaluate_on(&*device, fitter.max_memory, points) {
                Err(failure) => {
                    device = attempts.next_device(&device, failure, fitter.may_use_cpu())?
                }
                outcomes => return outcomes,
            }
        }
    }
}
