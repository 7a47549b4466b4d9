// The continuum at a pixel, for normal.wgsl: the sum of a_c q_c. Whoever has the coefficients declares
// coefficient_of(c) = a_c.
//@use basis

var<private> basis_start: u32;
var<private> transform_start: u32;

fn find_basis(position: u32, spectrum: u32) {
    basis_start = basis_base(position, spectrum);
    transform_start = transform_base(position, spectrum);
}

fn continuum_at(pixel: u32) -> f32 {
    load_basis(basis_start, transform_start, pixel);
    var sum = 0.0;
    //@for c 0 TERMS
    sum += coefficient_of($cu) * q[$c];
    //@end
    return sum;
}
