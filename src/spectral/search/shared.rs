//! Data that the workers of a fitter share: the library of the first guess, and the objectives with the buffers that
//! devices keep for them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::error::Result;
use crate::first_guess::FirstGuess;
use crate::model::{ArmLayout, SpectralModel, SpectralObjective};
use crate::recording::Precision;
use crate::spectral::run::workspace::IdleWorkspaces;
use crate::threads;

/// Data of one model that the workers of a fitter share.
#[derive(Default)]
pub struct SharedResources {
    /// The model's first guess, made by the first run that needs it.
    guess: OnceLock<Arc<FirstGuess>>,
    /// Populations and samplings that no run uses.
    pub idle: IdleWorkspaces,
    /// Objectives that populations use. Those of objects with any number of exposures share their constants.
    objectives: Arc<Mutex<Vec<LivingObjective>>>,
    /// Resources for objects with several exposures, by their number, as long as a run uses them.
    exposures: Mutex<BTreeMap<usize, Weak<SharedResources>>>,
}

/// An objective as long as a population uses it.
type LivingObjective = (ObjectiveKey, Weak<SpectralObjective>);

/// Inputs of an objective beside the model.
#[derive(PartialEq)]
struct ObjectiveKey {
    layout: Vec<ArmLayout>,
    precision: Precision,
    /// The objective has no derivatives.
    values_only: bool,
}

impl SharedResources {
    /// Returns the library of first-guess points, which the first call for a model makes. The model keeps it for other
    /// fitters.
    pub fn first_guess(&self, model: &SpectralModel, seed: u64) -> Result<&FirstGuess> {
        if let Some(guess) = self.guess.get() {
            return Ok(guess);
        }
        let guess = model
            .cache
            .get_or_make(seed, || threads::in_pool(|| FirstGuess::new(model, seed)))?;
        Ok(self.guess.get_or_init(|| guess))
    }

    /// Returns the resources for objects with `count` exposures, of which another worker may have made them. They have
    /// the library of this model, if it is there.
    pub fn for_exposures(&self, count: usize) -> Arc<SharedResources> {
        let mut exposures = self
            .exposures
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let existing = exposures.get(&count).and_then(Weak::upgrade);
        let resources = existing.unwrap_or_else(|| {
            Arc::new(SharedResources {
                objectives: self.objectives.clone(),
                ..SharedResources::default()
            })
        });
        if let Some(guess) = self.guess.get() {
            resources.guess.get_or_init(|| guess.clone());
        }
        exposures.insert(count, Arc::downgrade(&resources));
        resources
    }

    /// Returns resources that have nothing but this library of first-guess points, if it is there.
    pub fn with_library_alone(&self) -> SharedResources {
        SharedResources {
            guess: self.guess.clone(),
            ..SharedResources::default()
        }
    }

    /// Returns the library of first-guess points if this fitter has asked for it.
    pub fn library(&self) -> Option<&FirstGuess> {
        self.guess.get().map(|guess| &**guess)
    }

    /// Returns the objective of this layout and precision that another worker still uses, or makes one.
    pub fn get_or_make_objective(
        &self,
        model: &SpectralModel,
        layout: &[ArmLayout],
        precision: Precision,
        values_only: bool,
    ) -> Arc<SpectralObjective> {
        let mut objectives = self
            .objectives
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        objectives.retain(|(_, objective)| objective.strong_count() > 0);
        // 1. Look for the same objective.
        let key = ObjectiveKey {
            layout: layout.to_vec(),
            precision,
            values_only,
        };
        let existing = objectives
            .iter()
            .find(|(existing_key, _)| *existing_key == key)
            .and_then(|(_, objective)| objective.upgrade());
        if let Some(objective) = existing {
            return objective;
        }
        // 2. Make it. It shares its constants with another objective, of the same precision if there is one.
        let mut objective = if values_only {
            SpectralObjective::evaluation(model, layout, precision)
        } else {
            SpectralObjective::new(model, layout, precision)
        };
        let related = objectives
            .iter()
            .max_by_key(|(related_key, _)| related_key.precision == precision)
            .and_then(|(_, related)| related.upgrade());
        if let Some(related) = related {
            objective.share_constants(&related);
        }
        let objective = Arc::new(objective);
        objectives.push((key, Arc::downgrade(&objective)));
        objective
    }
}

