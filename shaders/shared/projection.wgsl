// The continuum of a member as continuum.wgsl has solved it, for normal.wgsl: the sum of a_c q_c at a pixel, and L of C = L L^T.
//@use basis

var<private> basis_start: u32;
var<private> transform_start: u32;
var<private> solution_start: u32;

fn prepare_continuum(rows: Rows, position: u32, slot: u32, lane: u32) {
    let spectrum = spectrum_of(slot);
    basis_start = basis_base(position, spectrum);
    transform_start = transform_base(position, spectrum);
    solution_start = solution_base(position, spectrum);
}

fn continuum_at(pixel: u32) -> f32 {
    load_basis(basis_start, transform_start, pixel);
    var sum = 0.0;
    //@for c 0 TERMS
    sum += solution[solution_start + $cu] * q[$c];
    //@end
    return sum;
}

fn factor_at(row: u32, column: u32) -> f32 {
    return solution[solution_start + TERMS + row * TERMS + column];
}

fn continuum_failed() -> bool {
    return is_nan(solution[solution_start]);
}
