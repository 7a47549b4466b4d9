//! Nelder–Mead from start to end, on any device: a linearisation shapes the first simplex, the simplex comes near the
//! minimum, and a quadratic surface judges and refines its end. All of this is on the host in f64. The device evaluates
//! one point of each fit at a time, until all searches have ended.
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
use super::simplex::{FirstSimplex, Simplex, SimplexRules};
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
    /// Returns the bounds of the parameters.
    fn bounds(&self) -> Bounds<'_> {
        Bounds {
            lower: &self.lower,
            upper: &self.upper,
        }
    }
}

/// A device that evaluates points for searches.
pub trait Machine {
    /// Linearises each fit at its start; ln det C is 0 where the objective has none.
    fn linearise(&mut self) -> Result<Vec<Outcome>>;

    /// Evaluates the points that the searches of all fits request, until these have ended or the run is cancelled, and
    /// returns the searches.
    fn evaluate(&mut self, searches: Vec<FitSearch>) -> Result<Vec<FitSearch>>;

    /// Returns whether the objectives that the device reports are checked: with every quadratic surface, each fit's
    /// best known point is then evaluated again.
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

/// The settings, and the precision of the device's rows.
#[derive(Clone, Copy, Debug)]
pub struct SearchSettings {
    pub settings: NelderMead,
    /// See [`Recording::dof`](crate::recording::Recording::dof).
    pub dof: Option<f64>,
    /// Relative error of an objective.
    pub noise: f64,
}

/// Part of a search that has requested points.
#[derive(Clone, Debug)]
enum Stage {
    /// The first vertex of the first simplex, where the objective must fall about as predicted.
    Centre(FirstVertices),
    Simplex {
        simplex: Simplex,
        /// It has a coarse tolerance and vertices from the linearisation.
        is_shaped: bool,
    },
    Surface(Surface),
    Ended,
}

/// The search for one fit, which requests the objective at one point after the other.
#[derive(Clone, Debug)]
pub struct FitSearch {
    fit: SearchFit,
    settings: SearchSettings,
    /// The objective at a known point is evaluated again with each surface.
    is_checked: bool,
    /// Linearisation at the start.
    linearised: Outcome,
    stage: Stage,
    /// Number of searches by simplices that have begun.
    turn: usize,
    /// Evaluations of the linearisation and the first vertex.
    evaluations: u32,
    outcome: Option<Outcome>,
    /// (k, P): the points that are not evaluated yet, of which a simplex has one at a time.
    requested: Vec<f64>,
    /// Objectives at those of the points that have been evaluated.
    values: Vec<f64>,
    /// Objective of the last requested point in an earlier readback, if that is evaluated again.
    known_value: Option<f64>,
    repeated: Vec<Readbacks>,
}

/// Minimises each fit by simplices, coarse to fine, and quadratic surfaces; `None` where cancelled before it entered.
pub fn search(
    machine: &mut dyn Machine,
    fits: Vec<SearchFit>,
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
    // 2. Evaluate the points that the searches request.
    let is_checked = machine.is_checked();
    let searches = fits
        .into_iter()
        .zip(linearised)
        .map(|(fit, linearised)| FitSearch::new(fit, linearised, *settings, is_checked))
        .collect();
    let mut searches = machine.evaluate(searches)?;
    // 3. Compare the readbacks, and end the searches of a cancelled run.
    for (fit, search) in searches.iter_mut().enumerate() {
        for readbacks in &search.repeated {
            machine.agree(fit, *readbacks, &search.linearised)?;
        }
        search.interrupt();
    }
    Ok(searches.into_iter().map(|search| search.outcome).collect())
}

impl FitSearch {
    /// Makes the search of a fit from cost, gradient and normal matrix at its start (`linearised`).
    fn new(
        fit: SearchFit,
        linearised: Outcome,
        settings: SearchSettings,
        is_checked: bool,
    ) -> FitSearch {
        let mut search = FitSearch {
            fit,
            settings,
            is_checked,
            linearised,
            stage: Stage::Ended,
            turn: 0,
            evaluations: 0,
            outcome: None,
            requested: Vec::new(),
            values: Vec::new(),
            known_value: None,
            repeated: Vec::new(),
        };
        if !search.linearised.gradient.is_empty() {
            search.evaluations = 1 + search.fit.bounds().free_parameters().len() as u32;
        }
        match search.first_vertices() {
            Some(first) => {
                let centre = first.vertices[..search.fit.start.len()].to_vec();
                let evaluated_point = (search.fit.start.clone(), search.start_value());
                search.stage = Stage::Centre(first);
                search.request(centre, evaluated_point);
            }
            None => search.begin_simplex(None),
        }
        search
    }

