//! Conversion of starts between physical units and those of the solver.

use crate::first_guess::Start;
use crate::model::{Cause, ParameterLimits, SpectralModel, SpectrumFault};

/// Converts a user's start from physical to the solver's units; returns whether it was clipped to the bounds, or its
/// fault.
pub fn convert_user_start(
    model: &SpectralModel,
    limits: &[ParameterLimits],
    physical: &[f64],
) -> std::result::Result<(Start, bool), SpectrumFault> {
    let mut u = Vec::with_capacity(physical.len());
    let mut is_clipped = false;
    for ((parameter, &value), limits) in model.parameters.iter().zip(physical).zip(limits) {
        let ParameterLimits { lower, upper, .. } = *limits;
        let name = &parameter.solver.name;
        if !value.is_finite() {
            return Err(SpectrumFault {
                cause: Cause::BadStart,
                detail: format!("{name} starts at {value}"),
            });
        }
        let is_outside = value < lower || value > upper;
        if is_outside && !model.clip_starts {
            return Err(SpectrumFault {
                cause: Cause::StartOutOfBounds,
                detail: format!("{name} starts at {value}, outside {lower} to {upper}"),
            });
        }
        is_clipped |= is_outside;
        u.push(parameter.to_u(value.clamp(lower, upper)));
    }
    Ok((Start { u, basin: 0 }, is_clipped))
}

/// Returns the parameters of a start in physical units.
pub fn to_physical(model: &SpectralModel, start: &Start) -> Vec<f64> {
    model
        .parameters
        .iter()
        .zip(&start.u)
        .map(|(parameter, u)| parameter.to_physical(*u))
        .collect()
}
