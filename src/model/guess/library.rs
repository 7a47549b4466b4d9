//! Where the library's templates lie: Sobol points inside the bounds and the training hulls.

use crate::error::{Error, Result};
use crate::model::{ModelArm, ModelParameter, SpectralModel};
use crate::solver::recording::{LabelInput, Source, Transform, Velocity};

/// Templates in the library.
const TEMPLATES: usize = 256;
/// Doublings of the number of Sobol points that are tried before the hull counts as unreachable.
const SOBOL_ATTEMPTS: u32 = 1 << 16;

/// Labels of an emulator at u.
pub fn physical_labels(model: &SpectralModel, arm: &ModelArm, u: &[f64]) -> Vec<f64> {
    let value = |input: &LabelInput| match input.source {
        Source::Fixed(x) => x,
        Source::Parameter(p) => model.parameters[p].to_physical(u[p]),
    };
    arm.inputs.iter().map(value).collect()
}

/// Sobol points (Owen-scrambled) of the labels that have no start, inside the bounds and every hull; in u.
pub fn library(model: &SpectralModel, seed: u64) -> Result<Vec<Vec<f64>>> {
    let open = |p: usize| {
        let parameter = &model.parameters[p];
        model.velocity != Velocity::Parameter(p) && parameter.start.is_none() && !parameter.is_held()
    };
    let dimensions: Vec<usize> = (0..model.parameters.len()).filter(|&p| open(p)).collect();
    let wanted = if dimensions.is_empty() { 1 } else { TEMPLATES };
    let mut points = Vec::with_capacity(wanted);
    for index in 0..SOBOL_ATTEMPTS {
        let mut u: Vec<f64> =
            model.parameters.iter().map(|p| p.to_u(p.start.unwrap_or(p.lower).clamp(p.lower, p.upper))).collect();
        for (dimension, &p) in dimensions.iter().enumerate() {
            let at = f64::from(sobol_burley::sample(index, dimension as u32, seed as u32));
            u[p] = along(&model.parameters[p], arm_transform(model, p), at);
        }
        let inside =
            |arm: &ModelArm| arm.emulator.outside(&arm.emulator.scaled(&physical_labels(model, arm, &u))) <= 0.0;
        if dimensions.is_empty() || model.arms.iter().all(inside) {
            points.push(u);
        }
        if points.len() == wanted {
            return Ok(points);
        }
    }
    if points.is_empty() {
        return Err(Error::Model("no point inside the labels' bounds lies inside the training hulls".into()));
    }
    Ok(points)
}

fn arm_transform(model: &SpectralModel, parameter: usize) -> Transform {
    let inputs = model.arms.iter().flat_map(|arm| &arm.inputs);
    inputs
        .filter(|i| i.source == Source::Parameter(parameter))
        .map(|i| i.transform)
        .next()
        .unwrap_or(Transform::Identity)
}

/// The point at a fraction of the way between the bounds, even in the label's own scale.
fn along(parameter: &ModelParameter, transform: Transform, at: f64) -> f64 {
    let physical = match transform {
        Transform::Identity => parameter.lower + (parameter.upper - parameter.lower) * at,
        Transform::Log10 => parameter.lower * (parameter.upper / parameter.lower).powf(at),
    };
    parameter.to_u(physical)
}
