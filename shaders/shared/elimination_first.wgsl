// The continuum of a member, solved by the kernel that needs it, for normal.wgsl: as projection.wgsl, from `totals`.
//@use elimination

var<private> basis_start: u32;
var<private> transform_start: u32;

fn prepare_continuum(rows: Rows, position: u32, slot: u32, lane: u32) {
    let spectrum = spectrum_of(slot);
    basis_start = basis_base(position, spectrum);
    transform_start = transform_base(position, spectrum);
    eliminate(rows, position, slot, lane);
    clear_sums();
}

fn continuum_at(pixel: u32) -> f32 {
    load_basis(basis_start, transform_start, pixel);
    var sum = 0.0;
    //@for c 0 TERMS
    sum += totals[TRIANGLE + $cu] * q[$c];
    //@end
    return sum;
}

fn factor_at(row: u32, column: u32) -> f32 {
    return totals[packed(row, column)];
}

fn continuum_failed() -> bool {
    return is_nan(totals[TRIANGLE]);
}
