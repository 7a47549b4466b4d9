//! The other crates' solvers on one problem of popfit's, each set up as its documentation says, with the tolerances of
//! [`TOLERANCE`].

use std::cell::Cell;

use argmin::core::{CostFunction, Error, Executor, Gradient, Jacobian, Operator, State};
use argmin::solver::gaussnewton::GaussNewton;
use argmin::solver::linesearch::MoreThuenteLineSearch;
use argmin::solver::neldermead::NelderMead;
use argmin::solver::particleswarm::ParticleSwarm;
use argmin::solver::quasinewton::LBFGS;
use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::{DMatrix, DVector, Dyn, storage::Owned};
use peer_nalgebra as nalgebra;
use peer_rand::{SeedableRng, rngs::StdRng};
use popfit_argmin::Problem;

/// All solvers stop when a step is expected to change the objective by less than about this.
pub const TOLERANCE: f64 = 1e-4;
/// Edge of the first simplex, popfit's own.
const SIMPLEX: f64 = 0.5;
const PARTICLES: usize = 40;
const SWARM_ITERATIONS: u64 = 100;
/// Steps that L-BFGS remembers.
const MEMORY: usize = 7;
/// Evaluations that L-BFGS may use for one fit: argmin's line search has no limit, and may never end where rounding
/// hides the slope.
const EVALUATIONS: u32 = 5000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    NelderMead,
    GaussNewton,
    Lbfgs,
    Swarm,
    SwarmInBulk,
    RustCv,
}

impl Peer {
    pub const ALL: [Peer; 6] = [
        Peer::RustCv,
        Peer::GaussNewton,
        Peer::Lbfgs,
        Peer::NelderMead,
        Peer::Swarm,
        Peer::SwarmInBulk,
    ];

    /// Returns the solver's name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Peer::NelderMead => "argmin nelder-mead",
            Peer::GaussNewton => "argmin gauss-newton",
            Peer::Lbfgs => "argmin l-bfgs",
            Peer::Swarm => "argmin particle swarm",
            Peer::SwarmInBulk => "argmin particle swarm, bulk",
            Peer::RustCv => "levenberg-marquardt",
        }
    }

    /// Solves a problem of this many data points; returns the point in `u` where it ends, `None` if argmin's solver
    /// failed.
    pub fn solve(self, problem: &Problem, points: usize) -> Option<Vec<f64>> {
        match self {
            Peer::NelderMead => nelder_mead(problem).ok(),
            Peer::GaussNewton => gauss_newton(problem, points).ok(),
            Peer::Lbfgs => lbfgs(problem).ok(),
            Peer::Swarm => swarm(problem, false).ok(),
            Peer::SwarmInBulk => swarm(problem, true).ok(),
            Peer::RustCv => rust_cv(problem, points),
        }
    }
}

/// Returns the error that a solver ended without a solution.
fn missing() -> Error {
    Error::msg("no solution")
}

/// Costs one at a time, or those of an iteration in one dispatch.
struct Costs<'a> {
    problem: &'a Problem,
    in_bulk: bool,
}

impl CostFunction for Costs<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, u: &Vec<f64>) -> Result<f64, Error> {
        self.problem.cost(u)
    }

    fn bulk_cost<P: std::borrow::Borrow<Vec<f64>>>(&self, params: &[P]) -> Result<Vec<f64>, Error> {
        match self.in_bulk {
            true => self.problem.bulk_cost(params),
            false => params.iter().map(|u| self.cost(u.borrow())).collect(),
        }
    }
}

/// Solves a problem by argmin's Nelder–Mead; returns the best point in `u`.
fn nelder_mead(problem: &Problem) -> Result<Vec<f64>, Error> {
    let (start, (_, upper)) = (problem.start(), problem.bounds());
    let mut simplex = vec![start.clone()];
    for p in 0..start.len() {
        let mut vertex = start.clone();
        vertex[p] += if vertex[p] + SIMPLEX <= upper[p] {
            SIMPLEX
        } else {
            -SIMPLEX
        };
        simplex.push(vertex);
    }
    let solver = NelderMead::new(simplex).with_sd_tolerance(TOLERANCE)?;
    let run = Executor::new(
        Costs {
            problem,
            in_bulk: false,
        },
        solver,
    )
    .configure(|state| state.max_iters(5000))
    .run()?;
    run.state.get_best_param().cloned().ok_or_else(missing)
}

/// Solves a problem by argmin's particle swarm, evaluating all particles together if `in_bulk`; returns the best `u`.
fn swarm(problem: &Problem, in_bulk: bool) -> Result<Vec<f64>, Error> {
    let solver = ParticleSwarm::new(problem.bounds(), PARTICLES)
        .with_rng_generator(StdRng::seed_from_u64(3));
    let run = Executor::new(Costs { problem, in_bulk }, solver)
        .configure(|state| state.max_iters(SWARM_ITERATIONS))
        .run()?;
    Ok(run
        .state
        .get_best_param()
        .ok_or_else(missing)?
        .position
        .clone())
}

/// Residuals and Jacobian as matrices.
struct Matrices<'a> {
    problem: &'a Problem,
    u: DVector<f64>,
}

