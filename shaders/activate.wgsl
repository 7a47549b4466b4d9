// In place for each column: row 0 <- affine(sigma(row 0 + bias)), tangents <- scale sigma' tangent (see
// docs/src/equations.md).
//
// One column of a member per invocation. members, rows (read-write; ROWS x COLUMNS per member), and bias, scale, offset
// (COLUMNS; the affine only where there is one). f32, activations to 1e-7. The host emits layer, which returns a
// column's value and slope.
//@use members

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let column = group.y * 64u + lane.x;
    if column >= COLUMNS || group.x >= member_count() {
        return;
    }
    let base = rows_base(group.x, 0u) + column;
    let outcome = layer(rows[base], column);
    rows[base] = outcome.x;
    for (var r = 1u; r < ROWS; r++) {
        rows[base + r * COLUMNS] *= outcome.y;
    }
}
