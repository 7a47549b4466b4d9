//! Populations of one shape of spectra, and the passes of a solver through them.
//!
//! Levenberg–Marquardt is one pass, or two in mixed precision (`fit/rough.rs`). Nelder–Mead is a search by simplices,
//! then one linearisation at each best vertex, which gives the fit its errors. `lm+nelder-mead` does both. The scan of
//! the velocity's posterior and the check past folds are passes without derivatives. For the check alone, a GPU, and a
//! run whose memory is limited, use the pass with derivatives, because their memory is not shared for so few points.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::assemble::assemble;
use super::pass::{Left, Pass, Watched, agree, objective, objective_noise};
use super::ready::{Grids, Ready, Starts};
use super::shared::Shared;
use super::simplices::SpectralSearch;
use super::waiting::Entering;
use super::{Solver, rough};
use crate::error::{Error, Result};
use crate::model::{ArmLayout, SpectralModel, SpectralObjective};
use crate::recording::Precision;
use crate::solver::profile::Meter;
use crate::solver::search::{SearchSettings, search};
use crate::solver::{Device, LevenbergMarquardt, Method, NelderMead, Outcome, Population, Status, linearise};

/// A simplex that polishes starts this much smaller.
const POLISH: f64 = 0.1;
/// The share of the time that the first rounds of a fit in mixed precision take.
const FIRST: f64 = 0.7;
/// The share of the time before minima are looked at again.
const BEFORE_LOOKS: f64 = 0.95;
/// Reduction that a last step, taken on trust, may fail to bring, in units of `ftol`.
const TRUST: f64 = 100.0;

/// The passes of a solver for spectra of one shape.
pub struct Passes {
    pub layout: Vec<ArmLayout>,
    /// The device's name, where it is a GPU.
    gpu: Option<String>,
    /// Starts in flight.
    pub capacity: usize,
    solver: Solver,
    /// Levenberg–Marquardt, or the linearisation that gives a simplex's best vertex its errors.
    linearise: Pass,
    /// Its first rounds, in mixed precision.
    rough: Option<Pass>,
    simplex: Option<Pass>,
    /// Objectives without derivatives, for scans, looks past folds and the surfaces at the ends of simplices.
    evaluate: Option<Pass>,
    /// Settings of searches by simplices: degrees of freedom that scale their tolerance, and the relative error of an
    /// objective.
    search: SearchSettings,
}

impl Passes {
    /// At most `most` starts are asked for at once.
    pub fn new(
        (model, workers): (&SpectralModel, &Shared),
        layout: &[ArmLayout],
        device: &dyn Device,
        (solver, precision, evaluates): (Solver, Precision, bool),
        (memory, most): (Option<u64>, usize),
    ) -> Result<Passes> {
        let first = match solver {
            Solver::LevenbergMarquardt(settings) | Solver::LevenbergMarquardtThenNelderMead(settings, _) => settings,
            Solver::NelderMead(_) => LevenbergMarquardt::default(),
        };
        let second = match solver {
            Solver::LevenbergMarquardt(_) => None,
            Solver::NelderMead(settings) => Some(settings),
            Solver::LevenbergMarquardtThenNelderMead(_, settings) => {
                Some(NelderMead { size: POLISH * settings.size, ..settings })
            }
        };
        let is_mixed = precision == Precision::Mixed && !matches!(solver, Solver::NelderMead(_));
        let shared = if is_mixed { rough::settings(first) } else { None };
        let linearisation = |precision| workers.objective(model, layout, (precision, false));
        let evaluation = || workers.objective(model, layout, (precision.of_results(), true));
        let last = shared.map_or(first, |[_, last]| last);
        let mut wanted = vec![(linearisation(precision.of_results()), Method::LevenbergMarquardt(last))];
        wanted.extend(second.map(|settings| (evaluation(), Method::NelderMead(settings))));
        let evaluates = evaluates || second.is_some();
        wanted.extend(evaluates.then(|| (evaluation(), Method::LevenbergMarquardt(first))));
        wanted.extend(shared.map(|[rough, _]| (linearisation(precision), Method::LevenbergMarquardt(rough))));
        let share = wanted.len();
        let mut capacity = most;
        for (objective, method) in &wanted {
            let members = device.capacity(objective.recording(), memory)?;
            capacity = capacity.min((members / method.lanes() / share).max(1));
        }
        let populations = halving(&mut capacity, |capacity| populations(device, &wanted, capacity))?;
        let objectives = wanted.into_iter().map(|(objective, _)| objective);
        let pass = |(objective, population)| Pass { objective, population };
        let mut passes: Vec<Pass> = objectives.zip(populations).map(pass).collect();
        let rough = if shared.is_some() { passes.pop() } else { None };
        let evaluate = if evaluates { passes.pop() } else { None };
        let simplex = if second.is_some() { passes.pop() } else { None };
        let linearise = passes.remove(0);
        let gpu = device.runs_wgsl().then(|| device.name());
        let search = SearchSettings {
            settings: second.unwrap_or_default(),
            dof: linearise.objective.recording().dof,
            noise: objective_noise(gpu.is_some(), precision),
        };
        Ok(Passes { layout: layout.to_vec(), gpu, capacity, solver, linearise, rough, simplex, evaluate, search })
    }

