//! The objective of spectra at given parameters, and their first guess: what a fit computes on its way, without a fit.

use std::borrow::Cow;
use std::sync::Arc;

use rayon::prelude::*;

use crate::device::retry::Attempts;
use crate::error::{Error, Result};
use crate::math::triangle::packed_index;
use crate::model::{Cause, Fault, Motion};
use crate::solver::{Batch, Device, LevenbergMarquardt, Method, Outcome};
use crate::spectra::{ArmSpectra, Spectra};
use crate::spectral::SpectralFitter;
use crate::spectral::input::assemble::{assemble, matched, prepare_all, prepare_one};
use crate::spectral::input::given::physical;
use crate::spectral::input::guess::GuessedSpectrum;
use crate::spectral::input::layout::{layout, layout_for};
use crate::spectral::input::limits::Tables;
use crate::spectral::input::ready::{Grids, ReadySpectra, ReadySpectrum};
use crate::spectral::inspect::ready_at;
use crate::spectral::results::blank::{bad_spectrum_error, blank_row};
use crate::spectral::run::Run;
use crate::spectral::run::workspace::Evaluation;
use crate::threads;

/// The objective of n spectra at one point each, from [`SpectralFitter::objective`]. P is the number of parameters.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Objectives {
    /// (n): χ² of the pixels, or the sum of a robust loss.
    pub chi2: Vec<f64>,
    /// (n): χ² with the penalties of priors and training hulls and, if the model marginalises over the continuum, the
    /// terms of that. It is what a fit's row has as objective.
    pub objective: Vec<f64>,
    /// (n, P): derivatives of χ² and penalties by the parameters, in physical units. The terms of marginalisation are
    /// left out. Empty unless asked for.
    pub gradient: Vec<f64>,
    /// (n, P, P): normal matrices JᵀJ of the weighted residuals, in physical units. The inverse is the covariance of a
    /// least-squares fit that ends there. Empty unless asked for.
    pub normal_matrix: Vec<f64>,
    /// (n): the reason why a spectrum has no objective, and NaN for numbers; empty for the others.
    pub messages: Vec<String>,
}

/// The first guess of a spectrum, from [`SpectralFitter::guess`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Guess {
    /// The points from which a fit would start, the one of the lowest objective first.
    pub starts: Vec<GuessedStart>,
    /// The reason why there is no start; empty if there are any.
    pub message: String,
}

