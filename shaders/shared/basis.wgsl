// The stored continuum basis at a pixel of a spectrum, p_d. Sums over pixels are made with it, and brought to the
// orthonormal basis q_c = sum_{d <= c} transform[c, d] p_d afterwards (see docs/src/equations.md, section 5). The
// coefficients of q are solved(c), of whoever has them.

var<private> p: array<f32, TERMS>;
var<private> basis_start: u32;
var<private> transform_start: u32;
// The continuum's coefficients in the stored basis
var<workgroup> stored: array<f32, TERMS>;

fn find_basis(position: u32, spectrum: u32) {
    basis_start = basis_base(position, spectrum);
    transform_start = transform_base(position, spectrum);
}

fn load_basis(pixel: u32) {
    //@for d 0 TERMS
    p[$d] = basis[basis_start + $du * PIXELS + pixel];
    //@end
}

fn transform_at(c: u32, d: u32) -> f32 {
    return transform[transform_start + c * TERMS + d];
}

// The number of terms as the compiler cannot know it: unrolling these loops takes software drivers seconds.
fn term_count() -> u32 {
    return min(TERMS, arrayLength(&transform));
}

// Sets the coefficients in the stored basis: sum_c solved(c) transform[c, d].
fn set_stored(lane: u32) {
    let terms = term_count();
    if lane < terms {
        var sum = 0.0;
        for (var c = lane; c < terms; c++) {
            sum += solved(c) * transform_at(c, lane);
        }
        stored[lane] = sum;
    }
    workgroupBarrier();
}

// Brings a vector of sums with the stored basis, totals `stride` apart from `first` on, to the orthonormal one. It
// begins with the last, whose place no other needs.
fn orthonormalise_vector(first: u32, stride: u32) {
    for (var c = term_count(); c > 0u; c--) {
        var sum = 0.0;
        for (var d = 0u; d < c; d++) {
            sum += transform_at(c - 1u, d) * totals[first + d * stride];
        }
        totals[first + (c - 1u) * stride] = sum;
    }
}

// The continuum at a pixel whose basis is loaded.
fn level() -> f32 {
    var sum = 0.0;
    //@for d 0 TERMS
    sum += stored[$d] * p[$d];
    //@end
    return sum;
}
