//! Elementary functions of formulas in f32, without branches or library calls: twins of `shaders/shared/functions.wgsl`
//! and `math.wgsl` (polynomials after Cephes, Moshier 1989). There is also e^x in f64. Each has a relative error of a
//! few units in the last place.

use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, LOG2_E, LOG10_E, PI};

use super::Real;

/// Returns Σ c_k x^k by Horner's scheme, the highest coefficient first.
#[inline(always)]
fn evaluate_polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    coefficients.iter().fold(0.0, |sum, c| sum.mul_add(x, *c))
}

/// Reduces the angle x: returns x − k π/2 and k, by three parts of π/2 (Cody & Waite 1980), accurate up to |x| = 1e4.
#[inline(always)]
fn reduce_angle(x: f32) -> (f32, f32) {
    let k = (x * std::f32::consts::FRAC_2_PI + 0.5).floor();
    let r = k.mul_add(-1.570_312_5, x);
    let r = k.mul_add(-4.837_513e-4, r);
    (k.mul_add(-7.549_79e-8, r), k)
}

/// Returns sin(r + k π/2), for |r| up to about π/4 and a whole number `k`.
#[inline(always)]
fn sin_in_quadrant(r: f32, k: f32) -> f32 {
    let square = r * r;
    let sine = (r * square).mul_add(
        evaluate_polynomial(square, [-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1]),
        r,
    );
    let tail = evaluate_polynomial(square, [2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2]);
    let cosine = 1.0 - (0.5 * square - square * square * tail);
    let quarter = k - 4.0 * (0.25 * k).floor();
    let value = if quarter == 1.0 || quarter == 3.0 {
        cosine
    } else {
        sine
    };
    if quarter >= 2.0 { -value } else { value }
}

/// Returns the sine of x in radians.
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    let (r, k) = reduce_angle(x);
    sin_in_quadrant(r, k)
}

/// Returns the cosine of x in radians.
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    let (r, k) = reduce_angle(x);
    sin_in_quadrant(r, k + 1.0)
}

/// Returns the tangent of x in radians.
#[inline(always)]
pub fn tan(x: f32) -> f32 {
    sin(x) / cos(x)
}

/// Returns the arc tangent of x, in radians.
#[inline(always)]
pub fn atan(x: f32) -> f32 {
    let magnitude = x.abs();
    let is_large = magnitude > 2.414_213_6;
    let is_middle = magnitude > 0.414_213_57;
    let start = if is_large {
        FRAC_PI_2
    } else {
        if is_middle { FRAC_PI_4 } else { 0.0 }
    };
    let small_argument = if is_middle {
        (magnitude - 1.0) / (magnitude + 1.0)
    } else {
        magnitude
    };
    let argument = if is_large {
        -1.0 / magnitude
    } else {
        small_argument
    };
    let square = argument * argument;
    let series = evaluate_polynomial(
        square,
        [8.053_745e-2, -1.387_768_6e-1, 1.997_771_1e-1, -3.333_295e-1],
    );
    let value = start + (series * square).mul_add(argument, argument);
    value.copysign(x)
}

/// Returns the angle of the point (x, y) in radians, −π to π.
#[inline(always)]
pub fn atan2(y: f32, x: f32) -> f32 {
    let half_turn = if y < 0.0 { -PI } else { PI };
    let angle = atan(y / x) + if x < 0.0 { half_turn } else { 0.0 };
    let angle_on_y_axis = if y == 0.0 { 0.0 } else { FRAC_PI_2.copysign(y) };
    if x == 0.0 { angle_on_y_axis } else { angle }
}

/// Returns asin x for 0 ≤ x ≤ ½, where z = x².
#[inline(always)]
fn asin_near(x: f32, z: f32) -> f32 {
    let series = evaluate_polynomial(
        z,
        [
            4.216_32e-2,
            2.418_131_2e-2,
            4.547_002_6e-2,
            7.495_3e-2,
            1.666_675_2e-1,
        ],
    );
    (series * z).mul_add(x, x)
}

