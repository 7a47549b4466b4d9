//! Populations of one shape of spectra, and the passes of a solver through them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::Solver;
use super::assemble::assemble;
use super::run::{Grids, Ready};
use crate::error::{Error, Result};
use crate::model::{ArmLayout, SpectralModel, SpectralObjective};
use crate::solver::recording::Precision;
use crate::solver::{
    Batch, Device, LevenbergMarquardt, Method, NelderMead, Objective, Outcome, Population, linearise, optimise,
};

/// A simplex that polishes starts this much smaller.
const POLISH: f64 = 0.1;

/// What stops a pass, and what is told the share that is done.
pub type Watched<'a> = (&'a AtomicBool, &'a mut dyn FnMut(f64));

/// A population and the objective that it was made for.
struct Pass {
    objective: SpectralObjective,
    /// Members that a start occupies.
    lanes: usize,
    population: Box<dyn Population>,
}

/// What a solver needs for spectra of one shape.
pub struct Passes {
    pub layout: Vec<ArmLayout>,
    /// Starts that enter together.
    pub capacity: usize,
    solver: Solver,
    /// Levenberg–Marquardt, or the linearisation that gives a simplex's best vertex its errors.
    linearise: Pass,
    simplex: Option<Pass>,
    /// Objectives without derivatives, for scans.
    evaluate: Option<Pass>,
}

impl Passes {
    /// At most `most` starts are asked for at once.
    pub fn new(
        model: &SpectralModel,
        layout: &[ArmLayout],
        device: &dyn Device,
        (solver, precision, scans): (Solver, Precision, bool),
        (memory, most): (Option<u64>, usize),
    ) -> Result<Passes> {
        let first = match solver {
            Solver::Lm(settings) | Solver::LmNelderMead(settings, _) => settings,
            Solver::NelderMead(_) => LevenbergMarquardt::default(),
        };
        let second = match solver {
            Solver::Lm(_) => None,
            Solver::NelderMead(settings) => Some(settings),
            Solver::LmNelderMead(_, settings) => Some(NelderMead { size: POLISH * settings.size, ..settings }),
        };
        let linearisation = || SpectralObjective::new(model, layout, precision);
        let evaluation = || SpectralObjective::evaluation(model, layout, precision);
        let mut wanted = vec![(linearisation(), Method::LevenbergMarquardt(first))];
        wanted.extend(second.map(|settings| (evaluation(), Method::NelderMead(settings))));
        wanted.extend(scans.then(|| (evaluation(), Method::LevenbergMarquardt(first))));
        let share = wanted.len();
        let mut capacity = most;
        for (objective, method) in &wanted {
            let members = device.capacity(&objective.record(), memory)?;
            capacity = capacity.min((members / method.lanes() / share).max(1));
        }
        let mut populations = populations(device, &wanted, capacity);
        // what a device says that it has need not be there
        while capacity > 1 && matches!(populations, Err(Error::OutOfMemory { .. })) {
            capacity /= 2;
            populations = self::populations(device, &wanted, capacity);
        }
        let pass = |((objective, method), population): ((SpectralObjective, Method), Box<dyn Population>)| Pass {
            objective,
            lanes: method.lanes(),
            population,
        };
        let mut passes: Vec<Pass> = wanted.into_iter().zip(populations?).map(pass).collect();
        let evaluate = if scans { passes.pop() } else { None };
        let simplex = if second.is_some() { passes.pop() } else { None };
        let linearise = passes.remove(0);
        Ok(Passes { layout: layout.to_vec(), capacity, solver, linearise, simplex, evaluate })
    }

    /// The outcomes of all starts of `ready`, one after another.
    pub fn solve(
        &mut self,
        model: &SpectralModel,
        grids: &[Grids],
        ready: &[Ready],
        (cancel, watch): Watched,
    ) -> Result<Vec<Outcome>> {
        let batch = assemble(model, &self.linearise.objective, grids, ready);
        match self.solver {
            Solver::Lm(_) => run(&mut self.linearise, &batch, (cancel, watch)),
            Solver::NelderMead(_) => self.simplices(&batch, (model, grids, ready), (cancel, watch)),
            Solver::LmNelderMead(..) => {
                // nearly all of the time goes into the simplices
                let mut outcomes = run(&mut self.linearise, &batch, (cancel, &mut |_| {}))?;
                let winners = winners(&batch, &outcomes, model.marginalise);
                let starts = winners.iter().flat_map(|&m| outcomes[m].parameters.clone()).collect();
                let group = winners.iter().map(|&m| batch.group[m]).collect();
                let polish = Batch { starts, group, ..batch };
                let polished = self.simplices(&polish, (model, grids, ready), (cancel, watch))?;
                for (m, other) in winners.into_iter().zip(polished) {
                    take_better(&mut outcomes[m], other, model.marginalise);
                }
                Ok(outcomes)
            }
        }
    }

