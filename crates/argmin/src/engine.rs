//! A device at the service of one spectrum: many points in one dispatch, or the rows of one point.

use super::direct::Direct;
use super::rows::{Arm, Rows};
use popfit::low_level::recording::BufferId;
use popfit::low_level::solver::{Batch, LevenbergMarquardt, Method, Outcome, Places, Population};
use popfit::low_level::{Job, Task};
use popfit::{Error, Result};

/// Most points in one dispatch.
const BULK: usize = 256;
/// Bounds that no point meets: a point is evaluated where it is.
const FAR: f64 = 1e30;

/// A population, and whether it has the spectrum already.
struct Side {
    population: Box<dyn Population>,
    loaded: bool,
}

/// A population for each kind of evaluation, and the last point with derivatives: a solver asks for cost and gradient,
/// or for residual and Jacobian, one after the other.
pub(super) struct Engine {
    linearise: Side,
    evaluate: Side,
    capacity: usize,
    arms: Vec<Arm>,
    /// Spares a formula on the CPU the way through populations.
    direct: Option<Direct>,
    last_sums: Option<(Vec<f64>, Outcome)>,
    last_rows: Option<(Vec<f64>, Rows)>,
    /// Points evaluated, and points linearised.
    pub counts: (u64, u64),
}

impl Engine {
    /// Prepares the task's device to evaluate and linearise its objective at many points at once.
    pub fn new(task: &Task) -> Result<Engine> {
        let device = task.device();
        let mut capacity = BULK;
        for job in [&task.linearise, &task.evaluate] {
            capacity = capacity
                .min(device.capacity(&job.recording, None)? / 2)
                .max(1);
        }
        // members end with the round that evaluates them
        let method = Method::LevenbergMarquardt(LevenbergMarquardt::default().max_rounds(1));
        let side = |job: &Job| {
            let population = device.population(job.recording.clone(), &method, capacity)?;
            Ok(Side {
                population,
                loaded: false,
            })
        };
        let mut engine = Engine {
            linearise: side(&task.linearise)?,
            evaluate: side(&task.evaluate)?,
            capacity,
            arms: Vec::new(),
            direct: None,
            last_sums: None,
            last_rows: None,
            counts: (0, 0),
        };
        engine.turn_to(task);
        Ok(engine)
    }

    /// Replaces the task (a curve or spectrum) by another one of the same model, and forgets all cached results.
    pub fn turn_to(&mut self, task: &Task) {
        (self.linearise.loaded, self.evaluate.loaded) = (false, false);
        self.arms = Arm::all(&task.linearise);
        self.direct = Direct::new(task);
        (self.last_sums, self.last_rows, self.counts) = (None, None, (0, 0));
    }

    /// Computes χ², penalty and ln det C at each point (in scaled parameters `u`), without derivatives.
    pub fn evaluate(&mut self, task: &Task, points: &[&[f64]]) -> Result<Vec<Outcome>> {
        self.counts.0 += points.len() as u64;
        if let Some(direct) = &mut self.direct {
            return Ok(points
                .iter()
                .map(|point| direct.evaluate(task, point))
                .collect());
        }
        let mut outcomes = Vec::with_capacity(points.len());
        for some in points.chunks(self.capacity) {
            outcomes.extend(self.evaluate.outcomes(&task.evaluate, some)?);
        }
        Ok(outcomes)
    }

    /// Computes χ², penalty, gradient and normal matrix at a point in `u`; the result of the last point is cached.
    pub fn linearise(&mut self, task: &Task, point: &[f64]) -> Result<&Outcome> {
        if self
            .last_sums
            .as_ref()
            .is_none_or(|(last, _)| last != point)
        {
            self.counts.1 += 1;
            let outcome = match &mut self.direct {
                Some(direct) => direct.linearise(task, point),
                None => self
                    .linearise
                    .outcomes(&task.linearise, &[point])?
                    .swap_remove(0),
            };
            self.last_sums = Some((point.to_vec(), outcome));
        }
        match &self.last_sums {
            Some((_, outcome)) => Ok(outcome),
            None => unreachable!("it has just been set"),
        }
    }

    /// Computes the residuals and their Jacobian at a point in `u`; the result of the last point is cached.
    pub fn rows(&mut self, task: &Task, point: &[f64]) -> Result<&Rows> {
        if self.arms.is_empty() {
            return Err(Error::Usage(
                "residuals of an estimator that is not least squares".into(),
            ));
        }
        if self
            .last_rows
            .as_ref()
            .is_none_or(|(last, _)| last != point)
        {
            self.counts.1 += 1;
            let seen = match &mut self.direct {
                Some(direct) => vec![direct.rows(point)],
                None => {
                    let buffers: Vec<BufferId> = self.arms.iter().flat_map(Arm::buffers).collect();
                    self.linearise.rows(&task.linearise, point, &buffers)?
                }
            };
            self.last_rows = Some((
                point.to_vec(),
                Rows::new(&task.linearise, &self.arms, &seen, point),
            ));
        }
        match &self.last_rows {
            Some((_, rows)) => Ok(rows),
            None => unreachable!("it has just been set"),
        }
    }
}

impl Side {
    /// Evaluates the objective at all of these points in `u` together on the device.
    fn outcomes(&mut self, job: &Job, points: &[&[f64]]) -> Result<Vec<Outcome>> {
        let batch = members(job, points, !self.loaded);
        pollster::block_on(async {
            if self.loaded {
                // who was here before has ended, in slots beyond these, too: each a ring of its own
                let mut places = Places::in_order(&batch);
                places
                    .ring
                    .extend(places.ring.len() as u32..self.population.capacity() as u32);
                self.population.enter(&batch, &places)?;
            } else {
                self.population.load(&batch).await?;
                self.loaded = true;
            }
            self.population.advance(1).await?;
            self.population
                .read(&(0..points.len()).collect::<Vec<_>>())
                .await
        })
    }

    /// Evaluates one point in `u`, and returns the contents of these buffers of the device. The member stays active, so
    /// that the next evaluation loads anew.
    fn rows(&mut self, job: &Job, point: &[f64], buffers: &[BufferId]) -> Result<Vec<Vec<f64>>> {
        self.loaded = false;
        pollster::block_on(self.population.load(&members(job, &[point], true)))?;
        pollster::block_on(self.population.inspect_all(buffers))
    }
}

/// Returns the batch to load on the device: one member per point in `u`, with the spectrum's data only if `data`.
fn members(job: &Job, points: &[&[f64]], data: bool) -> Batch {
    let count = job.recording.parameters.len();
    Batch {
        spectra: 1,
        blocks: if data {
            job.batch.blocks.clone()
        } else {
            Vec::new()
        },
        lower: vec![-FAR; count],
        upper: vec![FAR; count],
        prior_mean: job.batch.prior_mean.clone(),
        prior_weight: job.batch.prior_weight.clone(),
        group: vec![0; points.len()],
        starts: points.concat(),
        ..Batch::default()
    }
}
