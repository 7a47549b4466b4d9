//! Nelder–Mead on the CPU device.

use std::sync::{MutexGuard, PoisonError};

use super::CpuPopulation;
use crate::math::Real;
use crate::solver::NelderMead;
use crate::solver::member::Member;
use crate::solver::round::simplex::{self, ObjectiveSettings, TrialPoint};
use crate::solver::simplex::{Simplex, TRIALS_PER_SIMPLEX as LANES};

impl<R: Real> CpuPopulation<R> {
    /// Takes one Nelder–Mead iteration of each of these simplices: evaluates what it needs, then moves the vertices.
    /// They evaluate only points that can be accepted.
    pub(super) fn move_simplices(&self, members: &mut [Member], settings: &NelderMead) {
        let recording = &*self.inputs.recording;
        let worth = ObjectiveSettings {
            marginalise: recording.marginalise,
            dof: recording.dof,
            noise: R::SIMPLEX_NOISE,
        };
        let mut simplices: Vec<_> = members
            .chunks_exact(LANES)
            .map(|trials| self.simplex(trials[0].slot / LANES))
            .collect();
        let mut some = Vec::with_capacity(members.len());
        for (trials, simplex) in members.chunks_exact_mut(LANES).zip(&simplices) {
            let lanes = simplex
                .as_ref()
                .map_or(0, |simplex| simplex::count_first_lanes(simplex));
            some.extend(trials.iter_mut().take(lanes));
        }
        self.evaluate(some);
        let mut some = Vec::with_capacity(simplices.len());
        for (trials, simplex) in members.chunks_exact_mut(LANES).zip(&simplices) {
            let reflected = trials[0].objective(recording.marginalise);
            let lane = simplex
                .as_ref()
                .and_then(|simplex| simplex::choose_second_lane(simplex, reflected));
            some.extend(lane.map(|lane| &mut trials[lane]));
        }
        self.evaluate(some);
        let (begin, count) = (self.begin(), simplices.len());
        for (trials, simplex) in members.chunks_exact_mut(LANES).zip(&mut simplices) {
            let bounds = self.inputs.bounds(trials[0].spectrum);
            if let Some(simplex) = simplex {
                let status = simplex::move_simplex(simplex, trials, bounds, settings, worth);
                for member in trials {
                    (member.rounds, member.status) = (simplex.rounds, status);
                }
            }
        }
        self.moved(count, begin);
    }

    /// Locks and returns the simplex of the start in a slot; `None` if there is none.
    pub(super) fn simplex(&self, slot: usize) -> Option<MutexGuard<'_, Simplex>> {
        self.simplices
            .get(&slot)
            .map(|simplex| simplex.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
