// Scaled labels z = (transform(x) - mean) / std at the trial point, x = origin + scale u, and their derivatives by u (design §2.1).
//
// One member an invocation. members, state, output (ROWS x STRIDE a member, zero padded): row 0 z, row t the derivative of the
// t-th label that is a parameter, in its own column. f32, 1e-6 in z. The host emits label_I(slot) -> (z, dz/du).
//@use math, members, state, label

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= active_count() {
        return;
    }
    let slot = slot_at(id.x);
    let base = output_base(id.x, 0u);
    for (var i = 0u; i < ROWS * STRIDE; i++) {
        output[base + i] = 0.0;
    }
    //@for i 0 INPUTS
    let label_$i = label_value_$i(slot);
    output[base + $iu] = label_$i.x;
    if TANGENT_ROW_$i > 0u {
        output[base + TANGENT_ROW_$i * STRIDE + $iu] = label_$i.y;
    }
    //@end
}
