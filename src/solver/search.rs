//! Nelder–Mead from start to end, on any device: a linearisation shapes the first simplex, the simplex comes near the
//! minimum, and a quadratic surface judges and refines its end. All of this is on the host in f64; the points of all
//! fits are evaluated in one dispatch.
//!
//! 1. The first simplex lies around the Gauss–Newton point of the linearisation at the start ([`first_vertices`]).
//! 2. Simplices search until their objectives differ by about as much as the noise of the data changes a minimum
//!    (`COARSE_FATOLS`).
//! 3. A [`Surface`] around each best vertex refines it. Where it finds a minimum the fit has ended.
//! 4. The other simplices are spread again along the linearisation's directions, and search closer.
//! 5. A fit that has not ended then is searched from its start again, by a simplex of the settings' size; and so is one
//!    without a linearisation, or whose Gauss–Newton point gains less than predicted. Restarts are ever smaller, from
//!    either side in turn, until two in a row gain nothing. The lower end counts.

use std::sync::atomic::{AtomicBool, Ordering};

use super::backend::Outcome;
use super::bounds::Bounds;
use super::first_simplex::{FirstVertices, SearchBox, first_vertices};
use super::metric::{Linearisation, Metric};
use super::settings::NelderMead;
use super::simplex::FirstSimplex;
use super::status::Status;
use super::surface::{Surface, SurfaceVerdict, Tolerance};
use crate::error::Result;

/// Differences of the objectives at which a search hands over to a surface, in units of [`NelderMead::fatol`]'s, one
/// per search.
const COARSE_FATOLS: [f64; 2] = [1.0, 0.1];
/// Smallest such difference, in units of `fatol` itself.
const LEAST_COARSE_FATOL: f64 = 10.0;
/// Multiple of the noise by which two objectives of one minimum may differ.
const SAME_MINIMUM_NOISE: f64 = 10.0;
/// Maximum relative difference of the parameters of one minimum.
const SAME_POINT: f64 = 1e-5;

/// The start, the bounds and the data of one fit. P is the number of parameters.
#[derive(Clone, Debug)]
pub struct SearchFit {
    /// (P) in `u`: the start and the bounds.
    pub start: Vec<f64>,
    pub lower: Vec<f64>,
    pub upper: Vec<f64>,
    /// Σ (w y ε/2)², the part of χ² that rounding may contribute; 0 where the settings' noise includes it.
    pub rounding: f64,
    /// Number of points.
    pub points: usize,
}

impl SearchFit {
    /// Returns the bounds of the fit's parameters, in the solver's units u.
    pub fn bounds(&self) -> Bounds<'_> {
        Bounds {
            lower: &self.lower,
            upper: &self.upper,
        }
    }
}

/// Point at which a fit's simplex is to begin.
#[derive(Clone, Debug)]
pub struct Begin {
    pub fit: usize,
    pub start: Vec<f64>,
    /// First simplex; `None` for one of the settings' size.
    pub simplex: Option<FirstSimplex>,
}

/// Points of a fit whose objectives are to be evaluated.
#[derive(Clone, Debug)]
pub struct FitPoints {
    pub fit: usize,
    /// (k, P) in `u`.
    pub points: Vec<f64>,
}

/// A device that evaluates points for searches. Each call has the fits in ascending order, each once.
pub trait Machine {
    /// Linearises each fit at its start; ln det C is 0 where the objective has none.
    fn linearise(&mut self) -> Result<Vec<Outcome>>;

    /// Moves simplices from where each begins until they end; `None` where the run was cancelled before a fit entered.
    fn search(&mut self, begins: Vec<Begin>) -> Result<Vec<Option<Outcome>>>;

    /// Evaluates points: their objectives, fit by fit, infinite where they are not finite.
    fn evaluate(&mut self, points: Vec<FitPoints>) -> Result<Vec<Vec<f64>>>;

    /// Returns whether the objectives that the device reports are checked: with every evaluation, each fit's best known
    /// point is then evaluated again.
    fn is_checked(&self) -> bool {
        false
    }

