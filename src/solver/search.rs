//! Nelder–Mead from start to end, on any device: a linearisation shapes the first simplex, the simplex comes near the
//! minimum, and a quadratic surface judges and refines its end. All of this is on the host in f64; the points of all
//! fits are evaluated in one dispatch.
//!
//! 1. The first simplex lies around the Gauss–Newton point of the linearisation at the start ([`first_vertices`]).
//! 2. Simplices search until their objectives differ by about what the noise of the data changes a minimum by
//!    (`COARSE`).
//! 3. A [`Surface`] around each best vertex refines it. Where it sees a minimum the fit has ended.
//! 4. Others are spread again along the surface's directions, and search closer.
//! 5. What is then left, has no linearisation, or falls short of what its Gauss–Newton point promised, is searched from
//!    its start again, by a simplex of the settings' size. Restarts are ever smaller, from either side in turn, until
//!    two in a row gain nothing. The lower end counts.

use std::sync::atomic::{AtomicBool, Ordering};

use super::bounds::Bounds;
use super::device::Outcome;
use super::first_simplex::{FirstVertices, Room, first_vertices};
use super::metric::{Linearisation, Metric};
use super::settings::NelderMead;
use super::simplex::FirstSimplex;
use super::status::Status;
use super::surface::{Surface, Tolerance, Verdict};
use crate::error::Result;

/// Differences of the objectives at which a search hands over to a surface, in units of [`NelderMead::fatol`]'s, one
/// per search.
const COARSE: [f64; 2] = [1.0, 0.1];
/// The same in units of `fatol` itself, at least.
const LEAST_COARSE: f64 = 10.0;
/// Objectives of one minimum may differ by this many times their noise.
const UNSURE: f64 = 10.0;
/// And its points by this, relatively.
const ONE_POINT: f64 = 1e-5;

/// The start, the bounds and the data of one fit. P is the number of parameters.
#[derive(Clone, Debug)]
pub struct SearchFit {
    /// (P) in `u`: where it starts, and its bounds.
    pub start: Vec<f64>,
    pub lower: Vec<f64>,
    pub upper: Vec<f64>,
    /// Σ (w y ε/2)², what rounding may leave of χ², and the number of points. 0 where the settings' noise says all.
    pub rounding: f64,
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

/// A point at which a fit's simplex is to begin.
#[derive(Clone, Debug)]
pub struct Begin {
    pub fit: usize,
    pub start: Vec<f64>,
    /// Without, it is made of the settings' size.
    pub simplex: Option<FirstSimplex>,
}

/// Points of a fit.
#[derive(Clone, Debug)]
pub struct Points {
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
    fn evaluate(&mut self, points: Vec<Points>) -> Result<Vec<Vec<f64>>>;

    /// Returns whether what the device reports is checked: each fit's best known point is then evaluated again with
    /// every question.
    fn is_checked(&self) -> bool {
        false
    }

    /// Fails with [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) where two readbacks contradict each other
    /// about one point. `scale` is the fit's linearisation at its start.
    fn agree(&self, _fit: usize, _told: Told, _scale: &Outcome) -> Result<()> {
        Ok(())
    }
}

/// Objectives of one point in two readbacks.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub before: f64,
    pub now: f64,
}

/// Points of one fit that are to be evaluated, and a point whose objective is known, for comparison.
struct Question {
    points: Points,
    known: Vec<f64>,
    value: f64,
}

/// Returns the objectives at the points asked for; a checked device must also repeat each fit's known value.
fn ask(
    machine: &mut dyn Machine,
    searches: &[Search],
    questions: Vec<Question>,
) -> Result<Vec<Vec<f64>>> {
    let is_checked = machine.is_checked();
    let (mut points, mut known) = (
        Vec::with_capacity(questions.len()),
        Vec::with_capacity(questions.len()),
    );
    for Question {
        points: mut own,
        known: point,
        value,
    } in questions
    {
        if is_checked {
            own.points.extend(point);
        }
        known.push((own.fit, value));
        points.push(own);
    }
    let mut values = machine.evaluate(points)?;
    if is_checked {
        for (values, (fit, before)) in values.iter_mut().zip(known) {
            if let Some(now) = values.pop() {
                machine.agree(fit, Told { before, now }, &searches[fit].linearised)?;
            }
        }
    }
    Ok(values)
}

/// The settings, and what the device's rows are worth.
#[derive(Clone, Copy, Debug)]
pub struct SearchSettings {
    pub settings: NelderMead,
    /// See [`Recording::dof`](crate::recording::Recording::dof).
    pub dof: Option<f64>,
    /// Relative error of an objective.
    pub noise: f64,
}

