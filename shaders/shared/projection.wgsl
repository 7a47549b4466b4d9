// The solved continuum of a member, for normal.wgsl: the sum of a_c q_c at a pixel, and L of C = L L^T.
//@use basis

var<private> basis_start: u32;
var<private> transform_start: u32;
var<private> solution_start: u32;
var<private> factor_start: u32;

fn prepare_continuum(position: u32, spectrum: u32) {
    basis_start = basis_base(position, spectrum);
    transform_start = transform_base(position, spectrum);
    solution_start = solution_base(position, spectrum);
    factor_start = solution_start + TERMS;
}

fn continuum_at(pixel: u32) -> f32 {
    load_basis(basis_start, transform_start, pixel);
    var sum = 0.0;
    //@for c 0 TERMS
    sum += solution[solution_start + $cu] * q[$c];
    //@end
    return sum;
}

fn factor_at(index: u32) -> f32 {
    return solution[index];
}

fn continuum_failed() -> bool {
    return is_nan(solution[solution_start]);
}
