//! Minima at infinity, and minima where parameters have no effect: the cost has stopped falling although the solver did
//! not converge.

use crate::curves::ends::polish::{CurveLinearisation, CurveProblem, ParameterStep};
use crate::curves::input::data::Curve;

/// Smallest relative reduction of the cost that counts as a descent: scipy's default `ftol`.
pub(crate) const MIN_RELATIVE_REDUCTION: f64 = 1e-8;
/// Number of fractions of a step that are tried: 1, 1/4, 1/16, …
const STEP_FRACTIONS: i32 = 15;
/// Steps along each axis, as shares of the parameter's size. They need no derivatives, which may be wrong.
const AXIS_STEPS: [f64; 5] = [0.3, 0.03, 1e-3, 1e-5, 1e-7];
/// Relative length of an unproductive Gauss–Newton step above which its parameter may be undetermined.
const MIN_RUNAWAY_STEP: f64 = 0.5;
/// Error, in sizes of the parameter, above which it is undetermined.
const MIN_RUNAWAY_ERROR: f64 = 10.0;

/// Neighbourhood of a point where a solver did not converge.
pub(crate) enum Neighbourhood {
    /// Nothing near is lower. Holds the parameters that the data do not determine.
    Minimum(Vec<usize>),
    /// There is a lower point.
    Lower(Vec<f64>),
    /// There is no Gauss–Newton step, and no axis leads down.
    Unknown,
}

/// A point of lower cost.
pub(crate) struct LowerPoint {
    pub parameters: Vec<f64>,
    pub cost: f64,
}