/// Returns the arc sine of x, in radians; NaN for |x| > 1.
#[inline(always)]
pub fn asin(x: f32) -> f32 {
    let magnitude = x.abs();
    let is_large = magnitude > 0.5;
    // Beyond 1 the root makes NaN.
    let square = if is_large {
        0.5 * (1.0 - magnitude)
    } else {
        magnitude * magnitude
    };
    let small_angle = asin_near(if is_large { square.sqrt() } else { magnitude }, square);
    let value = if is_large {
        FRAC_PI_2 - 2.0 * small_angle
    } else {
        small_angle
    };
    value.copysign(x)
}

/// Returns the arc cosine of x, in radians; NaN for |x| > 1.
#[inline(always)]
pub fn acos(x: f32) -> f32 {
    let magnitude = x.abs();
    let square = 0.5 * (1.0 - magnitude);
    let from_end = 2.0 * asin_near(square.sqrt(), square);
    let angle_near_end = if x < 0.0 { PI - from_end } else { from_end };
    if magnitude > 0.5 {
        angle_near_end
    } else {
        FRAC_PI_2 - asin(x)
    }
}

/// Returns e^x; 0 below −87, infinity above 88.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let value = if x > 88.0 { f32::INFINITY } else { x.e_to() };
    if x < -87.0 { 0.0 } else { value }
}

/// Returns the hyperbolic sine of x, by a polynomial for |x| < 1, where exponentials would cancel.
#[inline(always)]
pub fn sinh(x: f32) -> f32 {
    let magnitude = x.abs();
    let square = magnitude * magnitude;
    let by_polynomial = (magnitude * square).mul_add(
        evaluate_polynomial(square, [2.037_219_1e-4, 8.330_284e-3, 1.666_671_6e-1]),
        magnitude,
    );
    let e = exp(magnitude);
    let value = if magnitude < 1.0 {
        by_polynomial
    } else {
        0.5 * e - 0.5 / e
    };
    value.copysign(x)
}

/// Returns the hyperbolic cosine of x.
#[inline(always)]
pub fn cosh(x: f32) -> f32 {
    let e = exp(x.abs());
    0.5 * e + 0.5 / e
}

/// Returns the natural logarithm of a normal number; −∞ at 0, NaN below.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    let bits = x.to_bits();
    let mantissa = f32::from_bits((bits & 0x007f_ffff) | 0x3f00_0000);
    let is_small = mantissa < std::f32::consts::FRAC_1_SQRT_2;
    let exponent = (bits >> 23) as i32 - 126;
    let binary_exponent = exponent as f32 - if is_small { 1.0 } else { 0.0 };
    let excess = if is_small {
        2.0 * mantissa - 1.0
    } else {
        mantissa - 1.0
    };
    let value = ln_near(excess, binary_exponent);
    let outside_domain = if x == 0.0 {
        f32::NEG_INFINITY
    } else {
        f32::NAN
    };
    let value = if x > 0.0 { value } else { outside_domain };
    if x == f32::INFINITY { x } else { value }
}

/// Returns ln(1 + f) + e ln 2 for √½ − 1 ≤ f ≤ √2 − 1.
#[inline(always)]
pub fn ln_near(f: f32, e: f32) -> f32 {
    let square = f * f;
    let series = evaluate_polynomial(
        f,
        [
            7.037_683_6e-2,
            -1.151_461e-1,
            1.167_699_9e-1,
            -1.242_014_1e-1,
            1.424_932_3e-1,
            -1.666_805_8e-1,
            2.000_071_5e-1,
            -2.499_999_4e-1,
            3.333_333e-1,
        ],
    );
    let tail = (f * square).mul_add(series, e * -2.121_944_4e-4) - 0.5 * square;
    (f + tail) + e * 0.693_359_4
}

/// Returns the logarithm of x to base 10.
#[inline(always)]
pub fn log10(x: f32) -> f32 {
    LOG10_E * ln(x)
}

/// Returns the logarithm of x to base 2.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    LOG2_E * ln(x)
}

