//! Sums over pixels, as shared by the shaders that run one workgroup per member: `continuum`, `normal` and `estimate`.

use super::source::Constants;
use crate::error::{Error, Result};
use crate::math::triangle::packed_length;

/// Lanes of a workgroup; also in `shaders/shared/tree.wgsl`.
const LANES: usize = 64;
/// Sums that are brought together at a time.
const CHUNK: usize = 32;
/// Bytes of workgroup memory of every device: what WebGPU promises, and all that popfit asks for.
const WORKGROUP_MEMORY: usize = 16_384;
/// Most continuum terms and parameters of an arm: what the workgroup memory holds.
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
    if bytes_of(values) > WORKGROUP_MEMORY {
        let bytes = bytes_of(values);
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
        for first in (0..sums).step_by(CHUNK) {
            let count = CHUNK.min(sums - first);
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
const fn bytes_of(values: usize) -> usize {
    4 * (CHUNK * (LANES + 1) + values)
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
    let of_loss = if is_robust {
        of_refinement(terms) + terms + OF_LOSS
    } else {
        0
    };
    let totals = of_continuum(terms) + terms + of_normal(unique(columns).len(), terms) + of_loss;
    bytes_of(totals) as u32
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
    Ok(unique.len())
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
    fn the_largest_arms_have_room() {
        let largest: Vec<usize> = (0..MAX_SIZE).collect();
        let refined = Sweep {
            function: "b",
            sums: of_refinement(MAX_SIZE),
            kept: MAX_SIZE,
        };
        let continuum = || {
            [
                Sweep {
                    kept: MAX_SIZE,
                    ..sweep("a", of_continuum(MAX_SIZE))
                },
                Sweep { ..refined },
            ]
        };
        let normal = |kept| Sweep {
            kept,
            ..sweep("c", of_normal(MAX_SIZE, MAX_SIZE) + OF_LOSS)
        };
        let fails = |sweeps: &[Sweep]| {
            declare_sums(&mut Constants::default(), sweeps)
                .err()
                .map(|e| e.to_string())
        };
        assert_eq!(fails(&continuum()), None);
        assert_eq!(fails(&[normal(MAX_SIZE)]), None);
        let fused: Vec<Sweep> = continuum().into_iter().chain([normal(0)]).collect();
        let bytes = bytes_of(fused.iter().map(|sweep| sweep.sums + sweep.kept).sum());
        assert_eq!(bytes, workgroup_bytes(&largest, MAX_SIZE, true) as usize);
        let message = fails(&fused).unwrap();
        assert!(
            message.contains(&bytes.to_string()) && message.contains("16384"),
            "{message}"
        );
    }
}
