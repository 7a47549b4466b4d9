// The continuum's coefficients under a robust loss, for elimination.wgsl: STEPS Newton steps that begin at the
// least-squares fit of the cleaned data,
//
//   a <- a + (kappa C)^-1 S^T psi,  kappa = max(sum psi' / N, LEAST_CURVATURE),
//
// with C = L L^T of that fit. L of C under the weights there, and L^-1 S^T psi, then take the places of L and a in
// `totals`. Twin of src/kernels/robust.rs. The host emits loss_at(r) -> (rho / LOSS_SCALE^2, psi / r, psi').

var<workgroup> refined: array<f32, TERMS>;

fn solved(c: u32) -> f32 {
    return refined[c];
}

// The gradient that the last step leaves, L^-1 S^T psi.
fn unsolved(c: u32) -> f32 {
    return totals[coefficient(c)];
}

// The residual of a pixel whose basis is loaded.
fn residual_of(value: f32, w: f32, d: f32) -> f32 {
    return d - w * level() * value;
}

fn add_to_slopes(value: f32, w: f32, d: f32) {
    let residual = residual_of(value, w, d);
    let loss = loss_at(residual);
    let slope = w * value * loss.y * residual;
    //@for c 0 TERMS
    sums[$c] += slope * p[$c];
    //@end
    sums[TERMS] += loss.z;
    sums[TERMS + 1u] += 1.0;
}

fn add_weighted(value: f32, w: f32, d: f32) {
    let residual = residual_of(value, w, d);
    let root = sqrt(loss_at(residual).y);
    add_to_continuum(value, w * root, residual * root);
}

// Takes a Newton step; NaN where the first fit has failed.
fn take_step(lane: u32) {
    if lane == 0u {
        orthonormalise_vector(REFINED, 1u);
    }
    workgroupBarrier();
    forward(REFINED, lane);
    backward(REFINED, lane);
    if lane < term_count() {
        let curvature = totals[REFINED + TERMS] / max(totals[REFINED + TERMS + 1u], 1.0);
        refined[lane] += totals[REFINED + lane] / max(curvature, LEAST_CURVATURE);
    }
    workgroupBarrier();
}

fn sweep(rows: Rows, position: u32, slot: u32, lane: u32, is_last: bool) {
    let spectrum = spectrum_of(slot);
    let data_start = pixel_data_base(position, spectrum);
    let weight_start = weight_base(position, spectrum);
    clear_sums();
    set_stored(lane);
    for (var j = lane; j < PIXELS; j += 64u) {
        let w = weight[weight_start + j];
        if w > 0.0 {
            load_basis(j);
            let value = row_0(look_at(rows, j));
            let d = pixel_data[data_start + j];
            if is_last {
                add_weighted(value, w, d);
            } else {
                add_to_slopes(value, w, d);
            }
        }
    }
}

fn refine(rows: Rows, position: u32, slot: u32, lane: u32) {
    if lane < TERMS {
        refined[lane] = totals[coefficient(lane)];
    }
    workgroupBarrier();
    for (var step = 0u; step < STEPS; step++) {
        sweep(rows, position, slot, lane, false);
        reduce_refinement_sums(lane);
        take_step(lane);
    }
    sweep(rows, position, slot, lane, true);
    reduce_continuum_sums(lane);
    orthonormalise(lane);
    factorise(lane);
    forward(TRIANGLE, lane);
    if lane < TERMS {
        // A pivot that is not positive leaves NaN in the last one.
        let is_solved = is_finite(totals[packed(TERMS - 1u, TERMS - 1u)]);
        refined[lane] = select(nan_like(1.0), refined[lane], is_solved);
    }
    workgroupBarrier();
}
