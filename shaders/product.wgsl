// Y[row, n] = sum_k X[row, k] W[k, n] over the rows of a round's members: nearly all the arithmetic (see
// docs/src/equations.md).
//
// One invocation computes 4 rows x 16 columns in 16 vec4 registers, k in ascending order, no barriers: the best variant
// on software adapters (gpu_notes). members, x (vec4; ROWS x INNER a member), w (vec4; INNER x COLUMNS), y (vec4; ROWS
// x COLUMNS per member). Sums in f32. The host emits x_at and w_at, which return four numbers, of f32 or of halves, and
// y_sum: a multiple of the product, or what y holds plus that.
//@use members

const INNER4: u32 = INNER / 4u;
const COLUMNS4: u32 = COLUMNS / 4u;

fn x_start(row: u32) -> u32 {
    return x_base(row / ROWS, 0u) + (row % ROWS) * INNER4;
}

fn store(row: u32, limit: u32, column: u32, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) {
    if row < limit {
        let start = y_base(row / ROWS, 0u) + (row % ROWS) * COLUMNS4 + column;
        y[start] = y_sum(start, a);
        y[start + 1u] = y_sum(start + 1u, b);
        y[start + 2u] = y_sum(start + 2u, c);
        y[start + 3u] = y_sum(start + 3u, d);
    }
}

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let rows = member_count() * ROWS;
    let row = (group.x * 8u + lane.y) * 4u;
    let column = (group.y * 8u + lane.x) * 4u;
    if row >= rows || column >= COLUMNS4 {
        return;
    }
    let last = rows - 1u;
    //@for r 0 4
    let start_$r = x_start(min(row + $r, last));
    var y_$r_0 = vec4<f32>();
    var y_$r_1 = vec4<f32>();
    var y_$r_2 = vec4<f32>();
    var y_$r_3 = vec4<f32>();
    //@end
    var weight = column;
    for (var k = 0u; k < INNER4; k++) {
        //@for r 0 4
        let x_$r = x_at(start_$r + k);
        //@end
        //@for i 0 4
        //@for n 0 4
        let w_$i_$n = w_at(weight + $nu);
        //@end
        weight += COLUMNS4;
        //@for r 0 4
        //@for n 0 4
        y_$r_$n += x_$r[$i] * w_$i_$n;
        //@end
        //@end
        //@end
    }
    //@for r 0 4
    store(row + $r, rows, column, y_$r_0, y_$r_1, y_$r_2, y_$r_3);
    //@end
}
