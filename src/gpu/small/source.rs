//! The WGSL text of small fits: `shaders/small.wgsl` with the sizes, thresholds and functions of one model.

use super::super::layout::declare_statuses;
use super::super::step_constants::{declare_ends, declare_step};
use crate::error::{Error, Result};
use crate::kernels::source::{Constants, UserCode, WgslSource};
use crate::solver::small::packing::{
    FITS_PER_BLOCK as BLOCK, MAX_PACKED_ROUNDS, Packing, ROUNDS_SHIFT, SURE,
};
use crate::solver::small::{Shape, SmallProblem};
use crate::solver::thresholds::{LEAST_XTOL, LEGS_PER_PARAMETER};
use crate::solver::{LevenbergMarquardt, Status};

/// Number of bytes of workgroup memory that every device has.
const WORKGROUP_BYTES: usize = 16_384;
/// Maximum number of fits per workgroup.
const MAX_FITS_PER_WORKGROUP: usize = 64;
/// Maximum number of loop iterations of an invocation, with a margin. Software adapters allow 65,535 in all its loops.
const MAX_ITERATIONS: usize = 60_000;
/// Ratio of the rounding errors of values on a GPU to those on the CPU. WGSL allows a division an error of 2.5 units in
/// the last place.
const GPU_ROUNDING_FACTOR: f32 = 1.5;
/// The kernel tells ends of steps from others by their codes, of which they are the highest.
const _: () = {
    let lowest = Status::Ftol.code();
    assert!(lowest < Status::Xtol.code() && lowest < Status::FtolXtol.code());
    assert!(lowest > Status::Gtol.code() && lowest > Status::MaxRounds.code());
};
/// Value of `largest_step` from which on steps are not limited.
const UNLIMITED_STEP: f64 = 1e30;

/// Returns how many fits a workgroup makes: as many as its memory has room for.
pub(super) fn fits_per_workgroup(packing: Packing) -> usize {
    let bytes = 4 * fit_stride(packing);
    let mut fits = MAX_FITS_PER_WORKGROUP;
    while fits * bytes > WORKGROUP_BYTES {
        fits /= 2;
    }
    fits
}

/// Returns the distance between the data of a workgroup's neighbouring fits, in numbers.
fn fit_stride(packing: Packing) -> usize {
    packing.counted() | 1
}

/// Returns the WGSL source of small fits of a packing, which end at a relative reduction of `tolerance`.
///
/// # Errors
/// Returns [`Error::Model`] for a setting that f32 does not hold.
pub(crate) fn small_source(
    problem: &SmallProblem,
    packing: Packing,
    tolerance: f64,
) -> Result<WgslSource> {
    let SmallProblem {
        points,
        parameters,
        settings,
        ..
    } = problem;
    let Shape { is_bounded, .. } = packing.shape;
    // 1. The bindings.
    let mut constants = Constants::default();
    let buffers = [
        ("observed", "f32", "read"),
        ("given", "f32", "read"),
        ("grid", "f32", "read"),
        ("result", "u32", "read_write"),
    ];
    for (k, (name, element, access)) in buffers.into_iter().enumerate() {
        constants.line(&format!(
            "@group(0) @binding({k}) var<storage, {access}> {name}: array<{element}>;"
        ));
    }
    // 2. The sizes, and the offsets of the packing.
    let sizes = [
        ("PARAMETERS", *parameters),
        ("LAST", parameters - 1),
        ("POINTS", *points),
        ("ROWS", 1 + parameters),
        ("FITS", fits_per_workgroup(packing)),
        ("COUNTED", packing.counted()),
        ("STRIDE", fit_stride(packing)),
        ("OBSERVED", packing.observed()),
        ("GIVEN", packing.given()),
        ("LOWER", packing.lower()),
        ("RESULT", packing.result()),
        ("BLOCK", BLOCK),
        ("ROUNDS_SHIFT", ROUNDS_SHIFT as usize),
        ("SURE", SURE as usize),
        ("PAIRS", packing.pairs()),
        (
            "CORRELATED",
            if problem.correlations { *parameters } else { 0 },
        ),
    ];
    for (name, value) in sizes {
        constants.unsigned(name, value);
    }
    // 3. The tolerances and thresholds of a step.
    constants.float("TOLERANCE", tolerance);
    constants.float(
        "LARGEST_COST",
        problem.tolerances.largest_cost.min(f64::from(f32::MAX)),
    );
    constants.float("XTOL", problem.tolerances.step.max(LEAST_XTOL));
    constants.float("INITIAL_DAMPING", settings.initial_damping);
    declare_statuses(&mut constants);
    // The host continues the fits that have not ended within the iterations that drivers allow.
    let legs = if is_bounded {
        LEGS_PER_PARAMETER * parameters + 1
    } else {
        0
    };
    let allowed_rounds = (MAX_ITERATIONS / (points + legs + 1)) as u32;
    let max_rounds = settings
        .max_rounds
        .min(allowed_rounds)
        .min(MAX_PACKED_ROUNDS);
    declare_step(
        &mut constants,
        &LevenbergMarquardt {
            max_rounds,
            ..*settings
        },
        &problem.tolerances,
    );
    declare_ends(&mut constants);
    constants.line(&format!(
        "const SHORTENS: bool = {};",
        settings.largest_step < UNLIMITED_STEP
    ));
    constants.line(&format!(
        "const HAS_FLOOR: bool = {};",
        settings.diagonal_floor > 0.0
    ));
    constants.float("SMALLEST_NORMAL", f32::MIN_POSITIVE.into());
    // 4. The functions that read the data, and the user's model.
    declare_access(&mut constants, problem, packing);
    declare_rounding(&mut constants, problem);
    if let Some(message) = constants.bad {
        return Err(Error::model(format!("small: {message}")));
    }
    let user = UserCode {
        name: "model".into(),
        text: problem.wgsl.clone(),
    };
    let uses = [
        "functions",
        if is_bounded {
            "small_bounded"
        } else {
            "small_unbounded"
        },
    ];
    Ok(WgslSource::join(
        &constants,
        "small",
        include_str!("../../../shaders/small.wgsl"),
        &uses,
        Some(&user),
    ))
}

