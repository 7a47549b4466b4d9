// Small fits without bounds.
//@use small_fit

fn begin_bounds(fit: u32) {}

fn set_free() {}

fn free_all() {}

fn is_free(p: u32) -> bool {
    return true;
}

fn is_inside(p: u32) -> bool {
    return true;
}

// Solves for the damped step; false where the matrix does not factorise.
fn solve() -> bool {
    set_lowest();
    delta = gradient;
    let positive = factorise();
    substitute();
    return positive;
}

// Sets the trial point to the end of the step.
fn advance() {
    //@for p 0 PARAMETERS
    trial[$p] = accepted[$p] + delta[$p];
    //@end
}
