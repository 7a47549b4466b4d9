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
use crate::solver::{Device, LevenbergMarquardt, Method, NelderMead, Outcome, Status};
use crate::spectral::input::ready::{Monitor, NEVER, ReadySpectra, ReadySpectrum};
use crate::spectral::search::pass::Pass;
use crate::spectral::search::shared_population::SharedPopulation;
use crate::spectral::search::solve::winner;
use crate::spectral::search::waiting::PassOutcomes;

/// Largest difference between two evaluations of the same objective in f32, in units of χ².
const MAX_DIFFERENCE: f64 = 0.01;
/// Largest difference as a share of the objective, in addition to the above: sums in f32 have relative errors of 1e-5.
const MAX_RELATIVE_DIFFERENCE: f64 = 1e-4;
/// Relative rounding error of the model of one pixel in f32.
const ROUNDING: f64 = 1e-5;
/// Reduction of the cost that the last step of a fit may fail to bring, in units of `ftol`. No round evaluates its end.
const LAST_STEP: f64 = 100.0;
/// Objectives above this one may be more than f32 holds.
const LARGEST: f64 = 1e30;
/// Number of rounds by which the CPU continues a fit. The first evaluates its end, the others take steps from there.
const ROUNDS: u32 = 4;
/// Largest fall of a cost in these rounds, in units of χ²: its rise at 0.2 σ from a minimum.
const MAX_FALL: f64 = 0.05;
/// The same after simplex searches: the rise of χ² at 0.5 σ.
const MAX_FALL_OF_SIMPLEX: f64 = 0.25;
/// The same as a share of the cost, in addition. Up to a cost of 10¹⁰, falls by rounding were at most 4e-6 of it.
const MAX_RELATIVE_FALL: f64 = 1e-5;
/// The same in units of the solver's own tolerance, in addition.
const MAX_FALL_BY_TOLERANCE: f64 = 2.0;
/// Number of falls that are remembered. If half of them are too large, the GPU is not trusted.
const FALLS: usize = 8;
/// Smallest number of falls that tell about the GPU rather than about the data. A fit of a sound GPU may end far from
/// the minimum where f32 does not hold the sums: one ended 50 above it, because one pixel had 10⁶ times the weight of
/// the others.
const MIN_FALLS: usize = 3;
/// Number of spectra that the CPU has room for. More of them take turns.
const CAPACITY: usize = 16;

/// The CPU's twin of a pass that runs on a GPU.
pub struct Verifier {
    /// Name of the GPU.
    gpu: String,
    pass: Box<Pass>,
    /// Tolerance of the fits that the GPU makes, whose last steps it may take on trust.
    tolerances: Tolerances,
    /// Tolerance of the simplex searches after which it evaluates; `None` where fits end by Levenberg–Marquardt.
    fatol: Option<f64>,
    /// By how much the last objectives fell when the CPU continued their fits, less what is allowed.
    falls: VecDeque<f64>,
    /// Number of checks so far. It chooses which results are computed again.
    turn: usize,
}

/// A result of a GPU that may be computed again.
#[derive(Clone, Copy)]
struct Sample<'a> {
    /// Index of the spectrum among those that the GPU fits together.
    spectrum: usize,
    outcome: &'a Outcome,
}

/// Results of one readback.
#[derive(Default)]
struct Readback<'a> {
    successes: Vec<Sample<'a>>,
    others: Vec<Sample<'a>>,
    /// Results without a finite objective.
    lost: Vec<Sample<'a>>,
}

