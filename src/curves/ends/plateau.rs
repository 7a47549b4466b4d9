//! Minima at infinity, and minima where parameters have no effect: the cost has stopped falling although the solver did
//! not converge.

use crate::curves::ends::polish::{Problem, Rows, Step};

/// Smallest relative reduction of the cost that counts as a descent: scipy's default `ftol`.
pub(crate) const LEAST_GAIN: f64 = 1e-8;
/// Number of fractions of a step that are tried: 1, 1/4, 1/16, …
const TRIALS: i32 = 15;
/// Steps along each axis, as shares of the parameter's size. They need no derivatives, which may be wrong.
const AXIS_STEPS: [f64; 5] = [0.3, 0.03, 1e-3, 1e-5, 1e-7];
/// Relative length of an unproductive Gauss–Newton step above which its parameter may be undetermined.
const RUNAWAY_STEP: f64 = 0.5;
/// Error, in sizes of the parameter, above which it is undetermined.
const RUNAWAY_ERROR: f64 = 10.0;

/// Neighbourhood of a point where a solver did not converge.
pub(crate) enum Neighbourhood {
    /// Nothing near is lower. Has the parameters that the data do not determine.
    Minimum(Vec<usize>),
    /// There is a lower point.
    Lower(Vec<f64>),
    /// There is no Gauss–Newton step, and no axis leads down.
    Unknown,
}

/// A point of lower cost.
pub(crate) struct Lower {
    pub parameters: Vec<f64>,
    pub cost: f64,
}

