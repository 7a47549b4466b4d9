//! Units of parameters: powers of two, by which a division is exact.

/// Returns the power of two nearest |start|, by its logarithm, that stays in f32's range; 1 of 0.
pub(crate) fn unit_in_f32(start: f64) -> f64 {
    power_of_two_near(start, 100.0)
}

/// Returns the power of two nearest |start| that stays in f64's range; 1 of 0.
pub(crate) fn unit_in_f64(start: f64) -> f64 {
    power_of_two_near(start, 480.0)
}

/// Returns the power of two nearest |x|, with an exponent of at most ±`max_exponent`; 1 of 0.
fn power_of_two_near(x: f64, max_exponent: f64) -> f64 {
    let exponent = x.abs().log2().round();
    if exponent.is_finite() {
        exponent.clamp(-max_exponent, max_exponent).exp2()
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn units_are_powers_of_two() {
        for (start, unit) in [
            (1.0, 1.0),
            (-3.0, 4.0),
            (0.1, 0.125),
            (0.0, 1.0),
            (1e300, 100f64.exp2()),
        ] {
            assert_eq!(super::unit_in_f32(start), unit);
        }
        assert_eq!(super::unit_in_f64(1e-100), (-332f64).exp2());
    }
}
