// Variable projection: the continuum's coefficients and the Cholesky factor of C, see elimination.wgsl (see
// docs/src/equations.md).
//
// One workgroup per member. members, state (read-write: ln det C is added), model (row 0 the value, PIXELS wide),
// pixel_data, weight (PIXELS per spectrum), basis (TERMS x PIXELS), transform (TERMS x TERMS), solution (a, then L,
// row-major, and under a robust loss L^-1 S^T psi). f32, sums over 64 lanes in a fixed order.
//@use elimination

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let slot = slot_at(group.x);
    let spectrum = spectrum_of(slot);
    eliminate(rows_of(group.x, spectrum, slot), group.x, slot, lane);
    let base = solution_base(group.x, spectrum);
    if lane < TERMS {
        let failed = is_nan(solved(lane));
        solution[base + lane] = solved(lane);
        for (var c = 0u; c < TERMS; c++) {
            let entry = select(0.0, totals[packed_symmetric(lane, c)], c <= lane);
            solution[base + TERMS + lane * TERMS + c] = select(entry, nan_like(1.0), failed);
        }
        if FIRST_DATA > 0u {
            solution[base + TERMS + TERMS * TERMS + lane] = unsolved(lane);
        }
    }
}
