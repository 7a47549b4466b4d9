// The continuum's coefficients by least squares, for elimination.wgsl, which need no refinement.

fn refine(rows: Rows, position: u32, slot: u32, lane: u32) {
}

fn solved(c: u32) -> f32 {
    return totals[coefficient(c)];
}

fn unsolved(c: u32) -> f32 {
    return 0.0;
}
