// Scaled labels z = (transform(x) - mean) / std at the trial point, x = origin + scale u, and their derivatives by u
// (see docs/src/equations.md).
//
// One member per invocation. members, state, output (ROWS x STRIDE per member, zero padded): row 0 z, row t the
// derivatives by the t-th parameter that a label depends on, a label a column. f32, 1e-6 in z. The host emits
// fill(slot, base), which writes what is not zero.
//@use math, members, state, label

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= member_count() {
        return;
    }
    let base = output_base(id.x, 0u);
    for (var i = 0u; i < ROWS * STRIDE; i++) {
        output[base + i] = 0.0;
    }
    fill(slot_at(id.x), base);
}
