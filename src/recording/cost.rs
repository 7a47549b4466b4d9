//! The cost of a recording's stages, and of kernels that do several.

use std::ops::Range;

use super::{Recording, Stage};
use crate::buffers::{Cost, KernelCost, Work};

impl Recording {
    /// Returns the kind of work that profiles count stage `number` as: `Hidden` in a network before its last product.
    pub fn work_of(&self, number: usize) -> Work {
        let is_network = |stage: &&Stage| {
            matches!(
                stage,
                Stage::Product(_) | Stage::Narrow(_) | Stage::Activate(_)
            )
        };
        let mut network = self.stages[number..].iter().take_while(is_network).skip(1);
        if network.any(|stage| matches!(stage, Stage::Product(_))) {
            Work::Hidden
        } else {
            self.stages[number].work()
        }
    }

    /// Returns the cost of one kernel that runs these stages, less what passes between them, and its kind of work. What
    /// passes between the stages is neither written nor read, and nothing is read twice.
    pub fn cost_of_kernel(&self, stages: Range<usize>) -> KernelCost {
        let work = self.work_of(stages.end - 1);
        let stages = &self.stages[stages];
        let mut sum = Cost::default();
        for stage in stages {
            let Cost {
                operations,
                numbers,
                shared,
            } = stage.cost(self.declared());
            sum.operations += operations;
            sum.numbers += numbers;
            sum.shared += shared;
        }
        for pair in stages.windows(2) {
            let saved = match (&pair[0], &pair[1]) {
                (Stage::Product(_), Stage::Activate(s)) => 2 * s.rows * s.columns,
                // a continuum reads one row of what normal reads
                (Stage::Resample(s), Stage::Continuum(_)) => s.output_rows() * s.pixels,
                (Stage::Resample(s), _) => 2 * s.output_rows() * s.pixels,
                (Stage::Continuum(s), Stage::Normal(n)) if stages.len() == 3 => {
                    (3 + s.basis.terms + 1 + n.columns.len()) * s.pixels
                }
                (Stage::Continuum(s), _) => (3 + s.basis.terms) * s.pixels,
                _ => 0,
            };
            sum.numbers -= saved as f64;
        }
        KernelCost { work, cost: sum }
    }
}
