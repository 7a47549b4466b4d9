//! Sums over pixels, as shared by the shaders that run one workgroup per member: `continuum`, `normal` and `estimate`.

use super::source::Constants;
use crate::error::{Error, Result};
use crate::math::triangle::packed_length;

/// Lanes of a workgroup; also in `shaders/shared/tree.wgsl`.
const LANES: usize = 64;
/// Sums that are brought together at a time.
const CHUNK: usize = 32;
/// Most continuum terms and parameters of an arm: what 16 KiB of workgroup memory hold.
const MAX_SIZE: usize = 32;

/// A sweep over the pixels: the number of its sums, and the name of the WGSL function that adds them up over the lanes.
pub(super) struct Sweep {
    pub function: &'static str,
    pub sums: usize,
}

/// Adds the WGSL constants SUMS and TOTALS and, for each sweep over the pixels, a function that adds up its sums. A
/// function takes 32 sums at a time through workgroup memory.
pub(super) fn declare_sums(constants: &mut Constants, sweeps: &[Sweep]) {
    constants.unsigned("SUMS", sweeps.iter().map(|sweep| sweep.sums).max().unwrap_or(0));
    let mut total = 0;
    for &Sweep { function: name, sums } in sweeps {
        let mut body = String::new();
        for first in (0..sums).step_by(CHUNK) {
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

/// Returns how many sums over pixels a continuum of this many terms needs.
pub(super) const fn of_continuum(terms: usize) -> usize {
    packed_length(terms) + terms
}

/// Returns the number of sums over pixels of a continuum's Newton step under a robust loss, for this many terms.
pub(super) const fn of_refinement(terms: usize) -> usize {
    terms + 2
}

/// Number of sums over pixels that a robust loss adds to those of the normal matrix.
pub(super) const OF_LOSS: usize = 4;

/// Returns how many sums over pixels χ², gradient and normal matrix need for so many parameters and continuum terms.
pub(super) const fn of_normal(parameters: usize, terms: usize) -> usize {
    1 + parameters + packed_length(parameters) + terms * parameters
}

/// Returns how many bytes of workgroup memory a kernel needs for the sums of a continuum and of the normal matrix.
pub(super) fn workgroup_bytes(columns: &[usize], terms: usize, is_robust: bool) -> u32 {
    let of_loss = if is_robust { of_refinement(terms) + terms + OF_LOSS } else { 0 };
    let totals = of_continuum(terms) + of_normal(unique(columns).len(), terms) + of_loss;
    4 * (CHUNK * (LANES + 1) + totals) as u32
}

/// Fails if `size`, the number of `what`, is larger than a GPU's workgroup has room for.
pub(super) fn check_size(what: &str, size: usize) -> Result<()> {
    if size > MAX_SIZE {
        return Err(Error::Model(format!("{size} {what}: a GPU takes at most {MAX_SIZE}")));
    }
    Ok(())
}

/// Returns the distinct parameters of the tangent rows, in ascending order.
fn unique(columns: &[usize]) -> Vec<usize> {
    let mut unique = columns.to_vec();
    unique.sort_unstable();
    unique.dedup();
    unique
}

/// Adds WGSL for the sum of each parameter's tangent rows at a pixel, and returns the number of parameters, UNIQUE. It
/// declares PARAMETER_OF, too.
pub(super) fn declare_tangents(constants: &mut Constants, columns: &[usize]) -> Result<usize> {
    let unique = unique(columns);
    check_size("parameters of an arm", unique.len())?;
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
