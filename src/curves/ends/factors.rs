//! Gauss–Newton steps and covariances from a Jacobian J in f64: through the Cholesky factor of JᵀJ where the columns
//! are independent enough that rounding of the square does not matter, else through QR and SVD of J. Columns are scaled
//! to unit length.

use nalgebra::{DMatrix, DVector};

use crate::math::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};

/// Smallest squared sine between a column and those before it with which JᵀJ is used: its rounding is then below 1e-12.
const MIN_INDEPENDENT_SQUARED_SINE: f64 = 1e-3;
/// Singular values below this share of the largest are rounding.
const MIN_RELATIVE_SINGULAR_VALUE: f64 = 1e-14;
/// A parameter with more than this share of a lost direction is undetermined.
const MAX_LOST_SHARE: f64 = 1e-3;
/// Dampings of steps where columns are nearly dependent.
const RELATIVE_DAMPINGS: [f64; 6] = [1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2];

/// Factors of J over the free parameters.
pub(crate) struct JacobianFactors {
    free: Vec<usize>,
    /// Lengths of the columns.
    scale: Vec<f64>,
    factorisation: Factorisation,
}

enum Factorisation {
    /// L Lᵀ = JᵀJ, packed.
    Normal(Vec<f64>),
    Orthogonal(Orthogonal),
}

/// Q R = J, R = U S Vᵀ.
struct Orthogonal {
    q: DMatrix<f64>,
    u: DMatrix<f64>,
    singular: DVector<f64>,
    v_t: DMatrix<f64>,
}

impl Orthogonal {
    /// Returns whether the data determine singular direction `k`: its singular value is large enough beside the largest
    /// one.
    fn is_determined(&self, k: usize) -> bool {
        self.singular[k] > MIN_RELATIVE_SINGULAR_VALUE * self.singular.max()
    }
}

impl JacobianFactors {
    /// Factorises the Jacobian's columns of `free` parameters; `None` without any, with fewer rows than columns, or if
    /// the SVD fails.
    pub fn new(jacobian: &DMatrix<f64>, free: &[usize]) -> Option<JacobianFactors> {
        if free.is_empty() || jacobian.nrows() < free.len() {
            return None;
        }
        let scale: Vec<f64> = free.iter().map(|&p| jacobian.column(p).norm()).collect();
        let factorisation = match factorise_normal_matrix(jacobian, free, &scale) {
            Some(lower) => Factorisation::Normal(lower),
            None => Factorisation::Orthogonal(factorise_orthogonally(jacobian, free, &scale)?),
        };
        Some(JacobianFactors {
            free: free.to_vec(),
            scale,
            factorisation,
        })
    }

    /// Returns whether the columns are far from dependent on each other.
    pub fn are_independent(&self) -> bool {
        matches!(self.factorisation, Factorisation::Normal(_))
    }

    /// Returns the Gauss–Newton step, its scaled length and that of the parameters; `None` when a direction is
    /// undetermined. `gradient`: Jᵀr by every parameter.
    pub fn gauss_newton_step(
        &self,
        residual: &DVector<f64>,
        gradient: &[f64],
        parameters: &[f64],
    ) -> Option<(DVector<f64>, f64, f64)> {
        let all_directions_determined = match &self.factorisation {
            Factorisation::Normal(_) => true,
            Factorisation::Orthogonal(orthogonal) => {
                (0..self.free.len()).all(|k| orthogonal.is_determined(k))
            }
        };
        if all_directions_determined {
            self.shortest_step(residual, gradient, parameters)
        } else {
            None
        }
    }

