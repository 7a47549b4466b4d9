//! Sine and cosine in f64, without branches or library calls, so that loops over them compile to vector code.

use std::f64::consts::FRAC_2_PI;

/// π/2 in two parts. Products of the first with whole numbers below 2²⁰ are exact.
const HALF_PI_PARTS: [f64; 2] = [1.570_796_326_734_125_6, 6.077_100_506_506_192e-11];
/// (−1)ᵏ/(2k + 1)! from k = 8 down to 1.
const SINE_COEFFICIENTS: [f64; 8] = [
    1.0 / 355_687_428_096_000.0,
    -1.0 / 1_307_674_368_000.0,
    1.0 / 6_227_020_800.0,
    -1.0 / 39_916_800.0,
    1.0 / 362_880.0,
    -1.0 / 5_040.0,
    1.0 / 120.0,
    -1.0 / 6.0,
];
/// (−1)ᵏ/(2k)! from k = 8 down to 1.
const COSINE_COEFFICIENTS: [f64; 8] = [
    1.0 / 20_922_789_888_000.0,
    -1.0 / 87_178_291_200.0,
    1.0 / 479_001_600.0,
    -1.0 / 3_628_800.0,
    1.0 / 40_320.0,
    -1.0 / 720.0,
    1.0 / 24.0,
    -0.5,
];

/// Returns the sine and the cosine of x in radians, for |x| up to 10⁶. Beyond, digits are lost.
#[inline(always)]
pub fn sin_cos(x: f64) -> (f64, f64) {
    // 1. Reduce x to k π/2 + r (Cody & Waite 1980), and evaluate the series of both at r.
    let k = (x * FRAC_2_PI + 0.5).floor();
    let r = (x - k * HALF_PI_PARTS[0]) - k * HALF_PI_PARTS[1];
    let square = r * r;
    let series =
        |coefficients: [f64; 8]| coefficients.iter().fold(0.0, |sum, c| (sum + c) * square);
    let sine = r + r * series(SINE_COEFFICIENTS);
    let cosine = 1.0 + series(COSINE_COEFFICIENTS);
    // 2. Exchange them in odd quarters of a turn, and set their signs.
    let quarter = k - 4.0 * (0.25 * k).floor();
    let is_odd = quarter == 1.0 || quarter == 3.0;
    let (first, second) = if is_odd {
        (cosine, sine)
    } else {
        (sine, cosine)
    };
    (
        if quarter >= 2.0 { -first } else { first },
        if quarter == 1.0 || quarter == 2.0 {
            -second
        } else {
            second
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sine_and_cosine_are_accurate_to_1e6() {
        for k in -400_000..400_000 {
            let x = f64::from(k) * 1.37e-3;
            let (sine, cosine) = sin_cos(x);
            assert!(
                (sine - x.sin()).abs() < 3e-16 && (cosine - x.cos()).abs() < 3e-16,
                "{x}: {sine} {cosine}"
            );
        }
        for k in 0..10_000 {
            let x = 1e6 - f64::from(k) * 13.7;
            let (sine, cosine) = sin_cos(x);
            assert!(
                (sine - x.sin()).abs() < 3e-16 && (cosine - x.cos()).abs() < 3e-16,
                "{x}: {sine} {cosine}"
            );
        }
        let (sine, cosine) = sin_cos(1e-9);
        assert_eq!((sine, cosine), (1e-9, 1.0));
        assert!(sin_cos(f64::NAN).0.is_nan() && sin_cos(f64::INFINITY).1.is_nan());
    }
}
