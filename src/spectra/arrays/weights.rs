//! Weights of an arm, which may be given in two ways.

use super::arm::expect_numbers;
use super::source::{Rows, Source};
use crate::error::Result;
use crate::values::Values;

/// Elements that are compared in one go.
const STEP: usize = 1 << 15;
/// Largest relative difference of ivar and 1/sigma² that rounding to 16-bit floats and back explains.
const ROUNDING: f64 = 3e-3;

/// The array that gives an arm's weights.
pub struct Weight {
    pub key: String,
    /// It is sigma, not ivar.
    pub is_sigma: bool,
}

/// Finds an arm's weights: ivar, or else sigma. `key` gives the name of an array in this arm.
///
/// # Errors
/// `Format` or, in memory, `Usage` without either, or for two that contradict each other.
pub fn weight<'a>(
    source: &mut impl Source<'a>,
    key: impl Fn(&str) -> String,
    shape: [usize; 2],
) -> Result<Weight> {
    let (ivar, sigma) = (key("ivar"), key("sigma"));
    let given = [
        source.head(&ivar)?.is_some(),
        source.head(&sigma)?.is_some(),
    ];
    match given {
        [true, false] => Ok(Weight {
            key: ivar,
            is_sigma: false,
        }),
        [false, true] => Ok(Weight {
            key: sigma,
            is_sigma: true,
        }),
        [false, false] => Err(source.missing_both(&ivar, &sigma)),
        [true, true] => {
            check_agreement(source, &ivar, &sigma, shape)?;
            Ok(Weight {
                key: ivar,
                is_sigma: false,
            })
        }
    }
}

/// Compares ivar and sigma at every pixel.
fn check_agreement<'a>(
    source: &mut impl Source<'a>,
    ivar: &str,
    sigma: &str,
    shape: [usize; 2],
) -> Result<()> {
    let mut streams = Vec::new();
    for key in [ivar, sigma] {
        expect_numbers(source, key, shape)?;
        streams.push(source.rows(key)?);
    }
    let [length, pixels] = shape;
    let total = length.saturating_mul(pixels);
    for from in (0..total).step_by(STEP) {
        let mut both = Vec::new();
        for stream in &mut streams {
            both.push(stream.take_doubles(STEP.min(total - from), Values::default())?);
        }
        let [weights, errors] = both.as_slice() else {
            continue;
        };
        let differs = weights
            .iter()
            .zip(errors.iter())
            .position(|(weight, error)| !agree(*weight, *error));
        if let Some((at, (weight, error))) =
            differs.and_then(|at| Some((at, (weights.get(at)?, errors.get(at)?))))
        {
            let (row, pixel) = ((from + at) / pixels, (from + at) % pixels);
            let message = format!(
                "`{ivar}` and `{sigma}` contradict each other: in row {row} at pixel {pixel} ivar is {weight}, and \
                 sigma {error}, of which 1/sigma² is {}; leave out the one that is not meant",
                1.0 / (error * error)
            );
            return Err(source.place().fault(message));
        }
    }
    Ok(())
}

/// Returns whether an ivar and a sigma of one pixel agree: ivar σ² = 1 but for rounding, or neither gives it weight.
/// Where either gives it no weight (ivar 0, sigma infinite) or is no weight at all, the other one may be whatever its
/// writer puts there for such a pixel: anything but an ordinary error.
fn agree(ivar: f64, sigma: f64) -> bool {
    let is_weight = ivar > 0.0 && ivar.is_finite();
    let is_error = sigma > 0.0 && sigma.is_finite();
    match (is_weight, is_error) {
        (true, true) => (ivar * sigma * sigma - 1.0).abs() <= ROUNDING,
        (false, false) => true,
        // sigma is so large that ivar is 0 beside it
        (false, true) => ivar == 0.0 && sigma >= 1e9,
        (true, false) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::agree;

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
            assert!(agree(ivar, sigma), "{ivar} {sigma}");
        }
        for (ivar, sigma) in [
            (0.25, 2.1),
            (0.5, 0.5),
            (0.0, 0.5),
            (4.0, f64::INFINITY),
            (4.0, 0.0),
            (-1.0, 1.0),
        ] {
            assert!(!agree(ivar, sigma), "{ivar} {sigma}");
        }
    }
}
