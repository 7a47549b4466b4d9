// A user's model: fill(x, &u, &out) gives the value and its derivatives by u, one pixel at a time.
//
// One pixel of a member an invocation. members, state, predictor (PREDICTORS x PIXELS a spectrum), perhaps scale (3 x
// PARAMETERS per spectrum: units, lower and upper bounds), perhaps table, output (ROWS x PIXELS per member). f32.
// predictors_at and scale_of are generated.
//@use functions, gamma, faddeeva, members, state

// Position and spectrum of the current member, for differences, which need units and bounds.
var<private> here: vec2<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let pixel = group.y * 64u + lane.x;
    if pixel >= PIXELS || group.x >= member_count() {
        return;
    }
    let slot = slot_at(group.x);
    let spectrum = spectrum_of(slot);
    here = vec2<u32>(group.x, spectrum);
    var u: array<f32, PARAMETERS>;
    for (var p = 0u; p < PARAMETERS; p++) {
        u[p] = trial(p, slot) * scale_of(p, group.x, spectrum);
    }
    var out: array<f32, ROWS>;
    fill(predictors_at(predictor_base(group.x, spectrum) + pixel), &u, &out);
    let base = output_base(group.x, spectrum) + pixel;
    output[base] = out[0];
    for (var r = 1u; r < ROWS; r++) {
        output[base + r * PIXELS] = out[r] * scale_of(r - 1u, group.x, spectrum);
    }
}
