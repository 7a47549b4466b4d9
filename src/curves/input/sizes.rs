//! Sizes of data, the χ² of their rounding, and roots of variances; of many fits in vector code.

use pulp::{Arch, Simd, WithSimd};

use crate::math::Real;
use crate::values::Numbers;

/// Returns Σ (w y ε/2)² of weighted data w y: the χ² that rounding to numbers of spacing ε may leave of any residuals.
/// A smaller χ² does not measure the noise.
pub(crate) fn rounding(weighted: impl Iterator<Item = f64>, epsilon: f64) -> f64 {
    weighted.map(|y| (0.5 * epsilon * y).powi(2)).sum()
}

/// Returns whether data whose largest magnitude is `size` can be squared in f64 without loss of digits: 0, or 1e-140 to
/// 1e140.
pub(crate) fn has_squares(size: f64) -> bool {
    (size == 0.0) | (1e-140..=1e140).contains(&size)
}

/// Sets the largest |y| of each fit, (fits); NaN where one is not finite. `y`: (fits, points).
pub(crate) fn set_sizes(y: Numbers<'_>, points: usize, sizes: &mut Vec<f64>) {
    match y {
        Numbers::Double(y) => set_sizes_of(y, points, sizes),
        Numbers::Single(y) => set_sizes_of(y, points, sizes),
    }
}

/// Sets the same of numbers in one precision.
fn set_sizes_of<R: Real>(y: &[R], points: usize, sizes: &mut Vec<f64>) {
    sizes.resize(y.len() / points, 0.0);
    Arch::new().dispatch(Sizes { y, points, sizes });
}

/// Replaces each variance, (fits, P), by the square root of its product with the factor of its fit. Those that are 0
/// stay.
pub(crate) fn scale_and_take_roots(variances: &mut [f64], factors: &[f64]) {
    Arch::new().dispatch(Roots { variances, factors });
}

struct Sizes<'a, R> {
    y: &'a [R],
    points: usize,
    sizes: &'a mut [f64],
}

impl<R: Real> WithSimd for Sizes<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        // Positive numbers are ordered as their bits are; infinities and NaN come last.
        const MAGNITUDE: u64 = u64::MAX >> 1;
        for (y, size) in self.y.chunks_exact(self.points).zip(self.sizes) {
            let mut largest = 0;
            for y in y {
                largest = u64::max(largest, y.to_f64().to_bits() & MAGNITUDE);
            }
            *size = if largest < f64::INFINITY.to_bits() {
                f64::from_bits(largest)
            } else {
                f64::NAN
            };
        }
    }
}

struct Roots<'a> {
    variances: &'a mut [f64],
    factors: &'a [f64],
}

impl WithSimd for Roots<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let count = self.variances.len() / self.factors.len().max(1);
        for (variances, factor) in self
            .variances
            .chunks_exact_mut(count.max(1))
            .zip(self.factors)
        {
            // Held parameters have no variance, whatever the factor.
            variances
                .iter_mut()
                .for_each(|x| *x *= if *x == 0.0 { 1.0 } else { *factor });
        }
        self.variances.iter_mut().for_each(|x| *x = x.sqrt());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(y: Numbers<'_>, points: usize) -> Vec<f64> {
        let mut sizes = vec![1.0; 1];
        set_sizes(y, points, &mut sizes);
        sizes
    }

    #[test]
    fn sizes_are_the_largest_or_nan() {
        let y: Vec<f64> = (0..33).map(|j| -f64::from(j)).collect();
        assert_eq!(sizes(Numbers::Double(&y), 11), [10.0, 21.0, 32.0]);
        for (index, x) in [
            (0, f64::NAN),
            (10, f64::INFINITY),
            (12, f64::NEG_INFINITY),
            (32, f64::NAN),
        ] {
            let mut bad = y.clone();
            bad[index] = x;
            let sizes_of_fits = sizes(Numbers::Double(&bad), 11);
            (0..3).for_each(|k| {
                assert_eq!(
                    sizes_of_fits[k].is_nan(),
                    k == index / 11,
                    "{index}: {sizes_of_fits:?}"
                )
            });
            let single: Vec<f32> = bad.iter().map(|y| *y as f32).collect();
            let of_single = sizes(Numbers::Single(&single), 11);
            assert!(
                sizes_of_fits
                    .iter()
                    .zip(&of_single)
                    .all(|(a, b)| a.to_bits() == b.to_bits()),
                "{index}: {of_single:?}"
            );
        }
    }

    #[test]
    fn variances_of_held_parameters_stay_0() {
        let mut variances = [4.0, 0.0, 9.0, 0.0];
        scale_and_take_roots(&mut variances, &[4.0, f64::NAN]);
        assert_eq!(variances[..2], [4.0, 0.0]);
        assert!(variances[2].is_nan() && variances[3] == 0.0);
    }
}
