//! Conversion of starts between physical units and those of the solver.

use crate::first_guess::Start;
use crate::model::{Cause, Fault, Limits, SpectralModel};

/// Converts a user's start from physical to the solver's units; returns whether it was clipped to the bounds, or its
/// fault.
pub fn given(
    model: &SpectralModel,
    limits: &[Limits],
    physical: &[f64],
) -> std::result::Result<(Start, bool), Fault> {
    let mut u = Vec::with_capacity(physical.len());
    let mut clipped = false;
    for ((parameter, &x), &Limits { lower, upper, .. }) in
        model.parameters.iter().zip(physical).zip(limits)
    {
        let name = &parameter.solver.name;
        if !x.is_finite() {
            return Err(Fault {
                cause: Cause::BadStart,
                detail: format!("{name} starts at {x}"),
            });
        }
        let outside = x < lower || x > upper;
        if outside && !model.clip_starts {
            let detail = format!("{name} starts at {x}, outside {lower} to {upper}");
            return Err(Fault {
                cause: Cause::StartOutOfBounds,
                detail,
            });
        }
        clipped |= outside;
        u.push(parameter.to_u(x.clamp(lower, upper)));
    }
    Ok((Start { u, basin: 0 }, clipped))
}

/// Returns the parameters of a start in physical units.
pub fn physical(model: &SpectralModel, start: &Start) -> Vec<f64> {
    model
        .parameters
        .iter()
        .zip(&start.u)
        .map(|(p, u)| p.to_physical(*u))
        .collect()
}
