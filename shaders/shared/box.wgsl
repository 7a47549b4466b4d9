// The damped step inside the box for step.wgsl: (A + S + mu diag A) delta = g, S = s s^T of secant.wgsl, bounds by an
// active set (see docs/src/equations.md). Twin of src/solver/round/step/damped.rs and system.rs.
//@use math, packed, step_member, faces

var<private> delta: array<f32, PARAMETERS>;
var<private> secant: array<f32, PARAMETERS>; // s, zeros unless secant.wgsl sets it
var<private> curved: array<f32, TRIANGLE>; // A + s s^T
var<private> may_move: array<bool, PARAMETERS>; // from the accepted point, set by largest_cosine
var<private> free: array<bool, PARAMETERS>; // not held at a bound by the step so far
var<private> factor: array<f32, TRIANGLE>; // L of the damped system, with the reciprocals of its diagonal
var<private> solution: array<f32, PARAMETERS>; // of the damped system
var<private> rescaled: bool; // the step is shorter or longer than it was solved for
var<private> reduction: f32; // 2 g delta - delta (A + S) delta before the step was shortened
var<private> step_length: f32; // |sqrt(diag A) delta| before the step was shortened
var<private> taken_reduction: f32; // that of the shortened step, negative if it was rescaled
var<private> damping_floor: f32; // share of the largest diagonal element of A
var<private> diagonal_floor: f32; // least diagonal element of A in the damping
var<private> step_damping: f32; // the largest share of its own diagonal by which a free parameter is damped
var<private> step_scale: f32; // |sqrt(diag A) theta| over the parameters that moved

// Element (p, q) of A + s s^T.
fn curvature(p: u32, q: u32) -> f32 {
    return curved[packed_symmetric(p, q)];
}

// Sets A + s s^T, the normal matrix and the secant correction.
fn set_curvature() {
    //@for p 0 PARAMETERS
    //@for q 0 $p+1
    curved[packed($pu, $qu)] = normal_entry($pu, $qu) + secant[$p] * secant[$q];
    //@end
    //@end
}

// The cosine between the residual and a column of the Jacobian, times the root of the cost; negative where the
// parameter may not move: its bounds leave no room, it is pushed against one, or the model does not depend on it.
fn scaled_cosine(value: f32, low: f32, high: f32, slope: f32, diagonal: f32) -> f32 {
    let is_pushed = ((value <= low) & (slope <= 0.0)) | ((value >= high) & (slope >= 0.0));
    let may_move = (high > low) & !is_pushed & (diagonal > 0.0);
    return select(-1.0, abs(slope) * inverseSqrt(diagonal), may_move);
}

// The damping term of a diagonal element: mu D, D = diag A, but at least `diagonal_floor`.
fn damping_term(p: u32) -> f32 {
    return mu * max(normal_entry(p, p), diagonal_floor);
}

// Solves (A_FF + mu D) x = g_F - A_FC delta_C, A with S, for the free F, the others C held: their x is delta, exactly.
// False if a pivot is not positive, or if an element of the solution is not finite.
fn solve_free() -> bool {
    var is_solved = true;
    var smallest_diagonal = diagonal_floor; // of a free parameter, where the floor counts
    // 1. The right sides.
    //@for i 0 PARAMETERS
    solution[$i] = gradient($iu);
    //@end
    //@for q 0 PARAMETERS
    {
        let held = select(delta[$q], 0.0, free[$q]);
        //@for i 0 PARAMETERS
        solution[$i] -= curvature($iu, $qu) * held;
        //@end
    }
    //@end
    // 2. Factorise, with rows of the identity for held parameters, and substitute forwards.
    //@for i 0 PARAMETERS
    {
        var right_side = select(delta[$i], solution[$i], free[$i]);
        smallest_diagonal = select(smallest_diagonal, min(smallest_diagonal, normal_entry($iu, $iu)), free[$i]);
        var pivot = select(1.0, curvature($iu, $iu) + damping_term($iu), free[$i]);
        //@for j 0 $i
        {
            var entry = select(0.0, curvature($iu, $ju), free[$i] & free[$j]);
            //@for k 0 $j
            entry -= factor[packed($iu, $ku)] * factor[packed($ju, $ku)];
            //@end
            entry *= factor[packed($ju, $ju)];
            factor[packed($iu, $ju)] = entry;
            pivot -= entry * entry;
            right_side -= entry * solution[$j];
        }
        //@end
        is_solved = is_solved & (pivot > 0.0) & is_finite(pivot);
        let reciprocal = inverseSqrt(pivot);
        factor[packed($iu, $iu)] = reciprocal;
        solution[$i] = right_side * reciprocal;
    }
    //@end
    step_damping = select(mu, mu * (diagonal_floor / smallest_diagonal), smallest_diagonal < diagonal_floor);
    // 3. Substitute backwards.
    //@back i 0 PARAMETERS
    {
        let element = select(delta[$i], solution[$i] * factor[packed($iu, $iu)], free[$i]);
        solution[$i] = element;
        is_solved = is_solved & is_finite(element);
        //@for j 0 $i
        solution[$j] -= factor[packed($iu, $ju)] * element;
        //@end
    }
    //@end
    return is_solved;
}

