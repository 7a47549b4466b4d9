//! The normal equations of a cluster, whose matrix is an arrow: the shared parameters are coupled with all members, and
//! the own parameters of a member with no other member.
//!
//! With s the shared and o the own parameters of member i, and D the diagonal of the normal matrix A,
//!
//! ```text
//! W_i = (A_oo + λ D_oo)⁻¹ A_os        h_i = (A_oo + λ D_oo)⁻¹ g_o
//! S_i = A_ss − A_so W_i               s_i = g_s − A_so h_i
//! δ_s = (Σ S_i + λ Σ D_ss)⁻¹ Σ s_i    δ_o = h_i − W_i δ_s
//! ```
//!
//! S_i is the Schur complement (Golub & Van Loan 2013, section 3.2.6). The cost is linear in the number of members.

use nalgebra::{DMatrix, DVector, SymmetricEigen};

use crate::math::triangle::{packed_index, packed_length};
use crate::solver::Outcome;

/// Gradient Jᵀr and normal matrix JᵀJ of one spectrum at one point, without the prior on shared parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct NormalEquations {
    /// (P)
    pub gradient: Vec<f64>,
    /// (P (P + 1) / 2) lower triangle by rows.
    pub matrix: Vec<f64>,
}

/// Prior on the shared parameters, once for all members: residuals √weight (mean − u).
#[derive(Clone, Debug, PartialEq)]
pub struct SharedPrior {
    /// (shared) in the solver's u.
    pub means: Vec<f64>,
    /// (shared) 1/σ², 0 without a prior.
    pub weights: Vec<f64>,
}

/// What the elimination of the equations needs to know beside them.
#[derive(Clone, Copy, Debug)]
pub struct Elimination<'a> {
    /// Indices of the shared parameters.
    pub shared: &'a [usize],
    /// λ
    pub damping: f64,
    /// Smallest eigenvalue, of the matrix scaled to unit diagonal, of a direction that the data determine.
    pub tolerance: f64,
}

/// The equations of a member after its own parameters are eliminated.
pub struct ReducedEquations {
    /// Own parameters that are free.
    own: Vec<usize>,
    /// h (own)
    step: DVector<f64>,
    /// W (own, shared)
    response: DMatrix<f64>,
    /// S (shared, shared)
    pub information: DMatrix<f64>,
    /// s (shared)
    pub gradient: DVector<f64>,
    /// D_ss (shared)
    pub diagonal: DVector<f64>,
    /// g_oᵀ h, by which the step of the own parameters alone reduces the cost: the square of its length in errors.
    pub reduction: f64,
}

/// A step of the shared parameters.
pub struct SharedStep {
    /// (shared), 0 for those that are held.
    pub step: DVector<f64>,
    /// sᵀ δ_s: the square of its length in errors.
    pub reduction: f64,
}

impl NormalEquations {
    /// Takes the equations of an outcome whose objective contains the prior on shared parameters, and removes it.
    pub fn without_prior(
        outcome: &Outcome,
        shared: &[usize],
        prior: &SharedPrior,
    ) -> NormalEquations {
        let mut equations = NormalEquations::of(outcome);
        for (k, &p) in shared.iter().enumerate() {
            let weight = prior.weights[k];
            equations.gradient[p] -= weight * (prior.means[k] - outcome.parameters[p]);
            equations.matrix[packed_index(p, p)] -= weight;
        }
        equations
    }

    /// Takes the equations of an outcome whose objective does not contain the prior on shared parameters.
    pub fn of(outcome: &Outcome) -> NormalEquations {
        NormalEquations {
            gradient: outcome.gradient.clone(),
            matrix: outcome.normal_matrix.clone(),
        }
    }

    /// Returns element (a, b) of the normal matrix.
    fn element(&self, a: usize, b: usize) -> f64 {
        self.matrix[packed_index(a, b)]
    }

