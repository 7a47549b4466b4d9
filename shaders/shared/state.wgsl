// The members' numbers, one array of CAPACITY slots a field: `state[at(FIELD + index, slot)]`. Offsets come from
// src/gpu/layout.rs.

fn at(field: u32, slot: u32) -> u32 {
    return field * CAPACITY + slot;
}

fn trial(parameter: u32, slot: u32) -> f32 {
    return state[at(TRIAL_PARAMETERS + parameter, slot)];
}
