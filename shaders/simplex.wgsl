// One Nelder-Mead iteration, or half of one, of every active simplex: takes the values of the points that its members
// evaluated, then sets the next ones. Coefficients of Gao & Han 2012; in coarse searches of up to CLASSICAL free
// parameters those of Nelder & Mead 1965.
//
// Where more than FEW_SIMPLICES are active, they fill the device: then the reflection is evaluated first, and in
// another round the expansion or the contraction that it asks for, if any; the other members sit out. Where there are
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

fn place(v: u32, p: u32) -> u32 {
    return (v * PARAMETERS + p) * SIMPLICES + simplex_index;
}

fn value_place(v: u32) -> u32 {
    return (VALUES + v) * SIMPLICES + simplex_index;
}

fn value(v: u32) -> f32 {
    return simplices[value_place(v)];
}

fn coarse_fatol() -> f32 {
    return simplices[COARSE_FATOL * SIMPLICES + simplex_index];
}

fn is_classical() -> bool {
    return coarse_fatol() > 0.0 && vertex_count <= CLASSICAL + 1u;
}

fn lane_slot(lane: u32) -> u32 {
    return simplex_index * LANES + lane;
}

fn cell(field: u32, slot: u32) -> u32 {
    return field * CAPACITY + slot;
}

// What the member of a lane found.
fn found(lane: u32) -> f32 {
    let slot = lane_slot(lane);
    let cost = state[at(TRIAL_CHI2, slot)] + state[at(TRIAL_PENALTY, slot)];
    let sum = cost + MARGINALISE * state[at(TRIAL_LN_DET, slot)];
    return select(NO_VALUE, sum, is_finite(sum));
}

// The first pending vertex from `v` on; vertex_count when there is none.
fn next_pending(v: u32) -> u32 {
    var at_vertex = v;
    while at_vertex < vertex_count && value(at_vertex) != PENDING {
        at_vertex++;
    }
    return at_vertex;
}

// The lowest vertex (the first of equals), the highest and the second highest (the last of equals).
fn sort_ends() {
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
    let reflected = found(0u);
    if reflected < value(best) {
        return 1u;
    }
    if reflected < value(second) {
        return LANES;
    }
    return select(3u, 2u, reflected < value(worst));
}

// Lets some lanes take part in the next round, and the others sit it out: a pause of 1, which every round renews.
fn ask(first: u32, last: u32, mode: i32) {
    for (var lane = 0u; lane < LANES; lane++) {
        control[cell(PAUSE, lane_slot(lane))] = select(1, 0, lane >= first && lane <= last);
    }
    control[cell(MODE, lane_slot(0u))] = mode;
}

// Lets those lanes take part in the next round whose points count: a vertex each that has no value, or the reflection.
fn ask_next() {
    if active_count() <= LANES * FEW_SIMPLICES {
        ask(0u, LANES - 1u, ALL_LANES);
        return;
    }
    var pending = 0u;
    for (var v = next_pending(0u); v < vertex_count; v = next_pending(v + 1u)) {
        pending++;
    }
    ask(0u, min(max(pending, 1u), LANES) - 1u, FIRST_LANES);
}

// Accepts one of the four trial points, or shrinks towards the best vertex.
fn replace_worst() {
    let reflected = found(0u);
    var lane = LANES;
    if reflected < value(best) {
        lane = select(0u, 1u, found(1u) < reflected);
    } else if reflected < value(second) {
        lane = 0u;
    } else if reflected < value(worst) {
        lane = select(LANES, 2u, found(2u) <= reflected);
    } else {
        lane = select(LANES, 3u, found(3u) < value(worst));
    }
    if lane < LANES {
        for (var p = 0u; p < parameter_count; p++) {
            simplices[place(worst, p)] = trial(p, lane_slot(lane));
        }
        simplices[value_place(worst)] = found(lane);
        return;
    }
    let shrink = select(1.0 - 1.0 / f32(max(vertex_count - 1u, 2u)), 0.5, is_classical());
    for (var v = 0u; v < vertex_count; v++) {
        if v != best {
            for (var p = 0u; p < parameter_count; p++) {
                let centre = simplices[place(best, p)];
                simplices[place(v, p)] = centre + shrink * (simplices[place(v, p)] - centre);
            }
            simplices[value_place(v)] = PENDING;
        }
    }
}

// The other vertices at `size` (of either sign) from the best along each free parameter, the other way where a bound is
// nearer; their values pending.
fn spread(size: f32) {
    let lowest = value(best);
    for (var p = 0u; p < parameter_count; p++) {
        let centre = simplices[place(best, p)];
        for (var v = 0u; v < vertex_count; v++) {
            simplices[place(v, p)] = centre;
        }
    }
    var v = 0u;
    simplices[value_place(0u)] = lowest;
    for (var p = 0u; p < parameter_count; p++) {
        if upper_bound(p) > lower_bound(p) {
            v++;
            let centre = simplices[place(v, p)];
            let edge = size * max(LEAST_EDGE * abs(centre), 1.0);
            let there = centre + edge;
            let back = clamp(centre - edge, lower_bound(p), upper_bound(p));
            let inside = there >= lower_bound(p) && there <= upper_bound(p);
            simplices[place(v, p)] = select(back, there, inside);
            simplices[value_place(v)] = PENDING;
        }
    }
}

