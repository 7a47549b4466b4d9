//! From the stages of a recording to kernels: constants, bindings and dispatches.

use std::ops::Range;

use super::fusion::Task;
use super::kernel::{Dispatch, Kernel, Target};
use super::labels::{declare_label, slope_ratios};
use super::layout::Layout;
use super::observe;
use super::product::{self, Products};
use super::source::Constants;
use super::sums;
use crate::error::{Error, Result};
use crate::rows::Real;
use crate::solver::recording as rec;
use crate::solver::recording::{Activation, Recording, Stage};
use crate::solver::simplex::LANES;
use crate::solver::triangle::packed_length;
use crate::solver::{LevenbergMarquardt, Method, NelderMead};

macro_rules! kernel {
    ($stem:literal, $layout:expr, $dispatch:expr) => {
        Kernel::new($stem, include_str!(concat!("../../shaders/", $stem, ".wgsl")), $layout, $dispatch)
    };
}

/// The kernels of a round: one for each group of stages, `step` and `halve` or `simplex`, and `compact`.
pub(super) fn kernels(
    (recording, groups): (&Recording, &[Range<usize>]),
    layout: Layout,
    method: &Method,
    products: Products,
) -> Result<Vec<Kernel>> {
    let mut kernels = Vec::with_capacity(groups.len() + 3);
    for stages in groups {
        let stages = &recording.stages[stages.clone()];
        let Some(task) = Task::of(stages) else { return Err(Error::Model(format!("no kernel for {stages:?}"))) };
        kernels.push(kernel(recording, layout, task, products)?);
    }
    match method {
        Method::LevenbergMarquardt(settings) => kernels.extend([step(recording, layout, settings), halve(layout)]),
        Method::NelderMead(settings) => kernels.push(simplex(recording, layout, settings)),
    }
    let dispatches: Vec<Dispatch> = kernels.iter().map(|k| k.dispatch).collect();
    kernels.push(compact(layout, &dispatches));
    for kernel in &kernels {
        if let Some(message) = &kernel.constants.bad {
            return Err(Error::Model(format!("{}: {message}", kernel.stem)));
        }
    }
    Ok(kernels)
}

fn kernel(recording: &Recording, layout: Layout, task: Task<'_>, products: Products) -> Result<Kernel> {
    let stage = match task {
        Task::One(stage) => stage,
        Task::Layer(product, activate) => {
            let variant = products.of(recording, product);
            let mut kernel = product::kernel(recording, layout, product, (variant, true))?;
            declare_layer(&mut kernel, recording, activate);
            return Ok(kernel);
        }
        Task::Sums(resample, continuum, normal) => {
            return sums::normal(recording, layout, (resample, continuum), normal);
        }
    };
    match stage {
        Stage::Prior(stage) => prior(recording, layout, stage),
        Stage::Labels(stage) => Ok(labels(recording, layout, stage)),
        Stage::Product(stage) => product::kernel(recording, layout, stage, (products.of(recording, stage), false)),
        Stage::Narrow(stage) => Ok(narrow(recording, layout, stage)),
        Stage::Activate(stage) => Ok(activate(recording, layout, stage)),
        Stage::PerPixel(stage) => Ok(per_pixel(recording, layout, stage)),
        Stage::Broaden(stage) => observe::broaden(recording, layout, stage),
        Stage::Prefilter(stage) => observe::prefilter(recording, layout, stage),
        Stage::Resample(stage) => Ok(observe::resample(recording, layout, stage)),
        Stage::Resolve(stage) => Ok(observe::resolve(recording, layout, stage)),
        Stage::Continuum(stage) => sums::continuum(recording, layout, stage),
        Stage::Normal(stage) => sums::normal(recording, layout, (None, None), stage),
        Stage::Estimate(stage) => sums::estimate(recording, layout, stage),
        Stage::Custom(stage) => Ok(custom(recording, layout, stage)),
    }
}

