//! Rows of the model at given parameters, computed by the CPU device.

use std::sync::Arc;

use rayon::prelude::*;

use crate::cpu::CpuDevice;
use crate::error::{Error, Result};
use crate::first_guess::Start;
use crate::model::{Fault, Limits, Motion, Prepared, PreparedArm, Sampling};
use crate::recording::Precision;
use crate::solver::{Device, LevenbergMarquardt, Method};
use crate::spectra::Spectra;
use crate::spectral::input::assemble::{assemble, match_arms, prepare_spectrum};
use crate::spectral::input::layout::{lay_out_arms, mark_own_bases};
use crate::spectral::input::limits::LimitColumns;
use crate::spectral::input::ready::{ReadySpectra, ReadySpectrum};
use crate::spectral::run::Run;
use crate::threads;

/// A spectrum, and the parameters at which its model is evaluated.
#[derive(Clone, Copy)]
pub struct ModelPoint<'a> {
    /// Index of the spectrum in the batch.
    pub place: usize,
    /// Physical values of the parameters.
    pub parameters: &'a [f64],
}

/// Rows of a model that are computed.
#[derive(Clone, Copy)]
pub enum ModelRows {
    /// Values in f32, as a fit has them.
    Values,
    /// Values and derivatives in f64.
    WithDerivatives,
}

/// The model of one arm of a spectrum at one point.
pub struct InspectedArm {
    pub prepared: PreparedArm,
    pub sampling: Arc<Sampling>,
    /// Number of continuum terms.
    pub terms: usize,
    /// Values, and derivatives by the solver's u if they are asked for (rows, padded pixels).
    pub model: Vec<f64>,
    /// Continuum coefficients, followed by the factor; empty without a continuum.
    pub solution: Vec<f64>,
}

impl Run<'_> {
    /// Evaluates the model of several spectra at given parameters on the CPU, and returns the arms of each point. Only
    /// the spectra of the points are prepared.
    pub fn inspect(
        &mut self,
        spectra: &Spectra,
        points: &[ModelPoint],
        rows: ModelRows,
    ) -> Result<Vec<Vec<InspectedArm>>> {
        let model = &self.fitter.model;
        let arms = match_arms(model, spectra)?;
        let grids = self.sample_grids(&arms, spectra)?;
        let limit_columns = LimitColumns::new(model, spectra)?;
        let one = |point: &ModelPoint| {
            let u = model
                .parameters
                .iter()
                .zip(point.parameters)
                .map(|(p, x)| p.to_u(*x))
                .collect::<Vec<f64>>();
            let limits = limit_columns
                .read_limits(point.place)
                .map_err(|fault| refused(&fault))?;
            let motion = Some(Motion::around(model, &u, &limits));
            let prepared = prepare_spectrum(model, &arms, &grids, point.place, motion)
                .map_err(|fault| refused(&fault))?;
            Ok(ready_at(point.place, u, &limits, prepared.into()))
        };
        let ready: Vec<ReadySpectrum> =
            threads::in_pool(|| points.par_iter().map(one).collect::<Result<_>>())?;
        let shape = mark_own_bases(
            lay_out_arms(model, &arms, &grids),
            ready.iter().map(|one| &*one.prepared),
        );
        let (precision, values_only) = match rows {
            ModelRows::Values => (Precision::F32, true),
            ModelRows::WithDerivatives => (Precision::F64, false),
        };
        let objective =
            self.fitter
                .shared
                .get_or_make_objective(model, &shape, precision, values_only);
        let spectra = ReadySpectra {
            model,
            grids: &grids,
            spectra: &ready,
            guess: None,
        };
        let batch = assemble(&objective, spectra, &spectra.starts());
        let method = Method::LevenbergMarquardt(LevenbergMarquardt::default());
        let mut population =
            CpuDevice.population(objective.recording().clone(), &method, points.len())?;
        pollster::block_on(population.load(&batch))?;
        let buffers: Vec<_> = objective
            .arms
            .iter()
            .flat_map(|arm| [Some(arm.model), arm.solution])
            .collect();
        let ids: Vec<_> = buffers.iter().flatten().copied().collect();
        let mut seen = pollster::block_on(population.inspect_all(&ids))?.into_iter();
        // Each buffer has the rows of all spectra. An arm without a continuum has no solution.
        let rows: Vec<Vec<f64>> = buffers
            .iter()
            .map(|b| b.and_then(|_| seen.next()).unwrap_or_default())
            .collect();
        let row = |buffer: usize, k: usize| {
            let length = rows[buffer].len() / points.len().max(1);
            rows[buffer][k * length..][..length].to_vec()
        };
        let mut out = Vec::with_capacity(ready.len());
        for (k, one) in ready.into_iter().enumerate() {
            let mut inspected = Vec::with_capacity(arms.len());
            for (a, prepared) in Arc::unwrap_or_clone(one.prepared)
                .arms
                .into_iter()
                .enumerate()
            {
                inspected.push(InspectedArm {
                    prepared,
                    sampling: grids[a].get(one.place).map_err(refused)?.clone(),
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

/// Returns a prepared spectrum whose only start is `u`, in the solver's units, with its priors and bounds too wide to
/// act.
pub fn ready_at(
    place: usize,
    u: Vec<f64>,
    limits: &[Limits],
    prepared: Arc<Prepared>,
) -> ReadySpectrum {
    let limits = limits
        .iter()
        .map(|limits| Limits {
            lower: -1e30,
            upper: 1e30,
            ..*limits
        })
        .collect();
    ReadySpectrum {
        place,
        prepared,
        limits,
        starts: vec![Start { u, basin: 0 }],
        may_add_starts: false,
    }
}

/// Returns the usage error for the fault of a spectrum that cannot be prepared.
fn refused(fault: &Fault) -> Error {
    Error::Usage(format!("{}: {}", fault.cause.name(), fault.detail))
}
