//! Weighted residuals, model − data, and their Jacobian, as least-squares solvers need them.
//!
//! Where there is a continuum the Jacobian is that of variable projection in Kaufman's form, J − S C⁻¹ SᵀJ (see
//! `docs/src/equations.md`). Priors and training hulls are rows of their own, so that the squares sum to χ² and
//! penalty.

use popfit::low_level::Job;
use popfit::low_level::buffers::Sums;
use popfit::low_level::buffers::{packed_index, packed_length, solve_lower, solve_upper};
use popfit::low_level::kernels::Priors;
use popfit::low_level::kernels::prior::add_penalties;
use popfit::low_level::kernels::product::Packed;
use popfit::low_level::recording::{BufferId, Prior, Stage, Values};

/// Returns the data that one spectrum puts into a buffer, as f64; empty for a buffer of indices or without data.
pub(super) fn buffer_values(job: &Job, id: BufferId) -> Vec<f64> {
    let block = job.batch.blocks.iter().find(|(buffer, _)| *buffer == id);
    block.map_or_else(Vec::new, |(_, values)| match values {
        Values::I32(_) => Vec::new(),
        numbers => numbers.to_f64(),
    })
}

/// Constants of one arm.
pub(super) struct ArmConstants {
    model: BufferId,
    solution: Option<BufferId>,
    /// Number of pixels of a row of the model.
    stride: usize,
    /// Index of the parameter by which each further row of the model is a derivative.
    columns: Vec<usize>,
    /// Indices of the pixels with a weight.
    used: Vec<usize>,
    data: Vec<f64>,
    weight: Vec<f64>,
    /// Number of terms of the continuum; 0 without one.
    terms: usize,
    /// Orthonormal continuum basis: (terms, used).
    basis: Vec<f64>,
    /// The basis and its transpose, as right factors.
    packed: Packed<f64>,
    packed_transpose: Packed<f64>,
}

impl ArmConstants {
    /// Returns the constants (data, weights, continuum basis) of every arm of the job.
    pub fn of_all_arms(job: &Job) -> Vec<ArmConstants> {
        job.recording
            .stages
            .iter()
            .filter_map(|stage| ArmConstants::new(job, stage))
            .collect()
    }

    /// Returns an arm's constants if this stage compares its model with data by least squares; `None` for other stages.
    fn new(job: &Job, stage: &Stage) -> Option<ArmConstants> {
        let Stage::Normal(normal) = stage else {
            return None;
        };
        // 1. Read data and weights, and keep the pixels with a weight.
        let data = buffer_values(job, normal.data);
        let weight = buffer_values(job, normal.weight);
        let used: Vec<usize> = (0..weight.len()).filter(|&j| weight[j] > 0.0).collect();
        // 2. Read the continuum basis and make it orthonormal.
        let mut terms = 0;
        let mut orthonormal = Vec::new();
        if let Some((basis, _)) = &normal.continuum {
            // q_c = Σ_k T_ck b_k with the lower triangular transform T of the basis b
            let raw_basis = buffer_values(job, basis.basis);
            let transform = buffer_values(job, basis.transform);
            terms = basis.terms;
            for c in 0..terms {
                for &j in &used {
                    let value = (0..=c)
                        .map(|k| transform[c * terms + k] * raw_basis[k * normal.pixels + j])
                        .sum::<f64>();
                    orthonormal.push(value);
                }
            }
        }
        Some(ArmConstants {
            model: normal.model,
            solution: normal.continuum.as_ref().map(|(_, solution)| *solution),
            stride: normal.pixels,
            columns: normal.columns.clone(),
            data: used.iter().map(|&j| data[j]).collect(),
            weight: used.iter().map(|&j| weight[j]).collect(),
            packed: Packed::new(&orthonormal, terms, used.len()),
            packed_transpose: Packed::transposed(&orthonormal, terms, used.len()),
            used,
            terms,
            basis: orthonormal,
        })
    }

    /// Returns the buffers that are read back from the device: the arm's model, and the solution of its continuum.
    pub fn buffers(&self) -> Vec<BufferId> {
        std::iter::once(self.model).chain(self.solution).collect()
    }

    /// Appends the arm's residuals, and adds its rows to the Jacobian, whose columns have length `n`. `solution` is
    /// what [`Continuum`](popfit::low_level::recording::Continuum) writes.
    fn append_rows(
        &self,
        model: &[f64],
        solution: &[f64],
        n: usize,
        residual: &mut Vec<f64>,
        jacobian: &mut [f64],
    ) {
        let first_row = residual.len();
        let count = self.used.len();
        // 1. The continuum multiplies the model; without one it is 1.
        let mut continuum = vec![if self.terms == 0 { 1.0 } else { 0.0 }; count];
        for (row, coefficient) in self.basis.chunks_exact(count.max(1)).zip(solution) {
            continuum
                .iter_mut()
                .zip(row)
                .for_each(|(sum, basis)| *sum += coefficient * basis);
        }
        // 2. The residuals: weight × continuum × model − data.
        let scaled: Vec<f64> = continuum
            .iter()
            .zip(&self.weight)
            .map(|(continuum, weight)| continuum * weight)
            .collect();
        let model_row = |k: usize| &model[k * self.stride..(k + 1) * self.stride];
        let pixels = self.used.iter().zip(&scaled).zip(&self.data);
        residual.extend(pixels.map(|((&j, scale), data)| scale * model_row(0)[j] - data));
        // 3. The columns of the Jacobian, from which we project out what the continuum can fit.
        let mut columns = Vec::with_capacity(count * self.columns.len());
        for k in 0..self.columns.len() {
            let derivative = model_row(1 + k);
            columns.extend(
                self.used
                    .iter()
                    .zip(&scaled)
                    .map(|(&j, scale)| scale * derivative[j]),
            );
        }
        if self.terms > 0 {
            let slope: Vec<f64> = self
                .used
                .iter()
                .zip(&self.weight)
                .map(|(&j, weight)| weight * model_row(0)[j])
                .collect();
            self.project_out_continuum(&slope, &solution[self.terms..], &mut columns);
        }
        for (column, &p) in columns.chunks_exact(count.max(1)).zip(&self.columns) {
            let target = &mut jacobian[p * n + first_row..][..count];
            target
                .iter_mut()
                .zip(column)
                .for_each(|(sum, derivative)| *sum += derivative);
        }
    }

