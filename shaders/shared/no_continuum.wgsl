// A continuum of 1, for normal.wgsl.

fn prepare_continuum(rows: Rows, position: u32, slot: u32, lane: u32) {
}

fn continuum_at(pixel: u32) -> f32 {
    return 1.0;
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
