// One Nelder-Mead iteration, or half of one, of every active simplex: takes the objectives of the points that its
// members evaluated, then sets the next ones. Coefficients of Gao & Han 2012; in coarse searches of up to
// MAX_CLASSICAL_PARAMETERS free parameters those of Nelder & Mead 1965.
//
// Where more than FEW_SIMPLICES are active, they fill the device: then the reflection is evaluated first, and in
// another round the expansion or the contraction that it asks for, if any; the other members pause. Where there are
// fewer, all four points are evaluated at once. Both ways take the same points. A shrink evaluates the vertices that
// moved.
//
// The invocation of a simplex's first member moves the simplex; those of its other members do nothing. members, state
// (read-write: trial points and sums of its members), control (read-write), limits (spectra x 4 x PARAMETERS: lower,
// upper, ...), simplices (read-write, SIMPLICES numbers a field: vertices, values, SPREAD_AT and the time before). f32.
// Constants of the settings: MAX_ROUNDS, FATOL, RELATIVE (by how much of the lowest objective the vertices' may
// differ), UNIT and RELATIVE_UNIT (of COARSE_FATOL), SIZE, MAX_RESTARTS; MARGINALISE 1 or 0; PENDING, the value of a
// vertex that is not known yet, and NO_VALUE, where the model is not finite. Twin of src/solver/round/simplex.rs.
//@use math, members, state

// PARAMETERS as the compiler cannot know it: unrolled loops take software drivers seconds.
var<private> parameter_count: u32;
var<private> simplex_index: u32;
var<private> spectrum: u32;
var<private> vertex_count: u32; // free parameters + 1
var<private> best: u32;
var<private> second: u32; // second highest
var<private> worst: u32;

fn lower_bound(p: u32) -> f32 {
    return limits[spectrum * 4u * PARAMETERS + p];
}

fn upper_bound(p: u32) -> f32 {
    return limits[(spectrum * 4u + 1u) * PARAMETERS + p];
}

fn coordinate_index(v: u32, p: u32) -> u32 {
    return (v * PARAMETERS + p) * SIMPLICES + simplex_index;
}

fn value_index(v: u32) -> u32 {
    return (VALUES + v) * SIMPLICES + simplex_index;
}

fn value(v: u32) -> f32 {
    return simplices[value_index(v)];
}

fn coarse_fatol() -> f32 {
    return simplices[COARSE_FATOL * SIMPLICES + simplex_index];
}

fn is_classical() -> bool {
    return coarse_fatol() > 0.0 && vertex_count <= MAX_CLASSICAL_PARAMETERS + 1u;
}

fn lane_slot(lane: u32) -> u32 {
    return simplex_index * LANES + lane;
}

fn cell(field: u32, slot: u32) -> u32 {
    return field * CAPACITY + slot;
}

// The objective at a lane's trial point; NO_VALUE where it is not finite.
fn trial_objective(lane: u32) -> f32 {
    let slot = lane_slot(lane);
    let cost = state[at(TRIAL_CHI2, slot)] + state[at(TRIAL_PENALTY, slot)];
    let objective = cost + MARGINALISE * state[at(TRIAL_LN_DET, slot)];
    return select(NO_VALUE, objective, is_finite(objective));
}

// The first pending vertex from `v` on; vertex_count when there is none.
fn next_pending(v: u32) -> u32 {
    var vertex = v;
    while vertex < vertex_count && value(vertex) != PENDING {
        vertex++;
    }
    return vertex;
}

// Finds the lowest vertex (the first of equals), the highest and the second highest (the last of equals).
fn rank_vertices() {
    best = 0u;
    worst = 0u;
    for (var v = 1u; v < vertex_count; v++) {
        best = select(best, v, value(v) < value(best));
        worst = select(worst, v, value(v) >= value(worst));
    }
    second = select(0u, 1u, worst == 0u);
    for (var v = 0u; v < vertex_count; v++) {
        second = select(second, v, v != worst && value(v) >= value(second));
    }
}

// The lane that is to be evaluated besides the reflection; LANES if none is.
fn second_lane() -> u32 {
    let reflected = trial_objective(0u);
    if reflected < value(best) {
        return 1u;
    }
    if reflected < value(second) {
        return LANES;
    }
    return select(3u, 2u, reflected < value(worst));
}

// Lets lanes `first` to `last` take part in the next round, and the others pause: a pause of 1, which every round
// renews.
fn select_lanes(first: u32, last: u32, mode: i32) {
    for (var lane = 0u; lane < LANES; lane++) {
        control[cell(PAUSE, lane_slot(lane))] = select(1, 0, lane >= first && lane <= last);
    }
    control[cell(MODE, lane_slot(0u))] = mode;
}

