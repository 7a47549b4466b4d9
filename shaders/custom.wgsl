// A model of the user's own: model(x, &u, &out) fills the value and its derivatives by u, one pixel at a time.
//
// One pixel of a member an invocation. members, state, predictor (PIXELS a spectrum), output (ROWS x PIXELS a member). f32.
//@use math, members, state

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let pixel = group.y * 64u + lane.x;
    if pixel >= PIXELS || group.x >= active_count() {
        return;
    }
    let slot = slot_at(group.x);
    let spectrum = spectrum_of(slot);
    var u: array<f32, PARAMETERS>;
    for (var p = 0u; p < PARAMETERS; p++) {
        u[p] = trial(p, slot);
    }
    var out: array<f32, ROWS>;
    model(predictor[predictor_base(group.x, spectrum) + pixel], &u, &out);
    let base = output_base(group.x, spectrum) + pixel;
    for (var r = 0u; r < ROWS; r++) {
        output[base + r * PIXELS] = out[r];
    }
}