    /// Subtracts from the Jacobian's columns what the continuum can fit: J − S C⁻¹ SᵀJ with S = slope · basis, C = L
    /// Lᵀ.
    fn project_out_continuum(&self, slope: &[f64], factor: &[f64], columns: &mut [f64]) {
        let n = self.used.len();
        let terms = self.terms;
        let multiply_by_slope = |columns: &[f64]| -> Vec<f64> {
            columns
                .chunks_exact(n)
                .flat_map(|column| column.iter().zip(slope).map(|(value, slope)| value * slope))
                .collect()
        };
        let mut inner = self.packed_transpose.product(&multiply_by_slope(columns));
        let mut packed_factor = vec![0.0; packed_length(terms)];
        for i in 0..terms {
            for j in 0..=i {
                packed_factor[packed_index(i, j)] = factor[i * terms + j];
            }
        }
        for column in inner.chunks_exact_mut(terms) {
            solve_lower(&packed_factor, column);
            solve_upper(&packed_factor, column);
        }
        let continuum_part = self.packed.product(&inner);
        columns
            .iter_mut()
            .zip(multiply_by_slope(&continuum_part))
            .for_each(|(column, part)| *column -= part);
    }
}

/// Residuals (n) and Jacobian by `u`, its columns one after another (P, n).
pub(super) struct ResidualRows {
    pub residual: Vec<f64>,
    pub jacobian: Vec<f64>,
}

impl ResidualRows {
    /// Returns the residuals and the Jacobian at `point` from what was read back of the arms' buffers, `read_back`.
    pub fn new(
        job: &Job,
        arms: &[ArmConstants],
        read_back: &[Vec<f64>],
        point: &[f64],
    ) -> ResidualRows {
        let penalties = penalty_rows(job, point);
        let n = arms.iter().map(|arm| arm.used.len()).sum::<usize>() + penalties.len();
        let mut residual = Vec::with_capacity(n);
        let mut jacobian = vec![0.0; n * point.len()];
        let mut buffers = read_back.iter();
        for arm in arms {
            let Some(model) = buffers.next() else { break };
            let solution = arm
                .solution
                .and_then(|_| buffers.next())
                .map_or(&[][..], Vec::as_slice);
            arm.append_rows(model, solution, n, &mut residual, &mut jacobian);
        }
        for (penalty_residual, derivatives) in penalties {
            for (p, derivative) in derivatives.iter().enumerate() {
                jacobian[p * n + residual.len()] = *derivative;
            }
            residual.push(penalty_residual);
        }
        ResidualRows { residual, jacobian }
    }
}

/// Returns (residual, its row of the Jacobian) of each prior, then of each training hull, 0 inside the hull.
fn penalty_rows(job: &Job, point: &[f64]) -> Vec<(f64, Vec<f64>)> {
    let mean = &job.batch.prior_mean;
    let weight = &job.batch.prior_weight;
    let count = point.len();
    // 1. A prior's residual is (u − mean) × weight.
    let mut rows = Vec::new();
    for p in (0..count).filter(|&p| weight[p] > 0.0) {
        let mut row = vec![0.0; count];
        row[p] = weight[p];
        rows.push(((point[p] - mean[p]) * weight[p], row));
    }
    // 2. A hull has a residual r whose square is its penalty. Its gradient Jᵀr then gives the row J.
    let Some(Stage::Prior(stage)) = job.recording.stages.first() else {
        return rows;
    };
    let no_priors = Priors {
        mean,
        weight: &vec![0.0; count],
    };
    for (hull, hull_weight) in stage.hulls.iter().zip(hull_weights(job, stage)) {
        let hull_alone = Prior {
            hulls: vec![hull.clone()],
            weights: None,
        };
        let mut sums = Sums::poisoned(count);
        add_penalties(
            &hull_alone,
            &job.recording.parameters,
            point,
            no_priors,
            |_| *hull_weight,
            &mut sums,
        );
        let residual = sums.penalty.sqrt();
        let row = sums
            .gradient
            .iter()
            .map(|g| if residual > 0.0 { -g / residual } else { 0.0 })
            .collect();
        rows.push((residual, row));
    }
    rows
}

/// Returns the weight of each training hull; empty without hulls.
fn hull_weights<'a>(job: &'a Job, stage: &Prior) -> &'a [f64] {
    let buffer = stage.weights.as_ref();
    let block = buffer.and_then(|id| job.batch.blocks.iter().find(|(block, _)| block == id));
    match block {
        Some((_, Values::F64(weights))) => weights,
        _ => &[],
    }
}
