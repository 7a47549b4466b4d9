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

fn moves(p: u32) -> bool {
    return true;
}

// d A d = d g - mu d D d by the damped equation (A + mu D) d = g, from 2 d g and mu d D d.
fn curvature(gain: f32, damping: f32) -> f32 {
    return 0.5 * gain - damping;
}

// Solves for the damped step; false where the matrix does not factorise.
fn solve() -> bool {
    set_lowest();
    delta = gradient;
    let least_pivot = factorise();
    substitute();
    return least_pivot > 0.0;
}

// Sets the trial point to the end of the step.
fn advance() {
    //@for p 0 PARAMETERS
    trial[$p] = accepted[$p] + delta[$p];
    //@end
}
