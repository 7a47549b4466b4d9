//! The models that are written out.

use pulp::Simd;

use super::wide::V;
use crate::math::Real;
use crate::solver::small::SumRounding;

/// A model of P parameters and D predictors with K numbers that are the same at every point of a fit; N = 1 + P.
///
/// It rounds no more often than its formula, so that the formula's bound on the rounding holds for it.
pub trait Model<const P: usize, const D: usize, const K: usize, const N: usize> {
    /// Returns the numbers that are the same at every point.
    fn constants<R: Real, S: Simd>(parameters: [V<R, S>; P]) -> [V<R, S>; K];
    /// Kind of the exponential e^q in a model's rows, if there is one.
    const EXPONENTIAL: Exponential;
    /// Returns numbers whose sum is q, each of one predictor. Where the exponential is `Below`, none is above 0, or one
    /// is NaN.
    #[inline(always)]
    fn exponents<R: Real, S: Simd>(_constants: [V<R, S>; K], x: [V<R, S>; D]) -> [V<R, S>; D] {
        x
    }
    /// Returns the value and its derivatives by the parameters, given e^q.
    fn rows<R: Real, S: Simd>(constants: [V<R, S>; K], x: [V<R, S>; D], e: V<R, S>)
    -> [V<R, S>; N];
    /// Bound on the rounding that [`rounding`](crate::formula::rounding) finds where predictors are exact. It counts
    /// two exponentials and their product where e^q may be computed so.
    const ROUNDING: SumRounding;
}

/// Kind of the exponential e^q of a model.
#[derive(Clone, Copy, PartialEq)]
pub enum Exponential {
    None,
    Any,
    /// q is at most 0, or NaN.
    Below,
}

pub struct Gauss1d;

impl Model<4, 1, 6, 5> for Gauss1d {
    #[inline(always)]
    fn constants<R: Real, S: Simd>([a, m, s, c]: [V<R, S>; 4]) -> [V<R, S>; 6] {
        let narrow = (s * s).inverse();
        [m, a, c, narrow.half().negative(), a * narrow, s.inverse()]
    }
    const EXPONENTIAL: Exponential = Exponential::Below;
    #[inline(always)]
    fn exponents<R: Real, S: Simd>(
        [m, _, _, k, ..]: [V<R, S>; 6],
        [x]: [V<R, S>; 1],
    ) -> [V<R, S>; 1] {
        let d = x - m;
        [d * d * k]
    }
    #[inline(always)]
    fn rows<R: Real, S: Simd>(
        [m, a, c, _, w, per_s]: [V<R, S>; 6],
        [x]: [V<R, S>; 1],
        e: V<R, S>,
    ) -> [V<R, S>; 5] {
        let d = x - m;
        let slope = w * e * d;
        [a.times_plus(e, c), e, slope, slope * d * per_s, a.one()]
    }
    const ROUNDING: SumRounding = SumRounding {
        of_exponent: 9.0,
        others: 9.0,
        exponents: &[(2, 0.5)],
    };
}

pub struct Gauss2d;

impl Model<5, 2, 7, 6> for Gauss2d {
    #[inline(always)]
    fn constants<R: Real, S: Simd>([a, x0, y0, s, c]: [V<R, S>; 5]) -> [V<R, S>; 7] {
        let narrow = (s * s).inverse();
        [
            x0,
            y0,
            a,
            c,
            narrow.half().negative(),
            a * narrow,
            s.inverse(),
        ]
    }
    const EXPONENTIAL: Exponential = Exponential::Below;
    #[inline(always)]
    fn exponents<R: Real, S: Simd>(
        [x0, y0, _, _, k, ..]: [V<R, S>; 7],
        [x, y]: [V<R, S>; 2],
    ) -> [V<R, S>; 2] {
        let (dx, dy) = (x - x0, y - y0);
        [dx * dx * k, dy * dy * k]
    }
    #[inline(always)]
    fn rows<R: Real, S: Simd>(
        constants: [V<R, S>; 7],
        [x, y]: [V<R, S>; 2],
        e: V<R, S>,
    ) -> [V<R, S>; 6] {
        let [x0, y0, a, c, _, w, per_s] = constants;
        let (dx, dy) = (x - x0, y - y0);
        let square = dx.times_plus(dx, dy * dy);
        let g = w * e;
        [
            a.times_plus(e, c),
            e,
            g * dx,
            g * dy,
            g * square * per_s,
            a.one(),
        ]
    }
    const ROUNDING: SumRounding = SumRounding {
        of_exponent: 10.0,
        others: 12.0,
        exponents: &[(3, 0.5)],
    };
}

