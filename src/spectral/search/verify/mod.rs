//! Spot checks of a GPU that fits spectra: the CPU computes a few of its results again.
//!
//! 1. *Objectives.* At the parameters of one result of each readback, the CPU evaluates the objective F of the same
//!    recording. The two may differ by rounding. If each weighted pixel of the model is off by ε, Cauchy and Schwarz
//!    allow
//!
//!    ```text
//!    |ΔF| ≤ 2 √(χ²) √(Σ ε²) + Σ ε².
//!    ```
//!
//! 2. *Minima.* A GPU can also end fits too early, at correct objectives. So the CPU continues a few of the fits that
//!    ended as successes, and half of them must not fall by much.
//!
//! Fits that fail are not continued: each is a row with a status, which hides nothing.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::cpu::CpuDevice;
use crate::device::verify::{
    MAX_CHECKED_FITS, compare_objectives, sample_successes, untrusted_error,
};
use crate::error::Result;
use crate::math::Real;
use crate::model::{Prepared, SpectralObjective};
use crate::solver::Tolerances;
use crate::solver::{Backend, LevenbergMarquardt, NelderMead, Outcome, Status};
use crate::spectral::input::ready::{
    Monitor, NEVER_CANCELLED, ReadySpectra, ReadySpectrum, StartPoints,
};
use crate::spectral::search::pass::SpectralPass;
use crate::spectral::search::shared_population::SharedPopulation;
use crate::spectral::search::solve::find_winner;
use crate::spectral::search::waiting::PassOutcomes;

/// Largest difference between two evaluations of the same objective in f32, in units of χ².
const MAX_OBJECTIVE_DIFFERENCE: f64 = 0.01;
/// Largest difference as a share of the objective, in addition to the above: sums in f32 have relative errors of 1e-5.
const MAX_RELATIVE_DIFFERENCE: f64 = 1e-4;
/// Relative rounding error of the model of one pixel in f32.
const PIXEL_ROUNDING: f64 = 1e-5;
/// Reduction of the cost that the last step of a fit may miss, in units of `ftol`. No round evaluates its end.
const LAST_STEP_IN_FTOL: f64 = 100.0;
/// Largest objective that is compared. Larger ones may be beyond the range of f32.
const MAX_COMPARED_OBJECTIVE: f64 = 1e30;
/// Number of rounds by which the CPU continues a fit. The first evaluates its end, the others take steps from there.
const CONTINUED_ROUNDS: u32 = 4;
/// Largest allowed fall of a cost in these rounds, in units of χ²: its rise at 0.2 σ from a minimum.
const MAX_FALL: f64 = 0.05;
/// The same after simplex searches: the rise of χ² at 0.5 σ.
const MAX_FALL_OF_SIMPLEX: f64 = 0.25;
/// The same as a share of the cost, in addition. Up to a cost of 10¹⁰, falls by rounding were at most 4e-6 of it.
const MAX_RELATIVE_FALL: f64 = 1e-5;
/// The same in units of the solver's own tolerance, in addition.
const MAX_FALL_BY_TOLERANCE: f64 = 2.0;
/// Number of falls that are remembered. If half of them are too large, the results of the GPU are refused.
const REMEMBERED_FALLS: usize = 8;
/// Smallest number of large falls that are blamed on the GPU rather than on the data. A fit of a sound GPU may end far
/// from the minimum where f32 does not hold the sums: one ended 50 above it, because one pixel had 10⁶ times the weight
/// of the others.
const MIN_FALLS: usize = 3;
/// Maximum number of starts in flight on the CPU. Further ones wait.
const STARTS_IN_FLIGHT: usize = 16;

/// The CPU's twin of a pass that runs on a GPU.
pub struct PassVerifier {
    /// Name of the GPU.
    gpu: String,
    pass: Box<SpectralPass>,
    /// Tolerance of the fits on the GPU, which may take their last steps without evaluating the end.
    tolerances: Tolerances,
    /// Tolerance of the simplex searches after which it evaluates; `None` where fits end by Levenberg–Marquardt.
    fatol: Option<f64>,
    /// Amounts by which the last objectives fell when the CPU continued their fits, minus the allowed fall.
    falls: VecDeque<f64>,
    /// Number of checks. It determines which results are computed again.
    checks: usize,
}

/// A result of a GPU that may be computed again.
#[derive(Clone, Copy)]
struct GpuResult<'a> {
    /// Index of the spectrum among those that the GPU fits together.
    spectrum: usize,
    outcome: &'a Outcome,
}

/// Results of one readback.
#[derive(Default)]
struct Readback<'a> {
    successes: Vec<GpuResult<'a>>,
    failures: Vec<GpuResult<'a>>,
    /// Results without a finite objective.
    not_finite: Vec<GpuResult<'a>>,
}

