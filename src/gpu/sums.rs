//! The kernels that sum over pixels, a workgroup a member: `continuum` and `normal`.

use super::kernel::{Dispatch, Kernel};
use super::layout::Layout;
use super::source::Constants;
use crate::error::{Error, Result};
use crate::solver::recording::{Continuum, Normal, Recording};
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
    let mut unique = stage.columns.clone();
    unique.sort_unstable();
    unique.dedup();
    check("continuum terms", terms)?;
    check("parameters of an arm", unique.len())?;
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
    constants.unsigned("UNIQUE", unique.len());
    declare_tangents(constants, stage, &unique);
    declare_sums(constants, 1 + unique.len() + packed_length(unique.len()) + terms * unique.len());
    Ok(kernel)
}

/// Declares PARAMETER_OF and, for each parameter, the sum of its tangent rows at a pixel of row 0.
fn declare_tangents(constants: &mut Constants, stage: &Normal, unique: &[usize]) {
    let mut list: Vec<String> = unique.iter().map(|p| format!("{p}u")).collect();
    for (i, parameter) in unique.iter().enumerate() {
        let rows = stage.columns.iter().enumerate().filter(|(_, p)| *p == parameter);
        let terms: Vec<String> = rows.map(|(row, _)| format!("model[pixel + {}u]", (row + 1) * stage.pixels)).collect();
        constants.line(&format!("fn tangent_{i}(pixel: u32) -> f32 {{ return {}; }}", terms.join(" + ")));
    }
    if list.is_empty() {
        list.push("0u".to_owned());
    }
    constants.line(&format!("const PARAMETER_OF = array<u32, {}>({});", list.len(), list.join(", ")));
}