    /// Eliminates the own parameters that are free.
    pub fn eliminate(&self, by: Elimination, is_free: &[bool]) -> ReducedEquations {
        let Elimination {
            shared,
            damping,
            tolerance,
        } = by;
        let is_own = |p: &usize| is_free[*p] && !shared.contains(p);
        let own: Vec<usize> = (0..is_free.len()).filter(is_own).collect();
        let block = |rows: &[usize], columns: &[usize]| {
            DMatrix::from_fn(rows.len(), columns.len(), |i, j| {
                self.element(rows[i], columns[j])
            })
        };
        let part =
            |indices: &[usize]| DVector::from_fn(indices.len(), |i, _| self.gradient[indices[i]]);
        let matrix = block(&own, &own);
        let inverse = pseudo_inverse(&matrix, &matrix.diagonal(), damping, tolerance);
        let coupling = block(&own, shared);
        let response = &inverse * &coupling;
        let own_gradient = part(&own);
        let step = &inverse * &own_gradient;
        let shared_matrix = block(shared, shared);
        ReducedEquations {
            information: &shared_matrix - coupling.transpose() * &response,
            gradient: part(shared) - coupling.transpose() * &step,
            diagonal: shared_matrix.diagonal(),
            reduction: own_gradient.dot(&step),
            own,
            step,
            response,
        }
    }

    /// Returns by how much the cost falls to its minimum over the free parameters: gᵀ A⁺ g.
    pub fn predict_fall(&self, is_free: &[bool], tolerance: f64) -> f64 {
        let alone = Elimination {
            shared: &[],
            damping: 0.0,
            tolerance,
        };
        self.eliminate(alone, is_free).reduction
    }

    /// Returns 2 gᵀδ − δᵀAδ, by which a step δ (P) reduces the cost if it is quadratic.
    pub fn predict_reduction(&self, step: &[f64]) -> f64 {
        let mut reduction = 0.0;
        for (a, &by) in step.iter().enumerate() {
            let product: f64 = (0..step.len()).map(|b| self.element(a, b) * step[b]).sum();
            reduction += by * (2.0 * self.gradient[a] - product);
        }
        reduction
    }

    /// Returns the packed matrix whose inverse is the covariance of this member's parameters in the joint fit: its
    /// normal matrix, to whose shared block the information of the other members and of the prior is added.
    pub fn add_information(&self, shared: &[usize], others: &DMatrix<f64>) -> Vec<f64> {
        let mut information = self.matrix.clone();
        for (i, &a) in shared.iter().enumerate() {
            for (j, &b) in shared.iter().enumerate().take(i + 1) {
                information[packed_index(a, b)] += others[(i, j)];
            }
        }
        debug_assert_eq!(information.len(), packed_length(self.gradient.len()));
        information
    }
}

impl ReducedEquations {
    /// Writes the step δ_o = h − W δ_s of the own parameters into a step of all parameters (P).
    pub fn substitute_back(&self, shared_step: &DVector<f64>, step: &mut [f64]) {
        let own_step = &self.step - &self.response * shared_step;
        for (&p, by) in self.own.iter().zip(own_step.iter()) {
            step[p] = *by;
        }
    }

    /// Writes the change −W δ_s of the own parameters, by which they follow a change of the shared ones, into a step.
    pub fn follow(&self, shared_step: &DVector<f64>, step: &mut [f64]) {
        let own_step = -(&self.response * shared_step);
        for (&p, by) in self.own.iter().zip(own_step.iter()) {
            step[p] = *by;
        }
    }
}

impl SharedPrior {
    /// Returns Σ weight (mean − u)² at shared parameters (shared).
    pub fn cost(&self, shared: &[f64]) -> f64 {
        let terms = self.means.iter().zip(&self.weights).zip(shared);
        terms
            .map(|((mean, weight), u)| weight * (mean - u).powi(2))
            .sum()
    }

    /// Returns the information matrix (shared, shared).
    pub fn information(&self) -> DMatrix<f64> {
        DMatrix::from_diagonal(&DVector::from_column_slice(&self.weights))
    }

    /// Returns the gradient weight (mean − u).
    fn gradient(&self, shared: &[f64]) -> DVector<f64> {
        DVector::from_fn(shared.len(), |k, _| {
            self.weights[k] * (self.means[k] - shared[k])
        })
    }
}

