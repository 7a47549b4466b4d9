//! Constants of the damped step and of the simplex in shaders: settings, and the thresholds that Rust has, too.

use crate::kernels::source::Constants;
use crate::math::Real;
use crate::solver::thresholds::{
    AT_FACE, BENT, BEST_CONTRACTION, CLASSICAL, CLOSE, COLLAPSED, CREEPS, FAR_COSINE,
    FAR_FINISHING_STEPS, FINISHING_DAMPING, FINISHING_RISE, FINISHING_STEPS, LAST_CONTRACTION,
    LEAST_COST, LEAST_EDGE, LEAST_FTOL, LEAST_RAISED, LEGS, LONGEST_STRIDE, PARALLEL, PATIENCE,
    RAISE, RESPREAD, ROUNDING, ROUNDING_SHARE, SHRINKS, SLIGHT, SMALLEST_MAGNITUDE, SOLVE_ATTEMPTS,
    STAGNATES, TOGETHER, TRUSTED_STEP, TRUSTED_STEPS, UNDAMPED, VARIANCE_ERROR,
};
use crate::solver::{LevenbergMarquardt, NelderMead, Tolerances};

/// Adds the WGSL constants that `step.wgsl` and `small.wgsl` share: limits of a run, and thresholds of a step.
pub(super) fn declare_step(
    constants: &mut Constants,
    settings: &LevenbergMarquardt,
    tolerances: &Tolerances,
) {
    constants.float("GTOL", tolerances.cosine);
    constants.float("DIAGONAL_FLOOR", settings.diagonal_floor);
    constants.float("LARGEST_STEP", settings.largest_step);
    constants.signed("MAX_ROUNDS", to_signed(settings.max_rounds));
    constants.signed("MAX_REJECTIONS", to_signed(settings.max_rejections));
    constants.float("NOISE", tolerances.cost_error);
    constants.float("UNDAMPED", UNDAMPED);
    constants.float("BEST_CONTRACTION", BEST_CONTRACTION);
    constants.signed("PATIENCE", to_signed(PATIENCE));
    constants.float("SMALLEST_MAGNITUDE", SMALLEST_MAGNITUDE);
    constants.unsigned("SOLVE_ATTEMPTS", SOLVE_ATTEMPTS);
    constants.float("RAISE", RAISE);
    constants.float("LEAST_RAISED", LEAST_RAISED);
    constants.unsigned("LEGS", LEGS);
    constants.float("SLIGHT", SLIGHT);
}

/// Adds the WGSL thresholds of finishing steps and of the secant correction, which `step.wgsl` alone has.
pub(super) fn declare_finishing(constants: &mut Constants) {
    constants.float("FINISHING_DAMPING", FINISHING_DAMPING);
    constants.signed("FINISHING_STEPS", to_signed(FINISHING_STEPS));
    constants.signed("FAR_FINISHING_STEPS", to_signed(FAR_FINISHING_STEPS));
    constants.float("FINISHING_RISE", FINISHING_RISE);
    constants.float("FAR_COSINE", FAR_COSINE);
    constants.float("SHRINKS", SHRINKS);
    constants.float("CREEPS", CREEPS);
    constants.signed("TRUSTED_STEPS", to_signed(TRUSTED_STEPS));
    constants.float("AT_FACE", AT_FACE);
    constants.float("PARALLEL", PARALLEL);
    constants.float("LONGEST_STRIDE", LONGEST_STRIDE);
    constants.float("CLOSE", CLOSE);
    constants.float("BENT", BENT);
}

/// Adds the WGSL thresholds of the ends of small fits, which `small.wgsl` alone has.
pub(super) fn declare_ends(constants: &mut Constants) {
    constants.float("TRUSTED_STEP", TRUSTED_STEP);
    constants.float("LAST_CONTRACTION", LAST_CONTRACTION);
    constants.float("TOGETHER", TOGETHER);
    constants.float("STAGNATES", STAGNATES);
    constants.float("LEAST_FTOL", LEAST_FTOL);
    constants.float("ROUNDING", ROUNDING.into());
    constants.float("ROUNDING_SHARE", ROUNDING_SHARE.into());
    constants.float("VARIANCE_ERROR", VARIANCE_ERROR.into());
    constants.float("LEAST_COST", LEAST_COST.into());
}

/// Adds the WGSL constants of Nelder–Mead: limits of a run, thresholds of convergence, and how many simplices count as
/// few, so that all their points are evaluated at once.
pub(super) fn declare_simplex(
    constants: &mut Constants,
    settings: &NelderMead,
    few_simplices: usize,
) {
    constants.unsigned("FEW_SIMPLICES", few_simplices);
    // Modes of the evaluated lanes. A simplex enters with the first, 0.
    for (mode, name) in (0..).zip(["ALL_LANES", "FIRST_LANES", "SECOND_LANE"]) {
        constants.signed(name, mode);
    }
    constants.float("SIZE", settings.size);
    constants.signed("MAX_ROUNDS", to_signed(settings.max_rounds));
    constants.signed("MAX_RESTARTS", to_signed(settings.max_restarts));
    constants.float("NOISE", f32::COST_NOISE);
    constants.float("COLLAPSED", COLLAPSED);
    constants.float("LEAST_EDGE", LEAST_EDGE);
    constants.unsigned("CLASSICAL", CLASSICAL);
    constants.float("RESPREAD", RESPREAD);
}

/// Converts a count to the `i32` of WGSL; one that is too large becomes `i32::MAX`.
fn to_signed(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
