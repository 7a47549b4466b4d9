// Pixels to cubic B-spline coefficients: c_j = sum_k sqrt(3) (sqrt(3) - 2)^|k| t_{j+k}, k = -12..12, edges of a segment replicated
// (design §2.3; the inverse of (1, 4, 1)/6).
//
// One pixel of one row of a member an invocation. members, input and output (ROWS x COLUMNS a member); pixels outside every segment
// become 0. f32; the host emits the weights TAP_K, computed in f64, and segment_of(pixel) -> (start, end).
//@use members

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let pixel = group.y * 64u + lane.x;
    if pixel >= COLUMNS || group.x >= active_count() {
        return;
    }
    let source = input_base(group.x, 0u) + group.z * COLUMNS;
    let segment = segment_of(pixel);
    var sum = 0.0;
    if segment.y > segment.x {
        let last = segment.y - 1u;
        let from_start = pixel - segment.x;
        let to_end = last - pixel;
        //@for i 0 12
        sum += TAP_$i * (input[source + pixel - min(12u - $iu, from_start)] + input[source + pixel + min(12u - $iu, to_end)]);
        //@end
        sum += TAP_12 * input[source + pixel];
    }
    output[output_base(group.x, 0u) + group.z * COLUMNS + pixel] = sum;
}
