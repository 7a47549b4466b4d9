// Elementary functions accurate to about 1e-7, because the builtins are not: drivers give log 1.6e-4 near 1 and tanh
// 1e-4 near 0. Polynomials after Cephes (Moshier 1989), single precision. Tested against f64 on every adapter.

// Comparisons do not see NaN (`x != x` is false under Vulkan): look at the bits of a loaded value.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u;
}

// A NaN made at run time; compilers refuse constant ones.
fn nan_like(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) | 0x7fc00000u);
}

fn power_of_two(k: i32) -> f32 {
    return bitcast<f32>(u32(k + 127) << 23u);
}

// e^x, 0 below -87, infinity above 88, as on the CPU: between them 2^k is a normal number.
fn expf(x: f32) -> f32 {
    let c = clamp(x, -87.0, 88.0);
    let k = floor(c * 1.44269504 + 0.5);
    let r = (c - k * 0.693359375) - k * -2.12194440e-4;
    var p = 1.9875691500e-4;
    p = p * r + 1.3981999507e-3;
    p = p * r + 8.3334519073e-3;
    p = p * r + 4.1665795894e-2;
    p = p * r + 1.6666665459e-1;
    p = p * r + 5.0000001201e-1;
    var value = (1.0 + (r + r * r * p)) * power_of_two(i32(k));
    value = select(value, 0.0, x < -87.0);
    value = select(value, value * 3.0e38, x > 88.0);
    return select(value, x, is_nan(x));
}

// ln x of a normal number; NaN below 0.
fn logf(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    var exponent = i32(bits >> 23u) - 126;
    let m = bitcast<f32>((bits & 0x007fffffu) | 0x3f000000u);
    let small = m < 0.70710678;
    exponent -= select(0, 1, small);
    let f = select(m - 1.0, (m - 0.5) + (m - 0.5), small);
    return select(log_near(f, f32(exponent)), nan_like(x), !(x > 0.0) || is_nan(x));
}

// ln(1 + f) + e ln 2 of sqrt(1/2) - 1 <= f <= sqrt(2) - 1.
fn log_near(f: f32, e: f32) -> f32 {
    let z = f * f;
    var p = 7.0376836292e-2;
    p = p * f - 1.1514610310e-1;
    p = p * f + 1.1676998740e-1;
    p = p * f - 1.2420140846e-1;
    p = p * f + 1.4249322787e-1;
    p = p * f - 1.6668057665e-1;
    p = p * f + 2.0000714765e-1;
    p = p * f - 2.4999993993e-1;
    p = p * f + 3.3333331174e-1;
    let tail = (f * z * p + e * -2.12194440e-4) - 0.5 * z;
    return (f + tail) + e * 0.693359375;
}

// 1 / (1 + e^-x)
fn sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + expf(-x));
}

fn tanhf(x: f32) -> f32 {
    let a = min(abs(x), 10.0);
    let z = a * a;
    var p = -5.70498872745e-3;
    p = p * z + 2.06390887954e-2;
    p = p * z - 5.37397155531e-2;
    p = p * z + 1.33314422036e-1;
    p = p * z - 3.33332819422e-1;
    let near = a + a * z * p;
    let far = 1.0 - 2.0 / (expf(2.0 * a) + 1.0);
    let value = select(far, near, a < 0.625);
    return select(select(value, -value, x < 0.0), x, is_nan(x));
}

// erfc(x) e^(x^2) for x >= 1.
fn erfc_ratio(x: f32) -> f32 {
    let q = 1.0 / x;
    let y = q * q;
    var p = 2.326819970068386e-2;
    p = p * y - 1.387039388740657e-1;
    p = p * y + 3.687424674597105e-1;
    p = p * y - 5.824733027278666e-1;
    p = p * y + 6.210004621745983e-1;
    p = p * y - 4.944515323274145e-1;
    p = p * y + 3.404879937665872e-1;
    p = p * y - 2.741127028184656e-1;
    p = p * y + 5.638259427386472e-1;
    var r = -1.047766399936249e+1;
    r = r * y + 1.297719955372516e+1;
    r = r * y - 7.495518717768503;
    r = r * y + 2.921019019210786;
    r = r * y - 1.015265279202700;
    r = r * y + 4.218463358204948e-1;
    r = r * y - 2.820767439740514e-1;
    r = r * y + 5.641895067754075e-1;
    return q * select(r, p, x < 2.0);
}

fn erf_near(x: f32) -> f32 {
    let z = x * x;
    var p = 7.853861353153693e-5;
    p = p * z - 8.010193625184903e-4;
    p = p * z + 5.188327685732524e-3;
    p = p * z - 2.685381193529856e-2;
    p = p * z + 1.128358514861418e-1;
    p = p * z - 3.761262582423300e-1;
    p = p * z + 1.128379165726710;
    return x * p;
}

fn erff(x: f32) -> f32 {
    let a = min(max(abs(x), 1.0), 9.0);
    let far = 1.0 - expf(-a * a) * erfc_ratio(a);
    let value = select(select(far, -far, x < 0.0), erf_near(x), abs(x) < 1.0);
    return select(value, x, is_nan(x));
}

// Phi(x), the normal distribution's cumulative, with a relative accuracy in the lower tail.
fn normal_cumulative(x: f32) -> f32 {
    let y = x * 0.70710678;
    let a = min(max(abs(y), 1.0), 9.0);
    let tail = 0.5 * expf(-a * a) * erfc_ratio(a);
    let far = select(1.0 - tail, tail, x < 0.0);
    let value = select(far, 0.5 + 0.5 * erf_near(y), abs(y) < 1.0);
    return select(value, x, is_nan(x));
}
