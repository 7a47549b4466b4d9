// Weights of the rotational profile K(x) = ROTATION_1 sqrt(1 - x^2) + ROTATION_2 (1 - x^2) seen through linear
// interpolation. With x = 1 - t^2 the integrands are smooth, and six Gauss-Legendre points on each side of a kink give
// 1.5e-7.

const NODES = array<f32, 6>(-0.93246951, -0.66120939, -0.23861919, 0.23861919, 0.66120939, 0.93246951);
const NODE_WEIGHTS = array<f32, 6>(0.17132449, 0.36076157, 0.46791393, 0.46791393, 0.36076157, 0.17132449);

// int_a^b of (1 - |k - R x|) K and of x K, 0 <= a <= b <= 1, where the first factor is not negative.
fn rotation_piece(a: f32, b: f32, k: f32, radius: f32) -> vec2<f32> {
    let low = sqrt(1.0 - b);
    let high = sqrt(1.0 - a);
    let middle = 0.5 * (low + high);
    // (high - low) / 2 without its cancellation
    let half_width = 0.5 * (b - a) / max(low + high, 1.0e-20);
    var sum = vec2<f32>();
    //@for i 0 6
    let t_$i = middle + half_width * NODES[$i];
    let q_$i = t_$i * t_$i;
    let rest_$i = 2.0 - q_$i;
    let density_$i = NODE_WEIGHTS[$i] * 2.0 * q_$i * (ROTATION_1 * sqrt(rest_$i) + ROTATION_2 * t_$i * rest_$i);
    let x_$i = 1.0 - q_$i;
    sum += density_$i * vec2<f32>(max(1.0 - abs(k - radius * x_$i), 0.0), x_$i);
    //@end
    return sum * half_width;
}

// k / R, at most 1.
fn rotation_edge(k: f32, radius: f32) -> f32 {
    return select(min(k / max(radius, 1.0e-20), 1.0), 1.0, k >= radius);
}

// w_k and dw_k/dR.
fn rotation_weight(k: u32, radius: f32) -> vec2<f32> {
    let x = f32(k);
    let here = select(rotation_edge(x, radius), 0.0, k == 0u);
    let above = rotation_piece(here, rotation_edge(x + 1.0, radius), x, radius);
    if k == 0u {
        return vec2<f32>(2.0 * above.x, -2.0 * above.y);
    }
    let before = select(rotation_edge(x - 1.0, radius), 0.0, k == 1u);
    let below = rotation_piece(before, here, x, radius);
    return vec2<f32>(below.x + above.x, below.y - above.y);
}
