//! popfit's methods as solvers of argmin's: one problem, a round an iteration.

use ::argmin::core::{
    Error as Failure, IterState, KV, Problem as Counted, Solver, TerminationReason, TerminationStatus,
};
use serde::{Deserialize, Serialize};

use super::Problem;
use crate::cpu::{simplex::simplex, step::step};
use crate::error::Result;
use crate::rows::Real;
use crate::solver::member::Member;
use crate::solver::recording::Precision;
use crate::solver::simplex::Simplex;
use crate::solver::{LevenbergMarquardt, NelderMead, Status};

/// The state of a run: parameters in `u`, and the gradient of the cost where there is one.
pub type RunState = IterState<Vec<f64>, Vec<f64>, (), (), (), f64>;

/// popfit's Levenberg–Marquardt, box bounds included. The cost is that of its rows: χ² and penalties.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lm {
    settings: LevenbergMarquardt,
    member: Option<Member>,
}

/// popfit's Nelder–Mead: reflection, expansion and both contractions in one dispatch an iteration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Nm {
    settings: NelderMead,
    simplex: Option<(Simplex, Vec<Member>)>,
}

impl Lm {
    /// Errors when a setting is out of its range.
    pub fn new(settings: LevenbergMarquardt) -> Result<Lm> {
        settings.validate()?;
        Ok(Lm { settings, member: None })
    }

    /// How it ended, if it has.
    pub fn status(&self) -> Option<Status> {
        self.member.as_ref().and_then(|member| member.status)
    }
}

impl Nm {
    /// Errors when a setting is out of its range.
    pub fn new(settings: NelderMead) -> Result<Nm> {
        settings.validate()?;
        Ok(Nm { settings, simplex: None })
    }

    /// How it ended, if it has.
    pub fn status(&self) -> Option<Status> {
        self.simplex.as_ref().and_then(|(_, members)| members.first()).and_then(|member| member.status)
    }
}

impl Solver<Problem, RunState> for Lm {
    fn name(&self) -> &str {
        "popfit Levenberg-Marquardt"
    }

    /// Starts at the state's parameters, else where popfit would.
    fn init(&mut self, problem: &mut Counted<Problem>, state: RunState) -> Outcome {
        let (state, start) = start(own(problem)?, state)?;
        self.member = Some(Member::new(0, 0, &start, self.settings.initial_damping));
        Ok((state.param(start), None))
    }

    fn next_iter(&mut self, problem: &mut Counted<Problem>, state: RunState) -> Outcome {
        let Some(member) = &mut self.member else { return Err(not_started()) };
        let found = problem.problem("linearise_count", |p| Ok(p.sums(&[&member.trial], true)?.swap_remove(0)))?;
        member.trial_sums = found;
        let (lower, upper, noise) = limits(own(problem)?);
        let trusts = own(problem)?.recording().trusts_steps();
        step(member, (&lower, &upper), &self.settings, (noise, trusts));
        let gradient = member.sums.gradient.iter().map(|g| -2.0 * g).collect();
        let state = state.param(member.parameters.clone()).cost(member.sums.cost()).gradient(gradient);
        Ok((state, Some(::argmin::kv!("damping" => member.damping.mu;))))
    }

    fn terminate(&mut self, _: &RunState) -> TerminationStatus {
        ended(self.status())
    }
}

impl Solver<Problem, RunState> for Nm {
    fn name(&self) -> &str {
        "popfit Nelder-Mead"
    }

    /// Starts at the state's parameters, else where popfit would.
    fn init(&mut self, problem: &mut Counted<Problem>, state: RunState) -> Outcome {
        let (state, start) = start(own(problem)?, state)?;
        let (lower, upper, _) = limits(own(problem)?);
        let simplex = Simplex::new(0, &start, (&lower, &upper), self.settings.size);
        let trials = simplex.first_trials();
        let lanes = trials.chunks_exact(start.len()).enumerate();
        let members = lanes.map(|(lane, vertex)| Member::new(lane, 0, vertex, 0.0)).collect();
        self.simplex = Some((simplex, members));
        Ok((state.param(start), None))
    }

    fn next_iter(&mut self, problem: &mut Counted<Problem>, state: RunState) -> Outcome {
        let Some((moved, members)) = &mut self.simplex else { return Err(not_started()) };
        let points: Vec<Vec<f64>> = members.iter().map(|member| member.trial.clone()).collect();
        let found = problem.bulk_problem("cost_count", points.len(), |p| {
            let points: Vec<&[f64]> = points.iter().map(Vec::as_slice).collect();
            Ok(p.sums(&points, false)?)
        })?;
        members.iter_mut().zip(found).for_each(|(member, sums)| member.trial_sums = sums);
        let (lower, upper, noise) = limits(own(problem)?);
        simplex(moved, members, (&lower, &upper), &self.settings, (own(problem)?.recording(), noise));
        let best = moved.best();
        // a vertex that is not known yet has no cost
        let cost = if moved.values[best].is_nan() { f64::INFINITY } else { moved.values[best] };
        Ok((state.param(moved.vertex(best).to_vec()).cost(cost), None))
    }

    fn terminate(&mut self, _: &RunState) -> TerminationStatus {
        ended(self.status())
    }
}

type Outcome = std::result::Result<(RunState, Option<KV>), Failure>;

fn not_started() -> Failure {
    Failure::msg("an iteration before init: a checkpoint of another solver?")
}

/// The state's parameters inside the bounds, else the problem's start.
fn start(problem: &Problem, mut state: RunState) -> std::result::Result<(RunState, Vec<f64>), Failure> {
    let (start, (lower, upper)) = (state.take_param().unwrap_or_else(|| problem.start()), problem.bounds());
    if start.len() != lower.len() {
        return Err(Failure::msg(format!("{} start parameters, not {}", start.len(), lower.len())));
    }
    let inside = start.iter().zip(lower.iter().zip(&upper)).map(|(u, (low, high))| u.clamp(*low, *high));
    Ok((state, inside.collect()))
}

/// Bounds, and the relative error of a cost in the precision of the rows.
fn limits(problem: &Problem) -> (Vec<f64>, Vec<f64>, f64) {
    let noise = if problem.precision() == Precision::F32 { f32::COST_NOISE } else { f64::COST_NOISE };
    let (lower, upper) = problem.bounds();
    (lower, upper, noise)
}

/// The problem itself, without counting.
fn own(problem: &Counted<Problem>) -> std::result::Result<&Problem, Failure> {
    problem.problem.as_ref().ok_or_else(|| Failure::msg("the problem has been taken"))
}

fn ended(status: Option<Status>) -> TerminationStatus {
    match status {
        None => TerminationStatus::NotTerminated,
        Some(status) if status.is_success() => TerminationStatus::Terminated(TerminationReason::SolverConverged),
        Some(Status::MaxRounds) => TerminationStatus::Terminated(TerminationReason::MaxItersReached),
        Some(status) => TerminationStatus::Terminated(TerminationReason::SolverExit(status.name().into())),
    }
}
