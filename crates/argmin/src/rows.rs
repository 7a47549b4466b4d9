//! Weighted residuals, model − data, and their Jacobian as an optimiser for least squares wants them.
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
pub(super) fn values(job: &Job, id: BufferId) -> Vec<f64> {
    let block = job.batch.blocks.iter().find(|(other, _)| *other == id);
    block.map_or_else(Vec::new, |(_, values)| match values {
        Values::I32(_) => Vec::new(),
        numbers => numbers.to_f64(),
    })
}

/// One arm's constants.
pub(super) struct Arm {
    model: BufferId,
    solution: Option<BufferId>,
    /// Pixels of a row of the model.
    stride: usize,
    /// The parameter of each tangent row.
    columns: Vec<usize>,
    /// Pixels that count.
    used: Vec<usize>,
    data: Vec<f64>,
    weight: Vec<f64>,
    terms: usize,
    /// (terms, used), orthonormal.
    basis: Vec<f64>,
    /// The basis and its transpose, as right factors.
    packed: Packed<f64>,
    packed_transpose: Packed<f64>,
}

impl Arm {
    /// Returns the constants (data, weights, continuum basis) of every arm of the job.
    pub fn all(job: &Job) -> Vec<Arm> {
        job.recording
            .stages
            .iter()
            .filter_map(|stage| Arm::new(job, stage))
            .collect()
    }