impl Matrices<'_> {
    /// Returns the residuals at `u` as a vector.
    fn residual(&self, u: &DVector<f64>) -> popfit::Result<DVector<f64>> {
        Ok(DVector::from_vec(self.problem.residuals(u.as_slice())?))
    }

    /// Returns the Jacobian of the residuals at `u` as a matrix.
    fn derivatives(&self, u: &DVector<f64>) -> popfit::Result<DMatrix<f64>> {
        let columns = self.problem.jacobian_columns(u.as_slice())?;
        Ok(DMatrix::from_vec(columns.len() / u.len(), u.len(), columns))
    }
}

impl Operator for Matrices<'_> {
    type Param = DVector<f64>;
    type Output = DVector<f64>;

    fn apply(&self, u: &DVector<f64>) -> Result<DVector<f64>, Error> {
        Ok(self.residual(u)?)
    }
}

impl Jacobian for Matrices<'_> {
    type Param = DVector<f64>;
    type Jacobian = DMatrix<f64>;

    fn jacobian(&self, u: &DVector<f64>) -> Result<DMatrix<f64>, Error> {
        Ok(self.derivatives(u)?)
    }
}

/// Solves a problem of this many data points by argmin's Gauss–Newton; returns the best point in `u`.
fn gauss_newton(problem: &Problem, points: usize) -> Result<Vec<f64>, Error> {
    let start = DVector::from_vec(problem.start());
    // its cost is the root of ours, which is about one a point
    let solver = GaussNewton::new().with_tolerance(TOLERANCE / (2.0 * (points as f64).sqrt()))?;
    let matrices = Matrices {
        problem,
        u: start.clone(),
    };
    let run = Executor::new(matrices, solver)
        .configure(|state| state.param(start).max_iters(60))
        .run()?;
    run.state
        .get_best_param()
        .map(|u| u.as_slice().to_vec())
        .ok_or_else(missing)
}

/// Half the cost by parameters in units of their errors at the start, so that a step of one is a sensible one.
struct Whitened<'a> {
    problem: &'a Problem,
    scale: Vec<f64>,
    left: Cell<u32>,
}

impl Whitened<'_> {
    /// Returns objective and gradient by `u` at a scaled point; fails once too many evaluations were made.
    fn evaluate(&self, x: &[f64]) -> Result<(f64, Vec<f64>), Error> {
        self.left.set(
            self.left
                .get()
                .checked_sub(1)
                .ok_or_else(|| Error::msg("too many evaluations"))?,
        );
        let u: Vec<f64> = x.iter().zip(&self.scale).map(|(x, s)| x / s).collect();
        Ok(self.problem.cost_and_gradient(&u)?)
    }
}

impl CostFunction for Whitened<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, x: &Vec<f64>) -> Result<f64, Error> {
        Ok(0.5 * self.evaluate(x)?.0)
    }
}

impl Gradient for Whitened<'_> {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;

    fn gradient(&self, x: &Vec<f64>) -> Result<Vec<f64>, Error> {
        let (_, gradient) = self.evaluate(x)?;
        Ok(gradient
            .iter()
            .zip(&self.scale)
            .map(|(g, s)| 0.5 * g / s)
            .collect())
    }
}

/// Solves a problem by argmin's L-BFGS in parameters scaled by the Jacobian's column norms; returns the best `u`.
fn lbfgs(problem: &Problem) -> Result<Vec<f64>, Error> {
    let start = problem.start();
    let columns = problem.jacobian_columns(&start)?;
    let norm = |column: &[f64]| {
        column
            .iter()
            .map(|x| x * x)
            .sum::<f64>()
            .sqrt()
            .max(f64::MIN_POSITIVE)
    };
    let scale: Vec<f64> = columns
        .chunks_exact(columns.len() / start.len())
        .map(norm)
        .collect();
    let x = start.iter().zip(&scale).map(|(u, s)| u * s).collect();
    let solver =
        LBFGS::new(MoreThuenteLineSearch::new(), MEMORY).with_tolerance_cost(0.5 * TOLERANCE)?;
    let whitened = Whitened {
        problem,
        scale: scale.clone(),
        left: Cell::new(EVALUATIONS),
    };
    let run = Executor::new(whitened, solver)
        .configure(|state| state.param(x).max_iters(500))
        .run()?;
    let best = run.state.get_best_param().ok_or_else(missing)?;
    Ok(best.iter().zip(&scale).map(|(x, s)| x / s).collect())
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for Matrices<'_> {
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;
    type ParameterStorage = Owned<f64, Dyn>;

    fn set_params(&mut self, u: &DVector<f64>) {
        self.u.copy_from(u);
    }

    fn params(&self) -> DVector<f64> {
        self.u.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        self.residual(&self.u).ok()
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        self.derivatives(&self.u).ok()
    }
}

/// Solves a problem of this many data points by the crate `levenberg-marquardt`; returns the point in `u` where it
/// ends.
fn rust_cv(problem: &Problem, points: usize) -> Option<Vec<f64>> {
    let relative = TOLERANCE / points as f64;
    let solver = LevenbergMarquardt::new()
        .with_ftol(relative)
        .with_xtol(relative)
        .with_gtol(relative);
    let matrices = Matrices {
        problem,
        u: DVector::from_vec(problem.start()),
    };
    let (solved, _) = solver.minimize(matrices);
    Some(solved.u.as_slice().to_vec())
}
