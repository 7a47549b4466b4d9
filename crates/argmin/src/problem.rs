//! A curve or a spectrum as a problem of argmin's.

use std::borrow::Borrow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use argmin::core::{
    CostFunction, Error as Failure, Gradient, Jacobian, Operator, SendAlias, SyncAlias,
};

use super::engine::DeviceEvaluator;
use popfit::low_level::Task;
use popfit::low_level::recording::Stage;
use popfit::low_level::solver::Outcome;
use popfit::{CurveFitter, Curves, Spectra, SpectralFitter};
use popfit::{Error, Result};

/// Many curves or spectra, of which [`problem`](Problems::problem) makes problems. It holds only their data; each
/// problem takes memory of the device.
#[derive(Clone)]
pub struct Problems(Vec<Task>);

impl Problems {
    /// Makes a problem of each curve, with the fitter's model, device, bounds, held parameters, priors and estimator. A
    /// curve that cannot be fitted is an error, and so are tied parameters: put their expressions into the formula.
    pub fn of_curves(fitter: &CurveFitter, curves: &Curves) -> Result<Problems> {
        Ok(Problems(Task::of_curves(fitter, curves)?))
    }

    /// Makes a problem of each spectrum, with the fitter's model, device and precision. Each starts where the first
    /// guess is best. A spectrum that cannot be fitted is an error.
    pub fn of_spectra(fitter: &SpectralFitter, spectra: &Spectra) -> Result<Problems> {
        Ok(Problems(Task::of_spectra(fitter, spectra)?))
    }

    /// Returns the number of problems.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no problems.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes the problem with this index ready to be solved, with memory of its own on the device.
    pub fn problem(&self, index: usize) -> Result<Problem> {
        let task = self.task(index)?.clone();
        Ok(Problem {
            evaluator: Mutex::new(DeviceEvaluator::new(&task)?),
            task,
        })
    }

    /// Returns the starting point of each problem, one after another, in the parameters' units: (problems, parameters).
    pub fn starts(&self) -> Vec<f64> {
        self.0
            .iter()
            .flat_map(|task| to_physical(task, &task.linearise.batch.starts))
            .collect()
    }

    /// Replaces the starting points of all problems, given in the parameters' units: (problems, parameters).
    pub fn with_starts(mut self, starts: &[f64]) -> Result<Problems> {
        let expected: usize = self.0.iter().map(|task| task.parameters.len()).sum();
        if starts.len() != expected {
            let message = format!(
                "{} numbers, not {expected}: every parameter of {} problems",
                starts.len(),
                self.len()
            );
            return Err(Error::ShapeMismatch {
                what: "starts".into(),
                argument: Some("starts".into()),
                message,
            });
        }
        let mut remaining = starts;
        for task in &mut self.0 {
            let (own_starts, later) = remaining.split_at(task.parameters.len());
            task.linearise.batch.starts = to_scaled(task, own_starts);
            task.evaluate
                .batch
                .starts
                .clone_from(&task.linearise.batch.starts);
            remaining = later;
        }
        Ok(self)
    }

    /// Returns the data of the problem with this index; fails beyond the last one.
    fn task(&self, index: usize) -> Result<&Task> {
        let missing = || Error::Usage(format!("no problem {index} among {}", self.len()));
        self.0.get(index).ok_or_else(missing)
    }
}

/// One curve or spectrum: what argmin's solvers minimise, evaluated on popfit's device.
///
/// Parameters are in the solver's units `u`, in which they are of about the same size ([`physical`](Self::physical) and
/// [`scaled`](Self::scaled) convert). Calls take turns: the device has room for one.
pub struct Problem {
    task: Task,
    evaluator: Mutex<DeviceEvaluator>,
}

impl Problem {
    /// Replaces this problem by the one with this index in `problems`, of the same fitter, and reuses its device
    /// memory. `problems` must be those that it came from.
    #[doc(hidden)]
    pub fn turn_to(&mut self, problems: &Problems, index: usize) -> Result<()> {
        let task = problems.task(index)?;
        if !std::sync::Arc::ptr_eq(&task.linearise.recording, &self.task.linearise.recording) {
            return Err(Error::Usage("a problem of another fitter".into()));
        }
        self.task = task.clone();
        self.lock_evaluator().turn_to(task);
        Ok(())
    }

    /// Returns the parameters' names, in the order that all vectors of parameters have.
    pub fn parameters(&self) -> Vec<String> {
        self.task
            .parameters
            .iter()
            .map(|parameter| parameter.name.clone())
            .collect()
    }

