// Small fits inside a box: the step continues along the bounds that it meets, by an active set (Nocedal & Wright 2006,
// algorithm 16.3). Twin of src/cpu/lanes/faces.rs.
//@use small_fit

var<private> free: array<bool, PARAMETERS>;
var<private> lower: array<f32, PARAMETERS>;
var<private> upper: array<f32, PARAMETERS>;
// Part of the step that lies inside the box so far
var<private> way: array<f32, PARAMETERS>;

fn begin_bounds(fit: u32) {
    //@for p 0 PARAMETERS
    lower[$p] = given[fit * GIVEN + LOWER + $pu];
    upper[$p] = given[fit * GIVEN + LOWER + PARAMETERS + $pu];
    //@end
}

// Frees the parameters whose bounds leave them room and which the gradient does not push against a bound.
fn set_free() {
    //@for p 0 PARAMETERS
    free[$p] = (upper[$p] > lower[$p]) & !((accepted[$p] <= lower[$p]) & (gradient[$p] <= 0.0))
        & !((accepted[$p] >= upper[$p]) & (gradient[$p] >= 0.0));
    //@end
}

fn free_all() {
    //@for p 0 PARAMETERS
    free[$p] = true;
    //@end
}

fn is_free(p: u32) -> bool {
    return free[p];
}

fn is_inside(p: u32) -> bool {
    return (accepted[p] > lower[p]) & (accepted[p] < upper[p]);
}

fn moves(p: u32) -> bool {
    return delta[p] != 0.0;
}

// d A d, by its sum: a step along bounds does not solve the damped equation of held parameters.
fn curvature(gain: f32, damping: f32) -> f32 {
    var sum = 0.0;
    //@for p 0 PARAMETERS
    {
        var slope = 0.0;
        //@for q 0 $p
        slope += normal[$p][$q] * delta[$q];
        //@end
        sum += 2.0 * delta[$p] * slope + normal[$p][$p] * delta[$p] * delta[$p];
    }
    //@end
    return sum;
}

// Solves for the free parameters' part of the step, given the held ones' part.
fn solve_free() -> bool {
    //@for p 0 PARAMETERS
    {
        var right_side = gradient[$p];
        //@for q 0 $p
        right_side -= select(normal[$p][$q] * way[$q], 0.0, free[$q]);
        //@end
        //@for q $p+1 PARAMETERS
        right_side -= select(normal[$q][$p] * way[$q], 0.0, free[$q]);
        //@end
        delta[$p] = select(way[$p], right_side, free[$p]);
    }
    //@end
    let least_pivot = factorise();
    substitute();
    return least_pivot > 0.0;
}

// The step from a parameter's value to the bound that a step of `goal` would cross.
fn step_to_face(p: u32, goal: f32) -> f32 {
    return select(upper[p], lower[p], accepted[p] + goal < lower[p]) - accepted[p];
}

// The share of the way to the solution that lies inside the bounds of a parameter.
fn share_inside(p: u32) -> f32 {
    let end = accepted[p] + delta[p];
    let distance = delta[p] - way[p];
    let share = clamp((step_to_face(p, delta[p]) - way[p]) / distance, 0.0, 1.0);
    return select(share, 1.0, !free[p] | (distance == 0.0) | ((end >= lower[p]) & (end <= upper[p])));
}

// The cost reduction predicted if a held parameter alone were freed, from the gradient of the damped model and the sum
// of the magnitudes of its terms; 0 unless the cost falls inwards.
fn gain_inwards(p: u32, slope: f32, size: f32) -> f32 {
    let value = accepted[p] + way[p];
    let slope_inwards = select(-slope, slope, value - lower[p] <= upper[p] - value);
    let diagonal = normal[p][p];
    let gains = (lower[p] < upper[p]) & (diagonal > 0.0) & (slope_inwards > UNCERTAIN_SLOPE_SHARE * size);
    return select(0.0, slope_inwards * (slope_inwards / diagonal), gains);
}

// Moves the step towards the solution up to the first bound, and holds the parameters that meet it; or, if none does,
// frees the held parameter with the largest predicted gain. False where nothing has changed.
fn turn() -> bool {
    var smallest_share = 1.0;
    //@for p 0 PARAMETERS
    let share$p = share_inside($pu);
    smallest_share = min(smallest_share, share$p);
    //@end
    //@for p 0 PARAMETERS
    {
        let meets = free[$p] & (smallest_share < 1.0) & (share$p == smallest_share);
        let partial_step = way[$p] + smallest_share * (delta[$p] - way[$p]);
        let end = select(delta[$p], partial_step, smallest_share < 1.0);
        way[$p] = select(end, step_to_face($pu, delta[$p]), meets);
        free[$p] = free[$p] & !meets;
    }
    //@end
    if smallest_share < 1.0 {
        return true;
    }
    var largest_gain = 0.0;
    //@for p 0 PARAMETERS
    var gain$p = 0.0;
    if !free[$p] {
        let damping = mu * damped(normal[$p][$p], least_magnitude[$p]) * way[$p];
        var slope = gradient[$p] - damping;
        var size = abs(gradient[$p]) + abs(damping);
        //@for q 0 $p+1
        let term$q = normal[$p][$q] * way[$q];
        slope -= term$q;
        size += abs(term$q);
        //@end
        //@for q $p+1 PARAMETERS
        let term$q = normal[$q][$p] * way[$q];
        slope -= term$q;
        size += abs(term$q);
        //@end
        gain$p = gain_inwards($pu, slope, size);
    }
    largest_gain = max(largest_gain, gain$p);
    //@end
    //@for p 0 PARAMETERS
    free[$p] = free[$p] | ((largest_gain > 0.0) & (gain$p == largest_gain));
    //@end
    return largest_gain > 0.0;
}

// Solves for the damped step, from bound to bound; false where a matrix does not factorise.
fn solve() -> bool {
    set_free();
    set_lowest();
    //@for p 0 PARAMETERS
    way[$p] = 0.0;
    //@end
    for (var leg = 0u; leg <= LEGS_PER_PARAMETER * PARAMETERS; leg++) {
        if !solve_free() {
            return false;
        }
        if !turn() {
            break;
        }
    }
    delta = way;
    return true;
}

// Sets the trial point to the end of the step, clamped to the bounds.
fn advance() {
    //@for p 0 PARAMETERS
    trial[$p] = min(max(accepted[$p] + delta[$p], lower[$p]), upper[$p]);
    //@end
}
