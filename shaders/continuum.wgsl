// Variable projection (Golub & Pereyra 1973): C = S^T S, S_jc = weight_j value_j q_c(lambda_j), C a = S^T D (design §2.4).
//
// One workgroup a member. members, state (read-write: ln det C is added), model (row 0 the value, PIXELS wide), pixel_data,
// weight (PIXELS a spectrum), basis (TERMS x PIXELS), transform (TERMS x TERMS), solution (a, then C's Cholesky factor L, row-major).
// f32, sums over 64 lanes in a fixed order. A matrix that is not positive definite leaves NaN, and the step is rejected.
//@use math, members, state, packed, tree, basis

// The number of terms as the compiler cannot know it: unrolling these loops takes software drivers seconds.
fn term_count() -> u32 {
    return min(TERMS, arrayLength(&transform));
}

// Coefficient r of the totals, S^T D and then a, behind the triangle C, which becomes L.
fn coefficient(r: u32) -> u32 {
    return TRIANGLE + r;
}

// Replaces the triangle by its Cholesky factor; false if there is none.
fn factorise() -> bool {
    let terms = term_count();
    for (var r = 0u; r < terms; r++) {
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

// Replaces S^T D by (L L^T)^-1 S^T D.
fn substitute() {
    let terms = term_count();
    for (var r = 0u; r < terms; r++) {
        var sum = totals[coefficient(r)];
        for (var k = 0u; k < r; k++) {
            sum -= totals[packed(r, k)] * totals[coefficient(k)];
        }
        totals[coefficient(r)] = sum / totals[packed(r, r)];
    }
    for (var i = terms; i > 0u; i--) {
        let r = i - 1u;
        var sum = totals[coefficient(r)];
        for (var k = i; k < terms; k++) {
            sum -= totals[packed(k, r)] * totals[coefficient(k)];
        }
        totals[coefficient(r)] = sum / totals[packed(r, r)];
    }
}

fn write_solution(base: u32, slot: u32, solved: bool) {
    let terms = term_count();
    var ln_det = 0.0;
    for (var r = 0u; r < terms; r++) {
        solution[base + r] = select(nan_like(1.0), totals[coefficient(r)], solved);
        ln_det += 2.0 * logf(totals[packed(r, r)]);
        for (var c = 0u; c < terms; c++) {
            let entry = select(0.0, totals[packed_symmetric(r, c)], c <= r);
            solution[base + TERMS + r * TERMS + c] = select(nan_like(1.0), entry, solved);
        }
    }
    let total = state[at(TRIAL_LN_DET, slot)] + ln_det;
    state[at(TRIAL_LN_DET, slot)] = select(nan_like(1.0), total, solved);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let slot = slot_at(group.x);
    let spectrum = spectrum_of(slot);
    let model_start = model_base(group.x, spectrum);
    let data_start = pixel_data_base(group.x, spectrum);
    let weight_start = weight_base(group.x, spectrum);
    let basis_start = basis_base(group.x, spectrum);
    let transform_start = transform_base(group.x, spectrum);
    for (var j = lane; j < PIXELS; j += 64u) {
        let w = weight[weight_start + j];
        if w > 0.0 {
            load_basis(basis_start, transform_start, j);
            let scaled = w * model[model_start + j];
            let d = pixel_data[data_start + j];
            //@for c 0 TERMS
            let s_$c = scaled * q[$c];
            //@for k 0 $c+1
            sums[$c * ($c + 1) / 2 + $k] += s_$c * s_$k;
            //@end
            sums[TRIANGLE + $cu] += s_$c * d;
            //@end
        }
    }
    reduce_sums(lane);
    if lane == 0u {
        let solved = factorise();
        if solved {
            substitute();
        }
        write_solution(solution_base(group.x, spectrum), slot, solved);
    }
}