    /// Returns whether the search requests no more points.
    pub fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended)
    }

    /// Returns the point whose objective [`take_objective`](Self::take_objective) expects next (P).
    pub fn point(&self) -> &[f64] {
        let count = self.fit.start.len();
        match &self.stage {
            Stage::Simplex { simplex, .. } => simplex.trial_point(),
            _ => &self.requested[self.values.len() * count..][..count],
        }
    }

    /// Takes the objective at the requested point, infinite where it is not finite.
    pub fn take_objective(&mut self, value: f64) {
        // A simplex moves at each point, all else when the last of its points is evaluated.
        if let Stage::Simplex { simplex, is_shaped } = &mut self.stage {
            let is_shaped = *is_shaped;
            if let Some(status) = simplex.take_objective(value, &self.settings.rules(&self.fit)) {
                let outcome = simplex.outcome(status);
                self.end_simplex(outcome, is_shaped);
            }
            return;
        }
        self.values.push(value);
        self.go_on_if_evaluated();
    }

    /// Takes the next step of the search if all requested points are evaluated.
    fn go_on_if_evaluated(&mut self) {
        if self.values.len() * self.fit.start.len() < self.requested.len() {
            return;
        }
        // 1. The last objective may be that of a known point.
        let mut values = std::mem::take(&mut self.values);
        if let Some(before) = self.known_value.take()
            && let Some(now) = values.pop()
        {
            self.repeated.push(Readbacks { before, now });
        }
        // 2. Go on with these objectives.
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Centre(first) => {
                self.evaluations += 1;
                let value = values.first().copied().unwrap_or(f64::NAN);
                let is_trusted = first.is_trusted(self.start_value() - value);
                self.begin_simplex(is_trusted.then_some((first.vertices, value)));
            }
            Stage::Surface(mut surface) => match surface.take_objectives(&values) {
                None => self.request_surface(surface),
                Some(verdict) => {
                    if let Some(outcome) = &mut self.outcome {
                        outcome.parameters = surface.lowest().to_vec();
                        outcome.chi2 = surface.lowest_value();
                        outcome.evaluations += surface.evaluations;
                    }
                    if verdict != SurfaceVerdict::Minimum {
                        self.begin_next_simplex();
                    }
                }
            },
            _ => {}
        }
    }

    /// Requests these points (k, P) and, if the device is checked, one with a known objective behind them.
    fn request(&mut self, mut points: Vec<f64>, evaluated_point: (Vec<f64>, f64)) {
        if self.is_checked {
            points.extend(evaluated_point.0);
            self.known_value = Some(evaluated_point.1);
        }
        self.requested = points;
        self.go_on_if_evaluated();
    }

    /// Requests the points of a quadratic surface.
    fn request_surface(&mut self, surface: Surface) {
        let evaluated_point = (surface.lowest().to_vec(), surface.lowest_value());
        let points = surface.points().to_vec();
        self.stage = Stage::Surface(surface);
        self.request(points, evaluated_point);
    }

    /// Returns the objective at the start: χ², penalty and ln det C if the fit marginalises over the continuum.
    fn start_value(&self) -> f64 {
        self.linearised.chi2 + self.linearised.penalty + self.linearised.ln_det
    }

    /// Returns the bounds of the fit's parameters, and the size of its first simplex.
    fn search_box(&self) -> SearchBox<'_> {
        SearchBox {
            bounds: self.fit.bounds(),
            size: self.settings.settings.size,
        }
    }

    /// Begins the first simplex, at the start: with vertices from the linearisation and the objective at the first of
    /// them, if there are any.
    fn begin_simplex(&mut self, shape: Option<(Vec<f64>, f64)>) {
        let coarse_fatol = self.settings.coarse_fatol(0).unwrap_or_default();
        let first = shape.map(|(vertices, value)| FirstSimplex {
            vertices,
            value,
            coarse_fatol,
        });
        let start = self.fit.start.clone();
        self.turn = 1;
        self.move_from(&start, first);
    }

    /// Begins the next simplex. Those before the last are spread around the best point. The last one begins at the
    /// fit's start, without a shape: where the linearisation misled the search, the end of that may mislead, too.
    fn begin_next_simplex(&mut self) {
        while self.turn <= COARSE_FATOLS.len() {
            let coarse_fatol = self.settings.coarse_fatol(self.turn);
            self.turn += 1;
            let Some((coarse_fatol, outcome)) = coarse_fatol.zip(self.outcome.as_ref()) else {
                let start = self.fit.start.clone();
                return self.move_from(&start, None);
            };
            if let Some(vertices) = self.spread_again(outcome) {
                let start = outcome.parameters.clone();
                let first = FirstSimplex {
                    vertices,
                    value: outcome.chi2,
                    coarse_fatol,
                };
                return self.move_from(&start, Some(first));
            }
        }
    }

    /// Moves a simplex from here on.
    fn move_from(&mut self, start: &[f64], first: Option<FirstSimplex>) {
        let is_shaped = first.is_some();
        let rules = self.settings.rules(&self.fit);
        let mut simplex = Simplex::new(start, first, &rules);
        match simplex.begin(&rules) {
            None => self.stage = Stage::Simplex { simplex, is_shaped },
            Some(status) => self.end_simplex(simplex.outcome(status), is_shaped),
        }
    }

    /// Returns the vertices of the first simplex from the linearisation; `None` where it has no sums or gives no
    /// simplex.
    fn first_vertices(&self) -> Option<FirstVertices> {
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
        first_vertices(&linearisation, &self.search_box(), self.settings.dof)
    }

    /// Returns vertices around the best point, one error away along each direction of the linearisation.
    fn spread_again(&self, outcome: &Outcome) -> Option<Vec<f64>> {
        let search_box = self.search_box();
        let count = outcome.parameters.len();
        let metric = Metric::new(
            &self.linearised.normal_matrix,
            search_box.bounds.free_parameters(),
        )?;
        let radius = self.settings.unit(outcome.chi2).sqrt();
        let directions = metric.directions(count);
        let edges = directions
            .chunks_exact(count.max(1))
            .map(|direction| direction.iter().map(|e| radius * e).collect());
        Some(search_box.vertices(&outcome.parameters, edges))
    }

    /// Records how a simplex ended, and goes on with a quadratic surface there, or with the next simplex. `is_shaped`:
    /// the simplex had a coarse tolerance and vertices from the linearisation.
    fn end_simplex(&mut self, outcome: Outcome, is_shaped: bool) {
        let is_last = !is_shaped || outcome.status == Some(Status::Interrupted);
        self.stage = Stage::Ended;
        match self.record_simplex(outcome, is_shaped) {
            Some(surface) => self.request_surface(surface),
            None if !is_last => self.begin_next_simplex(),
            None => {}
        }
        if is_last {
            self.turn = COARSE_FATOLS.len() + 1;
        }
    }

    /// Adds the end of a simplex to the outcome, and returns the quadratic surface to be fitted there, if any.
    fn record_simplex(&mut self, mut outcome: Outcome, is_shaped: bool) -> Option<Surface> {
        // 1. Add up the work of all searches of the fit.
        let previous = self.outcome.take();
        outcome.evaluations += previous
            .as_ref()
            .map_or(self.evaluations, |previous| previous.evaluations);
        outcome.rounds += previous.as_ref().map_or(0, |previous| previous.rounds);
        // 2. A surface refines the end of a search that converged.
        let tolerance = self.settings.tolerance(outcome.chi2, &self.fit);
        let has_converged = outcome.status.is_some_and(Status::is_success);
        let normal_matrix = &self.linearised.normal_matrix;
        let mut surface = None;
        if has_converged && outcome.chi2.is_finite() && !normal_matrix.is_empty() {
            surface = Surface::new(
                &outcome.parameters,
                outcome.chi2,
                normal_matrix,
                self.fit.bounds(),
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
            surface = None;
        } else if is_shaped && (outcome.chi2 > start_value || !outcome.chi2.is_finite()) {
            // The Gauss–Newton point has misled the search.
            outcome.parameters = self.fit.start.clone();
            outcome.chi2 = start_value;
            surface = None;
        }
        self.outcome = Some(outcome);
        surface
    }

    /// Ends a search that has not ended, and marks its outcome as interrupted. A fit that no simplex has moved yet ends
    /// at the better of its start and the first vertex.
    fn interrupt(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Ended => return,
            Stage::Simplex { simplex, is_shaped } if is_shaped || simplex.evaluations > 0 => {
                self.record_simplex(simplex.outcome(Status::Interrupted), is_shaped);
            }
            _ if self.outcome.is_none() => {
                self.outcome = Some(Outcome {
                    evaluations: self.evaluations,
                    parameters: self.fit.start.clone(),
                    chi2: self.start_value(),
                    ..Outcome::default()
                });
            }
            _ => {}
        }
        if let Some(outcome) = &mut self.outcome {
            outcome.status = Some(Status::Interrupted);
            outcome.rounds = outcome.rounds.max(1);
        }
    }
}