    /// Fails with [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) where two readbacks contradict each other
    /// about one point. `scale` is the fit's linearisation at its start.
    fn agree(&self, _fit: usize, _readbacks: Readbacks, _scale: &Outcome) -> Result<()> {
        Ok(())
    }
}

/// Objectives of one point in two readbacks.
#[derive(Clone, Copy, Debug)]
pub struct Readbacks {
    pub before: f64,
    pub now: f64,
}

/// Points of one fit that are to be evaluated, and a point whose objective is known, for comparison.
struct CheckedPoints {
    points: FitPoints,
    known_point: Vec<f64>,
    known_value: f64,
}

/// Returns the objectives at the requested points; a checked device must also repeat each fit's known value.
fn evaluate_checked(
    machine: &mut dyn Machine,
    searches: &[FitSearch],
    requests: Vec<CheckedPoints>,
) -> Result<Vec<Vec<f64>>> {
    // 1. Append the known points where they are to be repeated.
    let is_checked = machine.is_checked();
    let mut points = Vec::with_capacity(requests.len());
    let mut known_values = Vec::with_capacity(requests.len());
    for mut request in requests {
        if is_checked {
            request.points.points.extend(request.known_point);
        }
        known_values.push((request.points.fit, request.known_value));
        points.push(request.points);
    }
    // 2. Evaluate, and compare the last value of each fit with the known one.
    let mut values = machine.evaluate(points)?;
    if is_checked {
        for (values, (fit, before)) in values.iter_mut().zip(known_values) {
            if let Some(now) = values.pop() {
                machine.agree(fit, Readbacks { before, now }, &searches[fit].linearised)?;
            }
        }
    }
    Ok(values)
}

/// The settings, and the precision of the device's rows.
#[derive(Clone, Copy, Debug)]
pub struct SearchSettings {
    pub settings: NelderMead,
    /// See [`Recording::dof`](crate::recording::Recording::dof).
    pub dof: Option<f64>,
    /// Relative error of an objective.
    pub noise: f64,
}

/// State of the search for one fit.
struct FitSearch<'a> {
    fit: &'a SearchFit,
    /// Linearisation at the start.
    linearised: Outcome,
    /// First simplex that the linearisation shapes.
    first: Option<FirstVertices>,
    /// Objective at the first of its vertices.
    centre_value: f64,
    /// Evaluations of the linearisation and the first vertex.
    evaluations: u32,
    outcome: Option<Outcome>,
    surface: Option<Surface>,
    is_done: bool,
}

/// Minimises each fit by simplices, coarse to fine, and quadratic surfaces; `None` where cancelled before it entered.
pub fn search(
    machine: &mut dyn Machine,
    fits: &[SearchFit],
    settings: &SearchSettings,
    cancel: &AtomicBool,
) -> Result<Vec<Option<Outcome>>> {
    if cancel.load(Ordering::Relaxed) {
        return Ok(vec![None; fits.len()]);
    }
    // 1. Linearise at the starts, which shapes the first simplices.
    let linearised = if settings.settings.linearise {
        machine.linearise()?
    } else {
        vec![Outcome::default(); fits.len()]
    };
    let mut searches: Vec<FitSearch> = fits
        .iter()
        .zip(linearised)
        .map(|(fit, linearised)| FitSearch::new(fit, linearised, settings))
        .collect();
    drop_untrusted_first_simplices(machine, &mut searches)?;
    // 2. Search ever closer, each time with simplices and then with surfaces; the last search, without a coarse
    //    tolerance, begins at the start again.
    for turn in 0..=COARSE_FATOLS.len() {
        let coarse_fatol = COARSE_FATOLS
            .get(turn)
            .map(|fatol| fatol.max(LEAST_COARSE_FATOL * settings.settings.fatol));
        let begins: Vec<Begin> = searches
            .iter()
            .enumerate()
            .filter_map(|(fit, search)| search.next_simplex(fit, settings, coarse_fatol))
            .collect();
        if begins.is_empty() {
            continue;
        }
        let begun: Vec<(usize, bool)> = begins
            .iter()
            .map(|begin| (begin.fit, begin.simplex.is_some()))
            .collect();
        for ((fit, is_shaped), outcome) in begun.into_iter().zip(machine.search(begins)?) {
            searches[fit].record_simplex(outcome, is_shaped, settings);
        }
        follow_surfaces(machine, &mut searches, cancel)?;
    }
    Ok(searches.into_iter().map(|search| search.outcome).collect())
}