// Lets those lanes take part in the next round whose points count: those of vertices without a value, or the
// reflection.
fn select_next_lanes() {
    if active_count() <= LANES * FEW_SIMPLICES {
        select_lanes(0u, LANES - 1u, ALL_LANES);
        return;
    }
    var pending = 0u;
    for (var v = next_pending(0u); v < vertex_count; v = next_pending(v + 1u)) {
        pending++;
    }
    select_lanes(0u, min(max(pending, 1u), LANES) - 1u, FIRST_LANES);
}

// Accepts one of the four trial points, or shrinks towards the best vertex.
fn replace_worst() {
    let reflected = trial_objective(0u);
    var lane = LANES;
    if reflected < value(best) {
        lane = select(0u, 1u, trial_objective(1u) < reflected);
    } else if reflected < value(second) {
        lane = 0u;
    } else if reflected < value(worst) {
        lane = select(LANES, 2u, trial_objective(2u) <= reflected);
    } else {
        lane = select(LANES, 3u, trial_objective(3u) < value(worst));
    }
    if lane < LANES {
        for (var p = 0u; p < parameter_count; p++) {
            simplices[coordinate_index(worst, p)] = trial(p, lane_slot(lane));
        }
        simplices[value_index(worst)] = trial_objective(lane);
        return;
    }
    let shrink = select(1.0 - 1.0 / f32(max(vertex_count - 1u, 2u)), 0.5, is_classical());
    for (var v = 0u; v < vertex_count; v++) {
        if v != best {
            for (var p = 0u; p < parameter_count; p++) {
                let centre = simplices[coordinate_index(best, p)];
                simplices[coordinate_index(v, p)] = centre + shrink * (simplices[coordinate_index(v, p)] - centre);
            }
            simplices[value_index(v)] = PENDING;
        }
    }
}

// Places the other vertices at `size` (of either sign) from the best along each free parameter, in the other direction
// where a bound is nearer; their values are pending.
fn spread_around_best(size: f32) {
    let lowest = value(best);
    for (var p = 0u; p < parameter_count; p++) {
        let centre = simplices[coordinate_index(best, p)];
        for (var v = 0u; v < vertex_count; v++) {
            simplices[coordinate_index(v, p)] = centre;
        }
    }
    var v = 0u;
    simplices[value_index(0u)] = lowest;
    for (var p = 0u; p < parameter_count; p++) {
        if upper_bound(p) > lower_bound(p) {
            v++;
            let centre = simplices[coordinate_index(v, p)];
            let edge = size * max(LEAST_EDGE * abs(centre), 1.0);
            let forward = centre + edge;
            let backward = clamp(centre - edge, lower_bound(p), upper_bound(p));
            let inside = forward >= lower_bound(p) && forward <= upper_bound(p);
            simplices[coordinate_index(v, p)] = select(backward, forward, inside);
            simplices[value_index(v)] = PENDING;
        }
    }
}

// Sets the trial points to the worst vertex's reflection, expansion and two contractions, clamped to the bounds.
fn set_search_points() {
    let n = f32(vertex_count - 1u);
    let expansion = select(1.0 + 2.0 / n, 2.0, is_classical());
    let contraction = select(0.75 - 0.5 / n, 0.5, is_classical());
    for (var p = 0u; p < parameter_count; p++) {
        var sum = 0.0;
        for (var v = 0u; v < vertex_count; v++) {
            sum += select(simplices[coordinate_index(v, p)], 0.0, v == worst);
        }
        let centroid = sum / n;
        let away = centroid - simplices[coordinate_index(worst, p)];
        let low = lower_bound(p);
        let high = upper_bound(p);
        state[at(TRIAL_PARAMETERS + p, lane_slot(0u))] = clamp(centroid + away, low, high);
        state[at(TRIAL_PARAMETERS + p, lane_slot(1u))] = clamp(centroid + expansion * away, low, high);
        state[at(TRIAL_PARAMETERS + p, lane_slot(2u))] = clamp(centroid + contraction * away, low, high);
        state[at(TRIAL_PARAMETERS + p, lane_slot(3u))] = clamp(centroid - contraction * away, low, high);
    }
}