impl Verifier {
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
    ) -> Result<Verifier> {
        let method = Method::LevenbergMarquardt(LevenbergMarquardt {
            max_rounds: ROUNDS,
            ..settings
        });
        let population = CpuDevice.population(objective.recording().clone(), &method, CAPACITY)?;
        let population = Arc::new(SharedPopulation::new(population));
        let pass = Box::new(Pass {
            objective,
            population,
            verifier: None,
            has_failed_elsewhere: false,
        });
        let tolerances = Tolerances::of_members(&settings, true, f64::COST_NOISE);
        let fatol = simplex.map(|simplex| simplex.fatol);
        Ok(Verifier {
            gpu,
            pass,
            tolerances,
            fatol,
            falls: VecDeque::new(),
            turn: 0,
        })
    }

    /// Compares the objective of one result of each readback with the CPU's.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) if they differ by more than rounding, or if a
    /// readback has none that is finite where the CPU finds one.
    pub fn check_objectives(&mut self, spectra: ReadySpectra, found: &PassOutcomes) -> Result<()> {
        let marginalise = spectra.model.marginalise;
        self.turn += 1;
        let samples = samples(found, marginalise, self.turn);
        let (own, ends) = gather(spectra, &samples);
        let computed = self
            .pass
            .evaluate(spectra.with_spectra(&own), &ends)?
            .concat();
        for ((one, sample), computed) in own.iter().zip(&samples).zip(&computed) {
            self.compare(sample.outcome, computed, &one.prepared, marginalise)?;
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
        at: &Outcome,
        prepared: &Prepared,
        marginalise: bool,
    ) -> Result<()> {
        // A last step that Levenberg–Marquardt takes on trust leaves the determinant of the point before.
        let is_fit = reported.rounds > 1 && reported.status.is_some_and(Status::is_success);
        let is_trusted = is_fit && reported.ln_det != 0.0;
        let [reported, expected] =
            [reported, at].map(|one| one.objective(marginalise && !is_trusted));
        if expected.abs() > LARGEST {
            return Ok(());
        }
        compare_objectives(
            &self.gpu,
            reported,
            expected,
            self.largest_difference(at, prepared),
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
        // 1. Evaluate the ends of some fits, and continue from there.
        let marginalise = spectra.model.marginalise;
        let lowest = |k: usize| Some(&outcomes[k][winner(&outcomes[k], marginalise)?]);
        let some = sample_successes(0..outcomes.len(), |k| lowest(k)?.status, MAX_CHECKED_FITS);
        let samples: Vec<Sample> = some
            .into_iter()
            .filter_map(|spectrum| {
                Some(Sample {
                    spectrum,
                    outcome: lowest(spectrum)?,
                })
            })
            .collect();
        if samples.is_empty() {
            return Ok(());
        }
        let (own, ends) = gather(spectra, &samples);
        let before = self
            .pass
            .evaluate(spectra.with_spectra(&own), &ends)?
            .concat();
        let monitor = Monitor {
            cancel: &NEVER,
            progress: &mut |_| {},
        };
        let after = self
            .pass
            .run(spectra.with_spectra(&own), ends, monitor)?
            .concat();
        // 2. Compare the objectives, and remember how far they fall.
        for (((one, sample), before), after) in own.iter().zip(&samples).zip(&before).zip(&after) {
            self.compare(sample.outcome, before, &one.prepared, marginalise)?;
            self.falls.truncate(FALLS - 1);
            self.falls.push_front(self.fall(before, after, marginalise));
        }
        // 3. Look at the smallest of the largest half.
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

    /// Returns by how much more than is allowed the function that the solver minimises falls from one point to another.
    /// A simplex minimises the objective; Levenberg–Marquardt does not see the determinant of a marginalised continuum.
    fn fall(&self, before: &Outcome, after: &Outcome, marginalise: bool) -> f64 {
        let cost = before.chi2 + before.penalty;
        let (marginalise, most, tolerance) = match self.fatol {
            Some(fatol) => (marginalise, MAX_FALL_OF_SIMPLEX, fatol),
            None => (false, MAX_FALL, self.tolerances.least_reduction(cost)),
        };
        let allowed = most + MAX_RELATIVE_FALL * cost + MAX_FALL_BY_TOLERANCE * tolerance;
        before.objective(marginalise) - after.objective(marginalise) - allowed
    }

    /// Returns the largest difference that two evaluations of one objective may have: rounding, and what the last step
    /// may fail to bring.
    fn largest_difference(&self, at: &Outcome, prepared: &Prepared) -> f64 {
        let cost = at.chi2 + at.penalty;
        let data = prepared.arms.iter().flat_map(|arm| arm.data.iter());
        let rounding = ROUNDING.powi(2) * data.map(|x| f64::from(*x).powi(2)).sum::<f64>();
        let of_sums = MAX_DIFFERENCE + MAX_RELATIVE_DIFFERENCE * (cost + at.ln_det.abs());
        of_sums
            + LAST_STEP * self.tolerances.least_reduction(cost)
            + 2.0 * (cost * rounding).sqrt()
            + rounding
    }
}

/// Returns one result of each readback: a success if there is one, else a result with a finite objective, else one
/// without. `turn` chooses which of several.
fn samples(found: &PassOutcomes, marginalise: bool, turn: usize) -> Vec<Sample<'_>> {
    let mut readbacks: BTreeMap<u32, Readback> = BTreeMap::new();
    for (spectrum, group) in found.outcomes.iter().enumerate() {
        let readback = readbacks.entry(found.submissions[spectrum]).or_default();
        match winner(group, marginalise).map(|best| &group[best]) {
            Some(outcome) if outcome.status.is_some_and(Status::is_success) => {
                readback.successes.push(Sample { spectrum, outcome });
            }
            Some(outcome) => readback.others.push(Sample { spectrum, outcome }),
            None => {
                let first = group
                    .first()
                    .filter(|outcome| outcome.parameters.iter().all(|u| u.is_finite()));
                readback
                    .lost
                    .extend(first.map(|outcome| Sample { spectrum, outcome }));
            }
        }
    }
    let mut chosen = Vec::with_capacity(readbacks.len());
    for Readback {
        successes,
        others,
        lost,
    } in readbacks.into_values()
    {
        let all = [successes, others, lost]
            .into_iter()
            .find(|some| !some.is_empty());
        chosen.extend(all.map(|some| some[turn % some.len()]));
    }
    chosen
}

/// Returns the spectra of some samples, and one start for each: the parameters that the GPU reported.
fn gather(spectra: ReadySpectra, samples: &[Sample]) -> (Vec<ReadySpectrum>, Vec<Vec<Vec<f64>>>) {
    let each = samples.iter();
    each.map(|one| {
        (
            spectra.spectra[one.spectrum].clone(),
            vec![one.outcome.parameters.clone()],
        )
    })
    .unzip()
}