/// Evaluates the centre of each first simplex, and drops those where the objective falls less than predicted.
fn drop_untrusted_first_simplices(
    machine: &mut dyn Machine,
    searches: &mut [FitSearch],
) -> Result<()> {
    let mut requests = Vec::new();
    for (fit, search) in searches.iter().enumerate() {
        let Some(first) = &search.first else {
            continue;
        };
        requests.push(CheckedPoints {
            points: FitPoints {
                fit,
                points: first.vertices[..search.fit.start.len()].to_vec(),
            },
            known_point: search.fit.start.clone(),
            known_value: search.start_value(),
        });
    }
    if requests.is_empty() {
        return Ok(());
    }
    let fits: Vec<usize> = requests.iter().map(|request| request.points.fit).collect();
    for (fit, values) in fits
        .into_iter()
        .zip(evaluate_checked(machine, searches, requests)?)
    {
        let search = &mut searches[fit];
        search.evaluations += 1;
        let reduction = search.start_value() - values[0];
        search.first = search
            .first
            .take()
            .filter(|first| first.is_trusted(reduction));
        search.centre_value = values[0];
    }
    Ok(())
}

/// Evaluates the points that quadratic surfaces request until all surfaces have ended.
fn follow_surfaces(
    machine: &mut dyn Machine,
    searches: &mut [FitSearch],
    cancel: &AtomicBool,
) -> Result<()> {
    loop {
        let mut requests = Vec::new();
        for (fit, search) in searches.iter().enumerate() {
            let Some(surface) = &search.surface else {
                continue;
            };
            requests.push(CheckedPoints {
                points: FitPoints {
                    fit,
                    points: surface.points().to_vec(),
                },
                known_point: surface.lowest().to_vec(),
                known_value: surface.lowest_value(),
            });
        }
        if requests.is_empty() {
            return Ok(());
        }
        if cancel.load(Ordering::Relaxed) {
            searches
                .iter_mut()
                .filter(|search| search.surface.is_some())
                .for_each(FitSearch::interrupt);
            return Ok(());
        }
        let fits: Vec<usize> = requests.iter().map(|request| request.points.fit).collect();
        for (fit, values) in fits
            .into_iter()
            .zip(evaluate_checked(machine, searches, requests)?)
        {
            searches[fit].advance_surface(&values);
        }
    }
}