/// The state of the search for one fit.
struct Search<'a> {
    fit: &'a SearchFit,
    linearised: Outcome,
    first: Option<FirstVertices>,
    /// Objective at the first of those.
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
    let may = settings.settings.linearise;
    let linearised = if may {
        machine.linearise()?
    } else {
        vec![Outcome::default(); fits.len()]
    };
    let mut searches: Vec<Search> = fits
        .iter()
        .zip(linearised)
        .map(|(fit, l)| Search::new(fit, l, settings))
        .collect();
    trust_first_vertices(machine, &mut searches)?;
    for turn in 0..=COARSE.len() {
        let coarse = COARSE
            .get(turn)
            .map(|coarse| coarse.max(LEAST_COARSE * settings.settings.fatol));
        let begin = |(k, search): (usize, &Search)| search.begin(k, settings, coarse);
        let begins: Vec<Begin> = searches.iter().enumerate().filter_map(begin).collect();
        if begins.is_empty() {
            continue;
        }
        let shaped: Vec<(usize, bool)> = begins
            .iter()
            .map(|begin| (begin.fit, begin.simplex.is_some()))
            .collect();
        for ((k, is_shaped), outcome) in shaped.into_iter().zip(machine.search(begins)?) {
            searches[k].take(outcome, is_shaped, settings);
        }
        follow_surfaces(machine, &mut searches, cancel)?;
    }
    Ok(searches.into_iter().map(|search| search.outcome).collect())
}

