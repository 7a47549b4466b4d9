// Scaled labels of a network and their derivatives (see docs/src/equations.md).
//
// One member per invocation. members, and the arrays of label_rows.wgsl.
//@use label_rows

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < member_count() {
        write_label_rows(id.x);
    }
}