    /// Has all populations measured.
    pub fn measure(&mut self, meter: &Arc<Meter>) {
        let Passes { linearise, rough, simplex, evaluate, .. } = self;
        let passes = std::iter::once(linearise).chain(rough).chain(simplex).chain(evaluate);
        passes.for_each(|pass| pass.population.measure(meter.clone()));
    }

    /// The outcomes of each spectrum's starts; none where the run was cancelled before it entered.
    pub fn solve(
        &mut self,
        model: &SpectralModel,
        grids: &[Grids],
        ready: &[Ready],
        (cancel, watch): Watched,
    ) -> Result<Vec<Vec<Outcome>>> {
        let spectra = (model, grids, ready);
        let starts: Vec<Starts> = ready.iter().map(Ready::starts).collect();
        match self.solver {
            Solver::LevenbergMarquardt(settings) => self.descend(spectra, starts, (cancel, watch), settings.ftol),
            Solver::NelderMead(_) => self.simplices(spectra, starts, (cancel, watch)),
            Solver::LevenbergMarquardtThenNelderMead(settings, _) => {
                // nearly all of the time goes into the simplices
                let mut outcomes = self.descend(spectra, starts, (cancel, &mut |_| {}), settings.ftol)?;
                let winners: Vec<Option<usize>> =
                    outcomes.iter().map(|group| winner(group, model.marginalise)).collect();
                let best = |(group, winner): (&Vec<Outcome>, &Option<usize>)| {
                    winner.iter().map(|&k| group[k].parameters.clone()).collect()
                };
                let starts = outcomes.iter().zip(&winners).map(best).collect();
                let polished = self.simplices(spectra, starts, (cancel, watch))?;
                for ((group, winner), polished) in outcomes.iter_mut().zip(winners).zip(polished) {
                    match (winner, polished.into_iter().next()) {
                        (Some(winner), Some(polished)) => {
                            take_better(&mut group[winner], polished, model.marginalise);
                        }
                        // cancelled before it entered
                        (Some(winner), None) => group[winner].status = Some(Status::Interrupted),
                        (None, _) => {}
                    }
                }
                Ok(outcomes)
            }
        }
    }

    /// The outcomes at the starts of `ready`, which do not move; or, to `refit`, those of Levenberg–Marquardt from
    /// there, unless the run is cancelled.
    pub fn evaluate(
        &mut self,
        model: &SpectralModel,
        grids: &[Grids],
        ready: &[Ready],
        (refit, watched): (bool, Watched),
    ) -> Result<Vec<Outcome>> {
        let starts: Vec<Starts> = ready.iter().map(Ready::starts).collect();
        if refit {
            return Ok(self.linearise.run((model, grids, ready), starts, watched)?.0.concat());
        }
        let pass = self.evaluate.as_mut().unwrap_or(&mut self.linearise);
        let batch = assemble(model, &pass.objective, grids, (ready, &starts));
        pollster::block_on(linearise(pass.population.as_mut(), &batch))
    }

