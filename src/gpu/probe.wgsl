// What an adapter's arithmetic is asked before it is trusted: e^x, ln x, NaN by its bits, and a sum as a tree in a
// fixed order. `points` and `values` hold 64 numbers for each of the four; the sum is the first of its own.

var<workgroup> terms: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {
    values[lane] = expf(points[lane]);
    values[64u + lane] = logf(points[64u + lane]);
    values[128u + lane] = select(0.0, 1.0, is_nan(points[128u + lane]));
    terms[lane] = points[192u + lane];
    for (var width = 32u; width > 0u; width /= 2u) {
        workgroupBarrier();
        if lane < width {
            terms[lane] += terms[lane + width];
        }
    }
    workgroupBarrier();
    values[192u + lane] = terms[0];
}
