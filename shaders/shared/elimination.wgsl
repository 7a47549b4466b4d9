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

// Replaces the triangle by its Cholesky factor; false if there is none.
fn factorise() -> bool {
    let terms = term_count();
    for (var r = 0u; r < terms; r++) {
        // a term that no pixel sees (an arm that drops out) leaves the solve: its row is zero, its coefficient too
        if totals[packed(r, r)] == 0.0 {
            totals[packed(r, r)] = 1.0;
        }
        for (var c = 0u; c <= r; c++) {
            var sum = totals[packed(r, c)];
            for (var k = 0u; k < c; k++) {
                sum -= totals[packed(r, k)] * totals[packed(c, k)];
            }
            if r > c {
                totals[packed(r, c)] = sum / totals[packed(c, c)];
            } else if sum > 0.0 && is_finite(sum) {
                totals[packed(r, r)] = sqrt(sum);
            } else {
                return false;
            }
        }
    }
    return true;
}

// Replaces the totals x from `first` on by L^-1 x.
fn forward(first: u32) {
    let terms = term_count();
    for (var r = 0u; r < terms; r++) {
        var sum = totals[first + r];
        for (var k = 0u; k < r; k++) {
            sum -= totals[packed(r, k)] * totals[first + k];
        }
        totals[first + r] = sum / totals[packed(r, r)];
    }
}

// Replaces the totals x from `first` on by L^-T x.
fn backward(first: u32) {
    let terms = term_count();
    for (var i = terms; i > 0u; i--) {
        let r = i - 1u;
        var sum = totals[first + r];
        for (var k = i; k < terms; k++) {
            sum -= totals[packed(k, r)] * totals[first + k];
        }
        totals[first + r] = sum / totals[packed(r, r)];
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
fn conclude(slot: u32) {
    let solved = factorise();
    if solved {
        forward(TRIANGLE);
        backward(TRIANGLE);
    }
    let terms = term_count();
    var ln_det = select(nan_like(1.0), 0.0, solved);
    for (var r = 0u; r < terms; r++) {
        ln_det += 2.0 * logf(totals[packed(r, r)]);
        totals[coefficient(r)] = select(nan_like(1.0), totals[coefficient(r)], solved);
    }
    state[at(TRIAL_LN_DET, slot)] += ln_det;
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
    if lane == 0u {
        conclude(slot);
    }
    workgroupBarrier();
    refine(rows, position, slot, lane);
}
