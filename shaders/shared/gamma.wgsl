// The gamma function, its logarithm, and the derivative of that, for formulas. Abramowitz & Stegun (1964), 6.1.33
// (series), 6.1.41 and 6.3.18 (asymptotic), 6.1.17 and 6.3.7 (reflection). Twin of src/math/gamma.rs. Tested against
// f64 on every adapter.
//@use math, hyperbolic, functions

// ln gamma(2 + t) for |t| <= 1/2: its coefficients are 1 - Euler's constant and (-1)^k (zeta(k) - 1)/k.
fn log_gamma_near(t: f32) -> f32 {
    var p = 2.0507212e-5 - 9.4394882e-6 * t;
    p = p * t - 4.4926237e-5;
    p = p * t + 9.9457510e-5;
    p = p * t - 2.2315476e-4;
    p = p * t + 5.0966954e-4;
    p = p * t - 1.1927539e-3;
    p = p * t + 2.8905103e-3;
    p = p * t - 7.3855510e-3;
    p = p * t + 2.0580808e-2;
    p = p * t - 6.7352302e-2;
    p = p * t + 3.2246703e-1;
    return t * (p * t + 4.2278434e-1);
}

// The product of y - 1, y - 2, ... down to the first that is below 2.5, and that number.
fn falling(x: f32) -> vec2<f32> {
    var y = x;
    var product = 1.0;
    for (var k = 0; k < 40 && y >= 2.5; k++) {
        y -= 1.0;
        product *= y;
    }
    return vec2<f32>(product, y);
}

// ln gamma(x) for x >= 0.
fn log_gamma_positive(x: f32) -> f32 {
    if x < 0.5 {
        return log_gamma_near(x) - logf(x) - log1pf(x);
    }
    if x < 1.5 {
        return log_gamma_near(x - 1.0) - log1pf(x - 1.0);
    }
    if x < 8.0 {
        let down = falling(x);
        return log_gamma_near(down.y - 2.0) + logf(down.x);
    }
    if !is_finite(x) {
        return x;
    }
    let z = 1.0 / x;
    let tail = z * (8.3333333e-2 - z * z * (2.7777778e-3 - z * z * 7.9365079e-4));
    return x * (logf(x) - 1.0) - 0.5 * logf(x) + (0.91893853 + tail);
}

// sin(pi x), which changes its sign at whole numbers; 0 there.
fn sine_of_turns(x: f32) -> f32 {
    let k = floor(x + 0.5);
    let sine = sinf(3.14159265 * (x - k));
    return select(sine, -sine, k - 2.0 * floor(0.5 * k) != 0.0);
}

// ln |gamma(x)|, infinite where x is 0 or a negative whole number.
fn lgammaf(x: f32) -> f32 {
    let value = log_gamma_positive(select(x, 1.0 - x, x < 0.0));
    let reflected = logf(3.14159265 / abs(sine_of_turns(x))) - value;
    return select(select(value, reflected, x < 0.0), x, is_nan(x));
}

// gamma(x) for x >= 0; the largest x with a finite value is 35.04.
fn gamma_positive(x: f32) -> f32 {
    if x < 0.5 {
        return expf(log_gamma_near(x)) / (x * (1.0 + x));
    }
    if x < 1.5 {
        return expf(log_gamma_near(x - 1.0)) / x;
    }
    let down = falling(min(x, 37.0));
    return down.x * expf(log_gamma_near(down.y - 2.0));
}

// gamma(x); NaN where x is a negative whole number.
fn gammaf(x: f32) -> f32 {
    let value = gamma_positive(select(x, 1.0 - x, x < 0.0));
    let sine = sine_of_turns(x);
    let reflected = select(3.14159265 / sine / value, nan_like(x), sine == 0.0);
    return select(select(value, reflected, x < 0.0), x, is_nan(x));
}

// The derivative of ln gamma(x).
fn digammaf(x: f32) -> f32 {
    var y = select(x, 1.0 - x, x < 0.0);
    var sum = 0.0;
    for (var k = 0; k < 6 && y < 6.0; k++) {
        sum -= 1.0 / y;
        y += 1.0;
    }
    let z = 1.0 / (y * y);
    let value = sum + logf(y) - 0.5 / y - z * (8.3333333e-2 - z * (8.3333333e-3 - z * 3.9682540e-3));
    let turn = 3.14159265 * (x - floor(x + 0.5));
    let reflected = value - 3.14159265 * cosf(turn) / sinf(turn);
    return select(select(value, reflected, x < 0.0), x, is_nan(x));
}
