// output <- input, rounded to the nearest f16, ties to even, two in a u32: what a product of halves reads.
//
// One pair of a member per invocation. members, input (f32; 2 PAIRS
// a member), output (u32; PAIRS per member).
//@use halves, members

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let pair = group.y * 64u + lane.x;
    if pair >= PAIRS || group.x >= member_count() {
        return;
    }
    let at = input_base(group.x, 0u) + 2u * pair;
    output[output_base(group.x, 0u) + pair] = half_bits(input[at]) | (half_bits(input[at + 1u]) << 16u);
}