// The magnitude of a parameter, by which its steps are limited: |x|, but at least a share of its unit.
fn magnitude(value: f32) -> f32 {
    return max(abs(value), SMALLEST_MAGNITUDE);
}

// Shortens a step that moves a parameter by more than LARGEST_STEP times its magnitude; returns the share that is left.
fn shorten() -> f32 {
    var largest_ratio = 0.0;
    //@for p 0 PARAMETERS
    largest_ratio = max(largest_ratio, abs(delta[$p]) / magnitude(accepted[$p]));
    //@end
    if largest_ratio <= LARGEST_STEP {
        return 1.0;
    }
    let share = LARGEST_STEP / largest_ratio;
    //@for p 0 PARAMETERS
    delta[$p] *= share;
    //@end
    return share;
}

// Predicts the reduction of the step, shortens it where it is too long, and measures it.
fn finish_step() {
    var linear = 0.0;
    var quadratic = 0.0;
    var length_squared = 0.0;
    var scale_squared = 0.0;
    //@for p 0 PARAMETERS
    {
        linear += gradient($pu) * delta[$p];
        //@for q 0 PARAMETERS
        quadratic += delta[$p] * curvature($pu, $qu) * delta[$q];
        //@end
        let diagonal = normal_entry($pu, $pu);
        length_squared += diagonal * delta[$p] * delta[$p];
        scale_squared += select(0.0, diagonal * accepted[$p] * accepted[$p], delta[$p] != 0.0);
    }
    //@end
    reduction = 2.0 * linear - quadratic;
    step_length = sqrt(length_squared);
    step_scale = sqrt(scale_squared);
    let share = shorten();
    rescaled = share < 1.0;
    taken_reduction = select(reduction, -share * (2.0 * linear - share * quadratic), rescaled);
}

// Walks towards the solution for the free parameters until no bound is met and no parameter is released.
fn solve_in_box() -> bool {
    var largest_diagonal = 0.0;
    //@for p 0 PARAMETERS
    delta[$p] = 0.0;
    free[$p] = may_move[$p];
    largest_diagonal = max(largest_diagonal, select(0.0, normal_entry($pu, $pu), free[$p]));
    //@end
    diagonal_floor = damping_floor * largest_diagonal;
    for (var leg = 0u; leg <= LEGS_PER_PARAMETER * PARAMETERS; leg++) {
        if !solve_free() {
            return false;
        }
        if !advance_to_face() && !release_best_parameter() {
            break;
        }
    }
    finish_step();
    return true;
}

// Raises the damping until the matrix factorises; false if it never does.
fn solve_damped_step() -> bool {
    for (var attempt = 0u; attempt < SOLVE_ATTEMPTS; attempt++) {
        if solve_in_box() {
            return true;
        }
        mu = max(DAMPING_RAISE * mu, LEAST_RAISED_DAMPING);
    }
    return false;
}
