//! Spot checks of GPUs: a few results of each readback are computed again.
//!
//! The CPU computes them by the Rust twins of the kernels, at the parameters that the GPU itself reports. So the check
//! uses the user's own data, and two sound devices that end in different minima both pass it. A model of WGSL alone has
//! no twin; there the GPU computes the results again. `spectral/search/verify/mod.rs` and `curves/routes/verify.rs`
//! define what is compared and how much rounding is allowed.

use crate::error::{Error, Result};
use crate::solver::Status;

/// Maximum number of fits that are checked of those that a device returns together. Of small fits it is the number per
/// run, or one per part.
pub(crate) const MAX_CHECKED_FITS: usize = 8;

/// Returns at most `max_count` of the fits whose status is a success, at even distances.
pub(crate) fn sample_successes(
    fits: impl Iterator<Item = usize>,
    status: impl Fn(usize) -> Option<Status>,
    max_count: usize,
) -> Vec<usize> {
    let successes: Vec<usize> = fits
        .filter(|&k| status(k).is_some_and(Status::is_success))
        .collect();
    let count = successes.len().min(max_count);
    (0..count)
        .map(|i| successes[i * successes.len() / count])
        .collect()
}

/// Returns an error if an objective that a device reported differs from the `computed` one by more than `allowed`, or
/// is NaN. They are not compared if `allowed` is not finite.
///
/// # Errors
/// Returns [`Error::DeviceUntrusted`] with the name of the device, the two objectives and a `remark`.
pub(crate) fn compare_objectives(
    device: &str,
    reported: f64,
    computed: f64,
    allowed: f64,
    remark: &str,
) -> Result<()> {
    if (reported - computed).abs() <= allowed || !allowed.is_finite() {
        return Ok(());
    }
    Err(untrusted_error(
        device,
        format!("reports an objective of {reported} where it is {computed}{remark}"),
    ))
}

/// Returns the error for a device whose results are wrong in the way that `message` says.
pub(crate) fn untrusted_error(device: &str, message: String) -> Error {
    Error::DeviceUntrusted {
        device: device.into(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successes_are_sampled_at_even_distances() {
        let every_third = |k: usize| {
            Some(if k.is_multiple_of(3) {
                Status::Ftol
            } else {
                Status::Stalled
            })
        };
        assert_eq!(
            sample_successes(0..72, every_third, MAX_CHECKED_FITS),
            [0, 9, 18, 27, 36, 45, 54, 63]
        );
        assert_eq!(
            sample_successes(0..7, every_third, MAX_CHECKED_FITS),
            [0, 3, 6]
        );
        assert!(
            sample_successes(0..7, |_| None, MAX_CHECKED_FITS).is_empty()
                && sample_successes(0..7, every_third, 0).is_empty()
        );
    }

    #[test]
    fn objectives_may_differ_by_the_allowed_rounding() {
        let is_trusted = |reported, computed, allowed| {
            compare_objectives("gpu", reported, computed, allowed, "").is_ok()
        };
        assert!(
            is_trusted(1.0, 1.05, 0.1)
                && is_trusted(1.0, 9.0, f64::INFINITY)
                && is_trusted(1.0, 9.0, f64::NAN)
        );
        assert!(
            !is_trusted(1.0, 1.2, 0.1)
                && !is_trusted(1.2, 1.0, 0.1)
                && !is_trusted(f64::NAN, 1.0, 0.1)
        );
    }
}
