// Sums over a workgroup of 64 lanes in a fixed order. Each lane keeps at most SUMS partial sums in `sums`; the
// generated `reduce_sums` brings 32 of them at a time into `scratch`, and `fold` leaves the totals in `totals`: those
// of a first sweep over the pixels, `reduce_continuum_sums`, before those of the second.

var<private> sums: array<f32, SUMS>;
// (32 sums, 64 lanes), and one column of padding against bank conflicts. Two dimensions, so that constants among the
// indices need no check of bounds
var<workgroup> scratch: array<array<f32, 65>, 32>;
var<workgroup> totals: array<f32, TOTALS>;

// Lane s adds up the 64 partial sums of number first + s, sixteen at a time.
fn fold(lane: u32, first: u32, count: u32) {
    if lane < count {
        var partial = vec4<f32>();
        //@for i 0 16
        let first_$i = vec2<f32>(scratch[lane][4 * $i], scratch[lane][4 * $i + 1]);
        let last_$i = vec2<f32>(scratch[lane][4 * $i + 2], scratch[lane][4 * $i + 3]);
        partial += vec4<f32>(first_$i, last_$i);
        //@end
        totals[first + lane] = (partial.x + partial.y) + (partial.z + partial.w);
    }
}

fn clear_sums() {
    sums = array<f32, SUMS>();
}
