//! The WGSL text of small fits: `shaders/small.wgsl` with the sizes, thresholds and functions of one model.

use super::super::layout::declare_statuses;
use super::super::step_constants::{declare_ends, declare_step};
use crate::error::{Error, Result};
use crate::kernels::source::{Constants, UserCode, WgslSource};
use crate::solver::LevenbergMarquardt;
use crate::solver::small::packing::{
    FITS_PER_BLOCK as BLOCK, MAX_PACKED_ROUNDS, Packing, ROUNDS_SHIFT, SURE,
};
use crate::solver::small::{Shape, SmallProblem};
use crate::solver::thresholds::{LEAST_XTOL, LEGS_PER_PARAMETER};

/// Bytes of workgroup memory that every device has, and the most fits of a workgroup.
const WORKGROUP_BYTES: usize = 16_384;
const MOST_FITS: usize = 64;
/// Iterations that drivers let an invocation do, with a margin: software counts all its loops' together, to 65,535.
const MOST_ITERATIONS: usize = 60_000;
/// By how much more values may be rounded on a GPU than on the CPU: WGSL allows a division 2.5 units in the last place.
const ROUNDINGS: f32 = 1.5;
/// A `largest_step` of this much is no limit.
const LONGEST_STEP: f64 = 1e30;

/// Returns how many fits a workgroup makes: as many as have room for what their rounds read.
pub(super) fn fits_per_workgroup(packing: Packing) -> usize {
    let bytes = 4 * stride(packing);
    let mut fits = MOST_FITS;
    while fits * bytes > WORKGROUP_BYTES {
        fits /= 2;
    }
    fits
}

/// Returns how far apart the data of a workgroup's fits are.
fn stride(packing: Packing) -> usize {
    packing.counted() | 1
}

/// Returns the WGSL source of small fits of a packing, which end at this tolerance.
///
/// # Errors
/// Returns [`Error::Model`] for a setting that f32 does not hold.
pub(crate) fn source(
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
    let mut constants = Constants::default();
    let buffers = [
        ("observed", "f32", "read"),
        ("given", "f32", "read"),
        ("grid", "f32", "read"),
    ];
    for (k, (name, element, access)) in buffers
        .into_iter()
        .chain([("result", "u32", "read_write")])
        .enumerate()
    {
        constants.line(&format!(
            "@group(0) @binding({k}) var<storage, {access}> {name}: array<{element}>;"
        ));
    }
    let numbers = [
        ("PARAMETERS", *parameters),
        ("LAST", parameters - 1),
        ("POINTS", *points),
        ("ROWS", 1 + parameters),
        ("FITS", fits_per_workgroup(packing)),
        ("COUNTED", packing.counted()),
        ("STRIDE", stride(packing)),
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
    numbers
        .into_iter()
        .for_each(|(name, value)| constants.unsigned(name, value));
    constants.float("TOLERANCE", tolerance);
    constants.float(
        "LARGEST_COST",
        problem.tolerances.largest_cost.min(f64::from(f32::MAX)),
    );
    constants.float("XTOL", problem.tolerances.step.max(LEAST_XTOL));
    constants.float("INITIAL_DAMPING", settings.initial_damping);
    declare_statuses(&mut constants);
    // what has not ended by then is fitted by the host
    let legs = if is_bounded {
        LEGS_PER_PARAMETER * parameters + 1
    } else {
        0
    };
    let most_rounds = (MOST_ITERATIONS / (points + legs + 1)) as u32;
    let max_rounds = settings.max_rounds.min(most_rounds).min(MAX_PACKED_ROUNDS);
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
        settings.largest_step < LONGEST_STEP
    ));
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

/// Adds the WGSL functions that read what fits of a shape have.
fn declare_access(constants: &mut Constants, problem: &SmallProblem, packing: Packing) {
    let SmallProblem { predictors, .. } = problem;
    let Shape {
        own_grid,
        is_weighted,
        own_units,
        ..
    } = packing.shape;
    let place = |d: usize| match own_grid {
        true => format!("observed[fit * OBSERVED + COUNTED + {d}u * POINTS + point]"),
        false => format!("grid[{d}u * POINTS + point]"),
    };
    let each: Vec<String> = (0..*predictors).map(place).collect();
    let (kind, value) = match predictors {
        1 => ("f32".to_owned(), each.concat()),
        count => (
            format!("array<f32, {count}>"),
            format!("array<f32, {count}>({})", each.join(", ")),
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

/// Adds what is known of the rounding of the model's values by the sums of a fit.
fn declare_rounding(constants: &mut Constants, problem: &SmallProblem) {
    let sums = problem.rounding.as_ref().and_then(|rounding| rounding.sums);
    constants.line(&format!("const SUMS_TELL: bool = {};", sums.is_some()));
    let [of_exponent, others] = sums.map_or([0.0; 2], |sums| [sums.of_exponent, sums.others]);
    constants.float("ROUNDINGS_OF_EXPONENT", (ROUNDINGS * of_exponent).into());
    constants.float("OTHER_ROUNDINGS", (ROUNDINGS * others).into());
    let terms = sums.map_or(&[][..], |sums| sums.exponents).iter();
    let terms = terms
        .map(|(p, factor)| format!(" + {factor:?} * abs(accepted[{p}]) * sqrt(normal[{p}][{p}])"));
    constants.line(&format!(
        "fn exponent_rounding() -> f32 {{ return 0.0{}; }}",
        terms.collect::<String>()
    ));
}
