//! Decisions of a damped step, for one number, as the equations are (`equations.rs`): whether a trial point is
//! accepted, and what a solved step says about the end of its fit. The step of a member (`step.rs`) and the steps of
//! small fits, many side by side (`cpu/lanes/step.rs`), decide by them. None has a branch. Their twins are in
//! `shaders/shared/judge.wgsl` and, for small fits, in `shaders/small.wgsl`.

use super::equations::{contraction, squared_remaining_distance};
use crate::math::Real;
use crate::math::lanes::pick;
use crate::solver::{Damping, Status};

/// An evaluated trial point, compared with the accepted point that it is to replace.
#[derive(Clone, Copy)]
pub struct EvaluatedTrial<R> {
    /// Cost at the accepted point.
    pub cost: R,
    pub trial_cost: R,
    /// Reduction that the step predicted, not below 0.
    pub predicted_reduction: R,
    /// The step was shortened or lengthened.
    pub is_rescaled: bool,
    /// The trial point's sums are finite.
    pub is_finite: bool,
    /// There is no accepted point yet.
    pub is_first: bool,
}

impl<R: Real> EvaluatedTrial<R> {
    /// Accepts or rejects the trial point by its cost; returns whether it is accepted, and the damping of the next step
    /// (Nielsen 1999, eqs. 2.20–2.21).
    ///
    /// With F and F₊ the costs at the accepted and the trial point and ΔF̂ the reduction that the step predicted, the
    /// gain ratio is ρ = (F − F₊) / ΔF̂. A trial point is rejected if F₊ ≥ F, or if its sums are not finite. The
    /// exceptions:
    /// - The first point has no predecessor to be compared with. It is accepted, whatever it is.
    /// - Far from the minimum a shortened step may gain less than `cost_error`, the relative rounding error of a cost.
    ///   It is accepted as if ρ were ½: its gain ratio is meaningless, so that μ stays.
    /// - `allowed_rise`: share of F by which F₊ may be higher. Fits without finishing steps allow for rounding here.
    #[inline(always)]
    pub fn judge_cost(
        self,
        damping: Damping<R>,
        cost_error: R,
        allowed_rise: R,
    ) -> (bool, Damping<R>) {
        let EvaluatedTrial {
            cost,
            trial_cost,
            predicted_reduction,
            ..
        } = self;
        let gain_is_hidden = self.is_rescaled & (predicted_reduction <= cost_error * cost);
        let is_lower = (trial_cost < cost * (R::ONE + allowed_rise))
            | (gain_is_hidden & (trial_cost <= cost * (R::ONE + cost_error)));
        let is_accepted = self.is_first | (self.is_finite & is_lower);
        let gain_ratio = ((cost - trial_cost) / predicted_reduction).maximum(R::ZERO);
        // The first point has no gain ratio, and a hidden gain is rounding.
        let is_meaningless = self.is_first | gain_is_hidden;
        (
            is_accepted,
            damping.update(is_accepted, pick(is_meaningless, R::of(0.5), gain_ratio)),
        )
    }
}

/// Predictions of a solved step about the end of its fit.
#[derive(Clone, Copy)]
pub struct Outlook<R> {
    /// Reduction predicted for the step as it was solved for.
    pub reduction: R,
    /// Reduction predicted for the step before it; not above 0, or NaN, where there was none or it was rescaled.
    pub previous: R,
    /// The last trial point was rejected.
    pub was_rejected: bool,
    /// The step is shorter or longer than it was solved for.
    pub is_rescaled: bool,
    /// No free parameter is damped so much that the prediction says little about the minimum.
    pub is_undamped: bool,
    /// ‖√diag(A) δ‖² of the whole step, and ‖√diag(A) θ‖² over the parameters that it moves.
    pub length_squared: R,
    pub scale_squared: R,
}

impl<R: Real> Outlook<R> {
    /// Returns whether the last two predicted reductions show how fast the fit converges. The first one, one after a
    /// rejection, and that of a rescaled step do not.
    #[inline(always)]
    pub fn is_comparable(&self) -> bool {
        (self.previous > R::ZERO) & !self.was_rejected & !self.is_rescaled
    }

    /// Returns the ratio by which predicted reductions shrink, between `best` and 1, from two that are comparable.
    #[inline(always)]
    pub fn contraction(&self, best: R) -> R {
        contraction(self.reduction, self.previous, best)
    }