impl FitSearch<'_> {
    /// Makes the search of a fit from cost, gradient and normal matrix at its start (`linearised`).
    fn new<'a>(
        fit: &'a SearchFit,
        linearised: Outcome,
        settings: &SearchSettings,
    ) -> FitSearch<'a> {
        let mut search = FitSearch {
            fit,
            linearised,
            first: None,
            centre_value: f64::NAN,
            evaluations: 0,
            outcome: None,
            surface: None,
            is_done: false,
        };
        search.first = search.first_vertices(settings);
        if !search.linearised.gradient.is_empty() {
            search.evaluations = 1 + search.search_box(settings).free_parameters().len() as u32;
        }
        search
    }

    /// Returns the objective at the start: χ², penalty and ln det C if the fit marginalises over the continuum.
    fn start_value(&self) -> f64 {
        self.linearised.chi2 + self.linearised.penalty + self.linearised.ln_det
    }

    /// Returns the better of the start and the first simplex's centre, for a fit that no simplex has moved yet.
    fn best_evaluated_point(&self) -> Outcome {
        let start_value = self.start_value();
        let centre = self
            .first
            .as_ref()
            .filter(|_| self.centre_value < start_value);
        let (parameters, chi2) = match centre {
            Some(first) => (&first.vertices[..self.fit.start.len()], self.centre_value),
            None => (&self.fit.start[..], start_value),
        };
        Outcome {
            rounds: 1,
            evaluations: self.evaluations,
            parameters: parameters.to_vec(),
            chi2,
            ..Outcome::default()
        }
    }

    /// Returns the bounds of the fit's parameters, and the size of its first simplex.
    fn search_box(&self, settings: &SearchSettings) -> SearchBox<'_> {
        SearchBox {
            lower: &self.fit.lower,
            upper: &self.fit.upper,
            size: settings.settings.size,
        }
    }

    /// Returns where, and with which vertices, the fit's next simplex begins; `None` if it needs none. `coarse_fatol`:
    /// tolerance of the next search, `None` for the last one.
    fn next_simplex(
        &self,
        fit: usize,
        settings: &SearchSettings,
        coarse_fatol: Option<f64>,
    ) -> Option<Begin> {
        if self.is_done {
            return None;
        }
        // 1. The first simplex is that of the linearisation.
        let Some(outcome) = &self.outcome else {
            let simplex = self
                .first
                .as_ref()
                .zip(coarse_fatol)
                .map(|(first, coarse_fatol)| FirstSimplex {
                    vertices: first.vertices.clone(),
                    value: self.centre_value,
                    coarse_fatol,
                });
            return Some(Begin {
                fit,
                start: self.fit.start.clone(),
                simplex,
            });
        };
        // 2. The last one begins at the fit's start, without a shape: where the linearisation misled the search, the
        //    end of that may mislead, too.
        let Some(coarse_fatol) = coarse_fatol else {
            return Some(Begin {
                fit,
                start: self.fit.start.clone(),
                simplex: None,
            });
        };
        // 3. Those between are spread around the best point.
        let vertices = self.spread_again(outcome, settings)?;
        Some(Begin {
            fit,
            start: outcome.parameters.clone(),
            simplex: Some(FirstSimplex {
                vertices,
                value: outcome.chi2,
                coarse_fatol,
            }),
        })
    }

    /// Returns the vertices of the first simplex from the linearisation; `None` where it has no sums or gives no
    /// simplex.
    fn first_vertices(&self, settings: &SearchSettings) -> Option<FirstVertices> {
        let Outcome {
            chi2,
            penalty,
            gradient,
            normal_matrix,
            ..
        } = &self.linearised;
        let linearisation = Linearisation {
            point: &self.fit.start,
            cost: chi2 + penalty,
            gradient,
            normal_matrix,
        };
        if gradient.is_empty() || !linearisation.cost.is_finite() {
            return None;
        }
        first_vertices(&linearisation, &self.search_box(settings), settings.dof)
    }

    /// Returns vertices around the best point, one error away along each direction of the linearisation.
    fn spread_again(&self, outcome: &Outcome, settings: &SearchSettings) -> Option<Vec<f64>> {
        let search_box = self.search_box(settings);
        let count = outcome.parameters.len();
        let metric = Metric::new(&self.linearised.normal_matrix, search_box.free_parameters())?;
        let radius = settings.unit(outcome.chi2).sqrt();
        let directions = metric.directions(count);
        let edges = directions
            .chunks_exact(count.max(1))
            .map(|direction| direction.iter().map(|e| radius * e).collect());
        Some(search_box.vertices(&outcome.parameters, edges))
    }

    /// Records how a simplex ended (`None`: cancelled), and may fit a quadratic surface there next. `is_shaped`: the
    /// simplex had a coarse tolerance and vertices from the linearisation.
    fn record_simplex(
        &mut self,
        outcome: Option<Outcome>,
        is_shaped: bool,
        settings: &SearchSettings,
    ) {
        let Some(mut outcome) = outcome else {
            if self.outcome.is_none() {
                self.outcome = Some(self.best_evaluated_point());
            }
            self.interrupt();
            return;
        };
        // 1. Add up the work of all searches of the fit.
        let previous = self.outcome.take();
        outcome.evaluations += previous
            .as_ref()
            .map_or(self.evaluations, |previous| previous.evaluations);
        outcome.rounds += previous.as_ref().map_or(0, |previous| previous.rounds);
        self.is_done = !is_shaped || outcome.status == Some(Status::Interrupted);
        // 2. A surface refines the end of a search that converged.
        let tolerance = settings.tolerance(outcome.chi2, self.fit);
        let has_converged = outcome.status.is_some_and(Status::is_success);
        let normal_matrix = &self.linearised.normal_matrix;
        if has_converged && outcome.chi2.is_finite() && !normal_matrix.is_empty() {
            self.surface = Surface::new(
                &outcome.parameters,
                outcome.chi2,
                normal_matrix,
                &self.search_box(settings),
                tolerance,
            );
        }
        // 3. The lowest end counts.
        let start_value = self.start_value();
        if let Some(previous) = previous.filter(|previous| previous.chi2 < outcome.chi2) {
            // If no second search has confirmed the lower end, the fit is no success.
            let least_difference = tolerance.fatol + SAME_MINIMUM_NOISE * tolerance.noise;
            let is_lower = previous.chi2 < outcome.chi2 - least_difference;
            if is_lower && !is_same_point(&previous.parameters, &outcome.parameters) {
                outcome.status = Some(Status::Stalled);
            }
            outcome.parameters = previous.parameters;
            outcome.chi2 = previous.chi2;
            self.surface = None;
        } else if is_shaped && (outcome.chi2 > start_value || !outcome.chi2.is_finite()) {
            // The Gauss–Newton point has misled the search.
            outcome.parameters = self.fit.start.clone();
            outcome.chi2 = start_value;
            self.surface = None;
        }
        self.outcome = Some(outcome);
    }

    /// Passes the requested objectives to the surface; when that ends, its lowest point is the outcome.
    fn advance_surface(&mut self, values: &[f64]) {
        let Some(surface) = &mut self.surface else {
            return;
        };
        let Some(verdict) = surface.take_objectives(values) else {
            return;
        };
        if let Some(outcome) = &mut self.outcome {
            outcome.parameters = surface.lowest().to_vec();
            outcome.chi2 = surface.lowest_value();
            outcome.evaluations += surface.evaluations;
        }
        self.is_done |= verdict == SurfaceVerdict::Minimum;
        self.surface = None;
    }

    /// Ends the search, and marks its outcome, if there is one, as interrupted.
    fn interrupt(&mut self) {
        self.surface = None;
        self.is_done = true;
        if let Some(outcome) = &mut self.outcome {
            outcome.status = Some(Status::Interrupted);
        }
    }
}