/// A point from which a fit would start.
#[derive(Clone, Debug, PartialEq)]
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
    /// parameters of a row give its χ² and objective.
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
        let (model, width) = (&self.model, self.model.parameters.len());
        if parameters.len() != spectra.len() * width {
            let (found, n) = (parameters.len(), spectra.len());
            let message = format!("{found} values, expected {n} spectra × {width} parameters");
            return Err(Error::mismatch("parameters", message).naming("parameters"));
        }
        let mut input = Input::new(self, spectra)?;
        // 1. Prepare each spectrum with the pixels that count at its point.
        let ready_of = |(place, physical): (usize, &[f64])| {
            if let Some(p) = physical.iter().position(|x| !x.is_finite()) {
                let detail = format!("{} is {}", model.parameters[p].solver.name, physical[p]);
                return Err(Fault {
                    cause: Cause::BadStart,
                    detail,
                });
            }
            let u: Vec<f64> = model
                .parameters
                .iter()
                .zip(physical)
                .map(|(p, x)| p.to_u(*x))
                .collect();
            let limits = input.tables.of(place)?;
            let motion = Some(Motion::around(model, &u, &limits));
            let prepared = prepare_one(model, &input.arms, &input.grids, place, motion)?;
            Ok(ready_at(place, u, &limits, prepared.into()))
        };
        let points = parameters.par_chunks_exact(width).enumerate();
        let all: Vec<Result<ReadySpectrum, Fault>> =
            threads::in_pool(|| points.map(ready_of).collect());
        let (ready, messages) = self.without_faults(spectra, all)?;
        // 2. Evaluate all, and write them to their places.
        let outcomes = input.outcomes(&ready, derivatives)?;
        let n = spectra.len();
        let none = |count: usize| vec![f64::NAN; if derivatives { n * count } else { 0 }];
        let (gradient, normal_matrix) = (none(width), none(width * width));
        let mut out = Objectives {
            chi2: vec![f64::NAN; n],
            objective: vec![f64::NAN; n],
            gradient,
            normal_matrix,
            messages,
        };
        let scale = |p: usize| model.parameters[p].solver.scale;
        for (one, outcome) in ready.iter().zip(&outcomes) {
            let place = one.place;
            (out.chi2[place], out.objective[place]) = (
                outcome.chi2,
                self.finish().objective(outcome, &one.prepared),
            );
            if !derivatives {
                continue;
            }
            for p in 0..width {
                // the solver's gradient is −½ of it, by u
                out.gradient[place * width + p] = -2.0 * outcome.gradient[p] / scale(p);
                for q in 0..width {
                    let element = outcome.normal_matrix[packed_index(p, q)];
                    out.normal_matrix[(place * width + p) * width + q] =
                        element / (scale(p) * scale(q));
                }
            }
        }
        Ok(out)
    }

    /// Finds the points from which a fit of each spectrum would start, and computes their objective on the fitter's
    /// first device.
    ///
    /// # Errors
    /// Returns the errors of [`fit`](SpectralFitter::fit) for its settings, the model, the arms and their wavelengths.
    /// A spectrum that cannot be fitted has a message, or is [`Error::BadSpectrum`] if the fitter is
    /// [strict](SpectralFitter::strict).
    pub fn guess(&self, spectra: &Spectra) -> Result<Vec<Guess>> {
        let mut input = Input::new(self, spectra)?;
        let Input {
            arms,
            grids,
            tables,
            ..
        } = &input;
        let (model, guess, count) = (&self.model, self.first_guess()?, self.starts);
        // 1. Find the starts.
        let starts_of = |(place, prepared): (usize, Result<_, Fault>)| {
            let limits = tables.of(place)?;
            let spectrum = GuessedSpectrum {
                model,
                arms,
                grids,
                place,
                limits: &limits,
                guess,
                count,
            };
            let (prepared, starts) = spectrum.starts(prepared?)?;
            let prepared = Arc::new(prepared);
            Ok(ReadySpectrum {
                place,
                prepared,
                limits,
                starts,
                may_add_starts: false,
            })
        };
        let prepared = prepare_all(model, arms, grids, spectra.len())
            .into_par_iter()
            .enumerate();
        let all: Vec<Result<ReadySpectrum, Fault>> =
            threads::in_pool(|| prepared.map(starts_of).collect());
        let (ready, messages) = self.without_faults(spectra, all)?;
        // 2. Evaluate them, each by itself: starts of one spectrum would stop each other.
        let single = |one: &ReadySpectrum| {
            let of =
                |u: &Vec<f64>| ready_at(one.place, u.clone(), &one.limits, one.prepared.clone());
            one.starts
                .iter()
                .map(|start| of(&start.u))
                .collect::<Vec<_>>()
        };
        let points: Vec<ReadySpectrum> = ready.iter().flat_map(single).collect();
        let outcomes = input.outcomes(&points, false)?;
        let mut guesses: Vec<Guess> = messages
            .into_iter()
            .map(|message| Guess {
                starts: Vec::new(),
                message,
            })
            .collect();
        for (point, outcome) in points.iter().zip(outcomes) {
            guesses[point.place].starts.push(GuessedStart {
                parameters: physical(model, &point.starts[0]),
                chi2: outcome.chi2,
                objective: self.finish().objective(&outcome, &point.prepared),
            });
        }
        guesses.iter_mut().for_each(|guess| {
            guess
                .starts
                .sort_by(|a, b| a.objective.total_cmp(&b.objective))
        });
        Ok(guesses)
    }

    /// Separates the spectra that can be fitted from the messages of those that cannot, empty for the others. The first
    /// fault is an error if the fitter is strict.
    fn without_faults(
        &self,
        spectra: &Spectra,
        all: Vec<Result<ReadySpectrum, Fault>>,
    ) -> Result<(Vec<ReadySpectrum>, Vec<String>)> {
        let (mut ready, mut messages) = (
            Vec::with_capacity(all.len()),
            vec![String::new(); all.len()],
        );
        for (place, one) in all.into_iter().enumerate() {
            match one {
                Ok(one) => ready.push(one),
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
struct Input<'s> {
    run: Run<'s>,
    arms: Vec<Cow<'s, ArmSpectra<'s>>>,
    grids: Vec<Grids>,
    tables: Tables<'s>,
}

impl<'s> Input<'s> {
    /// Checks the fitter's settings, and matches the spectra to its model.
    fn new(fitter: &'s SpectralFitter, spectra: &'s Spectra<'s>) -> Result<Input<'s>> {
        let mut run = fitter.run()?;
        let arms = matched(&fitter.model, spectra)?;
        let grids = run.grids(&arms, spectra)?;
        let tables = Tables::new(&fitter.model, spectra)?;
        Ok(Input {
            run,
            arms,
            grids,
            tables,
        })
    }

    /// Evaluates prepared spectra at their starts, one each, on the fitter's first device, and returns their sums. The
    /// device is renewed or replaced as in a fit if it fails.
    fn outcomes(&mut self, ready: &[ReadySpectrum], derivatives: bool) -> Result<Vec<Outcome>> {
        let fitter = self.run.fitter;
        let (mut device, mut attempts) = (fitter.device.inner.clone(), Attempts::default());
        loop {
            match self.outcomes_on(&*device, ready, derivatives) {
                Err(failure) => device = attempts.next(&device, failure, fitter.may_use_cpu())?,
                done => return done,
            }
        }
    }

    /// Evaluates prepared spectra at their starts on a device, in batches.
    fn outcomes_on(
        &mut self,
        device: &dyn Device,
        ready: &[ReadySpectrum],
        derivatives: bool,
    ) -> Result<Vec<Outcome>> {
        let fitter = self.run.fitter;
        let SpectralFitter {
            model,
            shared,
            precision,
            max_memory,
            ..
        } = fitter;
        let mut outcomes = Vec::with_capacity(ready.len());
        if ready.is_empty() {
            return Ok(outcomes);
        }
        let shape = layout_for(
            layout(model, &self.arms, &self.grids),
            ready.iter().map(|one| &*one.prepared),
        );
        let objective = shared.objective(model, &shape, precision.of_results(), !derivatives);
        let recording = objective.recording();
        let room = device.capacity(recording, *max_memory)?;
        let batch = fitter.batch_on(device).min(room).min(ready.len()).max(1);
        let method = Method::LevenbergMarquardt(LevenbergMarquardt::default().max_rounds(1));
        let earlier = self.run.take_evaluation();
        let earlier = earlier
            .filter(|e| Arc::ptr_eq(&e.objective, &objective) && e.population.capacity() >= batch);
        let mut population = match earlier {
            Some(evaluation) => evaluation.population,
            None => device.population(recording.clone(), &method, batch)?,
        };
        for some in ready.chunks(batch) {
            let spectra = ReadySpectra {
                model,
                grids: &self.grids,
                spectra: some,
                guess: None,
            };
            let batch: Batch = assemble(&objective, spectra, &spectra.starts());
            let members: Vec<usize> = (0..batch.members()).collect();
            outcomes.append(&mut pollster::block_on(async {
                population.load(&batch).await?;
                // the first round evaluates the starts
                population.advance(1).await?;
                population.read(&members).await
            })?);
        }
        // a population that has failed is not kept, nor is one of a device that has replaced the fitter's
        if std::ptr::addr_eq(device, &*fitter.device.inner) {
            population.clear();
            self.run.keep_evaluation(Evaluation {
                objective,
                population,
            });
        }
        Ok(outcomes)
    }
}
