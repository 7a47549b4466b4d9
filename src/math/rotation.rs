//! The rotational profile of a rigid sphere with linear limb darkening (Carroll 1933; Gray 2005, eq. 18.14), seen
//! through linear interpolation: rvspecfit's kernel in closed form. f64.
//!
//! K(x) = \[2(1−ε)√(1−x²) + (π/2) ε (1−x²)\] / \[π(1−ε/3)\] on |x| < 1, ε = 0.6; the weight of pixel k is ∫ Λ(k − R x)
//! K(x) dx with Λ the triangle function and R = (vsini/c)/Δlnλ. With h″ = K that is the second difference of R h(k/R),
//! whose sum is exactly 1.

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

const LIMB_DARKENING: f64 = 0.6;

/// Returns C₁ and C₂ of the rotation profile K(x) = C₁ √(1−x²) + C₂ (1−x²) with limb darkening.
pub const fn profile() -> (f64, f64) {
    let norm = PI * (1.0 - LIMB_DARKENING / 3.0);
    (
        2.0 * (1.0 - LIMB_DARKENING) / norm,
        FRAC_PI_2 * LIMB_DARKENING / norm,
    )
}

/// Returns the number of pixels that a profile of radius R pixels reaches on either side. It is at least one, which the
/// derivative at R = 0 needs.
pub fn reach(radius: f64) -> usize {
    (radius.ceil() as usize).max(1)
}

/// Half of a symmetric kernel, k = 0…[`reach`].
#[derive(Clone, Debug, PartialEq)]
pub struct RotationKernel {
    pub weights: Vec<f64>,
    /// Derivatives by the radius; at radius 0 those from above.
    pub slopes: Vec<f64>,
}

impl RotationKernel {
    /// Computes the weights of rotational broadening, and their derivatives by its radius (in pixels). Below 0 nothing
    /// rotates: weight 1 and derivatives 0.
    pub fn new(radius: f64) -> RotationKernel {
        if radius < 0.0 || radius.is_nan() {
            return RotationKernel {
                weights: vec![1.0, 0.0],
                slopes: vec![0.0, 0.0],
            };
        }
        let (values, slopes): (Vec<f64>, Vec<f64>) = (0..=reach(radius) + 1)
            .map(|k| second_integral(k as f64, radius))
            .unzip();
        RotationKernel {
            weights: second_differences(&values),
            slopes: second_differences(&slopes),
        }
    }
}

/// Returns the second differences of a symmetric function, whose values at 0, 1, … are given.
fn second_differences(values: &[f64]) -> Vec<f64> {
    (0..values.len() - 1)
        .map(|k| {
            if k == 0 {
                2.0 * (values[1] - values[0])
            } else {
                values[k + 1] - 2.0 * values[k] + values[k - 1]
            }
        })
        .collect()
}

/// Returns R h(k/R) and its derivative by R, h(k/R) − (k/R) h′(k/R); h is a straight line of slope ½ beyond 1.
fn second_integral(k: f64, radius: f64) -> (f64, f64) {
    let (c1, c2) = profile();
    if k >= radius && k > 0.0 {
        let intercept = c1 * 0.5 * FRAC_PI_2 + c2 * (0.5 - 1.0 / 12.0) - 0.5;
        return (radius * intercept + 0.5 * k, intercept);
    }
    let x = if k > 0.0 { k / radius } else { 0.0 };
    let root = (1.0 - x * x).sqrt();
    let h =
        0.5 * c1 * (x * x.asin() + root - root.powi(3) / 3.0) + c2 * x * x * (0.5 - x * x / 12.0);
    let slope = 0.5 * c1 * (x * root + x.asin()) + c2 * x * (1.0 - x * x / 3.0);
    (radius * h, h - x * slope)
}

// The integral of K is 1.
const _: () = {
    let (c1, c2) = profile();
    let excess = 2.0 * (c1 * FRAC_PI_4 + c2 * (2.0 / 3.0)) - 1.0;
    assert!(excess < 1e-15 && excess > -1e-15);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_normalised_and_slopes_agree_with_differences() {
        for radius in [0.0, 0.02, 0.7, 1.0, 1.3, 5.5, 25.0, 36.4] {
            let RotationKernel { weights, slopes } = RotationKernel::new(radius);
            assert!(
                (weights[0] + 2.0 * weights[1..].iter().sum::<f64>() - 1.0).abs() < 1e-13,
                "{radius}"
            );
            assert!(
                (slopes[0] + 2.0 * slopes[1..].iter().sum::<f64>()).abs() < 1e-13,
                "{radius}"
            );
            assert!(weights.iter().all(|w| *w > -1e-15), "{radius}");
            // Central differences, or at 0 differences from above.
            let low = radius.max(1e-6) - 1e-6;
            let step = 2e-6;
            let weights_at_ends = [
                RotationKernel::new(low).weights,
                RotationKernel::new(low + step).weights,
            ];
            for (k, slope) in slopes.iter().enumerate() {
                let weight_at = |end: usize| weights_at_ends[end].get(k).copied().unwrap_or(0.0);
                let difference = (weight_at(1) - weight_at(0)) / step;
                assert!(
                    (difference - slope).abs() < 1e-5,
                    "{radius} {k}: {difference} {slope}"
                );
            }
        }
        assert_eq!(RotationKernel::new(0.0).weights, [1.0, 0.0]);
        assert_eq!(RotationKernel::new(-1.0).slopes, [0.0, 0.0]);
    }
}