    /// Returns the reduction that the step after the next is expected to gain, where reductions are comparable.
    #[inline(always)]
    pub fn expected_reduction(&self, best: R) -> R {
        self.reduction * self.contraction(best)
    }

    /// Returns the square of the distance that all remaining steps cover together, in errors. Where two reductions
    /// cannot be compared, it is the square of the next step's length; after a rejection 0, unless that step is known
    /// to be shorter than the rejected one, because the same step would be rejected again.
    #[inline(always)]
    pub fn squared_distance(&self) -> R {
        let is_another_step = !self.was_rejected | (self.reduction < self.previous);
        let squared_length = pick(is_another_step, self.reduction, R::ZERO);
        pick(
            self.is_comparable(),
            squared_remaining_distance(self.reduction, self.previous),
            squared_length,
        )
    }

    /// Returns whether the step is at most `xtol` times as long as the vector of the parameters that it moves, both in
    /// the norm of √diag(A).
    #[inline(always)]
    pub fn is_short(&self, xtol: R) -> bool {
        self.length_squared <= xtol * xtol * self.scale_squared
    }

    /// Returns whether the floor of the damping's diagonal is to be released: `mu` itself is below `undamped`, so that
    /// only the floor damps the step, and the fit `is_about_to_end` or creeps.
    #[inline(always)]
    pub fn releases_floor(&self, mu: R, undamped: R, is_about_to_end: bool, creeps: bool) -> bool {
        !self.is_undamped & (mu < undamped) & (is_about_to_end | creeps)
    }
}

/// Returns the predicted reduction at which a fit has converged: a share of its cost, or of `largest_cost` where the
/// cost is higher.
#[inline(always)]
pub fn least_reduction<R: Real>(tolerance: R, cost: R, largest_cost: R) -> R {
    tolerance * cost.minimum(largest_cost)
}