/// Adds up the equations of all members and of the prior at the shared parameters `point`, and solves them for the
/// shared parameters that are free.
pub fn solve_shared(
    members: &[ReducedEquations],
    prior: &SharedPrior,
    point: &[f64],
    is_free: &[bool],
    by: Elimination,
) -> SharedStep {
    // 1. Sum the equations, in the order of the members.
    let mut matrix = prior.information();
    let mut diagonal = matrix.diagonal();
    let mut gradient = prior.gradient(point);
    for member in members {
        matrix += &member.information;
        diagonal += &member.diagonal;
        gradient += &member.gradient;
    }
    // 2. Solve those of the free parameters.
    let free: Vec<usize> = (0..point.len()).filter(|&k| is_free[k]).collect();
    let free_matrix = DMatrix::from_fn(free.len(), free.len(), |i, j| matrix[(free[i], free[j])]);
    let free_diagonal = DVector::from_fn(free.len(), |i, _| diagonal[free[i]]);
    let free_gradient = DVector::from_fn(free.len(), |i, _| gradient[free[i]]);
    let solution =
        pseudo_inverse(&free_matrix, &free_diagonal, by.damping, by.tolerance) * &free_gradient;
    let mut step = DVector::zeros(point.len());
    for (&k, by) in free.iter().zip(solution.iter()) {
        step[k] = *by;
    }
    SharedStep {
        step,
        reduction: free_gradient.dot(&solution),
    }
}

