// Sums over a workgroup of 64 lanes in a fixed order. Each lane keeps at most SUMS partial sums in `sums`; the
// generated `reduce_sums` brings 32 of them at a time into `scratch`, and `fold` leaves the totals in `totals`: those
// of a first sweep over the pixels, `reduce_continuum_sums`, before those of the second.

var<private> sums: array<f32, SUMS>;
var<workgroup> scratch: array<f32, 2080>; // 32 sums x 65: one column of padding against bank conflicts
var<workgroup> totals: array<f32, TOTALS>;

// Lane s adds up the 64 partial sums of number first + s, sixteen at a time.
fn fold(lane: u32, first: u32, count: u32) {
    if lane < count {
        let row = lane * 65u;
        var partial = vec4<f32>();
        for (var i = 0u; i < 64u; i += 4u) {
            partial += vec4<f32>(scratch[row + i], scratch[row + i + 1u], scratch[row + i + 2u], scratch[row + i + 3u]);
        }
        totals[first + lane] = (partial.x + partial.y) + (partial.z + partial.w);
    }
}

fn clear_sums() {
    sums = array<f32, SUMS>();
}
