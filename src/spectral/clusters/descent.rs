//! The fit of one cluster: Levenberg–Marquardt with a damping for all members, in the box of the bounds.

use nalgebra::{DMatrix, DVector};

use super::arrow::{
    Elimination, NormalEquations, ReducedEquations, SharedPrior, pseudo_inverse, solve_shared,
};
use crate::math::probability::{Tail, chi2_tail};
use crate::solver::thresholds::{FINISHING_STEPS, UNDAMPED};
use crate::solver::{Damping, LevenbergMarquardt, Outcome, Status, Tolerances};

/// Largest ratio of the lengths of successive steps by which the remaining distance is judged. Steps made of rounding
/// have larger ones.
const MAX_CONTRACTION: f64 = 0.9;

/// Settings of the fits of all clusters.
#[derive(Clone, Copy, Debug)]
pub struct ClusterSettings {
    pub solver: LevenbergMarquardt,
    pub tolerances: Tolerances,
    /// Smallest eigenvalue of a scaled normal matrix that counts as determined.
    pub least_eigenvalue: f64,
}

/// The fit of a spectrum by itself, from which its cluster's fit begins.
pub struct SingleFit {
    /// (P) bounds in the solver's u; equal ones hold a parameter.
    pub lower: Vec<f64>,
    pub upper: Vec<f64>,
    /// The best start's end. Its objective has the prior on shared parameters.
    pub outcome: Outcome,
}

/// A spectrum of a cluster.
pub struct ClusterMember {
    lower: Vec<f64>,
    upper: Vec<f64>,
    /// (P) accepted point in the solver's u.
    pub point: Vec<f64>,
    /// (P) point that is to be evaluated next.
    pub trial: Vec<f64>,
    /// Outcome at the accepted point, without the prior on shared parameters.
    pub outcome: Outcome,
    equations: NormalEquations,
}

/// The fit of a cluster, which receives outcomes at the members' trial points and sets the next ones.
pub struct Cluster {
    settings: ClusterSettings,
    /// Indices of the shared parameters.
    shared: Vec<usize>,
    prior: SharedPrior,
    pub members: Vec<ClusterMember>,
    /// Sum of the lowest costs of the single fits, without the prior on shared parameters.
    single_cost: f64,
    /// (starts, members, P) Points from which the fit may still begin.
    starts: Vec<Vec<Vec<f64>>>,
    /// Cost at the accepted point, with the prior; infinite before the first one.
    cost: f64,
    damping: Damping,
    /// Predicted reduction of the step to the trial point, `None` while that is a start.
    predicted: Option<f64>,
    /// Predicted reduction of the step before it, if that was accepted.
    earlier_predicted: Option<f64>,
    rejections: u32,
    finishing_steps: u32,
    /// Number of points at which each member was evaluated.
    pub rounds: u32,
    /// `None` while the fit goes on.
    pub status: Option<Status>,
}

/// A step of all members.
struct ClusterStep {
    /// (members, P)
    steps: Vec<Vec<f64>>,
    /// Largest square of the length of the shared step, and of each member's own step, in errors.
    squared_length: f64,
}

impl ClusterMember {
    fn new(fit: SingleFit) -> ClusterMember {
        ClusterMember {
            lower: fit.lower,
            upper: fit.upper,
            point: fit.outcome.parameters.clone(),
            trial: Vec::new(),
            equations: NormalEquations::of(&fit.outcome),
            outcome: fit.outcome,
        }
    }

    /// Returns the point that a step (P) leads to, within the bounds.
    fn move_by(&self, step: &[f64]) -> Vec<f64> {
        let bounds = self.lower.iter().zip(&self.upper);
        let moved = self.point.iter().zip(step).map(|(u, by)| u + by);
        moved
            .zip(bounds)
            .map(|(u, (lower, upper))| u.max(*lower).min(*upper))
            .collect()
    }

    /// Returns whether a parameter is at a bound, and a step would lead beyond.
    fn would_leave(&self, p: usize, by: f64) -> bool {
        self.point[p] <= self.lower[p] && by < 0.0 || self.point[p] >= self.upper[p] && by > 0.0
    }

    /// Returns whether each parameter is not held by equal bounds.
    fn find_movable(&self) -> Vec<bool> {
        let bounds = self.lower.iter().zip(&self.upper);
        bounds.map(|(lower, upper)| lower < upper).collect()
    }

    /// Returns whether each parameter lies between its bounds.
    fn find_inner(&self) -> Vec<bool> {
        let bounds = self.lower.iter().zip(&self.upper);
        let inner = self.point.iter().zip(bounds);
        inner
            .map(|(u, (lower, upper))| lower < u && u < upper)
            .collect()
    }