/// Adds the WGSL functions that read the predictors, weights and units of fits of a shape.
fn declare_access(constants: &mut Constants, problem: &SmallProblem, packing: Packing) {
    let SmallProblem { predictors, .. } = problem;
    let Shape {
        own_grid,
        is_weighted,
        own_units,
        ..
    } = packing.shape;
    let predictor = |d: usize| match own_grid {
        true => format!("observed[fit * OBSERVED + COUNTED + {d}u * POINTS + point]"),
        false => format!("grid[{d}u * POINTS + point]"),
    };
    let elements: Vec<String> = (0..*predictors).map(predictor).collect();
    let (kind, value) = match predictors {
        1 => ("f32".to_owned(), elements.concat()),
        count => (
            format!("array<f32, {count}>"),
            format!("array<f32, {count}>({})", elements.join(", ")),
        ),
    };
    constants.line(&format!(
        "fn predictors_at(point: u32, fit: u32) -> {kind} {{ return {value}; }}"
    ));
    let weight = if is_weighted {
        "tile[lane * STRIDE + POINTS + point]"
    } else {
        "1.0"
    };
    constants.line(&format!(
        "fn weight_at(point: u32, lane: u32) -> f32 {{ return {weight}; }}"
    ));
    let unit = match own_units {
        true => "given[fit * GIVEN + PARAMETERS + parameter]",
        false => "unit_of(given[fit * GIVEN + parameter])",
    };
    constants.line(&format!(
        "fn unit_at(fit: u32, parameter: u32) -> f32 {{ return {unit}; }}"
    ));
}

/// Adds the constants and the function that bound the rounding errors of the model's values by the sums of a fit.
fn declare_rounding(constants: &mut Constants, problem: &SmallProblem) {
    let sums = problem.rounding;
    constants.line(&format!("const SUMS_TELL: bool = {};", sums.is_some()));
    let [of_exponent, others] = sums.map_or([0.0; 2], |sums| [sums.of_exponent, sums.others]);
    constants.float(
        "ROUNDINGS_OF_EXPONENT",
        (GPU_ROUNDING_FACTOR * of_exponent).into(),
    );
    constants.float("OTHER_ROUNDINGS", (GPU_ROUNDING_FACTOR * others).into());
    let exponents = sums.map_or(&[][..], |sums| sums.exponents);
    let terms: String = exponents
        .iter()
        .map(|(p, factor)| format!(" + {factor:?} * abs(accepted[{p}]) * sqrt(normal[{p}][{p}])"))
        .collect();
    constants.line(&format!(
        "fn exponent_rounding() -> f32 {{ return 0.0{terms}; }}"
    ));
}
