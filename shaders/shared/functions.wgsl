// The functions of formulas, where builtins are inaccurate or drop NaN. Polynomials after Cephes (Moshier 1989), single
// precision. Tested against f64 on every adapter.
//@use math, hyperbolic

// x - k pi/2 and k, by three parts of pi/2 (Cody & Waite 1980): good to |x| = 1e4.
fn quadrant(x: f32) -> vec2<f32> {
    let k = floor(x * 0.63661977 + 0.5);
    let r = ((x - k * 1.5703125) - k * 4.837512969970703125e-4) - k * 7.54978995489188216e-8;
    return vec2<f32>(r, k);
}

fn sin_near(r: f32) -> f32 {
    let z = r * r;
    return r + r * z * ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1);
}

fn cos_near(r: f32) -> f32 {
    let z = r * r;
    return 1.0 - (0.5 * z - z * z * ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2));
}

// The sine of quadrant r, turned by `k` quarters.
fn turned(r: f32, k: f32) -> f32 {
    let quarter = k - 4.0 * floor(0.25 * k);
    let value = select(sin_near(r), cos_near(r), quarter == 1.0 || quarter == 3.0);
    return select(value, -value, quarter >= 2.0);
}

fn sinf(x: f32) -> f32 {
    let q = quadrant(x);
    return select(turned(q.x, q.y), nan_like(x), !is_finite(x));
}

fn cosf(x: f32) -> f32 {
    let q = quadrant(x);
    return select(turned(q.x, q.y + 1.0), nan_like(x), !is_finite(x));
}

fn tanf(x: f32) -> f32 {
    return sinf(x) / cosf(x);
}

fn atanf(x: f32) -> f32 {
    let a = abs(x);
    let far = a > 2.414213562;
    let middle = a > 0.4142135624;
    let start = select(select(0.0, 0.785398163, middle), 1.570796327, far);
    let t = select(select(a, (a - 1.0) / (a + 1.0), middle), -1.0 / max(a, 1.0), far);
    let z = t * t;
    let p = ((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z - 3.33329491539e-1;
    let value = start + (p * z * t + t);
    return select(select(value, -value, x < 0.0), x, is_nan(x));
}

// The angle of (x, y).
fn atan2f(y: f32, x: f32) -> f32 {
    if is_nan(x) || is_nan(y) {
        return nan_like(x + y);
    }
    if x == 0.0 {
        return 1.570796327 * sign(y);
    }
    let angle = atanf(y / x);
    return select(angle, angle + select(3.141592654, -3.141592654, y < 0.0), x < 0.0);
}

// asin(x) of 0 <= x <= 0.5, z = x^2.
fn asin_near(x: f32, z: f32) -> f32 {
    let p = (((4.2163199048e-2 * z + 2.4181311049e-2) * z + 4.5470025998e-2) * z + 7.4953002686e-2) * z
        + 1.6666752422e-1;
    return p * z * x + x;
}

fn asinf(x: f32) -> f32 {
    let a = abs(x);
    let z = select(a * a, 0.5 * max(1.0 - a, 0.0), a > 0.5);
    let near = asin_near(select(a, sqrt(z), a > 0.5), z);
    let value = select(near, 1.570796327 - 2.0 * near, a > 0.5);
    return select(select(value, -value, x < 0.0), nan_like(x), is_nan(x) || a > 1.0);
}

fn acosf(x: f32) -> f32 {
    let a = abs(x);
    let z = 0.5 * max(1.0 - a, 0.0);
    let far = 2.0 * asin_near(sqrt(z), z);
    let value = select(1.570796327 - asinf(x), select(far, 3.141592654 - far, x < 0.0), a > 0.5);
    return select(value, nan_like(x), is_nan(x) || a > 1.0);
}

fn sinhf(x: f32) -> f32 {
    let a = abs(x);
    let z = min(a, 1.0) * min(a, 1.0);
    let near = a + a * z * ((2.03721912945e-4 * z + 8.33028376239e-3) * z + 1.66667160211e-1);
    let e = expf(a);
    let value = select(0.5 * e - 0.5 / e, near, a < 1.0);
    return select(value, -value, x < 0.0);
}

fn coshf(x: f32) -> f32 {
    let e = expf(abs(x));
    return 0.5 * e + 0.5 / e;
}

fn log10f(x: f32) -> f32 {
    return 0.4342944819 * logf(x);
}

fn log2f(x: f32) -> f32 {
    return 1.442695041 * logf(x);
}

// One Newton step after a logarithm.
fn cbrtf(x: f32) -> f32 {
    if x == 0.0 || !is_finite(x) {
        return x;
    }
    let a = abs(x);
    let y = expf(logf(a) / 3.0);
    let value = y - (y - a / (y * y)) / 3.0;
    return select(value, -value, x < 0.0);
}

// x^y, to about 1e-7 (1 + |y ln x|) relatively. Negative x takes whole y.
fn powf(x: f32, y: f32) -> f32 {
    if is_nan(x) || is_nan(y) {
        return nan_like(x + y);
    }
    if y == 0.0 {
        return 1.0;
    }
    if x == 0.0 {
        return select(0.0, 3.0e38 * (2.0 - y), y < 0.0);
    }
    let value = expf(y * logf(abs(x)));
    if x > 0.0 {
        return value;
    }
    let half = 0.5 * y;
    return select(select(-value, value, half == floor(half)), nan_like(x), y != floor(y));
}

// x^y ln x, 0 at x = 0 for y > 0.
fn power_log(x: f32, y: f32) -> f32 {
    if x == 0.0 && y > 0.0 {
        return 0.0;
    }
    return powf(x, y) * logf(x);
}

fn minf(a: f32, b: f32) -> f32 {
    return select(min(a, b), nan_like(a), is_nan(a) || is_nan(b));
}

fn maxf(a: f32, b: f32) -> f32 {
    return select(max(a, b), nan_like(a), is_nan(a) || is_nan(b));
}

// sqrt(a^2 + b^2), without overflow where the result has none.
fn hypotf(a: f32, b: f32) -> f32 {
    let low = min(abs(a), abs(b));
    let high = max(abs(a), abs(b));
    let ratio = low / high;
    let value = high * sqrt(1.0 + ratio * ratio);
    let edge = high == 0.0 || !is_finite(high);
    return select(select(value, high, edge), nan_like(a), is_nan(a) || is_nan(b));
}

// The sign of x, or x where that is 0 or NaN.
fn signf(x: f32) -> f32 {
    return select(sign(x), x, is_nan(x));
}

// Comparisons: 1 or 0, and 0 if either number is NaN. Compilers may assume that none is.
fn less(a: f32, b: f32) -> f32 {
    return select(0.0, 1.0, a < b && !is_nan(a) && !is_nan(b));
}

fn less_equal(a: f32, b: f32) -> f32 {
    return select(0.0, 1.0, a <= b && !is_nan(a) && !is_nan(b));
}

fn equal(a: f32, b: f32) -> f32 {
    return select(0.0, 1.0, a == b && !is_nan(a) && !is_nan(b));
}

// b where the condition is not 0, else 0, even if b is NaN.
fn gate(condition: f32, b: f32) -> f32 {
    return select(b, 0.0, condition == 0.0 && !is_nan(condition));
}