    /// The outcomes at the starts of `ready`, which do not move; or, to `refit`, those of Levenberg–Marquardt from there.
    pub fn evaluate(
        &mut self,
        model: &SpectralModel,
        grids: &[Grids],
        ready: &[Ready],
        refit: bool,
    ) -> Result<Vec<Outcome>> {
        let pass = match &mut self.evaluate {
            Some(pass) if !refit => pass,
            _ => &mut self.linearise,
        };
        let batch = assemble(model, &pass.objective, grids, ready);
        if refit {
            return run(pass, &batch, (&AtomicBool::new(false), &mut |_| {}));
        }
        pollster::block_on(linearise(pass.population.as_mut(), &batch))
    }

    /// Nelder–Mead from the starts of a batch, then one linearisation of each best vertex.
    fn simplices(
        &mut self,
        batch: &Batch,
        (model, grids, ready): (&SpectralModel, &[Grids], &[Ready]),
        watched: Watched,
    ) -> Result<Vec<Outcome>> {
        let Some(simplex) = &mut self.simplex else { return Ok(Vec::new()) };
        let arrays = assemble(model, &simplex.objective, grids, ready);
        let own = Batch { starts: batch.starts.clone(), group: batch.group.clone(), ..arrays };
        let found = run(simplex, &own, watched)?;
        let starts = found.iter().flat_map(|o| o.parameters.clone()).collect();
        let ends = Batch { starts, ..batch.clone() };
        // what has been found is kept, cancelled or not
        let linearisation = linearise(self.linearise.population.as_mut(), &ends);
        let mut outcomes = pollster::block_on(linearisation)?;
        for (outcome, simplex) in outcomes.iter_mut().zip(found) {
            outcome.status = simplex.status;
            outcome.rounds = simplex.rounds;
            outcome.evaluations = simplex.evaluations + 1;
        }
        Ok(outcomes)
    }
}

/// A population for each of the objectives.
fn populations(
    device: &dyn Device,
    wanted: &[(SpectralObjective, Method)],
    capacity: usize,
) -> Result<Vec<Box<dyn Population>>> {
    let one = |(objective, method): &(SpectralObjective, Method)| {
        device.population(Arc::new(objective.record()), method, capacity)
    };
    wanted.iter().map(one).collect()
}

fn run(pass: &mut Pass, batch: &Batch, (cancel, watch): Watched) -> Result<Vec<Outcome>> {
    let members = (batch.members() * pass.lanes).max(1) as f64;
    let mut watch = |active: usize| watch(1.0 - active as f64 / members);
    pollster::block_on(optimise(pass.population.as_mut(), batch, cancel, &mut watch))
}

fn objective(outcome: &Outcome, marginalise: bool) -> f64 {
    let value = outcome.chi2 + outcome.penalty + if marginalise { outcome.ln_det } else { 0.0 };
    if value.is_finite() { value } else { f64::INFINITY }
}

/// The lowest start of each spectrum whose fit did not fail.
fn winners(batch: &Batch, outcomes: &[Outcome], marginalise: bool) -> Vec<usize> {
    let mut best: Vec<Option<usize>> = vec![None; batch.spectra];
    for (m, outcome) in outcomes.iter().enumerate() {
        let value = objective(outcome, marginalise);
        let known = &mut best[batch.group[m] as usize];
        let stands = outcome.gave_way.is_none() && value < f64::INFINITY;
        if stands && known.is_none_or(|k| value < objective(&outcomes[k], marginalise)) {
            *known = Some(m);
        }
    }
    best.into_iter().flatten().collect()
}

/// A polished fit replaces the one that it began from, unless it is no better.
fn take_better(outcome: &mut Outcome, polished: Outcome, marginalise: bool) {
    let evaluations = outcome.evaluations + polished.evaluations;
    let rounds = outcome.rounds + polished.rounds;
    if objective(&polished, marginalise) < objective(outcome, marginalise) {
        *outcome = polished;
    }
    (outcome.evaluations, outcome.rounds) = (evaluations, rounds);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuDevice;
    use crate::fit::{Device as Chosen, Fitter};
    use crate::solver::recording::Recording;
    use crate::{Continuum, Emulator, LevenbergMarquardt, Spectra};

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
            let device = Chosen { inner: Arc::new(Tight(room)) };
            Fitter::new(model.clone(), device, LevenbergMarquardt::default()).unwrap().fit(&spectra)
        };
        let (whole, halved) = (fit(1 << 12).unwrap(), fit(5).unwrap());
        for (a, b) in whole.rows.iter().zip(&halved.rows) {
            assert_eq!(a.parameters, b.parameters);
            assert_eq!(a.chi2.to_bits(), b.chi2.to_bits());
        }
        // a spectrum's two starts enter together: with room for one there is nothing left to halve
        assert!(matches!(fit(1), Err(Error::OutOfMemory { .. })));
    }
}
