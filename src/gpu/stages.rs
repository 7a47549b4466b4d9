//! The shaders of a round: one for each group of stages, and those that move the population.

use std::ops::Range;

use super::fusion::FusedStages;
use super::layout::Layout;
use super::step_constants::{declare_finishing, declare_step};
use super::transfer;
use crate::error::{Error, Result};
use crate::kernels::Kernel;
use crate::kernels::product::{self, Products};
use crate::kernels::shader::{BindingTarget, Dispatch, Shader, ShaderContext};
use crate::math::Real;
use crate::math::triangle::packed_length;
use crate::recording::Recording;
use crate::solver::{LevenbergMarquardt, Tolerances};

/// Maximum number of parameters of a step whose loops are unrolled, so that a member's numbers are in registers.
const MAX_UNROLLED_PARAMETERS: usize = 8;

/// Returns the shaders of a round: one for each group of stages, `step`, `halve`, and `compact`.
pub(super) fn round_shaders(
    recording: &Recording,
    stage_groups: &[Range<usize>],
    layout: Layout,
    settings: &LevenbergMarquardt,
    products: Products,
) -> Result<Vec<Shader>> {
    let context = &ShaderContext {
        declared: recording.declared(),
        layout: layout.shader_constants(),
        products,
    };
    // 1. The stages.
    let mut shaders = Vec::with_capacity(stage_groups.len() + 3);
    for group in stage_groups {
        let stages = &recording.stages[group.clone()];
        let Some(fused_stages) = FusedStages::from_stages(stages) else {
            return Err(Error::model(format!("no kernel for {stages:?}")));
        };
        shaders.push(fused_stages.make_shader(context)?);
    }
    // 2. The kernels that move members, and `compact`, which sets the sizes of all dispatches before it.
    shaders.extend([
        step_shader(context, recording, settings),
        halve_shader(context),
    ]);
    let dispatches: Vec<Dispatch> = shaders.iter().map(|shader| shader.dispatch).collect();
    shaders.push(compact_shader(context, &dispatches));
    // 3. Fail if a constant has no value in WGSL.
    for shader in &shaders {
        if let Some(message) = &shader.constants.bad {
            return Err(Error::model(format!("{}: {message}", shader.stem)));
        }
    }
    Ok(shaders)
}

impl FusedStages<'_> {
    /// Returns the shader that runs one stage, or several fused into one kernel.
    fn make_shader(self, context: &ShaderContext<'_>) -> Result<Shader> {
        match self {
            FusedStages::Single(stage) => stage.shader(context),
            FusedStages::Point(prior, labels) => {
                let mut shader = prior.shader(context)?;
                shader.constants.unsigned("LABELLED", 1);
                labels.declare_rows(&mut shader, context);
                Ok(shader)
            }
            FusedStages::Layers(layers) => match layers[..] {
                [(product, activate)] => {
                    let mut shader = product.product_shader(context, true)?;
                    activate.declare_layer(&mut shader, context, "");
                    Ok(shader)
                }
                _ => Ok(product::chain_shader(&layers, context)),
            },
            FusedStages::Sums(resample, continuum, normal) => {
                normal.fused_shader(context, resample, continuum)
            }
        }
    }
}

/// Returns the shader that judges each member's trial point and takes its next Levenberg–Marquardt step.
fn step_shader(
    context: &ShaderContext<'_>,
    recording: &Recording,
    settings: &LevenbergMarquardt,
) -> Shader {
    let mut shader = context.start_shader(
        "step",
        include_str!("../../shaders/step.wgsl"),
        Dispatch::MEMBERS,
    );
    shader.bind_state(true);
    shader.bind("control", "i32", BindingTarget::Control, true);
    shader.bind("limits", "f32", BindingTarget::Limits, false);
    let constants = &mut shader.constants;
    let parameters = recording.parameters.len();
    constants.keeps_loops =
        context.products.is_for_software() || parameters > MAX_UNROLLED_PARAMETERS;
    constants.unsigned("TRIANGLE", packed_length(parameters));
    constants.line(&format!(
        "const TRUSTS_STEPS: bool = {};",
        recording.trusts_steps()
    ));
    let tolerances = Tolerances::of_members(settings, recording.caps_cost, f32::COST_NOISE);
    constants.float("FTOL", tolerances.reduction);
    constants.float(
        "LARGEST_COST",
        tolerances.largest_cost.min(f64::from(f32::MAX)),
    );
    constants.float("NEAR", tolerances.squared_distance.min(f64::from(f32::MAX)));
    constants.float("XTOL", tolerances.step);
    declare_step(constants, settings, &tolerances);
    declare_finishing(constants);
    shader
}

/// Returns the shader that stops or pauses starts whose spectrum has a better one.
fn halve_shader(context: &ShaderContext<'_>) -> Shader {
    let mut shader = context.start_shader(
        "halve",
        include_str!("../../shaders/halve.wgsl"),
        Dispatch {
            of_all: true,
            ..Dispatch::MEMBERS
        },
    );
    shader.bind_state(false);
    shader.bind("control", "i32", BindingTarget::Control, true);
    shader
}

/// Returns the shaders that put members into their slots, and that collect them.
pub(super) fn transfer_shaders(
    recording: &Recording,
    layout: Layout,
    products: Products,
) -> [Shader; 2] {
    let context = &ShaderContext {
        declared: recording.declared(),
        layout: layout.shader_constants(),
        products,
    };
    [true, false].map(|enters| transfer::transfer_shader(context, layout, enters))
}

/// Returns the shader that lists active members first and sets the numbers of workgroups of the next dispatches.
fn compact_shader(context: &ShaderContext<'_>, dispatches: &[Dispatch]) -> Shader {
    let mut shader = context.start_shader(
        "compact",
        include_str!("../../shaders/compact.wgsl"),
        Dispatch::WORKGROUPS,
    );
    shader.bind("control", "i32", BindingTarget::Control, true);
    shader.bind("arguments", "u32", BindingTarget::Arguments, true);
    shader.constants.unsigned("STAGES", dispatches.len());
    for (i, dispatch) in dispatches.iter().enumerate() {
        shader
            .constants
            .unsigned(&format!("NUMERATOR_{i}"), dispatch.numerator as usize);
        shader
            .constants
            .unsigned(&format!("DENOMINATOR_{i}"), dispatch.denominator as usize);
        shader
            .constants
            .line(&format!("const OF_ALL_{i}: bool = {};", dispatch.of_all));
    }
    shader
}
