//! The gamma function, its logarithm and the derivative of the logarithm, for formulas: in f64, and in f32 by way of
//! f64. Twin of `shaders/shared/gamma.wgsl`.

use std::f64::consts::PI;

/// Argument from which on the asymptotic series of ψ has a relative error below 1e-16.
const MIN_ASYMPTOTIC_ARGUMENT: f64 = 12.0;

/// Returns the derivative ψ(x) of ln Γ(x); NaN where x is 0 or a negative whole number. (Abramowitz & Stegun 1964,
/// 6.3.18; 6.3.5 and 6.3.7 where x is small or negative)
pub fn digamma(x: f64) -> f64 {
    // 1. Reflect arguments that are not positive.
    if x <= 0.0 {
        let turn = PI * (x - x.round());
        return if turn == 0.0 {
            f64::NAN
        } else {
            digamma(1.0 - x) - PI / turn.tan()
        };
    }
    // 2. Raise small arguments by ψ(y) = ψ(y + 1) − 1/y.
    let mut y = x;
    let mut sum = 0.0;
    while y < MIN_ASYMPTOTIC_ARGUMENT {
        sum -= 1.0 / y;
        y += 1.0;
    }
    // 3. Add the asymptotic series, whose coefficients are B₂ₖ / 2k, the highest first.
    let coefficients = [
        -3617.0 / 8160.0,
        1.0 / 12.0,
        -691.0 / 32_760.0,
        1.0 / 132.0,
        -1.0 / 240.0,
        1.0 / 252.0,
    ];
    let z = 1.0 / (y * y);
    let series = coefficients
        .into_iter()
        .chain([-1.0 / 120.0, 1.0 / 12.0])
        .fold(0.0, |sum, coefficient| sum * z + coefficient);
    sum + y.ln() - 0.5 / y - z * series
}

/// Returns Γ(x), rounded to f32; NaN where x is a negative whole number.
pub fn gamma_f32(x: f32) -> f32 {
    libm::tgamma(f64::from(x)) as f32
}

/// Returns ln |Γ(x)|, rounded to f32; infinite where x is 0 or a negative whole number.
pub fn log_gamma_f32(x: f32) -> f32 {
    libm::lgamma(f64::from(x)) as f32
}

/// Returns ψ(x), rounded to f32; NaN where x is 0 or a negative whole number.
pub fn digamma_f32(x: f32) -> f32 {
    digamma(f64::from(x)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGAMMA_VALUES: [(f64, f64); 12] = [
        (0.001, -1_000.575_571_931_810_3),
        (0.5, -1.963_510_026_021_423_5),
        (1.0, -0.577_215_664_901_532_9),
        (1.46, -0.001_580_561_987_083_452),
        (2.0, 0.422_784_335_098_467_1),
        (3.7, 1.167_153_539_361_511_4),
        (11.9, 2.433_933_536_882_537_5),
        (12.1, 2.451_314_348_174_337),
        (250.0, 5.519_459_584_531_047),
        (-0.5, 0.036_489_973_978_576_52),
        (-3.3, 3.620_353_460_592_126),
        (-20.7, 0.771_593_185_082_505_5),
    ];

    /// Values from mpmath 1.3. Near the zero at 1.4616 the error is absolute.
    #[test]
    fn digamma_is_accurate() {
        for (x, exact) in DIGAMMA_VALUES {
            let error = (digamma(x) - exact).abs() / exact.abs().max(1.0);
            assert!(error < 3e-15, "ψ({x}): {error:e}");
        }
        assert!(
            [0.0, -1.0, -7.0, f64::NAN]
                .into_iter()
                .all(|x| digamma(x).is_nan())
        );
        assert_eq!(digamma(f64::INFINITY), f64::INFINITY);
    }
}
