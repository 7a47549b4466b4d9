// Sums of a pixel under a robust loss, for normal.wgsl: with weights w = psi(r) / r the rows of S, J and r are
// multiplied by sqrt(w). The cost is the sum of rho, the gradient J^T psi - B^T C^-1 S^T psi, and the normal matrix is
// multiplied by sum psi' / sum w. The sums of w, psi', psi^2 and of downweighted pixels are at OF_LOSS. Twin of
// src/kernels/robust.rs.
//
// The host emits loss_at(r) -> (rho / LOSS_SCALE^2, w, psi').

fn add_residual(r: f32) -> vec2<f32> {
    let loss = loss_at(r);
    let psi = loss.y * r;
    sums[0] += LOSS_SCALE * LOSS_SCALE * loss.x;
    sums[OF_LOSS] += loss.y;
    sums[OF_LOSS + 1u] += loss.z;
    sums[OF_LOSS + 2u] += psi * psi;
    sums[OF_LOSS + 3u] += select(0.0, 1.0, loss.y < LEAST_WEIGHT);
    let root = sqrt(loss.y);
    return vec2<f32>(root, r * root);
}

fn gradient_of(i: u32) -> f32 {
    var sum = totals[FIRST + 1u + i];
    for (var c = 0u; c < TERMS; c++) {
        sum -= totals[cross_at(c, i)] * rest_of(c);
    }
    return sum;
}

// The factor of the normal matrix, which gives it the loss's mean curvature; it must not vanish far from the minimum.
fn curvature_ratio() -> f32 {
    let weight = totals[FIRST + OF_LOSS];
    return select(1.0, max(totals[FIRST + OF_LOSS + 1u] / weight, LEAST_RATIO), weight > 0.0);
}

fn add_loss_sums(slot: u32) {
    state[at(TRIAL_LOSS, slot)] += totals[FIRST + OF_LOSS + 1u];
    state[at(TRIAL_LOSS + 1u, slot)] += curvature_ratio() * totals[FIRST + OF_LOSS];
    state[at(TRIAL_LOSS + 2u, slot)] += totals[FIRST + OF_LOSS + 2u];
    state[at(TRIAL_LOSS + 3u, slot)] += totals[FIRST + OF_LOSS + 3u];
}
