//! Elementary functions of a register's worth of numbers: twins of `functions`, for loops that keep to registers.

use pulp::{Simd, bytemuck};

use super::functions;

/// e^x as [`functions::exp`] computes it, bit by bit; W registers at a time, which do not wait for each other. `BELOW`:
/// x is at most 0, or NaN.
#[inline(always)]
pub fn exp_f32s<S: Simd, const W: usize, const BELOW: bool>(
    simd: S,
    x: [S::f32s; W],
) -> [S::f32s; W] {
    const ROUND: f32 = 12_582_912.0;
    // loops, not closures: where a compiler does not take those in, each instruction becomes a call
    let (low, high) = (simd.splat_f32s(-87.0), simd.splat_f32s(88.0));
    let (mut c, mut shifted, mut r) = (x, x, x);
    for k in 0..W {
        // choices instead of a smallest and a largest number, of which machines make different things if one is NaN
        c[k] = simd.select_f32s(simd.less_than_f32s(x[k], low), low, x[k]);
        if !BELOW {
            c[k] = simd.select_f32s(simd.less_than_f32s(high, x[k]), high, c[k]);
        }
        let round = simd.splat_f32s(ROUND);
        shifted[k] = simd.mul_add_f32s(c[k], simd.splat_f32s(std::f32::consts::LOG2_E), round);
        let n = simd.sub_f32s(shifted[k], round);
        let near = simd.mul_add_f32s(n, simd.splat_f32s(-0.693_359_4), c[k]);
        r[k] = simd.mul_add_f32s(n, simd.splat_f32s(2.121_944_4e-4), near);
    }
    let mut p = [simd.splat_f32s(1.987_569_1e-4); W];
    for next in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        0.5,
    ] {
        let next = simd.splat_f32s(next);
        for k in 0..W {
            p[k] = simd.mul_add_f32s(p[k], r[k], next);
        }
    }
    let bias = simd.splat_u32s(127u32.wrapping_sub(ROUND.to_bits()));
    let mut out = x;
    for k in 0..W {
        let e = simd.mul_add_f32s(p[k], simd.mul_f32s(r[k], r[k]), r[k]);
        let e = simd.add_f32s(e, simd.splat_f32s(1.0));
        // 2ⁿ; of NaN it may be anything, and remains NaN times that
        let exponent = simd.add_u32s(simd.transmute_u32s_f32s(shifted[k]), bias);
        let power =
            simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(exponent, simd.splat_u32s(23)));
        let value = simd.mul_f32s(e, power);
        out[k] = simd.select_f32s(simd.less_than_f32s(x[k], low), simd.splat_f32s(0.0), value);
        if !BELOW {
            out[k] = simd.select_f32s(
                simd.less_than_f32s(high, x[k]),
                simd.splat_f32s(f32::INFINITY),
                out[k],
            );
        }
    }
    out
}

/// Returns e^x of each element of a vector, computed one by one.
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
        let mut all: Vec<f32> = (-9000..9000)
            .map(|k| k as f32 * 0.01)
            .chain(edges)
            .collect();
        all.resize(all.len().next_multiple_of(64), 1.0);
        let is = |x: f32, found: f32| {
            let scalar = functions::exp(x);
            assert!(
                found.to_bits() == scalar.to_bits() || (found.is_nan() && x.is_nan()),
                "{x}: {found} {scalar}"
            );
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
