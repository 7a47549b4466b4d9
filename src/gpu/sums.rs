//! The kernels that sum over pixels, a workgroup a member: `continuum`, `normal` and `estimate`.

use super::kernel::{Dispatch, Kernel};
use super::layout::Layout;
use super::observe::{Rows, declare_rows};
use super::source::Constants;
use crate::error::{Error, Result};
use crate::solver::Estimator;
use crate::solver::recording::{Basis, Continuum, Estimate, Normal, Recording, Resample};
use crate::solver::triangle::packed_length;

/// Lanes of a workgroup; also in `shaders/shared/tree.wgsl`.
const LANES: usize = 64;
/// Sums that are brought together at a time.
const CHUNK: usize = 32;
/// Most continuum terms and parameters of an arm: what 16 KiB of workgroup memory hold.
const MAX_SIZE: usize = 32;

/// Declares SUMS and TOTALS for sweeps over the pixels, and for each its function: 32 sums at a time through workgroup memory.
fn declare_sums(constants: &mut Constants, sweeps: &[(&str, usize)]) {
    constants.unsigned("SUMS", sweeps.iter().map(|(_, sums)| *sums).max().unwrap_or(0));
    let mut total = 0;
    for (name, sums) in sweeps {
        let mut body = String::new();
        for first in (0..*sums).step_by(CHUNK) {
            let count = CHUNK.min(sums - first);
            for i in 0..count {
                body += &format!("scratch[{}u + lane] = sums[{}];\n", i * (LANES + 1), first + i);
            }
            body += &format!("workgroupBarrier();\nfold(lane, {}u, {count}u);\nworkgroupBarrier();\n", total + first);
        }
        constants.line(&format!("fn {name}(lane: u32) {{\n{body}}}"));
        total += sums;
    }
    constants.unsigned("TOTALS", total);
}

/// The sums of `continuum`.
const fn of_continuum(terms: usize) -> usize {
    packed_length(terms) + terms
}

/// Those of `normal`, for so many parameters.
const fn of_normal(parameters: usize, terms: usize) -> usize {
    1 + parameters + packed_length(parameters) + terms * parameters
}

/// What both sweeps of one kernel need.
pub(super) fn workgroup_bytes(continuum: Option<&Continuum>, normal: &Normal) -> u32 {
    let terms = continuum.map_or(0, |continuum| continuum.basis.terms);
    let totals = of_continuum(terms) + of_normal(unique(&normal.columns).len(), terms);
    4 * (CHUNK * (LANES + 1) + totals) as u32
}

fn check(what: &str, size: usize) -> Result<()> {
    if size > MAX_SIZE {
        return Err(Error::Model(format!("{size} {what}: a GPU takes at most {MAX_SIZE}")));
    }
    Ok(())
}

fn bind_basis(kernel: &mut Kernel, recording: &Recording, basis: &Basis) {
    kernel.block(recording, "basis", "f32", basis.basis, false);
    kernel.block(recording, "transform", "f32", basis.transform, false);
}

pub(super) fn continuum(recording: &Recording, layout: Layout, stage: &Continuum) -> Result<Kernel> {
    let text = include_str!("../../shaders/continuum.wgsl");
    let terms = stage.basis.terms;
    check("continuum terms", terms)?;
    let mut kernel = Kernel::new("continuum", text, layout, Dispatch::WORKGROUPS);
    kernel.state(true);
    declare_rows(&mut kernel, recording, Rows::Stored { buffer: stage.model, rows: 1, pixels: stage.pixels });
    kernel.block(recording, "pixel_data", "f32", stage.data, false);
    kernel.block(recording, "weight", "f32", stage.weight, false);
    bind_basis(&mut kernel, recording, &stage.basis);
    kernel.block(recording, "solution", "f32", stage.solution, true);
    kernel.constants.unsigned("PIXELS", stage.pixels);
    kernel.constants.unsigned("TERMS", terms);
    kernel.constants.unsigned("TRIANGLE", packed_length(terms));
    declare_sums(&mut kernel.constants, &[("reduce_continuum_sums", of_continuum(terms))]);
    Ok(kernel)
}

