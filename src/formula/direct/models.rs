//! The models that are written out.

use pulp::Simd;

use super::wide::LaneVector;
use crate::math::Real;
use crate::solver::small::SumRounding;

/// Model of P parameters and D predictors with K constants, which are the same at every point of a fit; N = 1 + P.
///
/// It rounds no more often than its formula, so that the formula's bound on the rounding error holds for it.
pub trait ModelKernel<const P: usize, const D: usize, const K: usize, const N: usize> {
    /// Computes the constants of a fit from its parameters.
    fn compute_constants<R: Real, S: Simd>(
        parameters: [LaneVector<R, S>; P],
    ) -> [LaneVector<R, S>; K];
    /// Kind of the exponential e^q in a model's rows, if there is one.
    const EXPONENTIAL: Exponential;
    /// Computes numbers whose sum is q, each from one predictor. Where the exponential is `NotPositive`, none is above
    /// 0, or one is NaN.
    #[inline(always)]
    fn compute_exponents<R: Real, S: Simd>(
        _constants: [LaneVector<R, S>; K],
        x: [LaneVector<R, S>; D],
    ) -> [LaneVector<R, S>; D] {
        x
    }
    /// Computes the value and its derivatives by the parameters, given e^q.
    fn compute_rows<R: Real, S: Simd>(
        constants: [LaneVector<R, S>; K],
        x: [LaneVector<R, S>; D],
        e: LaneVector<R, S>,
    ) -> [LaneVector<R, S>; N];
    /// Bound of the rounding error where predictors are exact, by a running error analysis (Higham 2002, §3.3). It
    /// counts two exponentials and their product where e^q may be computed in this way.
    const SUM_ROUNDING: SumRounding;
}

/// Kind of the exponential e^q of a model.
#[derive(Clone, Copy, PartialEq)]
pub enum Exponential {
    None,
    Any,
    /// q is at most 0, or NaN.
    NotPositive,
}

pub struct Gauss1d;

impl ModelKernel<4, 1, 6, 5> for Gauss1d {
    #[inline(always)]
    fn compute_constants<R: Real, S: Simd>(
        [a, m, s, c]: [LaneVector<R, S>; 4],
    ) -> [LaneVector<R, S>; 6] {
        let inverse_variance = (s * s).inverse();
        [
            m,
            a,
            c,
            inverse_variance.half().negative(),
            a * inverse_variance,
            s.inverse(),
        ]
    }
    const EXPONENTIAL: Exponential = Exponential::NotPositive;
    #[inline(always)]
    fn compute_exponents<R: Real, S: Simd>(
        [m, _, _, k, ..]: [LaneVector<R, S>; 6],
        [x]: [LaneVector<R, S>; 1],
    ) -> [LaneVector<R, S>; 1] {
        let d = x - m;
        [d * d * k]
    }
    #[inline(always)]
    fn compute_rows<R: Real, S: Simd>(
        [m, a, c, _, w, per_s]: [LaneVector<R, S>; 6],
        [x]: [LaneVector<R, S>; 1],
        e: LaneVector<R, S>,
    ) -> [LaneVector<R, S>; 5] {
        let d = x - m;
        let slope = w * e * d;
        [a.times_plus(e, c), e, slope, slope * d * per_s, a.one()]
    }
    const SUM_ROUNDING: SumRounding = SumRounding {
        of_exponent: 9.0,
        others: 9.0,
        exponents: &[(2, 0.5)],
    };
}

pub struct Gauss2d;

