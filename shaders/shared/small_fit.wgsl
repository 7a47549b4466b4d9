// The numbers of a small fit, its beginning, and the solution of its damped equation.
//@use math

var<private> accepted: array<f32, PARAMETERS>;
var<private> trial: array<f32, PARAMETERS>;
// The magnitude that a parameter counts with at least: a share of its unit
var<private> least_magnitude: array<f32, PARAMETERS>;
var<private> cost: f32;
var<private> trial_cost: f32;
var<private> gradient: array<f32, PARAMETERS>; // minus half of the cost's
var<private> trial_gradient: array<f32, PARAMETERS>;
// The lower triangle of J^T J
var<private> normal: array<array<f32, PARAMETERS>, PARAMETERS>;
var<private> trial_normal: array<array<f32, PARAMETERS>, PARAMETERS>;
// L and 1 / D of L D L^T, and the step
var<private> factor: array<array<f32, PARAMETERS>, PARAMETERS>;
var<private> inverse: array<f32, PARAMETERS>;
var<private> delta: array<f32, PARAMETERS>;
var<private> mu: f32;
var<private> nu: f32;
// Least element of the damping's diagonal, as a share of the largest, 0 once it is released; and that element, in units
// of the least magnitudes
var<private> floor_share: f32;
var<private> lowest: f32;
var<private> undamped: bool; // no free parameter is damped by more than a negligible share of its own diagonal
// The reduction that the step to the trial point predicts: negative if that step was shortened, and therefore says
// nothing about the next; 0 before the first one
var<private> promise: f32;
var<private> limit: f32; // the reduction that the tolerance allows
var<private> is_near: bool; // the reduction that all remaining steps predict is within the tolerance
var<private> rounds: i32;
var<private> rejections: i32;
var<private> status: i32;

// The power of two nearest to |x| in logarithm, between 2^-60 and 2^60, so that f32 suffices; 1 for 0.
fn unit_of(x: f32) -> f32 {
    let exponent = bitcast<f32>(bitcast<u32>(abs(x) * 1.41421356) & 0x7f800000u);
    return select(clamp(exponent, power_of_two(-60), power_of_two(60)), 1.0, x == 0.0);
}

// Begins a fit at its start.
fn begin(fit: u32) {
    //@for p 0 PARAMETERS
    trial[$p] = given[fit * GIVEN + $pu];
    least_magnitude[$p] = SMALLEST_MAGNITUDE * unit_at(fit, $pu);
    //@end
    mu = INITIAL_DAMPING;
    nu = 2.0;
    floor_share = DIAGONAL_FLOOR;
    promise = 0.0;
    is_near = false;
    rounds = 0;
    rejections = 0;
    status = RUNNING;
    begin_bounds(fit);
}

// An element of the damping's diagonal D = max(diag A, lowest).
fn damped(diagonal: f32, magnitude: f32) -> f32 {
    if HAS_FLOOR {
        return max(diagonal, lowest / (magnitude * magnitude));
    }
    return diagonal;
}

// Factorises A + mu D of the free parameters as L D L^T; returns the least pivot, which is positive
// where the matrix is positive definite. A parameter that is held or has no effect does not move.
fn factorise() -> f32 {
    var least_pivot = 1.0;
    undamped = HAS_FLOOR | (mu < UNDAMPED);
    //@for i 0 PARAMETERS
    {
        let diagonal = normal[$i][$i];
        let damping = mu * damped(diagonal, least_magnitude[$i]);
        if HAS_FLOOR {
            undamped = undamped & !((diagonal > 0.0) & is_free($iu) & (damping >= UNDAMPED * diagonal));
        }
        var pivot = select(1.0, max(diagonal + damping, SMALLEST_NORMAL), is_free($iu));
        //@for j 0 $i
        var row$j = select(0.0, normal[$i][$j], is_free($iu) & is_free($ju));
        //@for k 0 $j
        row$j -= row$k * factor[$j][$k];
        //@end
        //@end
        //@for j 0 $i
        factor[$i][$j] = row$j * inverse[$j];
        pivot -= row$j * factor[$i][$j];
        //@end
        least_pivot = min(least_pivot, pivot);
        inverse[$i] = 1.0 / pivot;
    }
    //@end
    return least_pivot;
}

// Solves L D L^T x = delta in place.
fn substitute() {
    //@for i 0 PARAMETERS
    //@for k 0 $i
    delta[$i] -= factor[$i][$k] * delta[$k];
    //@end
    //@end
    //@back i 0 PARAMETERS
    delta[$i] *= inverse[$i];
    //@for k $i+1 PARAMETERS
    delta[$i] -= factor[$k][$i] * delta[$k];
    //@end
    //@end
}

// Sets the least element of the damping's diagonal.
fn set_lowest() {
    if HAS_FLOOR {
        lowest = 0.0;
        //@for p 0 PARAMETERS
        let element$p = normal[$p][$p] * least_magnitude[$p] * least_magnitude[$p];
        lowest = max(lowest, select(0.0, element$p, is_free($pu)));
        //@end
        lowest *= floor_share;
    }
}