// Sets the trial points to the vertices without a value; lanes beyond them repeat the first one.
fn set_pending_points() {
    let first = next_pending(0u);
    var v = first;
    for (var lane = 0u; lane < LANES; lane++) {
        let vertex = select(first, v, v < vertex_count);
        for (var p = 0u; p < parameter_count; p++) {
            state[at(TRIAL_PARAMETERS + p, lane_slot(lane))] = simplices[coordinate_index(vertex, p)];
        }
        v = next_pending(min(v + 1u, vertex_count));
    }
}

// True if all vertices agree within rounding, so that their objectives say nothing more.
fn is_collapsed() -> bool {
    for (var v = 0u; v < vertex_count; v++) {
        for (var p = 0u; p < parameter_count; p++) {
            let centre = simplices[coordinate_index(best, p)];
            if abs(simplices[coordinate_index(v, p)] - centre) > COLLAPSED_SIZE * max(abs(centre), 1.0) {
                return false;
            }
        }
    }
    return true;
}

// Sets the next trial points: RUNNING, or the final status if the search ends.
fn choose_trial_points(rounds: i32) -> i32 {
    if vertex_count == 1u && value(0u) < NO_VALUE {
        return GTOL_STATUS; // nothing can move, and its objective is known
    }
    if rounds >= MAX_ROUNDS {
        return MAX_ROUNDS_STATUS;
    }
    if next_pending(0u) == vertex_count {
        rank_vertices();
        let lowest = value(best);
        if lowest >= NO_VALUE {
            return NOT_FINITE;
        }
        let range = value(worst) - lowest;
        // nothing has moved, and all objectives agree: they show no direction
        let untouched = u32(rounds) <= (vertex_count + LANES - 1u) / LANES;
        if untouched && range <= NOISE * abs(lowest) && lowest != 0.0 {
            return STALLED;
        }
        let coarse = coarse_fatol();
        let fatol = max(max(FATOL, RELATIVE * abs(lowest)), coarse * max(UNIT, RELATIVE_UNIT * abs(lowest)));
        if range > fatol && !is_collapsed() {
            set_search_points();
            return RUNNING;
        }
        let restarts = control[cell(RESTARTS, lane_slot(0u))];
        let last_spread = SPREAD_AT * SIMPLICES + simplex_index;
        let spread_before = last_spread + SIMPLICES;
        // two restarts in a row, one from either side, without gain
        if coarse > 0.0 || restarts >= MAX_RESTARTS || simplices[spread_before] - lowest <= fatol {
            return FTOL_STATUS;
        }
        control[cell(RESTARTS, lane_slot(0u))] = restarts + 1;
        simplices[spread_before] = simplices[last_spread];
        simplices[last_spread] = lowest;
        var size = SIZE;
        for (var k = 0; k <= restarts; k++) {
            size *= -RESPREAD_FACTOR; // from either side in turn
        }
        spread_around_best(size);
    }
    set_pending_points();
    return RUNNING;
}

// Gives the vertices without a value the objectives of the lanes, in their order; returns how many.
fn store_pending_values() -> u32 {
    var lane = 0u;
    for (var v = next_pending(0u); v < vertex_count && lane < LANES; v = next_pending(v + 1u)) {
        simplices[value_index(v)] = trial_objective(lane);
        lane++;
    }
    return lane;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= active_count() || slot_at(id.x) % LANES != 0u {
        return;
    }
    simplex_index = slot_at(id.x) / LANES;
    spectrum = spectrum_of(lane_slot(0u));
    parameter_count = min(PARAMETERS, arrayLength(&limits));
    vertex_count = 1u;
    for (var p = 0u; p < parameter_count; p++) {
        vertex_count += select(0u, 1u, upper_bound(p) > lower_bound(p));
    }
    // only points that count, not all that were evaluated
    var evaluations = 0u;
    if next_pending(0u) == vertex_count {
        rank_vertices();
        let lane = second_lane();
        if control[cell(MODE, lane_slot(0u))] == FIRST_LANES && lane < LANES {
            select_lanes(lane, lane, SECOND_LANE);
            return;
        }
        evaluations = select(1u, 2u, lane < LANES);
        replace_worst();
    } else {
        evaluations = store_pending_values();
    }
    control[cell(EVALUATIONS, lane_slot(0u))] += i32(evaluations);
    let rounds = control[cell(ROUNDS, lane_slot(0u))] + 1;
    let status = choose_trial_points(rounds);
    for (var lane = 0u; lane < LANES; lane++) {
        control[cell(ROUNDS, lane_slot(lane))] = rounds;
        control[cell(STATUS, lane_slot(lane))] = status;
    }
    select_next_lanes();
}
