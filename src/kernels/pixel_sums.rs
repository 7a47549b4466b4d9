//! Sums over pixels, as shared by the shaders that run one workgroup per member: `continuum`, `normal` and `estimate`.

use super::source::Constants;
use crate::error::{Error, Result};
use crate::math::triangle::packed_length;

/// Number of lanes of a workgroup; also in `shaders/shared/tree.wgsl`.
const WORKGROUP_LANES: usize = 64;
/// Number of sums that are added up over the lanes at a time.
const SUMS_AT_A_TIME: usize = 32;
/// Number of bytes of workgroup memory that WebGPU guarantees on every device; popfit requests no more.
const WORKGROUP_MEMORY: usize = 16_384;
/// Maximum number of continuum terms, and of parameters, of an arm, by the size of the workgroup memory.
const MAX_SIZE: usize = 32;

/// A sweep over the pixels.
pub(super) struct Sweep {
    /// The WGSL function that adds up the sums over the lanes.
    pub function: &'static str,
    /// The number of its sums.
    pub sums: usize,
    /// The number of other values that it keeps in workgroup memory.
    pub kept: usize,
}

/// Adds the WGSL constants SUMS and TOTALS and, for each sweep over the pixels, a function that adds up its sums. A
/// function takes 32 sums at a time through workgroup memory.
///
/// # Errors
/// Returns [`Error::Model`] if the sums need more workgroup memory than a device has.
pub(super) fn declare_sums(constants: &mut Constants, sweeps: &[Sweep]) -> Result<()> {
    let values = sweeps.iter().map(|sweep| sweep.sums + sweep.kept).sum();
    if workgroup_bytes_of(values) > WORKGROUP_MEMORY {
        let bytes = workgroup_bytes_of(values);
        let message = format!(
            "sums over pixels take {bytes} bytes of a GPU's workgroup memory of {WORKGROUP_MEMORY}"
        );
        return Err(Error::model(format!(
            "{message}: fewer parameters or continuum terms, or the CPU, can do it"
        )));
    }
    constants.unsigned(
        "SUMS",
        sweeps.iter().map(|sweep| sweep.sums).max().unwrap_or(0),
    );
    let mut total = 0;
    for &Sweep {
        function: name,
        sums,
        ..
    } in sweeps
    {
        let mut body = String::new();
        for first in (0..sums).step_by(SUMS_AT_A_TIME) {
            let count = SUMS_AT_A_TIME.min(sums - first);
            for i in 0..count {
                body += &format!("scratch[{i}][lane] = sums[{}];\n", first + i);
            }
            body += &format!(
                "workgroupBarrier();\nfold(lane, {}u, {count}u);\nworkgroupBarrier();\n",
                total + first
            );
        }
        constants.line(&format!("fn {name}(lane: u32) {{\n{body}}}"));
        total += sums;
    }
    constants.unsigned("TOTALS", total);
    Ok(())
}

/// Returns how many bytes of workgroup memory so many totals and other values take, with the room to add them up.
const fn workgroup_bytes_of(values: usize) -> usize {
    4 * (SUMS_AT_A_TIME * (WORKGROUP_LANES + 1) + values)
}

/// Returns how many sums over pixels a continuum of this many terms needs.
pub(super) const fn count_continuum_sums(terms: usize) -> usize {
    packed_length(terms) + terms
}

/// Returns the number of sums over pixels of a continuum's Newton step under a robust loss, for this many terms.
pub(super) const fn count_refinement_sums(terms: usize) -> usize {
    terms + 2
}

/// Number of sums over pixels that a robust loss adds to those of the normal matrix.
pub(super) const LOSS_SUM_COUNT: usize = 4;

/// Returns how many sums over pixels χ², gradient and normal matrix need for so many parameters and continuum terms.
pub(super) const fn count_normal_sums(parameters: usize, terms: usize) -> usize {
    1 + parameters + packed_length(parameters) + terms * parameters
}

