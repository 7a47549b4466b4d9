//! Gauss–Newton steps and covariances from a Jacobian J in f64: through the Cholesky factor of JᵀJ where the columns
//! are independent enough that rounding of the square does not matter, else through QR and SVD of J. Columns are scaled
//! to unit length.

use nalgebra::{DMatrix, DVector};

use crate::math::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};

/// Smallest squared sine between a column and those before it with which JᵀJ is used: its rounding is then below 1e-12.
const INDEPENDENT: f64 = 1e-3;
/// Singular values below this share of the largest are rounding.
const RANK: f64 = 1e-14;
/// A parameter with more than this share of a lost direction is undetermined.
const SHARE: f64 = 1e-3;
/// Dampings of steps where columns are nearly dependent.
const DAMPINGS: [f64; 6] = [1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2];

/// Factors of J over the free parameters.
pub(crate) struct Factors {
    free: Vec<usize>,
    /// Lengths of the columns.
    scale: Vec<f64>,
    kind: Kind,
}

enum Kind {
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
    fn is_kept(&self, k: usize) -> bool {
        self.singular[k] > RANK * self.singular.max()
    }
}

impl Factors {
    /// Factorises the Jacobian's columns of `free` parameters; `None` without any, with fewer rows than columns, or if
    /// the SVD fails.
    pub fn new(jacobian: &DMatrix<f64>, free: &[usize]) -> Option<Factors> {
        if free.is_empty() || jacobian.nrows() < free.len() {
            return None;
        }
        let scale: Vec<f64> = free.iter().map(|&p| jacobian.column(p).norm()).collect();
        let kind = match normal(jacobian, free, &scale) {
            Some(lower) => Kind::Normal(lower),
            None => Kind::Orthogonal(orthogonal(jacobian, free, &scale)?),
        };
        Some(Factors {
            free: free.to_vec(),
            scale,
            kind,
        })
    }

    /// Returns whether the columns are far from dependent on each other.
    pub fn are_independent(&self) -> bool {
        matches!(self.kind, Kind::Normal(_))
    }

    /// Returns the Gauss–Newton step, its scaled length and that of the parameters; `None` when a direction is
    /// undetermined. `gradient`: Jᵀr by every parameter.
    pub fn step(
        &self,
        residual: &DVector<f64>,
        gradient: &[f64],
        parameters: &[f64],
    ) -> Option<(DVector<f64>, f64, f64)> {
        let is_whole = match &self.kind {
            Kind::Normal(_) => true,
            Kind::Orthogonal(o) => (0..self.free.len()).all(|k| o.is_kept(k)),
        };
        if is_whole {
            self.least_step(residual, gradient, parameters)
        } else {
            None
        }
    }

    /// Returns the shortest Gauss–Newton step, along determined directions, its scaled length and that of the
    /// parameters; `None` if not finite.
    pub fn least_step(
        &self,
        residual: &DVector<f64>,
        gradient: &[f64],
        parameters: &[f64],
    ) -> Option<(DVector<f64>, f64, f64)> {
        let pairs = self.free.iter().zip(&self.scale);
        let mut delta = match &self.kind {
            Kind::Normal(lower) => {
                let mut x: Vec<f64> = pairs.clone().map(|(&p, s)| gradient[p] / s).collect();
                solve_lower(lower, &mut x);
                solve_upper(lower, &mut x);
                DVector::from_vec(x)
            }
            Kind::Orthogonal(o) => {
                let mut along = o.u.tr_mul(&o.q.tr_mul(residual));
                for (k, part) in along.iter_mut().enumerate() {
                    *part = if o.is_kept(k) {
                        *part / o.singular[k]
                    } else {
                        0.0
                    };
                }
                o.v_t.tr_mul(&along)
            }
        };
        let length = delta.norm();
        let size = pairs
            .map(|(&p, s)| (s * parameters[p]).powi(2))
            .sum::<f64>()
            .sqrt();
        delta.iter_mut().zip(&self.scale).for_each(|(d, s)| *d /= s);
        delta
            .iter()
            .all(|d| d.is_finite())
            .then_some((delta, length, size))
    }

    /// Returns damped steps, (JᵀJ + μ s² D)⁻¹ Jᵀr with D = diag JᵀJ and s the largest singular value, for a few μ, if
    /// columns are nearly dependent; none otherwise.
    pub fn damped_steps(&self, residual: &DVector<f64>) -> Vec<Vec<f64>> {
        let Kind::Orthogonal(o) = &self.kind else {
            return Vec::new();
        };
        let largest = o.singular.max();
        let along = o.u.tr_mul(&o.q.tr_mul(residual));
        let step = |damping: f64| {
            let share = |(part, s): (&f64, &f64)| part * s / (s * s + damping * largest * largest);
            let delta = o.v_t.tr_mul(&DVector::from_iterator(
                along.len(),
                along.iter().zip(&o.singular).map(share),
            ));
            delta
                .iter()
                .zip(&self.scale)
                .map(|(d, scale)| d / scale)
                .collect::<Vec<f64>>()
        };
        let steps = DAMPINGS.into_iter().map(step);
        steps
            .filter(|step| step.iter().all(|d| d.is_finite()))
            .collect()
    }

