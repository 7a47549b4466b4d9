// In place for each column: row 0 <- affine(sigma(row 0 + bias)), tangents <- scale sigma' tangent (design §2.1, 2.2).
//
// One column of a member an invocation. members, rows (read-write; ROWS x COLUMNS a member), bias, scale, offset (COLUMNS; the
// affine only where there is one: the host emits affine_scale and affine_offset). f32, activations to 1e-7.
//@use math, activation, members

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let column = group.y * 64u + lane.x;
    if column >= COLUMNS || group.x >= active_count() {
        return;
    }
    let base = rows_base(group.x, 0u) + column;
    let outcome = activation(rows[base] + bias[column]);
    let scale = affine_scale(column);
    rows[base] = outcome.x * scale + affine_offset(column);
    let slope = outcome.y * scale;
    for (var r = 1u; r < ROWS; r++) {
        rows[base + r * COLUMNS] *= slope;
    }
}
