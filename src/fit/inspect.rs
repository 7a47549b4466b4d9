//! Rows of the model at given parameters, computed by the CPU device.

use std::sync::Arc;

use rayon::prelude::*;

use super::assemble::{assemble, matched, prepare_one};
use super::layout::{layout, layout_for};
use super::ready::Ready;
use super::run::Run;
use crate::cpu::CpuDevice;
use crate::error::{Error, Result};
use crate::model::{Fault, Limits, PreparedArm, Sampling, SpectralObjective, Start};
use crate::recording::Precision;
use crate::solver::{Device, LevenbergMarquardt, Method, Objective};
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
    /// Rows of every arm of the spectra at some places, each at its physical parameters. Only these are prepared, and
    /// all are evaluated in one go.
    pub fn inspect(
        &mut self,
        spectra: &Spectra,
        points: &[(usize, &[f64])],
        precision: Precision,
    ) -> Result<Vec<Vec<InspectedArm>>> {
        let model = &self.fitter.model;
        let arms = matched(model, spectra)?;
        let grids = self.grids(&arms, spectra)?;
        let one = |&(place, physical): &(usize, &[f64])| {
            let prepared = prepare_one(model, &arms, &grids, place).map_err(|fault| refused(&fault))?;
            let u = model.parameters.iter().zip(physical).map(|(p, x)| p.to_u(*x)).collect();
            // anywhere, bounds or not
            let limits = model.parameters.iter().map(|p| Limits { lower: -1e30, upper: 1e30, ..p.limits() }).collect();
            Ok(Ready { place, prepared, limits, starts: vec![Start { u, basin: 0 }], may_look: false })
        };
        let ready: Vec<Ready> = points.par_iter().map(one).collect::<Result<_>>()?;
        let shape = layout_for(layout(model, &arms, &grids), ready.iter().map(|one| &one.prepared));
        let objective = SpectralObjective::new(model, &shape, precision);
        let starts: Vec<_> = ready.iter().map(Ready::starts).collect();
        let batch = assemble(model, &objective, &grids, (&ready, &starts));
        let method = Method::LevenbergMarquardt(LevenbergMarquardt::default());
        let mut population = CpuDevice.population(Arc::new(objective.record()), &method, points.len())?;
        pollster::block_on(population.load(&batch))?;
        let buffers: Vec<_> = objective.arms.iter().flat_map(|arm| [Some(arm.model), arm.solution]).collect();
        let wanted: Vec<_> = buffers.iter().flatten().copied().collect();
        let mut seen = pollster::block_on(population.inspect_all(&wanted))?.into_iter();
        // per buffer, per spectrum; an arm without a continuum has no solution
        let rows: Vec<Vec<f64>> = buffers.iter().map(|b| b.and_then(|_| seen.next()).unwrap_or_default()).collect();
        let row = |buffer: usize, k: usize| {
            let length = rows[buffer].len() / points.len().max(1);
            rows[buffer][k * length..][..length].to_vec()
        };
        let mut out = Vec::with_capacity(ready.len());
        for (k, one) in ready.into_iter().enumerate() {
            let mut inspected = Vec::with_capacity(arms.len());
            for (a, prepared) in one.prepared.arms.into_iter().enumerate() {
                inspected.push(InspectedArm {
                    prepared,
                    sampling: grids[a].of(one.place).map_err(refused)?.clone(),
                    terms: objective.arms[a].basis.map_or(0, |b| b.terms),
                    model: row(2 * a, k),
                    solution: row(2 * a + 1, k),
                });
            }
            out.push(inspected);
        }
        Ok(out)
    }
}

fn refused(fault: &Fault) -> Error {
    Error::Usage(format!("{}: {}", fault.cause.name(), fault.detail))
}