    /// Returns the parameters of these indices at a point.
    fn pick_shared(point: &[f64], shared: &[usize]) -> Vec<f64> {
        shared.iter().map(|&p| point[p]).collect()
    }
}

/// Returns χ² plus penalties; infinite if it is not finite.
fn cost_of(outcome: &Outcome) -> f64 {
    outcome.objective(false)
}

/// Returns the median.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        0.5 * (values[middle - 1] + values[middle])
    } else {
        values[middle]
    }
}

impl Cluster {
    /// Prepares the fit of at least two members, in the order of their places, from their single fits.
    pub fn new(
        fits: Vec<SingleFit>,
        shared: Vec<usize>,
        prior: SharedPrior,
        settings: ClusterSettings,
    ) -> Cluster {
        let mut members: Vec<ClusterMember> = fits.into_iter().map(ClusterMember::new).collect();
        // 1. Remove the prior, which every single fit has.
        let mut single_cost = 0.0;
        for member in &mut members {
            let point = ClusterMember::pick_shared(&member.point, &shared);
            member.equations = NormalEquations::without_prior(&member.outcome, &shared, &prior);
            let fall = member
                .equations
                .predict_fall(&member.find_inner(), settings.least_eigenvalue);
            single_cost += cost_of(&member.outcome) - prior.cost(&point) - fall;
        }
        let mut cluster = Cluster {
            damping: Damping::new(settings.solver.initial_damping),
            settings,
            shared,
            prior,
            members,
            single_cost,
            starts: Vec::new(),
            cost: f64::INFINITY,
            predicted: None,
            earlier_predicted: None,
            rejections: 0,
            finishing_steps: 0,
            rounds: 0,
            status: None,
        };
        // 2. Begin at the mean, and then at the median, which of two members is the mean.
        cluster.starts = cluster.find_starts();
        cluster.begin_next_start();
        cluster
    }

