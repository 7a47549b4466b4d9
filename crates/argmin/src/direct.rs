//! Evaluation of a formula at one point on this thread. It computes what a population would, without the bookkeeping,
//! which takes longer than 25 points.

use super::rows::buffer_values;
use popfit::low_level::buffers::Sums;
use popfit::low_level::buffers::packed_index;
use popfit::low_level::kernels::Priors;
use popfit::low_level::kernels::prior::add_penalties;
use popfit::low_level::recording::{
    Custom, CustomFunction, CustomInput, Limits, Member, Normal, Precision, Stage,
};
use popfit::low_level::solver::Outcome;
use popfit::low_level::{Job, Task};

/// A model on the host with its data.
pub(super) struct DirectEvaluator {
    function: CustomFunction,
    derivatives: CustomFunction,
    predictor: Vec<f64>,
    /// Scales of the parameters, which are `scale` u, then their lower and their upper bounds.
    scale: Vec<f64>,
    data: Vec<f64>,
    weight: Vec<f64>,
    /// Model values and derivatives, whose memory is reused: (1 + parameters, points).
    rows: Vec<f64>,
}

/// Returns the two stages that evaluate a formula without a continuum; `None` for a job of other stages.
fn formula_stages(job: &Job) -> Option<(&Custom, &Normal)> {
    match job.recording.stages.as_slice() {
        [
            Stage::Prior(_),
            Stage::Custom(custom),
            Stage::Normal(normal),
        ] if normal.continuum.is_none() => Some((custom, normal)),
        _ => None,
    }
}

impl DirectEvaluator {
    /// Returns an evaluator that calls a formula's Rust code itself; `None` for spectra, and on other devices than the
    /// CPU.
    pub fn new(task: &Task) -> Option<DirectEvaluator> {
        if task.precision() != Precision::F64 {
            return None;
        }
        let (derivatives, normal) = formula_stages(&task.linearise)?;
        let (function, _) = formula_stages(&task.evaluate)?;
        let values_of = |id| buffer_values(&task.linearise, id);
        Some(DirectEvaluator {
            function: function.rust.clone(),
            derivatives: derivatives.rust.clone(),
            predictor: values_of(derivatives.predictor),
            scale: derivatives.scale.map(values_of)?,
            data: values_of(normal.data),
            weight: values_of(normal.weight),
            rows: vec![0.0; derivatives.rows * derivatives.pixels],
        })
    }

    /// Returns the model's values at `u` and its derivatives by `u`, row by row: (1 + parameters, points).
    pub fn compute_and_copy_rows(&mut self, u: &[f64]) -> Vec<f64> {
        self.compute_rows(u);
        self.rows.clone()
    }

    /// Calls the formula's code at `u`, converted to the parameters' units, which writes its values into `rows`.
    fn call_function(&self, function: &CustomFunction, u: &[f64], rows: &mut [f64]) {
        let limits = Limits::read(&self.scale, u.len());
        let member = Member::read(&self.scale, u.len());
        let parameters: Vec<f64> = u
            .iter()
            .zip(limits.scale)
            .map(|(u, scale)| u * scale)
            .collect();
        let input = CustomInput {
            x: &self.predictor,
            parameters: &parameters,
            limits: Some(limits),
            member,
        };
        function(&input, rows);
    }

    /// Computes the model's values at `u` and its derivatives by `u`, and stores them in `self.rows`.
    fn compute_rows(&mut self, u: &[f64]) {
        let function = self.derivatives.clone();
        let mut rows = std::mem::take(&mut self.rows);
        self.call_function(&function, u, &mut rows);
        self.rows = rows;
        let derivative_rows = self.rows.chunks_exact_mut(self.data.len()).skip(1);
        // derivatives by u, as the formula gives them by the parameters themselves
        for (row, scale) in derivative_rows.zip(&self.scale) {
            row.iter_mut().for_each(|derivative| *derivative *= scale);
        }
    }

    /// Computes χ² and the priors' penalty at `u`, without derivatives.
    pub fn evaluate(&mut self, task: &Task, u: &[f64]) -> Outcome {
        let points = self.data.len();
        let function = self.function.clone();
        let mut rows = std::mem::take(&mut self.rows);
        self.call_function(&function, u, &mut rows[..points]);
        self.rows = rows;
        let mut sums = sum_penalties(&task.evaluate, u);
        sums.chi2 = (0..points).map(|j| self.residual(j).powi(2)).sum();
        into_outcome(u, sums)
    }

    /// Computes χ², the priors' penalty, gradient and normal matrix at `u`.
    pub fn linearise(&mut self, task: &Task, u: &[f64]) -> Outcome {
        self.compute_rows(u);
        let points = self.data.len();
        let parameters = u.len();
        let mut sums = sum_penalties(&task.linearise, u);
        for j in (0..points).filter(|&j| self.weight[j] > 0.0) {
            let residual = self.residual(j);
            let weight = self.weight[j];
            sums.chi2 += residual * residual;
            for p in 0..parameters {
                let slope = weight * self.rows[(1 + p) * points + j];
                sums.gradient[p] += slope * residual;
                for q in 0..=p {
                    sums.normal_matrix[packed_index(p, q)] +=
                        slope * weight * self.rows[(1 + q) * points + j];
                }
            }
        }
        into_outcome(u, sums)
    }

    /// Returns (data − model) / error of point `j` as last computed; 0 for a masked point.
    fn residual(&self, j: usize) -> f64 {
        if self.weight[j] > 0.0 {
            self.data[j] - self.weight[j] * self.rows[j]
        } else {
            0.0
        }
    }
}

/// Returns sums that have the penalty, gradient and normal matrix of the priors at `u`, and nothing of the data.
fn sum_penalties(job: &Job, u: &[f64]) -> Sums {
    let mut sums = Sums::poisoned(u.len());
    if let Some(Stage::Prior(stage)) = job.recording.stages.first() {
        let priors = Priors {
            mean: &job.batch.prior_mean,
            weight: &job.batch.prior_weight,
        };
        // formulas have no hulls
        add_penalties(
            stage,
            &job.recording.parameters,
            u,
            priors,
            |_| 0.0,
            &mut sums,
        );
    }
    sums
}

/// Packs the sums at `u` as the result of one evaluation.
fn into_outcome(u: &[f64], sums: Sums) -> Outcome {
    Outcome {
        status: None,
        gave_way: None,
        rounds: 1,
        evaluations: 1,
        parameters: u.to_vec(),
        chi2: sums.chi2,
        penalty: sums.penalty,
        ln_det: sums.ln_det,
        loss: sums.loss,
        gradient: sums.gradient,
        normal_matrix: sums.normal_matrix,
    }
}