/// Returns the cube root of x, by one Newton step after a logarithm.
#[inline(always)]
pub fn cbrt(x: f32) -> f32 {
    let magnitude = x.abs();
    let root = exp(ln(magnitude) / 3.0);
    let value = root - (root - magnitude / (root * root)) / 3.0;
    if x == 0.0 || !x.is_finite() {
        x
    } else {
        value.copysign(x)
    }
}

/// Returns √(a² + b²) without overflow where the result has none; NaN if either is NaN.
#[inline(always)]
pub fn hypot(a: f32, b: f32) -> f32 {
    let smaller = a.abs().min(b.abs());
    let larger = a.abs().max(b.abs());
    let ratio = smaller / larger;
    let value = larger * (1.0 + ratio * ratio).sqrt();
    let is_edge = larger == 0.0 || larger == f32::INFINITY;
    if a.is_nan() || b.is_nan() {
        f32::NAN
    } else {
        if is_edge { larger } else { value }
    }
}

/// Returns ±1 with the sign of x; 0 and NaN are returned as they are.
#[inline(always)]
pub fn sign(x: f32) -> f32 {
    if x == 0.0 || x.is_nan() {
        x
    } else {
        1f32.copysign(x)
    }
}

/// Returns erfc(x) exp(x²) for 1 ≤ x ≤ 9.
#[inline(always)]
fn erfc_ratio(x: f32) -> f32 {
    let inverse = 1.0 / x;
    let square = inverse * inverse;
    let coefficients_below_2 = [
        2.326_82e-2,
        -1.387_039_4e-1,
        3.687_424_6e-1,
        -5.824_733e-1,
        6.210_005e-1,
        -4.944_515e-1,
        3.404_88e-1,
        -2.741_127e-1,
        5.638_259_6e-1,
    ];
    let coefficients_from_2 = [
        -1.047_766_4e1,
        1.297_719_9e1,
        -7.495_519,
        2.921_019,
        -1.015_265_2,
        4.218_463_4e-1,
        -2.820_767_5e-1,
        5.641_895_5e-1,
    ];
    let value = if x < 2.0 {
        evaluate_polynomial(square, coefficients_below_2)
    } else {
        evaluate_polynomial(square, coefficients_from_2)
    };
    inverse * value
}

/// Returns the error function of x for |x| < 1.
#[inline(always)]
fn erf_near(x: f32) -> f32 {
    let coefficients = [
        7.853_861_4e-5,
        -8.010_193_6e-4,
        5.188_327_7e-3,
        -2.685_381_2e-2,
        1.128_358_5e-1,
        -3.761_262_6e-1,
        std::f32::consts::FRAC_2_SQRT_PI,
    ];
    x * evaluate_polynomial(x * x, coefficients)
}

/// Returns the error function of x.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let magnitude = x.abs();
    let clamped = magnitude.clamp(1.0, 9.0);
    let tail = 1.0 - exp(-clamped * clamped) * erfc_ratio(clamped);
    let value = if magnitude < 1.0 {
        erf_near(x)
    } else {
        tail.copysign(x)
    };
    if x.is_nan() { x } else { value }
}

/// Returns 1 − erf x; 0 above 9, where the range of f32 ends.
#[inline(always)]
pub fn erfc(x: f32) -> f32 {
    let clamped = x.abs().clamp(1.0, 9.0);
    // a² is split into two parts, of which the first is exact.
    let high = f32::from_bits(clamped.to_bits() & 0xffff_f000);
    let tail = exp(-high * high) * exp((high - clamped) * (high + clamped)) * erfc_ratio(clamped);
    let tail = if x > 9.0 { 0.0 } else { tail };
    let beyond_1 = if x < 0.0 { 2.0 - tail } else { tail };
    let value = if x.abs() < 1.0 {
        1.0 - erf_near(x)
    } else {
        beyond_1
    };
    if x.is_nan() { x } else { value }
}

