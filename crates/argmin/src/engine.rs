//! Evaluation of one spectrum on a device: many points in one dispatch, or residuals and Jacobian at one point.

use super::direct::DirectEvaluator;
use super::rows::{ArmConstants, ResidualRows};
use popfit::low_level::recording::BufferId;
use popfit::low_level::solver::{Batch, LevenbergMarquardt, Outcome, Places, Population};
use popfit::low_level::{Job, Task};
use popfit::{Error, Result};

/// Maximum number of points in one dispatch.
const MAX_POINTS_PER_DISPATCH: usize = 256;
/// Bound that no point reaches, so that each point is evaluated where it is.
const UNREACHED_BOUND: f64 = 1e30;

/// A population, with the state of its data.
struct LoadedPopulation {
    population: Box<dyn Population>,
    /// True once the population has the spectrum.
    is_loaded: bool,
}

/// A population for each kind of evaluation, and the last point with derivatives: a solver asks for cost and gradient,
/// or for residual and Jacobian, one after the other.
pub(super) struct DeviceEvaluator {
    linearise: LoadedPopulation,
    evaluate: LoadedPopulation,
    capacity: usize,
    arms: Vec<ArmConstants>,
    /// Evaluates a formula on the CPU without a population; `None` for other models and devices.
    direct: Option<DirectEvaluator>,
    last_sums: Option<(Vec<f64>, Outcome)>,
    last_rows: Option<(Vec<f64>, ResidualRows)>,
    /// Points evaluated, and points linearised.
    pub counts: (u64, u64),
}

impl DeviceEvaluator {
    /// Prepares the task's device to evaluate and linearise its objective at many points at once.
    pub fn new(task: &Task) -> Result<DeviceEvaluator> {
        let device = task.device();
        let mut capacity = MAX_POINTS_PER_DISPATCH;
        for job in [&task.linearise, &task.evaluate] {
            capacity = capacity
                .min(device.capacity(&job.recording, None)? / 2)
                .max(1);
        }
        // a member ends with the iteration that evaluates it
        let settings = LevenbergMarquardt::default().max_rounds(1);
        let create_population = |job: &Job| {
            let population = device.population(job.recording.clone(), &settings, capacity)?;
            Ok(LoadedPopulation {
                population,
                is_loaded: false,
            })
        };
        let mut engine = DeviceEvaluator {
            linearise: create_population(&task.linearise)?,
            evaluate: create_population(&task.evaluate)?,
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
        self.linearise.is_loaded = false;
        self.evaluate.is_loaded = false;
        self.arms = ArmConstants::of_all_arms(&task.linearise);
        self.direct = DirectEvaluator::new(task);
        self.last_sums = None;
        self.last_rows = None;
        self.counts = (0, 0);
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
        for chunk in points.chunks(self.capacity) {
            outcomes.extend(self.evaluate.evaluate_points(&task.evaluate, chunk)?);
        }
        Ok(outcomes)
    }

    /// Computes χ², penalty, gradient and normal matrix at a point in `u`; the result of the last point is cached.
    pub fn linearise(&mut self, task: &Task, point: &[f64]) -> Result<&Outcome> {
        let is_cached = matches!(&self.last_sums, Some((cached_point, _)) if cached_point == point);
        if !is_cached {
            self.counts.1 += 1;
            let outcome = match &mut self.direct {
                Some(direct) => direct.linearise(task, point),
                None => self
                    .linearise
                    .evaluate_points(&task.linearise, &[point])?
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
    pub fn residual_rows(&mut self, task: &Task, point: &[f64]) -> Result<&ResidualRows> {
        if self.arms.is_empty() {
            return Err(Error::Usage(
                "residuals of an estimator that is not least squares".into(),
            ));
        }
        let is_cached = matches!(&self.last_rows, Some((cached_point, _)) if cached_point == point);
        if !is_cached {
            self.counts.1 += 1;
            let read_back = match &mut self.direct {
                Some(direct) => vec![direct.compute_and_copy_rows(point)],
                None => {
                    let buffers: Vec<BufferId> =
                        self.arms.iter().flat_map(ArmConstants::buffers).collect();
                    self.linearise
                        .read_buffers(&task.linearise, point, &buffers)?
                }
            };
            let rows = ResidualRows::new(&task.linearise, &self.arms, &read_back, point);
            self.last_rows = Some((point.to_vec(), rows));
        }
        match &self.last_rows {
            Some((_, rows)) => Ok(rows),
            None => unreachable!("it has just been set"),
        }
    }
}

impl LoadedPopulation {
    /// Evaluates the objective at all of these points in `u` together on the device.
    fn evaluate_points(&mut self, job: &Job, points: &[&[f64]]) -> Result<Vec<Outcome>> {
        let batch = build_batch(job, points, !self.is_loaded);
        pollster::block_on(async {
            if self.is_loaded {
                // All members of the last call have ended, those in slots beyond these points, too.
                let mut places = Places::in_order(&batch);
                places
                    .ring
                    .extend(places.ring.len() as u32..self.population.capacity() as u32);
                self.population.enter(&batch, &places)?;
            } else {
                self.population.load(&batch).await?;
                self.is_loaded = true;
            }
            self.population.advance(1).await?;
            self.population
                .read(&(0..points.len()).collect::<Vec<_>>())
                .await
        })
    }

    /// Evaluates one point in `u`, and returns the contents of these buffers of the device. The member stays active, so
    /// that the next evaluation loads anew.
    fn read_buffers(
        &mut self,
        job: &Job,
        point: &[f64],
        buffers: &[BufferId],
    ) -> Result<Vec<Vec<f64>>> {
        self.is_loaded = false;
        pollster::block_on(self.population.load(&build_batch(job, &[point], true)))?;
        pollster::block_on(self.population.inspect_all(buffers))
    }
}

/// Returns the batch to load on the device: one member per point in `u`, with the spectrum's data only if `with_data`.
fn build_batch(job: &Job, points: &[&[f64]], with_data: bool) -> Batch {
    let count = job.recording.parameters.len();
    Batch {
        spectra: 1,
        blocks: if with_data {
            job.batch.blocks.clone()
        } else {
            Vec::new()
        },
        lower: vec![-UNREACHED_BOUND; count],
        upper: vec![UNREACHED_BOUND; count],
        prior_mean: job.batch.prior_mean.clone(),
        prior_weight: job.batch.prior_weight.clone(),
        group: vec![0; points.len()],
        starts: points.concat(),
        ..Batch::default()
    }
}