    /// Returns an arm's constants if this stage compares its model with data by least squares; `None` for other stages.
    fn new(job: &Job, stage: &Stage) -> Option<Arm> {
        let Stage::Normal(normal) = stage else {
            return None;
        };
        let values = |id| values(job, id);
        let (data, weight) = (values(normal.data), values(normal.weight));
        let used: Vec<usize> = (0..weight.len()).filter(|&j| weight[j] > 0.0).collect();
        let (mut terms, mut orthonormal) = (0, Vec::new());
        if let Some((basis, _)) = &normal.continuum {
            let (raw, transform) = (values(basis.basis), values(basis.transform));
            let at = |c: usize, j: usize| {
                (0..=c)
                    .map(|k| transform[c * basis.terms + k] * raw[k * normal.pixels + j])
                    .sum::<f64>()
            };
            terms = basis.terms;
            orthonormal = (0..terms)
                .flat_map(|c| used.iter().map(move |&j| (c, j)))
                .map(|(c, j)| at(c, j))
                .collect();
        }
        Some(Arm {
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
    fn fill(
        &self,
        model: &[f64],
        solution: &[f64],
        n: usize,
        residual: &mut Vec<f64>,
        jacobian: &mut [f64],
    ) {
        let (first, count) = (residual.len(), self.used.len());
        let mut continuum = vec![if self.terms == 0 { 1.0 } else { 0.0 }; count];
        for (row, a) in self.basis.chunks_exact(count.max(1)).zip(solution) {
            continuum
                .iter_mut()
                .zip(row)
                .for_each(|(sum, q)| *sum += a * q);
        }
        let scaled: Vec<f64> = continuum
            .iter()
            .zip(&self.weight)
            .map(|(c, w)| c * w)
            .collect();
        let row = |k: usize| &model[k * self.stride..(k + 1) * self.stride];
        let pixels = self.used.iter().zip(&scaled).zip(&self.data);
        residual.extend(pixels.map(|((&j, s), d)| s * row(0)[j] - d));
        let mut columns = Vec::with_capacity(count * self.columns.len());
        for k in 0..self.columns.len() {
            let row = row(1 + k);
            columns.extend(self.used.iter().zip(&scaled).map(|(&j, s)| s * row[j]));
        }
        if self.terms > 0 {
            let slope: Vec<f64> = self
                .used
                .iter()
                .zip(&self.weight)
                .map(|(&j, w)| w * row(0)[j])
                .collect();
            self.project(&slope, &solution[self.terms..], &mut columns);
        }
        for (column, &p) in columns.chunks_exact(count.max(1)).zip(&self.columns) {
            let target = &mut jacobian[p * n + first..][..count];
            target.iter_mut().zip(column).for_each(|(sum, x)| *sum += x);
        }
    }

    /// Subtracts from the Jacobian's columns what the continuum can fit: J − S C⁻¹ SᵀJ with S = slope · basis, C = L
    /// Lᵀ.
    fn project(&self, slope: &[f64], factor: &[f64], columns: &mut [f64]) {
        let (n, terms) = (self.used.len(), self.terms);
        let by_slope = |columns: &[f64]| -> Vec<f64> {
            columns
                .chunks_exact(n)
                .flat_map(|column| column.iter().zip(slope).map(|(x, s)| x * s))
                .collect()
        };
        let mut inner = self.packed_transpose.product(&by_slope(columns));
        let mut packed = vec![0.0; packed_length(terms)];
        for i in 0..terms {
            (0..=i).for_each(|j| packed[packed_index(i, j)] = factor[i * terms + j]);
        }
        for column in inner.chunks_exact_mut(terms) {
            solve_lower(&packed, column);
            solve_upper(&packed, column);
        }
        let spanned = self.packed.product(&inner);
        columns
            .iter_mut()
            .zip(by_slope(&spanned))
            .for_each(|(x, y)| *x -= y);
    }
}

/// Residuals (n) and Jacobian by `u`, its columns one after another (P, n).
pub(super) struct Rows {
    pub residual: Vec<f64>,
    pub jacobian: Vec<f64>,
}

impl Rows {
    /// Returns the residuals and the Jacobian at `point` from what was read back of the arms' buffers, `seen`.
    pub fn new(job: &Job, arms: &[Arm], seen: &[Vec<f64>], point: &[f64]) -> Rows {
        let extra = penalty_rows(job, point);
        let n = arms.iter().map(|arm| arm.used.len()).sum::<usize>() + extra.len();
        let (mut residual, mut jacobian) = (Vec::with_capacity(n), vec![0.0; n * point.len()]);
        let mut seen = seen.iter();
        for arm in arms {
            let Some(model) = seen.next() else { break };
            let solution = arm
                .solution
                .and_then(|_| seen.next())
                .map_or(&[][..], Vec::as_slice);
            arm.fill(model, solution, n, &mut residual, &mut jacobian);
        }
        for (r, row) in extra {
            row.iter()
                .enumerate()
                .for_each(|(p, x)| jacobian[p * n + residual.len()] = *x);
            residual.push(r);
        }
        Rows { residual, jacobian }
    }
}

/// Returns (residual, its row of the Jacobian) of each prior, then of each training hull, 0 inside the hull.
fn penalty_rows(job: &Job, point: &[f64]) -> Vec<(f64, Vec<f64>)> {
    let (mean, weight) = (&job.batch.prior_mean, &job.batch.prior_weight);
    let count = point.len();
    let mut rows = Vec::new();
    for p in (0..count).filter(|&p| weight[p] > 0.0) {
        let mut row = vec![0.0; count];
        row[p] = weight[p];
        rows.push(((point[p] - mean[p]) * weight[p], row));
    }
    let Some(Stage::Prior(stage)) = job.recording.stages.first() else {
        return rows;
    };
    let known = |id: &BufferId| job.batch.blocks.iter().find(|(other, _)| other == id);
    let weights =
        stage
            .weights
            .as_ref()
            .and_then(known)
            .map_or(&[][..], |(_, values)| match values {
                Values::F64(weights) => weights.as_slice(),
                _ => &[],
            });
    for (hull, hull_weight) in stage.hulls.iter().zip(weights) {
        // one row alone: its square is the penalty, and Jᵀr gives J
        let (alone, mut sums) = (
            Prior {
                hulls: vec![hull.clone()],
                weights: None,
            },
            Sums::poisoned(count),
        );
        let none = Priors {
            mean,
            weight: &vec![0.0; count],
        };
        add_penalties(
            &alone,
            &job.recording.parameters,
            point,
            none,
            |_| *hull_weight,
            &mut sums,
        );
        let r = sums.penalty.sqrt();
        let row = sums
            .gradient
            .iter()
            .map(|g| if r > 0.0 { -g / r } else { 0.0 })
            .collect();
        rows.push((r, row));
    }
    rows
}
