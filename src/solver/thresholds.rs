//! Constants of the damped step and of the simplex. The CPU's step, its lanes and the shaders all have them from here.

/// Below this damping a step is as good as undamped, and its prediction says how far the optimum is.
pub const UNDAMPED: f64 = 0.1;
/// Damping of the finishing steps: nothing but a guard of the Cholesky factorisation.
pub const FINISHING_DAMPING: f64 = 1e-6;
/// Maximum number of finishing steps.
pub const FINISHING_STEPS: u32 = 20;
/// Maximum number of finishing steps of a fit that is still too far from its minimum.
pub const FAR_FINISHING_STEPS: u32 = 40;
/// Rise of the cost that a finishing step may end with: guards against nonsense, not against rounding.
pub const FINISHING_RISE: f64 = 1.1;
/// Cosine of the gradient above which a finishing step that led nowhere or was too long counts as far from the minimum.
pub const FAR_COSINE: f64 = 0.01;
/// A finishing step must promise less than this share of the one before it, unless that was lengthened or the fit is
/// not yet near its minimum.
pub const SHRINKS: f64 = 0.8;
/// Cost that a cost above it counts as where its unit is the noise. A model far from the data has a high cost, which
/// says nothing about how well a minimum is to be met: 10⁻⁹ of 10⁴ moves parameters by 0.003 of their errors. Above it
/// no last step is taken on trust: where residuals are large, the slowest parameter hides behind the others. (Good fits
/// of more than 10⁴ pixels are above it, too, and take one linearisation more.)
pub const LARGE_COST: f64 = 1e4;

/// Ratio of the predicted reductions of successive finishing steps above which they creep, if they are parallel: each
/// is more than half as long as the one before it.
pub const CREEPS: f64 = 0.25;
/// After more finishing steps than this no last step is taken on trust: one of them may have been lengthened, and the
/// ratio of two reductions is then that of the parameters that do not creep.
pub const TRUSTED_STEPS: u32 = 2;
/// A step has met a bound if its end lies within this share of its length from it. Rounding leaves it not exactly
/// there.
pub const AT_FACE: f64 = 1e-5;
/// Smallest cosine between two successive finishing steps that creep. Steps made of rounding have random directions.
pub const PARALLEL: f64 = 0.9;
/// Largest factor by which a finishing step is lengthened where steps creep.
pub const LONGEST_STRIDE: f64 = 32.0;
/// Smallest ratio of two predicted reductions that is believed of the step to come.
pub const BEST_CONTRACTION: f64 = 1e-3;
/// Smallest such ratio that is believed in small fits that end in f32: nothing is to follow that would make good what
/// luck promised.
pub const LAST_CONTRACTION: f64 = 0.02;
/// Small fits: by how many times what all steps to come promise together may exceed what the next one may.
pub const TOGETHER: f64 = 2.5;
/// Small fits: a predicted reduction above this share of the one before it is made of rounding.
pub const STAGNATES: f64 = 0.5;
/// Small fits: a pivot below this share of its diagonal may be wrong by a thousandth of itself, and so may all that is
/// solved with it.
pub const RANK: f64 = 1e-12;
/// Small fits in f32: the smallest tolerances that make sense, of a reduction as a share of the cost, and of a step.
pub const LEAST_FTOL: f64 = 1e-7;
pub const LEAST_XTOL: f64 = 1e-6;
/// Small fits that end in f32: half the distance of two numbers in f32, at 1.
pub const ROUNDING: f32 = 1.0 / 16_777_216.0;
/// By how many times the accuracy at which fits end a bound of rounding may exceed it: together they stay below 0.001
/// errors.
pub const ROUNDING_SHARE: f32 = 1.5;
/// The most by which variances may be wrong, of their size.
pub const VARIANCE_ERROR: f32 = 1e-3;
/// Costs below this are near the end of f32's range.
pub const LEAST_COST: f32 = 1e-30;
/// Rounds after which the floor of the damping's diagonal is let go in any case: where parameters creep it is in the
/// way.
pub const PATIENCE: u32 = 200;
/// Longest last step of a small fit, as a share of its parameter's magnitude, that may be taken without an evaluation.
/// Where a column of the Jacobian is nearly 0, a step that promises next to nothing may have any length, and the model
/// at its end any value: a location moves by many of the widths of a step function that falls between two points.
pub const TRUSTED_STEP: f64 = 1e-4;

/// Share of a parameter's unit below which its magnitude does not bound a step.
pub const SMALLEST_MAGNITUDE: f64 = 0.1;
/// Attempts to factorise a matrix, each with the damping raised.
pub const SOLVE_ATTEMPTS: usize = 10;
/// Factor by which the damping rises where a matrix does not factorise, and the least that it rises to.
pub const RAISE: f64 = 10.0;
pub const LEAST_RAISED: f64 = 1e-6;
/// Legs of a way through the box, per parameter: it may meet a face, be let go, and meet another.
pub const LEGS: usize = 3;
/// Share of a slope's terms below which its sign may be rounding in f32.
pub const SLIGHT: f64 = 1e-4;

/// Share of the cost within which two points lie so close that the residuals, and so what they add, are the same at
/// both.
pub const CLOSE: f64 = 1e-4;
/// Least share of the slope before a step that it has, upwards, after it, and least share of A's curvature along it
/// that is added: less does no harm.
pub const BENT: f64 = 0.25;

/// A simplex is spread again with its size shrunk by this. 0.1 or 0.05 save 15 or 25 % of the evaluations, and lose a
/// NIST problem and some of the spectra, as do the coefficients of Nelder & Mead.
pub const RESPREAD: f64 = 0.25;
/// Vertices this close, relatively, are one point in f32.
pub const COLLAPSED: f64 = 1e-6;
/// Smallest edge of a simplex, as a share of a parameter, which may have come far from its start.
pub const LEAST_EDGE: f64 = 1e-3;
/// Most free parameters for which the coefficients of a coarse search are those of Nelder & Mead.
pub const CLASSICAL: usize = 6;
