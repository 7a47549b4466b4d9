// Pixels to cubic B-spline coefficients: c_j = sum_k sqrt(3) (sqrt(3) - 2)^|k| t_{j+k}, k = -12..12, edges of a segment
// replicated (see docs/src/equations.md; the inverse of (1, 4, 1)/6).
//
// Four neighbouring pixels of one row of a member an invocation, from seven vec4 that lanes next to each other share.
// members, input and output (vec4; ROWS x COLUMNS a member); pixels outside every segment become 0. f32; the host emits
// the weights TAP_K, computed in f64, and segment_of(pixel) -> (start, end).
//@use members

const COLUMNS4: u32 = COLUMNS / 4u;

fn at_pixel(row: u32, pixel: u32) -> f32 {
    return input[row + pixel / 4u][pixel % 4u];
}

// The coefficient of a pixel near an edge; 0 outside of segments.
fn at_edge(row: u32, pixel: u32) -> f32 {
    let segment = segment_of(pixel);
    if segment.y <= segment.x {
        return 0.0;
    }
    let from_start = pixel - segment.x;
    let to_end = segment.y - 1u - pixel;
    var sum = 0.0;
    //@for i 0 12
    sum += TAP_$i * (at_pixel(row, pixel - min(12u - $iu, from_start)) + at_pixel(row, pixel + min(12u - $iu, to_end)));
    //@end
    return sum + TAP_12 * at_pixel(row, pixel);
}

fn inside(place: u32) -> vec4<f32> {
    var t: array<f32, 28>;
    //@for i 0 7
    let four_$i = input[place + $iu - 3u];
    //@for k 0 4
    t[4 * $i + $k] = four_$i[$k];
    //@end
    //@end
    var sum = vec4<f32>();
    //@for i 0 12
    sum += TAP_$i * (vec4<f32>(t[$i], t[$i + 1], t[$i + 2], t[$i + 3])
        + vec4<f32>(t[24 - $i], t[25 - $i], t[26 - $i], t[27 - $i]));
    //@end
    return sum + TAP_12 * vec4<f32>(t[12], t[13], t[14], t[15]);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let place = group.y * 64u + lane.x;
    if place >= COLUMNS4 || group.x >= member_count() {
        return;
    }
    let row = input_base(group.x, 0u) + group.z * COLUMNS4;
    let pixel = 4u * place;
    let segment = segment_of(pixel);
    let is_inside = pixel >= segment.x + 12u && pixel + 15u < segment.y;
    // near an edge the same values are read as elsewhere, and not used
    var value = inside(row + clamp(place, 3u, max(COLUMNS4, 7u) - 4u));
    // a loop instead of a branch, because software adapters compute both sides of a branch
    for (var i = select(0u, 4u, is_inside); i < 4u; i++) {
        value[i] = at_edge(row, pixel + i);
    }
    output[output_base(group.x, 0u) + group.z * COLUMNS4 + place] = value;
}