    /// Returns the point at which popfit would start, in scaled parameters `u`.
    pub fn start(&self) -> Vec<f64> {
        self.task.linearise.batch.starts.clone()
    }

    /// Returns the (lower, upper) bounds of each scaled parameter `u`; ±1e30 means no bound.
    pub fn bounds(&self) -> (Vec<f64>, Vec<f64>) {
        (
            self.task.linearise.batch.lower.clone(),
            self.task.linearise.batch.upper.clone(),
        )
    }

    /// Converts scaled parameters `u` to the parameters' own units.
    pub fn physical(&self, u: &[f64]) -> Vec<f64> {
        to_physical(&self.task, u)
    }

    /// Converts parameters from their own units to `u`, the inverse of [`physical`](Self::physical).
    pub fn scaled(&self, physical: &[f64]) -> Vec<f64> {
        to_scaled(&self.task, physical)
    }

    /// Returns the weighted residuals (model − data) / error at `u`, then a row per prior and training hull.
    /// [`Error::Usage`] when the estimator is not least squares. Their squares sum to χ² and what priors and hulls add.
    pub fn residuals(&self, u: &[f64]) -> Result<Vec<f64>> {
        self.check_length(u)?;
        let residual = self
            .lock_evaluator()
            .residual_rows(&self.task, u)?
            .residual
            .clone();
        self.check_model().map(|()| residual)
    }

    /// Returns the derivatives of the residuals by `u`, (residuals, parameters), one column after another. With a
    /// continuum it is variable projection's Jacobian in Kaufman's form.
    #[doc(hidden)]
    pub fn jacobian_columns(&self, u: &[f64]) -> Result<Vec<f64>> {
        self.check_length(u)?;
        let jacobian = self
            .lock_evaluator()
            .residual_rows(&self.task, u)?
            .jacobian
            .clone();
        self.check_model().map(|()| jacobian)
    }

    /// Returns χ² with priors and hulls, without ln det C, and its gradient by `u`, which is 0 for held parameters.
    /// Anywhere, bounds or not.
    #[doc(hidden)]
    pub fn cost_and_gradient(&self, u: &[f64]) -> Result<(f64, Vec<f64>)> {
        self.check_length(u)?;
        let (lower, upper) = self.bounds();
        let mut evaluator = self.lock_evaluator();
        let sums = evaluator.linearise(&self.task, u)?;
        self.check_model()?;
        let mut gradient = Vec::with_capacity(lower.len());
        for (p, (lower, upper)) in lower.iter().zip(&upper).enumerate() {
            let is_free = lower < upper;
            gradient.push(if is_free {
                -2.0 * sums.gradient[p]
            } else {
                0.0
            });
        }
        Ok((sums.chi2 + sums.penalty, gradient))
    }

    /// Returns (points evaluated, points linearised) since the problem was made or turned to another one.
    pub fn evaluations(&self) -> (u64, u64) {
        self.lock_evaluator().counts
    }

    /// Returns how many additions and multiplications an evaluation takes (a linearisation, if `derivatives`), roughly.
    #[doc(hidden)]
    pub fn operations(&self, derivatives: bool) -> f64 {
        let job = if derivatives {
            &self.task.linearise
        } else {
            &self.task.evaluate
        };
        let is_counted = |stage: &&Stage| {
            matches!(
                stage,
                Stage::Product(_) | Stage::Continuum(_) | Stage::Normal(_)
            )
        };
        job.recording
            .stages
            .iter()
            .filter(is_counted)
            .map(|stage| stage.cost(job.recording.declared()).operations)
            .sum()
    }

    /// Returns the objective at each point in `u`, computed together; ∞ outside the bounds and where it is not finite.
    fn objectives(&self, points: &[&[f64]]) -> Result<Vec<f64>> {
        // 1. Evaluate the points inside the bounds.
        let mut inside = Vec::with_capacity(points.len());
        for u in points {
            self.check_length(u)?;
            if self.contains(u) {
                inside.push(*u);
            }
        }
        let outcomes = self.lock_evaluator().evaluate(&self.task, &inside)?;
        self.check_model()?;
        // 2. Put their objectives in the order of all points.
        let mut outcomes = outcomes.iter();
        let objectives = points.iter().map(|u| {
            let outcome = if self.contains(u) {
                outcomes.next()
            } else {
                None
            };
            outcome.map_or(f64::INFINITY, |outcome| self.objective(outcome))
        });
        Ok(objectives.collect())
    }

