// A continuum of 1, for normal.wgsl.

fn prepare_continuum(rows: Rows, position: u32, slot: u32, lane: u32) {
}

fn load_basis(pixel: u32) {
}

fn level() -> f32 {
    return 1.0;
}

fn orthonormalise_vector(first: u32, stride: u32) {
}

fn rest_of(c: u32) -> f32 {
    return 0.0;
}

fn factor_at(row: u32, column: u32) -> f32 {
    return 1.0;
}

fn continuum_failed() -> bool {
    return false;
}
