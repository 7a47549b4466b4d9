//! Conversion of wavelengths from air to vacuum.

/// Wavelengths below this (Å) are given in vacuum by convention.
const MIN_AIR_WAVELENGTH: f64 = 2000.0;
/// Number of fixed-point iterations, each of which gains four digits.
const FIXED_POINT_ITERATIONS: usize = 5;

/// Returns the refractive index of standard air at a vacuum wavelength (Å): IAU 1991 (Morton 1991, ApJS 77, 119), as
/// SDSS uses it.
fn refractive_index(vacuum: f64) -> f64 {
    let inverse_square = (vacuum * vacuum).recip();
    1.0 + 2.735_182e-4 + 131.4182 * inverse_square + 2.762_49e8 * inverse_square * inverse_square
}

/// Converts a wavelength (Å) from air to vacuum, to rounding; returns those below 2000 Å or not finite unchanged.
pub fn to_vacuum(air: f64) -> f64 {
    if !(air.is_finite() && air >= MIN_AIR_WAVELENGTH) {
        return air;
    }
    (0..FIXED_POINT_ITERATIONS).fold(air, |vacuum, _| air * refractive_index(vacuum))
}

/// Returns whether the text of `name`, which says the medium of wavelengths, is "air" and not "vacuum"; else a message.
pub fn is_air(name: &str, text: Option<&str>) -> Result<bool, String> {
    match text.map(|text| text.trim().to_lowercase()).as_deref() {
        Some("air") => Ok(true),
        Some("vacuum") => Ok(false),
        _ => Err(format!(
            "`{name}` is neither the text \"air\" nor \"vacuum\""
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_inverts_the_refractive_index() {
        for vacuum in [2000.7, 3600.0, 5000.0, 6564.61, 9800.0, 17000.0] {
            let air = vacuum / refractive_index(vacuum);
            assert!((to_vacuum(air) - vacuum).abs() < 1e-9 * vacuum, "{vacuum}");
        }
        // Hα and [O III] as SDSS lists them, with two digits, in air and in vacuum.
        assert!((to_vacuum(6562.80) - 6564.61).abs() < 0.01);
        assert!((to_vacuum(5006.84) - 5008.24).abs() < 0.01);
        assert_eq!(to_vacuum(1500.0), 1500.0);
        assert!(to_vacuum(f64::NAN).is_nan());
    }
}