impl PassVerifier {
    /// Makes the CPU's twin of a pass of a GPU with this objective, whose fits have these settings. Fits may end with a
    /// simplex search.
    ///
    /// # Errors
    /// Returns the CPU's errors.
    pub fn new(
        gpu: String,
        objective: Arc<SpectralObjective>,
        settings: LevenbergMarquardt,
        simplex: Option<NelderMead>,
    ) -> Result<PassVerifier> {
        let continued = LevenbergMarquardt {
            max_rounds: CONTINUED_ROUNDS,
            ..settings
        };
        let recording = objective.recording().clone();
        let population = CpuDevice.population(recording, &continued, STARTS_IN_FLIGHT)?;
        let population = Arc::new(SharedPopulation::new(population));
        let pass = Box::new(SpectralPass {
            objective,
            population,
            verifier: None,
            has_failed_elsewhere: false,
        });
        let tolerances = Tolerances::of_members(&settings, true, f64::COST_NOISE);
        let fatol = simplex.map(|simplex| simplex.fatol);
        Ok(PassVerifier {
            gpu,
            pass,
            tolerances,
            fatol,
            falls: VecDeque::new(),
            checks: 0,
        })
    }

    /// Compares the objective of one result of each readback with the CPU's.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) if they differ by more than rounding, or if a
    /// readback has none that is finite where the CPU finds one.
    pub fn check_objectives(
        &mut self,
        spectra: ReadySpectra,
        finished: &PassOutcomes,
    ) -> Result<()> {
        let marginalise = spectra.model.marginalise;
        self.checks += 1;
        let results = choose_results(finished, marginalise, self.checks);
        let (checked_spectra, ends) = collect_inputs(spectra, &results);
        let recomputed = self
            .pass
            .evaluate(spectra.with_spectra(&checked_spectra), &ends)?
            .concat();
        for ((spectrum, result), recomputed) in
            checked_spectra.iter().zip(&results).zip(&recomputed)
        {
            self.compare(result.outcome, recomputed, &spectrum.prepared, marginalise)?;
        }
        Ok(())
    }

    /// Compares the objective of a result with that of another evaluation at the same point. Nothing is compared where
    /// f32 may not hold it.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) if they differ by more than rounding.
    pub fn compare(
        &self,
        reported: &Outcome,
        recomputed: &Outcome,
        prepared: &Prepared,
        marginalise: bool,
    ) -> Result<()> {
        // A last step that Levenberg–Marquardt takes on trust leaves the determinant of the point before.
        let is_fit = reported.rounds > 1 && reported.status.is_some_and(Status::is_success);
        let has_old_determinant = is_fit && reported.ln_det != 0.0;
        let includes_determinant = marginalise && !has_old_determinant;
        let reported_objective = reported.objective(includes_determinant);
        let expected_objective = recomputed.objective(includes_determinant);
        if expected_objective.abs() > MAX_COMPARED_OBJECTIVE {
            return Ok(());
        }
        compare_objectives(
            &self.gpu,
            reported_objective,
            expected_objective,
            self.max_difference(recomputed, prepared),
            "",
        )
    }

    /// Continues some of the spectra whose fits ended as successes on the CPU, to see whether they are at minima.
    ///
    /// # Errors
    ///
    /// Returns [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) if half of the last objectives fall
    /// by more than rounding and the solver's tolerance explain, or if one is not the CPU's.
    pub fn check_minima(&mut self, spectra: ReadySpectra, outcomes: &[Vec<Outcome>]) -> Result<()> {
        // 1. Choose some of the fits that ended as successes.
        let marginalise = spectra.model.marginalise;
        let lowest = |k: usize| Some(&outcomes[k][find_winner(&outcomes[k], marginalise)?]);
        let chosen = sample_successes(0..outcomes.len(), |k| lowest(k)?.status, MAX_CHECKED_FITS);
        let mut results: Vec<GpuResult> = Vec::with_capacity(chosen.len());
        for spectrum in chosen {
            results.extend(lowest(spectrum).map(|outcome| GpuResult { spectrum, outcome }));
        }
        if results.is_empty() {
            return Ok(());
        }
        // 2. Evaluate their ends, and continue from there.
        let (checked_spectra, ends) = collect_inputs(spectra, &results);
        let ready = spectra.with_spectra(&checked_spectra);
        let recomputed = self.pass.evaluate(ready, &ends)?.concat();
        let monitor = Monitor {
            cancel: &NEVER_CANCELLED,
            progress: &mut |_| {},
        };
        let continued = self.pass.fit_from_starts(ready, ends, monitor)?.concat();
        // 3. Compare the objectives, and remember how far they fall.
        for (((spectrum, result), recomputed), continued) in checked_spectra
            .iter()
            .zip(&results)
            .zip(&recomputed)
            .zip(&continued)
        {
            self.compare(result.outcome, recomputed, &spectrum.prepared, marginalise)?;
            self.falls.truncate(REMEMBERED_FALLS - 1);
            self.falls
                .push_front(self.excess_fall(recomputed, continued, marginalise));
        }
        // 4. Refuse the GPU's results if the smallest fall of the largest half is more than allowed.
        let mut falls: Vec<f64> = self.falls.iter().copied().collect();
        falls.sort_by(|a, b| b.total_cmp(a));
        let half = falls.len().div_ceil(2).max(MIN_FALLS);
        match falls.get(half - 1) {
            Some(fall) if *fall > 0.0 => {
                let message = format!(
                    "ends fits early, or where f32 does not hold their sums: in a few rounds of the CPU {half} of {} \
                     objectives fall by {fall} more than is allowed",
                    falls.len()
                );
                Err(untrusted_error(&self.gpu, message))
            }
            _ => Ok(()),
        }
    }

