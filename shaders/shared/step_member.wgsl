// The member of an invocation of step.wgsl: what a step needs of state, control and limits, in private memory. It is
// read at once, so that a card waits for its memory once and not for every number.
//@use members, state, packed

// chi2, penalty, ln det and the sums of a loss come before the gradient, and that before the normal matrix.
const FIRST_SLOPE: u32 = TRIAL_GRADIENT - TRIAL_CHI2;
const FIRST_ENTRY: u32 = TRIAL_NORMAL - TRIAL_CHI2;

var<private> accepted: array<f32, PARAMETERS>;
var<private> trial_point: array<f32, PARAMETERS>;
var<private> lower: array<f32, PARAMETERS>;
var<private> upper: array<f32, PARAMETERS>;
// The sums at the accepted and at the trial point
var<private> sums: array<f32, TRIAL_SUMS>;
var<private> trial_sums: array<f32, TRIAL_SUMS>;
var<private> mu: f32; // damping
var<private> nu: f32; // factor by which a rejection raises it
// The reduction predicted for the last step: negative if that was rescaled, NaN before the first step
var<private> predicted_reduction: f32;
var<private> rounds: i32;
var<private> rejections: i32;
var<private> phase: i32;
var<private> finishing_steps: i32;

// A count as a compiler cannot know it, for loops that it is not to unroll: drivers of software would take seconds.
fn at_run_time(count: u32) -> u32 {
    return min(count, arrayLength(&state));
}

fn cell(field: u32, slot: u32) -> u32 {
    return field * CAPACITY + slot;
}

fn load_member(slot: u32) {
    let first_limit = spectrum_of(slot) * 4u * PARAMETERS;
    //@for p 0 PARAMETERS
    accepted[$p] = state[at(ACCEPTED + $pu, slot)];
    trial_point[$p] = state[at(TRIAL_PARAMETERS + $pu, slot)];
    lower[$p] = limits[first_limit + $pu];
    upper[$p] = limits[first_limit + PARAMETERS + $pu];
    //@end
    //@for i 0 TRIAL_SUMS
    sums[$i] = state[at(CHI2 + $iu, slot)];
    trial_sums[$i] = state[at(TRIAL_CHI2 + $iu, slot)];
    //@end
    mu = state[at(DAMPING, slot)];
    nu = state[at(DAMPING_FACTOR, slot)];
    predicted_reduction = state[at(PREDICTED_REDUCTION, slot)];
    rounds = control[cell(ROUNDS, slot)];
    rejections = control[cell(REJECTIONS, slot)];
    phase = control[cell(MODE, slot)];
    finishing_steps = control[cell(FINISHING, slot)];
}

// Writes back all but the sums, which change only with the accepted point.
fn store_member(slot: u32) {
    //@for p 0 PARAMETERS
    state[at(TRIAL_PARAMETERS + $pu, slot)] = trial_point[$p];
    //@end
    state[at(DAMPING, slot)] = mu;
    state[at(DAMPING_FACTOR, slot)] = nu;
    state[at(PREDICTED_REDUCTION, slot)] = predicted_reduction;
    control[cell(ROUNDS, slot)] = rounds;
    control[cell(REJECTIONS, slot)] = rejections;
    control[cell(MODE, slot)] = phase;
    control[cell(FINISHING, slot)] = finishing_steps;
}

// Exchanges the trial and the accepted point and their sums in the state. A loop, because its addresses would fill the
// registers.
fn exchange_points(slot: u32) {
    for (var i = 0u; i < at_run_time(ACCEPTED); i++) {
        let number = state[at(i, slot)];
        state[at(i, slot)] = state[at(ACCEPTED + i, slot)];
        state[at(ACCEPTED + i, slot)] = number;
    }
}

// Accepts the trial point: it changes places with the accepted point, and so do their sums.
fn accept_trial_point(slot: u32) {
    exchange_points(slot);
    //@for p 0 PARAMETERS
    {
        let value = accepted[$p];
        accepted[$p] = trial_point[$p];
        trial_point[$p] = value;
    }
    //@end
    //@for i 0 TRIAL_SUMS
    {
        let sum = sums[$i];
        sums[$i] = trial_sums[$i];
        trial_sums[$i] = sum;
    }
    //@end
}

// chi2 + penalty of the accepted point.
fn accepted_cost() -> f32 {
    return sums[0] + sums[1];
}

// chi2 + penalty of the trial point.
fn trial_cost() -> f32 {
    return trial_sums[0] + trial_sums[1];
}

fn gradient(p: u32) -> f32 {
    return sums[FIRST_SLOPE + p];
}

fn normal_entry(p: u32, q: u32) -> f32 {
    return sums[FIRST_ENTRY + packed_symmetric(p, q)];
}

// From the accepted point to the other: the trial point or, if that was accepted, the point before it.
fn step_to_trial_point(p: u32) -> f32 {
    return trial_point[p] - accepted[p];
}