/// Returns whether two points differ by no more than a simplex can shrink. Objectives cannot decide this: without noise
/// in the data they differ by any factor.
fn is_same_point(a: &[f64], b: &[f64]) -> bool {
    a.iter()
        .zip(b)
        .all(|(a, b)| (a - b).abs() <= SAME_POINT * b.abs().max(1.0))
}

impl SearchSettings {
    /// Returns by how much the data's noise changes an objective: 1, or `value` / dof where `dof` is given.
    fn unit(&self, value: f64) -> f64 {
        let (unit, relative) = NelderMead::unit(self.dof);
        unit.max(relative * value.abs())
    }

    /// Returns the tolerance of a fit's objective, and its rounding noise, at this value. Residuals r with errors δ
    /// change χ² by 2 Σ r δ, about 2 √(χ² Σ δ² / points), and by Σ δ².
    fn tolerance(&self, value: f64, fit: &SearchFit) -> Tolerance {
        let points = fit.points.max(1) as f64;
        let noise_of_residuals = 2.0 * (fit.rounding * value.abs() / points).sqrt();
        let noise = (self.noise * value.abs())
            .max(noise_of_residuals)
            .max(fit.rounding);
        Tolerance {
            fatol: self.settings.fatol * self.unit(value),
            noise,
        }
    }
}