    /// Returns χ² + penalty, plus the marginalisation's terms if there is one; ∞ if that is not finite.
    fn objective(&self, outcome: &Outcome) -> f64 {
        let marginal = if self.task.evaluate.recording.marginalise {
            outcome.ln_det + self.task.constant
        } else {
            0.0
        };
        let value = outcome.chi2 + outcome.penalty + marginal;
        if value.is_finite() {
            value
        } else {
            f64::INFINITY
        }
    }

    /// Returns whether the point `u` is inside the bounds.
    fn contains(&self, u: &[f64]) -> bool {
        let batch = &self.task.linearise.batch;
        u.iter()
            .zip(batch.lower.iter().zip(&batch.upper))
            .all(|(u, (low, high))| u >= low && u <= high)
    }

    /// Fails if `u` does not have as many numbers as the problem has parameters.
    fn check_length(&self, u: &[f64]) -> Result<()> {
        let count = self.task.parameters.len();
        if u.len() == count {
            return Ok(());
        }
        let message = format!("{} numbers for {}", u.len(), self.parameters().join(", "));
        Err(Error::ShapeMismatch {
            what: "parameters".into(),
            argument: Some("parameters".into()),
            message,
        })
    }

    /// Returns [`Error::Model`] if the user's model function has failed since the last call.
    fn check_model(&self) -> Result<()> {
        match self.task.take_failure() {
            None => Ok(()),
            Some(message) => Err(Error::Model {
                setting: None,
                message,
            }),
        }
    }

    /// Locks what evaluates the problem, also after another thread has panicked while it held the lock.
    fn lock_evaluator(&self) -> MutexGuard<'_, DeviceEvaluator> {
        self.evaluator
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Converts scaled parameters `u` to the parameters' own units: origin + scale × u.
fn to_physical(task: &Task, u: &[f64]) -> Vec<f64> {
    task.parameters
        .iter()
        .zip(u)
        .map(|(parameter, u)| parameter.origin + parameter.scale * u)
        .collect()
}

/// Converts parameters from their own units to scaled ones: u = (x − origin) / scale.
fn to_scaled(task: &Task, physical: &[f64]) -> Vec<f64> {
    task.parameters
        .iter()
        .zip(physical)
        .map(|(parameter, value)| (value - parameter.origin) / parameter.scale)
        .collect()
}

impl CostFunction for Problem {
    type Param = Vec<f64>;
    type Output = f64;

    /// χ² and penalties, with ln det C where the model marginalises: popfit's objective. ∞ outside the bounds.
    fn cost(&self, u: &Vec<f64>) -> Result<f64, Failure> {
        Ok(self.objectives(&[u])?.swap_remove(0))
    }

    /// Evaluates the cost at many points, up to 256 of them per dispatch.
    fn bulk_cost<P>(&self, params: &[P]) -> Result<Vec<f64>, Failure>
    where
        P: Borrow<Vec<f64>> + SyncAlias,
        f64: SendAlias,
        Self: SyncAlias,
    {
        let points: Vec<&[f64]> = params.iter().map(|u| u.borrow().as_slice()).collect();
        Ok(self.objectives(&points)?)
    }
}

impl Gradient for Problem {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;

    /// −2 Jᵀr, of χ² and penalties: without that of ln det C, which moves the minimum by less than 0.04 σ. Anywhere,
    /// bounds or not.
    fn gradient(&self, u: &Vec<f64>) -> Result<Vec<f64>, Failure> {
        Ok(self.cost_and_gradient(u)?.1)
    }
}

impl Operator for Problem {
    type Param = Vec<f64>;
    type Output = Vec<f64>;

    /// Returns the [`residuals`](Problem::residuals).
    fn apply(&self, u: &Vec<f64>) -> Result<Vec<f64>, Failure> {
        Ok(self.residuals(u)?)
    }
}

impl Jacobian for Problem {
    type Param = Vec<f64>;
    type Jacobian = Vec<Vec<f64>>;

    /// Returns the Jacobian of the residuals, row by row (n, P).
    fn jacobian(&self, u: &Vec<f64>) -> Result<Vec<Vec<f64>>, Failure> {
        let columns = self.jacobian_columns(u)?;
        let rows = columns.len() / u.len().max(1);
        Ok((0..rows)
            .map(|i| (0..u.len()).map(|p| columns[p * rows + i]).collect())
            .collect())
    }
}