/// Alone, or with the stages before it.
pub(super) fn normal(
    recording: &Recording,
    layout: Layout,
    (resample, continuum): (Option<&Resample>, Option<&Continuum>),
    stage: &Normal,
) -> Result<Kernel> {
    let text = include_str!("../../shaders/normal.wgsl");
    let terms = stage.continuum.map_or(0, |(basis, _)| basis.terms);
    check("continuum terms", terms)?;
    let mut kernel = Kernel::new("normal", text, layout, Dispatch::WORKGROUPS);
    kernel.state(true);
    let rows = 1 + stage.columns.len();
    let stored = Rows::Stored { buffer: stage.model, rows, pixels: stage.pixels };
    declare_rows(&mut kernel, recording, resample.map_or(stored, Rows::Resampled));
    kernel.block(recording, "pixel_data", "f32", stage.data, false);
    kernel.block(recording, "weight", "f32", stage.weight, false);
    kernel.uses.extend(["members", "state", "math"]);
    if let Some((basis, solution)) = stage.continuum {
        bind_basis(&mut kernel, recording, &basis);
        if continuum.is_none() {
            kernel.block(recording, "solution", "f32", solution, false);
        }
    }
    kernel.uses.push(match (stage.continuum, continuum) {
        (None, _) => "no_continuum",
        (_, None) => "projection",
        (_, Some(_)) => "elimination_first",
    });
    let constants = &mut kernel.constants;
    constants.unsigned("PIXELS", stage.pixels);
    constants.unsigned("TERMS", terms);
    constants.unsigned("TRIANGLE", packed_length(terms));
    let count = declare_tangents(constants, &stage.columns)?;
    let first = if continuum.is_some() { of_continuum(terms) } else { 0 };
    constants.unsigned("FIRST", first);
    let sweeps = [("reduce_continuum_sums", first), ("reduce_sums", of_normal(count, terms))];
    declare_sums(constants, &sweeps[usize::from(continuum.is_none())..]);
    Ok(kernel)
}

pub(super) fn estimate(recording: &Recording, layout: Layout, stage: &Estimate) -> Result<Kernel> {
    let text = include_str!("../../shaders/estimate.wgsl");
    let mut kernel = Kernel::new("estimate", text, layout, Dispatch::WORKGROUPS);
    kernel.state(true);
    let rows = 1 + stage.columns.len();
    declare_rows(&mut kernel, recording, Rows::Stored { buffer: stage.model, rows, pixels: stage.pixels });
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
        Estimator::Cost => "vec3<f32>(m, -0.5, 1.0)",
        Estimator::Arctan(_) => "robust(d - w * m, w, arctan(loss_argument(d - w * m)))",
    };
    constants.line(&format!("fn share_of(d: f32, w: f32, m: f32) -> vec3<f32> {{ return {share}; }}"));
    constants.unsigned("PIXELS", stage.pixels);
    let count = declare_tangents(constants, &stage.columns)?;
    declare_sums(constants, &[("reduce_sums", of_normal(count, 0))]);
    Ok(kernel)
}

/// The parameters of the tangent rows, each once.
fn unique(columns: &[usize]) -> Vec<usize> {
    let mut unique = columns.to_vec();
    unique.sort_unstable();
    unique.dedup();
    unique
}

/// Declares UNIQUE, PARAMETER_OF and, for each parameter, the sum of its tangent rows at a pixel. Returns UNIQUE.
fn declare_tangents(constants: &mut Constants, columns: &[usize]) -> Result<usize> {
    let unique = unique(columns);
    check("parameters of an arm", unique.len())?;
    constants.unsigned("UNIQUE", unique.len());
    let mut list: Vec<String> = unique.iter().map(|p| format!("{p}u")).collect();
    for (i, parameter) in unique.iter().enumerate() {
        let rows = columns.iter().enumerate().filter(|(_, p)| *p == parameter);
        let terms: Vec<String> = rows.map(|(row, _)| format!("row_{}(place)", row + 1)).collect();
        constants.line(&format!("fn tangent_{i}(place: Place) -> f32 {{ return {}; }}", terms.join(" + ")));
    }
    if list.is_empty() {
        list.push("0u".to_owned());
    }
    constants.line(&format!("const PARAMETER_OF = array<u32, {}>({});", list.len(), list.join(", ")));
    Ok(unique.len())
}
