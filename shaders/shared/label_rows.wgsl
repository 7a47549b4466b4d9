// Rows of scaled labels z = (transform(x) - mean) / std at the trial point, x = origin + scale u, and of their
// derivatives by u, for labels.wgsl and the prior that writes them (see docs/src/equations.md).
//
// state, output (ROWS x STRIDE per member, zero padded): row 0 z, row t the derivatives by the t-th parameter that a
// label depends on, a label a column. f32, 1e-6 in z. The host emits fill(slot, base), which writes what is not zero.
//@use math, members, state, label

fn write_label_rows(position: u32) {
    let base = output_base(position, 0u);
    for (var i = 0u; i < ROWS * STRIDE; i++) {
        output[base + i] = 0.0;
    }
    fill(slot_at(position), base);
}