/// Returns (M + λ D)⁻¹ of a symmetric matrix M without the directions whose eigenvalue, of the matrix scaled by the
/// diagonal D, is at most `tolerance`, and without parameters whose element of D is not positive.
pub fn pseudo_inverse(
    matrix: &DMatrix<f64>,
    diagonal: &DVector<f64>,
    damping: f64,
    tolerance: f64,
) -> DMatrix<f64> {
    let n = matrix.nrows();
    let scale = diagonal.map(|d| {
        if d > 0.0 && d.is_finite() {
            d.sqrt().recip()
        } else {
            0.0
        }
    });
    let scaled = DMatrix::from_fn(n, n, |i, j| matrix[(i, j)] * scale[i] * scale[j]);
    let mut inverse = DMatrix::zeros(n, n);
    if n == 0 || scaled.iter().any(|element| !element.is_finite()) {
        return inverse;
    }
    let eigen = SymmetricEigen::new(scaled);
    for (k, &value) in eigen.eigenvalues.iter().enumerate() {
        if value > tolerance {
            let vector = eigen.eigenvectors.column(k).component_mul(&scale);
            inverse += &vector * vector.transpose() / (value + damping);
        }
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameters of a member of the tests. The second and the fourth are shared.
    const PARAMETERS: usize = 5;
    const SHARED: [usize; 2] = [1, 3];

    /// Equations of random residuals and derivatives at twelve pixels.
    fn random_equations(seed: u64) -> NormalEquations {
        let mut state = seed;
        let mut draw = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as f64 / f64::from(1u32 << 31) - 0.5
        };
        let jacobian = DMatrix::from_fn(12, PARAMETERS, |_, _| draw());
        let residual = DVector::from_fn(12, |_, _| draw());
        let normal = jacobian.transpose() * &jacobian;
        let mut matrix = vec![0.0; packed_length(PARAMETERS)];
        for a in 0..PARAMETERS {
            for b in 0..=a {
                matrix[packed_index(a, b)] = normal[(a, b)];
            }
        }
        NormalEquations {
            gradient: (jacobian.transpose() * residual).as_slice().to_vec(),
            matrix,
        }
    }

    /// Step, covariance and predicted fall are those of the dense equations of all members.
    #[test]
    fn the_arrow_is_the_dense_system() {
        let members: Vec<NormalEquations> = (1..=4).map(random_equations).collect();
        let prior = SharedPrior {
            means: vec![0.3, 0.0],
            weights: vec![2.0, 0.0],
        };
        let point = [0.1, -0.2];
        // 1. The dense system: the shared parameters, then the own ones of each member. One own parameter is held.
        let is_free_of = |member: usize| {
            let mut is_free = vec![true; PARAMETERS];
            is_free[4] = member != 2;
            is_free
        };
        let mut places: Vec<Vec<Option<usize>>> = Vec::new();
        let mut size = SHARED.len();
        for member in 0..members.len() {
            let is_free = is_free_of(member);
            let mut place_of = |p: usize| {
                if let Some(k) = SHARED.iter().position(|&shared| shared == p) {
                    return Some(k);
                }
                is_free[p].then(|| {
                    size += 1;
                    size - 1
                })
            };
            places.push((0..PARAMETERS).map(&mut place_of).collect());
        }
        let damping = 0.3;
        let mut dense = DMatrix::zeros(size, size);
        let mut gradient = DVector::zeros(size);
        for (member, places) in members.iter().zip(&places) {
            for (a, i) in places.iter().enumerate() {
                let Some(i) = *i else { continue };
                gradient[i] += member.gradient[a];
                for (b, j) in places.iter().enumerate() {
                    let Some(j) = *j else { continue };
                    dense[(i, j)] += member.element(a, b);
                }
            }
        }
        dense[(0, 0)] += 2.0;
        gradient[0] += 2.0 * (0.3 - 0.1);
        let mut damped = dense.clone();
        for i in 0..size {
            damped[(i, i)] *= 1.0 + damping;
        }
        let expected = damped.cholesky().unwrap().solve(&gradient);
        // 2. The arrow.
        let by = Elimination {
            shared: &SHARED,
            damping,
            tolerance: 1e-12,
        };
        let reduced: Vec<ReducedEquations> = members
            .iter()
            .enumerate()
            .map(|(k, member)| member.eliminate(by, &is_free_of(k)))
            .collect();
        let shared = solve_shared(&reduced, &prior, &point, &[true; 2], by);
        for (k, reduced) in reduced.iter().enumerate() {
            let mut step = vec![0.0; PARAMETERS];
            reduced.substitute_back(&shared.step, &mut step);
            for (i, &p) in SHARED.iter().enumerate() {
                step[p] = shared.step[i];
            }
            for (p, place) in places[k].iter().enumerate() {
                let expected = place.map_or(0.0, |place| expected[place]);
                assert!(
                    (step[p] - expected).abs() < 1e-12,
                    "{k} {p}: {} {expected}",
                    step[p]
                );
            }
        }
        // 3. The predicted fall of the undamped step is the sum of the parts.
        let undamped = Elimination { damping: 0.0, ..by };
        let reduced: Vec<ReducedEquations> = members
            .iter()
            .enumerate()
            .map(|(k, member)| member.eliminate(undamped, &is_free_of(k)))
            .collect();
        let shared = solve_shared(&reduced, &prior, &point, &[true; 2], undamped);
        let fall = shared.reduction + reduced.iter().map(|member| member.reduction).sum::<f64>();
        let inverse = dense.cholesky().unwrap().inverse();
        let expected = gradient.dot(&(&inverse * &gradient));
        assert!((fall - expected).abs() < 1e-12, "{fall} {expected}");
        // 4. The covariance of a member is its block of the inverse.
        let total = reduced
            .iter()
            .fold(prior.information(), |sum, member| sum + &member.information);
        for (k, member) in members.iter().enumerate() {
            let others = &total - &reduced[k].information;
            let packed = member.add_information(&SHARED, &others);
            let free: Vec<usize> = (0..PARAMETERS)
                .filter(|&p| places[k][p].is_some())
                .collect();
            let matrix = DMatrix::from_fn(free.len(), free.len(), |i, j| {
                packed[packed_index(free[i], free[j])]
            });
            let block = matrix.cholesky().unwrap().inverse();
            for (i, &a) in free.iter().enumerate() {
                for (j, &b) in free.iter().enumerate() {
                    let expected = inverse[(places[k][a].unwrap(), places[k][b].unwrap())];
                    assert!((block[(i, j)] - expected).abs() < 1e-10);
                }
            }
        }
    }

    #[test]
    fn directions_without_information_are_left_out() {
        // The first two parameters act alike, and the third has no effect.
        let matrix = DMatrix::from_row_slice(3, 3, &[2.0, 2.0, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
        let inverse = pseudo_inverse(&matrix, &matrix.diagonal(), 0.0, 1e-6);
        assert!((inverse[(0, 0)] - 0.125).abs() < 1e-12 && inverse[(2, 2)] == 0.0);
    }
}