/// Gives the searches that have not ended the objectives at their points, in their order, and returns the next point of
/// each one that goes on.
pub fn take_objectives<'a>(
    searches: impl Iterator<Item = &'a mut FitSearch>,
    outcomes: &[Outcome],
    marginalise: bool,
) -> Vec<Vec<f64>> {
    let mut points = Vec::with_capacity(outcomes.len());
    let waiting = searches.filter(|search| !search.has_ended());
    for (search, outcome) in waiting.zip(outcomes) {
        search.take_objective(outcome.objective(marginalise));
        if !search.has_ended() {
            points.push(search.point().to_vec());
        }
    }
    points
}

/// Returns whether two points differ by no more than a simplex can shrink. Objectives cannot decide this: without noise
/// in the data they differ by any factor.
fn is_same_point(a: &[f64], b: &[f64]) -> bool {
    a.iter()
        .zip(b)
        .all(|(a, b)| (a - b).abs() <= SAME_POINT * b.abs().max(1.0))
}

impl SearchSettings {
    /// Returns by how much the objectives may differ at the end of a search, the `turn`-th from 0; `None` for the last
    /// one, for which the settings' tolerance holds.
    fn coarse_fatol(&self, turn: usize) -> Option<f64> {
        let coarse_fatol = COARSE_FATOLS.get(turn)?;
        Some(coarse_fatol.max(LEAST_COARSE_FATOL * self.settings.fatol))
    }

    /// Returns what decides how the simplices of a fit move.
    fn rules<'a>(&'a self, fit: &'a SearchFit) -> SimplexRules<'a> {
        SimplexRules {
            bounds: fit.bounds(),
            settings: &self.settings,
            dof: self.dof,
            noise: self.noise,
        }
    }

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
