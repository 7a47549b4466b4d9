// The continuum's coefficients by variable projection (Golub & Pereyra 1973): C = S^T S, S_jc = weight_j value_j
// q_c(lambda_j), C a = S^T D (see docs/src/equations.md), for continuum.wgsl, and for normal.wgsl where one kernel does
// both.
//
// A workgroup a member. `eliminate` leaves L of C = L L^T (packed) and a in `totals`, and adds ln det C to the member.
// The data begin at FIRST_DATA of a spectrum's: under a robust loss, which refinement.wgsl goes on with, the cleaned
// ones.
// A matrix that is not positive definite leaves NaN, and the step is rejected.
//@use math, members, state, packed, tree, basis

// Coefficient r of the totals, S^T D and then a, behind the triangle C, which becomes L.
fn coefficient(r: u32) -> u32 {
    return TRIANGLE + r;
}

// Replaces the triangle by its Cholesky factor, column by column, with a lane for each row. A pivot that is not
// positive leaves NaN in its column and in all that depends on it.
fn factorise(lane: u32) {
    let terms = term_count();
    // The factor grows in `scratch`, because lanes still read the triangle.
    for (var c = 0u; c < terms; c++) {
        if lane >= c && lane < terms {
            // a term that no pixel sees (an arm that drops out) leaves the solve: its row is zero, its coefficient too
            let diagonal = totals[packed(c, c)];
            var pivot = select(diagonal, 1.0, diagonal == 0.0);
            var sum = totals[packed(lane, c)];
            for (var k = 0u; k < c; k++) {
                pivot -= scratch[c][k] * scratch[c][k];
                sum -= scratch[lane][k] * scratch[c][k];
            }
            let root = select(nan_like(pivot), sqrt(pivot), pivot > 0.0 && is_finite(pivot));
            scratch[lane][c] = select(sum / root, root, lane == c);
        }
        workgroupBarrier();
    }
    if lane < terms {
        for (var c = 0u; c <= lane; c++) {
            totals[packed(lane, c)] = scratch[lane][c];
        }
    }
    workgroupBarrier();
}

// Replaces the totals x from `first` on by L^-1 x, with a lane for each element.
fn forward(first: u32, lane: u32) {
    let terms = term_count();
    var element = totals[first + min(lane, terms - 1u)];
    for (var c = 0u; c < terms; c++) {
        if lane == c {
            totals[first + c] = element / totals[packed(c, c)];
        }
        workgroupBarrier();
        if lane > c && lane < terms {
            element -= totals[packed(lane, c)] * totals[first + c];
        }
    }
}

// Replaces the totals x from `first` on by L^-T x, with a lane for each element.
fn backward(first: u32, lane: u32) {
    let terms = term_count();
    var element = totals[first + min(lane, terms - 1u)];
    for (var i = terms; i > 0u; i--) {
        let c = i - 1u;
        if lane == c {
            totals[first + c] = element / totals[packed(c, c)];
        }
        workgroupBarrier();
        if lane < c {
            element -= totals[packed(c, lane)] * totals[first + c];
        }
    }
}

// Adds a pixel, whose basis is loaded, to the sums S^T S and S^T D of the stored basis.
fn add_to_continuum(value: f32, w: f32, d: f32) {
    let scaled = w * value;
    //@for c 0 TERMS
    let s_$c = scaled * p[$c];
    //@for k 0 $c+1
    sums[$c * ($c + 1) / 2 + $k] += s_$c * s_$k;
    //@end
    sums[TRIANGLE + $cu] += s_$c * d;
    //@end
}

// Brings the sums of the stored basis to the orthonormal one: T C T^T and T S^T D, T the transform.
fn orthonormalise(lane: u32) {
    let terms = term_count();
    var image = 0.0;
    // 1. C T^T, and T S^T D
    if lane < terms {
        for (var r = 0u; r < terms; r++) {
            var sum = 0.0;
            for (var k = 0u; k <= lane; k++) {
                sum += totals[packed_symmetric(r, k)] * transform_at(lane, k);
            }
            scratch[r][lane] = sum;
        }
        for (var k = 0u; k <= lane; k++) {
            image += transform_at(lane, k) * totals[coefficient(k)];
        }
    }
    workgroupBarrier();
    // 2. T times that
    if lane < terms {
        for (var c = 0u; c <= lane; c++) {
            var sum = 0.0;
            for (var k = 0u; k <= lane; k++) {
                sum += transform_at(lane, k) * scratch[k][c];
            }
            totals[packed(lane, c)] = sum;
        }
        totals[coefficient(lane)] = image;
    }
    workgroupBarrier();
}

// a and ln det C, or NaN.
fn conclude(slot: u32, lane: u32) {
    factorise(lane);
    forward(TRIANGLE, lane);
    backward(TRIANGLE, lane);
    let terms = term_count();
    if lane < terms {
        scratch[0][lane] = logf(totals[packed(lane, lane)]);
    }
    workgroupBarrier();
    if lane == 0u {
        var ln_det = 0.0;
        for (var c = 0u; c < terms; c++) {
            ln_det += 2.0 * scratch[0][c];
        }
        state[at(TRIAL_LN_DET, slot)] += ln_det;
    }
    workgroupBarrier();
}

fn eliminate(rows: Rows, position: u32, slot: u32, lane: u32) {
    let spectrum = spectrum_of(slot);
    let data_start = pixel_data_base(position, spectrum) + FIRST_DATA;
    let weight_start = weight_base(position, spectrum);
    find_basis(position, spectrum);
    for (var j = lane; j < PIXELS; j += 64u) {
        let w = weight[weight_start + j];
        if w > 0.0 {
            load_basis(j);
            add_to_continuum(row_0(look_at(rows, j)), w, pixel_data[data_start + j]);
        }
    }
    reduce_continuum_sums(lane);
    orthonormalise(lane);
    conclude(slot, lane);
    refine(rows, position, slot, lane);
}
