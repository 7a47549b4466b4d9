//! The populations that workers of a run use at the moment, so that other workers can use them, too.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::Result;
use crate::model::SpectralObjective;
use crate::solver::LevenbergMarquardt;
use crate::spectral::search::shared_population::SharedPopulation;

/// Each worker's populations get at least the memory divided by this number times the number of workers.
const MIN_SHARE_DIVISOR: u64 = 4;

/// The populations that the workers of a run share.
#[derive(Default)]
pub struct SharedPopulations(Mutex<Vec<PopulationSet>>);

/// Populations for one kind of spectra, which some worker uses, or has used.
struct PopulationSet {
    populations: Vec<WeakPopulation>,
    /// Memory that they may take, in bytes.
    memory: u64,
}

/// A population with the objective and the method that it was made for.
struct WeakPopulation {
    objective: Weak<SpectralObjective>,
    method: LevenbergMarquardt,
    population: Weak<SharedPopulation>,
}

/// Memory of a device in bytes, if it is limited, and the number of workers that share it.
#[derive(Clone, Copy)]
pub struct MemoryBudget {
    pub bytes: Option<u64>,
    pub workers: usize,
}

impl SharedPopulations {
    /// Returns populations with these objectives and methods that other workers use, or those that `make` makes. These
    /// may take half of the memory that others leave, and all of it if there is one worker.
    ///
    /// # Errors
    /// Returns the errors of `make`.
    pub fn get_or_make(
        &self,
        keys: &[(Arc<SpectralObjective>, LevenbergMarquardt)],
        budget: MemoryBudget,
        make: impl FnOnce(Option<u64>) -> Result<Vec<Arc<SharedPopulation>>>,
    ) -> Result<Vec<Arc<SharedPopulation>>> {
        // 1. Look for populations of other workers.
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sets.retain(PopulationSet::is_in_use);
        if let Some(populations) = sets.iter().find_map(|set| set.get(keys)) {
            return Ok(populations);
        }
        // 2. Make new ones, with a share of the memory.
        let used_memory: u64 = sets.iter().map(|set| set.memory).sum();
        let memory = budget.bytes.map(|bytes| {
            if budget.workers == 1 {
                return bytes;
            }
            let min_share = bytes / (MIN_SHARE_DIVISOR * budget.workers as u64);
            (bytes.saturating_sub(used_memory) / 2).max(min_share)
        });
        let populations = make(memory)?;
        // 3. Remember them, so that other workers find them.
        let mut weak_populations = Vec::with_capacity(keys.len());
        for ((objective, method), population) in keys.iter().zip(&populations) {
            weak_populations.push(WeakPopulation {
                objective: Arc::downgrade(objective),
                method: *method,
                population: Arc::downgrade(population),
            });
        }
        sets.push(PopulationSet {
            populations: weak_populations,
            memory: memory.unwrap_or(0),
        });
        Ok(populations)
    }
}

impl PopulationSet {
    /// Returns whether a worker uses the populations, and none of them has failed.
    fn is_in_use(&self) -> bool {
        self.populations.iter().all(|weak| {
            let population = weak.population.upgrade();
            population.is_some_and(|population| !population.has_failed())
        })
    }

    /// Returns the populations, if they are those with these objectives and methods.
    fn get(
        &self,
        keys: &[(Arc<SpectralObjective>, LevenbergMarquardt)],
    ) -> Option<Vec<Arc<SharedPopulation>>> {
        if self.populations.len() != keys.len() {
            return None;
        }
        let mut populations = Vec::with_capacity(keys.len());
        for (weak, (objective, method)) in self.populations.iter().zip(keys) {
            let is_same_objective = std::ptr::eq(weak.objective.as_ptr(), &**objective);
            if weak.method != *method || !is_same_objective {
                return None;
            }
            populations.push(weak.population.upgrade()?);
        }
        Some(populations)
    }
}