    /// Levenberg–Marquardt from some starts. Of those spectra that a GPU brings home together one is linearised again
    /// at its end, as a canary need not be among them.
    fn descend(
        &mut self,
        spectra: Entering,
        starts: Vec<Starts>,
        watched: Watched,
        ftol: f64,
    ) -> Result<Vec<Vec<Outcome>>> {
        let (cancel, watch) = watched;
        let mut found = self.rounds(spectra, starts, (cancel, &mut |share| watch(BEFORE_LOOKS * share)))?;
        let mut last = |share| watch(BEFORE_LOOKS + (1.0 - BEFORE_LOOKS) * share);
        self.search_beyond_folds(spectra, &mut found, (cancel, &mut last))?;
        let (outcomes, left) = found;
        let Some(gpu) = &self.gpu else { return Ok(outcomes) };
        let (model, grids, ready) = spectra;
        let mut asked = BTreeMap::new();
        for (k, group) in outcomes.iter().enumerate() {
            if let Some(best) = winner(group, model.marginalise)
                && group[best].status.is_some_and(Status::is_success)
            {
                asked.entry(left[k]).or_insert((k, &group[best]));
            }
        }
        let some: Vec<Ready> = asked.values().map(|(k, _)| ready[*k].clone()).collect();
        let ends = asked.values().map(|(_, told)| vec![told.parameters.clone()]).collect();
        let sums = self.linearise.sums((model, grids, &some), ends)?;
        for ((one, (_, told)), sums) in some.iter().zip(asked.values()).zip(sums.iter().flatten()) {
            let both = (objective(told, model.marginalise), objective(sums, model.marginalise));
            agree(gpu, both, (sums, &one.prepared), TRUST * ftol)?;
        }
        Ok(outcomes)
    }

    /// The rounds of Levenberg–Marquardt, in mixed precision the first ones apart.
    pub fn rounds(&mut self, spectra: Entering, starts: Vec<Starts>, (cancel, watch): Watched) -> Result<Left> {
        let Some(rough) = &mut self.rough else { return self.linearise.run(spectra, starts, (cancel, watch)) };
        let first = rough.run(spectra, starts.clone(), (cancel, &mut |share| watch(FIRST * share)))?.0;
        let ends = rough::ends(&first, &starts);
        let mut last = |share| watch(FIRST + (1.0 - FIRST) * share);
        let (outcomes, left) = self.linearise.run(spectra, ends, (cancel, &mut last))?;
        Ok((rough::joined(first, outcomes), left))
    }

    /// Nelder–Mead from some starts, then one linearisation of each best vertex.
    fn simplices(&mut self, spectra: Entering, starts: Vec<Starts>, watched: Watched) -> Result<Vec<Vec<Outcome>>> {
        let Passes { linearise, simplex: Some(simplex), evaluate: Some(evaluate), gpu, .. } = self else {
            return Ok(Vec::new());
        };
        let (cancel, watch) = watched;
        // as many as there is room for, so that those before have ended where a run is cancelled
        let each = starts.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let (together, total) = ((simplex.population.capacity() / each).max(1), starts.len().max(1));
        let mut outcomes: Vec<Vec<Outcome>> = Vec::with_capacity(starts.len());
        for (ready, starts) in spectra.2.chunks(together).zip(starts.chunks(together)) {
            let (before, part) = (outcomes.len() as f64 / total as f64, ready.len() as f64 / total as f64);
            let mut progress = |share: f64| watch(before + share * part);
            let passes = [&mut *linearise, &mut *simplex, &mut *evaluate];
            let some = (spectra.0, spectra.1, ready);
            let mut machine =
                SpectralSearch::new(passes, gpu.as_deref(), some, starts.to_vec(), (cancel, &mut progress));
            let fits = machine.fits();
            let mut found = search(&mut machine, &fits, &self.search, cancel)?.into_iter();
            outcomes.extend(starts.iter().map(|own| found.by_ref().take(own.len()).flatten().collect()));
            if !cancel.load(Ordering::Relaxed) {
                progress(1.0);
            }
        }
        // what has been found is kept, cancelled or not
        let best = |group: &Vec<Outcome>| group.iter().map(|outcome| outcome.parameters.clone()).collect();
        let ends = outcomes.iter().map(best).collect();
        let sums = self.linearise.sums(spectra, ends)?;
        let (model, _, ready) = spectra;
        for ((outcomes, sums), one) in outcomes.iter_mut().zip(sums).zip(ready) {
            for (outcome, sums) in outcomes.iter_mut().zip(sums) {
                if let Some(gpu) = &self.gpu {
                    agree(gpu, (outcome.chi2, objective(&sums, model.marginalise)), (&sums, &one.prepared), 0.0)?;
                }
                let Outcome { status, rounds, evaluations, .. } = *outcome;
                *outcome = Outcome { status, rounds, evaluations: evaluations + 1, ..sums };
            }
        }
        Ok(outcomes)
    }
}

