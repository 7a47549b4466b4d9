//! Weights of an arm, which are given as ivar, as sigma, as both, or by the variances of a covariance.

use super::arm::expect_numbers;
use super::source::{ArrayRows, ArraySource};
use crate::error::Result;
use crate::values::Values;

/// Number of elements that are read and compared at once.
const ELEMENTS_PER_COMPARISON: usize = 1 << 15;
/// Maximum relative difference of ivar and 1/sigma², which rounding to 16-bit floats and back explains.
const MAX_IVAR_DIFFERENCE: f64 = 3e-3;

/// The array that gives an arm's weights.
pub enum WeightArray {
    /// Name of the array of inverse variances.
    Ivar(String),
    /// Name of the array of standard errors.
    Sigma(String),
    /// The variances of the covariance matrices.
    Covariance,
}

/// Finds an arm's weights: ivar, or else sigma, or else the variances of the covariance. `key` gives the name of an
/// array in this arm.
///
/// # Errors
/// `Format` or, in memory, `Usage` without either, or for two that contradict each other.
pub fn find_weights<'a>(
    source: &mut impl ArraySource<'a>,
    key: impl Fn(&str) -> String,
    shape: [usize; 2],
) -> Result<WeightArray> {
    let ivar = key("ivar");
    let sigma = key("sigma");
    let has_ivar = source.read_head(&ivar)?.is_some();
    let has_sigma = source.read_head(&sigma)?.is_some();
    match [has_ivar, has_sigma] {
        [true, false] => Ok(WeightArray::Ivar(ivar)),
        [false, true] => Ok(WeightArray::Sigma(sigma)),
        [false, false] if source.read_head(&key("covariance"))?.is_some() => {
            Ok(WeightArray::Covariance)
        }
        [false, false] => Err(source.missing_both_error(&ivar, &sigma)),
        [true, true] => {
            check_agreement(source, &ivar, &sigma, shape)?;
            Ok(WeightArray::Ivar(ivar))
        }
    }
}

/// Compares ivar and sigma at every pixel.
fn check_agreement<'a>(
    source: &mut impl ArraySource<'a>,
    ivar: &str,
    sigma: &str,
    shape: [usize; 2],
) -> Result<()> {
    let mut arrays = Vec::new();
    for key in [ivar, sigma] {
        expect_numbers(source, key, shape)?;
        arrays.push(source.open_rows(key)?);
    }
    let [length, pixels] = shape;
    let total = length.saturating_mul(pixels);
    for start in (0..total).step_by(ELEMENTS_PER_COMPARISON) {
        let count = ELEMENTS_PER_COMPARISON.min(total - start);
        let mut chunks = Vec::new();
        for array in &mut arrays {
            chunks.push(array.take_doubles(count, Values::default())?);
        }
        let [ivars, sigmas] = chunks.as_slice() else {
            continue;
        };
        let mut pairs = ivars.iter().zip(sigmas.iter()).enumerate();
        if let Some((k, (ivar_value, sigma_value))) =
            pairs.find(|(_, (i, s))| !ivar_agrees_with_sigma(**i, **s))
        {
            let row = (start + k) / pixels;
            let pixel = (start + k) % pixels;
            let message = format!(
                "`{ivar}` and `{sigma}` contradict each other: in row {row} at pixel {pixel} ivar is {ivar_value}, and \
                 sigma {sigma_value}, of which 1/sigma² is {}; leave out the one that is not meant",
                1.0 / (sigma_value * sigma_value)
            );
            return Err(source.place().error(message));
        }
    }
    Ok(())
}

/// Returns whether an ivar and a sigma of one pixel agree: ivar σ² = 1 up to rounding, or neither gives the pixel
/// weight. If one of them gives no weight (ivar 0, sigma infinite) or is invalid, the other may be any placeholder that
/// is not an ordinary error.
fn ivar_agrees_with_sigma(ivar: f64, sigma: f64) -> bool {
    let is_weight = ivar > 0.0 && ivar.is_finite();
    let is_error = sigma > 0.0 && sigma.is_finite();
    match (is_weight, is_error) {
        (true, true) => (ivar * sigma * sigma - 1.0).abs() <= MAX_IVAR_DIFFERENCE,
        (false, false) => true,
        // A sigma so large marks a masked pixel.
        (false, true) => ivar == 0.0 && sigma >= 1e9,
        (true, false) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::ivar_agrees_with_sigma;

    #[test]
    fn masked_pixels_agree_with_any_placeholder() {
        for (ivar, sigma) in [
            (4.0, 0.5),
            (4.0, 0.5 + 1e-4),
            (0.0, f64::INFINITY),
            (0.0, f64::NAN),
            (0.0, 0.0),
            (0.0, 1e10),
        ] {
            assert!(ivar_agrees_with_sigma(ivar, sigma), "{ivar} {sigma}");
        }
        for (ivar, sigma) in [
            (0.25, 2.1),
            (0.5, 0.5),
            (0.0, 0.5),
            (4.0, f64::INFINITY),
            (4.0, 0.0),
            (-1.0, 1.0),
        ] {
            assert!(!ivar_agrees_with_sigma(ivar, sigma), "{ivar} {sigma}");
        }
    }
}
