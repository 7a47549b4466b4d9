//! A member's state on the host.

use super::basin::{AcceptedPoint, PAUSE_ROUNDS};
use super::{Damping, Outcome, Status};
use crate::buffers::Sums;

/// Phase of a fit, which decides how its trial points are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Trial points are judged by their cost.
    Searching,
    /// Trial points are judged by their cost, and the damping's diagonal has no floor any more: parameters that the
    /// floor held back are to move, too.
    Released,
    /// Differences of the cost drown in rounding: trial points are judged by the length of the next Gauss–Newton step.
    Finishing,
    /// The last finishing step was lengthened: it must not raise the cost.
    Striding,
    /// The fit is an evaluation: its first point ends it.
    Evaluating,
}

/// Reduction of the cost that the quadratic model predicts for the step to the trial point: 2 gᵀδ − δᵀAδ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PredictedReduction {
    /// There has been no step.
    None,
    /// Reduction of a whole step.
    Whole(f64),
    /// Reduction of a step that was shortened or lengthened, which says nothing about the next one.
    Rescaled(f64),
}

impl PredictedReduction {
    /// Returns the cost reduction predicted for the last step; NaN where there has been none.
    pub fn value(self) -> f64 {
        match self {
            PredictedReduction::None => f64::NAN,
            PredictedReduction::Whole(reduction) | PredictedReduction::Rescaled(reduction) => {
                reduction
            }
        }
    }

    /// Returns the cost reduction predicted for the last step if the step was whole and it is above 0.
    pub fn of_whole_step(self) -> Option<f64> {
        match self {
            PredictedReduction::Whole(reduction) if reduction > 0.0 => Some(reduction),
            _ => None,
        }
    }
}

/// Reason why a member left its spectrum to another start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveWay {
    /// It lies in the basin of a better member.
    SameBasin,
    /// Its possible further gain cannot reach the cost of a better member.
    Hopeless,
}

/// Numbers of active members of a population.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Active {
    /// Members that have not ended.
    pub all: usize,
    /// Of these, those that do not pause in the next round.
    pub taking_part: usize,
}

/// One parameter vector under optimisation.
#[derive(Clone, Debug)]
pub struct Member {
    /// Place in the batch.
    pub slot: usize,
    /// Spectrum in the batch.
    pub spectrum: usize,
    pub status: Option<Status>,
    pub gave_way: Option<GaveWay>,
    pub rounds: u32,
    /// 0, or 1 + the number of rounds for which it has paused, if it is to pause.
    pub pause: u32,
    pub rejections: u32,
    pub finishing_steps: u32,
    pub phase: Phase,
    pub damping: Damping,
    pub predicted_reduction: PredictedReduction,
    /// Trial point, at which the next linearisation takes place, and its sums.
    pub trial: Vec<f64>,
    pub trial_sums: Sums,
    /// The accepted point.
    pub parameters: Vec<f64>,
    pub sums: Sums,
}

impl Member {
    /// Makes a member, one running fit, that begins at `start`, in a slot and for a spectrum of the batch.
    pub fn new(slot: usize, spectrum: usize, start: &[f64], damping: f64) -> Member {
        let sums = Sums::poisoned(start.len());
        Member {
            slot,
            spectrum,
            status: None,
            gave_way: None,
            rounds: 0,
            pause: 0,
            rejections: 0,
            finishing_steps: 0,
            phase: Phase::Searching,
            damping: Damping::new(damping),
            predicted_reduction: PredictedReduction::None,
            trial: start.to_vec(),
            trial_sums: sums.clone(),
            parameters: start.to_vec(),
            sums,
        }
    }

    /// Returns whether the fit still runs: it has no final status and has not given way to another start.
    pub fn is_active(&self) -> bool {
        self.status.is_none() && self.gave_way.is_none()
    }

    /// Returns whether the member still runs but pauses in the next round.
    pub fn pauses(&self) -> bool {
        self.is_active() && (1..=PAUSE_ROUNDS).contains(&self.pause)
    }

    /// Returns the number of rounds since the member entered, including those in which it paused.
    pub fn age(&self) -> u32 {
        self.rounds + self.pause.saturating_sub(1)
    }

    /// Returns the accepted point with its cost, gradient and normal matrix.
    pub fn point(&self) -> AcceptedPoint<'_> {
        AcceptedPoint {
            parameters: &self.parameters,
            cost: self.sums.cost(),
            gradient: &self.sums.gradient,
            normal_matrix: &self.sums.normal_matrix,
        }
    }

    /// Accepts the trial point: it changes places with the accepted point, and so do their sums.
    pub fn accept(&mut self) {
        std::mem::swap(&mut self.parameters, &mut self.trial);
        std::mem::swap(&mut self.sums, &mut self.trial_sums);
    }

    /// Returns the fit's result: status, rounds, and the accepted point with its sums.
    pub fn outcome(&self) -> Outcome {
        Outcome {
            status: self.status,
            gave_way: self.gave_way,
            rounds: self.rounds,
            evaluations: self.rounds,
            parameters: self.parameters.clone(),
            chi2: self.sums.chi2,
            penalty: self.sums.penalty,
            ln_det: self.sums.ln_det,
            loss: self.sums.loss,
            gradient: self.sums.gradient.clone(),
            normal_matrix: self.sums.normal_matrix.clone(),
        }
    }
}
