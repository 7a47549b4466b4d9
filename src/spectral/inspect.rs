//! Rows of the model at given parameters, computed by the CPU device.

use std::sync::Arc;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::first_guess::Start;
use crate::model::{
    ArmLayout, Motion, ParameterLimits, Prepared, PreparedArm, Sampling, SpectrumFault,
};
use crate::recording::Precision;
use crate::spectra::Spectra;
use crate::spectral::correlated::{ArmPoint, solve_continuum};
use crate::spectral::input::assemble::{match_arms, prepare_spectrum_of_batch};
use crate::spectral::input::layout::{lay_out_arms, mark_own_bases};
use crate::spectral::input::limits::LimitColumns;
use crate::spectral::input::reading::require_single_exposures;
use crate::spectral::input::ready::{Grids, ReadySpectra, ReadySpectrum};
use crate::spectral::model_rows::RowEvaluator;
use crate::spectral::run::SpectralRun;
use crate::threads;

/// Bound that no parameter reaches, in physical units.
const UNREACHED_BOUND: f64 = 1e30;

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
pub enum InspectedRows {
    /// Values in f32, as in a fit.
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

impl InspectedArm {
    /// Replaces the coefficients of the continuum by those of generalised least squares if the noise is correlated.
    fn correlate_continuum(&mut self) {
        let coefficients = solve_continuum(ArmPoint {
            prepared: &self.prepared,
            sampling: &self.sampling,
            terms: self.terms,
            model: &self.model,
            stride: self.model.len(),
        });
        for (target, a) in self.solution.iter_mut().zip(coefficients.iter().flatten()) {
            *target = *a;
        }
    }
}

impl SpectralRun<'_> {
    /// Evaluates the model of several spectra at given parameters on the CPU, and returns the arms of each point. Only
    /// the spectra of the points are prepared.
    pub fn inspect(
        &mut self,
        spectra: &Spectra,
        points: &[ModelPoint],
        rows: InspectedRows,
    ) -> Result<Vec<Vec<InspectedArm>>> {
        let model = &self.fitter.model;
        // 1. Prepare the spectra with the pixels that count at their points.
        require_single_exposures(spectra)?;
        let arms = match_arms(model, spectra)?;
        let grids = self.sample_grids(&arms, spectra)?;
        let limit_columns = LimitColumns::new(model, spectra)?;
        let prepare_at_point = |point: &ModelPoint| {
            let u: Vec<f64> = model
                .parameters
                .iter()
                .zip(point.parameters)
                .map(|(parameter, value)| parameter.to_u(*value))
                .collect();
            let limits = limit_columns.read_limits(point.place)?;
            let motion = Motion::around(model, &u, &limits);
            let prepared =
                prepare_spectrum_of_batch(model, &arms, &grids, point.place, Some(&motion), &[])?;
            Ok(make_ready_spectrum(
                point.place,
                u,
                &limits,
                prepared.into(),
            ))
        };
        let ready: Vec<ReadySpectrum> = threads::in_pool(|| {
            points
                .par_iter()
                .map(|point| {
                    prepare_at_point(point).map_err(|fault: SpectrumFault| usage_error(&fault))
                })
                .collect::<Result<_>>()
        })?;
        // 2. Evaluate their models.
        let layout = mark_own_bases(
            lay_out_arms(model, &arms, &grids),
            ready.iter().map(|spectrum| &*spectrum.prepared),
        );
        self.inspect_ready(&layout, &grids, ready, rows)
    }

    /// Evaluates the model of prepared spectra of one layout on the CPU, each at its only start, and returns the arms
    /// of each.
    pub fn inspect_ready(
        &self,
        layout: &[ArmLayout],
        grids: &[Grids],
        ready: Vec<ReadySpectrum>,
        rows: InspectedRows,
    ) -> Result<Vec<Vec<InspectedArm>>> {
        let model = &self.fitter.model;
        // 1. Evaluate the rows of the model.
        let (precision, values_only) = match rows {
            InspectedRows::Values => (Precision::F32, true),
            InspectedRows::WithDerivatives => (Precision::F64, false),
        };
        let objective =
            self.fitter
                .shared
                .get_or_make_objective(model, layout, precision, values_only);
        let mut evaluator = RowEvaluator::new(objective, ready.len())?;
        let evaluated = evaluator.evaluate(ReadySpectra {
            model,
            grids,
            spectra: &ready,
            guess: None,
        })?;
        // 2. Join them with the arrays of the spectra.
        let mut inspected_spectra = Vec::with_capacity(ready.len());
        for (spectrum, arm_rows) in ready.into_iter().zip(evaluated) {
            let prepared_arms = Arc::unwrap_or_clone(spectrum.prepared).arms;
            let mut inspected_arms = Vec::with_capacity(prepared_arms.len());
            for (a, (prepared, rows)) in prepared_arms.into_iter().zip(arm_rows).enumerate() {
                let sampling = grids[a].get(spectrum.place).map_err(usage_error)?;
                let basis = evaluator.objective.arms[a].basis;
                let mut arm = InspectedArm {
                    prepared,
                    sampling: sampling.clone(),
                    terms: basis.map_or(0, |basis| basis.terms),
                    model: rows.model,
                    solution: rows.solution,
                };
                arm.correlate_continuum();
                inspected_arms.push(arm);
            }
            inspected_spectra.push(inspected_arms);
        }
        Ok(inspected_spectra)
    }
}

/// Returns a prepared spectrum whose only start is `u`, in the solver's units, with its priors and bounds too wide to
/// act.
pub fn make_ready_spectrum(
    place: usize,
    u: Vec<f64>,
    limits: &[ParameterLimits],
    prepared: Arc<Prepared>,
) -> ReadySpectrum {
    let limits = limits
        .iter()
        .map(|limits| ParameterLimits {
            lower: -UNREACHED_BOUND,
            upper: UNREACHED_BOUND,
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
fn usage_error(fault: &SpectrumFault) -> Error {
    Error::Usage(format!("{}: {}", fault.cause.name(), fault.detail))
}
