//! Constants of the damped step in shaders: settings, and the thresholds that Rust has, too.

use crate::kernels::source::Constants;
use crate::solver::thresholds::{
    AT_FACE_SHARE, BEST_CONTRACTION, CLOSE_POINTS_SHARE, CREEPING_RATIO, DAMPING_RAISE, FAR_COSINE,
    FAR_FINISHING_STEPS, FINISHING_DAMPING, FINISHING_RISE, FINISHING_STEPS, HALF_ULP_OF_F32,
    LAST_CONTRACTION, LEAST_COST, LEAST_FTOL, LEAST_RAISED_DAMPING, LEAST_SECANT_SHARE,
    LEGS_PER_PARAMETER, LONGEST_STRIDE, MAX_FLOOR_ROUNDS, MAX_VARIANCE_ERROR, PARALLEL_COSINE,
    ROUNDING_SHARE, SHRINKING_RATIO, SMALLEST_MAGNITUDE, SOLVE_ATTEMPTS, STAGNATION_RATIO,
    TOTAL_REDUCTION_FACTOR, TRUSTED_STEP, TRUSTED_STEPS, UNCERTAIN_SLOPE_SHARE, UNDAMPED,
};
use crate::solver::{LevenbergMarquardt, Tolerances};

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
    constants.signed("MAX_FLOOR_ROUNDS", to_signed(MAX_FLOOR_ROUNDS));
    constants.float("SMALLEST_MAGNITUDE", SMALLEST_MAGNITUDE);
    constants.unsigned("SOLVE_ATTEMPTS", SOLVE_ATTEMPTS);
    constants.float("DAMPING_RAISE", DAMPING_RAISE);
    constants.float("LEAST_RAISED_DAMPING", LEAST_RAISED_DAMPING);
    constants.unsigned("LEGS_PER_PARAMETER", LEGS_PER_PARAMETER);
    constants.float("UNCERTAIN_SLOPE_SHARE", UNCERTAIN_SLOPE_SHARE);
}

/// Adds the WGSL thresholds of finishing steps and of the secant correction, which `step.wgsl` alone has.
pub(super) fn declare_finishing(constants: &mut Constants) {
    constants.float("FINISHING_DAMPING", FINISHING_DAMPING);
    constants.signed("FINISHING_STEPS", to_signed(FINISHING_STEPS));
    constants.signed("FAR_FINISHING_STEPS", to_signed(FAR_FINISHING_STEPS));
    constants.float("FINISHING_RISE", FINISHING_RISE);
    constants.float("FAR_COSINE", FAR_COSINE);
    constants.float("SHRINKING_RATIO", SHRINKING_RATIO);
    constants.float("CREEPING_RATIO", CREEPING_RATIO);
    constants.signed("TRUSTED_STEPS", to_signed(TRUSTED_STEPS));
    constants.float("AT_FACE_SHARE", AT_FACE_SHARE);
    constants.float("PARALLEL_COSINE", PARALLEL_COSINE);
    constants.float("LONGEST_STRIDE", LONGEST_STRIDE);
    constants.float("CLOSE_POINTS_SHARE", CLOSE_POINTS_SHARE);
    constants.float("LEAST_SECANT_SHARE", LEAST_SECANT_SHARE);
}

/// Adds the WGSL thresholds of the ends of small fits, which `small.wgsl` alone has.
pub(super) fn declare_ends(constants: &mut Constants) {
    constants.float("TRUSTED_STEP", TRUSTED_STEP);
    constants.float("LAST_CONTRACTION", LAST_CONTRACTION);
    constants.float("TOTAL_REDUCTION_FACTOR", TOTAL_REDUCTION_FACTOR);
    constants.float("STAGNATION_RATIO", STAGNATION_RATIO);
    constants.float("LEAST_FTOL", LEAST_FTOL);
    constants.float("HALF_ULP_OF_F32", HALF_ULP_OF_F32.into());
    constants.float("ROUNDING_SHARE", ROUNDING_SHARE.into());
    constants.float("MAX_VARIANCE_ERROR", MAX_VARIANCE_ERROR.into());
    constants.float("LEAST_COST", LEAST_COST.into());
}

/// Converts a count to the `i32` of WGSL; one that is too large becomes `i32::MAX`.
fn to_signed(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
