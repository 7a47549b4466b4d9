// The orthonormal continuum basis at pixel j of a spectrum: q_c = sum_{d <= c} transform[c, d] basis[d, j].
var<private> q: array<f32, TERMS>;

fn load_basis(basis_start: u32, transform_start: u32, pixel: u32) {
    //@for d 0 TERMS
    let p_$d = basis[basis_start + $du * PIXELS + pixel];
    //@end
    //@for c 0 TERMS
    var q_$c = 0.0;
    //@for d 0 $c+1
    q_$c += transform[transform_start + $cu * TERMS + $du] * p_$d;
    //@end
    q[$c] = q_$c;
    //@end
}
