//! Elementary functions of a register's worth of numbers: twins of `functions`, for loops that keep to registers.

use pulp::{Simd, bytemuck};

use super::functions;

/// e^x as [`functions::exp`] computes it, bit by bit.
#[inline(always)]
pub fn exp_f32s<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    const ROUND: f32 = 12_582_912.0;
    let splat = |x: f32| simd.splat_f32s(x);
    let c = simd.max_f32s(simd.min_f32s(x, splat(88.0)), splat(-87.0));
    let shifted = simd.mul_add_f32s(c, splat(std::f32::consts::LOG2_E), splat(ROUND));
    let n = simd.sub_f32s(shifted, splat(ROUND));
    let r = simd.mul_add_f32s(n, splat(-0.693_359_4), c);
    let r = simd.mul_add_f32s(n, splat(2.121_944_4e-4), r);
    let p = splat(1.987_569_1e-4);
    let p = simd.mul_add_f32s(p, r, splat(1.398_199_9e-3));
    let p = simd.mul_add_f32s(p, r, splat(8.333_452e-3));
    let p = simd.mul_add_f32s(p, r, splat(4.166_579_6e-2));
    let p = simd.mul_add_f32s(p, r, splat(1.666_666_5e-1));
    let p = simd.mul_add_f32s(p, r, splat(0.5));
    let e = simd.add_f32s(simd.mul_add_f32s(p, simd.mul_f32s(r, r), r), splat(1.0));
    // 2ⁿ
    let bias = simd.splat_u32s(127u32.wrapping_sub(ROUND.to_bits()));
    let exponent = simd.add_u32s(simd.transmute_u32s_f32s(shifted), bias);
    let power = simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(exponent, simd.splat_u32s(23)));
    let value = simd.mul_f32s(e, power);
    let value = simd.select_f32s(simd.less_than_f32s(splat(88.0), x), splat(f32::INFINITY), value);
    let value = simd.select_f32s(simd.less_than_f32s(x, splat(-87.0)), splat(0.0), value);
    // what the clamp makes of NaN depends on the machine
    simd.select_f32s(simd.equal_f32s(x, x), value, x)
}

/// e^x, one by one.
#[inline(always)]
pub fn exp_f64s<S: Simd>(x: S::f64s) -> S::f64s {
    let mut value = [x];
    for x in bytemuck::cast_slice_mut::<S::f64s, f64>(&mut value) {
        *x = functions::exp_f64(*x);
    }
    value[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulp::{Arch, WithSimd};

    struct Exp<'a>(&'a mut [f32]);

    impl WithSimd for Exp<'_> {
        type Output = ();

        fn with_simd<S: Simd>(self, simd: S) {
            for x in S::as_mut_simd_f32s(self.0).0 {
                *x = exp_f32s(simd, *x);
            }
        }
    }

    #[test]
    fn vectors_have_the_bits_of_numbers() {
        let edges =
            [0.0, -0.0, 88.0, 88.1, -87.0, -87.1, 1e30, -1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-30];
        let mut all: Vec<f32> = (-9000..9000).map(|k| k as f32 * 0.01).chain(edges).collect();
        all.resize(all.len().next_multiple_of(64), 1.0);
        let mut found = all.clone();
        Arch::new().dispatch(Exp(&mut found));
        for (x, found) in all.into_iter().zip(found) {
            let scalar = functions::exp(x);
            assert!(found.to_bits() == scalar.to_bits() || (found.is_nan() && x.is_nan()), "{x}: {found} {scalar}");
        }
    }
}
