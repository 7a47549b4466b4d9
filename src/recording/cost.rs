//! The cost of a recording's stages, and of kernels that do several.

use std::ops::Range;

use super::{Recording, Stage};
use crate::buffers::{Cost, KernelCost, Work};

impl Recording {
    /// Returns the kind of work that profiles count stage `number` as: `Hidden` in a network before its last product.
    pub fn work_of(&self, number: usize) -> Work {
        let is_before_last_product = self.stages[number..]
            .iter()
            .take_while(|stage| is_of_network(stage))
            .skip(1)
            .any(|stage| matches!(stage, Stage::Product(_)));
        if is_before_last_product {
            Work::Hidden
        } else {
            self.stages[number].work()
        }
    }

    /// Returns the kind of work and the cost of one kernel that runs these stages. Numbers that pass between the stages
    /// are neither written nor read, and no number is read twice.
    pub fn cost_of_kernel(&self, stages: Range<usize>) -> KernelCost {
        let work = self.work_of(stages.end - 1);
        let stages = &self.stages[stages];
        // 1. The cost of the stages by themselves.
        let mut cost = Cost::default();
        for stage in stages {
            let stage_cost = stage.cost(self.declared());
            cost.operations += stage_cost.operations;
            cost.numbers += stage_cost.numbers;
            cost.shared += stage_cost.shared;
        }
        // 2. The numbers that fusion saves between successive stages.
        for pair in stages.windows(2) {
            let saved_numbers = match (&pair[0], &pair[1]) {
                (Stage::Product(_), Stage::Activate(activate))
                | (Stage::Activate(activate), Stage::Product(_)) => {
                    2 * activate.rows * activate.columns
                }
                // A continuum reads one row of those that `normal` reads.
                (Stage::Resample(resample), Stage::Continuum(_)) => {
                    resample.output_rows() * resample.pixels
                }
                (Stage::Resample(resample), _) => 2 * resample.output_rows() * resample.pixels,
                (Stage::Continuum(continuum), Stage::Normal(normal)) if stages.len() == 3 => {
                    (3 + continuum.basis.terms + 1 + normal.columns.len()) * continuum.pixels
                }
                (Stage::Continuum(continuum), _) => (3 + continuum.basis.terms) * continuum.pixels,
                _ => 0,
            };
            cost.numbers -= saved_numbers as f64;
        }
        KernelCost { work, cost }
    }
}

/// Returns whether a stage is part of a network.
fn is_of_network(stage: &Stage) -> bool {
    matches!(
        stage,
        Stage::Product(_) | Stage::Split(_) | Stage::Activate(_)
    )
}