    /// Returns how far the function that the solver minimises falls from one point to another, minus the allowed fall.
    /// A simplex minimises the objective. Levenberg–Marquardt does not see the determinant of a marginalised continuum.
    fn excess_fall(&self, before: &Outcome, after: &Outcome, marginalise: bool) -> f64 {
        let cost = before.chi2 + before.penalty;
        let (includes_determinant, max_fall, tolerance) = match self.fatol {
            Some(fatol) => (marginalise, MAX_FALL_OF_SIMPLEX, fatol),
            None => (false, MAX_FALL, self.tolerances.least_reduction(cost)),
        };
        let allowed_fall = max_fall + MAX_RELATIVE_FALL * cost + MAX_FALL_BY_TOLERANCE * tolerance;
        before.objective(includes_determinant)
            - after.objective(includes_determinant)
            - allowed_fall
    }

    /// Returns the largest difference that two evaluations of one objective may have. It is due to rounding, and to a
    /// last step whose end was not evaluated.
    fn max_difference(&self, recomputed: &Outcome, prepared: &Prepared) -> f64 {
        let cost = recomputed.chi2 + recomputed.penalty;
        let data = prepared
            .arms
            .iter()
            .flat_map(|arm| arm.weighted_flux.iter());
        // Σ ε² over the pixels
        let squared_rounding =
            PIXEL_ROUNDING.powi(2) * data.map(|x| f64::from(*x).powi(2)).sum::<f64>();
        let rounding_of_sums =
            MAX_OBJECTIVE_DIFFERENCE + MAX_RELATIVE_DIFFERENCE * (cost + recomputed.ln_det.abs());
        rounding_of_sums
            + LAST_STEP_IN_FTOL * self.tolerances.least_reduction(cost)
            + 2.0 * (cost * squared_rounding).sqrt()
            + squared_rounding
    }
}

/// Returns one result of each readback: a success if there is one, else a result with a finite objective, else one
/// without. `check`, the number of the check, determines which one of several.
fn choose_results(finished: &PassOutcomes, marginalise: bool, check: usize) -> Vec<GpuResult<'_>> {
    // 1. Sort the results by readback and kind.
    let mut readbacks: BTreeMap<u32, Readback> = BTreeMap::new();
    for (spectrum, group) in finished.outcomes.iter().enumerate() {
        let readback = readbacks.entry(finished.submissions[spectrum]).or_default();
        match find_winner(group, marginalise).map(|lowest| &group[lowest]) {
            Some(outcome) if outcome.status.is_some_and(Status::is_success) => {
                readback.successes.push(GpuResult { spectrum, outcome });
            }
            Some(outcome) => readback.failures.push(GpuResult { spectrum, outcome }),
            None => {
                // The CPU can evaluate it only if its parameters are finite.
                let first = group
                    .first()
                    .filter(|outcome| outcome.parameters.iter().all(|u| u.is_finite()));
                readback
                    .not_finite
                    .extend(first.map(|outcome| GpuResult { spectrum, outcome }));
            }
        }
    }
    // 2. Choose one of the best kind.
    let mut chosen = Vec::with_capacity(readbacks.len());
    for readback in readbacks.into_values() {
        let kinds = [readback.successes, readback.failures, readback.not_finite];
        if let Some(results) = kinds.into_iter().find(|results| !results.is_empty()) {
            chosen.push(results[check % results.len()]);
        }
    }
    chosen
}

/// Returns the spectra of some results, and one start for each: the parameters that the GPU reported.
fn collect_inputs(
    spectra: ReadySpectra,
    results: &[GpuResult],
) -> (Vec<ReadySpectrum>, Vec<StartPoints>) {
    let mut checked_spectra = Vec::with_capacity(results.len());
    let mut starts = Vec::with_capacity(results.len());
    for result in results {
        checked_spectra.push(spectra.spectra[result.spectrum].clone());
        starts.push(vec![result.outcome.parameters.clone()]);
    }
    (checked_spectra, starts)
}
