// Rotational broadening of template rows (see docs/src/equations.md; Gray 2005, eq. 18.14): each segment convolved with
// the profile K of radius R = (vsini/c) / (d ln lambda) pixels, continued by its end values. The weight of pixel k is
// w_k = int tri(k - R x) K(x) dx, its derivative dw_k/dR = -int x tri'(k - R x) K(x) dx.
//
// A workgroup takes 64 pixels of a member, all rows. members, state, input (ROWS x COLUMNS per member), output
// (OUTPUT_ROWS x COLUMNS: value, d/du of vsini if it is a parameter, then the tangents); pixels outside every segment
// become 0. f32, weights to 5e-7: the second differences that src/kernels/broaden.rs takes would cancel here, sums of
// positive terms do not. The host emits vsini(slot) in km/s, segment_of(pixel) -> (start, end, number),
// by_vsini(segment) = 1/(c d ln lambda), VSINI_SCALE = d(vsini)/du, HALF.
//@use members, state, rotation

var<workgroup> weights: array<f32, SEGMENTS * (HALF + 1u)>;
var<workgroup> slopes: array<f32, SEGMENTS * (HALF + 1u)>;

// A place of a row inside a segment.
fn inside(segment: vec3<u32>, pixel: i32) -> u32 {
    return u32(clamp(pixel, i32(segment.x), i32(segment.y) - 1));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let v = vsini(slot_at(group.x));
    for (var i = lane; i < SEGMENTS * (HALF + 1u); i += 64u) {
        let segment = i / (HALF + 1u);
        let k = i % (HALF + 1u);
        let pair = rotation_weight(k, max(v, 0.0) * by_vsini(segment));
        weights[i] = select(pair.x, select(0.0, 1.0, k == 0u), v <= 0.0);
        slopes[i] = select(pair.y * by_vsini(segment) * VSINI_SCALE, 0.0, v < 0.0);
    }
    workgroupBarrier();
    let pixel = group.y * 64u + lane;
    if pixel >= COLUMNS {
        return;
    }
    let segment = segment_of(pixel);
    let source = input_base(group.x, 0u);
    let target_base = output_base(group.x, 0u) + pixel;
    if segment.y == 0u {
        for (var r = 0u; r < OUTPUT_ROWS; r++) {
            output[target_base + r * COLUMNS] = 0.0;
        }
        return;
    }
    let kernel = segment.z * (HALF + 1u);
    // the width at the member's vsini
    let reach = min(HALF, max(1u, u32(ceil(max(v, 0.0) * by_vsini(segment.z)))));
    // all rows together, because they share places and weights
    //@for r 0 ROWS
    let middle_$r = input[source + $ru * COLUMNS + pixel];
    var sum_$r = weights[kernel] * middle_$r;
    //@end
    var slope = slopes[kernel] * middle_0;
    for (var k = 1u; k <= reach; k++) {
        let left = source + inside(segment, i32(pixel) - i32(k));
        let right = source + inside(segment, i32(pixel + k));
        let weight = weights[kernel + k];
        //@for r 0 ROWS
        let both_$r = input[left + $ru * COLUMNS] + input[right + $ru * COLUMNS];
        sum_$r += weight * both_$r;
        //@end
        slope += slopes[kernel + k] * both_0;
    }
    output[target_base] = sum_0;
    if OUTPUT_ROWS > ROWS {
        output[target_base + COLUMNS] = slope;
    }
    //@for r 1 ROWS
    output[target_base + ($ru + OUTPUT_ROWS - ROWS) * COLUMNS] = sum_$r;
    //@end
}
