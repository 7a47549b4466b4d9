//! The populations that workers of a run use at the moment, so that others find them.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::Result;
use crate::model::SpectralObjective;
use crate::solver::Method;
use crate::spectral::search::shared_population::SharedPopulation;

/// The populations that the workers of a run share.
#[derive(Default)]
pub struct SharedPopulations(Mutex<Vec<Made>>);

/// A population that some worker uses, or has used.
struct Made {
    objective: Weak<SpectralObjective>,
    method: Method,
    population: Weak<SharedPopulation>,
}

impl SharedPopulations {
    /// Returns populations with these objectives and methods that other workers use, or those that `make` makes. It is
    /// told whether there are no other populations.
    ///
    /// # Errors
    /// Returns the errors of `make`.
    pub fn get_or_make(
        &self,
        wanted: &[(Arc<SpectralObjective>, Method)],
        make: impl FnOnce(bool) -> Result<Vec<Arc<SharedPopulation>>>,
    ) -> Result<Vec<Arc<SharedPopulation>>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|made| made.population.upgrade().is_some_and(|population| !population.has_failed()));
        let find = |(objective, method): &(Arc<SpectralObjective>, Method)| {
            let is_it = |made: &&Made| made.method == *method && std::ptr::eq(made.objective.as_ptr(), &**objective);
            all.iter().find(is_it)?.population.upgrade()
        };
        if let Some(found) = wanted.iter().map(find).collect() {
            return Ok(found);
        }
        let populations = make(all.is_empty())?;
        for ((objective, method), population) in wanted.iter().zip(&populations) {
            let (objective, population) = (Arc::downgrade(objective), Arc::downgrade(population));
            all.push(Made { objective, method: *method, population });
        }
        Ok(populations)
    }
}