/// Returns x^y, with a relative error of about 1e-7 (1 + |y ln x|). Negative x takes whole y.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    let value = exp(y * ln(x.abs()));
    let half = 0.5 * y;
    let signed_value = if half == half.floor() { value } else { -value };
    let value_below_zero = if y == y.floor() {
        signed_value
    } else {
        f32::NAN
    };
    let value_at_zero = if y < 0.0 { f32::INFINITY } else { 0.0 };
    let value = if x < 0.0 { value_below_zero } else { value };
    let value = if x == 0.0 { value_at_zero } else { value };
    let value = if y == 0.0 { 1.0 } else { value };
    if x.is_nan() || y.is_nan() {
        f32::NAN
    } else {
        value
    }
}

/// Returns x^y ln x, 0 at x = 0 for y > 0.
#[inline(always)]
pub fn power_log(x: f32, y: f32) -> f32 {
    let value = pow(x, y) * ln(x);
    if x == 0.0 && y > 0.0 { 0.0 } else { value }
}

/// Returns e^x in f64: 2^n e^r with |r| ≤ ln 2 / 2, e^r by its series to r¹³ (truncated at 4e-18).
#[inline(always)]
pub fn exp_f64(x: f64) -> f64 {
    const ROUNDING_SHIFT_F64: f64 = 6_755_399_441_055_744.0; // 1.5 · 2⁵²
    const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1; // ln 2 in two parts, the first with 21 zeros at its end
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    const INVERSE_FACTORIALS: [f64; 14] = [
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    let clamped = x.clamp(-746.0, 710.0);
    let shifted = clamped.mul_add(std::f64::consts::LOG2_E, ROUNDING_SHIFT_F64);
    let n = shifted - ROUNDING_SHIFT_F64;
    let remainder = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, clamped));
    let mantissa = INVERSE_FACTORIALS
        .iter()
        .fold(0.0, |sum: f64, coefficient| {
            sum.mul_add(remainder, *coefficient)
        });
    // 2ⁿ is multiplied in two factors, so that neither leaves the range of exponents.
    let n = shifted.to_bits().wrapping_sub(ROUNDING_SHIFT_F64.to_bits()) as i64;
    let power_of_two = |k: i64| f64::from_bits(((k + 1023) as u64) << 52);
    let half = n >> 1;
    mantissa * power_of_two(half) * power_of_two(n - half)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Function, exact function, range, the magnitude below which the error is absolute, tolerance.
    type Case = (
        &'static str,
        fn(f32) -> f32,
        fn(f64) -> f64,
        (f32, f32),
        f64,
        f64,
    );

    #[test]
    fn functions_in_f32_agree_with_f64() {
        // Half a unit in the last place is 6e-8. Errors of sine and cosine are absolute near their zeros, where the
        // rounding of the argument counts.
        let cases: [Case; 26] = [
            ("exp", exp, f64::exp, (-86.9, 87.9), 0.0, 2e-7),
            ("sin", sin, f64::sin, (-1.6, 1.6), 1e-9, 2.5e-7),
            ("sin", sin, f64::sin, (-300.0, 300.0), 1.0, 2e-7),
            ("cos", cos, f64::cos, (-300.0, 300.0), 1.0, 2e-7),
            ("tan", tan, f64::tan, (-1.5, 1.5), 1e-9, 6e-7),
            ("asin", asin, f64::asin, (-1.0, 1.0), 1e-9, 4e-7),
            ("acos", acos, f64::acos, (-1.0, 0.99), 0.0, 4e-7),
            ("atan", atan, f64::atan, (-30.0, 30.0), 1e-9, 3e-7),
            (
                "atan2 left",
                |x| atan2(x, -0.5),
                |x| x.atan2(-0.5),
                (0.01, 9.0),
                0.0,
                3e-7,
            ),
            (
                "atan2 above",
                |x| atan2(0.5, x),
                |x| 0.5f64.atan2(x),
                (-9.0, 9.0),
                0.0,
                3e-7,
            ),
            (
                "atan2 below",
                |x| atan2(-0.5, x),
                |x| (-0.5f64).atan2(x),
                (-9.0, 9.0),
                0.0,
                3e-7,
            ),
            ("sinh", sinh, f64::sinh, (-20.0, 20.0), 1e-9, 4e-7),
            ("cosh", cosh, f64::cosh, (-20.0, 20.0), 0.0, 4e-7),
            ("ln", ln, f64::ln, (1e-6, 3.0), 1e-6, 2.5e-7),
            ("ln", ln, f64::ln, (0.99, 1.01), 1e-9, 2.5e-7),
            ("ln", ln, f64::ln, (3.0, 1e30), 0.0, 2e-7),
            ("log10", log10, f64::log10, (1e-3, 30.0), 1e-3, 3e-7),
            ("log2", log2, f64::log2, (1e-3, 30.0), 1e-3, 3e-7),
            ("cbrt", cbrt, f64::cbrt, (-20.0, 20.0), 1e-6, 3e-7),
            ("erf", erf, libm::erf, (-6.0, 6.0), 1e-9, 3e-7),
            ("erfc", erfc, libm::erfc, (-4.0, 1.0), 0.0, 8e-7),
            ("erfc", erfc, libm::erfc, (1.0, 8.9), 0.0, 8e-7),
            (
                "pow 2.5",
                |x| pow(x, 2.5),
                |x| x.powf(2.5),
                (1e-3, 10.0),
                0.0,
                2e-6,
            ),
            (
                "pow -3",
                |x| pow(x, -3.0),
                |x| x.powi(-3),
                (-2.0, -0.5),
                0.0,
                1e-6,
            ),
            (
                "2.5 pow",
                |x| pow(2.5, x),
                |x| 2.5f64.powf(x),
                (-5.0, 5.0),
                0.0,
                1e-6,
            ),
            (
                "power_log",
                |x| power_log(x, 1.5),
                |x| x.powf(1.5) * x.ln(),
                (1e-6, 10.0),
                1e-2,
                2e-6,
            ),
        ];
        for (name, function, exact, (first, last), floor, tolerance) in cases {
            for i in 0..=20_000 {
                let x = first + (last - first) * i as f32 / 20_000.0;
                let exact = exact(f64::from(x));
                let error = (f64::from(function(x)) - exact).abs() / exact.abs().max(floor);
                assert!(error <= tolerance, "{name}({x}): {error:e}");
            }
        }
    }

    #[test]
    fn special_values_pass_through() {
        let functions = [
            sin, cos, tan, asin, acos, atan, exp, sinh, cosh, ln, log10, log2, cbrt, sign, erf,
            erfc,
        ];
        assert!(functions.iter().all(|f| f(f32::NAN).is_nan()));
        assert!(
            pow(f32::NAN, 0.5).is_nan() && atan2(f32::NAN, 1.0).is_nan() && pow(-2.0, 0.5).is_nan()
        );
        assert!(
            asin(1.1).is_nan()
                && acos(-1.1).is_nan()
                && ln(-1.0).is_nan()
                && sin(f32::INFINITY).is_nan()
        );
        assert_eq!(
            (exp(-1e3), exp(1e3), ln(0.0), power_log(0.0, 2.0)),
            (0.0, f32::INFINITY, f32::NEG_INFINITY, 0.0)
        );
        assert_eq!(
            (pow(0.0, 2.0), pow(0.0, 0.0), pow(-2.0, 3.0), sign(-0.3)),
            (0.0, 1.0, -8.0, -1.0)
        );
        assert!((ln(f32::MAX) - 128.0 * std::f32::consts::LN_2).abs() < 1e-5);
    }

    #[test]
    fn exp_f64_agrees_with_the_standard_library() {
        for k in -70_000..70_000 {
            let x = f64::from(k) * 0.01007;
            let error = (exp_f64(x) / x.exp() - 1.0).abs();
            assert!(error < 5e-16, "{x}: {error:e}");
        }
        assert_eq!(
            (exp_f64(0.0), exp_f64(-1e4), exp_f64(1e4)),
            (1.0, 0.0, f64::INFINITY)
        );
        assert!(exp_f64(f64::NAN).is_nan() && exp_f64(-740.0) > 0.0);
    }
}