    /// Returns the shortest Gauss–Newton step, along determined directions, its scaled length and that of the
    /// parameters; `None` if not finite.
    pub fn shortest_step(
        &self,
        residual: &DVector<f64>,
        gradient: &[f64],
        parameters: &[f64],
    ) -> Option<(DVector<f64>, f64, f64)> {
        let scaled_parameters = self.free.iter().zip(&self.scale);
        // 1. Solve for the step of the parameters times the lengths of their columns.
        let mut step = match &self.factorisation {
            Factorisation::Normal(lower) => {
                let mut solution: Vec<f64> = scaled_parameters
                    .clone()
                    .map(|(&p, scale)| gradient[p] / scale)
                    .collect();
                solve_lower(lower, &mut solution);
                solve_upper(lower, &mut solution);
                DVector::from_vec(solution)
            }
            Factorisation::Orthogonal(orthogonal) => {
                let mut components = orthogonal.u.tr_mul(&orthogonal.q.tr_mul(residual));
                for (k, component) in components.iter_mut().enumerate() {
                    *component = if orthogonal.is_determined(k) {
                        *component / orthogonal.singular[k]
                    } else {
                        0.0
                    };
                }
                orthogonal.v_t.tr_mul(&components)
            }
        };
        // 2. Compare its length with that of the parameters, both in these units.
        let length = step.norm();
        let parameter_length = scaled_parameters
            .map(|(&p, scale)| (scale * parameters[p]).powi(2))
            .sum::<f64>()
            .sqrt();
        // 3. Return the step in the parameters' own units.
        for (change, scale) in step.iter_mut().zip(&self.scale) {
            *change /= scale;
        }
        step.iter()
            .all(|change| change.is_finite())
            .then_some((step, length, parameter_length))
    }

    /// Returns damped steps, (JᵀJ + μ s² D)⁻¹ Jᵀr with D = diag JᵀJ and s the largest singular value, for a few μ, if
    /// columns are nearly dependent; none otherwise.
    pub fn damped_steps(&self, residual: &DVector<f64>) -> Vec<Vec<f64>> {
        let Factorisation::Orthogonal(orthogonal) = &self.factorisation else {
            return Vec::new();
        };
        let largest = orthogonal.singular.max();
        let components = orthogonal.u.tr_mul(&orthogonal.q.tr_mul(residual));
        let mut steps = Vec::new();
        for damping in RELATIVE_DAMPINGS {
            let damped =
                components
                    .iter()
                    .zip(&orthogonal.singular)
                    .map(|(component, singular)| {
                        component * singular / (singular * singular + damping * largest * largest)
                    });
            let scaled_step = orthogonal
                .v_t
                .tr_mul(&DVector::from_iterator(components.len(), damped));
            let step: Vec<f64> = scaled_step
                .iter()
                .zip(&self.scale)
                .map(|(change, scale)| change / scale)
                .collect();
            if step.iter().all(|change| change.is_finite()) {
                steps.push(step);
            }
        }
        steps
    }

    /// Returns (JᵀJ)⁻¹ of all `count` parameters, row by row: 0 for those that are not free, NaN for undetermined ones.
    pub fn covariance(&self, count: usize) -> Vec<f64> {
        let n = self.free.len();
        let scaled = match &self.factorisation {
            Factorisation::Normal(lower) => invert_from_cholesky(lower, n),
            Factorisation::Orthogonal(orthogonal) => orthogonal.covariance(&self.scale),
        };
        let mut covariance = vec![0.0; count * count];
        for (i, &p) in self.free.iter().enumerate() {
            for (j, &q) in self.free.iter().enumerate() {
                covariance[p * count + q] = scaled[i * n + j] / (self.scale[i] * self.scale[j]);
            }
        }
        covariance
    }
}

impl Orthogonal {
    /// Returns (JᵀJ)⁻¹ of the Jacobian's columns scaled to unit length, row by row, with NaN for undetermined
    /// parameters.
    fn covariance(&self, scale: &[f64]) -> Vec<f64> {
        let n = scale.len();
        let is_undetermined: Vec<bool> = (0..n)
            .map(|i| {
                scale[i] == 0.0
                    || (0..n)
                        .any(|k| !self.is_determined(k) && self.v_t[(k, i)].abs() > MAX_LOST_SHARE)
            })
            .collect();
        let element = |i: usize, j: usize| {
            let determined = (0..n).filter(|&k| self.is_determined(k));
            let sum: f64 = determined
                .map(|k| self.v_t[(k, i)] * self.v_t[(k, j)] / self.singular[k].powi(2))
                .sum();
            if is_undetermined[i] || is_undetermined[j] {
                f64::NAN
            } else {
                sum
            }
        };
        (0..n * n).map(|k| element(k / n, k % n)).collect()
    }
}

