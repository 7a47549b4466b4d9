// The continuum of a member as continuum.wgsl has solved it, for normal.wgsl: a, and L of C = L L^T.
//@use basis

var<private> solution_start: u32;

fn prepare_continuum(rows: Rows, position: u32, slot: u32, lane: u32) {
    find_basis(position, spectrum_of(slot));
    solution_start = solution_base(position, spectrum_of(slot));
    set_stored(lane);
}

fn solved(c: u32) -> f32 {
    return solution[solution_start + c];
}

fn rest_of(c: u32) -> f32 {
    return solution[solution_start + TERMS + TERMS * TERMS + c];
}

fn factor_at(row: u32, column: u32) -> f32 {
    return solution[solution_start + TERMS + row * TERMS + column];
}

fn continuum_failed() -> bool {
    return is_nan(solved(0u));
}