/// Returns how many bytes of workgroup memory a kernel needs for the sums of a continuum and of the normal matrix.
pub(super) fn workgroup_bytes(columns: &[usize], terms: usize, is_robust: bool) -> u32 {
    let continuum_values = count_continuum_sums(terms) + terms;
    let normal_sums = count_normal_sums(distinct_parameters(columns).len(), terms);
    let loss_values = if is_robust {
        count_refinement_sums(terms) + terms + LOSS_SUM_COUNT
    } else {
        0
    };
    workgroup_bytes_of(continuum_values + normal_sums + loss_values) as u32
}

/// Fails if `size`, the number of `what`, is larger than a GPU's workgroup has room for.
pub(super) fn check_size(what: &str, size: usize) -> Result<()> {
    if size > MAX_SIZE {
        return Err(Error::model(format!(
            "{size} {what}: a GPU takes at most {MAX_SIZE}"
        )));
    }
    Ok(())
}

/// Returns the distinct parameters of the tangent rows, in ascending order.
fn distinct_parameters(columns: &[usize]) -> Vec<usize> {
    let mut parameters = columns.to_vec();
    parameters.sort_unstable();
    parameters.dedup();
    parameters
}

/// Adds WGSL for the sum of each parameter's tangent rows at a pixel, and returns the number of parameters, UNIQUE. It
/// declares PARAMETER_OF, too.
pub(super) fn declare_tangents(constants: &mut Constants, columns: &[usize]) -> Result<usize> {
    let parameters = distinct_parameters(columns);
    check_size("parameters of an arm", parameters.len())?;
    constants.unsigned("UNIQUE", parameters.len());
    let mut list: Vec<String> = parameters.iter().map(|p| format!("{p}u")).collect();
    for (i, parameter) in parameters.iter().enumerate() {
        let rows = columns.iter().enumerate().filter(|(_, p)| *p == parameter);
        let terms: Vec<String> = rows
            .map(|(row, _)| format!("row_{}(place)", row + 1))
            .collect();
        constants.line(&format!(
            "fn tangent_{i}(place: Place) -> f32 {{ return {}; }}",
            terms.join(" + ")
        ));
    }
    if list.is_empty() {
        list.push("0u".to_owned());
    }
    constants.line(&format!(
        "const PARAMETER_OF = array<u32, {}>({});",
        list.len(),
        list.join(", ")
    ));
    Ok(parameters.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(function: &'static str, sums: usize) -> Sweep {
        Sweep {
            function,
            sums,
            kept: 0,
        }
    }

    /// The largest arms have room in workgroup memory, under a loss, too, in a kernel for the continuum and one for the
    /// normal matrix. One kernel for both takes more, which fusion asks for beforehand.
    #[test]
    fn the_largest_arms_fit_workgroup_memory_unless_fused() {
        let largest: Vec<usize> = (0..MAX_SIZE).collect();
        let continuum = [
            Sweep {
                kept: MAX_SIZE,
                ..sweep("a", count_continuum_sums(MAX_SIZE))
            },
            Sweep {
                kept: MAX_SIZE,
                ..sweep("b", count_refinement_sums(MAX_SIZE))
            },
        ];
        let normal_sums = count_normal_sums(MAX_SIZE, MAX_SIZE) + LOSS_SUM_COUNT;
        let normal = Sweep {
            kept: MAX_SIZE,
            ..sweep("c", normal_sums)
        };
        assert_eq!(error_message(&continuum), None);
        assert_eq!(error_message(&[normal]), None);
        let mut fused = Vec::from(continuum);
        fused.push(sweep("c", normal_sums));
        let bytes = workgroup_bytes_of(fused.iter().map(|sweep| sweep.sums + sweep.kept).sum());
        assert_eq!(bytes, workgroup_bytes(&largest, MAX_SIZE, true) as usize);
        let message = error_message(&fused).unwrap();
        assert!(
            message.contains(&bytes.to_string()) && message.contains("16384"),
            "{message}"
        );
    }

    /// Returns the message of the error if the sums of these sweeps have no room.
    fn error_message(sweeps: &[Sweep]) -> Option<String> {
        declare_sums(&mut Constants::default(), sweeps)
            .err()
            .map(|error| error.to_string())
    }
}
