//! Constants of the damped step and of the simplex. The CPU's step, its lanes and the shaders all have them from here.

/// Damping below which a step is as good as undamped, so that its predicted reduction says how far the minimum is.
pub const UNDAMPED: f64 = 0.1;
/// Damping of the finishing steps, which only guards the Cholesky factorisation.
pub const FINISHING_DAMPING: f64 = 1e-6;
/// Maximum number of finishing steps.
pub const FINISHING_STEPS: u32 = 20;
/// Maximum number of finishing steps of a fit that is still too far from its minimum.
pub const FAR_FINISHING_STEPS: u32 = 40;
/// Maximum ratio of the cost after a finishing step to that before it: guards against nonsense, not against rounding.
pub const FINISHING_RISE: f64 = 1.1;
/// Cosine of the gradient above which a finishing step that raised the cost or was too long counts as far from the
/// minimum.
pub const FAR_COSINE: f64 = 0.01;
/// Maximum ratio of the predicted reductions of successive finishing steps that still shrink. A step above it ends the
/// fit, unless the one before it was lengthened or the fit is not yet near its minimum.
pub const SHRINKING_RATIO: f64 = 0.8;
/// Cost at which a higher cost is capped where its unit is the noise. A model far from the data has a high cost, which
/// says nothing about how well a minimum is to be met: 10⁻⁹ of 10⁴ moves parameters by 0.003 of their errors. Above it
/// no last step is taken on trust: where residuals are large, the slowest parameter hides behind the others. (Good fits
/// of more than 10⁴ pixels are above it, too, and take one linearisation more.)
pub const LARGE_COST: f64 = 1e4;

/// Ratio of the predicted reductions of successive parallel finishing steps above which they creep: each is more than
/// half as long as the one before it.
pub const CREEPING_RATIO: f64 = 0.25;
/// Maximum number of finishing steps after which a last step may be taken on trust. After more, one of them may have
/// been lengthened, and the ratio of two reductions is then that of the parameters that do not creep.
pub const TRUSTED_STEPS: u32 = 2;
/// Maximum distance from a bound, as a share of a step's length, at which the step has met the bound. Rounding leaves
/// its end not exactly there.
pub const AT_FACE_SHARE: f64 = 1e-5;
/// Smallest cosine between two successive finishing steps that creep. Steps made of rounding have random directions.
pub const PARALLEL_COSINE: f64 = 0.9;
/// Largest factor by which a finishing step is lengthened where steps creep.
pub const LONGEST_STRIDE: f64 = 32.0;
/// Smallest credible ratio of the next two predicted reductions.
pub const BEST_CONTRACTION: f64 = 1e-3;
/// Smallest credible ratio in small fits that end in f32 on a GPU, where no later step corrects a reduction that was
/// small by chance.
pub const LAST_CONTRACTION: f64 = 0.02;
/// Small fits: maximum ratio of the reduction that all remaining steps predict together to the tolerance of a single
/// one.
pub const TOTAL_REDUCTION_FACTOR: f64 = 2.5;
/// Small fits: ratio of successive predicted reductions above which the later one is made of rounding.
pub const STAGNATION_RATIO: f64 = 0.5;
/// Small fits: smallest reliable pivot, as a share of its diagonal. A smaller one may be wrong by a thousandth of
/// itself, and so may everything that is solved with it.
pub const LEAST_PIVOT_SHARE: f64 = 1e-12;
/// Small fits in f32: smallest tolerance that makes sense for a reduction, as a share of the cost.
pub const LEAST_FTOL: f64 = 1e-7;
/// Small fits in f32: smallest tolerance that makes sense for a step.
pub const LEAST_XTOL: f64 = 1e-6;
/// Small fits that end in f32 on a GPU: half the distance between two numbers in f32, at 1.
pub const HALF_ULP_OF_F32: f32 = 1.0 / 16_777_216.0;
/// Maximum ratio of a bound on rounding errors to the accuracy at which fits end: together they stay below 0.001
/// errors.
pub const ROUNDING_SHARE: f32 = 1.5;
/// Maximum relative error of variances.
pub const MAX_VARIANCE_ERROR: f32 = 1e-3;
/// Cost below which sums are near the end of f32's range.
pub const LEAST_COST: f32 = 1e-30;
/// Number of rounds after which the floor of the damping's diagonal is released in any case: where parameters creep it
/// is in the way.
pub const MAX_FLOOR_ROUNDS: u32 = 200;
/// Longest last step of a small fit, as a share of its parameter's magnitude, that may be taken without an evaluation.
/// Where a column of the Jacobian is nearly 0, a step that predicts next to no reduction may have any length, and the
/// model at its end any value: a location moves by many of the widths of a step function that falls between two points.
pub const TRUSTED_STEP: f64 = 1e-4;
/// The same before a fit of least squares is continued in f64, or with better derivatives, by an evaluation at the end
/// of that step. A robust fit that took so long a step ended 0.05 errors from its minimum.
pub const TRUSTED_CONTINUED_STEP: f64 = 1e-2;

/// Smallest magnitude of a parameter that limits its steps, as a share of its unit.
pub const SMALLEST_MAGNITUDE: f64 = 0.1;
/// Maximum number of attempts to factorise a matrix, each with the damping raised.
pub const SOLVE_ATTEMPTS: usize = 10;
/// Factor by which the damping rises where a matrix does not factorise.
pub const DAMPING_RAISE: f64 = 10.0;
/// Least damping to which it then rises.
pub const LEAST_RAISED_DAMPING: f64 = 1e-6;
/// Maximum number of legs of a path through the box, per parameter: a parameter may meet a bound, be released, and meet
/// the other bound.
pub const LEGS_PER_PARAMETER: usize = 3;
/// Ratio of a slope to the sum of its terms' magnitudes below which rounding in f32 may decide its sign.
pub const UNCERTAIN_SLOPE_SHARE: f64 = 1e-4;

/// Maximum δᵀAδ, as a share of the cost, of two points that lie so close that their residuals, and so the curvature
/// that A lacks, are the same.
pub const CLOSE_POINTS_SHARE: f64 = 1e-4;
/// Smallest share of A's curvature along a step at which the secant term is added: less does no harm. Also the smallest
/// ratio of the slope after that step, upwards, to the slope before it.
pub const LEAST_SECANT_SHARE: f64 = 0.25;

/// Factor on the size of a simplex each time that it is spread again. 0.1 or 0.05 save 15 or 25 % of the evaluations,
/// and lose a NIST problem and some of the spectra, as do the coefficients of Nelder & Mead.
pub const RESPREAD_FACTOR: f64 = 0.25;
/// Maximum relative distance of vertices that are one point in f32.
pub const COLLAPSED_SIZE: f64 = 1e-6;
/// Smallest edge of a simplex, as a share of a parameter, which may have come far from its start.
pub const LEAST_EDGE: f64 = 1e-3;
/// Maximum number of free parameters for which the coefficients of a coarse search are those of Nelder & Mead.
pub const MAX_CLASSICAL_PARAMETERS: usize = 6;
