//! Elementary functions of a register's worth of numbers: twins of `functions`, for loops that keep to registers.

use pulp::{Simd, bytemuck};

use super::functions;

/// e^x as [`functions::exp`] computes it, bit by bit; W registers at a time, which do not wait for each other. `BELOW`: x is at most 0,
/// or NaN.
#[inline(always)]
pub fn exp_f32s<S: Simd, const W: usize, const BELOW: bool>(simd: S, x: [S::f32s; W]) -> [S::f32s; W] {
    const ROUND: f32 = 12_582_912.0;
    let splat = |x: f32| simd.splat_f32s(x);
    // choices instead of a smallest and a largest number, of which machines make different things if one is NaN
    let small = x.map(|x| simd.less_than_f32s(x, splat(-87.0)));
    let large = x.map(|x| simd.less_than_f32s(splat(88.0), x));
    let c: [_; W] = std::array::from_fn(|k| {
        let c = simd.select_f32s(small[k], splat(-87.0), x[k]);
        if BELOW { c } else { simd.select_f32s(large[k], splat(88.0), c) }
    });
    let shifted = c.map(|c| simd.mul_add_f32s(c, splat(std::f32::consts::LOG2_E), splat(ROUND)));
    let n = shifted.map(|shifted| simd.sub_f32s(shifted, splat(ROUND)));
    let r: [_; W] = std::array::from_fn(|k| simd.mul_add_f32s(n[k], splat(-0.693_359_4), c[k]));
    let r: [_; W] = std::array::from_fn(|k| simd.mul_add_f32s(n[k], splat(2.121_944_4e-4), r[k]));
    let mut p = [splat(1.987_569_1e-4); W];
    for next in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = std::array::from_fn(|k| simd.mul_add_f32s(p[k], r[k], splat(next)));
    }
    let squares = r.map(|r| simd.mul_f32s(r, r));
    let e: [_; W] = std::array::from_fn(|k| simd.mul_add_f32s(p[k], squares[k], r[k]));
    let e = e.map(|e| simd.add_f32s(e, splat(1.0)));
    // 2ⁿ
    let bias = simd.splat_u32s(127u32.wrapping_sub(ROUND.to_bits()));
    let power = shifted.map(|shifted| {
        let exponent = simd.add_u32s(simd.transmute_u32s_f32s(shifted), bias);
        simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(exponent, simd.splat_u32s(23)))
    });
    std::array::from_fn(|k| {
        // NaN times whatever its bits made of the power
        let value = simd.select_f32s(small[k], splat(0.0), simd.mul_f32s(e[k], power[k]));
        if BELOW { value } else { simd.select_f32s(large[k], splat(f32::INFINITY), value) }
    })
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

    struct Exp<'a, const BELOW: bool>(&'a mut [f32]);

    impl<const BELOW: bool> WithSimd for Exp<'_, BELOW> {
        type Output = ();

        fn with_simd<S: Simd>(self, simd: S) {
            for x in S::as_mut_simd_f32s(self.0).0.as_chunks_mut::<2>().0 {
                *x = exp_f32s::<S, 2, BELOW>(simd, *x);
            }
        }
    }

    #[test]
    fn vectors_have_the_bits_of_numbers() {
        let edges =
            [0.0, -0.0, 88.0, 88.1, -87.0, -87.1, 1e30, -1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-30];
        let mut all: Vec<f32> = (-9000..9000).map(|k| k as f32 * 0.01).chain(edges).collect();
        all.resize(all.len().next_multiple_of(64), 1.0);
        let is = |x: f32, found: f32| {
            let scalar = functions::exp(x);
            assert!(found.to_bits() == scalar.to_bits() || (found.is_nan() && x.is_nan()), "{x}: {found} {scalar}");
        };
        let (mut found, mut below) = (all.clone(), all.clone());
        Arch::new().dispatch(Exp::<false>(&mut found));
        Arch::new().dispatch(Exp::<true>(&mut below));
        for (x, (found, below)) in all.into_iter().zip(found.into_iter().zip(below)) {
            is(x, found);
            if x <= 0.0 || x.is_nan() {
                is(x, below);
            }
        }
    }
}
