//! Rows of the model of prepared spectra, computed by the CPU device: values at the pixels, derivatives, and the
//! continuum.

use std::sync::Arc;

use crate::cpu::CpuDevice;
use crate::error::Result;
use crate::model::SpectralObjective;
use crate::solver::{Backend, LevenbergMarquardt, Population};
use crate::spectral::input::assemble::assemble;
use crate::spectral::input::ready::ReadySpectra;

/// The model of one arm of a spectrum at one point.
#[derive(Clone, Debug)]
pub struct ArmRows {
    /// Values, and derivatives by the solver's u if they are asked for (rows, padded pixels).
    pub model: Vec<f64>,
    /// Continuum coefficients, followed by the factor; empty without a continuum.
    pub solution: Vec<f64>,
}

/// A population on the CPU that evaluates the rows of an objective's model.
pub struct RowEvaluator {
    pub objective: Arc<SpectralObjective>,
    population: Box<dyn Population>,
}

impl RowEvaluator {
    /// Makes room for `capacity` spectra.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn new(objective: Arc<SpectralObjective>, capacity: usize) -> Result<RowEvaluator> {
        let settings = LevenbergMarquardt::default();
        let population =
            CpuDevice.population(objective.recording().clone(), &settings, capacity)?;
        Ok(RowEvaluator {
            objective,
            population,
        })
    }

    /// Returns the rows of each spectrum at its first start, arm by arm.
    pub fn evaluate(&mut self, spectra: ReadySpectra) -> Result<Vec<Vec<ArmRows>>> {
        let batch = assemble(&self.objective, spectra, &spectra.starts());
        pollster::block_on(self.population.load(&batch))?;
        // 1. Read each arm's model and solution. An arm without a continuum has no solution.
        let buffers: Vec<_> = self
            .objective
            .arms
            .iter()
            .flat_map(|arm| [Some(arm.model), arm.solution])
            .collect();
        let ids: Vec<_> = buffers.iter().flatten().copied().collect();
        let contents = pollster::block_on(self.population.inspect_all(&ids))?;
        let mut contents = contents.into_iter();
        let contents: Vec<Vec<f64>> = buffers
            .iter()
            .map(|id| id.and_then(|_| contents.next()).unwrap_or_default())
            .collect();
        // 2. Divide them by spectrum: each buffer has the rows of all spectra.
        let count = spectra.spectra.len();
        let rows_of_spectrum = |buffer: usize, k: usize| {
            let length = contents[buffer].len() / count.max(1);
            contents[buffer][k * length..][..length].to_vec()
        };
        Ok((0..count)
            .map(|k| {
                (0..self.objective.arms.len())
                    .map(|a| ArmRows {
                        model: rows_of_spectrum(2 * a, k),
                        solution: rows_of_spectrum(2 * a + 1, k),
                    })
                    .collect()
            })
            .collect())
    }
}