impl ModelKernel<5, 2, 7, 6> for Gauss2d {
    #[inline(always)]
    fn compute_constants<R: Real, S: Simd>(
        [a, x0, y0, s, c]: [LaneVector<R, S>; 5],
    ) -> [LaneVector<R, S>; 7] {
        let inverse_variance = (s * s).inverse();
        [
            x0,
            y0,
            a,
            c,
            inverse_variance.half().negative(),
            a * inverse_variance,
            s.inverse(),
        ]
    }
    const EXPONENTIAL: Exponential = Exponential::NotPositive;
    #[inline(always)]
    fn compute_exponents<R: Real, S: Simd>(
        [x0, y0, _, _, k, ..]: [LaneVector<R, S>; 7],
        [x, y]: [LaneVector<R, S>; 2],
    ) -> [LaneVector<R, S>; 2] {
        let dx = x - x0;
        let dy = y - y0;
        [dx * dx * k, dy * dy * k]
    }
    #[inline(always)]
    fn compute_rows<R: Real, S: Simd>(
        constants: [LaneVector<R, S>; 7],
        [x, y]: [LaneVector<R, S>; 2],
        e: LaneVector<R, S>,
    ) -> [LaneVector<R, S>; 6] {
        let [x0, y0, a, c, _, w, per_s] = constants;
        let dx = x - x0;
        let dy = y - y0;
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
    const SUM_ROUNDING: SumRounding = SumRounding {
        of_exponent: 10.0,
        others: 12.0,
        exponents: &[(3, 0.5)],
    };
}

pub struct Gauss2dElliptic;

impl ModelKernel<6, 2, 10, 7> for Gauss2dElliptic {
    #[inline(always)]
    fn compute_constants<R: Real, S: Simd>(
        [a, x0, y0, sx, sy, c]: [LaneVector<R, S>; 6],
    ) -> [LaneVector<R, S>; 10] {
        let inverse_variance_x = (sx * sx).inverse();
        let inverse_variance_y = (sy * sy).inverse();
        let kx = inverse_variance_x.half().negative();
        let ky = inverse_variance_y.half().negative();
        [
            x0,
            y0,
            a,
            c,
            kx,
            ky,
            a * inverse_variance_x,
            a * inverse_variance_y,
            sx.inverse(),
            sy.inverse(),
        ]
    }
    const EXPONENTIAL: Exponential = Exponential::NotPositive;
    #[inline(always)]
    fn compute_exponents<R: Real, S: Simd>(
        constants: [LaneVector<R, S>; 10],
        [x, y]: [LaneVector<R, S>; 2],
    ) -> [LaneVector<R, S>; 2] {
        let [x0, y0, _, _, kx, ky, ..] = constants;
        let dx = x - x0;
        let dy = y - y0;
        [dx * dx * kx, dy * dy * ky]
    }
    #[inline(always)]
    fn compute_rows<R: Real, S: Simd>(
        constants: [LaneVector<R, S>; 10],
        [x, y]: [LaneVector<R, S>; 2],
        e: LaneVector<R, S>,
    ) -> [LaneVector<R, S>; 7] {
        let [x0, y0, a, c, _, _, wx, wy, per_sx, per_sy] = constants;
        let dx = x - x0;
        let dy = y - y0;
        let gx = wx * e * dx;
        let gy = wy * e * dy;
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
    const SUM_ROUNDING: SumRounding = SumRounding {
        of_exponent: 10.0,
        others: 12.0,
        exponents: &[(3, 0.5), (4, 0.5)],
    };
}

pub struct Decay;

impl ModelKernel<3, 1, 3, 4> for Decay {
    #[inline(always)]
    fn compute_constants<R: Real, S: Simd>(
        [a, k, c]: [LaneVector<R, S>; 3],
    ) -> [LaneVector<R, S>; 3] {
        [a, k.negative(), c]
    }
    const EXPONENTIAL: Exponential = Exponential::Any;
    #[inline(always)]
    fn compute_exponents<R: Real, S: Simd>(
        [_, k, _]: [LaneVector<R, S>; 3],
        [x]: [LaneVector<R, S>; 1],
    ) -> [LaneVector<R, S>; 1] {
        [k * x]
    }
    #[inline(always)]
    fn compute_rows<R: Real, S: Simd>(
        [a, _, c]: [LaneVector<R, S>; 3],
        [x]: [LaneVector<R, S>; 1],
        e: LaneVector<R, S>,
    ) -> [LaneVector<R, S>; 4] {
        [a.times_plus(e, c), e, (a * e * x).negative(), a.one()]
    }
    const SUM_ROUNDING: SumRounding = SumRounding {
        of_exponent: 1.0,
        others: 9.0,
        exponents: &[(1, 1.0)],
    };
}

pub struct Lorentz;

impl ModelKernel<4, 1, 6, 5> for Lorentz {
    #[inline(always)]
    fn compute_constants<R: Real, S: Simd>(
        [a, m, g, c]: [LaneVector<R, S>; 4],
    ) -> [LaneVector<R, S>; 6] {
        let square = g * g;
        let twice = a + a;
        [m, square, a * square, c, twice * square, twice * g]
    }
    const EXPONENTIAL: Exponential = Exponential::None;
    #[inline(always)]
    fn compute_rows<R: Real, S: Simd>(
        [m, square, peak, c, w, v]: [LaneVector<R, S>; 6],
        [x]: [LaneVector<R, S>; 1],
        _: LaneVector<R, S>,
    ) -> [LaneVector<R, S>; 5] {
        let d = x - m;
        let distance_square = d * d;
        let inverse = (distance_square + square).inverse();
        let inverse_square = inverse * inverse;
        [
            peak.times_plus(inverse, c),
            square * inverse,
            w * d * inverse_square,
            v * distance_square * inverse_square,
            m.one(),
        ]
    }
    const SUM_ROUNDING: SumRounding = SumRounding {
        of_exponent: 0.0,
        others: 10.0,
        exponents: &[],
    };
}
