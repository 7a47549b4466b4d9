//! Constants and elementary functions of the trapezoidal rule, in f64 and f32.

use crate::math::trigonometry::sin_cos;
use crate::math::{Real, functions};

/// Precision in which w is computed, with its constants and elementary functions.
pub trait FaddeevaPrecision: Real {
    /// Distance h of the nodes.
    const NODE_DISTANCE: f64;
    /// h/2 as a sum of two numbers. The first has few digits, so that its products with small whole numbers are exact.
    const HALF_NODE_DISTANCE: [f64; 2];
    /// (2h/π) e^(−t²) at the nodes of δ = ½ and of δ = 0, the first of these halved.
    const NODE_WEIGHTS: &'static [[f64; 2]];
    /// Argument x from which on e^(−x²) underflows to zero.
    const MAX_GAUSS_ARGUMENT: f64;
    /// Argument from which on w(z) is i/(√π z) to rounding.
    const FAR_ARGUMENT: f64;
    /// Minimum |z|² for the asymptotic series of w′ and w″.
    const MIN_ASYMPTOTIC_SQUARE: f64;
    /// Maximum of |x| and |y|: beyond it w is evaluated at the maximum.
    const MAX_ARGUMENT: f64;

    /// Returns sine and cosine.
    fn sin_cos(self) -> (Self, Self);
    /// Returns e^self.
    fn exp(self) -> Self;
    /// Returns the largest whole number that is not above the number.
    fn round_down(self) -> Self;
    /// Returns the number rounded to its leading digits, whose square is exact.
    fn leading_digits(self) -> Self;
}

impl FaddeevaPrecision for f64 {
    const NODE_DISTANCE: f64 = 0.491_590_249_448_726_4;
    const HALF_NODE_DISTANCE: [f64; 2] = [0.245_795_130_729_675_3, -6.005_312_107_348_522e-9];
    const NODE_WEIGHTS: &'static [[f64; 2]] = &[
        [0.294_608_570_191_793_65, 0.156_478_036_351_085_37],
        [0.181_694_307_871_527_07, 0.245_771_407_110_492_6],
        [0.069_108_777_892_142_54, 0.119_035_163_906_534_28],
        [0.016_211_419_710_690_157, 0.035_556_183_445_597_77],
        [0.002_345_334_715_391_594, 0.006_550_145_507_183_81],
        [0.000_209_259_199_579_049_68, 0.000_744_188_068_433_574_1],
        [1.151_490_165_574_805_4e-5, 5.214_472_762_575_590_6e-5],
        [3.907_795_712_969_277_6e-7, 2.253_377_997_506_082_3e-6],
        [8.178_985_092_472_476e-9, 6.005_561_810_416_625e-8],
        [1.055_754_464_669_835e-10, 9.871_182_435_644_62e-10],
        [8.404_703_214_532_637e-13, 1.000_646_455_395_158e-11],
        [4.126_461_367_154_32e-15, 6.255_875_393_342_887e-14],
        [1.249_479_485_995_600_9e-17, 2.412_078_644_791_703e-16],
    ];
    const MAX_GAUSS_ARGUMENT: f64 = 28.0;
    const FAR_ARGUMENT: f64 = 1e8;
    const MIN_ASYMPTOTIC_SQUARE: f64 = 440.0;
    const MAX_ARGUMENT: f64 = 1e300;

    #[inline(always)]
    fn sin_cos(self) -> (f64, f64) {
        sin_cos(self)
    }
    #[inline(always)]
    fn exp(self) -> f64 {
        functions::exp_f64(self)
    }
    #[inline(always)]
    fn round_down(self) -> f64 {
        self.floor()
    }
    #[inline(always)]
    fn leading_digits(self) -> f64 {
        f64::from_bits(self.to_bits() & 0xffff_ffff_f800_0000)
    }
}

impl FaddeevaPrecision for f32 {
    const NODE_DISTANCE: f64 = 0.669_924_585_690_678_8;
    const HALF_NODE_DISTANCE: [f64; 2] = [0.335_937_5, -9.752_071_546_606_138e-4];
    const NODE_WEIGHTS: &'static [[f64; 2]] = &[
        [0.381_222_313_311_199_6, 0.213_243_618_622_923_07],
        [0.155_366_183_279_035_98, 0.272_267_078_713_868_46],
        [0.025_805_534_937_617_128, 0.070_837_366_722_392_3],
        [0.001_746_817_041_302_011_6, 0.007_511_174_818_834_919],
        [4.819_035_865_708_967e-5, 0.000_324_587_294_686_036_5],
        [5.418_150_716_715_12e-7, 5.716_541_320_447_808e-6],
        [2.482_676_819_752_310_5e-9, 4.103_111_911_417_863e-8],
    ];
    const MAX_GAUSS_ARGUMENT: f64 = 11.0;
    const FAR_ARGUMENT: f64 = 1e4;
    const MIN_ASYMPTOTIC_SQUARE: f64 = 25.0;
    const MAX_ARGUMENT: f64 = 1e30;

    #[inline(always)]
    fn sin_cos(self) -> (f32, f32) {
        (functions::sin(self), functions::cos(self))
    }
    #[inline(always)]
    fn exp(self) -> f32 {
        functions::exp(self)
    }
    #[inline(always)]
    fn round_down(self) -> f32 {
        self.floor()
    }
    #[inline(always)]
    fn leading_digits(self) -> f32 {
        f32::from_bits(self.to_bits() & 0xffff_f000)
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use super::*;

    #[test]
    fn node_weights_and_distances_are_correct() {
        fn check<R: FaddeevaPrecision>(terms: f64) {
            assert!((R::NODE_DISTANCE / (PI / terms).sqrt() - 1.0).abs() < 1e-15);
            assert!(
                ((R::HALF_NODE_DISTANCE[0] + R::HALF_NODE_DISTANCE[1]) / R::NODE_DISTANCE - 0.5)
                    .abs()
                    < 1e-15
            );
            for (k, [midpoint, trapezoidal]) in R::NODE_WEIGHTS.iter().enumerate() {
                let weight = |t: f64| 2.0 * R::NODE_DISTANCE / PI * (-t * t).exp();
                let halved = if k == 0 { 0.5 } else { 1.0 };
                let exact = [
                    weight((k as f64 + 0.5) * R::NODE_DISTANCE),
                    halved * weight(k as f64 * R::NODE_DISTANCE),
                ];
                let errors = [midpoint / exact[0] - 1.0, trapezoidal / exact[1] - 1.0];
                assert!(
                    errors.iter().all(|error| error.abs() < 1e-14),
                    "{k}: {errors:?}"
                );
            }
        }
        check::<f64>(13.0);
        check::<f32>(7.0);
    }
}