fn prior(recording: &Recording, layout: Layout, stage: &rec::Prior) -> Result<Kernel> {
    let mut kernel = kernel!("prior", layout, Dispatch::MEMBERS);
    kernel.state(true);
    kernel.bind("limits", "f32", Target::Limits, false);
    kernel.bind("facets", "f32", Target::Table, false);
    if let Some(weights) = stage.weights {
        kernel.block(recording, "hull_weights", "f32", weights, false);
    }
    let constants = &mut kernel.constants;
    constants.unsigned("HULLS", stage.hulls.len());
    for (h, hull) in stage.hulls.iter().enumerate() {
        let axes = hull.labels.len();
        constants.unsigned(&format!("HULL_AXES_{h}"), axes);
        constants.unsigned(&format!("HULL_FACETS_{h}"), hull.facets.len() / (axes + 1));
        constants.unsigned(&format!("HULL_FIRST_{h}"), kernel.table.len());
        constants.line(&format!(
            "fn hull_weight_{h}(slot: u32) -> f32 {{ return hull_weights[hull_weights_base(0u, spectrum_of(slot)) + {h}u]; }}"
        ));
        kernel.table.extend(hull.facets.iter().map(|x| *x as f32));
        let (mut values, mut slopes) = (String::new(), String::new());
        for (a, label) in hull.labels.iter().enumerate() {
            declare_label(constants, &recording.parameters, label, &format!("hull_{h}_{a}"));
            values += &format!("let label_{a} = hull_{h}_{a}(slot); z[{a}] = label_{a}.x; slope[{a}] = label_{a}.y;\n");
            for (p, ratio) in slope_ratios(&recording.parameters, label) {
                let ratio = constants.literal(ratio);
                slopes += &format!("jacobian[{p}] += weight * facets[facet + {a}u] * slope[{a}] * {ratio};\n");
            }
        }
        let array = format!("ptr<function, array<f32, {axes}>>");
        constants.line(&format!("fn hull_labels_{h}(slot: u32, z: {array}, slope: {array}) {{\n{values}}}"));
        constants.line(&format!("fn hull_jacobian_{h}(facet: u32, weight: f32, slope: {array}) {{\n{slopes}}}"));
    }
    // llvmpipe ends all loops of an invocation after 65,535 iterations
    if kernel.table.len() > 50_000 {
        return Err(Error::Model(format!("training hulls of {} numbers are too large", kernel.table.len())));
    }
    Ok(kernel)
}

fn labels(recording: &Recording, layout: Layout, stage: &rec::Labels) -> Kernel {
    let mut kernel = kernel!("labels", layout, Dispatch::MEMBERS);
    kernel.state(false);
    kernel.block(recording, "output", "f32", stage.output, true);
    let rows = rec::tangents(&stage.inputs);
    let mut body = String::new();
    for (i, label) in stage.inputs.iter().enumerate() {
        declare_label(&mut kernel.constants, &recording.parameters, label, &format!("label_value_{i}"));
        body += &format!("let label_{i} = label_value_{i}(slot);\noutput[base + {i}u] = label_{i}.x;\n");
        for (p, ratio) in slope_ratios(&recording.parameters, label).into_iter().filter(|_| stage.derivatives) {
            let row = 1 + rows.iter().position(|q| *q == p).unwrap_or_default();
            let ratio = kernel.constants.literal(ratio);
            body += &format!("output[base + {}u] = label_{i}.y * {ratio};\n", row * stage.stride + i);
        }
    }
    kernel.constants.line(&format!("fn fill(slot: u32, base: u32) {{\n{body}}}"));
    kernel.constants.unsigned("ROWS", if stage.derivatives { 1 + rows.len() } else { 1 });
    kernel.constants.unsigned("STRIDE", stage.stride);
    kernel
}

