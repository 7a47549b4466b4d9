//! Nelder–Mead on the CPU device.

use std::sync::{MutexGuard, PoisonError};

use super::CpuPopulation;
use crate::math::Real;
use crate::solver::NelderMead;
use crate::solver::member::Member;
use crate::solver::round::simplex::{self, ObjectiveSettings, TrialPoint};
use crate::solver::simplex::{Simplex, TRIALS_PER_SIMPLEX as LANES};

impl<R: Real> CpuPopulation<R> {
    /// Takes one Nelder–Mead iteration of each of these simplices: evaluates the trial points that the iteration needs,
    /// then moves the vertices. Only points that can be accepted are evaluated.
    pub(super) fn move_simplices(&self, members: &mut [Member], settings: &NelderMead) {
        let recording = &*self.inputs.recording;
        let worth = ObjectiveSettings {
            marginalise: recording.marginalise,
            dof: recording.dof,
            noise: R::SIMPLEX_NOISE,
        };
        let mut simplices: Vec<_> = members
            .chunks_exact(LANES)
            .map(|trials| self.lock_simplex(trials[0].slot / LANES))
            .collect();
        // 1. Evaluate the first trial points of each simplex.
        let mut first_trials = Vec::with_capacity(members.len());
        for (trials, simplex) in members.chunks_exact_mut(LANES).zip(&simplices) {
            let lanes = simplex
                .as_ref()
                .map_or(0, |simplex| simplex::count_first_lanes(simplex));
            first_trials.extend(trials.iter_mut().take(lanes));
        }
        self.evaluate(first_trials);
        // 2. The reflected point's objective decides whether a second trial point is needed, and which.
        let mut second_trials = Vec::with_capacity(simplices.len());
        for (trials, simplex) in members.chunks_exact_mut(LANES).zip(&simplices) {
            let reflected = trials[0].objective(recording.marginalise);
            let lane = simplex
                .as_ref()
                .and_then(|simplex| simplex::choose_second_lane(simplex, reflected));
            second_trials.extend(lane.map(|lane| &mut trials[lane]));
        }
        self.evaluate(second_trials);
        // 3. Move the vertices. All members of a simplex carry its number of iterations and its status.
        let begin = self.start_clock();
        let count = simplices.len();
        for (trials, simplex) in members.chunks_exact_mut(LANES).zip(&mut simplices) {
            let bounds = self.inputs.bounds(trials[0].spectrum);
            if let Some(simplex) = simplex {
                let status = simplex::move_simplex(simplex, trials, bounds, settings, worth);
                for member in trials {
                    member.rounds = simplex.rounds;
                    member.status = status;
                }
            }
        }
        self.record_step_time(count, begin);
    }

    /// Locks and returns the simplex of the start in a slot; `None` if there is none.
    pub(super) fn lock_simplex(&self, slot: usize) -> Option<MutexGuard<'_, Simplex>> {
        self.simplices
            .get(&slot)
            .map(|simplex| simplex.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
