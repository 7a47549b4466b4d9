//! Data that the workers of a fitter share: the library of the first guess, and the objectives with the buffers that
//! devices keep for them.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::error::Result;
use crate::first_guess::FirstGuess;
use crate::model::{ArmLayout, SpectralModel, SpectralObjective};
use crate::recording::Precision;
use crate::spectral::run::workspace::Idle;
use crate::threads;

/// Shared data of one model.
#[derive(Default)]
pub struct Shared {
    /// The model's, from the first run that needs it.
    guess: OnceLock<Arc<FirstGuess>>,
    /// Populations and samplings that no run uses.
    pub idle: Idle,
    /// Objectives that populations use.
    objectives: Mutex<Vec<(Key, Weak<SpectralObjective>)>>,
}

/// Inputs of an objective beside the model.
#[derive(PartialEq)]
struct Key {
    layout: Vec<ArmLayout>,
    precision: Precision,
    /// The objective has no derivatives.
    values_only: bool,
}

impl Shared {
    /// Returns the library of first-guess points, which the first call for a model makes. The model keeps it for other
    /// fitters.
    pub fn first_guess(&self, model: &SpectralModel, seed: u64) -> Result<&FirstGuess> {
        if let Some(made) = self.guess.get() {
            return Ok(made);
        }
        let made = model
            .cache
            .get_or_make(seed, || threads::in_pool(|| FirstGuess::new(model, seed)))?;
        Ok(self.guess.get_or_init(|| made))
    }

    /// Returns the library of first-guess points if this fitter has asked for it.
    pub fn library(&self) -> Option<&FirstGuess> {
        self.guess.get().map(|guess| &**guess)
    }

    /// Returns the objective of this layout and precision that another worker still uses, or makes one.
    pub fn objective(
        &self,
        model: &SpectralModel,
        layout: &[ArmLayout],
        precision: Precision,
        values_only: bool,
    ) -> Arc<SpectralObjective> {
        let mut all = self
            .objectives
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, objective)| objective.strong_count() > 0);
        let key = Key {
            layout: layout.to_vec(),
            precision,
            values_only,
        };
        let known = all
            .iter()
            .find(|(other, _)| *other == key)
            .and_then(|(_, objective)| objective.upgrade());
        known.unwrap_or_else(|| {
            let mut made = match values_only {
                false => SpectralObjective::new(model, layout, precision),
                true => SpectralObjective::evaluation(model, layout, precision),
            };
            let related = all
                .iter()
                .max_by_key(|(other, _)| other.precision == precision);
            if let Some(other) = related.and_then(|(_, other)| other.upgrade()) {
                made.share_constants(&other);
            }
            let made = Arc::new(made);
            all.push((key, Arc::downgrade(&made)));
            made
        })
    }
}

impl fmt::Debug for Shared {
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
    use crate::solver::{Device as _, LevenbergMarquardt, Method};
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

    /// Fitters of one model have one first guess, of each seed.
    #[test]
    fn the_model_keeps_the_first_guess() {
        let model = model();
        let fitters = [Shared::default(), Shared::default(), Shared::default()];
        let [first, second, other] = [(0, 3), (1, 3), (2, 4)]
            .map(|(k, seed): (usize, u64)| fitters[k].first_guess(&model.clone(), seed).unwrap());
        assert!(std::ptr::eq(first, second) && !std::ptr::eq(first, other));
        assert_ne!(first.points(), other.points());
    }

    #[test]
    fn objectives_are_shared_by_shape_and_precision() {
        let (model, shared) = (model(), Shared::default());
        let of = |layout, precision, values_only| {
            shared.objective(&model, &[layout], precision, values_only)
        };
        let first = of(LAYOUT, Precision::F32, false);
        assert!(Arc::ptr_eq(&first, &of(LAYOUT, Precision::F32, false)));
        for other in [
            of(
                ArmLayout {
                    pixels: 101,
                    ..LAYOUT
                },
                Precision::F32,
                false,
            ),
            of(LAYOUT, Precision::Mixed, false),
            of(LAYOUT, Precision::F32, true),
        ] {
            assert!(!Arc::ptr_eq(&first, &other));
        }
        // An objective that nobody uses any more is dropped from the list.
        drop(first);
        let last = of(LAYOUT, Precision::F32, false);
        assert_eq!(
            (
                shared.objectives.lock().unwrap().len(),
                Arc::strong_count(&last)
            ),
            (1, 1)
        );
    }

    /// Populations share the network's packed weights and cached rows.
    #[test]
    fn populations_of_an_objective_share_its_weights() {
        let objective = Shared::default().objective(&model(), &[LAYOUT], Precision::F32, false);
        let method = Method::LevenbergMarquardt(LevenbergMarquardt::default());
        let kin = &objective.recording().kin;
        let population = || {
            CpuDevice
                .population(objective.recording().clone(), &method, 4)
                .unwrap()
        };
        let (first, second) = (population(), population());
        assert_eq!(kin.sharers(), 2);
        drop((first, second));
        assert_eq!(kin.sharers(), 0);
    }

    /// The weights of a network are in memory once, whatever objectives a run has.
    #[test]
    fn objectives_share_the_network() {
        let (model, shared) = (model(), Shared::default());
        let first = shared.objective(&model, &[LAYOUT], Precision::F32, false);
        let others = [
            shared.objective(
                &model,
                &[ArmLayout {
                    pixels: 116,
                    ..LAYOUT
                }],
                Precision::F32,
                false,
            ),
            shared.objective(&model, &[LAYOUT], Precision::F32, true),
        ];
        let weights = |objective: &SpectralObjective| {
            let of_network = |name: &str| name.ends_with(".weight");
            let buffers = objective.recording().buffers.clone().into_iter();
            buffers
                .filter(|buffer| of_network(&buffer.name))
                .filter_map(|buffer| buffer.values)
                .collect::<Vec<_>>()
        };
        let address = |values: &Values| {
            if let Values::F32(array) = values {
                array.as_ptr()
            } else {
                panic!("not f32")
            }
        };
        for other in others {
            let (here, there) = (weights(&first), weights(&other));
            assert!(here.len() > 1 && here.len() == there.len());
            assert!(
                here.iter()
                    .zip(&there)
                    .all(|(a, b)| address(a) == address(b))
            );
        }
    }
}