fn declare_activation(constants: &mut Constants, activation: Activation) {
    let call = match activation {
        Activation::Silu => "silu(x)".to_owned(),
        Activation::LeakyRelu => "leaky_relu(x)".to_owned(),
        Activation::Relu => "relu(x)".to_owned(),
        Activation::Sigmoid => "logistic(x)".to_owned(),
        Activation::Tanh => "hyperbolic_tangent(x)".to_owned(),
        Activation::Gelu => "gelu(x)".to_owned(),
        Activation::Identity => "identity(x)".to_owned(),
        Activation::Exp { clip } => format!("exp_clipped(x, {})", constants.literal(clip.min(80.0))),
    };
    constants.line(&format!("fn activation(x: f32) -> vec2<f32> {{ return {call}; }}"));
}

fn activate(recording: &Recording, layout: Layout, stage: &rec::Activate) -> Kernel {
    let mut kernel = kernel!("activate", layout, Dispatch::pixels(stage.columns));
    kernel.block(recording, "rows", "f32", stage.buffer, true);
    declare_layer(&mut kernel, recording, stage);
    kernel.constants.unsigned("ROWS", stage.rows);
    kernel.constants.unsigned("COLUMNS", stage.columns);
    kernel
}

/// Binds and declares what `layer` needs.
fn declare_layer(kernel: &mut Kernel, recording: &Recording, stage: &rec::Activate) {
    kernel.uses.push("layer");
    kernel.block(recording, "bias", "f32", stage.bias, false);
    let (mut scale_text, mut offset_text) = ("1.0", "0.0");
    if let Some((scale, offset)) = stage.affine {
        kernel.block(recording, "scale", "f32", scale, false);
        kernel.block(recording, "offset", "f32", offset, false);
        (scale_text, offset_text) = ("scale[column]", "offset[column]");
    }
    kernel.constants.line(&format!("fn affine_scale(column: u32) -> f32 {{ return {scale_text}; }}"));
    kernel.constants.line(&format!("fn affine_offset(column: u32) -> f32 {{ return {offset_text}; }}"));
    declare_activation(&mut kernel.constants, stage.activation);
}

fn narrow(recording: &Recording, layout: Layout, stage: &rec::Narrow) -> Kernel {
    let mut kernel = kernel!("narrow", layout, Dispatch::pixels(stage.length / 2));
    kernel.block(recording, "input", "f32", stage.input, false);
    kernel.block(recording, "output", "u32", stage.output, true);
    kernel.constants.unsigned("PAIRS", stage.length / 2);
    kernel
}

fn per_pixel(recording: &Recording, layout: Layout, stage: &rec::PerPixel) -> Kernel {
    let mut kernel = kernel!("per_pixel", layout, Dispatch::pixels(stage.columns));
    kernel.block(recording, "input", "f32", stage.input, false);
    kernel.block(recording, "w0", "f32", stage.w0, false);
    kernel.block(recording, "b0", "f32", stage.b0, false);
    kernel.block(recording, "w1", "f32", stage.w1, false);
    kernel.block(recording, "b1", "f32", stage.b1, false);
    kernel.block(recording, "output", "f32", stage.output, true);
    declare_activation(&mut kernel.constants, stage.activation);
    kernel.constants.unsigned("ROWS", stage.rows);
    kernel.constants.unsigned("COLUMNS", stage.columns);
    kernel.constants.unsigned("INPUT_STRIDE", stage.input_stride);
    kernel.constants.unsigned("LABELS", stage.labels);
    kernel.constants.unsigned("HIDDEN", stage.hidden);
    kernel
}

pub(super) fn custom(recording: &Recording, layout: Layout, stage: &rec::Custom) -> Kernel {
    let mut kernel = kernel!("custom", layout, Dispatch::pixels(stage.pixels));
    kernel.state(false);
    kernel.block(recording, "predictor", "f32", stage.predictor, false);
    kernel.block(recording, "output", "f32", stage.output, true);
    let mut scale = "1.0";
    if let Some(id) = stage.scale {
        kernel.block(recording, "scale", "f32", id, false);
        scale = "scale[scale_base(position, spectrum) + p]";
    }
    if !stage.table.is_empty() {
        kernel.bind("table", "f32", Target::Table, false);
        kernel.table.extend_from_slice(&stage.table);
    }
    let constants = &mut kernel.constants;
    constants.unsigned("ROWS", stage.rows);
    constants.unsigned("PIXELS", stage.pixels);
    constants.line(&format!("fn scale_of(p: u32, position: u32, spectrum: u32) -> f32 {{ return {scale}; }}"));
    let each: Vec<String> = (0..stage.predictors).map(|d| format!("predictor[at + {d}u * PIXELS]")).collect();
    let (kind, value) = match stage.predictors {
        1 => ("f32".to_owned(), each.concat()),
        count => (format!("array<f32, {count}>"), format!("array<f32, {count}>({})", each.join(", "))),
    };
    constants.line(&format!("fn predictors_at(at: u32) -> {kind} {{ return {value}; }}"));
    kernel.user = Some((format!("model {}", stage.name), stage.wgsl.clone()));
    kernel
}