/// Returns the status of a fit that has converged by its reduction, by its step, or by both, as `encode` writes it;
/// `otherwise` where it has not converged.
#[inline(always)]
pub fn convergence_status<T>(
    small_reduction: bool,
    small_step: bool,
    otherwise: T,
    encode: impl Fn(Status) -> T,
) -> T {
    let by_one_criterion = pick(
        small_reduction,
        encode(Status::Ftol),
        pick(small_step, encode(Status::Xtol), otherwise),
    );
    pick(
        small_reduction & small_step,
        encode(Status::FtolXtol),
        by_one_criterion,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIAL: EvaluatedTrial<f64> = EvaluatedTrial {
        cost: 100.0,
        trial_cost: 90.0,
        predicted_reduction: 20.0,
        is_rescaled: false,
        is_finite: true,
        is_first: false,
    };
    const DAMPING: Damping = Damping { mu: 0.6, nu: 4.0 };

    /// Judges a trial point where a cost's rounding error is 1 %; returns whether it is accepted, μ and ν.
    fn judge(trial: EvaluatedTrial<f64>, allowed_rise: f64) -> (bool, f64, f64) {
        let (is_accepted, damping) = trial.judge_cost(DAMPING, 0.01, allowed_rise);
        (is_accepted, damping.mu, damping.nu)
    }

    #[test]
    fn trial_points_are_judged_as_computed_by_hand() {
        // ρ = ½, at which the damping stays; ρ = 1
        assert_eq!(judge(TRIAL, 0.0), (true, 0.6, 2.0));
        assert_eq!(
            judge(
                EvaluatedTrial {
                    predicted_reduction: 10.0,
                    ..TRIAL
                },
                0.0
            ),
            (true, 0.6 / 3.0, 2.0)
        );
        // No gain; a rise by rounding, with and without finishing steps to follow; a cost that is not finite.
        assert_eq!(
            judge(
                EvaluatedTrial {
                    trial_cost: 100.0,
                    ..TRIAL
                },
                0.0
            ),
            (false, 2.4, 8.0)
        );
        assert_eq!(
            judge(
                EvaluatedTrial {
                    trial_cost: 100.5,
                    ..TRIAL
                },
                0.0
            ),
            (false, 2.4, 8.0)
        );
        assert_eq!(
            judge(
                EvaluatedTrial {
                    trial_cost: 100.5,
                    ..TRIAL
                },
                0.01
            ),
            (true, 1.2, 2.0)
        );
        assert_eq!(
            judge(
                EvaluatedTrial {
                    trial_cost: f64::NAN,
                    is_finite: false,
                    ..TRIAL
                },
                0.01
            ),
            (false, 2.4, 8.0)
        );
        // A rescaled step that predicted less than rounding, or more.
        let rescaled = EvaluatedTrial {
            trial_cost: 100.5,
            predicted_reduction: 0.5,
            is_rescaled: true,
            ..TRIAL
        };
        assert_eq!(judge(rescaled, 0.0), (true, 0.6, 2.0));
        assert_eq!(
            judge(
                EvaluatedTrial {
                    trial_cost: 101.5,
                    ..rescaled
                },
                0.0
            ),
            (false, 2.4, 8.0)
        );
        assert_eq!(
            judge(
                EvaluatedTrial {
                    predicted_reduction: 2.0,
                    ..rescaled
                },
                0.0
            ),
            (false, 2.4, 8.0)
        );
        // The first point.
        let first = EvaluatedTrial {
            cost: f64::NAN,
            predicted_reduction: f64::NAN,
            is_first: true,
            ..TRIAL
        };
        assert_eq!(judge(first, 0.0), (true, 0.6, 2.0));
        assert_eq!(
            judge(
                EvaluatedTrial {
                    is_finite: false,
                    ..first
                },
                0.0
            ),
            (true, 0.6, 2.0)
        );
    }

    #[test]
    fn an_outlook_predicts_convergence_as_computed_by_hand() {
        let outlook = Outlook {
            reduction: 1.0,
            previous: 4.0,
            was_rejected: false,
            is_rescaled: false,
            is_undamped: false,
            length_squared: 1e-6,
            scale_squared: 4.0,
        };
        assert!(
            outlook.is_comparable()
                && outlook.contraction(0.1) == 0.25
                && outlook.contraction(0.5) == 0.5
        );
        assert_eq!(
            Outlook {
                reduction: 2.0,
                ..outlook
            }
            .expected_reduction(0.1),
            1.0
        );
        // q = ½; steps that do not shrink; reductions that cannot be compared; a rejected step that is repeated.
        assert_eq!(outlook.squared_distance(), 4.0);
        assert_eq!(
            Outlook {
                reduction: 4.0,
                ..outlook
            }
            .squared_distance(),
            4.0
        );
        assert_eq!(
            Outlook {
                reduction: 9.0,
                ..outlook
            }
            .squared_distance(),
            4.0
        );
        assert_eq!(
            Outlook {
                previous: f64::NAN,
                ..outlook
            }
            .squared_distance(),
            1.0
        );
        let after_rejection = Outlook {
            was_rejected: true,
            ..outlook
        };
        assert_eq!(after_rejection.squared_distance(), 1.0);
        assert_eq!(
            Outlook {
                reduction: 4.0,
                ..after_rejection
            }
            .squared_distance(),
            0.0
        );
        let incomparable = [
            Outlook {
                previous: -4.0,
                ..outlook
            },
            Outlook {
                previous: f64::NAN,
                ..outlook
            },
            Outlook {
                was_rejected: true,
                ..outlook
            },
            Outlook {
                is_rescaled: true,
                ..outlook
            },
        ];
        assert!(incomparable.iter().all(|outlook| !outlook.is_comparable()));
        assert!(outlook.is_short(6e-4) && !outlook.is_short(4e-4));
        assert!(
            outlook.releases_floor(0.05, 0.1, true, false)
                && outlook.releases_floor(0.05, 0.1, false, true)
        );
        assert!(
            !outlook.releases_floor(0.05, 0.1, false, false)
                && !outlook.releases_floor(0.2, 0.1, true, true)
        );
        assert!(
            !Outlook {
                is_undamped: true,
                ..outlook
            }
            .releases_floor(0.05, 0.1, true, true)
        );
        assert_eq!(
            (
                least_reduction(0.01, 50.0, 100.0),
                least_reduction(0.01, 500.0, 100.0)
            ),
            (0.5, 1.0)
        );
        let statuses = [(false, false), (true, false), (false, true), (true, true)].map(
            |(small_reduction, small_step)| {
                convergence_status(small_reduction, small_step, None, Some)
            },
        );
        assert_eq!(
            statuses,
            [
                None,
                Some(Status::Ftol),
                Some(Status::Xtol),
                Some(Status::FtolXtol)
            ]
        );
    }
}