impl CurveProblem<'_> {
    /// Looks around a point where a solver did not converge: finds a lower cost, or else a minimum and its undetermined
    /// parameters.
    ///
    /// At a minimum none of these steps lowers the cost by more than 1e-8 of it: the Gauss–Newton step, of all
    /// parameters or without those that run away; the gradient over the squared columns of the Jacobian, like the first
    /// at 15 lengths; a damped step, where columns are nearly dependent; a step along an axis; a step that separates
    /// parameters of the same effect. Where parameters run to infinity the Gauss–Newton step stays as long as they are,
    /// and gains nothing: with residuals r₀ + a e^(−θ) both Jᵀr and JᵀJ vanish, and the predicted reduction,
    /// (Jᵀr)²/JᵀJ, does not.
    pub fn search_neighbourhood(
        &self,
        linearisation: &CurveLinearisation,
        parameters: &[f64],
    ) -> Neighbourhood {
        let cost = linearisation.cost();
        let movable = self.movable_parameters(linearisation, parameters);
        let without_effect = self.parameters_without_effect(linearisation, &movable);
        let mut effective: Vec<usize> = movable
            .iter()
            .copied()
            .filter(|p| !without_effect.contains(p))
            .collect();
        // 1. Where no parameter has an effect, only steps without derivatives can lead down.
        if effective.is_empty() {
            let lower = self
                .find_lower_along_axes(cost, parameters, &movable)
                .or_else(|| self.find_lower_beside(0.0, linearisation, parameters));
            return lower.map_or(Neighbourhood::Minimum(without_effect), Neighbourhood::Lower);
        }
        // 2. Move all parameters with an effect by the Gauss–Newton step, by the gradient and by damped steps.
        let Some(shortest_step) = linearisation.shortest_step(&effective, parameters) else {
            return self
                .find_lower_along_axes(cost, parameters, &movable)
                .map_or(Neighbourhood::Unknown, Neighbourhood::Lower);
        };
        if let Some(lower) =
            self.find_lower_by_steps(cost, linearisation, parameters, &effective, &shortest_step)
        {
            return Neighbourhood::Lower(lower);
        }
        // 3. Without the parameters that run away, move the others by their own Gauss–Newton step.
        let runaways = self.find_runaways(
            linearisation,
            parameters,
            ParameterStep {
                parameters: &effective,
                changes: &shortest_step,
            },
        );
        effective.retain(|p| !runaways.contains(p));
        if let Some(changes) = &linearisation.shortest_step(&effective, parameters)
            && let Some(lower) = self.find_lower_along_step(
                cost,
                parameters,
                ParameterStep {
                    parameters: &effective,
                    changes,
                },
            )
        {
            return Neighbourhood::Lower(lower);
        }
        // 4. Move each parameter by itself: this needs no derivatives, but creeps along a valley.
        let lower = self
            .find_lower_along_axes(cost, parameters, &movable)
            .or_else(|| self.find_lower_beside(0.0, linearisation, parameters));
        match lower {
            Some(lower) => Neighbourhood::Lower(lower),
            None => Neighbourhood::Minimum(runaways.into_iter().chain(without_effect).collect()),
        }
    }

    /// Returns whether the cost falls by more than `gain`, which is positive, at fractions of the Gauss–Newton step or
    /// of the gradient over the squared columns of the Jacobian, or by a damped step; false without an evaluation if
    /// the predicted reduction of the Gauss–Newton step is no more than `gain`.
    pub fn can_descend_by(
        &self,
        gain: f64,
        linearisation: &CurveLinearisation,
        parameters: &[f64],
    ) -> bool {
        let mut effective = self.movable_parameters(linearisation, parameters);
        let without_effect = self.parameters_without_effect(linearisation, &effective);
        effective.retain(|p| !without_effect.contains(p));
        let Some(shortest_step) = linearisation.shortest_step(&effective, parameters) else {
            return false;
        };
        let predicted_reduction = linearisation.predicted_reduction_by(&effective, &shortest_step);
        predicted_reduction > gain
            && self
                .find_lower_by_steps(
                    linearisation.cost() - gain,
                    linearisation,
                    parameters,
                    &effective,
                    &shortest_step,
                )
                .is_some()
    }

    /// Returns a point of a cost below `cost` to which a step of the `effective` parameters leads: the `shortest_step`
    /// of Gauss–Newton, the gradient over the squared columns of the Jacobian, each at 15 lengths, or a damped step.
    fn find_lower_by_steps(
        &self,
        cost: f64,
        linearisation: &CurveLinearisation,
        parameters: &[f64],
        effective: &[usize],
        shortest_step: &[f64],
    ) -> Option<Vec<f64>> {
        let step_of = |changes| ParameterStep {
            parameters: effective,
            changes,
        };
        let squares: Vec<f64> = linearisation.squares().collect();
        let scaled_gradient: Vec<f64> = effective
            .iter()
            .map(|&p| linearisation.gradient[p] / squares[p])
            .collect();
        for changes in [shortest_step, &scaled_gradient] {
            if let Some(lower) = self.find_lower_along_step(cost, parameters, step_of(changes)) {
                return Some(lower);
            }
        }
        linearisation
            .damped_steps(effective)
            .iter()
            .find_map(|changes| self.try_step(cost, parameters, step_of(changes), 1.0))
            .map(|lower| lower.parameters)
    }

    /// Returns the first point that is lower and has finite derivatives, with its linearisation: `point` itself, or one
    /// ever nearer to these parameters. Also returns the number of evaluations.
    pub fn linearise_lower_point(
        &self,
        point: &[f64],
        linearisation: &CurveLinearisation,
        parameters: &[f64],
    ) -> (Option<(Vec<f64>, CurveLinearisation)>, u32) {
        let mut evaluations = 0;
        for k in 0..STEP_FRACTIONS {
            let share = 0.25_f64.powi(k);
            let mut trial_point = point.to_vec();
            if k > 0 {
                for (p, trial) in trial_point.iter_mut().enumerate() {
                    let between = parameters[p] + share * (point[p] - parameters[p]);
                    *trial = between.clamp(self.curve.lower[p], self.curve.upper[p]);
                }
            }
            evaluations += u32::from(self.linearisations_left.get() > 0);
            // The point may have a lower cost and yet derivatives that are not finite: then a shorter step is tried.
            if let Some(trial) = self.linearise_if_finite_and_in_budget(&trial_point)
                && trial.cost() < linearisation.cost()
            {
                return (Some((trial_point, trial)), evaluations);
            }
        }
        (None, evaluations)
    }

    /// Returns the parameters that a step which gains nothing would move far: those whose columns are too short to
    /// determine them, or, where there are none, a group whose columns are alike.
    fn find_runaways(
        &self,
        linearisation: &CurveLinearisation,
        parameters: &[f64],
        step: ParameterStep,
    ) -> Vec<usize> {
        let noise = (linearisation.cost() / self.curve.unmasked_points as f64).sqrt();
        let squares: Vec<f64> = linearisation.squares().collect();
        // 1. Choose the parameters that move far.
        let moved_far: Vec<usize> = step
            .parameters
            .iter()
            .copied()
            .zip(step.changes)
            .filter(|(p, change)| {
                change.abs() > MIN_RUNAWAY_STEP * self.parameter_size(parameters, *p)
            })
            .map(|(p, _)| p)
            .collect();
        // 2. Prefer those whose error would be large even if all others were held.
        let with_large_error: Vec<usize> = moved_far
            .iter()
            .copied()
            .filter(|&p| {
                let error = noise / squares[p].sqrt();
                error > MIN_RUNAWAY_ERROR * self.parameter_size(parameters, p)
            })
            .collect();
        if with_large_error.is_empty() {
            moved_far
        } else {
            with_large_error
        }
    }

    /// Returns a point of lower cost beside one where some parameters have no effect or the same effect: along the axes
    /// of the former and the diagonals of two of these axes, or, if that gains more than `gain`, as
    /// [`find_lowest_beside_parallel`](Self::find_lowest_beside_parallel) does.
    pub fn find_lower_beside(
        &self,
        gain: f64,
        linearisation: &CurveLinearisation,
        parameters: &[f64],
    ) -> Option<Vec<f64>> {
        let cost = linearisation.cost();
        let interior = self.interior_parameters(parameters);
        let without_effect = self.parameters_without_effect(linearisation, &interior);
        // 1. Move one parameter without effect.
        if let Some(lower) = self.find_lower_along_axes(cost, parameters, &without_effect) {
            return Some(lower);
        }
        // 2. Move two of them together: each may have an effect only where the other differs.
        for (i, &p) in without_effect.iter().enumerate() {
            for &q in &without_effect[..i] {
                for share in AXIS_STEPS {
                    let lower = self.find_lower_along_diagonals(cost, parameters, [p, q], share);
                    if lower.is_some() {
                        return lower;
                    }
                }
            }
        }
        // 3. Separate parameters that have the same effect.
        self.find_lowest_beside_parallel(gain, linearisation, parameters)
    }

    /// Returns a lower point along one of the two diagonals of a pair of axes, at a `share` of the parameters' sizes.
    fn find_lower_along_diagonals(
        &self,
        cost: f64,
        parameters: &[f64],
        pair: [usize; 2],
        share: f64,
    ) -> Option<Vec<f64>> {
        let [first, second] = pair.map(|p| share * self.parameter_size(parameters, p));
        [[first, second], [first, -second]]
            .into_iter()
            .find_map(|changes| {
                let step = ParameterStep {
                    parameters: &pair,
                    changes: &changes,
                };
                self.try_step(cost, parameters, step, 1.0)
            })
            .map(|lower| lower.parameters)
    }

    /// Returns the first point of lower cost at steps along the axes of the parameters `moved`, one at a time; `None`
    /// if there is none.
    fn find_lower_along_axes(
        &self,
        cost: f64,
        parameters: &[f64],
        moved: &[usize],
    ) -> Option<Vec<f64>> {
        for &p in moved {
            for share in AXIS_STEPS.into_iter().flat_map(|share| [share, -share]) {
                let step = ParameterStep {
                    parameters: &[p],
                    changes: &[share * self.parameter_size(parameters, p)],
                };
                if let Some(lower) = self.try_step(cost, parameters, step, 1.0) {
                    return Some(lower.parameters);
                }
            }
        }
        None
    }

    /// Returns the larger of a parameter's magnitude and its unit, by which steps are measured.
    pub fn parameter_size(&self, parameters: &[f64], p: usize) -> f64 {
        parameters[p].abs().max(self.curve.scale[p])
    }

    /// Returns the indices of the free parameters inside their bounds, or at a bound from which the cost falls inwards.
    fn movable_parameters(
        &self,
        linearisation: &CurveLinearisation,
        parameters: &[f64],
    ) -> Vec<usize> {
        let Curve { lower, upper, .. } = self.curve;
        let mut movable = self.curve.free_parameters();
        movable.retain(|&p| {
            // Jᵀr is minus the gradient of half the cost: where it is positive, the cost falls towards larger values.
            let slope = linearisation.gradient[p];
            let is_held_by_lower = parameters[p] <= lower[p] && slope <= 0.0;
            let is_held_by_upper = parameters[p] >= upper[p] && slope >= 0.0;
            !(is_held_by_lower || is_held_by_upper)
        });
        movable
    }

    /// Returns the first point of a cost below this one at fractions of a step, from the whole down; `None` if there is
    /// none.
    fn find_lower_along_step(
        &self,
        cost: f64,
        parameters: &[f64],
        step: ParameterStep,
    ) -> Option<Vec<f64>> {
        (0..STEP_FRACTIONS)
            .find_map(|k| self.try_step(cost, parameters, step, 0.25_f64.powi(k)))
            .map(|lower| lower.parameters)
    }

    /// Returns the point at `share` of a step, clamped to the bounds, if its cost is lower than `cost`; else `None`.
    pub fn try_step(
        &self,
        cost: f64,
        parameters: &[f64],
        step: ParameterStep,
        share: f64,
    ) -> Option<LowerPoint> {
        let mut trial_point = parameters.to_vec();
        for (&p, change) in step.parameters.iter().zip(step.changes) {
            trial_point[p] =
                (trial_point[p] + share * change).clamp(self.curve.lower[p], self.curve.upper[p]);
        }
        let trial_cost = self
            .cost(&trial_point)
            .filter(|trial_cost| *trial_cost < cost * (1.0 - MIN_RELATIVE_REDUCTION))?;
        Some(LowerPoint {
            parameters: trial_point,
            cost: trial_cost,
        })
    }
}