impl Problem<'_> {
    /// Looks around a point where a solver did not converge: finds a lower cost, or else a minimum and its undetermined
    /// parameters.
    ///
    /// At a minimum nothing lowers the cost by more than 1e-8 of it: neither the Gauss–Newton step, of all parameters
    /// or without those that run away, nor the gradient over the squared columns of the Jacobian, each at 15 lengths,
    /// nor, where columns are nearly dependent, a damped step, nor a step along an axis or to where parameters that act
    /// alike part. Where parameters run to infinity the Gauss–Newton step stays as long as they are, and gains nothing:
    /// with residuals r₀ + a e^(−θ) both Jᵀr and JᵀJ vanish, and the reduction that it promises, (Jᵀr)²/JᵀJ, does not.
    pub fn look_around(&self, rows: &Rows, parameters: &[f64]) -> Neighbourhood {
        let movable = self.movable(rows, parameters);
        let idle = self.idle(rows, &movable);
        let along_axes = || self.lower_along_axes(rows.cost(), parameters, &movable);
        let mut acting: Vec<usize> = movable
            .iter()
            .copied()
            .filter(|p| !idle.contains(p))
            .collect();
        if acting.is_empty() {
            let lower = along_axes().or_else(|| self.lower_beside(0.0, rows, parameters));
            return lower.map_or(Neighbourhood::Minimum(idle), Neighbourhood::Lower);
        }
        // 1. All parameters that act, by the Gauss–Newton step, by the gradient and by damped steps.
        let Some(shortest) = rows.least_step(&acting, parameters) else {
            return along_axes().map_or(Neighbourhood::Unknown, Neighbourhood::Lower);
        };
        if let Some(lower) = self.lower_by_steps(rows.cost(), rows, parameters, &acting, &shortest)
        {
            return Neighbourhood::Lower(lower);
        }
        // 2. The parameters that stay where they are, by themselves.
        let runaways = self.runaways(
            rows,
            parameters,
            Step {
                parameters: &acting,
                changes: &shortest,
            },
        );
        acting.retain(|p| !runaways.contains(p));
        if let Some(changes) = &rows.least_step(&acting, parameters)
            && let Some(lower) = self.lower_along(
                rows.cost(),
                parameters,
                Step {
                    parameters: &acting,
                    changes,
                },
            )
        {
            return Neighbourhood::Lower(lower);
        }
        // 3. Each parameter by itself: this needs no derivatives, but creeps along a valley.
        if let Some(lower) = along_axes().or_else(|| self.lower_beside(0.0, rows, parameters)) {
            return Neighbourhood::Lower(lower);
        }
        Neighbourhood::Minimum(runaways.into_iter().chain(idle).collect())
    }

    /// Returns whether the cost falls by more than `gain`, which is positive, at fractions of the Gauss–Newton step or
    /// of the gradient over the squared columns of the Jacobian, or by a damped step; false without an evaluation if
    /// the Gauss–Newton step promises no more than `gain`.
    pub fn falls_by(&self, gain: f64, rows: &Rows, parameters: &[f64]) -> bool {
        let mut acting = self.movable(rows, parameters);
        let idle = self.idle(rows, &acting);
        acting.retain(|p| !idle.contains(p));
        let Some(shortest) = rows.least_step(&acting, parameters) else {
            return false;
        };
        let promise: f64 = acting
            .iter()
            .zip(&shortest)
            .map(|(&p, d)| rows.gradient[p] * d)
            .sum();
        promise > gain
            && self
                .lower_by_steps(rows.cost() - gain, rows, parameters, &acting, &shortest)
                .is_some()
    }

    /// Returns a point of a cost below this one that a step of the `acting` parameters leads to: the `shortest`
    /// Gauss–Newton step, the gradient over the squared columns of the Jacobian, each at 15 lengths, or a damped step.
    fn lower_by_steps(
        &self,
        cost: f64,
        rows: &Rows,
        parameters: &[f64],
        acting: &[usize],
        shortest: &[f64],
    ) -> Option<Vec<f64>> {
        let squares: Vec<f64> = rows.squares().collect();
        let descent: Vec<f64> = acting
            .iter()
            .map(|&p| rows.gradient[p] / squares[p])
            .collect();
        let along = |changes: &[f64]| {
            self.lower_along(
                cost,
                parameters,
                Step {
                    parameters: acting,
                    changes,
                },
            )
        };
        let by = |changes: Vec<f64>| {
            self.lower_by(
                cost,
                parameters,
                Step {
                    parameters: acting,
                    changes: &changes,
                },
                1.0,
            )
        };
        let damped = || {
            rows.damped_steps(acting)
                .into_iter()
                .find_map(by)
                .map(|lower| lower.parameters)
        };
        along(shortest).or_else(|| along(&descent)).or_else(damped)
    }

    /// Returns the first point that is lower and has finite derivatives, with its rows: `point` itself, or one ever
    /// nearer to these parameters. Also returns the number of evaluations.
    pub fn nearest_with_rows(
        &self,
        point: &[f64],
        rows: &Rows,
        parameters: &[f64],
    ) -> (Option<(Vec<f64>, Rows)>, u32) {
        let mut evaluations = 0;
        let found = (0..TRIALS).find_map(|k| {
            let share = 0.25_f64.powi(k);
            let mut trial = point.to_vec();
            if k > 0 {
                let between = |(x, there): (&f64, &f64)| x + share * (there - x);
                let limits = self.curve.lower.iter().zip(&self.curve.upper);
                let all = parameters.iter().zip(point).map(between).zip(limits);
                trial = all
                    .map(|(x, (lower, upper))| x.clamp(*lower, *upper))
                    .collect();
            }
            evaluations += u32::from(self.left.get() > 0);
            let found = self
                .drawn_rows(&trial)
                .filter(|found| found.cost() < rows.cost())?;
            Some((trial, found))
        });
        (found, evaluations)
    }

    /// Returns the parameters that a step which gains nothing would move far: those whose columns are too short to
    /// determine them, or, where there are none, a group whose columns are alike.
    fn runaways(&self, rows: &Rows, parameters: &[f64], step: Step) -> Vec<usize> {
        let noise = (rows.cost() / self.curve.used as f64).sqrt();
        let squares: Vec<f64> = rows.squares().collect();
        let moved = step.parameters.iter().copied().zip(step.changes);
        let far = moved.filter(|(p, d)| d.abs() > RUNAWAY_STEP * self.size(parameters, *p));
        let far: Vec<usize> = far.map(|(p, _)| p).collect();
        let is_short =
            |p: &usize| noise / squares[*p].sqrt() > RUNAWAY_ERROR * self.size(parameters, *p);
        let short: Vec<usize> = far.iter().copied().filter(is_short).collect();
        if short.is_empty() { far } else { short }
    }

    /// Returns a point of lower cost beside one where some parameters have no effect or act alike: along the axes of
    /// the former and the diagonals of two of these axes, or, if that gains more than `gain`, as
    /// [`lowest_where_alike`](Self::lowest_where_alike) does.
    pub fn lower_beside(&self, gain: f64, rows: &Rows, parameters: &[f64]) -> Option<Vec<f64>> {
        let idle = self.idle(rows, &self.inside(parameters));
        let pairs = idle
            .iter()
            .enumerate()
            .flat_map(|(i, &p)| idle[..i].iter().map(move |&q| [p, q]));
        let mut steps = pairs.flat_map(|pair| AXIS_STEPS.map(|share| (pair, share)));
        let along_diagonals = || {
            steps.find_map(|(pair, share)| {
                self.lower_along_diagonals(rows.cost(), parameters, pair, share)
            })
        };
        let lower = self
            .lower_along_axes(rows.cost(), parameters, &idle)
            .or_else(along_diagonals);
        lower.or_else(|| self.lowest_where_alike(gain, rows, parameters))
    }

    /// Returns a lower point along one of the two diagonals of a pair of axes, at a `share` of the parameters' sizes.
    fn lower_along_diagonals(
        &self,
        cost: f64,
        parameters: &[f64],
        pair: [usize; 2],
        share: f64,
    ) -> Option<Vec<f64>> {
        let [d, e] = pair.map(|p| share * self.size(parameters, p));
        let mut steps = [[d, e], [d, -e]].into_iter();
        let lower = |changes: [f64; 2]| {
            self.lower_by(
                cost,
                parameters,
                Step {
                    parameters: &pair,
                    changes: &changes,
                },
                1.0,
            )
        };
        steps.find_map(lower).map(|lower| lower.parameters)
    }

    /// Returns the first point of lower cost at steps along the axes of some parameters, one at a time; `None` if there
    /// is none.
    fn lower_along_axes(&self, cost: f64, parameters: &[f64], some: &[usize]) -> Option<Vec<f64>> {
        let steps = some.iter().flat_map(|&p| {
            AXIS_STEPS
                .into_iter()
                .flat_map(move |share| [(p, share), (p, -share)])
        });
        let mut trials = steps.map(|(p, share)| (p, share * self.size(parameters, p)));
        let lower = |(p, d)| {
            self.lower_by(
                cost,
                parameters,
                Step {
                    parameters: &[p],
                    changes: &[d],
                },
                1.0,
            )
        };
        trials.find_map(lower).map(|lower| lower.parameters)
    }

    /// Returns the larger of a parameter's magnitude and its unit, by which steps are measured.
    pub fn size(&self, parameters: &[f64], p: usize) -> f64 {
        parameters[p].abs().max(self.curve.scale[p])
    }

    /// Returns the indices of the free parameters inside their bounds, or at a bound from which the cost falls inwards.
    fn movable(&self, rows: &Rows, parameters: &[f64]) -> Vec<usize> {
        let (lower, upper) = (&self.curve.lower, &self.curve.upper);
        let is_pushed = |p: usize| {
            let slope = rows.gradient[p];
            (parameters[p] <= lower[p] && slope <= 0.0)
                || (parameters[p] >= upper[p] && slope >= 0.0)
        };
        self.curve
            .free()
            .into_iter()
            .filter(|&p| !is_pushed(p))
            .collect()
    }

    /// Returns the first point of a cost below this one at fractions of a step, from the whole down; `None` if there is
    /// none.
    fn lower_along(&self, cost: f64, parameters: &[f64], step: Step) -> Option<Vec<f64>> {
        let lower = |k: i32| self.lower_by(cost, parameters, step, 0.25_f64.powi(k));
        (0..TRIALS).find_map(lower).map(|lower| lower.parameters)
    }

    /// Returns the point at `share` of a step, clamped to the bounds, if its cost is lower than `cost`; else `None`.
    pub fn lower_by(&self, cost: f64, parameters: &[f64], step: Step, share: f64) -> Option<Lower> {
        let mut trial = parameters.to_vec();
        for (&p, d) in step.parameters.iter().zip(step.changes) {
            trial[p] = (trial[p] + share * d).clamp(self.curve.lower[p], self.curve.upper[p]);
        }
        let found = self
            .cost(&trial)
            .filter(|found| *found < cost * (1.0 - LEAST_GAIN))?;
        Some(Lower {
            parameters: trial,
            cost: found,
        })
    }
}
