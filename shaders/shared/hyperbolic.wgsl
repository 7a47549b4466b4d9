// e^x - 1, ln(1 + x), the inverse hyperbolic functions and erfc, accurate where they are small. Tested against f64 on
// every adapter.
//@use math

// e^x - 1, near 0 by its series.
fn expm1f(x: f32) -> f32 {
    var p = 2.7557319e-7;
    p = p * x + 2.7557319e-6;
    p = p * x + 2.4801587e-5;
    p = p * x + 1.9841270e-4;
    p = p * x + 1.3888889e-3;
    p = p * x + 8.3333333e-3;
    p = p * x + 4.1666667e-2;
    p = p * x + 1.6666667e-1;
    p = p * x + 0.5;
    return select(expf(x) - 1.0, x + x * x * p, abs(x) < 1.0);
}

// ln(1 + x); NaN at -1 and below.
fn log1pf(x: f32) -> f32 {
    return select(logf(1.0 + x), log_near(x, 0.0), x > -0.29289322 && x < 0.41421356);
}

fn asinhf(x: f32) -> f32 {
    let a = abs(x);
    // no square overflows
    let b = min(a, 1.0e4);
    let near = log1pf(b + b * b / (1.0 + sqrt(1.0 + b * b)));
    let value = select(near, logf(a) + 0.69314718, a > 1.0e4);
    return select(select(value, -value, x < 0.0), x, is_nan(x));
}

// NaN below 1.
fn acoshf(x: f32) -> f32 {
    let t = max(min(x, 1.0e4) - 1.0, 0.0);
    let near = log1pf(t + sqrt(t * (t + 2.0)));
    let value = select(near, logf(x) + 0.69314718, x > 1.0e4);
    return select(value, nan_like(x), x < 1.0 || is_nan(x));
}

// NaN at -1 and 1 and beyond.
fn atanhf(x: f32) -> f32 {
    let a = abs(x);
    let value = 0.5 * log1pf(2.0 * a / max(1.0 - a, 1.0e-8));
    return select(select(value, -value, x < 0.0), nan_like(x), a >= 1.0 || is_nan(x));
}

// 1 - erf(x); 0 above 9, where f32 ends.
fn erfcf(x: f32) -> f32 {
    let a = min(max(abs(x), 1.0), 9.0);
    // a^2 in two parts, the first exact
    let high = bitcast<f32>(bitcast<u32>(a) & 0xfffff000u);
    let found = expf(-high * high) * expf((high - a) * (high + a)) * erfc_ratio(a);
    let tail = select(found, 0.0, x > 9.0);
    let value = select(select(tail, 2.0 - tail, x < 0.0), 1.0 - erf_near(x), abs(x) < 1.0);
    return select(value, x, is_nan(x));
}