/// Returns the packed Cholesky factor L of JᵀJ for the free columns scaled to unit length; `None` where they are too
/// nearly dependent.
fn factorise_normal_matrix(
    jacobian: &DMatrix<f64>,
    free: &[usize],
    scale: &[f64],
) -> Option<Vec<f64>> {
    let n = free.len();
    let mut lower = vec![0.0; packed_length(n)];
    for i in 0..n {
        for j in 0..=i {
            let product = jacobian.column(free[i]).dot(&jacobian.column(free[j]));
            lower[packed_index(i, j)] = product / (scale[i] * scale[j]);
        }
    }
    let is_factorised = cholesky(&mut lower, n)
        && (0..n).all(|i| lower[packed_index(i, i)].powi(2) > MIN_INDEPENDENT_SQUARED_SINE);
    is_factorised.then_some(lower)
}

/// Returns the n × n matrix (L Lᵀ)⁻¹, row by row, for a packed lower triangle L.
fn invert_from_cholesky(lower: &[f64], n: usize) -> Vec<f64> {
    let mut inverse = vec![0.0; n * n];
    for (i, row) in inverse.chunks_exact_mut(n).enumerate() {
        row[i] = 1.0;
        solve_lower(lower, row);
        solve_upper(lower, row);
    }
    inverse
}

/// Returns the QR decomposition of the free columns scaled to unit length, and R's SVD; `None` where that does not
/// converge.
fn factorise_orthogonally(
    jacobian: &DMatrix<f64>,
    free: &[usize],
    scale: &[f64],
) -> Option<Orthogonal> {
    let mut scaled = jacobian.select_columns(free);
    for (mut column, scale) in scaled.column_iter_mut().zip(scale) {
        // A column of zeros stays one.
        column /= if *scale > 0.0 { *scale } else { 1.0 };
    }
    let qr = scaled.qr();
    let svd = qr.r().svd(true, true);
    Some(Orthogonal {
        q: qr.q(),
        u: svd.u?,
        singular: svd.singular_values,
        v_t: svd.v_t?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both factorisations give the same step and covariance; columns that depend on each other take the second.
    #[test]
    fn normal_and_orthogonal_factors_give_the_same_step_and_covariance() {
        let jacobian = DMatrix::from_fn(7, 3, |i, p| {
            (i as f64 - 2.5).powi(p as i32) + 0.01 * (i * p) as f64
        });
        let residual = DVector::from_fn(7, |i, _| (1.3 * i as f64).sin());
        let gradient: Vec<f64> = jacobian.tr_mul(&residual).iter().copied().collect();
        let free = [0, 2];
        let normal = JacobianFactors::new(&jacobian, &free).unwrap();
        assert!(matches!(normal.factorisation, Factorisation::Normal(_)));
        let factorisation = Factorisation::Orthogonal(
            factorise_orthogonally(&jacobian, &free, &normal.scale).unwrap(),
        );
        let orthogonal = JacobianFactors {
            free: normal.free.clone(),
            scale: normal.scale.clone(),
            factorisation,
        };
        let close = |a: &f64, b: &f64| (a - b).abs() <= 1e-13 * a.abs().max(1e-3);
        let steps = [&normal, &orthogonal].map(|factors| {
            factors
                .gauss_newton_step(&residual, &gradient, &[1.0, 2.0, 3.0])
                .unwrap()
        });
        assert!(
            steps[0]
                .0
                .iter()
                .zip(steps[1].0.iter())
                .all(|(a, b)| close(a, b)),
            "{steps:?}"
        );
        assert!(close(&steps[0].1, &steps[1].1) && close(&steps[0].2, &steps[1].2));
        assert!(
            normal
                .covariance(3)
                .iter()
                .zip(&orthogonal.covariance(3))
                .all(|(a, b)| close(a, b))
        );
        let twins = DMatrix::from_fn(7, 2, |i, p| i as f64 + 1.0 + 1e-3 * (p * i * i) as f64);
        assert!(matches!(
            JacobianFactors::new(&twins, &[0, 1]).unwrap().factorisation,
            Factorisation::Orthogonal(_)
        ));
    }
}