// Reflection, expansion, outside and inside contraction of the worst vertex, inside the box.
fn set_search() {
    let n = f32(vertex_count - 1u);
    let expansion = select(1.0 + 2.0 / n, 2.0, is_classical());
    let contraction = select(0.75 - 0.5 / n, 0.5, is_classical());
    for (var p = 0u; p < parameter_count; p++) {
        var sum = 0.0;
        for (var v = 0u; v < vertex_count; v++) {
            sum += select(simplices[place(v, p)], 0.0, v == worst);
        }
        let centroid = sum / n;
        let away = centroid - simplices[place(worst, p)];
        let low = lower_bound(p);
        let high = upper_bound(p);
        state[at(TRIAL_PARAMETERS + p, lane_slot(0u))] = clamp(centroid + away, low, high);
        state[at(TRIAL_PARAMETERS + p, lane_slot(1u))] = clamp(centroid + expansion * away, low, high);
        state[at(TRIAL_PARAMETERS + p, lane_slot(2u))] = clamp(centroid + contraction * away, low, high);
        state[at(TRIAL_PARAMETERS + p, lane_slot(3u))] = clamp(centroid - contraction * away, low, high);
    }
}

fn set_pending() {
    let first = next_pending(0u);
    var v = first;
    for (var lane = 0u; lane < LANES; lane++) {
        let vertex = select(first, v, v < vertex_count);
        for (var p = 0u; p < parameter_count; p++) {
            state[at(TRIAL_PARAMETERS + p, lane_slot(lane))] = simplices[place(vertex, p)];
        }
        v = next_pending(min(v + 1u, vertex_count));
    }
}

// The vertices differ by what rounding leaves of them: their objectives tell nothing more.
fn is_collapsed() -> bool {
    for (var v = 0u; v < vertex_count; v++) {
        for (var p = 0u; p < parameter_count; p++) {
            let centre = simplices[place(best, p)];
            if abs(simplices[place(v, p)] - centre) > COLLAPSED * max(abs(centre), 1.0) {
                return false;
            }
        }
    }
    return true;
}

// Sets the next trial points (RUNNING), or tells why there are none.
fn choose(rounds: i32) -> i32 {
    if vertex_count == 1u && value(0u) < NO_VALUE {
        return GTOL_STATUS; // nothing can move, and its objective is known
    }
    if rounds >= MAX_ROUNDS {
        return MAX_ROUNDS_STATUS;
    }
    if next_pending(0u) == vertex_count {
        sort_ends();
        let lowest = value(best);
        if lowest >= NO_VALUE {
            return NOT_FINITE;
        }
        let range = value(worst) - lowest;
        // nothing has moved, and nowhere does the objective tell where to
        let untouched = u32(rounds) <= (vertex_count + LANES - 1u) / LANES;
        if untouched && range <= NOISE * abs(lowest) && lowest != 0.0 {
            return STALLED;
        }
        let coarse = coarse_fatol();
        let fatol = max(max(FATOL, RELATIVE * abs(lowest)), coarse * max(UNIT, RELATIVE_UNIT * abs(lowest)));
        if range > fatol && !is_collapsed() {
            set_search();
            return RUNNING;
        }
        let restarts = control[cell(RESTARTS, lane_slot(0u))];
        let spread_place = SPREAD_AT * SIMPLICES + simplex_index;
        let before = spread_place + SIMPLICES;
        // once from either side without gain
        if coarse > 0.0 || restarts >= MAX_RESTARTS || simplices[before] - lowest <= fatol {
            return FTOL_STATUS;
        }
        control[cell(RESTARTS, lane_slot(0u))] = restarts + 1;
        simplices[before] = simplices[spread_place];
        simplices[spread_place] = lowest;
        var size = SIZE;
        for (var k = 0; k <= restarts; k++) {
            size *= -RESPREAD; // from either side in turn
        }
        spread(size);
    }
    set_pending();
    return RUNNING;
}

// Gives the vertices without a value the values that the lanes found, in their order; returns how many did.
fn take_values() -> u32 {
    var lane = 0u;
    for (var v = next_pending(0u); v < vertex_count && lane < LANES; v = next_pending(v + 1u)) {
        simplices[value_place(v)] = found(lane);
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
    // points that count, whatever else was evaluated
    var evaluations = 0u;
    if next_pending(0u) == vertex_count {
        sort_ends();
        let lane = second_lane();
        if control[cell(MODE, lane_slot(0u))] == FIRST_LANES && lane < LANES {
            ask(lane, lane, SECOND_LANE);
            return;
        }
        evaluations = select(1u, 2u, lane < LANES);
        replace_worst();
    } else {
        evaluations = take_values();
    }
    control[cell(EVALUATIONS, lane_slot(0u))] += i32(evaluations);
    let rounds = control[cell(ROUNDS, lane_slot(0u))] + 1;
    let status = choose(rounds);
    for (var lane = 0u; lane < LANES; lane++) {
        control[cell(ROUNDS, lane_slot(lane))] = rounds;
        control[cell(STATUS, lane_slot(lane))] = status;
    }
    ask_next();
}