fn step(recording: &Recording, layout: Layout, settings: &LevenbergMarquardt) -> Kernel {
    let mut kernel = kernel!("step", layout, Dispatch::MEMBERS);
    kernel.state(true);
    kernel.bind("control", "i32", Target::Control, true);
    kernel.bind("limits", "f32", Target::Limits, false);
    let constants = &mut kernel.constants;
    constants.unsigned("TRIANGLE", packed_length(layout.parameters));
    constants.line(&format!("const TRUSTS_STEPS: bool = {};", recording.trusts_steps()));
    constants.float("FTOL", settings.ftol);
    constants.float("XTOL", settings.xtol);
    constants.float("GTOL", settings.gtol);
    constants.float("DIAGONAL_FLOOR", settings.diagonal_floor);
    constants.float("LARGEST_STEP", settings.largest_step);
    constants.signed("MAX_ROUNDS", i32::try_from(settings.max_rounds).unwrap_or(i32::MAX));
    constants.signed("MAX_REJECTIONS", i32::try_from(settings.max_rejections).unwrap_or(i32::MAX));
    kernel
}

fn simplex(recording: &Recording, layout: Layout, settings: &NelderMead) -> Kernel {
    let mut kernel = kernel!("simplex", layout, Dispatch { denominator: 64 * LANES as u32, ..Dispatch::MEMBERS });
    kernel.state(true);
    kernel.bind("control", "i32", Target::Control, true);
    kernel.bind("limits", "f32", Target::Limits, false);
    kernel.bind("simplices", "f32", Target::Simplices, true);
    let constants = &mut kernel.constants;
    let (fatol, relative) = settings.tolerances(recording.dof, f32::SIMPLEX_NOISE);
    constants.float("FATOL", fatol);
    constants.float("RELATIVE", relative);
    constants.float("SIZE", settings.size);
    constants.float("MARGINALISE", f64::from(u8::from(recording.marginalise)));
    constants.signed("MAX_ROUNDS", i32::try_from(settings.max_rounds).unwrap_or(i32::MAX));
    constants.signed("MAX_RESTARTS", i32::try_from(settings.max_restarts).unwrap_or(i32::MAX));
    kernel
}

fn halve(layout: Layout) -> Kernel {
    let mut kernel = kernel!("halve", layout, Dispatch { of_all: true, ..Dispatch::MEMBERS });
    kernel.state(false);
    kernel.bind("control", "i32", Target::Control, true);
    kernel
}

fn compact(layout: Layout, dispatches: &[Dispatch]) -> Kernel {
    let mut kernel = kernel!("compact", layout, Dispatch::WORKGROUPS);
    kernel.bind("control", "i32", Target::Control, true);
    kernel.bind("arguments", "u32", Target::Arguments, true);
    kernel.constants.unsigned("STAGES", dispatches.len());
    for (i, dispatch) in dispatches.iter().enumerate() {
        kernel.constants.unsigned(&format!("NUMERATOR_{i}"), dispatch.numerator as usize);
        kernel.constants.unsigned(&format!("DENOMINATOR_{i}"), dispatch.denominator as usize);
        kernel.constants.line(&format!("const OF_ALL_{i}: bool = {};", dispatch.of_all));
    }
    kernel
}
