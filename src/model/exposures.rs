//! The model of an object that was exposed several times: each arm once per exposure.
//!
//! An object of K exposures is fitted as one spectrum of a model with K times the arms. The exposures of an arm have
//! the same template, which is computed once. Each has its own pixels, weights, resolution and continuum and, if the
//! model says so, its own velocity. The exposures of an arm are adjacent: arm i of exposure k has the index i K + k.

use super::builder::MAX_FREE_PARAMETERS;
use super::{ExposureVelocity, ModelArm, ModelParameter, SpectralModel};
use crate::recording::Velocity;

impl SpectralModel {
    /// Returns the model of an object with `count` exposures. The first velocity keeps its place among the parameters,
    /// and those of further exposures follow behind all others.
    pub(crate) fn for_exposures(&self, count: usize) -> SpectralModel {
        let mut model = self.clone();
        // 1. Repeat each arm.
        let exposures_of_arm = |arm: &ModelArm| -> Vec<ModelArm> {
            (0..count)
                .map(|k| ModelArm {
                    name: SpectralModel::name_exposure(&arm.name, k),
                    ..arm.clone()
                })
                .collect()
        };
        model.arms = self.arms.iter().flat_map(exposures_of_arm).collect();
        // 2. Add the velocities of further exposures.
        model.velocities = vec![self.velocity(); count];
        if let (Some(ExposureVelocity::Each), Velocity::Parameter(p)) =
            (self.exposures, self.velocity())
        {
            for (k, velocity) in model.velocities.iter_mut().enumerate().skip(1) {
                *velocity = Velocity::Parameter(model.parameters.len());
                let mut parameter: ModelParameter = self.parameters[p].clone();
                parameter.solver.name = format!("{}#{}", parameter.solver.name, k + 1);
                model.parameters.push(parameter);
            }
        }
        model
    }

    /// Returns the model with one velocity for all exposures of an object.
    pub(crate) fn with_common_velocity(mut self) -> SpectralModel {
        self.exposures = Some(ExposureVelocity::Shared);
        self
    }

    /// Returns the name of an arm's exposure `k`, such as `b#1` for the first.
    pub(crate) fn name_exposure(arm: &str, k: usize) -> String {
        format!("{arm}#{}", k + 1)
    }

    /// Returns whether each exposure of an object has a velocity of its own.
    pub(crate) fn has_exposure_velocities(&self) -> bool {
        self.exposures == Some(ExposureVelocity::Each) && self.free_velocity().is_some()
    }

    /// Returns the maximum number of exposures of an object, which the number of parameters limits if each has a
    /// velocity of its own.
    pub(crate) fn max_exposures(&self) -> usize {
        if self.has_exposure_velocities() {
            1 + MAX_FREE_PARAMETERS - self.parameters.len()
        } else {
            usize::MAX
        }
    }

    /// Returns the number of exposures that the arms stand for; 1 for a model of single spectra.
    pub(crate) fn exposure_count(&self) -> usize {
        self.velocities.len()
    }

    /// Returns the velocity of the exposure to which arm `a` belongs.
    pub(crate) fn velocity_of(&self, a: usize) -> Velocity {
        self.velocities[a % self.exposure_count()]
    }

    /// Returns the parameters of all free velocities: one, or one per exposure; none if the velocity is fixed.
    pub(crate) fn free_velocities(&self) -> Vec<usize> {
        let parameters = self
            .velocities
            .iter()
            .filter_map(|velocity| match velocity {
                Velocity::Parameter(p) => Some(*p),
                Velocity::Fixed(_) => None,
            });
        let mut parameters: Vec<usize> = parameters.collect();
        parameters.dedup();
        parameters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Emulator;
    use crate::model::{ArmLayout, Continuum, SpectralObjective};
    use crate::recording::{Precision, Stage};

    /// The network, the spline and the hull's penalty are those of a single spectrum. Each exposure is resampled at its
    /// own velocity.
    #[test]
    fn exposures_share_their_template() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/emulator.safetensors");
        let emulator = Emulator::open(path).unwrap();
        let model = SpectralModel::builder()
            .arm("b", emulator.clone())
            .arm("r", emulator)
            .velocity(-500.0..=500.0)
            .continuum(Continuum::rbf(6))
            .exposures(ExposureVelocity::Each)
            .build()
            .unwrap();
        let record = |model: &SpectralModel| {
            let layout = ArmLayout {
                pixels: 100,
                shared_grid: true,
                diagonals: 0,
                is_template: false,
                own_basis: false,
            };
            let layout = vec![layout; model.arms.len()];
            SpectralObjective::new(model, &layout, Precision::F32)
        };
        let count = |model: &SpectralModel, is_counted: fn(&Stage) -> bool| {
            let recording = record(model).recording().clone();
            recording
                .stages
                .iter()
                .filter(|stage| is_counted(stage))
                .count()
        };
        let of_four = model.for_exposures(4);
        for is_of_template in [
            |stage: &Stage| matches!(stage, Stage::Product(_) | Stage::Labels(_)),
            |stage: &Stage| matches!(stage, Stage::Prefilter(_)),
        ] {
            assert_eq!(
                count(&of_four, is_of_template),
                count(&model, is_of_template)
            );
        }
        assert_eq!(
            count(&of_four, |stage| matches!(stage, Stage::Normal(_))),
            8
        );
        let recording = record(&of_four).recording().clone();
        let hulls = recording.stages.iter().find_map(|stage| match stage {
            Stage::Prior(prior) => Some(prior.hulls.len()),
            _ => None,
        });
        assert_eq!(hulls, Some(2 * model.arms[0].emulator.hulls().len()));
        let velocities: Vec<Velocity> = recording
            .stages
            .iter()
            .filter_map(|stage| match stage {
                Stage::Resample(resample) => Some(resample.velocity),
                _ => None,
            })
            .collect();
        let first = Velocity::Parameter(0);
        let expected = [
            first,
            Velocity::Parameter(5),
            Velocity::Parameter(6),
            Velocity::Parameter(7),
        ];
        assert_eq!(velocities, [expected, expected].concat());
        let names: Vec<&str> = of_four.arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(
            names,
            ["b#1", "b#2", "b#3", "b#4", "r#1", "r#2", "r#3", "r#4"]
        );
        assert_eq!(
            of_four.parameters()[5..],
            ["velocity#2", "velocity#3", "velocity#4"]
        );
    }
}
