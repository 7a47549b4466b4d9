//! Rows of the model at given parameters, computed by the CPU device.

use std::sync::Arc;

use super::assemble::{assemble, matched, prepare_all};
use super::run::{Ready, Run, layout};
use crate::cpu::CpuDevice;
use crate::error::{Error, Result};
use crate::model::{Limits, PreparedArm, Sampling, SpectralObjective, Start};
use crate::solver::recording::Precision;
use crate::solver::{Device, Method, Objective};
use crate::spectra::Spectra;

/// One arm of one spectrum at one point.
pub struct InspectedArm {
    pub prepared: PreparedArm,
    pub sampling: Arc<Sampling>,
    pub terms: usize,
    /// (rows, padded pixels): value, derivatives by the solver's u.
    pub model: Vec<f64>,
    /// Continuum coefficients, then the factor; empty without a continuum.
    pub solution: Vec<f64>,
}

impl Run<'_> {
    /// Rows of every arm of the spectrum at `place`, at physical parameters.
    pub fn inspect(
        &mut self,
        spectra: &Spectra,
        place: usize,
        physical: &[f64],
        precision: Precision,
    ) -> Result<Vec<InspectedArm>> {
        let model = &self.fitter.model;
        let arms = matched(model, spectra)?;
        let grids = self.grids(&arms, spectra)?;
        let prepared = prepare_all(model, &arms, &grids, spectra.len()).swap_remove(place);
        let prepared = prepared.map_err(|fault| Error::Usage(format!("{}: {}", fault.cause.name(), fault.detail)))?;
        let objective = SpectralObjective::new(model, &layout(model, &arms), precision);
        let u = model.parameters.iter().zip(physical).map(|(p, x)| p.to_u(*x)).collect();
        // anywhere, bounds or not
        let limits = model.parameters.iter().map(|p| Limits { lower: -1e30, upper: 1e30, ..p.limits() }).collect();
        let ready = Ready { place, prepared, limits, starts: vec![Start { u, score: 0.0 }] };
        let batch = assemble(model, &objective, &grids, std::slice::from_ref(&ready));
        let recording = Arc::new(objective.record());
        let mut population = CpuDevice.population(recording, &Method::LevenbergMarquardt(self.fitter.settings), 1)?;
        let mut out = Vec::new();
        pollster::block_on(population.load(&batch))?;
        for ((buffers, prepared), grid) in objective.arms.iter().zip(ready.prepared.arms).zip(&grids) {
            let sampling = grid.of(place).map_err(|fault| Error::Usage(fault.detail.clone()))?.clone();
            out.push(InspectedArm {
                prepared,
                sampling,
                terms: buffers.basis.map_or(0, |b| b.terms),
                model: pollster::block_on(population.inspect(buffers.model))?,
                solution: match buffers.solution {
                    Some(solution) => pollster::block_on(population.inspect(solution))?,
                    None => Vec::new(),
                },
            });
        }
        Ok(out)
    }
}