/// Evaluates the centre of each first simplex, and drops those where the objective falls less than predicted.
fn trust_first_vertices(machine: &mut dyn Machine, searches: &mut [Search]) -> Result<()> {
    let guided = searches
        .iter()
        .enumerate()
        .filter_map(|(fit, search)| Some((fit, search, search.first.as_ref()?)));
    let question = |(fit, search, first): (usize, &Search, &FirstVertices)| {
        let points = Points {
            fit,
            points: first.vertices[..search.fit.start.len()].to_vec(),
        };
        Question {
            points,
            known: search.fit.start.clone(),
            value: search.start_value(),
        }
    };
    let questions: Vec<Question> = guided.map(question).collect();
    if questions.is_empty() {
        return Ok(());
    }
    let fits: Vec<usize> = questions
        .iter()
        .map(|question| question.points.fit)
        .collect();
    for (fit, values) in fits.into_iter().zip(ask(machine, searches, questions)?) {
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

/// Evaluates the points that quadratic surfaces ask for until all surfaces have ended.
fn follow_surfaces(
    machine: &mut dyn Machine,
    searches: &mut [Search],
    cancel: &AtomicBool,
) -> Result<()> {
    loop {
        let asking = searches
            .iter()
            .enumerate()
            .filter_map(|(fit, search)| Some((fit, search.surface.as_ref()?)));
        let question = |(fit, surface): (usize, &Surface)| {
            let points = Points {
                fit,
                points: surface.points().to_vec(),
            };
            Question {
                points,
                known: surface.lowest().to_vec(),
                value: surface.lowest_value(),
            }
        };
        let questions: Vec<Question> = asking.map(question).collect();
        if questions.is_empty() {
            return Ok(());
        }
        if cancel.load(Ordering::Relaxed) {
            searches
                .iter_mut()
                .filter(|search| search.surface.is_some())
                .for_each(Search::interrupt);
            return Ok(());
        }
        let fits: Vec<usize> = questions
            .iter()
            .map(|question| question.points.fit)
            .collect();
        for (fit, values) in fits.into_iter().zip(ask(machine, searches, questions)?) {
            searches[fit].hear(&values);
        }
    }
}

impl Search<'_> {
    /// Makes the search of a fit from cost, gradient and normal matrix at its start (`linearised`).
    fn new<'a>(fit: &'a SearchFit, linearised: Outcome, settings: &SearchSettings) -> Search<'a> {
        let mut search = Search {
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
            search.evaluations = 1 + search.room(settings).free().len() as u32;
        }
        search
    }

    /// Returns the objective at the start: χ², penalty and the log-determinant of what is marginalised over.
    fn start_value(&self) -> f64 {
        self.linearised.chi2 + self.linearised.penalty + self.linearised.ln_det
    }

    /// Returns the better of the start and the first simplex's centre, for a fit that no simplex has moved yet.
    fn known(&self) -> Outcome {
        let (start, centre) = (self.start_value(), self.centre_value);
        let is_lower = centre < start;
        let first = self.first.as_ref().filter(|_| is_lower);
        Outcome {
            rounds: 1,
            evaluations: self.evaluations,
            parameters: first
                .map_or(&self.fit.start[..], |first| {
                    &first.vertices[..self.fit.start.len()]
                })
                .to_vec(),
            chi2: if first.is_some() { centre } else { start },
            ..Outcome::default()
        }
    }

    /// Returns the bounds of the fit's parameters, and the size of its first simplex.
    fn room(&self, settings: &SearchSettings) -> Room<'_> {
        Room {
            lower: &self.fit.lower,
            upper: &self.fit.upper,
            size: settings.settings.size,
        }
    }

    /// Returns where, and with which vertices, the fit's next simplex begins; `None` where there is no next one.
    /// `coarse`: unless it is the last.
    fn begin(&self, fit: usize, settings: &SearchSettings, coarse: Option<f64>) -> Option<Begin> {
        if self.is_done {
            return None;
        }
        let Some(outcome) = &self.outcome else {
            let simplex = self
                .first
                .as_ref()
                .zip(coarse)
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
        let simplex = match coarse {
            None => None,
            Some(coarse_fatol) => {
                let vertices = self.spread_again(outcome, settings)?;
                Some(FirstSimplex {
                    vertices,
                    value: outcome.chi2,
                    coarse_fatol,
                })
            }
        };
        // where the linearisation was no guide, its end may be none, too
        let start = if coarse.is_some() {
            &outcome.parameters
        } else {
            &self.fit.start
        };
        Some(Begin {
            fit,
            start: start.clone(),
            simplex,
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
        let at = Linearisation {
            point: &self.fit.start,
            cost: chi2 + penalty,
            gradient,
            normal_matrix,
        };
        let has_sums = !gradient.is_empty() && at.cost.is_finite();
        if has_sums {
            first_vertices(&at, &self.room(settings), settings.dof)
        } else {
            None
        }
    }

    /// Returns vertices around the best point, one error away along each direction of the linearisation.
    fn spread_again(&self, outcome: &Outcome, settings: &SearchSettings) -> Option<Vec<f64>> {
        let (room, count) = (self.room(settings), outcome.parameters.len());
        let metric = Metric::new(&self.linearised.normal_matrix, room.free())?;
        let radius = settings.unit(outcome.chi2).sqrt();
        let directions = metric.directions(count);
        let edges = directions
            .chunks_exact(count.max(1))
            .map(|e| e.iter().map(|e| radius * e).collect());
        Some(room.vertices(&outcome.parameters, edges))
    }

    /// Records how a simplex ended (`None`: cancelled), and may fit a quadratic surface there next.
    fn take(&mut self, outcome: Option<Outcome>, is_shaped: bool, settings: &SearchSettings) {
        let Some(mut outcome) = outcome else {
            if self.outcome.is_none() {
                self.outcome = Some(self.known());
            }
            self.interrupt();
            return;
        };
        let before = self.outcome.take();
        outcome.evaluations += before
            .as_ref()
            .map_or(self.evaluations, |before| before.evaluations);
        outcome.rounds += before.as_ref().map_or(0, |before| before.rounds);
        let arrived = outcome.status.is_some_and(Status::is_success);
        self.is_done = !is_shaped || outcome.status == Some(Status::Interrupted);
        let Outcome {
            parameters, chi2, ..
        } = &outcome;
        let tolerance = settings.tolerance(*chi2, self.fit);
        let room = self.room(settings);
        let normal_matrix = &self.linearised.normal_matrix;
        if arrived && chi2.is_finite() && !normal_matrix.is_empty() {
            self.surface = Surface::new(parameters, *chi2, normal_matrix, &room, tolerance);
        }
        let start = self.start_value();
        if let Some(before) = before.filter(|before| before.chi2 < outcome.chi2) {
            // what no search has confirmed is no success
            let is_lower = before.chi2 < outcome.chi2 - tolerance.fatol - UNSURE * tolerance.noise;
            if is_lower && !is_one_point(&before.parameters, &outcome.parameters) {
                outcome.status = Some(Status::Stalled);
            }
            (outcome.parameters, outcome.chi2, self.surface) =
                (before.parameters, before.chi2, None);
        } else if is_shaped && (outcome.chi2 > start || !outcome.chi2.is_finite()) {
            // the Gauss–Newton point was none
            (outcome.parameters, outcome.chi2, self.surface) =
                (self.fit.start.clone(), start, None);
        }
        self.outcome = Some(outcome);
    }

    /// Passes the objectives asked for to the surface; when that ends, its lowest point is the outcome.
    fn hear(&mut self, values: &[f64]) {
        let Some(surface) = &mut self.surface else {
            return;
        };
        let Some(verdict) = surface.take(values) else {
            return;
        };
        if let Some(outcome) = &mut self.outcome {
            outcome.parameters = surface.lowest().to_vec();
            outcome.chi2 = surface.lowest_value();
            outcome.evaluations += surface.evaluations;
        }
        self.is_done |= verdict == Verdict::Minimum;
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

/// Returns whether two points differ by no more than a simplex can shrink. Objectives would not tell: without noise in
/// the data they differ by any factor.
fn is_one_point(a: &[f64], b: &[f64]) -> bool {
    a.iter()
        .zip(b)
        .all(|(a, b)| (a - b).abs() <= ONE_POINT * b.abs().max(1.0))
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
        let (rounding, points) = (fit.rounding, fit.points.max(1) as f64);
        let of_residuals = 2.0 * (rounding * value.abs() / points).sqrt();
        let noise = (self.noise * value.abs()).max(of_residuals).max(rounding);
        Tolerance {
            fatol: self.settings.fatol * self.unit(value),
            noise,
        }
    }
}
