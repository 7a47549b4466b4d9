//! e^x − 1, ln(1 + x) and the inverse hyperbolic functions in f32, accurate near their zeros: twins of
//! `shaders/shared/hyperbolic.wgsl`, without branches or library calls.

use std::f32::consts::LN_2;

use super::functions::{exp, ln, ln_near};

/// Argument beyond which asinh and acosh are ln 2x.
const MAX_ROOT_ARGUMENT: f32 = 1e4;
/// Coefficients 1/(k + 2)! of (e^x − 1 − x)/x², from k = 8 down.
const EXPM1_COEFFICIENTS: [f32; 9] = [
    2.755_732e-7,
    2.755_731_9e-6,
    2.480_158_8e-5,
    1.984_127e-4,
    1.388_888_9e-3,
    8.333_334e-3,
    4.166_666_8e-2,
    1.666_666_7e-1,
    0.5,
];

/// Returns e^x − 1.
#[inline(always)]
pub fn expm1(x: f32) -> f32 {
    let series = EXPM1_COEFFICIENTS
        .iter()
        .fold(0.0, |sum: f32, c| sum.mul_add(x, *c));
    if x.abs() < 1.0 {
        (x * x).mul_add(series, x)
    } else {
        exp(x) - 1.0
    }
}

/// Returns ln(1 + x); −∞ at −1, NaN below.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    let near_zero = ln_near(x, 0.0);
    let elsewhere = ln(1.0 + x);
    if x > -0.292_893_2 && x < 0.414_213_57 {
        near_zero
    } else {
        elsewhere
    }
}

/// Returns the inverse hyperbolic sine of x.
#[inline(always)]
pub fn asinh(x: f32) -> f32 {
    let magnitude = x.abs();
    let square = magnitude * magnitude;
    let by_log1p = log1p(magnitude + square / (1.0 + (1.0 + square).sqrt()));
    let value = if magnitude > MAX_ROOT_ARGUMENT {
        ln(magnitude) + LN_2
    } else {
        by_log1p
    };
    value.copysign(x)
}

/// Returns the inverse hyperbolic cosine of x; NaN below 1.
#[inline(always)]
pub fn acosh(x: f32) -> f32 {
    let excess = x - 1.0;
    let by_log1p = log1p(excess + (excess * (excess + 2.0)).sqrt());
    let value = if x > MAX_ROOT_ARGUMENT {
        ln(x) + LN_2
    } else {
        by_log1p
    };
    if x < 1.0 { f32::NAN } else { value }
}

/// Returns the inverse hyperbolic tangent of x; ±∞ at ±1, NaN beyond.
#[inline(always)]
pub fn atanh(x: f32) -> f32 {
    let magnitude = x.abs();
    (0.5 * log1p(2.0 * magnitude / (1.0 - magnitude))).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Function, exact function, range, tolerance of the relative error.
    type Case = (
        &'static str,
        fn(f32) -> f32,
        fn(f64) -> f64,
        (f32, f32),
        f64,
    );

    #[test]
    fn hyperbolic_functions_in_f32_agree_with_f64() {
        let cases: [Case; 14] = [
            ("expm1", expm1, f64::exp_m1, (-20.0, 80.0), 5e-7),
            ("expm1", expm1, f64::exp_m1, (-1.1, 1.1), 5e-7),
            ("expm1", expm1, f64::exp_m1, (-1e-6, 1e-6), 1.5e-7),
            ("log1p", log1p, f64::ln_1p, (-0.999, 2.0), 4e-7),
            ("log1p", log1p, f64::ln_1p, (2.0, 1e9), 2e-7),
            ("log1p", log1p, f64::ln_1p, (-1e-6, 1e-6), 1.5e-7),
            ("asinh", asinh, f64::asinh, (-5.0, 5.0), 6e-7),
            ("asinh", asinh, f64::asinh, (-1e-6, 1e-6), 1.5e-7),
            ("asinh", asinh, f64::asinh, (10.0, 1e30), 3e-7),
            ("acosh", acosh, libm::acosh, (1.0, 1.001), 6e-7),
            ("acosh", acosh, libm::acosh, (1.0, 9.0), 6e-7),
            ("acosh", acosh, libm::acosh, (10.0, 1e30), 3e-7),
            ("atanh", atanh, f64::atanh, (-0.9999, 0.9999), 6e-7),
            ("atanh", atanh, f64::atanh, (-1e-6, 1e-6), 1.5e-7),
        ];
        for (name, function, exact, (first, last), tolerance) in cases {
            for i in 0..=20_000 {
                let x = first + (last - first) * i as f32 / 20_000.0;
                let exact = exact(f64::from(x));
                let error = (f64::from(function(x)) - exact).abs() / exact.abs().max(1e-37);
                assert!(error <= tolerance, "{name}({x}): {error:e}");
            }
        }
    }

    #[test]
    fn special_values_pass_through() {
        assert!(
            [expm1, log1p, asinh, acosh, atanh]
                .iter()
                .all(|f| f(f32::NAN).is_nan())
        );
        assert!(
            log1p(-1.1).is_nan()
                && acosh(0.9).is_nan()
                && atanh(1.1).is_nan()
                && atanh(-1.1).is_nan()
        );
        let infinity = f32::INFINITY;
        assert_eq!(
            (expm1(-100.0), expm1(100.0), log1p(-1.0), log1p(infinity)),
            (-1.0, infinity, -infinity, infinity)
        );
        assert_eq!(
            (asinh(infinity), asinh(-infinity), acosh(infinity)),
            (infinity, -infinity, infinity)
        );
        assert_eq!(
            (atanh(1.0), atanh(-1.0), acosh(1.0), asinh(0.0)),
            (infinity, -infinity, 0.0, 0.0)
        );
    }
}
