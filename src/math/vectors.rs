//! Elementary functions of vector registers: twins of `functions`, for loops whose numbers stay in registers.

use pulp::{Simd, bytemuck};

use super::functions;

/// Computes e^x with the bits of [`functions::exp`], for W registers at a time, which do not wait for each other. With
/// `NOT_POSITIVE`, x must be at most 0, or NaN.
#[inline(always)]
pub fn exp_f32s<S: Simd, const W: usize, const NOT_POSITIVE: bool>(
    simd: S,
    x: [S::f32s; W],
) -> [S::f32s; W] {
    const ROUNDING_SHIFT: f32 = 12_582_912.0;
    // These are loops, because a closure that the compiler does not inline would make each instruction a call.
    // 1. Reduce x to n ln 2 + r with |r| ≤ ln 2 / 2.
    let low = simd.splat_f32s(-87.0);
    let high = simd.splat_f32s(88.0);
    let mut clamped = x;
    let mut shifted = x;
    let mut remainder = x;
    for k in 0..W {
        // Selects instead of minima and maxima, whose results for NaN depend on the machine.
        clamped[k] = simd.select_f32s(simd.less_than_f32s(x[k], low), low, x[k]);
        if !NOT_POSITIVE {
            clamped[k] = simd.select_f32s(simd.less_than_f32s(high, x[k]), high, clamped[k]);
        }
        let rounding_shift = simd.splat_f32s(ROUNDING_SHIFT);
        shifted[k] = simd.mul_add_f32s(
            clamped[k],
            simd.splat_f32s(std::f32::consts::LOG2_E),
            rounding_shift,
        );
        let n = simd.sub_f32s(shifted[k], rounding_shift);
        let partial_remainder = simd.mul_add_f32s(n, simd.splat_f32s(-0.693_359_4), clamped[k]);
        remainder[k] = simd.mul_add_f32s(n, simd.splat_f32s(2.121_944_4e-4), partial_remainder);
    }
    // 2. Evaluate the polynomial of e^r.
    let mut polynomial = [simd.splat_f32s(1.987_569_1e-4); W];
    for coefficient in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        0.5,
    ] {
        let coefficient = simd.splat_f32s(coefficient);
        for k in 0..W {
            polynomial[k] = simd.mul_add_f32s(polynomial[k], remainder[k], coefficient);
        }
    }
    // 3. Multiply by 2ⁿ, and set results that are out of range.
    let bias = simd.splat_u32s(127u32.wrapping_sub(ROUNDING_SHIFT.to_bits()));
    let mut result = x;
    for k in 0..W {
        let mantissa = simd.mul_add_f32s(
            polynomial[k],
            simd.mul_f32s(remainder[k], remainder[k]),
            remainder[k],
        );
        let mantissa = simd.add_f32s(mantissa, simd.splat_f32s(1.0));
        // For NaN the power may be anything: its product with NaN stays NaN.
        let exponent = simd.add_u32s(simd.transmute_u32s_f32s(shifted[k]), bias);
        let power =
            simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(exponent, simd.splat_u32s(23)));
        let value = simd.mul_f32s(mantissa, power);
        result[k] = simd.select_f32s(simd.less_than_f32s(x[k], low), simd.splat_f32s(0.0), value);
        if !NOT_POSITIVE {
            result[k] = simd.select_f32s(
                simd.less_than_f32s(high, x[k]),
                simd.splat_f32s(f32::INFINITY),
                result[k],
            );
        }
    }
    result
}

/// Returns e^x of each element of a vector, computed one by one.
#[inline(always)]
pub fn exp_f64s<S: Simd>(x: S::f64s) -> S::f64s {
    let mut values = [x];
    for x in bytemuck::cast_slice_mut::<S::f64s, f64>(&mut values) {
        *x = functions::exp_f64(*x);
    }
    values[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulp::{Arch, WithSimd};

    struct Exp<'a, const NOT_POSITIVE: bool>(&'a mut [f32]);

    impl<const NOT_POSITIVE: bool> WithSimd for Exp<'_, NOT_POSITIVE> {
        type Output = ();

        fn with_simd<S: Simd>(self, simd: S) {
            for x in S::as_mut_simd_f32s(self.0).0.as_chunks_mut::<2>().0 {
                *x = exp_f32s::<S, 2, NOT_POSITIVE>(simd, *x);
            }
        }
    }

    #[test]
    fn vectors_have_the_bits_of_scalars() {
        let edges = [
            0.0,
            -0.0,
            88.0,
            88.1,
            -87.0,
            -87.1,
            1e30,
            -1e30,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            1e-30,
        ];
        let mut arguments: Vec<f32> = (-9000..9000)
            .map(|k| k as f32 * 0.01)
            .chain(edges)
            .collect();
        arguments.resize(arguments.len().next_multiple_of(64), 1.0);
        let assert_same_bits = |x: f32, result: f32| {
            let scalar = functions::exp(x);
            assert!(
                result.to_bits() == scalar.to_bits() || (result.is_nan() && x.is_nan()),
                "{x}: {result} {scalar}"
            );
        };
        let mut results = arguments.clone();
        let mut not_positive_results = arguments.clone();
        Arch::new().dispatch(Exp::<false>(&mut results));
        Arch::new().dispatch(Exp::<true>(&mut not_positive_results));
        for (x, (result, not_positive_result)) in arguments
            .into_iter()
            .zip(results.into_iter().zip(not_positive_results))
        {
            assert_same_bits(x, result);
            if x <= 0.0 || x.is_nan() {
                assert_same_bits(x, not_positive_result);
            }
        }
    }
}
