// A continuum of 1, for normal.wgsl.
const factor_start: u32 = 0u;

fn prepare_continuum(position: u32, spectrum: u32) {
}

fn continuum_at(pixel: u32) -> f32 {
    return 1.0;
}

fn factor_at(index: u32) -> f32 {
    return 1.0;
}

fn continuum_failed() -> bool {
    return false;
}
