// The continuum of a member, solved by the kernel that needs it, for normal.wgsl: as projection.wgsl, from `totals`.
//@use elimination

fn prepare_continuum(rows: Rows, position: u32, slot: u32, lane: u32) {
    eliminate(rows, position, slot, lane);
    set_stored(lane);
    clear_sums();
}

fn rest_of(c: u32) -> f32 {
    return unsolved(c);
}

fn factor_at(row: u32, column: u32) -> f32 {
    return totals[packed(row, column)];
}

fn continuum_failed() -> bool {
    return is_nan(solved(0u));
}
