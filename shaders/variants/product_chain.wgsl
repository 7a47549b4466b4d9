// The hidden layers of a network in one kernel: Y = layer(... layer(X W_0) ... W_n) for the rows of a round's members.
//
// A workgroup has an invocation per four columns of the widest layer, and takes the ROWS rows of CHAIN_MEMBERS members
// through all layers, so that it reads a weight once. Rows pass from layer to layer in workgroup memory. An invocation
// sums four columns of all rows in registers, k ascending, as in product.wgsl, and activates them as activate.wgsl
// does. members, x (vec4; ROWS x INNER4_0 a member), y (vec4; ROWS x LAST4 a member), weight_l of each layer l (vec4;
// 4 INNER4_l x COLUMNS4_l), and the arrays of layer_l, which the host emits. Sums in f32.
//@use members

// (member, row, column / 4)
var<workgroup> rows: array<array<array<vec4<f32>, WIDTH4>, ROWS>, CHAIN_MEMBERS>;

@compute @workgroup_size(WIDTH4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = member_count();
    //@for m 0 CHAIN_MEMBERS
    // members beyond the last are computed like it, and not written
    let member_$m = group.x * CHAIN_MEMBERS + $mu;
    for (var i = lane; i < ROWS * INNER4_0; i += WIDTH4) {
        rows[$m][i / INNER4_0][i % INNER4_0] = x[x_base(min(member_$m, max(count, 1u) - 1u), 0u) + i];
    }
    //@end
    workgroupBarrier();
    //@for l 0 LAYERS
    {
        let column = min(lane, COLUMNS4_$l - 1u);
        //@for m 0 CHAIN_MEMBERS
        //@for r 0 ROWS
        var y_$m_$r = vec4<f32>();
        //@end
        //@end
        for (var k = 0u; k < INNER4_$l; k++) {
            //@for i 0 4
            let w_$i = weight_$l[(4u * k + $iu) * COLUMNS4_$l + column];
            //@end
            //@for m 0 CHAIN_MEMBERS
            //@for r 0 ROWS
            let x_$m_$r = rows[$m][$r][k];
            //@for i 0 4
            y_$m_$r += x_$m_$r[$i] * w_$i;
            //@end
            //@end
            //@end
        }
        workgroupBarrier();
        //@for m 0 CHAIN_MEMBERS
        //@for i 0 4
        let outcome_$m_$i = layer_$l(y_$m_0[$i], 4u * column + $iu);
        //@end
        if lane < COLUMNS4_$l {
            rows[$m][0][lane] = vec4<f32>(outcome_$m_0.x, outcome_$m_1.x, outcome_$m_2.x, outcome_$m_3.x);
            //@for r 1 ROWS
            rows[$m][$r][lane] = y_$m_$r * vec4<f32>(outcome_$m_0.y, outcome_$m_1.y, outcome_$m_2.y, outcome_$m_3.y);
            //@end
        }
        //@end
        workgroupBarrier();
    }
    //@end
    //@for m 0 CHAIN_MEMBERS
    if member_$m < count {
        for (var i = lane; i < ROWS * LAST4; i += WIDTH4) {
            y[y_base(member_$m, 0u) + i] = rows[$m][i / LAST4][i % LAST4];
        }
    }
    //@end
}
