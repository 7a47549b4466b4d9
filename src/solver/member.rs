//! A member's state on the host.

use super::basin::{PAUSE, Point};
use super::{Damping, Outcome, Status};
use crate::buffers::Sums;

/// Criterion by which trial points are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By their cost.
    Searching,
    /// By their cost, without a floor of the damping's diagonal: what the floor held back is to move, too.
    Released,
    /// By the length of the Gauss–Newton step that follows: the cost is down to rounding.
    Finishing,
}

/// Reason why a member left its spectrum to another start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveWay {
    /// It sits in the basin of a better member.
    SameBasin,
    /// Its possible further gain does not reach a better member.
    Hopeless,
}

/// Numbers of members of a population that have not ended, and that take part in the next round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Active {
    pub all: usize,
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
    /// 0 unless it is to sit out some rounds: then 1 + those that it has sat out.
    pub pause: u32,
    pub rejections: u32,
    pub finishing_steps: u32,
    pub mode: Mode,
    pub damping: Damping,
    /// Reduction of the cost that the step to the trial point predicts. Negative if that step was shortened, and
    /// therefore tells nothing about the next.
    pub predicted_reduction: f64,
    /// Trial point, at which the next linearisation takes place, and its sums.
    pub trial: Vec<f64>,
    pub trial_sums: Sums,
    /// The accepted point.
    pub parameters: Vec<f64>,
    pub sums: Sums,
}

impl Member {
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
            mode: Mode::Searching,
            damping: Damping::new(damping),
            predicted_reduction: f64::NAN,
            trial: start.to_vec(),
            trial_sums: sums.clone(),
            parameters: start.to_vec(),
            sums,
        }
    }

    /// Has not ended.
    pub fn is_active(&self) -> bool {
        self.status.is_none() && self.gave_way.is_none()
    }

    /// Does not take part in the next round.
    pub fn sits_out(&self) -> bool {
        self.is_active() && (1..=PAUSE).contains(&self.pause)
    }

    /// Rounds since it entered, those that it sat out among them.
    pub fn age(&self) -> u32 {
        self.rounds + self.pause.saturating_sub(1)
    }

    /// The accepted point.
    pub fn point(&self) -> Point<'_> {
        Point {
            parameters: &self.parameters,
            cost: self.sums.cost(),
            gradient: &self.sums.gradient,
            normal_matrix: &self.sums.normal_matrix,
        }
    }

    /// Accepted and trial point change places, and so do their sums.
    pub fn accept(&mut self) {
        std::mem::swap(&mut self.parameters, &mut self.trial);
        std::mem::swap(&mut self.sums, &mut self.trial_sums);
    }

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
            gradient: self.sums.gradient.clone(),
            normal_matrix: self.sums.normal_matrix.clone(),
        }
    }
}
