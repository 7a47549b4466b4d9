//! The populations that workers of a run use at the moment, so that others find them.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::Result;
use crate::model::SpectralObjective;
use crate::solver::Method;
use crate::spectral::search::shared_population::SharedPopulation;

/// Smallest part of the memory that a worker's populations get.
const LEAST_PART: u64 = 4;

/// The populations that the workers of a run share.
#[derive(Default)]
pub struct SharedPopulations(Mutex<Vec<Made>>);

/// Populations for one kind of spectra, which some worker uses, or has used.
struct Made {
    populations: Vec<Known>,
    /// Memory that they may take, in bytes.
    memory: u64,
}

/// A population with the objective and the method that it was made for.
struct Known {
    objective: Weak<SpectralObjective>,
    method: Method,
    population: Weak<SharedPopulation>,
}

/// Memory of a device in bytes, if it is limited, and the number of workers that share it.
#[derive(Clone, Copy)]
pub struct Memory {
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
        wanted: &[(Arc<SpectralObjective>, Method)],
        memory: Memory,
        make: impl FnOnce(Option<u64>) -> Result<Vec<Arc<SharedPopulation>>>,
    ) -> Result<Vec<Arc<SharedPopulation>>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(Made::is_in_use);
        if let Some(found) = all.iter().find_map(|made| made.get(wanted)) {
            return Ok(found);
        }
        let taken: u64 = all.iter().map(|made| made.memory).sum();
        let share = |bytes: u64| match memory.workers {
            1 => bytes,
            workers => (bytes.saturating_sub(taken) / 2).max(bytes / (LEAST_PART * workers as u64)),
        };
        let memory = memory.bytes.map(share);
        let populations = make(memory)?;
        let mut known = Vec::with_capacity(wanted.len());
        for ((objective, method), population) in wanted.iter().zip(&populations) {
            let (objective, population) = (Arc::downgrade(objective), Arc::downgrade(population));
            known.push(Known {
                objective,
                method: *method,
                population,
            });
        }
        all.push(Made {
            populations: known,
            memory: memory.unwrap_or(0),
        });
        Ok(populations)
    }
}

impl Made {
    /// Returns whether a worker uses the populations, and none of them has failed.
    fn is_in_use(&self) -> bool {
        self.populations.iter().all(|known| {
            known
                .population
                .upgrade()
                .is_some_and(|one| !one.has_failed())
        })
    }

    /// Returns the populations, if they are those with these objectives and methods.
    fn get(
        &self,
        wanted: &[(Arc<SpectralObjective>, Method)],
    ) -> Option<Vec<Arc<SharedPopulation>>> {
        if self.populations.len() != wanted.len() {
            return None;
        }
        let mut populations = Vec::with_capacity(wanted.len());
        for (known, (objective, method)) in self.populations.iter().zip(wanted) {
            let is_it =
                known.method == *method && std::ptr::eq(known.objective.as_ptr(), &**objective);
            populations.push(known.population.upgrade().filter(|_| is_it)?);
        }
        Some(populations)
    }
}