pub struct Gauss2dElliptic;

impl Model<6, 2, 10, 7> for Gauss2dElliptic {
    #[inline(always)]
    fn constants<R: Real, S: Simd>([a, x0, y0, sx, sy, c]: [V<R, S>; 6]) -> [V<R, S>; 10] {
        let [nx, ny] = [(sx * sx).inverse(), (sy * sy).inverse()];
        let [kx, ky] = [nx.half().negative(), ny.half().negative()];
        [
            x0,
            y0,
            a,
            c,
            kx,
            ky,
            a * nx,
            a * ny,
            sx.inverse(),
            sy.inverse(),
        ]
    }
    const EXPONENTIAL: Exponential = Exponential::Below;
    #[inline(always)]
    fn exponents<R: Real, S: Simd>(constants: [V<R, S>; 10], [x, y]: [V<R, S>; 2]) -> [V<R, S>; 2] {
        let [x0, y0, _, _, kx, ky, ..] = constants;
        let (dx, dy) = (x - x0, y - y0);
        [dx * dx * kx, dy * dy * ky]
    }
    #[inline(always)]
    fn rows<R: Real, S: Simd>(
        constants: [V<R, S>; 10],
        [x, y]: [V<R, S>; 2],
        e: V<R, S>,
    ) -> [V<R, S>; 7] {
        let [x0, y0, a, c, _, _, wx, wy, per_sx, per_sy] = constants;
        let (dx, dy) = (x - x0, y - y0);
        let (gx, gy) = (wx * e * dx, wy * e * dy);
        [
            a.times_plus(e, c),
            e,
            gx,
            gy,
            gx * dx * per_sx,
            gy * dy * per_sy,
            a.one(),
        ]
    }
    const ROUNDING: SumRounding = SumRounding {
        of_exponent: 10.0,
        others: 12.0,
        exponents: &[(3, 0.5), (4, 0.5)],
    };
}

pub struct Decay;

impl Model<3, 1, 3, 4> for Decay {
    #[inline(always)]
    fn constants<R: Real, S: Simd>([a, k, c]: [V<R, S>; 3]) -> [V<R, S>; 3] {
        [a, k.negative(), c]
    }
    const EXPONENTIAL: Exponential = Exponential::Any;
    #[inline(always)]
    fn exponents<R: Real, S: Simd>([_, k, _]: [V<R, S>; 3], [x]: [V<R, S>; 1]) -> [V<R, S>; 1] {
        [k * x]
    }
    #[inline(always)]
    fn rows<R: Real, S: Simd>(
        [a, _, c]: [V<R, S>; 3],
        [x]: [V<R, S>; 1],
        e: V<R, S>,
    ) -> [V<R, S>; 4] {
        [a.times_plus(e, c), e, (a * e * x).negative(), a.one()]
    }
    const ROUNDING: SumRounding = SumRounding {
        of_exponent: 1.0,
        others: 9.0,
        exponents: &[(1, 1.0)],
    };
}

pub struct Lorentz;

impl Model<4, 1, 6, 5> for Lorentz {
    #[inline(always)]
    fn constants<R: Real, S: Simd>([a, m, g, c]: [V<R, S>; 4]) -> [V<R, S>; 6] {
        let (square, twice) = (g * g, a + a);
        [m, square, a * square, c, twice * square, twice * g]
    }
    const EXPONENTIAL: Exponential = Exponential::None;
    #[inline(always)]
    fn rows<R: Real, S: Simd>(
        [m, square, peak, c, w, v]: [V<R, S>; 6],
        [x]: [V<R, S>; 1],
        _: V<R, S>,
    ) -> [V<R, S>; 5] {
        let d = x - m;
        let far = d * d;
        let i = (far + square).inverse();
        let share = i * i;
        [
            peak.times_plus(i, c),
            square * i,
            w * d * share,
            v * far * share,
            m.one(),
        ]
    }
    const ROUNDING: SumRounding = SumRounding {
        of_exponent: 0.0,
        others: 10.0,
        exponents: &[],
    };
}