/// Makes something of a capacity, of half of it when there is too little memory, and so on: what a device says that it
/// has need not be there.
pub fn halving<T>(capacity: &mut usize, mut make: impl FnMut(usize) -> Result<T>) -> Result<T> {
    loop {
        match make(*capacity) {
            Err(Error::OutOfMemory { .. }) if *capacity > 1 => *capacity /= 2,
            made => return made,
        }
    }
}

/// A population for each of the objectives.
fn populations(
    device: &dyn Device,
    wanted: &[(Arc<SpectralObjective>, Method)],
    capacity: usize,
) -> Result<Vec<Box<dyn Population>>> {
    let one = |(objective, method): &(Arc<SpectralObjective>, Method)| {
        device.population(objective.recording().clone(), method, capacity)
    };
    wanted.iter().map(one).collect()
}

/// The lowest start of a spectrum, among those that neither failed nor gave way.
pub fn winner(group: &[Outcome], marginalise: bool) -> Option<usize> {
    let value = |k: &usize| objective(&group[*k], marginalise);
    let stands = (0..group.len()).filter(|k| group[*k].gave_way.is_none() && value(k) < f64::INFINITY);
    stands.min_by(|a, b| value(a).total_cmp(&value(b)))
}

/// A polished fit replaces the one that it began from, unless it is no better. One that was stopped on its way might
/// have become so.
fn take_better(outcome: &mut Outcome, polished: Outcome, marginalise: bool) {
    let evaluations = outcome.evaluations + polished.evaluations;
    let rounds = outcome.rounds + polished.rounds;
    let is_interrupted = polished.status == Some(Status::Interrupted);
    if objective(&polished, marginalise) < objective(outcome, marginalise) {
        *outcome = polished;
    }
    if is_interrupted {
        outcome.status = Some(Status::Interrupted);
    }
    (outcome.evaluations, outcome.rounds) = (evaluations, rounds);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuDevice;
    use crate::fit::{Device as Chosen, SpectralFitter};
    use crate::recording::Recording;
    use crate::{Continuum, Emulator, Spectra};

    /// A processor that promises more room than it has.
    struct Tight(usize);

    impl Device for Tight {
        fn name(&self) -> String {
            "tight".into()
        }

        fn capacity(&self, _: &Recording, _: Option<u64>) -> Result<usize> {
            Ok(1 << 12)
        }

        fn population(
            &self,
            recording: Arc<Recording>,
            method: &Method,
            capacity: usize,
        ) -> Result<Box<dyn Population>> {
            if capacity > self.0 {
                return Err(Error::OutOfMemory { device: self.name(), message: format!("{capacity} members") });
            }
            CpuDevice.population(recording, method, capacity)
        }
    }

    #[test]
    fn out_of_memory_halves_the_population_and_keeps_the_bits() {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
        let emulator = Emulator::open(format!("{data}/emulator.safetensors")).unwrap();
        let model = SpectralModel::builder()
            .arm("", emulator)
            .velocity(-1000.0..=1000.0)
            .continuum(Continuum::rbf(10))
            .build()
            .unwrap();
        let spectra = Spectra::open(format!("{data}/spectra.npz")).unwrap().slice(0..9);
        let fit = |room: usize| {
            let device = Chosen::one(Tight(room));
            SpectralFitter::new(model.clone(), device).fit(&spectra)
        };
        let (whole, halved) = (fit(1 << 12).unwrap(), fit(5).unwrap());
        for (a, b) in whole.rows().zip(halved.rows()) {
            assert_eq!(a.parameters, b.parameters);
            assert_eq!(a.chi2.to_bits(), b.chi2.to_bits());
        }
        // a spectrum's two starts enter together: with room for one there is nothing left to halve
        assert!(matches!(fit(1), Err(Error::OutOfMemory { .. })));
    }
}
