// A banded matrix applied to rows: output_j = sum_d matrix_d[j + o_d] input[j + o_d], o = DIAGONALS/2 .. -DIAGONALS/2,
// zero beyond the ends (see docs/src/equations.md): the spectra's own resolution in DESI's storage, or a line spread on
// the template's pixels.
//
// One pixel of one row of a member an invocation. members, input and output (ROWS x PIXELS a member), matrix (DIAGONALS
// x PIXELS, a spectrum or constant). f32, d in ascending order.
//@use members

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let pixel = group.y * 64u + lane.x;
    if pixel >= PIXELS || group.x >= member_count() {
        return;
    }
    let band = matrix_base(group.x, spectrum_of(slot_at(group.x)));
    let row = input_base(group.x, 0u) + group.z * PIXELS;
    var sum = 0.0;
    for (var d = 0u; d < DIAGONALS; d++) {
        let column = i32(pixel + DIAGONALS / 2u) - i32(d);
        if column >= 0 && column < i32(PIXELS) {
            sum += matrix[band + d * PIXELS + u32(column)] * input[row + u32(column)];
        }
    }
    output[output_base(group.x, 0u) + group.z * PIXELS + pixel] = sum;
}