    /// Returns (JᵀJ)⁻¹ of all `count` parameters, row by row: 0 for those that are not free, NaN for undetermined ones.
    pub fn covariance(&self, count: usize) -> Vec<f64> {
        let n = self.free.len();
        let scaled = match &self.kind {
            Kind::Normal(lower) => inverse(lower, n),
            Kind::Orthogonal(orthogonal) => orthogonal.covariance(&self.scale),
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
        let lost: Vec<bool> = (0..n)
            .map(|i| {
                scale[i] == 0.0
                    || (0..n).any(|k| !self.is_kept(k) && self.v_t[(k, i)].abs() > SHARE)
            })
            .collect();
        let element = |i: usize, j: usize| {
            let kept = (0..n).filter(|&k| self.is_kept(k));
            let sum: f64 = kept
                .map(|k| self.v_t[(k, i)] * self.v_t[(k, j)] / self.singular[k].powi(2))
                .sum();
            if lost[i] || lost[j] { f64::NAN } else { sum }
        };
        (0..n * n).map(|at| element(at / n, at % n)).collect()
    }
}

/// Returns the packed Cholesky factor L of JᵀJ for the free columns scaled to unit length; `None` where they are too
/// nearly dependent.
fn normal(jacobian: &DMatrix<f64>, free: &[usize], scale: &[f64]) -> Option<Vec<f64>> {
    let n = free.len();
    let mut lower = vec![0.0; packed_length(n)];
    for i in 0..n {
        for j in 0..=i {
            let product = jacobian.column(free[i]).dot(&jacobian.column(free[j]));
            lower[packed_index(i, j)] = product / (scale[i] * scale[j]);
        }
    }
    let good =
        cholesky(&mut lower, n) && (0..n).all(|i| lower[packed_index(i, i)].powi(2) > INDEPENDENT);
    good.then_some(lower)
}

/// Returns the n × n matrix (L Lᵀ)⁻¹, row by row, for a packed lower triangle L.
fn inverse(lower: &[f64], n: usize) -> Vec<f64> {
    let mut all = vec![0.0; n * n];
    for (i, row) in all.chunks_exact_mut(n).enumerate() {
        row[i] = 1.0;
        solve_lower(lower, row);
        solve_upper(lower, row);
    }
    all
}

/// Returns the QR decomposition of the free columns scaled to unit length, and R's SVD; `None` where that does not
/// converge.
fn orthogonal(jacobian: &DMatrix<f64>, free: &[usize], scale: &[f64]) -> Option<Orthogonal> {
    let mut scaled = jacobian.select_columns(free);
    for (mut column, scale) in scaled.column_iter_mut().zip(scale) {
        // a column of zeros stays one
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

    /// Both ways give the same step and covariance; columns that depend on each other take the second.
    #[test]
    fn both_ways_agree() {
        let jacobian = DMatrix::from_fn(7, 3, |i, p| {
            (i as f64 - 2.5).powi(p as i32) + 0.01 * (i * p) as f64
        });
        let residual = DVector::from_fn(7, |i, _| (1.3 * i as f64).sin());
        let gradient: Vec<f64> = jacobian.tr_mul(&residual).iter().copied().collect();
        let free = [0, 2];
        let one = Factors::new(&jacobian, &free).unwrap();
        assert!(matches!(one.kind, Kind::Normal(_)));
        let kind = Kind::Orthogonal(orthogonal(&jacobian, &free, &one.scale).unwrap());
        let other = Factors {
            free: one.free.clone(),
            scale: one.scale.clone(),
            kind,
        };
        let close = |a: &f64, b: &f64| (a - b).abs() <= 1e-13 * a.abs().max(1e-3);
        let steps = [&one, &other].map(|f| f.step(&residual, &gradient, &[1.0, 2.0, 3.0]).unwrap());
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
            one.covariance(3)
                .iter()
                .zip(&other.covariance(3))
                .all(|(a, b)| close(a, b))
        );
        let twins = DMatrix::from_fn(7, 2, |i, p| i as f64 + 1.0 + 1e-3 * (p * i * i) as f64);
        assert!(matches!(
            Factors::new(&twins, &[0, 1]).unwrap().kind,
            Kind::Orthogonal(_)
        ));
    }
}
