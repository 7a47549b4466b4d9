// One tiny network a pixel (El-Badry et al. 2018): y = b1 + sum_h w1_h sigma(b0_h + sum_l w0_hl z_l), and its tangents.
//
// One pixel of a member an invocation. members, input (ROWS x INPUT_STRIDE a member), w0 (HIDDEN, LABELS, COLUMNS), b0
// and w1 (HIDDEN, COLUMNS), b1 (COLUMNS), output (ROWS x COLUMNS per member). f32, activations to 1e-7.
//@use math, activation, members

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let column = group.y * 64u + lane.x;
    if column >= COLUMNS || group.x >= member_count() {
        return;
    }
    let z = input_base(group.x, 0u);
    let base = output_base(group.x, 0u) + column;
    //@for r 0 ROWS
    var sum_$r = 0.0;
    //@end
    for (var h = 0u; h < HIDDEN; h++) {
        //@for r 0 ROWS
        var inner_$r = 0.0;
        //@end
        for (var l = 0u; l < LABELS; l++) {
            let weight = w0[(h * LABELS + l) * COLUMNS + column];
            //@for r 0 ROWS
            inner_$r += weight * input[z + $ru * INPUT_STRIDE + l];
            //@end
        }
        let outcome = activation(inner_0 + b0[h * COLUMNS + column]);
        let weight = w1[h * COLUMNS + column];
        sum_0 += weight * outcome.x;
        let slope = weight * outcome.y;
        //@for r 1 ROWS
        sum_$r += slope * inner_$r;
        //@end
    }
    sum_0 += b1[column];
    //@for r 0 ROWS
    output[base + $ru * COLUMNS] = sum_$r;
    //@end
}
