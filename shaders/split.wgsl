// Numbers as 16-bit ones: what products of halves read. halves <- FACTOR input, rounded to the nearest f16, ties to
// even, two in a u32. remainder <- of a member's first row, the value's, first what rounding left, times
// REMAINDER_SCALE, and behind that the row's halves once more.
//
// One pair of a member per invocation. members, input (f32; 2 PAIRS a member, of which the first 2 ROW_PAIRS are the
// value's), halves (u32; PAIRS per member), remainder (u32; 2 ROW_PAIRS per member).
//@use halves, members

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let pair = group.y * 64u + lane.x;
    if pair >= PAIRS || group.x >= member_count() {
        return;
    }
    let at = input_base(group.x, 0u) + 2u * pair;
    let x = FACTOR * vec2<f32>(input[at], input[at + 1u]);
    let rounded = half_bits(x.x) | (half_bits(x.y) << 16u);
    halves[halves_base(group.x, 0u) + pair] = rounded;
    if pair < ROW_PAIRS {
        let left = REMAINDER_SCALE * (x - unpack2x16float(rounded));
        let start = remainder_base(group.x, 0u) + pair;
        remainder[start] = half_bits(left.x) | (half_bits(left.y) << 16u);
        remainder[start + ROW_PAIRS] = rounded;
    }
}