    fn eliminate_by(&self, damping: f64) -> Elimination<'_> {
        Elimination {
            shared: &self.shared,
            damping,
            tolerance: self.settings.least_eigenvalue,
        }
    }

    /// Returns the members' points with the median and with the mean of the shared parameters, weighted by their
    /// information, the last of which is to be tried first. The own parameters follow the shared ones linearly.
    fn find_starts(&self) -> Vec<Vec<Vec<f64>>> {
        let shared_points: Vec<DVector<f64>> = self
            .members
            .iter()
            .map(|member| ClusterMember::pick_shared(&member.point, &self.shared).into())
            .collect();
        let reduced: Vec<ReducedEquations> = self
            .members
            .iter()
            .map(|member| {
                member
                    .equations
                    .eliminate(self.eliminate_by(0.0), &member.find_inner())
            })
            .collect();
        // The mean is m + (Σ S_i)⁻¹ Σ S_i (u_i − m) with the median m.
        let count = self.shared.len();
        let medians = DVector::from_fn(count, |k, _| {
            median(shared_points.iter().map(|point| point[k]).collect())
        });
        let mut information = DMatrix::zeros(count, count);
        let mut diagonal = DVector::zeros(count);
        let mut deviation = DVector::zeros(count);
        for (reduced, point) in reduced.iter().zip(&shared_points) {
            information += &reduced.information;
            diagonal += &reduced.diagonal;
            deviation += &reduced.information * (point - &medians);
        }
        let inverse = pseudo_inverse(&information, &diagonal, 0.0, self.settings.least_eigenvalue);
        let mean = &medians + inverse * deviation;
        let start_at = |target: &DVector<f64>| -> Vec<Vec<f64>> {
            let members = self.members.iter().zip(&reduced).zip(&shared_points);
            members
                .map(|((member, reduced), point)| {
                    let by = target - point;
                    let mut step = vec![0.0; member.point.len()];
                    reduced.follow(&by, &mut step);
                    let mut start = member.move_by(&step);
                    for (k, &p) in self.shared.iter().enumerate() {
                        start[p] = target[k].max(member.lower[p]).min(member.upper[p]);
                    }
                    start
                })
                .collect()
        };
        if self.members.len() > 2 {
            vec![start_at(&medians), start_at(&mean)]
        } else {
            vec![start_at(&mean)]
        }
    }

    /// Makes the next start the trial point. Returns false if there is none.
    fn begin_next_start(&mut self) -> bool {
        let Some(start) = self.starts.pop() else {
            return false;
        };
        for (member, point) in self.members.iter_mut().zip(start) {
            member.trial = point;
        }
        true
    }

    /// Returns the shared parameters at the members' accepted points.
    fn shared_point(&self) -> Vec<f64> {
        ClusterMember::pick_shared(&self.members[0].point, &self.shared)
    }

    /// Takes the outcomes of all members at their trial points, and sets the next trial points or the final status.
    pub fn judge_trial(&mut self, outcomes: Vec<Outcome>) {
        self.rounds += 1;
        let trial = ClusterMember::pick_shared(&self.members[0].trial, &self.shared);
        let data: f64 = outcomes.iter().map(cost_of).sum();
        let cost = data + self.prior.cost(&trial);
        // 1. Take the better one of the starts.
        let Some(predicted) = self.predicted else {
            if cost < self.cost {
                self.accept(outcomes, cost);
            }
            if self.begin_next_start() {
                return;
            }
            if self.cost == f64::INFINITY {
                self.status = Some(Status::NotFinite);
                return;
            }
            return self.plan_step(true);
        };
        // 2. Near the minimum rounding hides the gain, and the step is accepted unless the cost rises by more.
        let rounding = self.settings.tolerances.cost_error * self.cost;
        let is_finishing = predicted <= rounding;
        let is_accepted = cost < self.cost || is_finishing && cost <= self.cost + rounding;
        // 3. Update the damping. Where the gain cannot be told, it counts as the predicted one.
        let gain_ratio = if is_finishing && is_accepted {
            1.0
        } else {
            (self.cost - cost) / predicted
        };
        self.damping = self.damping.update(is_accepted, gain_ratio);
        if is_accepted {
            self.rejections = 0;
            self.finishing_steps += u32::from(is_finishing);
            self.accept(outcomes, cost);
        } else {
            self.rejections += 1;
        }
        // 4. End, or go on.
        self.status = if self.rejections > self.settings.solver.max_rejections {
            Some(Status::Stalled)
        } else if self.finishing_steps >= FINISHING_STEPS {
            Some(Status::Ftol)
        } else if self.rounds >= self.settings.solver.max_rounds {
            Some(Status::MaxRounds)
        } else {
            None
        };
        if self.status.is_none() {
            self.plan_step(is_accepted);
        }
    }

    /// Makes the trial points the accepted ones.
    fn accept(&mut self, outcomes: Vec<Outcome>, cost: f64) {
        self.cost = cost;
        for (member, outcome) in self.members.iter_mut().zip(outcomes) {
            member.point.clone_from(&member.trial);
            member.equations = NormalEquations::of(&outcome);
            member.outcome = outcome;
        }
    }

    /// Sets the next trial points, or the final status if the fit has converged: if what remains of the way is at most
    /// a hundredth of an error, of the shared parameters and of each member's own ones.
    fn plan_step(&mut self, is_accepted: bool) {
        for _ in 0..=self.settings.solver.max_rejections {
            let step = self.solve_step();
            // 1. Judge the remaining distance, as the solver does (`equations.md`, section 8).
            let contraction = self
                .predicted
                .zip(self.earlier_predicted)
                .map_or(0.0, |(latest, earlier)| (latest / earlier).sqrt())
                .min(MAX_CONTRACTION);
            let squared_distance = step.squared_length / (1.0 - contraction).powi(2);
            let is_undamped = self.damping.mu < UNDAMPED;
            if is_accepted
                && is_undamped
                && squared_distance <= self.settings.tolerances.squared_distance
            {
                self.status = Some(Status::Ftol);
                return;
            }
            // 2. Predict the reduction of the step within the bounds.
            let mut trials = Vec::with_capacity(self.members.len());
            let mut predicted = 0.0;
            for (member, step) in self.members.iter().zip(&step.steps) {
                let trial = member.move_by(step);
                let moved: Vec<f64> = trial
                    .iter()
                    .zip(&member.point)
                    .map(|(a, b)| a - b)
                    .collect();
                predicted += member.equations.predict_reduction(&moved);
                trials.push(trial);
            }
            let shared_trial = ClusterMember::pick_shared(&trials[0], &self.shared);
            predicted += self.prior.cost(&self.shared_point()) - self.prior.cost(&shared_trial);
            if predicted > 0.0 {
                self.earlier_predicted = self.predicted.filter(|_| is_accepted);
                self.predicted = Some(predicted);
                for (member, trial) in self.members.iter_mut().zip(trials) {
                    member.trial = trial;
                }
                return;
            }
            // 3. A step that the bounds have bent uphill is shortened.
            self.damping = self.damping.raise();
        }
        self.status = Some(Status::Stalled);
    }

    /// Solves for the damped step at the accepted point. Parameters at a bound that would leave the box are held.
    fn solve_step(&self) -> ClusterStep {
        let by = self.eliminate_by(self.damping.mu);
        let point = self.shared_point();
        let mut is_free: Vec<Vec<bool>> = self
            .members
            .iter()
            .map(ClusterMember::find_movable)
            .collect();
        let mut reduced: Vec<ReducedEquations> = self
            .members
            .iter()
            .zip(&is_free)
            .map(|(member, is_free)| member.equations.eliminate(by, is_free))
            .collect();
        loop {
            // 1. Solve for the shared parameters, and then for each member's own ones.
            let is_shared_free: Vec<bool> = self.shared.iter().map(|&p| is_free[0][p]).collect();
            let shared = solve_shared(&reduced, &self.prior, &point, &is_shared_free, by);
            let steps: Vec<Vec<f64>> = reduced
                .iter()
                .map(|reduced| {
                    let mut step = vec![0.0; is_free[0].len()];
                    reduced.substitute_back(&shared.step, &mut step);
                    for (k, &p) in self.shared.iter().enumerate() {
                        step[p] = shared.step[k];
                    }
                    step
                })
                .collect();
            // 2. Hold the parameters that would leave the box, and solve again.
            let mut has_changed = false;
            for (k, member) in self.members.iter().enumerate() {
                let leaves = |p: &usize| is_free[k][*p] && member.would_leave(*p, steps[k][*p]);
                let leaving: Vec<usize> = (0..steps[k].len()).filter(leaves).collect();
                if leaving.is_empty() {
                    continue;
                }
                for p in leaving {
                    is_free[k][p] = false;
                }
                reduced[k] = member.equations.eliminate(by, &is_free[k]);
                has_changed = true;
            }
            if !has_changed {
                let own_reductions = reduced.iter().map(|reduced| reduced.reduction);
                return ClusterStep {
                    steps,
                    squared_length: own_reductions.fold(shared.reduction, f64::max),
                };
            }
        }
    }

    /// Returns for each member the packed matrix whose inverse is the covariance of its parameters in the joint fit.
    /// `is_free` (members, P) are the own parameters that count as free.
    pub fn information(&self, is_free: &[Vec<bool>]) -> Vec<Vec<f64>> {
        let by = self.eliminate_by(0.0);
        let members = self.members.iter().zip(is_free);
        let reduced: Vec<ReducedEquations> = members
            .map(|(member, is_free)| member.equations.eliminate(by, is_free))
            .collect();
        // Sums without one member avoid the differences of large numbers.
        let mut before = vec![self.prior.information()];
        for reduced in &reduced {
            before.push(&before[before.len() - 1] + &reduced.information);
        }
        let mut after = DMatrix::zeros(self.shared.len(), self.shared.len());
        let mut information = Vec::with_capacity(reduced.len());
        for (k, (member, reduced)) in self.members.iter().zip(&reduced).enumerate().rev() {
            let others = &before[k] + &after;
            information.push(member.equations.add_information(&self.shared, &others));
            after += &reduced.information;
        }
        information.reverse();
        information
    }

    /// Returns the prior's part of the objective at the accepted point.
    pub fn prior_cost(&self) -> f64 {
        self.prior.cost(&self.shared_point())
    }

    /// Returns the probability that the sum of the members' costs rises as much as it did, or more, from the single
    /// fits to the joint one if the members' true labels are equal (likelihood ratio, Wilks 1938); `None` if no shared
    /// label is free. Both sums are those of the data without the prior on shared labels, at their minima to second
    /// order.
    pub fn probability(&self) -> Option<f64> {
        let movable = self.members[0].find_movable();
        let labels = self.shared.iter().filter(|&&p| movable[p]).count();
        let dof = labels * (self.members.len() - 1);
        if dof == 0 {
            return None;
        }
        let no_prior = SharedPrior {
            means: vec![0.0; self.shared.len()],
            weights: vec![0.0; self.shared.len()],
        };
        let by = self.eliminate_by(0.0);
        let inner: Vec<Vec<bool>> = self.members.iter().map(ClusterMember::find_inner).collect();
        let members = self.members.iter().zip(&inner);
        let reduced: Vec<ReducedEquations> = members
            .map(|(member, inner)| member.equations.eliminate(by, inner))
            .collect();
        let is_shared_free: Vec<bool> = self.shared.iter().map(|&p| inner[0][p]).collect();
        let point = self.shared_point();
        let shared = solve_shared(&reduced, &no_prior, &point, &is_shared_free, by);
        let own_reductions: f64 = reduced.iter().map(|reduced| reduced.reduction).sum();
        let joint_cost = self.cost - self.prior_cost() - shared.reduction - own_reductions;
        let rise = (joint_cost - self.single_cost).max(0.0);
        Some(chi2_tail(Tail::Upper, rise, dof as f64)).filter(|p| !p.is_nan())
    }
}
