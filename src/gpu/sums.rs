//! The kernels that sum over pixels, a workgroup a member: `continuum`, `normal` and `estimate`.

use super::kernel::{Dispatch, Kernel};
use super::layout::Layout;
use super::source::Constants;
use crate::error::{Error, Result};
use crate::solver::Estimator;
use crate::solver::recording::{Continuum, Estimate, Normal, Recording};
use crate::solver::triangle::packed_length;

/// Lanes of a workgroup; also in `shaders/shared/tree.wgsl`.
const LANES: usize = 64;
/// Sums that are brought together at a time.
const CHUNK: usize = 32;
/// Most continuum terms and parameters of an arm: what 16 KiB of workgroup memory hold.
const MAX_SIZE: usize = 32;

/// Declares SUMS and `reduce_sums`: 32 sums at a time through workgroup memory.
fn declare_sums(constants: &mut Constants, sums: usize) {
    constants.unsigned("SUMS", sums);
    let mut body = String::new();
    for first in (0..sums).step_by(CHUNK) {
        let count = CHUNK.min(sums - first);
        for i in 0..count {
            body += &format!("scratch[{}u + lane] = sums[{}];\n", i * (LANES + 1), first + i);
        }
        body += &format!("workgroupBarrier();\nfold(lane, {first}u, {count}u);\nworkgroupBarrier();\n");
    }
    constants.line(&format!("fn reduce_sums(lane: u32) {{\n{body}}}"));
}

fn check(what: &str, size: usize) -> Result<()> {
    if size > MAX_SIZE {
        return Err(Error::Model(format!("{size} {what}: a GPU takes at most {MAX_SIZE}")));
    }
    Ok(())
}

pub(super) fn continuum(recording: &Recording, layout: Layout, stage: &Continuum) -> Result<Kernel> {
    let text = include_str!("../../shaders/continuum.wgsl");
    let terms = stage.basis.terms;
    check("continuum terms", terms)?;
    let mut kernel = Kernel::new("continuum", text, layout, Dispatch::WORKGROUPS);
    kernel.state(true);
    kernel.block(recording, "model", "f32", stage.model, false);
    kernel.block(recording, "pixel_data", "f32", stage.data, false);
    kernel.block(recording, "weight", "f32", stage.weight, false);
    kernel.block(recording, "basis", "f32", stage.basis.basis, false);
    kernel.block(recording, "transform", "f32", stage.basis.transform, false);
    kernel.block(recording, "solution", "f32", stage.solution, true);
    kernel.constants.unsigned("PIXELS", stage.pixels);
    kernel.constants.unsigned("TERMS", terms);
    kernel.constants.unsigned("TRIANGLE", packed_length(terms));
    declare_sums(&mut kernel.constants, packed_length(terms) + terms);
    Ok(kernel)
}

pub(super) fn normal(recording: &Recording, layout: Layout, stage: &Normal) -> Result<Kernel> {
    let text = include_str!("../../shaders/normal.wgsl");
    let terms = stage.continuum.map_or(0, |(basis, _)| basis.terms);
    check("continuum terms", terms)?;
    let mut kernel = Kernel::new("normal", text, layout, Dispatch::WORKGROUPS);
    kernel.state(true);
    kernel.block(recording, "model", "f32", stage.model, false);
    kernel.block(recording, "pixel_data", "f32", stage.data, false);
    kernel.block(recording, "weight", "f32", stage.weight, false);
    match stage.continuum {
        Some((basis, solution)) => {
            kernel.uses.extend(["members", "state", "math", "projection"]);
            kernel.block(recording, "basis", "f32", basis.basis, false);
            kernel.block(recording, "transform", "f32", basis.transform, false);
            kernel.block(recording, "solution", "f32", solution, false);
        }
        None => kernel.uses.push("no_continuum"),
    }
    let constants = &mut kernel.constants;
    constants.unsigned("PIXELS", stage.pixels);
    constants.unsigned("TERMS", terms);
    let count = declare_tangents(constants, &stage.columns, stage.pixels)?;
    declare_sums(constants, 1 + count + packed_length(count) + terms * count);
    Ok(kernel)
}

pub(super) fn estimate(recording: &Recording, layout: Layout, stage: &Estimate) -> Result<Kernel> {
    let text = include_str!("../../shaders/estimate.wgsl");
    let mut kernel = Kernel::new("estimate", text, layout, Dispatch::WORKGROUPS);
    kernel.state(true);
    kernel.block(recording, "model", "f32", stage.model, false);
    kernel.block(recording, "pixel_data", "f32", stage.data, false);
    kernel.block(recording, "weight", "f32", stage.weight, false);
    let constants = &mut kernel.constants;
    constants.float("LOSS_SCALE", stage.estimator.scale().unwrap_or(1.0));
    let share = match stage.estimator {
        Estimator::LeastSquares => "vec3<f32>((d - w * m) * (d - w * m), d - w * m, w)",
        Estimator::Poisson => "poisson(d, w, m)",
        Estimator::Huber(_) => "robust(d - w * m, w, huber(loss_argument(d - w * m)))",
        Estimator::SoftL1(_) => "robust(d - w * m, w, soft_l1(loss_argument(d - w * m)))",
        Estimator::Cauchy(_) => "robust(d - w * m, w, cauchy(loss_argument(d - w * m)))",
        Estimator::Arctan(_) => "robust(d - w * m, w, arctan(loss_argument(d - w * m)))",
    };
    constants.line(&format!("fn share_of(d: f32, w: f32, m: f32) -> vec3<f32> {{ return {share}; }}"));
    constants.unsigned("PIXELS", stage.pixels);
    let count = declare_tangents(constants, &stage.columns, stage.pixels)?;
    declare_sums(constants, 1 + count + packed_length(count));
    Ok(kernel)
}

/// Declares UNIQUE, PARAMETER_OF and, for each parameter, the sum of its tangent rows at a pixel of row 0. Returns UNIQUE.
fn declare_tangents(constants: &mut Constants, columns: &[usize], pixels: usize) -> Result<usize> {
    let mut unique = columns.to_vec();
    unique.sort_unstable();
    unique.dedup();
    check("parameters of an arm", unique.len())?;
    constants.unsigned("UNIQUE", unique.len());
    let mut list: Vec<String> = unique.iter().map(|p| format!("{p}u")).collect();
    for (i, parameter) in unique.iter().enumerate() {
        let rows = columns.iter().enumerate().filter(|(_, p)| *p == parameter);
        let terms: Vec<String> = rows.map(|(row, _)| format!("model[pixel + {}u]", (row + 1) * pixels)).collect();
        constants.line(&format!("fn tangent_{i}(pixel: u32) -> f32 {{ return {}; }}", terms.join(" + ")));
    }
    if list.is_empty() {
        list.push("0u".to_owned());
    }
    constants.line(&format!("const PARAMETER_OF = array<u32, {}>({});", list.len(), list.join(", ")));
    Ok(unique.len())
}