impl fmt::Debug for SharedResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("guess", &self.guess.get().is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuDevice;
    use crate::recording::Values;
    use crate::solver::{Backend as _, LevenbergMarquardt};
    use crate::{Continuum, Emulator};

    const LAYOUT: ArmLayout = ArmLayout {
        pixels: 100,
        shared_grid: true,
        diagonals: 0,
        is_template: false,
        own_basis: false,
    };

    fn model() -> SpectralModel {
        let emulator = Emulator::open(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/data/emulator.safetensors"
        ))
        .unwrap();
        let model = SpectralModel::builder()
            .arm("b", emulator)
            .velocity(-500.0..=500.0);
        model.continuum(Continuum::rbf(6)).build().unwrap()
    }

    #[test]
    fn fitters_of_one_model_share_its_first_guess_for_each_seed() {
        let model = model();
        let fitters = [
            SharedResources::default(),
            SharedResources::default(),
            SharedResources::default(),
        ];
        let [first, same_seed, other_seed] = [(0, 3), (1, 3), (2, 4)]
            .map(|(k, seed): (usize, u64)| fitters[k].first_guess(&model.clone(), seed).unwrap());
        assert!(std::ptr::eq(first, same_seed) && !std::ptr::eq(first, other_seed));
        assert_ne!(first.points(), other_seed.points());
    }

    #[test]
    fn objectives_are_shared_by_shape_and_precision() {
        let model = model();
        let shared = SharedResources::default();
        let make_objective = |layout, precision, values_only| {
            shared.get_or_make_objective(&model, &[layout], precision, values_only)
        };
        let first = make_objective(LAYOUT, Precision::F32, false);
        let second = make_objective(LAYOUT, Precision::F32, false);
        assert!(Arc::ptr_eq(&first, &second));
        drop(second);
        let more_pixels = ArmLayout {
            pixels: 101,
            ..LAYOUT
        };
        for different in [
            make_objective(more_pixels, Precision::F32, false),
            make_objective(LAYOUT, Precision::Mixed, false),
            make_objective(LAYOUT, Precision::F32, true),
        ] {
            assert!(!Arc::ptr_eq(&first, &different));
        }
        // An objective that nobody uses any more is dropped from the list.
        drop(first);
        let remade = make_objective(LAYOUT, Precision::F32, false);
        assert_eq!(
            (
                shared.objectives.lock().unwrap().len(),
                Arc::strong_count(&remade)
            ),
            (1, 1)
        );
    }

    /// Populations share the network's packed weights and cached rows.
    #[test]
    fn populations_of_an_objective_share_its_weights() {
        let objective = SharedResources::default().get_or_make_objective(
            &model(),
            &[LAYOUT],
            Precision::F32,
            false,
        );
        let settings = LevenbergMarquardt::default();
        let shared_data = &objective.recording().shared_data;
        let make_population = || {
            CpuDevice
                .population(objective.recording().clone(), &settings, 4)
                .unwrap()
        };
        let populations = [make_population(), make_population()];
        assert_eq!(shared_data.sharers(), 2);
        drop(populations);
        assert_eq!(shared_data.sharers(), 0);
    }

    /// All objectives of a run share one copy of the weights in memory.
    #[test]
    fn objectives_share_the_weights_of_the_network() {
        let model = model();
        let shared = SharedResources::default();
        let more_pixels = ArmLayout {
            pixels: 116,
            ..LAYOUT
        };
        let first = shared.get_or_make_objective(&model, &[LAYOUT], Precision::F32, false);
        let related_objectives = [
            shared.get_or_make_objective(&model, &[more_pixels], Precision::F32, false),
            shared.get_or_make_objective(&model, &[LAYOUT], Precision::F32, true),
        ];
        let weights = network_weights(&first);
        for related in related_objectives {
            let related_weights = network_weights(&related);
            assert!(weights.len() > 1 && weights.len() == related_weights.len());
            for (values, related_values) in weights.iter().zip(&related_weights) {
                let (Values::F32(values), Values::F32(related_values)) = (values, related_values)
                else {
                    panic!("not f32")
                };
                assert_eq!(values.as_ptr(), related_values.as_ptr());
            }
        }
    }

    /// Returns the values of all buffers that hold weights of the network.
    fn network_weights(objective: &SpectralObjective) -> Vec<Values> {
        let buffers = objective.recording().buffers.clone();
        buffers
            .into_iter()
            .filter(|buffer| buffer.name.ends_with(".weight"))
            .filter_map(|buffer| buffer.values)
            .collect()
    }
}
