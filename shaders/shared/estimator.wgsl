// The share of a point under an estimator: (cost, residual r, slope s) with chi2 += cost, J = s dm, g += J r,
// A += J J^T. Robust losses are scipy least_squares', LOSS_SCALE its f_scale, and give (rho, rho', rho' + 2 z rho'');
// Student's is a multiple of Cauchy's. Poisson's likelihood after Laurence & Chromy 2010.
// Twin of src/buffers/estimator.rs.
//@use math, functions

fn loss_argument(f: f32) -> f32 {
    let ratio = f / LOSS_SCALE;
    return ratio * ratio;
}

// rho is (rho, rho'). Steps of reweighted least squares lower the cost from anywhere.
fn robust(f: f32, w: f32, rho: vec2<f32>) -> vec3<f32> {
    let root = sqrt(rho.y);
    return vec3<f32>(LOSS_SCALE * LOSS_SCALE * rho.x, root * f, root * w);
}

fn huber(z: f32) -> vec3<f32> {
    let root = sqrt(max(z, 1.0));
    return select(vec3<f32>(2.0 * root - 1.0, 1.0 / root, 0.0), vec3<f32>(z, 1.0, 1.0), z <= 1.0);
}

fn soft_l1(z: f32) -> vec3<f32> {
    let root = sqrt(1.0 + z);
    return vec3<f32>(2.0 * z / (root + 1.0), 1.0 / root, 1.0 / (root * (1.0 + z)));
}

fn cauchy(z: f32) -> vec3<f32> {
    let t = 1.0 / (1.0 + z);
    let s = z / (2.0 + z);
    return vec3<f32>(
        select(logf(1.0 + z), 2.0 * s * (1.0 + s * s * tail(s * s)), s <= 0.1), t, t * (t + t - 1.0),
    );
}

fn arctan(z: f32) -> vec3<f32> {
    let t = 1.0 / (1.0 + z * z);
    return vec3<f32>(atanf(z), t, (1.0 - 3.0 * z * z) * t * t);
}

// (atanh s - s) / s^3 as a series in q = s^2 <= 0.01.
fn tail(q: f32) -> f32 {
    return 0.33333333 + q * (0.2 + q * (0.14285714 + q * 0.11111111));
}

// t - ln(1 + t), from t and 1 + t; near 0 by ln(1 + t) = 2 atanh s, so that nothing cancels.
fn excess_over_logarithm(t: f32, one_plus_t: f32) -> f32 {
    let s = t / (2.0 + t);
    let q = s * s;
    return select(t - logf(one_plus_t), 2.0 * q * (1.0 / (1.0 - s) - s * tail(q)), abs(s) <= 0.1);
}

// Counts d of mean w m. A count in A is at least a tenth of its mean: with 0 the gradient would have no curvature, and
// steps would lead far beyond m = 0.
fn poisson(d: f32, w: f32, m: f32) -> vec3<f32> {
    let mean = w * m;
    if is_nan(mean) || !(mean > 0.0) {
        // infinite, made at run time
        return vec3<f32>(bitcast<f32>((bitcast<u32>(mean) & 0u) | 0x7f800000u), 0.0, 0.0);
    }
    let root = sqrt(max(d, 0.1 * mean));
    let count = max(d, 1e-30);
    let cost = select(2.0 * mean, 2.0 * d * excess_over_logarithm((mean - count) / count, mean / count), d > 0.0);
    return vec3<f32>(cost, (d - mean) / root, root / mean * w);
}
